"""What every column and mark means: shown on hover and focus, and in the glossary."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of the leaderboard; `kind` is how it sorts: "text" or "num"."""

    key: str
    title: str
    kind: str


COLUMNS = (
    Column("system", "system", "text"),
    Column("backend", "back-end", "text"),
    Column("score", "score", "num"),
    Column("p50", "p50, s", "num"),
    Column("p95", "p95, s", "num"),
    Column("published convention", "clipped, s", "num"),
    Column("outcomes", "outcomes", "num"),
    Column("talk-over", "talk-over", "num"),
    Column("cost", "cost", "num"),
    Column("n", "n", "num"),
    Column("runs", "runs", "num"),
    Column("judge", "judge", "text"),
    Column("date", "date", "text"),
    Column("commit", "commit", "text"),
)

GLOSSARY = {
    "system": "What was benchmarked. The link leads to its latest run.",
    "backend": "The language model that thinks for the system; none where the system has none.",
    "score": "Mean of the judge's scores, 1 to 10, over judged turns. Small: 95 % interval over questions.",
    "p50": (
        "Median onset latency in seconds: from the user's last sample of speech to the first of the "
        "response. Negative: the system began before the user had ended. Silent turns count as "
        "later than any response."
    ),
    "p95": "95 % of turns are answered within this time. Of 60 turns it rests on three: read it as a hint.",
    "published convention": (
        "Median of max(0, latency) over turns with a response: what papers most likely mean by "
        "latency (assumed; no formula was published)."
    ),
    "outcomes": (
        "Answered, premature (before the user's end), carried over (never fell silent), silent (no "
        "response in the window), fault (something failed; never lowers a score)."
    ),
    "talk-over": "Mean share of the user's speech during which the system spoke.",
    "cost": "US dollars of all requests of the run, where they are known.",
    "n": "Judged turns; beside it those missing (a fault, or no verdict) and those not used for latency.",
    "runs": (
        "Stored runs of this system and back-end; the row shows the latest, older ones are linked by date."
    ),
    "judge": "Who gave the scores. Rows with different judges are never ranked together.",
    "date": "When the run began (UTC).",
    "commit": "Commit of kamebench that ran it; + where files had been changed since.",
    "floor": "A small embedded model: shows that everything works; most of its answers are wrong.",
    "topline": (
        "Speaks the task's own reference answers: shows what recognition, synthesis and timing cost."
    ),
    "Pareto front": (
        "Systems that no other one beats in both score and latency. Floors and toplines do not compete."
    ),
    "curve": (
        "Share of turns whose response began within t of the user's end (Kaplan-Meier; silent turns "
        "are censored at the end of their window). Band: 95 %, over questions."
    ),
    "stages": "Mean time from step to step of the pipeline, from the user's end to the first heard sample.",
    "ladder": (
        "The same turns judged at several points: the back-end's text, the oracle, what was spoken. "
        "The steps between them tell where quality is lost."
    ),
    "pacing": (
        "How late frames were sent against their 80 ms schedule. A turn over 80 ms is not used for latency."
    ),
    "sensitivity": (
        "How the median latency moves with another threshold or detector: the error of the measurement."
    ),
    "oracle": (
        "Text from the back-end fed to the model while it speaks. Stale: applied after a newer "
        "request had begun. Dropped: never reached the model."
    ),
    "facts judge": (
        "A deterministic, offline judge: the share of a turn's facts that were said, on 1 to 10. "
        "Not comparable with an LLM judge."
    ),
}
