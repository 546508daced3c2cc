"""Threads, processes and training."""

from __future__ import annotations

import io
import os
import select
import threading

import torch

from hccl_like.conformance.vendor._check import Missing, check, expect, first_line, offered
from hccl_like.conformance.vendor._device import COUNT, Device, expect_value

_ROUNDS = 30
_CHILD_SECONDS = 5


@check(
    "threads.two",
    "two threads at once",
    without="fatal: autograd, data loaders and collectives have threads of their own",
)
def two_threads(device: Device) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        try:
            for round in range(_ROUNDS):
                tensor = device.full(number + round)
                expect_value(tensor.cpu(), number + round, f"made by thread {number}")
                tensor.copy_(torch.full((COUNT,), number + round + 1.0))
                expect_value(tensor.cpu(), number + round + 1, f"written by thread {number}")
        except Exception as error:
            wrong.append(first_line(error))

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not wrong, wrong[0] if wrong else "")


@check(
    "threads.current",
    "each thread has a current device of its own",
    needs=("device.switch",),
    without="calls name the device each time; a program must not switch devices in threads",
)
def thread_device(device: Device) -> None:
    seen = []
    torch.accelerator.set_device_index(0)
    inside, outside = threading.Event(), threading.Event()

    def switch() -> None:
        torch.accelerator.set_device_index(1)
        inside.set()
        outside.wait(_CHILD_SECONDS)
        seen.append(torch.accelerator.current_device_index())

    thread = threading.Thread(target=switch)
    thread.start()
    inside.wait(_CHILD_SECONDS)
    mine = torch.accelerator.current_device_index()
    torch.accelerator.set_device_index(0)
    outside.set()
    thread.join()
    expect(mine == 0, "a thread that switches devices switches the others', too")
    expect(seen == [1], "a thread's device is switched by another")


@check(
    "processes.fork_after",
    "a process forked after the first use ends in time",
    gives="data loaders with workers work",
    without="start workers with multiprocessing_context='spawn', before the device is used otherwise",
)
def fork_after(device: Device) -> str:
    expect_value(device.full(1).cpu(), 1, "before the fork")
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            torch.set_num_threads(1)  # as data loaders do; the host's own threads do not survive a fork
            device.full(3).cpu()
            said = "works"
        except Exception as error:
            said = "is refused: " + first_line(error)
        os.write(write_end, said.encode())
        os._exit(0)
    os.close(write_end)
    ready, _, _ = select.select([read_end], [], [], _CHILD_SECONDS)
    if not ready:
        os.kill(pid, 9)
    answer = os.read(read_end, 10_000).decode() if ready else ""
    _, status = os.waitpid(pid, 0)
    expect(bool(ready), "the child hangs when it uses the device")
    expect(bool(answer), f"the child ended with {os.waitstatus_to_exitcode(status)} when it used the device")
    expect_value(device.full(4).cpu(), 4, "in the parent, after the child has ended")
    return f"the device {answer[:120]}" if answer.startswith("is") else "the device works there, too"


@check(
    "torch.reductions",
    "operators that a reduction can use",
    gives="a plugin without reduce kernels could reduce on the device",
    without="reductions are done by the host, as everywhere without reduce kernels in the plugin",
)
def reductions(device: Device) -> str | None:
    refused, tried = [], 0
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        for name, expected in (("add", 5), ("mul", 6), ("maximum", 3), ("minimum", 2)):
            tried += 1
            try:
                left, right = (torch.full((101,), value, dtype=dtype).to(device.first) for value in (2, 3))
                result = getattr(torch, name)(left, right).cpu()
            except Exception:
                refused.append(f"{name} of {str(dtype).removeprefix('torch.')}")
                continue
            expect_value(result, expected, f"{name} of {dtype}")
    if len(refused) == tried:
        raise Missing("there are none")
    return "not offered: " + ", ".join(refused) if refused else None


