"""Every command, snippet and name that the documentation shows: it runs, or its program takes it, or it exists."""

import ast
import importlib.util
import json
import re
import runpy
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed import run as torchrun

import docs_commands
import fresh
import hccl_like

ROOT = docs_commands.ROOT
COMMANDS = docs_commands.commands()
# Programs of the reader's own.
READERS = {"train.py", "first.py"}

# Run here in a folder of their own, with what keeps them short behind them; the commands of a page in its order.
RUN = {
    "docs/compression.md": {"hccl-like explain all_reduce 64M 2 --hosts 2 --compression mx8": []},
    "docs/concepts.md": {
        "hccl-like explain all_reduce 16M 4 --hosts 4 --algorithm ring --rounds --svg ring.svg": [],
        "hccl-like explain all_reduce 1K 4 --hosts 4 --algorithm recursive_doubling --svg doubling.svg": [],
        "hccl-like explain all_reduce 16M 4 --hosts 4 --algorithm ring --timeline slices.svg": [],
    },
    "docs/devices.md": {"hccl-like explain all_reduce 64M 4 --hosts 2 --device sim": []},
    "docs/migration.md": {"hccl-like --version": []},
    "docs/networks.md": {"hccl-like fwports --ranks 8 --from 10.0.0.0/24": []},
    "docs/own-algorithms.md": {"hccl-like explain all_reduce 64K 8 --hosts 2 --own twins.py:twins": []},
    "docs/plugin-guide.md": {"hccl-like new-plugin npu hccl-npu": [], "hccl-like info": [], "python -m hccl_like.sdk --include-dir": []},
    "docs/quick-start.md": {"torchrun --nproc-per-node=2 first.py": []},
    "docs/topology.md": {"python -m hccl_like.topology": []},
    "docs/torch-compat.md": {"hccl-like compat": []},
}
SHORT_DIGITS = ["--stop-after", "2"]
RUN_AT_NIGHT = {
    "README.md": {"hccl-like demo -n 2": []},
    "docs/bench.md": {
        "hccl-like bench all_reduce": ["-e", "4K"],
        "hccl-like bench all_reduce -g 4 --device sim -d bfloat16": ["-e", "512"],
        "hccl-like bench all_reduce --passes 7 -J before.json": ["-e", "64"],
        "hccl-like bench all_reduce --baseline before.json": ["-e", "64", "--tolerance", "10000"],
        "python -m hccl_like.bench.plot -o all.png a.json b.json": [],
    },
    "docs/parallelisms.md": {
        "torchrun --nproc-per-node=2 examples/train_digits.py --parallel ddp": SHORT_DIGITS,
        "torchrun --nproc-per-node=2 examples/train_digits.py --parallel fsdp2": SHORT_DIGITS,
        **{f"torchrun --nproc-per-node={ranks} examples/train_llm.py {layout} --size tiny": ["--steps", "2"] for ranks, layout in (
            (4, "--layout replicate2,dp2 --data fsdp2"), (2, "--layout tp2"), (2, "--layout pp2 --schedule zero-bubble"),
            (2, "--layout cp2 --context ring"), (2, "--layout ep2 --experts 4"), (8, "--layout pp2,dp2,tp2"))},
    },
    "docs/quick-start.md": {"hccl-like doctor": [], "hccl-like demo -n 2 --device sim": []},
    "docs/torch-compat.md": {"hccl-like compat --load": []},
}
# Not run here, and why. Their arguments are looked at all the same.
NOT_RUN = {
    r"^(pip|cmake|ctest|pytest|openssl|chmod) ": "a tool of others that installs or builds; scripts/wheels.sh and the SDK's tests do it",
    r"^scripts/": "sets up, builds or tests everything",
    r"^(accelerate|deepspeed|srun|mpirun) |accelerate\.commands": "a launcher of others; test_integration_*.py and test_launch.py start it",
    r"^torchrun .*(train|fit)\.py|^torchrun( --[\w-]+=\w+)*$": "the reader's program",
    r"^python train\.py": "the example of mixed-devices.md; test_mixed_devices.py runs it",
    r"train_digits\.py|train_llm\.py": "test_train_digits.py and test_train_llm.py",
    r"examples/(recovery|elastic|torchft)/": "test_recovery.py, test_elastic*.py and test_torchft.py",
    r"^(chrt|python bench/|hccl-like bench .*(--pin|--device cuda))": "a benchmark of minutes; the tests of bench/ make it short",
    r"hccl_like\.bench all_reduce$|--replay": "needs several hosts, or a job's dumps; test_bench_replay.py",
    r"^(hccl-like (hang|top|ps|trace)\b|python -m torch.distributed.flight_recorder)": "needs a job; test_hang.py, test_top.py and test_trace.py have one",
    r"^python -m hccl_like\.conformance": "minutes; test_conformance*.py, and scripts/test.sh runs it",
    r"hccl_like\.(doctor|tune|topology --picture)|--device mydevice|--device D": "needs several hosts or another device; test_doctor*.py, test_tune.py",
    r"^hccl-like (contract|demo$)": "needs a plugin; test_sdk.py builds one",
    r"--cmake-dir|hccl_like_DIR": "test_sdk.py",
    r"^hccl-like verify": "eight jobs; test_deterministic.py",
    r"^python docs/site/": "the last two tests of this file",
}


