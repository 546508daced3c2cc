"""hccl-like fwports: rules that let a job through a firewall that lets nothing else in."""

import json
import shlex
import shutil
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from hccl_like import fwports
from ranks import RankFailed, run_ranks

RANGE = {"HCCL_LIKE_PORT_RANGE": "40000-40003"}


@pytest.fixture
def command(capsys, monkeypatch):
    def run(*arguments, **variables):
        monkeypatch.delenv("MASTER_PORT", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        try:
            code = fwports.main(list(arguments))
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return run


def test_the_rules_name_the_store_and_a_port_for_each_rank(command):
    told = command("--ranks", "4", "--store", "29400", "--from", "10.0.0.0/24", "--from", "10.1.0.7", **RANGE)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines() == [
        "nft insert rule inet filter input ip saddr { 10.0.0.0/24, 10.1.0.7/32 } tcp dport { 29400, 40000-40003 } accept "
        'comment "hccl-like"',
        "iptables -I INPUT -p tcp -s 10.0.0.0/24,10.1.0.7/32 -m multiport --dports 29400,40000:40003 -m comment --comment hccl-like "
        "-j ACCEPT",
    ]


def test_without_a_range_the_ports_are_the_systems(command):
    told = command("--json", MASTER_PORT="1234")
    with open("/proc/sys/net/ipv4/ip_local_port_range") as ports:
        ephemeral = [int(port) for port in ports.read().split()]
    report = json.loads(told.stdout)
    assert (report["store"], report["ranks"]) == ([1234], ephemeral)
    assert "HCCL_LIKE_PORT_RANGE is not set" in report["notes"][0]
    assert [rule.split()[0] for rule in report["rules"]] == ["nft", "iptables", "ip6tables"]


def test_other_transports_have_ports_of_their_own(command):
    told = command(HCCL_LIKE_TRANSPORTS="shm,fabric,tcp", **RANGE)
    assert told.stdout.splitlines()[0] == "# The ports of fabric are not among these: its library or module chooses them."


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--ranks", "5"], "HCCL_LIKE_PORT_RANGE=40000-40003 has 4 ports for 5 ranks on a host; name one for each"),
        (["--ranks", "0"], "--ranks takes 1 or more"),
        (["--store", "70000"], "--store takes a port, 1 to 65535"),
        (["--from", "10.0.0.0/40"], "write a network as 10.0.0.0/24"),
    ],
    ids=["few ports", "no rank", "no port", "no network"],
)
def test_what_cannot_be_is_refused(arguments, says, command):
    told = command(*arguments, **RANGE)
    assert told.returncode == 2 and says in told.stderr and "Traceback" not in told.stderr


STORE = 29511


def reduced(rank, size):
    tensor = torch.full((300_000,), float(rank))
    dist.all_reduce(tensor)
    return tensor.unique().tolist()


def close(host):
    """From now on only answers come in, and what rules let in."""
    host.run(["nft", "add table inet filter"])
    host.run(["nft", "add chain inet filter input { type filter hook input priority 0 ; policy drop ; }"])
    host.run(["nft", "add rule inet filter input ct state established,related accept"])
    host.run(["nft", "add rule inet filter input iifname lo accept"])
    host.run(["nft", "add rule inet filter input meta l4proto { icmp, icmpv6 } accept"])


@pytest.mark.skipif(not shutil.which("nft"), reason="a firewall takes nft (nftables)")
@pytest.mark.parametrize("ports", ["of the ranks", "of others"])
def test_a_job_gets_through_a_firewall_with_these_rules_and_no_other(ports, make_hosts, monkeypatch, command):
    hosts = make_hosts(2)
    listen = hosts[0].listen
    monkeypatch.setattr(hosts[0], "listen", lambda: listen(STORE))
    told = command(
        "--ranks", "2", "--store", str(STORE), "--from", "10.77.0.0/16",
        HCCL_LIKE_PORT_RANGE=RANGE["HCCL_LIKE_PORT_RANGE"] if ports == "of the ranks" else "41000-41003",
    )
    for host in hosts:
        close(host)
        host.run(shlex.split(told.stdout.splitlines()[0]))
    environment = RANGE | {"HCCL_LIKE_CONNECT_TIMEOUT_MS": "2000", "HCCL_LIKE_TRANSPORTS": "shm,tcp"}
    if ports == "of the ranks":
        assert run_ranks(reduced, 4, hosts=hosts, environment=environment) == [[6.0]] * 4
    else:
        with pytest.raises(RankFailed, match=r"4000\d: no answer"):
            run_ranks(reduced, 4, hosts=hosts, environment=environment)
