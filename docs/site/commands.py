#!/usr/bin/env python3
"""Prints docs/commands.md, made from the parsers of the commands.

    python docs/site/commands.py > docs/commands.md
"""

import argparse
import re
import sys

from hccl_like import cli

HEAD = """# Commands

`hccl-like COMMAND --help` says the same. The exit code is 0 if all is well, and not 0 if the command found something wrong or could not be
carried out; the pages of the commands list their codes.

This page is made from the commands' parsers: `python docs/site/commands.py > docs/commands.md`.
"""
# Pages that say more.
PAGES = {"demo": "quick-start.md", "info": "diagnosis.md#is-everything-in-order", "doctor": "diagnosis.md#is-everything-in-order", "hang": "hang.md",
         "trace": "trace.md", "top": "top.md", "ps": "top.md", "settings": "settings.md", "compat": "torch-compat.md", "explain": "concepts.md",
         "topology": "topology.md", "fwports": "networks.md", "tune": "topology.md#a-profile-instead-of-a-model", "bench": "bench.md",
         "verify": "determinism.md", "new-plugin": "plugin-guide.md", "contract": "plugin-guide.md"}  # fmt: skip


class Found(BaseException):
    """Carries the parser of a command."""


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser that a command makes, caught when it begins to parse."""
    parse_known_args = argparse.ArgumentParser.parse_known_args

    def catch(self, args=None, namespace=None):
        if self.prog == "hccl-like":  # which hands the rest on to its command
            return parse_known_args(self, args, namespace)
        raise Found(self)

    argparse.ArgumentParser.parse_known_args = catch
    try:
        cli.main([command])
    except Found as found:
        return found.args[0]
    finally:
        argparse.ArgumentParser.parse_known_args = parse_known_args
    raise RuntimeError(f"hccl-like {command} parses nothing")


def cell(text: str) -> str:
    """Text for a table: a bar would end the cell, and angle brackets are no HTML."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|").replace("<", "&lt;")


def argument(action: argparse.Action) -> str:
    """How an argument is written."""
    value = cell(str(action.metavar or (action.dest.upper() if action.option_strings else action.dest)))
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{option}`" if action.nargs == 0 else f"`{option} {value}`" for option in action.option_strings)


def section(command: str) -> str:
    """What the page says of one command."""
    parser = parser_of(command)
    formatter = parser._get_formatter()
    lines = [f"\n## hccl-like {command}\n", cell(parser.description or cli._summary(cli._COMMANDS[command])) + "\n"]
    rows = [(argument(action), cell(formatter._expand_help(action)) if action.help else "")
            for action in parser._actions if action.dest != "help" and action.help != argparse.SUPPRESS]
    if rows:
        lines += ["| argument | what it does |", "| --- | --- |", *(f"| {name} | {what} |" for name, what in rows), ""]
    if parser.epilog:
        lines.append(cell(parser.epilog).replace("\\|", "|") + "\n")
    lines.append(f"More: [{PAGES[command].split('#')[0]}]({PAGES[command]})")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    rows = "\n".join(f"| [`{name}`](#hccl-like-{name}) | {cell(cli._summary(run))} |" for name, run in cli._COMMANDS.items())
    return f"{HEAD}\n| command | what it does |\n| --- | --- |\n{rows}\n" + "".join(map(section, cli._COMMANDS))


if __name__ == "__main__":
    sys.stdout.write(page())
