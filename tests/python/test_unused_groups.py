"""A group of several ranks that a program makes and never uses: its framework has fallen back to something else."""

import textwrap

import pytest

from ranks import run_ranks
from test_untold import program

WARNING = (
    "no collective was called in this program's process group of 2 ranks: did the framework fall back to a single process, or to "
    "another backend? Then each rank has trained a model of its own"
)


def said(body):
    """What the two ranks of a program write to standard error."""
    ends = program(textwrap.dedent(body), uses=False)
    return [text for _, text in ends]


@pytest.mark.parametrize("end", ["dist.destroy_process_group()", "pass"])
def test_rank_0_says_so_in_one_line(end):
    first, second = said(end)
    assert first.count(WARNING) == 1 and len(first.splitlines()) == 1, first
    assert second == ""


@pytest.mark.parametrize("use", [
    "dist.all_reduce(torch.ones(1))",
    "dist.barrier(dist.new_group([0, 1]))",
    "raise RuntimeError('no data')",
])  # fmt: skip
def test_a_program_that_uses_one_or_fails_hears_nothing(use):
    assert not any(WARNING in text for text in said(use))


def nothing(rank, size):
    return None


def test_a_group_of_one_rank_needs_no_use(capfd):
    run_ranks(nothing, 1)
    assert capfd.readouterr().err == ""
