"""What hosts are made of, and which ranks share one."""

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from hccl_like import _extension, topology
from ranks import run_ranks


def has_hwloc():
    return not _extension.load().look_at_machine()["missing"]


def what_all_know(rank, size):
    return dist.group.WORLD._get_backend(torch.device("cpu"))._info()


def test_every_rank_knows_who_shares_a_host_and_what_hosts_are_made_of(make_hosts):
    layout = [0, 1, 0, 1, 1]
    local = [0, 0, 1, 1, 2]
    infos = run_ranks(
        what_all_know, 5, hosts=make_hosts(2), layout=layout, environment=lambda rank: {"LOCAL_RANK": str(local[rank])}
    )
    for info in infos:
        assert info["layout"] == layout
        assert set(info["machines"]) == {0, 1}
        assert info["machines"] == infos[0]["machines"]
        assert all(machine["threads"] >= 1 for machine in info["machines"].values())


def test_hosts_are_not_looked_at_where_no_launcher_says_who_should():
    assert run_ranks(what_all_know, 2)[0]["machines"] == {}


def a_job(rank, size):
    return [(host["name"], host["ranks"]) for host in topology.job()]


def test_rank_0_hears_of_all_hosts(make_hosts):
    heard = run_ranks(a_job, 3, hosts=make_hosts(2), layout=[0, 1, 0])
    assert heard == [[("host0", [0, 2]), ("host1", [1])], [], []]


@pytest.mark.slow
def test_the_command_prints_this_host(tmp_path):
    picture = tmp_path / "host.png"
    command = [sys.executable, "-m", "hccl_like.topology", "--picture", str(picture)]
    if not has_hwloc():
        pytest.skip("libhwloc15 is not installed")
    pytest.importorskip("matplotlib")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "core" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


HOST = {
    "name": "node-0",
    "machine": {
        "sockets": 2, "nodes": 2, "cores": 64, "threads": 128, "missing": "",
        "nics": [{"name": "eth0", "pci": "0000:01:00.0", "node": 0, "megabits": 25000}, {"name": "veth1", "pci": "", "node": -1, "megabits": 0}],
    },
    "devices": [{"name": "npu:0", "pci": "0000:04:00.0", "node": 1, "near": {"eth0": "host", "veth1": "?"}}],
    "ranks": [0, 1],
}


def test_a_host_as_text():
    assert topology.text([HOST]) == """\
node-0: 2 sockets, 2 nodes, 64 cores, 128 threads; ranks 0, 1

interfaces
  name   PCI           node  speed
  eth0   0000:01:00.0  0     25 Gbit/s
  veth1  -             -     -

devices, and what is the smallest thing that holds them and an interface
  name   PCI           node  eth0  veth1
  npu:0  0000:04:00.0  1     host  ?
"""


def test_a_host_without_hwloc_says_so():
    host = {**HOST, "machine": {**HOST["machine"], "nodes": 0, "sockets": 0, "missing": "install libhwloc15"}, "ranks": []}
    assert topology.text([host]).startswith("node-0: 64 cores, 128 threads\n  install libhwloc15\n")


def first_device(rank, size):
    return topology.this_host()["devices"][0]


def test_a_device_has_a_place_only_if_its_plugin_tells(sim):
    assert run_ranks(first_device, 1)[0]["pci"] == ""
