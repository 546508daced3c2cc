"""Random numbers: reproducible, and a state of 16 bytes."""

import pytest
import torch

DRAWS = {
    "randn": lambda: torch.randn(5, device="sim"),
    "rand": lambda: torch.rand(1001, device="sim"),
    "randint": lambda: torch.randint(0, 100, (7,), device="sim"),
    "randperm": lambda: torch.randperm(9, device="sim"),
    "normal": lambda: torch.normal(torch.zeros(4, device="sim"), 2.0),
    "bernoulli": lambda: torch.bernoulli(torch.full((9,), 0.5, device="sim")),
    "multinomial": lambda: torch.multinomial(torch.ones(9, device="sim"), 4),
    "exponential": lambda: torch.empty(3, device="sim").exponential_(),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(100, device="sim")),
    "rand_like": lambda: torch.rand_like(torch.ones(3, device="sim")),
    "trunc_normal": lambda: torch.nn.init.trunc_normal_(torch.empty(20, device="sim")),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_seed_decides(draw):
    torch.manual_seed(7)
    first, second = draw(), draw()
    torch.manual_seed(7)
    assert torch.equal(draw(), first)
    assert torch.equal(draw(), second)
    if draw().numel() > 2:
        assert not torch.equal(first, second)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_state_can_be_saved_and_put_back(draw):
    draw()
    state = torch.sim.get_rng_state()
    first = draw()
    assert not torch.equal(torch.sim.get_rng_state(), state)
    torch.sim.set_rng_state(state)
    assert torch.equal(draw(), first)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_host_generator_is_left_alone(draw):
    before = torch.get_rng_state()
    draw()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_state_is_seed_and_offset():
    torch.sim.manual_seed(0x0102030405)
    state = torch.sim.get_rng_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8 and state.shape == (16,)
    assert state.view(torch.int64).tolist() == [0x0102030405, 0]
    torch.rand(1, device="sim")
    torch.rand(9, device="sim")
    assert torch.sim.get_rng_state().view(torch.int64).tolist() == [0x0102030405, 16]
    assert torch.sim.initial_seed() == 0x0102030405


def test_states_of_the_wrong_size_are_refused():
    with pytest.raises(RuntimeError, match="16 bytes"):
        torch.sim.set_rng_state(torch.zeros(8, dtype=torch.uint8))


def test_every_device_has_its_own():
    torch.sim.manual_seed_all(3)
    a = torch.rand(4, device="sim:0")
    b = torch.rand(4, device="sim:1")
    assert torch.equal(a.cpu(), b.cpu())
    assert not torch.equal(torch.rand(4, device="sim:0").cpu(), a.cpu())
    states = torch.sim.get_rng_state_all()
    assert len(states) == torch.sim.device_count()
    torch.sim.set_rng_state_all(states)


def test_generators_of_ones_own():
    g = torch.Generator(device="sim").manual_seed(5)
    a = torch.randn(6, device="sim", generator=g)
    copy = torch.Generator(device="sim")
    copy.set_state(g.get_state())
    assert torch.equal(torch.randn(6, device="sim", generator=g), torch.randn(6, device="sim", generator=copy))
    assert torch.equal(torch.randn(6, device="sim", generator=g.manual_seed(5)), a)
    assert g.device == torch.device("sim:0")


def test_fork_rng_restores():
    before = torch.sim.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="sim"):
        torch.rand(5, device="sim")
    assert torch.equal(torch.sim.get_rng_state(), before)


def test_the_numbers_are_spread_as_they_should_be():
    x = torch.randn(200_000, device="sim")
    assert abs(x.mean().item()) < 0.01 and abs(x.std().item() - 1) < 0.01
    many = torch.stack([torch.rand((), device="sim") for _ in range(2000)])  # one operation each
    assert abs(many.mean().item() - 0.5) < 0.03 and many.unique().numel() > 1990


def test_seeding_by_chance():
    assert torch.sim.seed() == torch.sim.initial_seed()


def test_checkpointing_replays_dropout():
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(1000, device="sim", requires_grad=True)
    y = checkpoint(lambda t: torch.nn.functional.dropout(t) * t, x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(x.grad, 2 * y.detach())
