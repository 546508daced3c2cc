"""The shell commands, Python snippets and names that the pages of the documentation show."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", ROOT / "bench" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.M | re.S)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_PROGRAM = re.compile(r"(?!.*\[HCCL-LIKE-)(\w+=\S+ +)*(hccl-like +[a-z-]|(?:python3?|torchrun|mpirun|srun|ctest|cmake|pytest|pip|chrt|accelerate) |scripts/\w+\.sh\b)")
# What stands for something that the reader puts in.
_PLACEHOLDERS = {
    "COLLECTIVE": "all_reduce", "JOB": "job", "JOB|PID": "job", "PID": "1", "FILE": "file", "DIR": "dir", "N": "2", "DEVICE": "cpu", "HOST": "host",
    "MODULE": "module", "BACKEND": "gloo", "SEED": "1", "RESULTS": "results", "FOLDER": "folder", "RANKS": "2", "CHECKOUT": "checkout",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Command:
    """One program with its arguments, as a page shows it."""

    page: str
    line: int
    variables: tuple[str, ...]  # NAME=VALUE in front of it
    words: tuple[str, ...]
    whole: bool  # of a block, not a name in a sentence

    def __str__(self) -> str:
        return " ".join([*self.variables, *self.words])

    @property
    def where(self) -> str:
        """The page and line, for messages."""
        return f"{self.page}:{self.line}: {self}"


def snippets(languages: tuple[str, ...] = ("python", "py")) -> list[tuple[str, int, str]]:
    """The fenced blocks of Python: page, line, text. Those of a page that are ``python`` make one program, ``py`` is a part of another."""
    return [(page, line, text) for page, line, language, text in _blocks() if language in languages]


def commands() -> list[Command]:
    """Every command of a block or of a code span, each once a page."""
    found: dict[tuple[str, tuple[str, ...]], Command] = {}
    for page, line, text, shown in _lines():
        for command in _parsed(page, line, text, shown):
            found.setdefault((page, (*command.variables, *command.words)), command)
    return list(found.values())


def spans() -> list[tuple[str, int, str]]:
    """The code spans outside blocks: page, line, text."""
    found = []
    for path in PAGES:
        text = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), path.read_text(encoding="utf-8"))
        found += [(_name(path), text.count("\n", 0, span.start()) + 1, span[1]) for span in _SPAN.finditer(text)]
    return found


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _blocks() -> list[tuple[str, int, str, str]]:
    found = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        found += [(_name(path), text.count("\n", 0, block.start()) + 2, block[2], block[3]) for block in _FENCE.finditer(text)]
    return found


def _lines() -> list[tuple[str, int, str, bool]]:
    """What may be a command: page, line, text, and whether it is a whole one (a block's), not a name in a sentence."""
    found = []
    for page, first, language, text in _blocks():
        if language in ("sh", "console", ""):
            prompted = language == "console"
            joined = text.replace("\\\n", " \0")  # a command may go on in the next line
            line = first
            for each in joined.split("\n"):
                if (not prompted or each.startswith("$ ")) and (language or _PROGRAM.match(each)):
                    found.append((page, line, each.replace("\0", "").removeprefix("$ "), True))
                line += 1 + each.count("\0")
    for path in PAGES:
        text = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), path.read_text(encoding="utf-8"))
        lines = text.split("\n")
        console = False
        for number, each in enumerate(lines, start=1):
            indented = each.startswith("    ") and not each.startswith("     ")
            starts = indented and (lines[number - 2] == "" or lines[number - 2].startswith("    "))
            if indented and lines[number - 2] == "":
                console = each.strip().startswith("$ ")
            if starts and (not console or each.strip().startswith("$ ")) and _PROGRAM.match(each.strip().removeprefix("$ ")):
                found.append((_name(path), number, each.strip().removeprefix("$ "), True))
    found += [(page, line, text, False) for page, line, text in spans() if _PROGRAM.match(text)]
    return found


def _parsed(page: str, line: int, text: str, whole: bool) -> list[Command]:
    text = re.sub(r"\[(-[^\]]*)\]", r"\1", text)  # [--option VALUE]
    text = text.replace("[JOB|PID]", "JOB").replace("...", " ")
    text = re.sub(r"<\(.*?\)|\d?>&?\s*\S+", " ", text)
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise ValueError(f"{page}:{line}: {text}: {error}") from error
    found: list[Command] = []
    current: list[str] = []
    for word in [*words, "&&"]:
        if word not in ("&&", "||", "|", ";", "&"):
            option, equals, value = word.rpartition("=")
            current.append(option + equals + _PLACEHOLDERS.get(value, value))
            continue
        variables = []
        while current and re.match(r"[A-Z_]\w*=", current[0]):
            variables.append(current.pop(0))
        if current and (whole or len(current) > 1 or current[0] != "hccl-like"):
            found.append(Command(page, line, tuple(variables), tuple(current), whole))
        current = []
    return found
