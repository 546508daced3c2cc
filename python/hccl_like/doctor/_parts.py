"""The parts that must fit together in a process: versions, the backend, plugins, transports, settings."""

from __future__ import annotations

import os

from hccl_like.doctor._findings import Findings


def examine(findings: Findings) -> bool:
    """Adds what there is to say; whether the backend can be used."""
    import hccl_like
    from hccl_like import _extension, _plugins

    if hccl_like._autoload_error is not None:
        error = hccl_like._autoload_error
        findings.problems.append(f"torch could not be told about the backend: {type(error).__name__}: {error}")
    try:
        _extension.load()
    except ImportError as error:
        findings.problems.append(str(error))
    usable = not findings.problems
    findings.add("versions", list(hccl_like.version().items()))
    findings.add("backend", list(_backend(usable)))
    plugins = [(name, path, _told(_plugins.properties(name))) for name, path in hccl_like.plugins().items()]
    findings.add("device plugins", plugins, ("device", "library", "properties"))
    findings.add("transports", list(hccl_like.transports().items()), ("name", "library"))
    if not usable:
        return False
    try:
        settings = hccl_like.settings()
    except RuntimeError as error:
        findings.problems.append(str(error))
        return False
    changed = [(name, value, default) for name, value, default, _ in settings if value != default]
    findings.add("settings that are not the default", changed, ("setting", "value", "default"))
    return True


def _backend(usable: bool):
    """(what, how it is) of the parts that work together in this process."""
    import torch

    from hccl_like import _accelerator, _extension, _registration

    yield "registered", "as " + _registration.NAME if usable and _registration.is_registered() else f"no; {_why_not_registered()}"
    yield "accelerator", _registration.accelerator_name() or "none: CPU tensors only"
    if _accelerator.is_available():
        yield "accelerators here", str(_accelerator.device_count())
    if usable:
        extension = _extension.load()
        yield "extension", extension.__file__
        yield "reductions use", extension.reduction_target()
    yield "cores", str(len(os.sched_getaffinity(0)))


def _why_not_registered() -> str:
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading backends; hccl_like.register() makes it known"
    return "torch finds it once hccl-like is installed with pip"


def _told(properties: dict[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in properties.items())
