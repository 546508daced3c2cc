"""hccl_like.integrations.torchtitan: torchtitan's debug model, sharded by FSDP2 and by tensor
parallelism.
"""

import importlib
import os
from dataclasses import dataclass

import pytest
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from integrations import calls, launched, needs
from ranks import RankFailed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sim")]
BATCH, LENGTH, STEPS, WORDS = 2, 32, 3, 2048


@pytest.fixture(autouse=True)
def torchtitan():
    needs("torchtitan")


def made_in_code():
    """Parts of a configuration that read nothing from files: random tokens and no tokenizer."""
    from torchtitan.components.dataloader import BaseDataLoader
    from torchtitan.components.tokenizer import BaseTokenizer

    class Tokenizer(BaseTokenizer):
        @dataclass(kw_only=True, slots=True)
        class Config(BaseTokenizer.Config):
            pass

        def __init__(self, config, **_):
            super().__init__()

        encode = decode = get_vocab_size = None

    class Tokens(BaseDataLoader):
        @dataclass(kw_only=True, slots=True)
        class Config(BaseDataLoader.Config):
            pass

        def __init__(self, config, *, dp_rank, local_batch_size, **_):
            self.rows = slice(dp_rank * local_batch_size, (dp_rank + 1) * local_batch_size)

        def __iter__(self):
            for step in range(STEPS):
                words = torch.Generator().manual_seed(step)
                text = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=words)[self.rows]
                places = torch.arange(LENGTH).repeat(len(text), 1)
                yield {"input": text[:, :-1], "positions": places}, text[:, 1:]

        def state_dict(self):
            return {}

        load_state_dict = None

    return Tokenizer.Config(), Tokens.Config()


def fill(parameters):
    """The same weights however they are sharded."""
    for number, parameter in enumerate(parameters):
        whole = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)) / 50
        whole = (whole + (parameter.dim() == 1)).to(parameter.device)
        if isinstance(parameter, DTensor):
            whole = distribute_tensor(whole, parameter.device_mesh, parameter.placements)
        parameter.data.copy_(whole)


def trains(with_line, folder, tensor_parallel=1):
    if with_line:
        importlib.import_module("hccl_like.integrations.torchtitan")
    from torchtitan.config.configs import ParallelismConfig, TrainingConfig
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    data_parallel = int(os.environ["WORLD_SIZE"]) // tensor_parallel
    config = llama3_debugmodel()
    config.tokenizer, config.dataloader = made_in_code()
    config.dump_folder = str(folder)
    config.debug.seed = 1
    config.training = TrainingConfig(
        local_batch_size=BATCH // data_parallel,
        seq_len=LENGTH,
        steps=STEPS,
        mixed_precision_param="float32",
    )
    config.parallelism = ParallelismConfig(
        spmd_backend="partial_dtensor", tensor_parallel_degree=tensor_parallel
    )
    for group in config.optimizer.param_groups:  # else AdamW makes large steps of rounding errors
        group.optimizer_kwargs["eps"] = 1e-3
    trainer = config.build()
    parameters = [parameter for part in trainer.model_parts for parameter in part.parameters()]
    fill(parameters)
    trainer.train()
    trainer.close()
    whole = [one.full_tensor() if isinstance(one, DTensor) else one for one in parameters]
    return [one.detach().cpu() for one in whole], str(trainer.device), calls()


@pytest.mark.parametrize(
    "tensor_parallel, used",
    [(1, "_reduce_scatter_base"), (2, "reduce_scatter_tensor_coalesced")],
    ids=["fsdp2", "tensor parallel"],
)
def test_ranks_train_the_debug_model(tmp_path, tensor_parallel, used):
    ((expected, _, _), _), = launched(trains, True, tmp_path, ranks=1, timeout=300)
    results = launched(trains, True, tmp_path, tensor_parallel, timeout=300)
    for rank, ((got, device, made), told) in enumerate(results):
        assert device == f"sim:{rank}" and made[used] > 0 and told == [], (device, made, told)
        for one, first, alone in zip(got, results[0][0][0], expected, strict=True):
            assert torch.equal(one, first)
            torch.testing.assert_close(one, alone, rtol=0, atol=1e-6)


def test_without_the_line_inductor_has_no_code_for_the_attention(tmp_path):
    with pytest.raises(RankFailed, match=r"create_attention_mask[\s\S]*InductorError"):
        launched(trains, False, tmp_path, timeout=300)
