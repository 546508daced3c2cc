"""Sparse tensors in COO format: on sim they are what they are on the host."""

import copy
import io

import pytest
import torch
from torch import nn

INDICES = [[0, 1, 1, 0], [2, 0, 2, 2]]  # (0, 2) twice
VALUES = [3.0, 4.0, 5.0, 0.5]


def host():
    return torch.sparse_coo_tensor(INDICES, VALUES, (2, 3), check_invariants=True)


def sim(device="sim"):
    return torch.sparse_coo_tensor(
        torch.tensor(INDICES, device=device), torch.tensor(VALUES, device=device), (2, 3), check_invariants=True
    )


def assert_same(a, b):
    """`a` is on sim what `b` is on the host."""
    assert a.is_sim and a._indices().is_sim and a._values().is_sim and a.layout == b.layout == torch.sparse_coo
    assert a.is_coalesced() == b.is_coalesced() and a.shape == b.shape
    assert torch.equal(a._indices().cpu(), b._indices()) and torch.equal(a._values().cpu(), b._values())


@pytest.mark.parametrize("make", [
    lambda device: torch.sparse_coo_tensor(INDICES, VALUES, (2, 3), device=device),
    lambda device: torch.sparse_coo_tensor(INDICES, VALUES, device=device),
    lambda device: torch.sparse_coo_tensor((2, 3), device=device),
    lambda device: torch.zeros(2, 3, layout=torch.sparse_coo, device=device),
    lambda device: torch.sparse_coo_tensor([[0, 2]], torch.ones(2, 4), (3, 4), device=device),
    lambda device: torch.eye(3, device=device).to_sparse(),
    lambda device: torch.ones(3, 2, device=device).to_sparse(1),
])  # fmt: skip
def test_they_are_made(make):
    assert_same(make("sim"), make("cpu"))
    on_another = make("sim:2")
    assert on_another.device == on_another._values().device == on_another._indices().device == torch.device("sim:2")


@pytest.mark.parametrize("operation", [
    lambda x: x.coalesce(),
    lambda x: x + x,
    lambda x: x - 3 * x,
    lambda x: x.coalesce() * x.coalesce(),
    lambda x: x * 2,
    lambda x: x / 2,
    lambda x: -x.coalesce(),
    lambda x: x.abs(),
    lambda x: x.coalesce().pow(2),
    lambda x: x.t(),
    lambda x: x.unsqueeze(1),
    lambda x: x.clone(),
    lambda x: x.double(),
    lambda x: x.detach(),
    lambda x: torch.zeros_like(x),
    lambda x: torch.cat([x, x], 1),
    lambda x: torch.sparse.sum(x, 0),
    lambda x: x.index_select(1, torch.tensor([2], device=x.device)),
    lambda x: torch.ones(2, 3, device=x.device).sparse_mask(x.coalesce()),
    lambda x: copy.deepcopy(x),
    lambda x: x.clone().add_(x),
    lambda x: x.clone().mul_(3),
    lambda x: x.clone().div_(2),
    lambda x: x.clone().zero_(),
    lambda x: x.clone().copy_(x * 2),
    lambda x: x.clone().resize_as_sparse_(x.new_zeros((5, 5))),
])  # fmt: skip
def test_an_operation_gives_the_hosts_result(operation):
    assert_same(operation(sim()), operation(host()))


@pytest.mark.parametrize("operation", [
    lambda x: x.to_dense(),
    lambda x: x.sum(),
    lambda x: x.coalesce().norm(),
    lambda x: x.coalesce().values(),
    lambda x: x.coalesce().indices(),
    lambda x: torch.ones(2, 3, device=x.device) + x,
    lambda x: torch.ones(2, 3, device=x.device).add_(x, alpha=-2),
    lambda x: torch.sparse.mm(x, torch.ones(3, 2, device=x.device)),
    lambda x: x @ torch.arange(3.0, device=x.device),
])  # fmt: skip
def test_a_dense_result_is_the_hosts(operation):
    a, b = operation(sim()), operation(host())
    assert a.is_sim and torch.equal(a.cpu(), b)


def test_they_move():
    assert_same(host().to("sim"), host())
    assert_same(sim("sim:1").to("sim:2"), host())
    back = sim().cpu()
    assert back.device.type == back._values().device.type == "cpu" and torch.equal(back.to_dense(), host().to_dense())
    onto_host, onto_sim = torch.zeros(2, 3).to_sparse(), torch.zeros(2, 3, device="sim").to_sparse()
    assert torch.equal(onto_host.copy_(sim()).to_dense(), host().to_dense())
    assert_same(onto_sim.copy_(host()), host())


def test_changes_of_the_parts_are_changes_of_the_tensor():
    x = sim()
    x._values().mul_(10)
    assert x.to_dense().tolist() == [[0, 0, 35], [40, 0, 50]]
    whole = x.coalesce()
    whole.values().zero_()
    assert whole.to_dense().count_nonzero().item() == 0


def test_they_are_used_in_the_order_of_streams():
    x, side = sim(), torch.sim.Stream()
    with torch.sim.stream(side):
        torch.sim._sleep(50)
        x._values().fill_(1)
        assert x.to_dense().tolist() == [[0, 0, 2], [1, 0, 1]]


def test_indices_out_of_bounds_are_found():
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        torch.sparse_coo_tensor(torch.tensor([[7]], device="sim"), torch.ones(1, device="sim"), (3,), check_invariants=True)


def test_saving_and_printing():
    saved = io.BytesIO()
    torch.save(sim(), saved)
    saved.seek(0)
    assert_same(torch.load(saved), host())
    assert "device='sim:0'" in repr(sim()) and "nnz=4" in repr(sim())


def test_gradients_through_sparse_tensors():
    results = []
    for device in ("cpu", "sim"):
        a = host().to(device).requires_grad_()
        b = torch.arange(6.0, device=device).view(3, 2).requires_grad_()
        torch.sparse.mm(a, b).square().sum().backward()
        results.append((a.grad.to_dense().cpu(), b.grad.cpu()))
    assert all(torch.equal(x, y) for x, y in zip(*results))


OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.5),
    "sparse adam": lambda p: torch.optim.SparseAdam(list(p), lr=0.5),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_embeddings_train_by_sparse_gradients(layer, optimiser):
    weights = []
    for device in ("cpu", "sim"):
        torch.manual_seed(0)
        net = layer(7, 3, sparse=True, **({"mode": "sum"} if layer is nn.EmbeddingBag else {})).to(device)
        steps = optimiser(net.parameters())
        for step in range(3):
            steps.zero_grad()
            net(torch.tensor([[1, 2, 1], [step, 5, 6]], device=device)).square().sum().backward()
            assert net.weight.grad.is_sparse and net.weight.grad.device.type == device
            steps.step()
        weights.append(net.weight.detach().cpu())
    assert torch.equal(*weights)


def test_other_formats_are_refused_clearly():
    with pytest.raises(RuntimeError, match="those in COO format are supported"):
        torch.eye(3, device="sim").to_sparse_csr()
    with pytest.raises(NotImplementedError, match="no compressed ones"):
        torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), device="sim").to_dense()


def test_they_do_not_mix_with_the_hosts():
    with pytest.raises(RuntimeError, match="same device"):
        sim() + host()
