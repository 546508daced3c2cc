"""Builds of torch that register kernels of their own for symmetric memory, as those for CUDA do."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import values
from ranks import run_ranks
from symmetric import shared, world

# Every operator that hccl-like has a kernel for.
OPERATORS = """
    one_shot_all_reduce one_shot_all_reduce_out one_shot_all_reduce_copy one_shot_all_reduce_copy_out two_shot_all_reduce_
    two_shot_all_reduce_out reduce_scatter_out _low_contention_all_gather _low_contention_reduce_scatter tile_reduce
    multi_root_tile_reduce get_remote_tensors memset32_ stream_write_value32_ multimem_all_reduce_ multimem_one_shot_all_reduce
    multimem_one_shot_all_reduce_out multimem_one_shot_reduce_out multimem_all_gather_out
""".split()


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """The library of foreign_operators.cc."""
    if (compiler := shutil.which(os.environ.get("CXX", "c++"))) is None:
        pytest.skip("building kernels takes a C++ compiler")
    target = tmp_path_factory.mktemp("foreign") / "libforeign_operators.so"
    package = Path(torch.__file__).parent
    subprocess.run(
        [compiler, "-std=c++20", "-O0", "-w", "-shared", "-fPIC", f"-I{package}/include",
         f"-I{package}/include/torch/csrc/api/include", str(Path(__file__).with_name("foreign_operators.cc")), "-o", target,
         f"-L{package}/lib", "-ltorch_cpu", "-lc10"],
        check=True,
    )  # fmt: skip
    return str(target)


def beside_foreign_kernels(rank, size, library, device):
    torch.ops.load_library(library)
    tensor = torch.full((5,), float(rank + 1), device=device)
    torch.distributed.all_reduce(tensor)
    assert tensor.tolist() == [size * (size + 1) / 2] * 5
    tile, _ = shared((4, 6), device=device, fill=rank + 1)
    out = torch.zeros(2, 3, device=device)
    torch.ops.symm_mem.tile_reduce(tile[1:3, 2:5], out, 0, world())
    assert values.equal(out, torch.full((2, 3), size * (size + 1) / 2 if rank == 0 else 0.0))
    words, _ = shared((3,), torch.int32, device=device, fill=0)
    torch.ops.symm_mem.memset32_(words, 1, 7, 2)
    assert words.tolist() == [0, 7, 7]


def test_kernels_with_other_signatures_do_not_matter(foreign, device):
    run_ranks(beside_foreign_kernels, 2, foreign, device)


def in_a_fresh_process(program):
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env={**os.environ, "PYTHONPATH": path},
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_operator_is_registered_before_symmetric_memory_is_asked_for():
    said = in_a_fresh_process(f"""
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem

        def registered():
            has = torch._C._dispatch_has_kernel_for_dispatch_key
            return sum(has(f"symm_mem::{{name}}", "CPU") for name in {OPERATORS!r})

        before = registered()
        dist.init_process_group("hccl-like", store=dist.HashStore(), rank=0, world_size=1)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        print(before, registered())
        symm_mem.empty(3, device="cpu")
        print(registered())
        dist.destroy_process_group()
    """)
    assert said.split() == ["0", "0", str(len(OPERATORS))]


def test_the_kernels_have_no_cpp_signature(device):
    """Else another kernel of the same operator, of any build of torch or of any vendor, might have another one."""
    said = in_a_fresh_process(f"""
        import torch
        import torch.distributed._symmetric_memory as symm_mem
        import hccl_like
        hccl_like.enable_symmetric_memory()
        symm_mem.empty(3, device={device!r})
        for name in {OPERATORS!r}:
            print(torch._C._dispatch_dump(f"symm_mem::{{name}}"))
    """)
    key = "CPU" if device == "cpu" else "PrivateUse1"
    kernels = re.findall(rf"^{key}: registered at .*operators\.cc:\d+ :: (.*)$", said, re.MULTILINE)
    assert kernels == ["(none) [ boxed ]"] * len(OPERATORS)
