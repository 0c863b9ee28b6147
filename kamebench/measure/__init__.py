"""When did the system answer? Pure functions of a recording; nothing here runs a system."""

from __future__ import annotations

from kamebench.measure.onset import Span, find_onset, overlap_share
from kamebench.measure.run import check_measures, measure_run
from kamebench.measure.speech import Rules, find_speech
from kamebench.measure.turn import measure_recording, measure_turn

__all__ = [
    "Rules",
    "Span",
    "check_measures",
    "find_onset",
    "find_speech",
    "measure_recording",
    "measure_run",
    "measure_turn",
    "overlap_share",
]