def to_run(table):
    return [pytest.param(page, lines, id=Path(page).stem) for page, lines in table.items()]


def shown(page, line):
    """The command of a page, which must show it."""
    found = [command for command in COMMANDS if command.page == page and str(command) == line]
    assert found, f"{page} does not show '{line}' any more: take it out of this table"
    return found[0]


def run_all(page, lines, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for line, more in lines.items():
        command = shown(page, line)
        arguments = [*command.words, *more]
        program = {"hccl-like": ["-m", "hccl_like"], "torchrun": ["-m", "torch.distributed.run"], "python": []}[arguments[0]]
        done = fresh.run([*program, *arguments[1:]], timeout=300)
        assert done.returncode == 0, f"{command.where}\n{done.stdout}{done.stderr}"


@pytest.fixture
def folder(tmp_path):
    """With the files that the pages let the reader write."""
    for page, name, sign in (("docs/own-algorithms.md", "twins.py", "def twins"), ("docs/quick-start.md", "first.py", "dist.all_reduce(tensor)")):
        texts = [text for where, _, text in docs_commands.snippets(("python",)) if where == page]
        last = next(number for number, text in enumerate(texts) if sign in text)
        tmp_path.joinpath(name).write_text("".join(texts[: last + 1]))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name in ("a.json", "b.json"):
        tmp_path.joinpath(name).symlink_to("before.json")  # which an earlier command writes
    return tmp_path


@pytest.mark.parametrize("page, lines", to_run(RUN))
def test_the_commands_of_a_page_run(page, lines, folder, monkeypatch):
    run_all(page, lines, folder, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("page, lines", to_run(RUN_AT_NIGHT))
def test_the_longer_commands_of_a_page_run(page, lines, folder, monkeypatch):
    run_all(page, lines, folder, monkeypatch)


def test_every_command_is_run_or_says_why_not():
    run = {line for table in (RUN, RUN_AT_NIGHT) for lines in table.values() for line in lines}
    names = {command for command in map(str, COMMANDS) if re.fullmatch(r"hccl-like [\w-]+", command)}  # in a sentence
    unknown = [command.where for command in COMMANDS
               if str(command) not in run | names and not any(re.search(one, " ".join(command.words)) for one in NOT_RUN)]
    assert unknown == []
    unused = [one for one in NOT_RUN if not any(re.search(one, " ".join(command.words)) for command in COMMANDS)]
    assert unused == []


def of_our_programs(words):
    """The part of a command line that a program of ours takes, as docs_accepted.py wants it; nothing if there is none."""
    words = list(words)
    if words[0] == "chrt":
        words = words[3:] or ["chrt"]
    if words[0] in ("mpirun", "srun") and "python" in words:
        words = words[words.index("python"):]
    if words[0] == "torchrun":
        given = words[1:] if any(word.endswith(".py") for word in words) or "-m" in words else [*words[1:], "train.py"]
        asked = torchrun.get_args_parser().parse_args(given)
        words = [*(["-m"] if asked.module else []), asked.training_script, *asked.training_script_args]
    elif words[0] == "hccl-like":
        return ["-m", "hccl_like", *words[1:]]
    elif words[0] in ("python", "python3"):
        words = words[1:]
    else:
        return None
    if words[0] == "-m":
        return words if words[1].startswith("hccl_like") else None
    return None if words[0] in READERS or words[0].startswith("docs/site/") else words  # which parse nothing


def refused(lines, folder):
    """What the programs say of command lines that they refuse; "" for the others."""
    (folder / "lines.json").write_text(json.dumps(lines))
    done = fresh.run([Path(__file__).with_name("docs_accepted.py"), folder / "lines.json"])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_programs_take_the_arguments_that_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    asked = [(command, line) for command in COMMANDS if (line := of_our_programs(command.words))]
    assert len(asked) > 60
    faults = [f"{command.where}: {told}" for (command, _), told in zip(asked, refused([line for _, line in asked], tmp_path), strict=True)
              if told and (command.whole or "the following arguments are required" not in told)]
    assert faults == []


def test_a_wrong_flag_and_a_wrong_command_are_found(tmp_path):
    lines = [["-m", "hccl_like", *words] for words in (["explain", "all_reduce", "8", "2", "--host", "x"], ["inof"], ["bench", "all_reduce", "-g"])]
    first, second, third = refused(lines, tmp_path)
    assert "invalid int value: 'x'" in first and "invalid choice: 'inof'" in second and "-g/--nproc: expected one argument" in third


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def missing_files(command):
    """What is wrong with the files, presets and targets that a command of others names."""
    words = command.words
    for word in words:
        beginning, *rest = word.split("=")[-1].split("/")
        if rest and (ROOT / beginning).is_dir() and beginning not in (".", "build", "dist", "") and not (ROOT / word.split("=")[-1]).exists():
            yield f"{command.where}: there is no {word}"
    for option, folder, pattern in (("--preset", "CMakePresets.json", '"name": "{}"'), ("--target", "", "({}"), ("--component", "", "COMPONENT {}")):
        for flag, value in zip(words, words[1:]):
            files = [folder] if folder else [path.relative_to(ROOT) for path in (*ROOT.glob("*/CMakeLists.txt"), *ROOT.glob("*/*/CMakeLists.txt"),
                                                                                *ROOT.glob("cmake/*.cmake"), ROOT / "CMakeLists.txt")]
            if flag == option and not any(pattern.format(value) in text_of(file) for file in files):
                yield f"{command.where}: no {option} {value}"
    if words[0].startswith("scripts/"):
        script = text_of(words[0])
        for word in words[1:]:
            if not re.fullmatch(r"[\d.]+", word) and word not in script:
                yield f"{command.where}: {words[0]} knows no {word}"


def test_files_presets_and_targets_exist():
    assert [fault for command in COMMANDS for fault in missing_files(command)] == []


def build_and_tests():
    """The text of the files that may have HCCL_LIKE_ names of their own: of CMake, scripts, benchmarks and tests."""
    found = [ROOT / "CMakeLists.txt", ROOT / "CMakePresets.json", ROOT / "setup.py"]
    for folder in ("cmake", "scripts", "bench", "tests", "python", "device/cuda"):
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".txt", ".cmake", ".sh", ".py", ".cc", ".h")]
    return "".join(path.read_text(encoding="utf-8") for path in found if path.name != Path(__file__).name)