@check("torch.autograd", "training: forward, backward, step", without="no model can be trained on the device")
def autograd(device: Device) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    twin = torch.nn.Linear(5, 3)
    twin.load_state_dict(model.state_dict())
    rows = torch.randn(7, 5)
    with offered():
        twin.to(device.first)
        for one, inputs in ((model, rows), (twin, rows.to(device.first))):
            optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
            one(inputs).square().mean().backward()
            optimizer.step()
    for mine, theirs in zip(model.parameters(), twin.parameters()):
        expect(torch.allclose(mine, theirs.cpu(), atol=1e-5), "a step of SGD gave other weights than on the CPU")


@check("torch.autocast", "mixed precision", without="torch.autocast cannot be used")
def autocast(device: Device) -> None:
    left, right = torch.randn(8, 8), torch.randn(8, 8)
    with offered(), torch.autocast(device.name, dtype=torch.bfloat16):
        product = left.to(device.first) @ right.to(device.first)
    expect(product.dtype == torch.bfloat16, f"a product under autocast(bfloat16) is {product.dtype}")
    expect(torch.allclose(product.cpu().float(), left @ right, atol=0.2, rtol=0.05), "a product under autocast is wrong")


@check("torch.seed", "torch.manual_seed() reaches the device", without="seed the device by what it has of its own")
def seed(device: Device) -> None:
    def drawn(number: int) -> torch.Tensor:
        torch.manual_seed(number)
        return torch.rand(COUNT, device=device.first).cpu()

    with offered():
        first, again, other = drawn(7), drawn(7), drawn(8)
    expect(not torch.equal(first, other), "another seed gave the same numbers")
    if not torch.equal(first, again):
        raise Missing("the same seed gave other numbers")


@check(
    "torch.checkpoint",
    "an activation checkpoint with dropout repeats its mask",
    without="activation checkpoints: with preserve_rng_state=False and nothing random inside",
)
def activation_checkpoint(device: Device) -> None:
    from torch.utils.checkpoint import checkpoint

    with offered():
        rows = torch.ones(COUNT).to(device.first).requires_grad_()
        result = checkpoint(lambda x: torch.nn.functional.dropout(x, 0.5), rows, use_reentrant=False)
        result.backward(torch.ones(COUNT).to(device.first))
        kept, repeated = result.detach().cpu(), rows.grad.cpu()
    expect(0 < int(kept.ne(0).sum()) < COUNT, "dropout with a probability of 0.5 keeps all or nothing")
    expect(torch.equal(kept, repeated), "the mask is another one in the backward pass, so gradients are wrong")


@check(
    "torch.storage",
    "a storage can be copied to the host",
    gives="torch.distributed.checkpoint.async_save() works",
    without="torch.save() and torch.distributed.checkpoint.async_save() fail in torch itself, which copies storages by giving them "
    "to tensors: register aten::set_.source_Storage; torch.distributed.checkpoint.save() does without",
)
def storage(device: Device) -> None:
    source = torch.arange(COUNT, dtype=torch.float32).to(device.first).untyped_storage()
    target = torch.UntypedStorage(source.nbytes())
    with offered():
        target.copy_(source)
    seen = torch.frombuffer(bytearray(target), dtype=torch.float32)
    expect(torch.equal(seen[:COUNT], torch.arange(COUNT, dtype=torch.float32)), "a storage that was copied has changed")


@check(
    "torch.save",
    "tensors can be saved and loaded",
    without="save tensors of the CPU, or with torch.distributed.checkpoint; load with map_location='cpu'",
)
def save(device: Device) -> None:
    tensor = torch.arange(COUNT, dtype=torch.float32).to(device.first)
    file = io.BytesIO()
    with offered():
        torch.save({"part": tensor[7:]}, file)
    file.seek(0)
    with offered():
        loaded = torch.load(file, weights_only=True)["part"]
    expect(loaded.device.type == device.name, f"a tensor saved on the device is loaded to {loaded.device}")
    expect(torch.equal(loaded.cpu(), tensor[7:].cpu()), "a tensor that was saved and loaded has changed")
    file.seek(0)
    expect(torch.load(file, map_location="cpu", weights_only=True)["part"].device.type == "cpu", "map_location is ignored")
