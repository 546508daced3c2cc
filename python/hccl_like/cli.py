"""The command ``hccl-like``.

Every command is a function that takes its arguments and returns the exit code. torch is imported only by those that need
it, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from hccl_like import _local_ranks, _tables


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="hccl-like",
        description="Collective communication for PyTorch on any accelerator.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n" + "\n".join(f"  {name:<12}{_summary(run)}" for name, run in _COMMANDS.items())
        + "\n\nhccl-like COMMAND --help tells a command's options.",
    )
    parser.add_argument("--version", action="version", version=f"hccl-like {_version()}")
    parser.add_argument("command", choices=_COMMANDS, metavar="COMMAND", help="one of those below")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its options")
    if not argv:
        parser.print_help()
        return 2
    parsed = parser.parse_args(argv)
    try:
        code = _COMMANDS[parsed.command](parsed.arguments)
        sys.stdout.flush()
        return code
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("torch is not installed: pip install 'torch>=2.11'", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `hccl-like settings | head` is no error
        _local_ranks.silence()
        return 0


def _version() -> str:
    try:
        from hccl_like._version import VERSION
    except ImportError:
        return "(not built)"
    return VERSION


def demo(argv: list[str]) -> int:
    """a first all_reduce between processes of this machine"""
    from hccl_like import demo

    return demo.main(argv)


def info(argv: list[str]) -> int:
    """versions, devices, and what keeps the backend from being used, if anything does"""
    parser = argparse.ArgumentParser(
        prog="hccl-like info", description="Says " + _summary(info) + ".",
        epilog="For a report: hccl-like info --json. The exit code is 0 if the backend can be used, else 1.",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as JSON on standard output, and no tables")
    as_json = parser.parse_args(argv).json
    from hccl_like.doctor import _findings, _parts

    findings = _findings.Findings()
    _parts.examine(findings)
    if as_json:
        print(json.dumps(findings.to_json(), indent=1))
    else:
        findings.show()
    for problem in findings.problems:
        print(f"cannot be used: {problem}", file=sys.stderr)
    return 1 if findings.problems else 0


def doctor(argv: list[str]) -> int:
    """examines versions, devices and this host, and lets two ranks try it"""
    from hccl_like import doctor

    return doctor.main(argv)


def hang(argv: list[str]) -> int:
    """who keeps a job waiting, from its flight-recorder dumps or from its processes on this host"""
    from hccl_like import hang

    return hang.main(argv)


def top(argv: list[str]) -> int:
    """what a running job of this host does now: rates, calls in flight, who waits for whom"""
    from hccl_like import top

    return top.main(argv)


def ps(argv: list[str]) -> int:
    """the jobs of this host that use hccl-like"""
    from hccl_like import top

    return top.ps(argv)


def trace(argv: list[str]) -> int:
    """merges the ranks' flight-recorder dumps and profiles into one picture on one clock"""
    from hccl_like import trace

    return trace.main(argv)


def settings(argv: list[str]) -> int:
    """every setting, its value now, its default and what it does"""
    _parse("settings", settings, argv)
    import hccl_like

    try:
        rows = hccl_like.settings()
    except ModuleNotFoundError:
        raise  # main() says what to install
    except (ImportError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    _tables.show("settings", ("setting", "value", "default", "what it does"), rows)
    return 0


def compat(argv: list[str]) -> int:
    """what is mended in torch's own Python, and what is not and why"""
    parser = argparse.ArgumentParser(
        prog="hccl-like compat",
        description="What hccl-like mends in torch's own Python, in a process that has imported torch. A patch waits until "
        "torch imports the module it is about.",
        epilog="HCCL_LIKE_TORCH_COMPAT=0 leaves torch as it is, HCCL_LIKE_TORCH_COMPAT=NAME,NAME leaves those out.",
    )
    parser.add_argument("--load", action="store_true", help="import those modules, to see whether every patch applies")
    load = parser.parse_args(argv).load
    from hccl_like import torch_compat

    if load:
        torch_compat.load()
    rows = torch_compat.listing()
    _tables.show("patches of torch's Python", ("patch", "state", "torch", "without it"), rows)
    return 1 if any(state.startswith("failed") for _, state, *_ in rows) else 0


def topology(argv: list[str]) -> int:
    """what this host, or the hosts of a job, are made of"""
    from hccl_like import topology

    return topology.main(argv)


def tune(argv: list[str]) -> int:
    """measures the algorithms on the ranks of a job and writes a profile"""
    from hccl_like import tune

    return tune.main(argv)


def bench(argv: list[str]) -> int:
    """measures a collective as nccl-tests does, and holds it against an earlier run"""
    from hccl_like import bench

    return bench.main(argv)


def fwports(argv: list[str]) -> int:
    """the firewall rules that the hosts of a job need"""
    from hccl_like import fwports

    return fwports.main(argv)


def verify(argv: list[str]) -> int:
    """whether reductions have the same bits on every path, as HCCL_LIKE_DETERMINISTIC=1 promises"""
    from hccl_like import verify

    return verify.main(argv)


def explain(argv: list[str]) -> int:
    """how a collective would go: by which algorithm, or without one"""
    from hccl_like import explain

    return explain.main(argv)


def _parse(name: str, command: Callable, argv: list[str]) -> None:
    """For a command without options: answers --help, refuses the rest."""
    argparse.ArgumentParser(prog=f"hccl-like {name}", description=_summary(command)).parse_args(argv)


def new_plugin(argv: list[str]) -> int:
    """begins a package with a device plugin of your own, which builds and keeps the contract"""
    from hccl_like.sdk import _template

    return _template.main(argv)


def contract(argv: list[str]) -> int:
    """puts a device plugin to the tests that every plugin must pass"""
    from hccl_like.sdk import _contract

    return _contract.main(argv)


def _summary(command: Callable) -> str:
    return (command.__doc__ or "").splitlines()[0]


_COMMANDS = {"demo": demo, "info": info, "doctor": doctor, "hang": hang, "trace": trace, "top": top, "ps": ps, "settings": settings,
             "compat": compat, "explain": explain, "topology": topology, "fwports": fwports, "tune": tune, "bench": bench, "verify": verify,
             "new-plugin": new_plugin, "contract": contract}


if __name__ == "__main__":
    sys.exit(main())
