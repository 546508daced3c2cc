"""The suites over torch's test bases, run here without the runner: a child process aims a suite and forks the ranks."""

import importlib
import multiprocessing
import unittest

import pytest

# A test or two of each that together use every kind of collective the suite has.
QUICK = {
    "fsdp": ["BoundHybrid.test_a_mesh_of_two_dimensions", "Parity.test_full_shard"],
    "fsdp2": ["BoundParity.test_two_replicas", "States.test_a_plain_state_dict_holds_shards"],
}


def load(suite, device):
    module = importlib.import_module(f"hccl_like.conformance.suites.{suite}")
    return {case.__name__: case for case in module.load("hccl-like", device, 4)}


def fork_ranks(case):
    case._start_processes(multiprocessing.get_context("fork").Process)


def run(suite, device, wanted, answer):
    """What failed, with its traceback; runs in a process of its own, since a suite is aimed for good."""
    from torch.testing._internal.common_distributed import MultiProcessTestCase

    cases = load(suite, device)
    MultiProcessTestCase._spawn_processes = fork_ranks
    result = unittest.TestResult()
    for name in wanted or [f"{case}.{test}" for case in cases for test in unittest.TestLoader().getTestCaseNames(cases[case])]:
        case, test = name.split(".")
        cases[case](test).run(result)
    answer.send((result.testsRun, [text for _, text in result.failures + result.errors]))


def outcome_of(suite, device, wanted=()):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=run, args=(suite, device, wanted, theirs))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        child.join()


@pytest.mark.parametrize("suite", QUICK)
def test_a_few_tests_of_each_suite_pass(suite, device):
    ran, failed = outcome_of(suite, device, QUICK[suite])
    assert not failed, "\n".join(failed)
    assert ran == len(QUICK[suite])


@pytest.mark.slow
@pytest.mark.parametrize("suite", QUICK)
def test_a_whole_suite_passes(suite, device):
    ran, failed = outcome_of(suite, device)
    assert not failed, "\n".join(failed)
    assert ran > 20
