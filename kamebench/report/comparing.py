"""Pages that compare two runs of a group, turn by turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from kamebench.audio import SAMPLE_RATE
from kamebench.errors import BadRun
from kamebench.report.board import Entry, Group, read_entry, slug_of
from kamebench.report.pages import write_page
from kamebench.report.runpages import AUDIO_FOLDER, audio_name, safe_name
from kamebench.stats.paired import METRICS, PairedDifference, paired_difference
from kamebench.store import AUDIO, Run

ALL_PAIRS_UP_TO = 6  # rows; beyond that each is compared with the best and with the next in rank
N_CHANGES = 5
LEAD_IN_S = 1.0  # of the question heard before an answer, so that the wait for it is heard too

NAMES = {
    "score": "score",
    "latency_change": "latency, turn by turn",
    "latency_median": "median latency",
    "silent_share": "silent, share",
    "no_response_share": "no response, share",
    "premature_share": "premature, share",
    "talk_over_share": "talk-over, share",
}


@dataclass(frozen=True)
class Pair:
    """Two runs of a group and where their page lies."""

    slug: str
    first: Entry
    second: Entry


def pairs(group: Group) -> tuple[Pair, ...]:
    """Which pairs get a page: all of a small group; of a large one each with the best and the next."""
    entries = group.entries
    chosen = (
        combinations(entries, 2)
        if len(entries) <= ALL_PAIRS_UP_TO
        else dict.fromkeys([(entries[0], e) for e in entries[1:]] + list(pairwise(entries)))
    )
    # The better one comes second, so that a positive difference reads as a gain.
    return tuple(_pair(worse, better) for better, worse in chosen)


def _pair(first: Entry, second: Entry) -> Pair:
    return Pair(slug_of(f"{first.label}-{second.label}", f"{first.slug}|{second.slug}"), first, second)


def write_comparison(path: Path, first: Path, second: Path, stamp: str) -> None:
    """Write the page that compares the runs in two folders; `stamp` tells what it was made from."""
    a, b = read_entry(Run(first)), read_entry(Run(second))
    changes = _changes(a, b)
    write_page(
        path,
        "compare.html",
        "../",
        stamp=stamp,
        a=a,
        b=b,
        differences=list(_differences(a, b)),
        wins=[_change(a, b, c) for c in changes if c["delta"] > 0][:N_CHANGES],
        losses=[_change(a, b, c) for c in reversed(changes) if c["delta"] < 0][:N_CHANGES],
    )


def _differences(a: Entry, b: Entry) -> Iterator[tuple[str, PairedDifference, str]]:
    for name, metric in METRICS.items():
        try:
            found = paired_difference(a.table, b.table, name)
        except BadRun:
            continue
        yield NAMES.get(name, name.replace("_", " ")), found, _reading(found, metric.better)
    for category in a.categories:
        if category in b.categories:
            found = paired_difference(a.table, b.table, "score", (category,))
            yield f"score, {category}", found, _reading(found, 1)


def _reading(found: PairedDifference, sign: int) -> str:
    """What the interval says about the second run."""
    if found.low is None or found.high is None:
        return found.reason or "no interval"
    if found.low > 0:
        return "better" if sign > 0 else "worse"
    if found.high < 0:
        return "worse" if sign > 0 else "better"
    return "no difference shown"


def _changes(a: Entry, b: Entry) -> list[dict[str, Any]]:
    """Turns that both runs have a score of, the largest gain first."""
    keys = ["question_id", "turn"]
    columns = [*keys, "category", "score", "latency_ms", "text"]
    both = pd.merge(a.table[columns], b.table[columns], on=keys, suffixes=("_a", "_b"))
    both["delta"] = both["score_b"] - both["score_a"]
    both = both.dropna(subset=["delta"]).sort_values(["delta", *keys], ascending=[False, True, True])
    return [{str(k): v for k, v in row.items()} for row in both.to_dict("records")]


def _change(a: Entry, b: Entry, row: dict[str, Any]) -> dict[str, Any]:
    question, turn = str(row["question_id"]), int(row["turn"])
    sides = [_side(e, question, turn, row, end) for e, end in ((a, "a"), (b, "b"))]
    return {
        "question_id": question,
        "turn": turn,
        "category": row["category_a"],
        "delta": row["delta"],
        "sides": sides,
        "playable": all(side["audio"] for side in sides),
    }


def _side(e: Entry, question: str, turn: int, row: dict[str, Any], end: str) -> dict[str, Any]:
    session = e.run.sessions[question]
    mark = next((m for m in session.turns if m.turn == turn), None)
    kept = (e.run.session_folder(question) / AUDIO).is_file()
    name = audio_name(session) if kept else None
    latency, text = row[f"latency_ms_{end}"], row[f"text_{end}"]
    return {
        "label": e.label,
        "page": f"../runs/{e.slug}/{safe_name(question)}.html#turn-{turn}",
        "score": row[f"score_{end}"],
        "latency_ms": None if pd.isna(latency) else latency,
        "text": None if pd.isna(text) else text,
        "audio": f"../{AUDIO_FOLDER}/{name}" if name else None,
        "from_s": round(max(mark.user_end_sample / SAMPLE_RATE - LEAD_IN_S, 0), 2) if mark else 0,
        "to_s": round(mark.end_sample / SAMPLE_RATE, 2) if mark else 0,
    }
