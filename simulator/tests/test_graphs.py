"""torch.accelerator.Graph on the device: work is recorded and not done, and each replay does all of it."""

import pytest
import torch

pytestmark = pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph came with torch 2.13")


@pytest.fixture
def stream():
    return torch.Stream(device="sim")


def test_a_capture_does_nothing_and_each_replay_does_all(stream):
    x = torch.ones(4, device="sim")
    graph = torch.accelerator.Graph()
    with stream, graph:
        x += 1
        y = x * 2
        parts = torch.cat([x, y]).split(4)
        z = parts[1].clone().fill_(7)
    assert x.tolist() == [1] * 4
    for replay in range(1, 4):
        with stream:
            graph.replay()
        stream.synchronize()
        assert x.tolist() == [1 + replay] * 4
        assert y.tolist() == parts[1].tolist() == [2 * (1 + replay)] * 4
        assert z.tolist() == [7] * 4


def test_replays_read_what_their_inputs_have_then(stream):
    batch, weight = torch.zeros(3, 5, device="sim"), torch.arange(20.0).reshape(4, 5).to("sim")
    graph = torch.accelerator.Graph()
    with stream, graph:
        out = torch.nn.functional.linear(batch, weight).relu()
    for seed in range(3):
        torch.manual_seed(seed)
        fresh = torch.randn(3, 5)
        with stream:
            batch.copy_(fresh)
            graph.replay()
        stream.synchronize()
        assert torch.equal(out.cpu(), torch.nn.functional.linear(fresh, weight.cpu()).relu())


def test_backward_and_foreach_operators_are_captured(stream):
    torch.manual_seed(0)
    weights = [torch.randn(3, 3) for _ in range(2)]

    def step(weights, x):
        for weight in weights:
            weight.grad = None
        (x @ weights[0] @ weights[1]).square().sum().backward()
        with torch.no_grad():
            torch._foreach_add_(weights, [weight.grad for weight in weights], alpha=-0.01)

    ours = [weight.to("sim").requires_grad_() for weight in weights]
    theirs = [weight.clone().requires_grad_() for weight in weights]
    x = torch.randn(2, 3)
    on_device = x.to("sim")
    graph = torch.accelerator.Graph()
    with stream, graph:
        step(ours, on_device)
    for _ in range(3):
        with stream:
            graph.replay()
        step(theirs, x)
    stream.synchronize()
    assert all(torch.equal(one.cpu(), other) for one, other in zip(ours, theirs))


def test_a_side_stream_takes_part_if_it_waits_for_the_first(stream):
    side, x = torch.Stream(device="sim"), torch.ones(4, device="sim")
    graph = torch.accelerator.Graph()
    with stream, graph:
        x += 1
        side.wait_stream(stream)
        with side:
            x *= 3
        stream.wait_stream(side)
        x += 1
    with stream:
        graph.replay()
    stream.synchronize()
    assert x.tolist() == [7] * 4


def test_work_of_a_side_stream_that_nothing_waits_for_is_refused(stream):
    side, x = torch.Stream(device="sim"), torch.ones(4, device="sim")
    with pytest.raises(RuntimeError, match="side stream that its first stream does not wait for"):
        with stream, torch.accelerator.Graph():
            side.wait_stream(stream)
            with side:
                x += 1
    with side:  # both streams are as good as before
        x += 1
    side.synchronize()
    assert x.tolist() == [2] * 4


def test_memory_of_a_capture_is_used_for_nothing_else(stream):
    graph = torch.accelerator.Graph()
    before = torch.accelerator.memory_allocated()
    x = torch.ones(1 << 18, device="sim")
    with stream, graph:
        total = ((x + 1) * 2).sum()  # of two tensors that are gone
    with stream:
        others = [torch.full((1 << 18,), 9.0, device="sim") for _ in range(4)]
        graph.replay()
    stream.synchronize()
    assert total.item() == 4 << 18
    assert all(torch.equal(one.cpu(), torch.full((1 << 18,), 9.0)) for one in others)
    del others, x, total
    assert torch.accelerator.memory_allocated() > before
    graph.reset()
    assert torch.accelerator.memory_allocated() == before


REFUSED = {
    "item": lambda x: x.sum().item(),
    "nonzero": lambda x: x.nonzero(),
    "cpu": lambda x: x.cpu(),
    "random": lambda x: x.uniform_(),
    "synchronize": lambda x: torch.accelerator.current_stream().synchronize(),
    "sparse": lambda x: x.to_sparse(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_graph_cannot_do_again_is_refused(name, stream):
    x = torch.ones(4, device="sim")
    with pytest.raises((RuntimeError, NotImplementedError), match="capture|graph on sim"):
        with stream, torch.accelerator.Graph():
            REFUSED[name](x)
    with stream:
        x += 1
    stream.synchronize()
    assert x.tolist() == [2] * 4


def test_events_do_not_cross_the_edge_of_a_capture(stream):
    other = torch.Stream(device="sim")
    outside = other.record_event()
    with pytest.raises(RuntimeError, match="from outside the capture"):
        with stream, torch.accelerator.Graph():
            stream.wait_event(outside)
    with stream, torch.accelerator.Graph():
        inside = stream.record_event()
    with pytest.raises(RuntimeError, match="no event outside"):
        other.wait_event(inside)


def test_a_graph_is_captured_before_it_is_replayed_and_not_in_another(stream):
    empty, graph = torch.accelerator.Graph(), torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="has captured nothing"):
        empty.replay()
    x = torch.ones(4, device="sim")
    with stream, graph:
        x += 1
    with pytest.raises(RuntimeError, match="replayed in the capture of another"):
        with stream, empty:
            graph.replay()
