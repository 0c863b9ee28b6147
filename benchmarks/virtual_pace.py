"""Speed of `virtual` against `realtime` on the embedded cascade, and how well their latencies agree.

    python benchmarks/virtual_pace.py [--limit 3]

The same turns are played in real time twice and virtually once. Goals: virtual at least 5 times faster; its
latencies within one frame (80 ms) of the real ones for 95 % of turns, or as well as the real ones agree with
each other.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from pathlib import Path

import pandas as pd

from kamebench.cli.running import RunOptions, start_run
from kamebench.clock import Pace

BACKEND = "local"


def play(pace: Pace, limit: int, folder: Path) -> tuple[pd.Series, float]:
    """Latency in ms by turn, and the seconds that the sessions took."""
    options = RunOptions(pace=pace, limit=limit, results=folder, judge="none", backend=BACKEND, as_json=True)
    with contextlib.redirect_stdout(io.StringIO()):
        run = start_run(options)
    table = run.table().set_index(["question_id", "turn"])
    return table["latency_ms"], float(run.manifest.usage["sessions_s"])


def agreement(name: str, a: pd.Series, b: pd.Series) -> str:
    apart = (a - b).abs().dropna()
    return (
        f"| {name} | {len(apart)} | {apart.median():.0f} | {apart.max():.0f} | {(apart <= 80).mean():.0%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, default=3, help="questions (two turns each)")
    limit = parser.parse_args().limit
    with tempfile.TemporaryDirectory() as folder:
        first, real_s = play("realtime", limit, Path(folder))
        second, _ = play("realtime", limit, Path(folder))
        virtual, virtual_s = play("virtual", limit, Path(folder))
    print(f"realtime {real_s:.1f} s, virtual {virtual_s:.1f} s: {real_s / virtual_s:.1f} times faster\n")
    print(
        "| latencies | turns | median difference ms | largest ms | within one frame |\n"
        "|---|---:|---:|---:|---:|"
    )
    print(agreement("realtime against realtime", first, second))
    print(agreement("virtual against realtime", virtual, first))
    print(agreement("virtual against realtime again", virtual, second))


if __name__ == "__main__":
    main()
