"""Transports that are loaded: the example as a stranger would build it, and modules that are broken in every way."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import hccl_like
from ranks import RankFailed, make_store, run_ranks
from test_collectives import every_collective

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "minimal_transport" / "unix_transport.cc"


def build(source, target, *flags):
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"building a module takes {compiler}")
    subprocess.run([compiler, "-std=c++20", "-shared", "-fPIC", f"-I{ROOT}", *flags, str(source), "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="module")
def unix_module(tmp_path_factory):
    return build(EXAMPLE, tmp_path_factory.mktemp("module") / "libunix.so", "-O1")


def settings(module, transports="unix", name="unix"):
    return {"HCCL_LIKE_TRANSPORTS": transports, "HCCL_LIKE_TRANSPORT_MODULES": f"{name}={module}"}


@pytest.mark.parametrize("size", [2, 3])
def test_every_collective_goes_over_a_loaded_transport(unix_module, device, size):
    run_ranks(every_collective, size, device, environment=settings(unix_module))


# Before the module's own includes. Notes how many bytes it reads.
SEEN = """
#include <sys/uio.h>
#include <cstdio>
#include <cstdlib>
inline ssize_t seen(pid_t pid, const iovec* to, unsigned long pieces, const iovec* from, unsigned long parts, unsigned long flags) {
  std::FILE* const file = std::fopen(std::getenv("READS"), "a");
  std::fprintf(file, "%zu\\n", to->iov_len);
  std::fclose(file);
  return REFUSE ? -1 : process_vm_readv(pid, to, pieces, from, parts, flags);
}
#define process_vm_readv seen
"""
MANY = (8 << 20) + 12


def long_messages(rank, size):
    data = torch.arange(MANY // 4, dtype=torch.int32)
    got = torch.empty_like(data)
    for _ in range(3):
        sent = dist.isend(data + rank, 1 - rank)
        dist.recv(got.zero_(), 1 - rank)
        sent.wait()
        assert torch.equal(got, data + 1 - rank)
        summed = data.clone()
        dist.all_reduce(summed)
        assert torch.equal(summed, 2 * data)


@pytest.mark.parametrize("refused", [False, True])
def test_long_messages_are_read_from_the_peers_memory_if_the_system_allows_it(refused, tmp_path, monkeypatch):
    (tmp_path / "seen.h").write_text(SEEN)
    flags = f"-DREFUSE={int(refused)}", "-include", str(tmp_path / "seen.h")
    module = build(EXAMPLE, tmp_path / "libunix.so", "-O1", *flags)
    run_ranks(long_messages, 2, environment=settings(module) | {"READS": str(tmp_path / "reads")})
    reads = [int(line) for line in (tmp_path / "reads").read_text().split()]
    if refused:
        assert 2 <= len(reads) <= 8  # the parts of the first message of each rank
    else:
        assert sum(reads) >= 2 * 3 * MANY


def one_sum(rank, size):
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 3
    return True


def logged(function, size, tmp_path, **how):
    """What the ranks logged."""
    environment = {**how.pop("environment"), "HCCL_LIKE_DEBUG": "INFO", "HCCL_LIKE_DEBUG_FILE": f"{tmp_path}/log"}
    run_ranks(function, size, *how.pop("arguments", ()), environment=environment, **how)
    return (tmp_path / "log").read_text()


def test_the_log_says_that_a_peer_is_reached_over_it(unix_module, tmp_path):
    assert "unix to " in logged(one_sum, 2, tmp_path, environment=settings(unix_module))


def test_where_it_cannot_reach_the_next_transport_serves(unix_module, make_hosts, tmp_path):
    log = logged(one_sum, 4, tmp_path, environment=settings(unix_module, "unix,tcp"), hosts=make_hosts(2))
    assert "unix to " in log and "tcp " in log


def only_rank_0_has_it(rank, size, listener, module):
    if rank == 0:
        os.environ.update(settings(module, "unix,tcp"))
    store = make_store(rank, listener)
    dist.init_process_group("hccl-like", store=store, rank=rank, world_size=size)
    done = one_sum(rank, size)
    dist.destroy_process_group()
    return done


def test_a_module_that_only_some_ranks_have_is_not_used_between_them(unix_module, tmp_path):
    log = logged(only_rank_0_has_it, 2, tmp_path, environment={"HCCL_LIKE_TRANSPORTS": "tcp"}, arguments=[unix_module], group=False)
    assert "tcp " in log and "unix to" not in log


BROKEN = {
    "no symbol": ("extern \"C\" int something_else() { return 0; }", "does not export hct_get_api"),
    "another version": (
        '#include "transport/module.h"\nextern "C" const hct_api* hct_get_api(int, int) { return nullptr; }',
        "does not speak version 1",
    ),
    "a short table": (
        '#include "transport/module.h"\nstatic hct_api api;\n'
        'extern "C" const hct_api* hct_get_api(int, int) { api.size = 24; return &api; }',
        "its table says a size of 24 bytes",
    ),
    "an entry missing": (
        '#include "transport/module.h"\nstatic hct_api api;\n'
        'extern "C" const hct_api* hct_get_api(int, int) { api.size = sizeof api; api.name = "bad"; return &api; }',
        "lacks the mandatory entry last_error",
    ),
    "some entries to read memory": (
        f'#define hct_get_api complete\n#include "{EXAMPLE}"\n#undef hct_get_api\n'
        'extern "C" const hct_api* hct_get_api(int, int) '
        '{ static hct_api api; api = kApi; api.name = "bad"; api.tell = nullptr; return &api; }',
        "of the entries show to abandon_reads it has 7, and all 8 are needed or none",
    ),
    "an unknown library": ("extern int nowhere(); extern \"C\" int f() { return nowhere(); }", "undefined symbol"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_module_is_refused_by_name(kind, tmp_path):
    source, reason = BROKEN[kind]
    (tmp_path / "bad.cc").write_text(source)
    module = build(tmp_path / "bad.cc", tmp_path / "libbad.so")
    with pytest.raises(RankFailed) as raised:
        run_ranks(one_sum, 2, environment=settings(module, "bad", "bad"))
    assert f"the transport module 'bad' ({module}) cannot be used: " in str(raised.value)
    assert reason in str(raised.value)


def test_a_broken_module_beside_a_sound_transport_is_a_warning(tmp_path):
    (tmp_path / "bad.cc").write_text(BROKEN["no symbol"][0])
    module = build(tmp_path / "bad.cc", tmp_path / "libbad.so")
    log = logged(one_sum, 2, tmp_path, environment=settings(module, "bad,tcp", "bad"))
    assert "WARN the transport module 'bad'" in log.replace("]", "")


CRASHES = {
    "a bad address": ("static int x = [] { return *(volatile int*)8; }();", signal.SIGSEGV),
    "throws": ("static int x = [] { if (true) throw 1; return 1; }();", signal.SIGABRT),
}


@pytest.mark.parametrize("kind", CRASHES)
def test_a_module_that_crashes_at_load_is_named(kind, tmp_path):
    source, number = CRASHES[kind]
    (tmp_path / "bad.cc").write_text(source)
    module = build(tmp_path / "bad.cc", tmp_path / "libbad.so")
    code = "import torch.distributed as dist; dist.init_process_group('hccl-like', store=dist.HashStore(), rank=0, world_size=1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **settings(module, "bad", "bad")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -number
    assert f"the transport module 'bad' ({module}) crashed while it was loaded" in done.stderr


def test_a_name_that_nobody_knows_is_refused_with_those_there_are(unix_module):
    with pytest.raises(RankFailed, match="there is no transport 'nuix'; there are shm, tcp, fabric, mpi, unix"):
        run_ranks(one_sum, 2, environment=settings(unix_module, "nuix"))


def test_a_package_brings_its_module_by_an_entry_point(unix_module, tmp_path, monkeypatch):
    package = tmp_path / "toy-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[hccl_like.transports]\nunix = toy_transport:library\n")
    (tmp_path / "toy_transport.py").write_text(f"def library():\n    return {str(unix_module)!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "unix to " in logged(one_sum, 2, tmp_path, environment={"HCCL_LIKE_TRANSPORTS": "unix"})
    assert hccl_like.transports()["unix"] == str(unix_module)


def test_those_of_the_tree_are_listed_without_a_module():
    known = hccl_like.transports()
    assert known["shm"] == known["tcp"] == "built in"
    assert {"fabric", "mpi"} <= set(known)
