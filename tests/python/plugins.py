"""Ranks whose simulator has a plugin that can do less: stripped_plugin.c, by the fixture `stripped`."""

import torch.distributed as dist

from ranks import make_store, run_ranks


def _with_plugin(rank, size, listener, library, case, *arguments):
    from hccl_like import _plugins

    _plugins.found = lambda: {"sim": library} if library else {}
    dist.init_process_group("hccl-like", store=make_store(rank, listener), rank=rank, world_size=size)
    result = case(rank, size, *arguments)
    dist.destroy_process_group()
    return result


def run(case, size, library, without, *arguments, environment=None, timeout=60):
    """case(rank, size, *arguments) with the plugin `library` (None: with none), `without` what stripped_plugin.c calls so."""
    from hccl_like import _plugins

    environment = {"PLUGIN": _plugins.found()["sim"], "WITHOUT": without} | (environment or {})
    return run_ranks(
        _with_plugin, size, library, case, *arguments, group=False, environment=environment, timeout=timeout
    )
