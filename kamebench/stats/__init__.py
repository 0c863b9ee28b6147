"""Aggregates with intervals, latency with censoring, and paired comparison of runs."""

from kamebench.stats.aggregates import score_aggregates
from kamebench.stats.latency import LatencySummary, ResponseCurve, latency_summary, response_curve

__all__ = ["LatencySummary", "ResponseCurve", "latency_summary", "response_curve", "score_aggregates"]
