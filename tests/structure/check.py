#!/usr/bin/env python3
"""The rules about the tree that no compiler checks. Needs nothing but Python.

Each check is a function that yields sentences, one for each offence, beginning with the file and line it is about.
"""

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import outcomes  # noqa: E402

# From left to right: a file includes its own layer and those before it.
LAYERS = ["core", "device", "transport", "collectives", "process_group", "python"]
TORCH_FREE = LAYERS[:4]
# What may be included by folders that are no layer of their own.
OTHERS = {"bench": TORCH_FREE, "docs": TORCH_FREE, "tests": TORCH_FREE}
# Written against these alone, as a vendor would.
PLUGIN_HEADERS = ["device/plugin.h", "transport/module.h"]
VENDORS = ["simulator", "examples"]
# Folders like those of a layer. Its files name each other from here.
SIMULATOR = Path("simulator/csrc")

# Plugins of ours, each for one kind of device.
PLUGINS = [("device", "cuda")]

TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2|pybind11)/|^Python\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
VENDOR_NAME = re.compile(
    r"nvidia|cuda|ascend|habana|rocm|cambricon|torch_sim|openreg|\b(hip|npu|hpu|xpu|musa|mlu|mps)\b", re.I
)
# Spelt in halves, so that this file does not offend itself.
MARKER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
MAX_LINES = 400
# Longer files, and why they are better off in one piece.
LONG_FILES = {
    "examples/minimal_transport/unix_transport.cc": "a whole transport in one file, to begin one's own with",
    "collectives/engine/communicator_test.cc": "one suite, instantiated for every transport and number of ranks",
}
MAX_COLUMNS = 100  # of C++, which clang-format keeps
MAX_FILES = 35  # of a folder of C++
# How long tests/unstable.txt may list a test.
MAX_UNSTABLE_DAYS = 30


def tracked(*suffixes):
    """Files that git knows or would add, as paths relative to the root."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        skipped = {"build", ".venv", ".git", "runs"}
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        names = [str(path) for path in paths if not skipped & set(path.parts)]
    return [Path(name) for name in sorted(names) if name.endswith(suffixes) and (ROOT / name).is_file()]


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def numbered(path):
    return enumerate(text_of(path).splitlines(), start=1)


def includes(path):
    """(line, name, whether in quotes) of each include."""
    for number, line in numbered(path):
        if match := INCLUDE.match(line):
            yield number, match[1] or match[2], match[1] is not None


def allowed_layers(top):
    if top in LAYERS:
        return LAYERS[: LAYERS.index(top) + 1]
    return OTHERS.get(top)


def without_comments(text):
    """C++ with its comments blanked, line for line."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)
    return pattern.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)


def includes_point_left():
    for path in tracked(".h", ".cc"):
        allowed = allowed_layers(path.parts[0])
        if allowed is None:
            continue
        for line, name, quoted in includes(path):
            layer = name.split("/")[0]
            if layer in LAYERS and layer not in allowed:
                yield f"{path}:{line}: {path.parts[0]}/ must not include {name}"
            if quoted and layer not in LAYERS and layer not in OTHERS:
                yield f"{path}:{line}: name {name} from the root of the repository"


def torch_begins_at_process_group():
    for path in tracked(".h", ".cc"):
        if path.parts[:2] == ("tests", "python"):
            continue  # what Python tests compile may stand in for torch or for an extension of others
        if path.parts[0] in TORCH_FREE or path.parts[0] in OTHERS:
            for line, name, _ in includes(path):
                if TORCH_HEADER.match(name):
                    yield f"{path}:{line}: {name} belongs to process_group/ and python/ only"


def vendors_see_the_tables_only():
    for path in tracked(".h", ".cc", ".cpp", ".c", ".hpp"):
        if path.parts[0] in VENDORS:
            for line, name, _ in includes(path):
                is_own = any((ROOT / parent / name).exists() for parent in list(path.parents)[:-1])
                if name.split("/")[0] in LAYERS and name not in PLUGIN_HEADERS and not is_own:
                    yield f"{path}:{line}: a vendor includes {' or '.join(PLUGIN_HEADERS)} of hccl-like, not {name}"


def no_vendor_is_named_beside_the_plugins():
    """Properties decide what is done, never names. A plugin is for one device, and may say so."""
    for path in tracked(".h", ".cc"):
        if path.parts[0] in LAYERS[:5] and path.parts[:2] not in PLUGINS:
            for line, code in enumerate(without_comments(text_of(path)).splitlines(), start=1):
                if match := VENDOR_NAME.search(code):
                    yield f"{path}:{line}: properties decide, not names: '{match[0]}'"


def headers_are_included_once():
    for path in tracked(".h"):
        if path.parts[0] in LAYERS and not path.name.endswith("-inl.h"):
            text = text_of(path)
            if "#pragma once" not in text and not re.search(r"#ifndef (\w+_H_)\n#define \1\n", text):
                yield f"{path}:1: no #pragma once"


def every_setting_is_documented():
    page = text_of("docs/settings.md")
    for path in tracked("config.cc"):
        for line, text in numbered(path):
            for name in re.findall(r'"(HCCL_LIKE_[A-Z_]*[A-Z])"', text):
                if f"`{name}`" not in page:
                    yield f"{path}:{line}: {name} is not in docs/settings.md: build the target update_settings_doc"


def headings(path):
    """The anchors of a Markdown page, as they are made of its headings."""
    for _, line in numbered(path):
        if line.startswith("#"):
            words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            yield words.replace(" ", "-")


