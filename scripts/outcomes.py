#!/usr/bin/env python3
"""What scripts/test.sh says of tests beside passed and failed. Needs nothing but Python.

    outcomes.py failed FILE     the tests that FILE names, one a line: pytest's cache of them, or CTest's
    outcomes.py unstable FILE   whether the tests that FILE names, one a line, are in tests/unstable.txt
    outcomes.py skipped LOG     the tests that LOG, pytest's or CTest's, tells as skipped, by reason; of a conformance run's JSON
                                the reasons and how many
"""

import json
import re
import sys
from collections import Counter
from datetime import date
from pathlib import Path

UNSTABLE = Path(__file__).resolve().parents[1] / "tests" / "unstable.txt"
# How many tests the list may hold.
MOST = 3


def failed(path):
    """Names, in the order of the file."""
    text = Path(path).read_text()
    if text.lstrip().startswith("{"):
        return [name for name, is_failed in json.loads(text).items() if is_failed]
    return [line.partition(":")[2] for line in text.splitlines() if line]


def known(path=UNSTABLE):
    """(test, date, what was seen) of each line; raises ValueError for a line that is not so."""
    entries = []
    for number, line in enumerate(Path(path).read_text().splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) != 3 or not all(fields):
            raise ValueError(f"{path}:{number}: write 'test | year-month-day | what was seen'")
        try:
            fields[1] = date.fromisoformat(fields[1])
        except ValueError:
            raise ValueError(f"{path}:{number}: '{fields[1]}' is no date; write year-month-day") from None
        entries.append(tuple(fields))
    if len(entries) > MOST:
        raise ValueError(f"{path}: {len(entries)} tests are listed, and {MOST} may be: make one of them stable")
    return entries


def judged(names, entries, today):
    """A line for each test that passed at its second try."""
    listed = {name: (since, seen) for name, since, seen in entries}
    for name in names:
        if name in listed:
            since, seen = listed[name]
            yield f"UNSTABLE, listed for {(today - since).days} days: {name}: {seen}"
        else:
            yield f"UNSTABLE, and NOT in tests/unstable.txt: {name}: find out why it failed, or list it"


def skipped(text):
    """{reason: names}, of pytest's closing lines (-rs --no-fold-skipped) or of CTest's log of tests made with GoogleTest."""
    reasons = {}
    if text.startswith("{"):
        counts = Counter(test["reason"] for test in json.loads(text)["tests"] if test["outcome"] == "skip")
        return {reason: [f"{number} tests"] for reason, number in counts.items()}
    for name, reason in re.findall(r"^SKIPPED (?:\[\d+\] )?(\S+?(?:\[.*?\])?)(?: - |: )(.*)$", text, re.M):
        reasons.setdefault(reason.removeprefix("Skipped: "), []).append(name)
    for reason, name in re.findall(r": Skipped\n(.*)\n(?:.*\n)*?\[  SKIPPED \] (\S+)", text):
        names = reasons.setdefault(reason, [])
        if name not in names:
            names.append(name)
    return reasons


def main(what, path):
    if what == "failed":
        for name in failed(path):
            print(name)
    elif what == "skipped":
        for reason, names in sorted(skipped(Path(path).read_text(errors="replace")).items()):
            print(f"skipped, {reason}: {', '.join(names)}")
    else:
        names = [line for line in Path(path).read_text().splitlines() if line]
        print("\n".join(judged(names, known(), date.today())))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("failed", "unstable", "skipped"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
