"""examples/train_llm.py: its parts without processes, and every layout against one process."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

pytest.importorskip("matplotlib.pyplot")
pytest.importorskip("rich")
import train_llm  # noqa: E402
import training  # noqa: E402, F401  imports what an optimiser's first step would import in every rank
from digits.parallel import Ranks, pick_device  # noqa: E402
from llm import attention, data, experts, pipeline  # noqa: E402
from llm.layout import Layout  # noqa: E402
from llm.model import SIZES, Mixture, joined, rotate, whole  # noqa: E402
from ranks import run_ranks  # noqa: E402

TINY = SIZES["tiny"]


# -------------------------------------------------------------------------------------------------- data and layout


def test_batches_follow_from_seed_and_step():
    text = data.load()
    tokens, targets = data.batch(text, 3, rows=4, context=16, seed=1)
    assert tokens.shape == targets.shape == (4, 16) and torch.equal(tokens[:, 1:], targets[:, :-1])
    assert torch.equal(tokens, data.batch(text, 3, 4, 16, 1)[0])
    assert not torch.equal(tokens, data.batch(text, 4, 4, 16, 1)[0])
    assert not torch.equal(tokens, data.batch(text, 3, 4, 16, 2)[0])


def test_a_layout_is_read_from_text():
    layout = Layout.parse("dp2, tp4")
    assert (layout.dp, layout.tp, layout.ranks, layout.data_ranks, str(layout)) == (2, 4, 8, 2, "dp2,tp4")
    assert Layout.parse("ep2,cp3,pp5").data_ranks == 6
    assert str(Layout.parse("dp1")) == "one rank"


@pytest.mark.parametrize("text", ["", "dp", "dp0", "xy2", "dp2,dp2", "2dp"])
def test_what_is_no_layout_is_refused(text):
    with pytest.raises(SystemExit, match="an example: dp2,tp2"):
        Layout.parse(text)


@pytest.mark.parametrize("text, world, mixture, stages, complaint", [
    ("dp2,tp2", 2, 0, 1, "these are 4 ranks, but the job has 2"),
    ("dp3", 3, 0, 1, "--batch 8 does not divide by 3 ranks"),
    ("tp8", 8, 0, 1, "4 heads do not divide by tp"),
    ("cp3", 3, 0, 1, "does not divide by cp x tp"),
    ("pp8", 8, 0, 8, "8 pipeline stages want as many blocks, the model has 4"),
    ("ep2", 2, 0, 1, "ep needs --experts N"),
    ("ep2", 2, 3, 1, "--experts 3 does not divide by ep"),
    ("replicate2", 2, 0, 1, "it needs dp and --data fsdp2, too"),
    ("replicate2,dp2", 4, 0, 1, "it needs dp and --data fsdp2, too"),
])  # fmt: skip
def test_a_layout_that_does_not_fit_is_refused(text, world, mixture, stages, complaint):
    with pytest.raises(SystemExit, match=complaint):
        Layout.parse(text).check(world, TINY, Mixture(mixture), batch=8, micro_batches=1, stages=stages, data="ddp")


# ------------------------------------------------------------------------------------------------------------ model


def test_the_stages_one_after_the_other_are_the_model():
    model = whole(TINY, Mixture(), seed=0)
    tokens = torch.arange(12).view(2, 6)
    parts = [model.part(range(0, 1)), model.part(range(1, 4))]
    x = tokens
    for part in parts:
        x = part(x)
    assert torch.equal(x, model(tokens))
    names = [name for part in parts for name, _ in part.named_parameters()]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert torch.equal(joined(parts)(tokens), x)


def test_later_bytes_do_not_change_what_is_said_about_earlier_ones():
    model = whole(TINY, Mixture(4, capacity=0.5), seed=0)
    tokens = torch.arange(32).view(1, 32)
    other = torch.cat((tokens[:, :20], 100 + tokens[:, 20:]), dim=1)
    torch.testing.assert_close(model(tokens)[:, :20], model(other)[:, :20])


def test_rotated_products_depend_on_the_distance_alone():
    query, key = torch.randn(2, 1, 1, 5, 8, generator=torch.Generator().manual_seed(1))
    near, far = (rotate(query, first) @ rotate(key, first).mT for first in (0, 40))
    torch.testing.assert_close(near, far, rtol=1e-4, atol=1e-4)


# -------------------------------------------------------------------------------------------------------- attention


def heads(*shape, seed=3):
    return torch.randn(3, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_partial_results_are_merged_in_any_order():
    query, key, value = heads(2, 3, 12, 4)
    expected = F.scaled_dot_product_attention(query, key, value)
    parts = [attention.partial(query, k, v, diagonal=False) for k, v in zip(key.split(5, 2), value.split(5, 2))]
    for order in ((0, 1, 2), (2, 0, 1)):
        result = parts[order[0]]
        for i in order[1:]:
            result = attention.merge(*result, *parts[i])
        torch.testing.assert_close(result[0], expected)


def test_a_diagonal_block_is_causal():
    query, key, value = heads(2, 3, 7, 4)
    result, weight = attention.partial(query, key, value, diagonal=True)
    torch.testing.assert_close(result, attention.causal(query, key, value))
    assert weight.shape == (2, 3, 7, 1)


def attention_over_ranks(rank, size, kind):
    """Values and gradients of both forms, against the attention of the whole sequence."""
    device = pick_device(kind, rank)
    inputs = heads(2, 3, 5 * size, 4)
    plain = [part.clone().requires_grad_() for part in inputs]
    expected = attention.causal(*plain)
    factors = heads(2, 3, 5 * size, 4, seed=4)[0]
    gradients = torch.autograd.grad((expected * factors).sum(), plain)

    def mine(tensor):
        return tensor.detach().chunk(size, dim=2)[rank].to(device)

    for form in attention.FORMS:
        parts = [mine(part).requires_grad_() for part in inputs]
        result = attention.over(dist.group.WORLD, form)(*parts)
        torch.testing.assert_close(result, mine(expected))
        (result * mine(factors)).sum().backward()
        for part, gradient in zip(parts, gradients):
            torch.testing.assert_close(part.grad, mine(gradient), msg=lambda text: f"{form}: {text}")


@pytest.mark.parametrize("ranks", [3, pytest.param(2, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.slow)])
def test_attention_over_ranks_is_that_of_the_whole_sequence(device, ranks):
    run_ranks(attention_over_ranks, ranks, device)


# ---------------------------------------------------------------------------------------------------------- experts


def test_the_weights_of_a_tokens_experts():
    logits = torch.tensor([[[0.0, 3.0, 1.0, 2.0]]])
    weights, chosen = experts.route(logits, top=1)
    assert chosen.tolist() == [[[1]]]
    torch.testing.assert_close(weights[0, 0, 0], logits.softmax(-1)[0, 0, 1])
    weights, chosen = experts.route(logits, top=2)
    assert chosen.tolist() == [[[1, 3]]]
    torch.testing.assert_close(weights[0, 0], torch.tensor([3.0, 2.0]).softmax(0))


def test_an_expert_takes_the_earliest_tokens_of_each_sequence():
    chosen = torch.tensor([[[0], [0], [1], [0]], [[1], [1], [1], [0]]])
    kept = experts.within_capacity(chosen, experts=2, capacity=2)
    assert kept.squeeze(-1).tolist() == [[True, True, True, False], [True, True, False, True]]


def test_a_sequence_in_two_parts_has_the_same_room_as_the_whole():
    chosen = torch.randint(4, (3, 10, 2), generator=torch.Generator().manual_seed(5))
    expected = experts.within_capacity(chosen, 4, capacity=3)
    before = experts.one_hot(chosen[:, :6].flatten(1), 4).sum(dim=1)
    parts = (experts.within_capacity(chosen[:, :6], 4, 3), experts.within_capacity(chosen[:, 6:], 4, 3, before))
    assert torch.equal(torch.cat(parts, dim=1), expected)
    assert not expected.all()


def test_experts_compute_what_each_token_would_alone():
    block = whole(TINY, Mixture(4, top=2), seed=0).blocks["0"].mlp
    x = torch.randn(2, 5, TINY.width, generator=torch.Generator().manual_seed(6))
    weights, chosen = experts.route(block.router(x), 2)
    bank = block.bank
    for row in range(2):
        for token in range(5):
            expected = sum(w * (F.gelu(x[row, token] @ bank.expand[e]) @ bank.contract[e])
                           for w, e in zip(weights[row, token], chosen[row, token]))
            torch.testing.assert_close(block(x)[row, token], expected)


def test_a_token_without_room_is_passed_by():
    block = whole(TINY, Mixture(4, top=1, capacity=0.5), seed=0).blocks["0"].mlp
    x = torch.randn(1, 1, TINY.width, generator=torch.Generator().manual_seed(7)).expand(1, 8, TINY.width)
    found = block(x)  # the same token eight times: one expert, which has room for one
    assert found[0, 0].abs().sum() > 0 and (found[0, 1:] == 0).all()


def gradient_of_idle_experts(rank, size, listener):
    bank = whole(TINY, Mixture(4), seed=0).blocks["0"].mlp.bank
    bank(torch.ones(3, TINY.width), torch.tensor([0, 3, 0, 0])).sum().backward()
    assert (bank.expand.grad[0] == 0).all() and (bank.expand.grad[1] != 0).any()


def test_an_expert_without_tokens_has_a_gradient_of_zero():
    # autograd begins threads, which must not be in the process that ranks are forked from
    run_ranks(gradient_of_idle_experts, 1, group=False)


# ---------------------------------------------------------------------------------------------------------- results


def result(losses=(2.0, 1.0), weight=1.0, gradient=1.0):
    return train_llm.Result(losses, {"w": torch.full((4,), weight)}, {"w": torch.full((4,), gradient)}, speed=1.0)


def test_a_difference_in_losses_weights_or_gradients_is_told():
    assert train_llm.compare(result(losses=(2.0, 1.00001)), result())[1]
    assert not train_llm.compare(result(losses=(2.0, 1.1)), result())[1]
    assert not train_llm.compare(result(losses=(2.0005, 1.0005)), result())[1]  # the mean
    assert not train_llm.compare(result(weight=1.1), result())[1]
    assert not train_llm.compare(result(gradient=0.5), result())[1]


# ------------------------------------------------------------------------------------------- layouts, in forked ranks


class Notes:
    """A report that keeps what is said."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)

    def bar(self, first, steps):
        return contextlib.nullcontext()

    def step(self, done, steps, loss, per_second):
        pass

    def table(self, rows):
        self.said.append(str(rows))