def links_lead_somewhere():
    for path in tracked(".md"):
        fenced = False
        for line, text in numbered(path):
            fenced ^= text.lstrip().startswith("```")
            if fenced:
                continue
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, anchor = target.partition("#")
                found = (ROOT / path.parent / file).resolve() if file else ROOT / path
                if not found.exists():
                    yield f"{path}:{line}: {target} does not exist"
                elif anchor and found.suffix == ".md" and anchor not in headings(found.relative_to(ROOT)):
                    yield f"{path}:{line}: {file or path.name} has no heading '{anchor}'"


def nothing_is_left_for_later():
    for path in tracked(".h", ".cc", ".cpp", ".c", ".hpp", ".py", ".sh", ".cmake", "CMakeLists.txt", ".md"):
        for line, text in numbered(path):
            if match := MARKER.search(text):
                yield f"{path}:{line}: finish it or file it: '{match[0]}'"


def files_are_short():
    for path in tracked(".h", ".cc", ".cpp", ".py"):
        length = len(text_of(path).splitlines())
        if length > MAX_LINES and str(path) not in LONG_FILES:
            yield f"{path}:{length}: longer than {MAX_LINES} lines: one idea a file, or a reason in tests/structure/check.py"
    for name in LONG_FILES:
        if not (ROOT / name).exists() or len(text_of(name).splitlines()) <= MAX_LINES:
            yield f"tests/structure/check.py:1: {name} needs no exception any more"


def lines_fit_a_screen():
    for path in tracked(".h", ".cc"):
        raw = False  # inside a literal that is another program's text
        for line, text in numbered(path):
            long = len(text) > MAX_COLUMNS and "http" not in text and not raw
            raw = (raw or 'R"' in text) and not re.search(r'\)\w*"', text)
            if long:
                yield f"{path}:{line}: {len(text)} columns, more than {MAX_COLUMNS}"


def folders():
    """The C++ folders of the layers and of the simulator, with their files."""
    found = {}
    for path in tracked(""):
        if path.parts[0] in LAYERS[:-1] or path.is_relative_to(SIMULATOR):
            found.setdefault(path.parent, []).append(path)
    return found


def folders_say_what_they_are_for_and_are_small():
    for folder, files in folders().items():
        if folder / "README.md" not in files:
            yield f"{folder}: no README.md"
        if len(files) > MAX_FILES:
            yield f"{folder}: {len(files)} files, more than {MAX_FILES}"


def of_tests(path):
    return path.stem.endswith(("_test", "_testing")) or "testing" in path.parts or "contract" in path.stem


def folders_include_each_other_one_way():
    """The graph of folders has no circle; tests and what is made for them may look anywhere in their layer."""
    edges = {}
    known = folders()
    for folder, files in known.items():
        for path in files:
            if path.suffix not in (".h", ".cc") or of_tests(path):
                continue
            for line, name, quoted in includes(path):
                other = Path(name).parent
                if folder.is_relative_to(SIMULATOR) and SIMULATOR / other in known:
                    other = SIMULATOR / other
                if quoted and other != folder and other in known:
                    edges.setdefault(folder, {}).setdefault(other, f"{path}:{line}")
    done = set()

    def visit(folder, trail):
        if folder in trail:
            circle = trail[trail.index(folder):]
            yield f"{edges[circle[-1]][folder]}: {' -> '.join(map(str, [*circle, folder]))} is a circle"
        elif folder not in done:
            for other in edges.get(folder, {}):
                yield from visit(other, [*trail, folder])
            done.add(folder)

    for folder in sorted(edges):
        yield from visit(folder, [])


FOLLOWED = re.compile(r"^\d+\. \[([^\]]+)\]\([^)]+\): (.*)")
MAX_FOLLOWED = 8


def one_call_can_be_followed():
    """The lists of docs/design.md that lead through one call: the functions named are in the files, which are few."""
    page = Path("docs/design.md")
    last = 0
    for line, text in numbered(page):
        if not (found := FOLLOWED.match(text)):
            continue
        number = int(text.split(".")[0])
        if number > MAX_FOLLOWED or number not in (1, last + 1):
            yield f"{page}:{line}: step {number} after step {last}; a list has at most {MAX_FOLLOWED}"
        last = number
        code = without_comments(text_of(found[1]))
        for function in re.findall(r"`(\w+)`", found[2]):
            if not re.search(rf"\b{function}\(", code):
                yield f"{page}:{line}: {found[1]} has no {function}()"


def unstable_tests_are_few_and_recent():
    name = "tests/unstable.txt"
    try:
        entries = outcomes.known(ROOT / name)
    except ValueError as problem:
        yield str(problem).removeprefix(f"{ROOT}/")
        return
    try:
        newest = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%cs"], capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        return
    for test, since, _ in entries:
        if (date.fromisoformat(newest.strip()) - since).days > MAX_UNSTABLE_DAYS:
            yield f"{name}: {test} is listed since {since}, more than {MAX_UNSTABLE_DAYS} days: find out why it failed"


CHECKS = [
    includes_point_left,
    torch_begins_at_process_group,
    vendors_see_the_tables_only,
    no_vendor_is_named_beside_the_plugins,
    headers_are_included_once,
    every_setting_is_documented,
    links_lead_somewhere,
    nothing_is_left_for_later,
    files_are_short,
    lines_fit_a_screen,
    folders_say_what_they_are_for_and_are_small,
    folders_include_each_other_one_way,
    one_call_can_be_followed,
    unstable_tests_are_few_and_recent,
]


def main():
    offences = [sentence for check in CHECKS for sentence in check()]
    print("\n".join(offences) or f"{len(CHECKS)} rules hold")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