def test_settings_that_pages_name_exist():
    settings = set(re.findall(r"`(HCCL_LIKE_\w+)`", text_of("docs/settings.md")))
    assert len(settings) == len(hccl_like.settings())
    others = set(re.findall(r"\bHCCL_LIKE_\w+", build_and_tests()))
    unknown = {f"{page.name}: {name}" for page in docs_commands.PAGES for name in re.findall(r"\bHCCL_LIKE_[A-Z_]*[A-Z]\b", page.read_text())
               if name not in settings | others}
    assert unknown == set()


# Pages with snippets that are no whole program text, and why.
NO_PYTHON = {"docs/elastic.md": "two programs side by side"}


def imported(tree):
    """The modules and the (module, name) pairs that a snippet imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name) for alias in node.names)


def has(module, name):
    """Whether the module has the name; a framework that is not installed is believed."""
    if importlib.util.find_spec(module.split(".")[0]) is None:
        return True
    if importlib.util.find_spec(module) is None:
        return False
    if name is None or module.split(".")[0] not in ("torch", "hccl_like"):
        return True
    return hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}") is not None


def attribute_faults(tree, aliases):
    """Names of dist and hccl_like that there are not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            if not hasattr(aliases[node.value.id], node.attr) and not has("hccl_like." + node.attr, None):
                yield f"{node.value.id}.{node.attr}"


def test_snippets_are_python_and_their_names_exist():
    faults, no_python = [], set()
    for page, line, text in docs_commands.snippets():
        try:
            tree = ast.parse(text, f"{page}:{line}")
        except SyntaxError:
            no_python.add(page)
            continue
        faults += [f"{page}:{line}: {module} has no {name}" for module, name in imported(tree) if not has(module, name)]
        faults += [f"{page}:{line}: there is no {name}" for name in attribute_faults(tree, {"dist": dist, "hccl_like": hccl_like})]
    assert faults == []
    assert no_python == set(NO_PYTHON)


def test_functions_that_sentences_name_exist():
    faults = []
    for page, line, text in docs_commands.spans():
        for module, name in re.findall(r"(?<![\w./-])(dist|hccl_like)\.([A-Za-z_]\w*)", text):
            if not hasattr({"dist": dist, "hccl_like": hccl_like}[module], name) and not has(f"hccl_like.{name}", None):
                faults.append(f"{page}:{line}: there is no {module}.{name}")
    assert faults == []


def test_the_page_of_commands_is_up_to_date():
    made = runpy.run_path(str(ROOT / "docs" / "site" / "commands.py"))["page"]()
    assert made == text_of("docs/commands.md"), "python docs/site/commands.py > docs/commands.md"


def test_the_pictures_of_schedules_are_up_to_date(tmp_path, capsys):
    runpy.run_path(str(ROOT / "docs" / "site" / "pictures.py"))["explained"](tmp_path)
    for picture in sorted(tmp_path.iterdir()):
        assert picture.read_text() == text_of(f"docs/pictures/{picture.name}"), "python docs/site/pictures.py"
    assert len(list(tmp_path.iterdir())) == 3
