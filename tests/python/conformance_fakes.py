"""A suite of the runner's tests: what a distributed test can do, well or badly. Ranks make no group."""

import os
import signal
import sys
import time
import unittest

from torch.testing._internal.common_distributed import MultiProcessTestCase, TEST_SKIPS


class Fakes(MultiProcessTestCase):
    destroy_pg_upon_exit = False

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def write_pid(self, path):
        with open(path + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(path + ".new", path)

    def test_passes(self):
        self.assertEqual(os.environ["WORLD_SIZE"], "2")

    def test_fails_on_rank_1(self):
        if self.rank == 1:
            print("what rank 1 printed")
            raise ValueError("the cause\nand more of it")

    def test_hangs_on_rank_0(self):
        if self.rank == 0:
            if "FAKES_HUNG_PID" in os.environ:
                self.write_pid(os.environ["FAKES_HUNG_PID"])
            while True:
                signal.pause()

    def test_is_killed(self):
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()

    def test_ends_quietly_with_a_code_on_rank_1(self):
        if self.rank == 1:
            os._exit(3)

    def test_skips_with_a_reason(self):
        raise unittest.SkipTest("no such hardware")

    def test_skips_as_torch_does(self):
        sys.exit(TEST_SKIPS["odd_worldsize"].exit_code)

    def test_skips_on_rank_1_only(self):
        if self.rank == 1:
            sys.exit(TEST_SKIPS["odd_worldsize"].exit_code)

    @unittest.skip("switched off")
    def test_is_never_started(self):
        raise AssertionError

    def test_leaves_a_process_behind(self):
        if self.rank == 0 and os.fork() == 0:
            os.setsid()
            self.write_pid(os.environ["FAKES_PID"])
            time.sleep(600)
        deadline = time.monotonic() + 30
        while self.rank == 0 and not os.path.exists(os.environ["FAKES_PID"]) and time.monotonic() < deadline:
            time.sleep(0.01)

    def test_sends_a_long_traceback(self):
        raise ValueError("x" * 1_000_000)

    @property
    def world_size(self):
        return int(os.environ["WORLD_SIZE"])


class SelectedFakes(Fakes):
    """Names its tests, and why one of them is not run."""

    conformance_tests = ["test_passes", "test_is_killed"]
    conformance_skips = {"test_is_killed": "not today"}


def load(backend, device, world_size):
    assert (backend, device, world_size) == ("some-backend", "cpu", 2)
    return [Fakes, SelectedFakes]
