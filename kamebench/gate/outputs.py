"""A gate's answer for people, machines and CI: text, JSON, JUnit, Markdown."""

from __future__ import annotations

import json
from dataclasses import asdict
from xml.etree import ElementTree as ET

from kamebench.gate.decision import GateResult, RuleResult

SIGN = {"pass": "✅", "regression": "❌", "inconclusive": "❔"}
HEADINGS = ("rule", "outcome", "baseline", "run", "loss", "margin", "detectable", "turns", "why")


def to_json(result: GateResult) -> str:
    return json.dumps({**asdict(result), "exit_code": result.exit_code}, indent=1)


def to_text(result: GateResult) -> str:
    """For the terminal: two lines a rule at most, the answer last."""
    lines = [result.candidate, f"against {result.baseline}", *(f"note: {note}" for note in result.notes), ""]
    for rule in result.results:
        name, outcome, before, after, loss, margin, detectable, turns, reason = _cells(rule)
        lines.append(f"{outcome:<13} {name}: {before} -> {after}; loss {loss}; margin {margin}")
        lines.append(f"{'':<13} {turns}; detectable {detectable}; {reason}")
    return "\n".join([*lines, "", headline(result)])


def _cells(rule: RuleResult) -> tuple[str, ...]:
    missing = f", {rule.n_missing} missing" if rule.n_missing else ""
    return (
        rule.name,
        rule.outcome + (" (tolerated)" if rule.tolerated else ""),
        amount(rule.baseline, rule.unit),
        amount(rule.candidate, rule.unit),
        interval(rule),
        amount(rule.margin, rule.unit),
        amount(rule.mde, rule.unit),
        f"{rule.n} ({rule.n_questions} questions){missing}",
        why(rule),
    )


def why(rule: RuleResult) -> str:
    needed = rule.questions_needed
    if rule.outcome == "inconclusive" and needed and needed > rule.n_questions:
        return f"{rule.reason}; at this spread about {needed} questions are needed"
    return rule.reason


def amount(value: float | None, unit: str, signed: bool = False) -> str:
    """A value with its unit, or '-' where there is none."""
    if value is None:
        return "-"
    sign = "+" if signed else ""
    if unit == "share":
        return f"{100 * value:{sign}.1f} %"
    if unit == "ms":
        return f"{value:{sign}.0f} ms"
    return f"{value:{sign}.2f}"


def interval(rule: RuleResult) -> str:
    if rule.loss is None:
        return "-"
    loss = amount(rule.loss, rule.unit, signed=True)
    if rule.low is None and rule.high is None:
        return loss
    return f"{loss} [{amount(rule.low, rule.unit, True)}, {amount(rule.high, rule.unit, True)}]"


def headline(result: GateResult) -> str:
    said = {
        "pass": "no rule was broken",
        "regression": "worse than the baseline: "
        + ", ".join(rule.name for rule in result.results if rule.outcome == "regression"),
        "inconclusive": "not enough is known: "
        + ", ".join(r.name for r in result.results if r.outcome == "inconclusive" and not r.tolerated),
    }
    return f"{result.outcome}: {said[result.outcome]}"


def to_markdown(result: GateResult) -> str:
    """For a CI job's summary or a comment on a pull request; cell text is escaped."""
    lines = [
        f"### {SIGN[result.outcome]} kamebench gate: {_md(headline(result))}",
        "",
        f"`{_md(result.candidate)}` against `{_md(result.baseline)}`",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
    ]
    lines += [
        f"| {SIGN[rule.outcome]} " + " | ".join(_md(cell) for cell in _cells(rule)) + " |"
        for rule in result.results
    ]
    lines += [
        "",
        f"Loss: how much worse the run is, on the turns both have, with its {result.confidence:.0%} interval "
        "over questions. Detectable: the smallest true loss called a regression with 80 % power at this n.",
    ]
    lines += [f"- {_md(note)}" for note in result.notes]
    return "\n".join(lines) + "\n"


def _md(text: str) -> str:
    for mark in "\\|<>`*_[]":
        text = text.replace(mark, {"<": "&lt;", ">": "&gt;"}.get(mark, "\\" + mark))
    return text.replace("\n", " ")


def to_junit(result: GateResult) -> str:
    """One test case a rule: regression is a failure, inconclusive an error, tolerated skipped."""
    states = [rule.outcome for rule in result.results]
    tolerated = sum(rule.tolerated for rule in result.results)
    counts = {
        "tests": str(len(states)),
        "failures": str(states.count("regression")),
        "errors": str(states.count("inconclusive") - tolerated),
        "skipped": str(tolerated),
    }
    root = ET.Element("testsuites", {"name": "kamebench", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "kamebench gate", "time": "0", **counts})
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("run", result.candidate),
        ("baseline", result.baseline),
        ("outcome", result.outcome),
    ):
        ET.SubElement(properties, "property", {"name": name, "value": _xml(value)})
    for rule in result.results:
        case = ET.SubElement(
            suite, "testcase", {"classname": "kamebench.gate", "name": rule.name, "time": "0"}
        )
        text = "; ".join(f"{name}: {cell}" for name, cell in zip(HEADINGS, _cells(rule), strict=True))
        tag = {"regression": "failure", "inconclusive": "skipped" if rule.tolerated else "error"}.get(
            rule.outcome
        )
        if tag:
            ET.SubElement(case, tag, {"message": _xml(why(rule)), "type": rule.outcome}).text = _xml(text)
        else:
            ET.SubElement(case, "system-out").text = _xml(text)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Without the control characters that XML 1.0 cannot hold."""
    return "".join(char for char in text if char in "\t\n\r" or ord(char) >= 32)
