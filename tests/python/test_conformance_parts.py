"""The parts of the runner that need no processes: names, gates, causes, expectations."""

import pytest
from hccl_like.conformance import expected, gates, names, ranks, report
from hccl_like.conformance.__main__ import exit_code
from hccl_like.conformance.outcome import Outcome, Rank


def test_a_name_equals_itself_and_its_stand_in_and_nothing_else():
    name = names.Name("some", "gloo")
    assert name == "some" and name == "gloo" and name != "nccl"
    assert not name != "gloo"
    assert str.lower(name) == "some"


def test_a_name_is_found_in_sets_under_its_own_letters_only():
    name = names.Name("some", "gloo")
    assert name in {"some"} and name not in {"nccl", "mpi"}


def test_a_comparison_is_noticed_once():
    name = names.Name("some", "gloo")
    assert not name.take_compared()
    assert name != "mpi"
    assert name.take_compared() and not name.take_compared()


def decorated(condition, reason, name):
    def test():
        pass

    return gates.of(gates.Recorder(name).skip_if(condition(name), reason)(test)).gates


@pytest.mark.parametrize(
    "condition, reason, kind",
    [
        (lambda name: name != "mpi", "Only MPI supports this", "name"),
        (lambda _: True, "no torchvision", "environment"),
        (lambda _: True, "https://github.com/pytorch/pytorch/issues/1", "disabled"),
        (lambda name: name != "mpi", "Test requires world size of 8", "environment"),
    ],
)
def test_a_gate_is_of_the_kind_that_its_condition_tells(condition, reason, kind):
    assert decorated(condition, reason, names.Name("some", "gloo")) == (gates.Gate(kind, reason),)


def test_a_condition_that_does_not_hold_is_no_gate():
    assert decorated(lambda name: name != "gloo", "gloo only", names.Name("some", "gloo")) == ()


def needing(**needs):
    def test():
        pass

    gates.needs(test, **needs)
    return test


def test_gates_on_the_name_are_lifted_and_others_stay():
    assert gates.reason_to_skip(needing(gate=gates.Gate("name", "nccl only")), 0, 4, False) is None
    assert gates.reason_to_skip(needing(gate=gates.Gate("environment", "no X")), 0, 4, True) == "no X"


def test_what_upstream_switched_off_runs_on_request():
    test = needing(gate=gates.Gate("disabled", "flaky"))
    assert gates.reason_to_skip(test, 0, 4, False) == "disabled by PyTorch: flaky"
    assert gates.reason_to_skip(test, 0, 4, True) is None


def test_too_few_devices_or_ranks_skip_a_test():
    assert gates.reason_to_skip(needing(side=gates.DEVICE, devices=4), 2, 4, False) == "needs 4 devices, there are 2"
    assert gates.reason_to_skip(needing(ranks=3), 0, 2, False) == "needs 3 ranks"


def test_a_decorator_leaves_the_wrapped_function_reachable():
    def test():
        pass

    marked = gates.Recorder(names.Name("some", "nccl")).needs(side=gates.DEVICE, devices=2)(test)
    assert marked.__wrapped__ is test and gates.of(marked).devices == 2


def test_the_cause_is_the_exception_and_not_the_frames_of_cpp_after_it():
    text = (
        "Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n'
        "    raise KeyError(1)\n"
        "KeyError: 1\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "a.py", line 3, in f\n'
        "    g()\n"
        "torch.distributed.DistBackendError: it broke\n"
        "Exception raised from g at b.cc:1 (most recent call first):\n"
        "frame #0: g() + 0x1 (0x2 in b.so)\n"
    )
    assert ranks.cause(text) == "torch.distributed.DistBackendError: it broke"
    assert ranks.cause("") == ""


ENTRY = expected.Expected("s.C.test_*", "the test asks for gloo's words", backend="!gloo", device="cpu")


@pytest.mark.parametrize(
    "ended, backend, device, becomes",
    [
        ("fail", "some", "cpu", "xfail"),
        ("pass", "some", "cpu", "xpass"),
        ("skip", "some", "cpu", "skip"),
        ("fail", "gloo", "cpu", "fail"),
        ("fail", "some", "npu", "fail"),
    ],
)
def test_an_expected_failure_holds_for_its_backend_and_device_and_may_not_pass(ended, backend, device, becomes):
    judged = expected.judge(Outcome("s.C.test_x", ended, "because"), backend, device, (ENTRY,))
    assert judged.outcome == becomes


def test_every_expected_failure_says_why():
    assert all(len(entry.reason) > 20 and entry.test.count(".") == 2 for entry in expected.EXPECTED)


def test_an_outcome_survives_json():
    outcome = Outcome("s.C.test_x", "fail", "why", "more", 1.5, [Rank(0, -9, "e", "o")], ["name: nccl only"])
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert (outcome.suite, outcome.class_name, outcome.test) == ("s", "C", "test_x")


def test_an_error_that_ranks_share_is_shown_once():
    error = "Traceback (most recent call last):\n  File\nValueError: same\n"
    text = report.failure(Outcome("s.C.test_x", "fail", "why", ranks=[Rank(0, 10, error), Rank(1, 10, error)]))
    assert text.count("Traceback") == 1 and "ValueError: same (as rank 0)" in text


@pytest.mark.parametrize(
    "ways, broken, code",
    [(["pass", "skip", "xfail"], False, 0), (["pass", "fail"], False, 1), (["xpass"], False, 1), ([], False, 2), (["pass"], True, 1)],
)
def test_the_exit_code_tells_passed_failed_or_nothing_run(ways, broken, code):
    assert exit_code([Outcome("s.C.test_x", way) for way in ways], broken) == code
