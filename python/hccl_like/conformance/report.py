"""What the user gets to see: a line for each test, failures in full, the table of results, JSON and JUnit."""

from __future__ import annotations

import json
import platform
import sys
import xml.etree.ElementTree as xml
from collections import Counter
from importlib import metadata
from pathlib import Path

from hccl_like import _tables
from hccl_like.conformance.outcome import BAD, FAIL, SKIP, XFAIL, Outcome, count
from hccl_like.conformance.ranks import cause
from hccl_like.conformance.settings import Settings

_LONGEST = 300
# XML 1.0 has no room for other control characters.
_NOT_XML = {code: "?" for code in range(32) if chr(code) not in "\t\n\r"}


def line(outcome: Outcome) -> str:
    """One test in one line."""
    text = f"{outcome.outcome:5} {outcome.id}"
    if outcome.outcome != SKIP:
        text += f" ({outcome.seconds:.1f} s)"
    return f"{text}: {outcome.reason[:_LONGEST]}" if outcome.reason else text


def failure(outcome: Outcome) -> str:
    """A failed test with everything that its ranks said; an error that several ranks share is told once."""
    parts = [f"==== {outcome.id}: {outcome.reason}"]
    if not outcome.ranks:
        parts.append(outcome.details.rstrip())
    told: dict[str, int] = {}
    for rank in outcome.ranks:
        ended = "did not end" if rank.exit_code is None else f"ended with {rank.exit_code}"
        parts.append(f"---- rank {rank.rank} {ended}")
        parts.append(rank.output.rstrip())
        reason = cause(rank.error)
        if reason and reason in told:
            parts.append(f"{reason} (as rank {told[reason]})")
        else:
            told[reason] = rank.rank
            parts.append(rank.error.rstrip())
    return "\n".join(part for part in parts if part)


def summary(outcomes: list[Outcome]) -> None:
    """The counts by suite, the reasons of skips, and the failures once more."""
    rows = []
    for suite in dict.fromkeys(outcome.suite for outcome in outcomes):
        counts = count([outcome for outcome in outcomes if outcome.suite == suite])
        rows.append([suite, *(str(number) for number in counts.values())])
    _tables.show("results", ("suite", *count([])), rows)
    skips = Counter(outcome.reason for outcome in outcomes if outcome.outcome == SKIP)
    if skips:
        _tables.show("skipped", ("tests", "reason"), [[str(number), reason] for reason, number in skips.most_common()])
    for title, ways in (("expected failures", (XFAIL,)), ("failures", BAD)):
        found = [[outcome.id, outcome.reason[:_LONGEST]] for outcome in outcomes if outcome.outcome in ways]
        if found:
            _tables.show(title, ("test", "reason"), found)


def write_json(path: str, settings: Settings, outcomes: list[Outcome]) -> None:
    """The whole run; what --failed-from reads."""
    document = {
        "backend": settings.backend,
        "device": settings.device,
        "world_size": settings.world_size,
        "torch": _version("torch"),
        "python": platform.python_version(),
        "counts": count(outcomes),
        "tests": [outcome.to_json() for outcome in outcomes],
    }
    Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def failed_in(path: str) -> set[str]:
    """The ids that failed in a run written by write_json."""
    tests = json.loads(Path(path).read_text(encoding="utf-8"))["tests"]
    return {test["id"] for test in tests if test["outcome"] in BAD}


def write_junit(path: str, settings: Settings, outcomes: list[Outcome]) -> None:
    """As CI systems read it: a testsuite element for each suite."""
    root = xml.Element("testsuites", name=f"{settings.backend} on {settings.device}")
    for suite in dict.fromkeys(outcome.suite for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.suite == suite]
        element = xml.SubElement(
            root,
            "testsuite",
            name=suite,
            tests=str(len(mine)),
            failures=str(sum(outcome.outcome in BAD for outcome in mine)),
            errors="0",
            skipped=str(sum(outcome.outcome in (SKIP, XFAIL) for outcome in mine)),
            time=f"{sum(outcome.seconds for outcome in mine):.3f}",
        )
        for outcome in mine:
            _junit_case(element, outcome)
    xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _junit_case(parent: xml.Element, outcome: Outcome) -> None:
    case = xml.SubElement(
        parent,
        "testcase",
        classname=f"{outcome.suite}.{outcome.class_name}",
        name=outcome.test,
        time=f"{outcome.seconds:.3f}",
    )
    reason = outcome.reason.translate(_NOT_XML)
    if outcome.outcome in BAD:
        kind = "failure" if outcome.outcome == FAIL else "unexpected success"
        xml.SubElement(case, "failure", message=reason, type=kind).text = failure(outcome).translate(_NOT_XML)
    elif outcome.outcome in (SKIP, XFAIL):
        prefix = "expected failure: " if outcome.outcome == XFAIL else ""
        xml.SubElement(case, "skipped", message=prefix + reason)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def say(text: str) -> None:
    print(text, flush=True, file=sys.stdout)
