"""examples/train_digits.py: that its batches do not depend on the ranks, and the whole job itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

pytest.importorskip("sklearn")
import train_digits  # noqa: E402
from digits import data  # noqa: E402
from digits.checkpoint import Checkpoints, Progress  # noqa: E402
from digits.model import VisionTransformer  # noqa: E402
from ranks import run_ranks  # noqa: E402


def test_the_split_holds_a_fifth_out_and_knows_every_digit():
    digits = data.load()
    assert len(digits.train_labels) == data.TRAINED_ON and len(digits.test_labels) == data.HELD_OUT
    assert digits.train_images.shape[1:] == (8, 8)
    assert digits.test_labels.unique().tolist() == list(range(10))
    assert digits.train_images.min() == -1 and digits.train_images.max() == 1


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_the_slices_of_all_ranks_are_the_global_batch(world):
    batch = data.Sampler(data.TRAINED_ON, 96, seed=3).indices(20)
    assert torch.equal(torch.cat([data.slice_of(batch, rank, world) for rank in range(world)]), batch)


def test_a_sampler_that_begins_in_the_middle_goes_on_as_the_first_would_have():
    first, second = (data.Sampler(data.TRAINED_ON, 96, seed=5) for _ in range(2))
    batches = [first.indices(step) for step in range(40)]
    assert torch.equal(second.indices(37), batches[37])
    assert torch.equal(second.indices(2), batches[2])


def test_an_epoch_shows_no_image_twice_and_the_next_one_is_shuffled_anew():
    sampler = data.Sampler(data.TRAINED_ON, 96, seed=0)
    assert sampler.steps_per_epoch == 14
    epochs = [torch.cat([sampler.indices(14 * epoch + step) for step in range(14)]) for epoch in (0, 1)]
    assert len(epochs[0].unique()) == 14 * 96
    assert not torch.equal(epochs[0], epochs[1])


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="take 1..1437"):
        data.Sampler(1437, 2000, seed=0)


def test_moves_shift_an_image_by_a_pixel_and_fill_with_background():
    image = torch.arange(64.0).view(1, 8, 8)
    for which, (rows, columns) in enumerate(data.MOVES.tolist()):
        moved = data.move(image, torch.tensor([which]))[0]
        assert moved[3, 3] == image[0, 3 + rows, 3 + columns]
        assert (moved == -1).sum() == 8 * (abs(rows) + abs(columns))


def test_the_model_gives_ten_logits():
    assert VisionTransformer()(torch.zeros(3, 8, 8)).shape == (3, 10)


def test_histories_are_compared_by_step_and_by_mean():
    told, good = train_digits.compare([1.0, 0.5], [1.0, 0.5004], "float32")
    assert not good and "at step 2" in told  # each step is near, but the mean difference is 2e-4
    assert train_digits.compare([1.0, 0.5], [1.0, 0.50004], "float32")[1]
    assert not train_digits.compare([1.0, 0.5], [1.2, 0.3], "bfloat16")[1]


def test_the_learning_rate_warms_up_and_ends_at_zero():
    assert train_digits.learning_rate(0, 400) == pytest.approx(train_digits.LEARNING_RATE / train_digits.WARM_UP)
    assert train_digits.learning_rate(400, 400) == pytest.approx(0)


def checkpoint_comes_back(rank, size, listener, folder, asynchronous):
    def fresh(seed):
        torch.manual_seed(seed)
        model = VisionTransformer(width=8, depth=1, heads=2)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(4, 8, 8)).sum().backward()
        optimizer.step()
        return model, optimizer

    model, optimizer = fresh(1)
    progress = Progress(7, [2.5, 2.25], {7: 0.5}, torch.Generator().manual_seed(9))
    checkpoints = Checkpoints(folder, asynchronous)
    checkpoints.save(model, optimizer, progress)
    checkpoints.finish()

    other, other_optimizer = fresh(2)
    found = Progress()
    Checkpoints(folder).load(other, other_optimizer, found)
    assert (found.step, found.losses, found.accuracies) == (7, [2.5, 2.25], {7: 0.5})
    assert torch.equal(found.rng.get_state(), progress.rng.get_state())
    for mine, theirs in zip(model.parameters(), other.parameters()):
        assert torch.equal(mine, theirs)
        assert torch.equal(optimizer.state[mine]["exp_avg"], other_optimizer.state[theirs]["exp_avg"])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_checkpoint_brings_everything_back(tmp_path, asynchronous):
    # A checkpoint begins to use the accelerator, if there is one: not in the process that later tests fork their ranks from.
    run_ranks(checkpoint_comes_back, 1, str(tmp_path), asynchronous, group=False)


def test_resuming_from_nothing_says_what_to_do(tmp_path):
    with pytest.raises(SystemExit, match="Train with --checkpoint"):
        Checkpoints(str(tmp_path)).latest()


# The whole job. Where our backend is not installed, gloo shows at least that the example itself is right.
def ways():
    if not dist.is_backend_available("hccl-like"):
        return [("gloo", "cpu")]
    sim = getattr(torch, "sim", None)
    return [("hccl-like", "cpu")] + ([("hccl-like", "sim")] if sim is not None and sim.is_available() else [])


def train(folder, ranks, *arguments):
    """Runs the example on so many ranks; 0 means one process without torchrun."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks else []
    command = [sys.executable, *launcher, str(EXAMPLES / "train_digits.py"), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def losses(path):
    return json.loads(path.read_text())["losses"]


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """The losses of one process on the host, which everybody's must agree with."""
    folder = tmp_path_factory.mktemp("single")
    train(folder, 0, "--parallel", "none", "--device", "cpu", "--history", "losses.json")
    return folder / "losses.json"


@pytest.mark.slow
@pytest.mark.parametrize("backend, device", ways())
@pytest.mark.parametrize("parallel", ["ddp", "fsdp2"])
def test_two_ranks_learn_the_digits_as_one_process_does(tmp_path, single, parallel, backend, device):
    told = train(tmp_path, 2, "--parallel", parallel, "--backend", backend, "--device", device, "--compare", single,
                 "--history", "losses.json")
    assert f"2 x {device}, backend {backend}" in told
    assert float(told.split("held-out accuracy")[1].split()[1]) >= 97
    found = losses(tmp_path / "losses.json")
    assert len(found) == 30 * 14
    assert 2.0 < found[0] < 2.8 and sum(found[-14:]) / 14 < 0.1
    assert (tmp_path / "train_digits.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("backend, device", ways())
def test_a_run_repeats_itself_and_goes_on_after_a_stop_bit_for_bit(tmp_path, backend, device):
    where = ("--backend", backend, "--device", device, "--parallel", "ddp")
    train(tmp_path, 2, *where, "--stop-after", 60, "--history", "whole.json")
    train(tmp_path, 2, *where, "--stop-after", 35, "--save-every", 20, "--checkpoint", "saved",
          "--history", "half.json")
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["latest", "step-000020", "step-000035"]
    train(tmp_path, 2, *where, "--stop-after", 60, "--checkpoint", "saved", "--resume", "--history", "resumed.json")
    whole = losses(tmp_path / "whole.json")
    assert losses(tmp_path / "half.json") == whole[:35]
    assert losses(tmp_path / "resumed.json") == whole


@pytest.mark.slow
@pytest.mark.parametrize("backend, device", ways())
def test_a_sharded_run_is_resumed_on_three_ranks_and_on_one(tmp_path, single, backend, device):
    where = ("--backend", backend, "--device", device, "--checkpoint", "saved")
    train(tmp_path, 2, *where, "--parallel", "fsdp2", "--stop-after", 35, "--async-checkpoint", "--save-every", 20)
    for ranks, parallel in ((3, "ddp"), (0, "none")):
        told = train(tmp_path, ranks, *where, "--parallel", parallel, "--resume", "--stop-after", 60,
                     "--compare", single, "--history", "resumed.json")
        assert "resumed at step 35 from saved/step-000035" in told
        assert len(losses(tmp_path / "resumed.json")) == 60
        (tmp_path / "saved" / "latest").write_text("step-000035\n")  # the second begins where the first did