def member(rank, size, kind, folder, runs):
    """Makes the runs one after the other, each a list of options; what rank 0 said."""
    device = pick_device(kind, rank)
    os.chdir(folder)
    notes = Notes()
    for options in runs:
        args = train_llm.parse(["--size", "tiny", "--steps", "4", "--device", kind, *options.split()])
        wrong = train_llm.run(args, Ranks(rank, size, device), notes)
        assert not wrong, wrong
    return notes.said


def on(ranks, kind, folder, *runs):
    return run_ranks(member, ranks, kind, str(folder), runs, timeout=120)[0]


LAYOUTS = [
    "--layout dp2 --data fsdp2",
    "--layout tp2",
    "--layout pp2 --schedule interleaved",
    "--layout cp2 --experts 4 --capacity 1",
    "--layout ep2 --experts 4",
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_train_as_one_process_does(sim, tmp_path, layout):
    on(2, sim, tmp_path, f"{layout} --verify-single")
    assert (tmp_path / "train_llm.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_goes_on_in_another_layout(sim, tmp_path):
    said = on(2, sim, tmp_path, "--layout pp2 --checkpoint saved --stop-after 2",
              "--layout dp2 --checkpoint saved --resume --verify-single")
    assert "resumed at step 2 from saved/step-000002" in said
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["latest", "step-000002", "step-000004"]


MORE = [(2, f"--layout pp2 --schedule {schedule}") for schedule in pipeline.SCHEDULES] + [
    (2, "--layout dp2"),
    (2, "--layout cp2 --context allgather"),
    (2, "--layout ep2 --experts 4 --top 1 --capacity 1.0"),
    (4, "--layout replicate2,dp2 --data fsdp2"),
    (4, "--layout pp2,dp2 --data fsdp2 --schedule zero-bubble"),
    (4, "--layout pp2,dp2 --schedule interleaved"),
    (4, "--layout pp2,cp2 --schedule zero-bubble"),
    (4, "--layout pp2,ep2 --experts 4 --schedule zero-bubble"),
    (4, "--layout dp2,cp2"),
    (4, "--layout dp2,tp2"),
    (4, "--layout dp2,ep2 --experts 4"),
    (4, "--layout dp2,ep2 --experts 4 --data fsdp2"),
    (4, "--layout cp2,ep2 --experts 4 --capacity 1.0"),
    (4, "--layout cp2,tp2 --context allgather"),
    (4, "--layout ep2,tp2 --experts 4 --capacity 1.0"),
    (8, "--layout pp2,dp2,tp2 --data ddp"),
    (8, "--layout dp2,cp2,ep2 --experts 4 --data fsdp2"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("ranks, layout", [(2, layout) for layout in LAYOUTS] + MORE)
def test_every_layout_trains_as_one_process_does(device, tmp_path, ranks, layout):
    on(ranks, device, tmp_path, f"{layout} --verify-single")


@pytest.mark.slow
def test_eight_ranks_in_three_dimensions_go_on_elsewhere_and_generate(device, tmp_path):
    """Each run takes up what the one before left; all of them together are one training."""
    saved = "--checkpoint saved --steps 12"
    on(8, device, tmp_path, f"--layout pp2,dp2,tp2 --data fsdp2 {saved} --stop-after 3")
    on(4, device, tmp_path, f"--layout cp2,tp2 {saved} --resume --stop-after 6")
    on(2, device, tmp_path, f"--layout pp2 --schedule zero-bubble {saved} --resume --stop-after 9")
    said = on(3, device, tmp_path, f"--layout dp3 --batch 24 {saved} --resume --stop-after 9",
              f"--layout pp3 {saved} --batch 12 --resume --stop-after 9")
    assert said.count("resumed at step 9 from saved/step-000009") == 2
    on(8, device, tmp_path, f"--layout pp2,dp2,tp2 {saved} --resume --verify-single")
    generated = f"{saved} --generate The --bytes 20 --layout"
    texts = {on(ranks, device, tmp_path, f"{generated} tp{ranks}")[-1] for ranks in (1, 2, 4)}
    assert len(texts) == 1 and texts.pop().startswith("The")


@pytest.mark.slow
def test_experts_move_between_layouts(device, tmp_path):
    saved = "--experts 4 --checkpoint saved"
    on(4, device, tmp_path, f"--layout dp2,ep2 --data fsdp2 {saved} --stop-after 2")
    on(4, device, tmp_path, f"--layout pp2,ep2 {saved} --resume --stop-after 3")
    on(1, device, tmp_path, f"{saved} --resume --verify-single")


# ----------------------------------------------------------------------------------------------- the program itself


def torchrun(folder, ranks, options):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
               str(EXAMPLES / "train_llm.py"), "--size", "tiny", *options.split()]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"})


@pytest.mark.slow
def test_the_program_trains_and_generates(device, tmp_path):
    done = torchrun(tmp_path, 2, f"--device {device} --layout tp2 --verify-single --checkpoint saved")
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"tp2 (2 x {device}), backend hccl-like" in done.stdout and "against one process" in done.stdout
    assert (tmp_path / "train_llm.png").read_bytes().startswith(b"\x89PNG")
    done = torchrun(tmp_path, 2, f"--device {device} --layout tp2 --checkpoint saved --generate The --bytes 8")
    assert done.returncode == 0 and "\nThe" in done.stdout, done.stderr[-3000:]


@pytest.mark.slow
def test_a_difference_is_an_exit_code(tmp_path):
    done = torchrun(tmp_path, 2, "--device cpu --layout dp3")
    assert done.returncode == 1 and "these are 3 ranks, but the job has 2" in done.stderr
