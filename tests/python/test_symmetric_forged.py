"""Ranks of symmetric memory that read forged values in the store: written by a rank that lies, or copied from another job."""

import hashlib
import hmac
import struct
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch._C._distributed_c10d import _SymmetricMemory

from ranks import run_ranks

PROOF = 32  # digits behind each value
LARGE = 1 << 20
DOMAIN = b"hccl-like 2"


def seal(key, value):
    """A value with the proof of a rank that has no secret (transport/security/job_key.cc)."""
    own = hmac.digest(DOMAIN, b"", "sha256")
    parts = (DOMAIN, b"record in the store", key.encode(), value)
    text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return value + hmac.new(own, text, hashlib.sha256).hexdigest()[:PROOF].encode()


def group(name, rank, prefix):
    """Makes `name` known with two ranks over a part of the default store; returns that."""
    store = dist.PrefixStore(prefix, dist.distributed_c10d._get_default_store())
    store.set_timeout(timedelta(seconds=5))
    _SymmetricMemory.set_group_info(name, rank, 2, store)
    return store


def keys(name, device):
    return f"hccl-like/symmetric//{name}/{'hccl-like:cpu' if device == 'cpu' else 'hccl-like'}/0"


def lies(offer, lie):
    """The offer with another buffer's size, or with an offset that the sizes carry past 2^64."""
    sizes = struct.pack("<QQ", 40, symm_mem.get_signal_pad_size())
    at = offer.index(sizes)
    if lie == "size":
        return offer[:at] + struct.pack("<Q", 4 * LARGE) + offer[at + 8 :]
    return offer[: at - 8] + struct.pack("<Q", 2**64 - 4096) + offer[at:]


def a_rank_lies(rank, size, device, lie):
    honest = group("honest", rank, "honest")
    tensor = symm_mem.empty(10, device=device)
    handle = _SymmetricMemory.rendezvous(tensor, "honest")
    store = group("lying", rank, "lying")
    at = keys("lying", device)
    if rank == 0:
        tensor = symm_mem.empty(LARGE if lie == "size" else 10, device=device)
        with pytest.raises(RuntimeError, match="memory of rank 1 cannot be mapped: the .* that were opened are fewer than"):
            _SymmetricMemory.rendezvous(tensor, "lying")
    else:
        number = b"0" * 32
        store.set(f"{at}/hello/1", seal(f"{at}/hello/1/", number))
        scope = f"//{store.get(f'{at}/hello/0')[:-PROOF].decode()}{number.decode()}"
        offer = honest.get(f"{keys('honest', device)}/offer/1")[:-PROOF]
        store.set(f"{at}/offer/1", seal(f"{at}/offer/1{scope}", lies(offer, lie)))
    dist.barrier()
    del handle


@pytest.mark.parametrize(("device", "lie"), [("cpu", "size"), ("sim", "offset")], indirect=["device"])
def test_a_peer_is_not_believed_about_the_size_of_its_memory(device, lie):
    run_ranks(a_rank_lies, 2, device, lie)


def copied_from_another_job(rank, size, device):
    """Ranks 0 and 1 are a job; rank 2 is rank 0 of another, in whose store what rank 1 said in the first was put."""
    tensor = symm_mem.empty(10, device=device)
    if rank < 2:
        group("job", rank, "first")
        handle = _SymmetricMemory.rendezvous(tensor, "job")
        dist.barrier()
        dist.barrier()
        del handle
        return
    dist.barrier()
    store = group("job", 0, "second")
    other = dist.PrefixStore("first", dist.distributed_c10d._get_default_store())
    for what in ("hello", "offer", "outcome"):
        key = f"{keys('job', device)}/{what}/1"
        store.set(key, other.get(key) if other.check([key]) else b"")
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="what rank 1 of group 'job' offers in the store is not authentic.*another rendezvous"):
        _SymmetricMemory.rendezvous(tensor, "job")
    assert time.monotonic() - begin < 4, "it waited for a rank that is not there"
    dist.barrier()


def test_nothing_fits_that_was_said_in_another_job(device):
    run_ranks(copied_from_another_job, 3, device)
