"""The code of docs/own-algorithms.md does what the page says."""

import contextlib
import io
import re
from pathlib import Path

from hccl_like import schedule

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "own-algorithms.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_s_code_does_what_the_page_says():
    names = {"__name__": "page"}
    said = []
    for block in blocks("python"):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            exec(compile(block, "own-algorithms.md", "exec"), names)
        said.append(text.getvalue())
    assert said[0] == ""
    assert [said[1]] == blocks("text")
    ours, ours_us, theirs, theirs_us = re.fullmatch(r"(\w+) (\d+) us, (\w+) (\d+) us\n", said[2]).groups()
    assert ours == "twins" and int(ours_us) < 0.95 * int(theirs_us), said[2]
    assert len(re.search(r"def my_ring.*?return made\n", PAGE, re.DOTALL)[0].splitlines()) <= 15


def test_the_page_s_json_is_an_algorithm():
    (text,) = blocks("json")
    schedule.from_json(text).prove(2)
