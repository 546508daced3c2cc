"""Packages that bring a device only when they are imported, for commands that look at one: ``--import MODULE``.

The command and every process that it starts import them at the end of ``import torch``, when torch would load them itself if they
had an entry point of the group ``torch.backends``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys

_MODULES = "_HCCL_LIKE_IMPORT"  # for the processes of a command


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds ``--import``, which may be repeated."""
    parser.add_argument(
        "--import",
        action="append",
        default=[],
        dest="imports",
        metavar="MODULE",
        type=_module,
        help="the package that brings the device, if torch does not load it by itself; may be repeated",
    )


def apply(options: argparse.Namespace) -> None:
    """In the command, once its options are known."""
    if options.imports:
        os.environ[_MODULES] = os.pathsep.join(options.imports)
        if "hccl_like._registration" in sys.modules:  # torch and its entry points are there already
            after_torch()


def ready() -> None:
    """In a process of a command: the backend is registered and those modules are there, also where TORCH_DEVICE_BACKEND_AUTOLOAD=0
    keeps torch from loading what it finds. Harmless when called again."""
    import torch  # noqa: F401 - before _registration, which torch's own entry points import

    from hccl_like import _registration

    _registration.register()
    after_torch()


def after_torch() -> None:
    """At the end of ``import torch``: what the command that started this process was told to import."""
    for module in filter(None, os.environ.get(_MODULES, "").split(os.pathsep)):
        importlib.import_module(module)


def _module(name: str) -> str:
    try:
        found = importlib.util.find_spec(name.partition(".")[0])
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{name}' is no name of a module") from error
    if found is None:
        raise argparse.ArgumentTypeError(f"there is no module '{name}' on the path (PYTHONPATH)")
    return name
