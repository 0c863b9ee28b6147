"""Whether two runs may be compared at all, and if not, what differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kamebench.stats.snapshot import Snapshot


@dataclass(frozen=True)
class Difference:
    """One thing in which two runs differ. `fatal`: their numbers do not mean the same."""

    what: str
    first: str
    second: str
    fatal: bool

    def __str__(self) -> str:
        return f"{self.what}: {self.first} against {self.second}"


def differences(first: Snapshot, second: Snapshot) -> list[Difference]:
    """Everything in which two runs differ beside their results, fatal ones first."""
    found = [
        *_fields(first, second),
        *_audio(first, second),
        *_settings("judge", first.judge, second.judge),
        *_settings("detector", first.detector, second.detector),
        *_questions(first, second),
        *_notes(first, second),
    ]
    return sorted(found, key=lambda difference: not difference.fatal)


def fatal(found: list[Difference]) -> list[Difference]:
    return [difference for difference in found if difference.fatal]


def _fields(first: Snapshot, second: Snapshot) -> list[Difference]:
    found: list[Difference] = []
    for what, a, b in (
        ("task", first.task, second.task),
        ("task version", first.task_version, second.task_version),
        ("task hash", first.task_sha256[:12], second.task_sha256[:12]),
        ("score", first.score, second.score),
    ):
        if a != b:
            found.append(Difference(what, str(a), str(b), fatal=True))
    # In lockstep the model's own compute is not charged: another latency than in the other two paces.
    if first.pace != second.pace:
        apart = "lockstep" in (first.pace, second.pace)
        found.append(Difference("pace", first.pace, second.pace, fatal=apart))
    return found


def _audio(first: Snapshot, second: Snapshot) -> list[Difference]:
    common = first.audio.keys() & second.audio.keys()
    changed = sorted(key for key in common if first.audio[key] != second.audio[key])
    if not changed:
        return []
    shown = f"{changed[0]} {first.audio[changed[0]][:12]}"
    return [
        Difference(
            f"user audio of {len(changed)} of {len(common)} turns",
            shown,
            f"{changed[0]} {second.audio[changed[0]][:12]}",
            fatal=True,
        )
    ]


def _settings(what: str, first: dict[str, Any], second: dict[str, Any]) -> list[Difference]:
    a, b = _flat(first), _flat(second)
    return [
        Difference(
            f"{what} setting {name}", str(a.get(name, "absent")), str(b.get(name, "absent")), fatal=True
        )
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            flat[prefix + name] = value
    return flat


def _questions(first: Snapshot, second: Snapshot) -> list[Difference]:
    only_first = [question for question in first.questions if question not in second.questions]
    only_second = [question for question in second.questions if question not in first.questions]
    if not only_first and not only_second:
        return []
    return [
        Difference(
            "questions",
            f"{len(only_first)} of its own ({', '.join(only_first[:5]) or '-'})",
            f"{len(only_second)} of its own ({', '.join(only_second[:5]) or '-'})",
            fatal=False,
        )
    ]


def _notes(first: Snapshot, second: Snapshot) -> list[Difference]:
    """What may explain a difference without making it meaningless."""
    found: list[Difference] = []
    for what, a, b in (
        ("processor", first.hardware.get("cpu"), second.hardware.get("cpu")),
        ("gpu", first.hardware.get("gpu"), second.hardware.get("gpu")),
        ("kamebench", first.kamebench_version, second.kamebench_version),
    ):
        if a != b:
            found.append(Difference(what, str(a), str(b), fatal=False))
    return found
