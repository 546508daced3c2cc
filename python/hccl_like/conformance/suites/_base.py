"""What the suites share: torch's test bases, aimed at any backend and device.

The bases know torch's own backends and devices by name and are set up when they are imported. `aim` sets the same
variables again for the backend and device under test; the classes below replace the few methods that refuse a name
they don't know. Everything else, the models and the checks above all, is used as torch has it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch._dynamo  # an optimiser's first step would import it, which takes seconds: here once, not in every rank
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal import common_fsdp
from torch.testing._internal.common_distributed import MultiProcessTestCase
from torch.testing._internal.common_utils import set_rng_seed
from torch.testing._internal.distributed._tensor import common_dtensor

# Of one collective. Shorter than a runner's limit for a test, so that a test which hangs tells where.
GROUP_TIMEOUT = timedelta(seconds=60)


@dataclass
class Target:
    backend: str = "gloo"
    device: str = "cpu"
    world_size: int = 4


target = Target()


def aim(backend: str, device: str, world_size: int) -> None:
    """Points torch's bases and the suites at a backend and a device, for the rest of this process."""
    target.backend, target.device, target.world_size = backend, device, world_size
    common_fsdp.DEVICE_TYPE = device
    common_fsdp.DISTRIBUTED_BACKEND = backend
    common_fsdp.DEVICE_COUNT = world_size
    # Of the devices common_fsdp knows, this is the one whose branches use nothing but torch.accelerator.
    common_fsdp.TEST_XPU = device not in ("cpu", "cuda", "hpu")
    common_dtensor.DEVICE_TYPE = device
    common_dtensor.PG_BACKEND = backend
    common_dtensor.DEVICE_COUNT = world_size
    common_dtensor.NUM_DEVICES = world_size


def tests_for(*classes: type, ranks: int = 4) -> list[type]:
    """The classes, in which each test that cannot hold for the target is marked as skipped with the reason.

    A rank can tell its parent only that it skips, not why; so what is known before is said before.
    """
    few = f"needs {ranks} ranks or more, in pairs" if target.world_size < ranks or target.world_size % 2 else None
    for case in classes:
        for name in dir(case):
            if not name.startswith("test"):
                continue
            test = getattr(case, name)
            reason = few or next((why for holds, why in getattr(test, "demands", ()) if not holds()), None)
            test.__unittest_skip__ = reason is not None
            test.__unittest_skip_why__ = reason or ""
    return list(classes)


def needs(holds: Callable[[], bool], why: str):
    """Decorates a test that applies only if `holds()` once the suite has been aimed."""

    def decorate(test):
        test.demands = (*getattr(test, "demands", ()), (holds, why))
        return test

    return decorate


def on_accelerator() -> bool:
    return target.device != "cpu"


def on_host() -> dict[str, torch.device]:
    """What FullyShardedDataParallel must be told to work on CPU tensors; nothing on an accelerator."""
    return {} if on_accelerator() else {"device_id": torch.device("cpu")}


class Ranks:
    """A rank of a test: its device, its group. Goes before torch's base among a class's bases.

    With `bound`, torch is told the rank's device when the group is made, and may connect and split groups at once.
    """

    bound = False
    # torch's base sets both.
    rank: int
    file_name: str

    @property
    def world_size(self) -> int:
        return target.world_size

    @property
    def backend(self) -> str:
        return target.backend

    @property
    def device_type(self) -> str:
        return target.device

    @property
    def device(self) -> torch.device:
        if not on_accelerator():
            return torch.device("cpu")
        return torch.device(target.device, self.rank % torch.accelerator.device_count())

    @property
    def destroy_pg_upon_exit(self) -> bool:
        return False

    def init_pg(self, eager_init: bool = False, backend: str | None = None) -> None:
        torch.set_num_threads(1)
        os.environ.update(RANK=str(self.rank), LOCAL_RANK=str(self.rank), WORLD_SIZE=str(self.world_size))
        if on_accelerator():
            torch.accelerator.set_device_index(self.device.index)
        dist.init_process_group(
            backend or self.backend,
            init_method=f"file://{self.file_name}",
            rank=self.rank,
            world_size=self.world_size,
            timeout=GROUP_TIMEOUT,
            device_id=self.device if (eager_init or self.bound) and on_accelerator() else None,
        )

    def mesh(self, *shape: int, names: tuple[str, ...] | None = None) -> DeviceMesh:
        """A mesh of these sides; of all ranks in a row if no side is given."""
        return init_device_mesh(self.device_type, shape or (self.world_size,), mesh_dim_names=names)

    def square(self, *names: str) -> DeviceMesh:
        """Two rows of half the ranks each."""
        return self.mesh(2, self.world_size // 2, names=names or None)


class InGroup(Ranks):
    """Each test runs inside the default group, which is made before it and destroyed after it."""

    @classmethod
    def _run(cls, rank, test_name, file_name, parent_pipe, **_):
        self = cls(test_name)
        self.rank = rank
        self.file_name = file_name
        try:
            self.init_pg()
            dist.barrier()
        except Exception:
            parent_pipe.send(traceback.format_exc())
            sys.exit(MultiProcessTestCase.TEST_ERROR_EXIT_CODE)
        set_rng_seed()
        self.run_test(test_name, parent_pipe)
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()


class FsdpTest(InGroup, common_fsdp.FSDPTest):
    """torch's base for FSDP; its own way into a rank skips unless there is an accelerator for each."""


class DTensorTest(Ranks, common_dtensor.DTensorTestBase):
    """torch's base for DTensor, whose group is made by `with_comms`."""

    def destroy_pg(self, device_id: int | None = None) -> None:
        dist.barrier()
        dist.destroy_process_group()


class GroupTest(InGroup, MultiProcessTestCase):
    """The bare base, for tests that need a group and no more."""

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()
