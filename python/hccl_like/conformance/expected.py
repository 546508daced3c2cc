"""Tests that fail for a reason that lies in the test or in torch itself, each with that reason.

Such a test is still run. It is shown as ``xfail`` while it fails and counts as a failure once it passes, so that an entry
does not outlive its reason. What a backend merely cannot do does not belong here: that is a failure of the backend. The one
exception is gloo, with which the runner itself is tested.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hccl_like.conformance.outcome import FAIL, PASS, XFAIL, XPASS, Outcome


@dataclass(frozen=True)
class Expected:
    """Patterns as in fnmatch; `test` is matched against suite.Class.test, a leading ``!`` in the others negates."""

    test: str
    reason: str
    backend: str = "*"
    device: str = "*"

    def applies(self, test: str, backend: str, device: str) -> bool:
        return fnmatchcase(test, self.test) and _matches(backend, self.backend) and _matches(device, self.device)


def _matches(name: str, pattern: str) -> bool:
    return not fnmatchcase(name, pattern[1:]) if pattern.startswith("!") else fnmatchcase(name, pattern)


EXPECTED: tuple[Expected, ...] = (
    # Of torch 2.12; 2.13 has switched it off.
    Expected("distributed.DistributedTests.test_barrier_timeout_arg", "it asserts gloo's words", "!gloo", "cpu"),
    # gloo is what this runner itself is tried with.
    *(Expected(f"distributed.DistributedTests.test_all_to_all{kind}", "gloo's lists of tensors are all of one size", "gloo", "cpu")
      for kind in ("", "_complex", "_full_group", "_group")),
)  # fmt: skip


def judge(outcome: Outcome, backend: str, device: str, entries: tuple[Expected, ...] | None = None) -> Outcome:
    """The outcome in the light of what is expected; skips stay skips."""
    for entry in EXPECTED if entries is None else entries:
        if not entry.applies(outcome.id, backend, device):
            continue
        if outcome.outcome == FAIL:
            return dataclasses.replace(outcome, outcome=XFAIL, reason=f"{entry.reason} ({outcome.reason})")
        if outcome.outcome == PASS:
            return dataclasses.replace(outcome, outcome=XPASS, reason=f"expected to fail, but passed: {entry.reason}")
    return outcome
