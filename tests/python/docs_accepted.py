"""Which of the command lines on standard input (JSON) their programs refuse: they run up to the end of the parsing of their arguments.

A command line is [-m, MODULE, ARGUMENT...] or [FILE, ARGUMENT...]; the answer is a JSON list of "" or what the program says.
"""

import argparse
import contextlib
import io
import json
import os
import runpy
import sys


class Accepted(BaseException):
    """Ends a program whose arguments are right."""


_parse_args, _parse_known_args = argparse.ArgumentParser.parse_args, argparse.ArgumentParser.parse_known_args
_inside = []  # parse_args calls parse_known_args, and then refuses what is unknown


def _parse(self, args=None, namespace=None):
    _inside.append(self)
    try:
        result = _parse_args(self, args, namespace)
    finally:
        _inside.pop()
    if self.prog != "hccl-like":  # which hands the rest on to its command
        raise Accepted
    return result


def _parse_known(self, args=None, namespace=None):
    result = _parse_known_args(self, args, namespace)
    if self not in _inside:
        raise Accepted
    return result


def refusal(line: list[str]) -> str:
    """What the program says, or ""."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            if line[0] == "-m":
                sys.argv = line[1:]
                runpy.run_module(line[1], run_name="__main__", alter_sys=True)
            else:
                sys.argv = line
                sys.path.insert(0, os.path.dirname(os.path.abspath(line[0])))
                runpy.run_path(line[0], run_name="__main__")
    except Accepted:
        return ""
    except SystemExit as end:
        return "" if end.code == 0 else told.getvalue() or f"it ends with {end.code}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "it looks at no arguments"


if __name__ == "__main__":
    argparse.ArgumentParser.parse_args, argparse.ArgumentParser.parse_known_args = _parse, _parse_known
    lines = json.load(open(sys.argv[1]))
    json.dump([refusal(line) for line in lines], sys.stdout)
