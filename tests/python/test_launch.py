"""Launchers: torchrun on two hosts, its restarts, and Ray Train. mpirun and srun have tests of their own."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[2] / "examples" / "launch"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def torchrun(hosts, options, program, *arguments, each=2):
    """Starts torchrun on every host, with `options(host)`; what all of them printed."""
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(tempfile.TemporaryFile("w+"))
        nodes = []
        for host in hosts:
            command = [*TORCHRUN, f"--nnodes={len(hosts)}", f"--nproc-per-node={each}", *options(host), program, *arguments]
            nodes.append(host.popen(command, stdout=output, stderr=output, env={**os.environ, "OMP_NUM_THREADS": "1"}))
            stack.callback(nodes[-1].kill)
        ended = [node.wait(timeout=100) for node in nodes]
        output.seek(0)
        printed = output.read()
    assert ended == [0] * len(nodes), printed
    return printed


def static(host):
    return [f"--node-rank={host.number}", "--master-addr=10.77.0.1", "--master-port=29511"]


def c10d(host):
    # The names of these hosts resolve nowhere: torch has to be told which of them the end point is, and their addresses.
    return [
        "--rdzv-backend=c10d", "--rdzv-id=job", "--rdzv-endpoint=10.77.0.1:29512", f"--local-addr={host.address()}",
        f"--rdzv-conf=is_host={int(host.number == 0)}",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("options", [pytest.param(static, marks=pytest.mark.slow), c10d], ids=["static", "c10d"])
def test_torchrun_on_two_hosts(options, make_hosts):
    printed = torchrun(make_hosts(2), options, LAUNCH / "fit.py")
    assert "fitted on 4 ranks" in printed


FAILS_ONCE = """
import os, pathlib
import torch, torch.distributed as dist

again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("hccl-like")
tensor = torch.full((100_000,), 2.0**dist.get_rank())
dist.all_reduce(tensor)
assert tensor.eq(2**dist.get_world_size() - 1).all()
if dist.get_rank() == 1 and not (failed := pathlib.Path(__file__ + ".failed")).exists():
    failed.touch()
    os._exit(7)
dist.all_reduce(tensor)
print(f"ended well after {again} restarts\\n", end="", flush=True)
dist.destroy_process_group()
"""


def test_torchrun_starts_two_hosts_again(make_hosts, tmp_path):
    program = tmp_path / "fails_once.py"
    program.write_text(FAILS_ONCE)
    printed = torchrun(make_hosts(2), lambda host: [*c10d(host), "--max-restarts=1", "--monitor-interval=0.1"], program, each=1)
    ended = re.findall(r"ended well after (\d) restarts", printed)
    # Only the host that looks at its own ranks first counts it as a restart: the other may be told by then.
    assert len(ended) == 2 and set(ended) <= {"0", "1"} and "1" in ended


KILLED_ONCE = """
import os, signal, sys, time
import torch, torch.distributed as dist

again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
begin = time.monotonic()
dist.init_process_group("hccl-like")
device = sys.argv[1]
tensor = torch.full((100_000,), 2.0**dist.get_rank(), device=device)
dist.all_reduce(tensor)
assert tensor.eq(2**dist.get_world_size() - 1).all()
took = time.monotonic() - begin
if again == 0 and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(tensor)
dist.barrier()
print(f"attempt {again} made its group within {took:.2f} s\\n", end="", flush=True)
assert took < 3
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun_starts_killed_ranks_again_with_the_store_it_keeps(tmp_path, device):
    program = tmp_path / "killed_once.py"
    program.write_text(KILLED_ONCE)
    command = [*TORCHRUN, "--standalone", "--nproc-per-node=3", "--max-restarts=2", "--monitor-interval=0.1", program, device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("attempt 1 made its group") == 3


FAILS = """
import torch, torch.distributed as dist

dist.init_process_group("hccl-like")
dist.all_reduce(torch.ones(3 if dist.get_rank() else 4))
"""


@pytest.mark.slow
def test_torchrun_s_summary_tells_why_a_call_failed_without_record(tmp_path):
    program = tmp_path / "fails.py"
    program.write_text(FAILS)
    command = [*TORCHRUN, "--standalone", "--nproc-per-node=2", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 1
    summary = done.stderr.split("Root Cause (first observed failure)")[1]
    assert "[HCCL-LIKE-50" in summary and "ranks 0 and 1 of group 0 disagree about call #1" in summary


@pytest.mark.slow
def test_ray_train(tmp_path):
    pytest.importorskip("ray.train", reason='Ray Train is not installed: pip install "ray[train]"')
    done = subprocess.run(
        [sys.executable, LAUNCH / "ray_fit.py", "--storage", tmp_path], capture_output=True, text=True, timeout=600,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fitted on 2 ranks over hccl-like" in done.stdout
