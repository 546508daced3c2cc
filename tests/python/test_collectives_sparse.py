"""Sums of sparse tensors: every rank its own number of elements, the same sum everywhere."""

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks


def can_be_made(rank, size, listener, device):
    try:
        torch.eye(2).to_sparse().to(device).coalesce().to_dense()
    except (NotImplementedError, RuntimeError):
        return False
    return True


@pytest.fixture
def sparse_device(device):
    """A device on which sparse tensors can be made at all."""
    if not all(run_ranks(can_be_made, 1, device, group=False)):
        pytest.skip(f"{device} has no sparse tensors")
    return device


def contribution(rank, dtype=torch.float32, dense=()):
    """`rank` + 1 elements at overlapping places of a 7 x 5 matrix of `dense` blocks, one place twice."""
    rows = torch.arange(rank + 1) % 7
    indices = torch.stack([torch.cat([rows, rows[:1]]), torch.cat([rows * 2 % 5, rows[:1] * 2 % 5])])
    values = torch.arange(1, rank + 3).reshape(-1, *[1] * len(dense)).expand(-1, *dense).to(dtype)
    return torch.sparse_coo_tensor(indices, values, (7, 5, *dense))


def sums(rank, size, device):
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
        for dense in ((), (3,), (2, 1)):
            tensor = contribution(rank, dtype, dense).to(device)
            expected = sum(contribution(r, dtype, dense).to_dense() for r in range(size))
            dist.all_reduce(tensor)
            assert tensor.is_sparse and tensor.is_coalesced()
            assert torch.equal(tensor.cpu().to_dense(), expected), (dtype, dense)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    (result,) = work.get_future().wait()
    assert result.is_sparse and torch.equal(result.cpu().to_dense(), expected * size)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_sparse_tensors_add_up(sparse_device, size):
    run_ranks(sums, size, sparse_device)


def empty_ones(rank, size, device):
    tensor = contribution(2) if rank == 1 else torch.sparse_coo_tensor(size=(7, 5))
    tensor = tensor.to(device)
    dist.all_reduce(tensor)
    assert torch.equal(tensor.cpu().to_dense(), contribution(2).to_dense())
    nothing = torch.sparse_coo_tensor(size=(3,)).to(device)
    dist.all_reduce(nothing)
    assert nothing._nnz() == 0


def test_ranks_without_elements_take_part(sparse_device):
    run_ranks(empty_ones, 3, sparse_device)


def same_bits(rank, size):
    generator = torch.Generator().manual_seed(rank)
    indices = torch.randint(0, 11, (1, 400), generator=generator)
    tensor = torch.sparse_coo_tensor(indices, torch.randn(400, generator=generator), (11,))
    dist.all_reduce(tensor)
    return tensor.to_dense().tolist()


def test_all_ranks_get_the_same_bits():
    first, *others = run_ranks(same_bits, 3)
    assert all(other == first for other in others)


def refused(rank, size):
    with pytest.raises(TypeError, match="can only be added up"):
        dist.all_reduce(contribution(rank), dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match=r"rank \d has Float\[\d, 5\] with 2 sparse dimensions, rank \d has Float"):
        dist.all_reduce(torch.eye(5)[: 3 + rank].to_sparse())
    with pytest.raises(ValueError, match="sparse tensors differ"):
        dist.all_reduce(contribution(0, torch.float64 if rank else torch.float32))
    with pytest.raises((TypeError, RuntimeError, NotImplementedError), match="sparse|Sparse"):
        dist.broadcast(contribution(0), 0)
    with pytest.raises(NotImplementedError):
        dist.all_reduce(torch.eye(3).to_sparse_csr())
    tensor = contribution(rank)
    dist.all_reduce(tensor)
    assert tensor.to_dense()[0, 0] == 7, "the group works on"


def test_what_cannot_be_added_up_is_told():
    run_ranks(refused, 2)


def embedding_step(rank, size):
    torch.manual_seed(3)
    embedding = torch.nn.Embedding(9, 4, sparse=True)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(embedding, torch.nn.Linear(4, 2)))
    model(torch.tensor([rank, rank + 1, 8])).sum().backward()
    assert embedding.weight.grad.is_sparse
    return embedding.weight.grad.to_dense(), model.module[1].weight.grad


def test_ddp_averages_sparse_gradients():
    results = run_ranks(embedding_step, 2)
    gradient = results[0][0]
    assert torch.equal(gradient, results[1][0])
    touched = gradient.abs().sum(1) > 0
    assert touched.tolist() == [True, True, True] + [False] * 5 + [True]
    assert torch.allclose(gradient[1], gradient[0] * 2) and torch.allclose(gradient[8], gradient[0] * 2)


def in_detail(rank, size):
    tensor = contribution(rank)
    dist.all_reduce(tensor)
    assert tensor.to_dense()[0, 0] == 7


def test_sparse_tensors_add_up_under_the_debug_wrapper():
    run_ranks(in_detail, 2, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
