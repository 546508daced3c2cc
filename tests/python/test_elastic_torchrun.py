"""examples/elastic/restarted.py: torchrun agents on hosts of their own that come and go."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "elastic" / "restarted.py"
STEPS = 400


def agent(host, output, *arguments):
    # Seconds: how long a round waits for more agents, and after how long a silent agent counts as gone (three heartbeats).
    configuration = f"is_host={int(host.number == 0)},last_call_timeout=8,keep_alive_interval=1"
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:4", "--nproc-per-node=1", "--max-restarts=9",
               "--rdzv-backend=c10d", "--rdzv-id=job", "--rdzv-endpoint=10.77.0.1:29512", f"--rdzv-conf={configuration}",
               f"--local-addr={host.address()}", EXAMPLE, *arguments]  # fmt: skip
    # torch 2.13: an agent that joins later waits in vain for the address of a store that the first agent announced in its first round.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return host.popen(command, stdout=output, stderr=output, env=environment)


def lose(host):
    """Kills the agent and its ranks, as the loss of a host does."""
    for pid in subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True).stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def alone():
    """The losses of one process."""
    code = f"import train, torch; one = train.Training(); [one.step() for _ in range({STEPS})]; print(one.losses)"
    return json.loads(subprocess.run([sys.executable, "-c", code], cwd=EXAMPLE.parent, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("keeps_state", [True, False], ids=["from its checkpoints", "without any"])
def test_agents_come_and_go(keeps_state, make_hosts, tmp_path):
    hosts = make_hosts(4)
    shown = tmp_path / "output"
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    arguments = ["--steps", STEPS, "--pause", 0.1, *(["--folder", folder] if keeps_state else [])]
    agents = []
    deadline = time.monotonic() + 360

    def ranks_that_began():
        return [(int(ranks), int(step)) for ranks, step in re.findall(r"(\d) ranks go on at step (\d+)", shown.read_text())]

    def until(ranks, steps=0):
        """Waits for a start with so many ranks, then for `steps` of them."""
        while not (began := ranks_that_began()) or began[-1][0] != ranks:
            assert time.monotonic() < deadline and all(one.poll() is None for one in agents), shown.read_text()
            time.sleep(0.1)
        done = began[-1][1] + steps
        if keeps_state:
            while not (folder / "latest").exists() or len(json.loads((folder / "latest").read_text())) < done:
                assert time.monotonic() < deadline, shown.read_text()
                time.sleep(0.1)
        else:
            time.sleep(steps * 0.1)

    with open(shown, "w") as output, contextlib.ExitStack() as stack:
        stack.callback(lambda: [lose(host) for host in hosts])
        agents += [agent(host, output, *arguments) for host in hosts[:2]]
        until(2, steps=10)
        agents += [agent(host, output, *arguments) for host in hosts[2:]]
        until(4, steps=10)
        lose(hosts[2])
        agents.pop(2).wait()
        until(3)
        assert [one.wait(timeout=120) for one in agents] == [0, 0, 0], shown.read_text()
    starts = [step for ranks, step in ranks_that_began()]
    printed = shown.read_text()
    assert f"3 ranks have made {STEPS} steps" in printed
    if keeps_state:
        assert starts == sorted(starts) and starts[-1] >= 20, printed
        losses = json.loads((folder / "latest").read_text())
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(alone()), rtol=0, atol=1e-5)
    else:
        assert set(starts) == {0}, printed
