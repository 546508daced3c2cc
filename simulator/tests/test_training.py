"""Models train on sim exactly as on the host: the kernels are the same."""

import pytest
import torch
from torch import nn

OPTIMISERS = {
    "sgd": lambda p, **kw: torch.optim.SGD(p, lr=0.05, momentum=0.9, **kw),
    "adam": lambda p, **kw: torch.optim.Adam(p, lr=0.01, **kw),
    "adamw": lambda p, **kw: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, **kw),
}
WAYS = {"plain": {"foreach": False, "fused": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(8, 6, 3, stride=2, groups=2),
        nn.GroupNorm(2, 6), nn.SiLU(), nn.Conv2d(6, 4, 3, bias=False), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(36, 10),
    )  # fmt: skip


def transformer():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(5, 16), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(7 * 16, 10))


def train(model, shape, device, optimiser, steps=4):
    torch.manual_seed(0)
    model = model().to(device)
    optimiser = optimiser(model.parameters())
    losses = []
    for step in range(steps):
        x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(step)).to(device)
        y = torch.arange(6).add(step).remainder(10).to(device)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses, [tensor.cpu() for tensor in model.state_dict().values()]


@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("model, shape", [(convolutional, (3, 9, 9)), (transformer, (7, 5))], ids=["cnn", "transformer"])
def test_training_is_bitwise_the_hosts(model, shape, optimiser, way):
    host_losses, host_state = train(model, shape, "cpu", lambda p: optimiser(p, **way))
    losses, state = train(model, shape, "sim", lambda p: optimiser(p, **way))
    assert losses == host_losses and losses[-1] != losses[0]
    assert all(torch.equal(a, b) for a, b in zip(state, host_state))


@pytest.mark.parametrize("model", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_agree(model):
    torch.manual_seed(0)
    host = model(4, 6, num_layers=2, bidirectional=True)
    sim = model(4, 6, num_layers=2, bidirectional=True).sim()
    sim.load_state_dict(host.state_dict())
    x = torch.randn(5, 3, 4)
    torch.testing.assert_close(sim(x.sim())[0].cpu(), host(x)[0])
    packed = nn.utils.rnn.pack_padded_sequence(x.sim(), [5, 2, 1])
    assert packed.batch_sizes.device.type == "cpu"
    torch.testing.assert_close(sim(packed)[0].data.cpu(), host(nn.utils.rnn.pack_padded_sequence(x, [5, 2, 1]))[0].data)


def test_attention_takes_the_hosts_way():
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = (torch.randn(2, 4, 9, 8, generator=torch.Generator().manual_seed(i)) for i in range(3))
    for kwargs in ({}, {"is_causal": True}, {"attn_mask": torch.ones(9, 9).tril().bool()}):
        host = [t.clone().requires_grad_() for t in (q, k, v)]
        sim = [t.sim().requires_grad_() for t in (q, k, v)]
        a = scaled_dot_product_attention(*host, **kwargs)
        b = scaled_dot_product_attention(*sim, **{n: x.sim() if isinstance(x, torch.Tensor) else x for n, x in kwargs.items()})
        assert torch.equal(a, b.cpu())
        a.square().sum().backward()
        b.square().sum().backward()
        assert all(torch.equal(x.grad, y.grad.cpu()) for x, y in zip(host, sim))


def test_clipping_and_channels_last_train():
    model = convolutional().sim().to(memory_format=torch.channels_last)
    loss = model(torch.randn(2, 3, 9, 9, device="sim").to(memory_format=torch.channels_last)).square().mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert norm.is_sim and norm.isfinite()


def test_a_transformer_takes_padded_batches():
    """In evaluation torch would make nested tensors of them if it could."""
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    encoders = [transformer()[1].eval().to(device) for device in ("cpu", "sim")]
    encoders[1].load_state_dict(encoders[0].state_dict())
    x = torch.randn(2, 7, 16)
    with torch.no_grad():
        host, sim = (e(x.to(d), src_key_padding_mask=padding.to(d)) for e, d in zip(encoders, ("cpu", "sim")))
    torch.testing.assert_close(sim.cpu()[~padding], host[~padding])


def test_what_a_user_of_cuda_s_mixed_precision_writes():
    from torch.sim.amp import GradScaler, autocast, custom_bwd, custom_fwd

    class Double(torch.autograd.Function):
        @staticmethod
        @custom_fwd(cast_inputs=torch.float32)
        def forward(context, x):
            assert x.dtype == torch.float32 and not torch.is_autocast_enabled("sim")
            return x * 2

        @staticmethod
        @custom_bwd
        def backward(context, gradient):
            return gradient * 2

    model, scaler = nn.Linear(3, 2).sim(), GradScaler(init_scale=8.0)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    before = model.bias.detach().clone()
    with autocast():
        y = model(torch.ones(4, 3, device="sim"))
        assert y.dtype == torch.float16
        loss = Double.apply(y).sum()
    scaler.scale(loss).backward()
    assert torch.equal(model.bias.grad.cpu(), torch.full((2,), 64.0))
    scaler.step(optimiser)
    scaler.update()
    assert torch.equal(model.bias.detach(), before - 4)
    model.bias.grad.fill_(torch.inf)
    scaler.step(optimiser)
    scaler.update()
    assert scaler.get_scale() == 4 and torch.equal(model.bias.detach(), before - 4)
