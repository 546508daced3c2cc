"""The command hccl-like."""

import json
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

import fresh
import hccl_like
from hccl_like import _adapters, _extension, _tables, cli
from ranks import run_ranks


def command(*arguments, **environment):
    """Runs it as `python -m hccl_like`."""
    return fresh.run(["-m", "hccl_like", *arguments], env={**os.environ, **environment})


def test_without_a_command_it_lists_them(capsys):
    assert cli.main([]) == 2
    told = capsys.readouterr().out
    for name in ("demo", "info", "doctor", "hang", "trace", "settings", "compat", "explain", "topology", "tune", "bench"):
        assert f"\n  {name} " in told


def test_an_unknown_command_is_refused_with_the_list(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["inof"])
    told = capsys.readouterr().err
    assert "inof" in told and "settings" in told


def test_it_tells_its_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"hccl-like {hccl_like.__version__}\n"


@pytest.mark.parametrize("name", ["info", "doctor", "bench", "settings"])
def test_without_torch_a_command_says_what_to_install(name):
    program = f"import sys; sys.modules['torch'] = None; from hccl_like import cli; sys.exit(cli.main(['{name}']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr == "torch is not installed: pip install 'torch>=2.11'\n"


def head_of(*arguments):
    """What `hccl-like ... | head -1` writes to standard error, and the exit code of the command."""
    command = [sys.executable, "-m", "hccl_like", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline()
        process.stdout.close()
        return process.stderr.read().decode(), process.wait(100)


@pytest.mark.parametrize("arguments", [("demo", "--device", "cpu"), ("settings",)])
def test_whoever_reads_the_first_line_only_gets_no_traceback(arguments):
    assert head_of(*arguments) == ("", 0)


def test_help_does_not_wait_for_torch():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from hccl_like import cli; cli.main([]); sys.exit('torch' in sys.modules)"],
        capture_output=True,
    )
    assert done.returncode == 0


def test_settings_lists_every_one_with_its_value(monkeypatch, capsys):
    monkeypatch.setenv("HCCL_LIKE_SPINS", "7")
    monkeypatch.setenv("HCCL_LIKE_SLICE_BYTES", "1024K")
    assert cli.main(["settings"]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if "HCCL_LIKE_" in line}
    assert len(lines) == len(hccl_like.settings())
    assert lines["HCCL_LIKE_SPINS"][1:3] == ["7", "50"]
    assert lines["HCCL_LIKE_SLICE_BYTES"][1:3] == ["1M", "1M"]


def test_settings_that_cannot_be_understood_are_named(monkeypatch, capsys):
    monkeypatch.setenv("HCCL_LIKE_SPINS", "many")
    assert cli.main(["settings"]) == 1
    assert "HCCL_LIKE_SPINS: 'many' is not a number" in capsys.readouterr().err
    assert cli.main(["info"]) == 1
    assert "HCCL_LIKE_SPINS: 'many' is not a number" in capsys.readouterr().err


def test_info_says_what_there_is(monkeypatch, capsys):
    monkeypatch.setenv("HCCL_LIKE_TRANSPORTS", "tcp")
    assert cli.main(["info"]) == 0
    shown = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert f"built for torch {', '.join(_adapters.built_for())}" in shown
    assert "registered as hccl-like" in shown
    assert "HCCL_LIKE_TRANSPORTS tcp shm,tcp" in shown


def test_info_is_there_as_json(capsys):
    assert cli.main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and not found["problems"]
    (versions,) = [section for section in found["sections"] if section["title"] == "versions"]
    assert ["hccl-like", hccl_like.__version__] in versions["rows"] and ["torch", torch.__version__] in versions["rows"]
    assert dict(versions["rows"])["adapter"] == str(_adapters.find())


def test_info_tells_the_error_of_the_autoload(monkeypatch, capsys):
    monkeypatch.setattr(hccl_like, "_autoload_error", ValueError("the entry point tripped"))
    assert cli.main(["info"]) == 1
    shown = capsys.readouterr()
    assert "ValueError: the entry point tripped" in shown.err
    assert "built for torch" in shown.out


def test_info_tells_that_the_adapter_does_not_compile(monkeypatch, capsys):
    def fails():
        raise _adapters.NoAdapter("could not compile one")

    monkeypatch.setattr(_extension, "load", fails)
    monkeypatch.setattr(_adapters, "exists", lambda: False)
    assert cli.main(["info"]) == 1
    shown = capsys.readouterr()
    assert "cannot be used: could not compile one" in shown.err and "built for torch" in shown.out


def test_info_says_that_loading_was_switched_off():
    done = command("info", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 0
    assert "no; TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading backends; hccl_like.register() makes it known" in done.stdout


@pytest.mark.slow
def test_the_demo_gets_its_options():
    done = command("demo", "-n", "2", "--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everybody gets [3.0, 3.0, 3.0, 3.0]: right" in done.stdout
    assert done.stderr == ""


def rows(table):
    """The names of the algorithms in what `explain` prints."""
    lines = table.splitlines()
    heads = next(number for number, line in enumerate(lines) if line.split()[:2] == ["algorithm", "slices"])
    return [line.split()[0] for line in lines[heads + 1 :] if line]


def test_explain_shows_what_would_be_used_first(monkeypatch, capsys):
    assert cli.main(["explain", "all_reduce", "16M", "4"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("all_reduce of 16777216 bytes on 4 ranks goes directly between the ranks' memory, without messages and")
    algorithms = rows(told)
    assert "ring" in algorithms and len(set(algorithms)) == len(algorithms) >= 3
    other = algorithms[-1]
    monkeypatch.setenv("HCCL_LIKE_ALGO", f"all_reduce:{other}")
    assert cli.main(["explain", "all_reduce", "16M", "4"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("all_reduce of 16777216 bytes on 4 ranks goes by messages; the first algorithm is used\n")
    assert rows(told)[0] == other and sorted(rows(told)) == sorted(algorithms)


def test_explain_knows_of_the_board(capsys):
    assert cli.main(["explain", "all_reduce", "8", "8"]) == 0
    assert capsys.readouterr().out.startswith("all_reduce of 8 bytes on 8 ranks goes over the host's board in shared memory,")


def test_explain_knows_of_hosts(capsys):
    assert cli.main(["explain", "all_reduce", "8", "8", "--hosts", "2"]) == 0
    told = capsys.readouterr().out
    assert "goes by messages" in told and rows(told)[0].startswith("leaders_one_shot")


# How many bytes a rank shows on the board of one host.
BOARD = 8192
CALLS = {
    "all_reduce": lambda bytes, size, device: dist.all_reduce(torch.zeros(bytes, dtype=torch.uint8, device=device)),
    "broadcast": lambda bytes, size, device: dist.broadcast(torch.zeros(bytes, dtype=torch.uint8, device=device), 0),
    "all_gather": lambda bytes, size, device: dist.all_gather_into_tensor(
        torch.zeros(bytes, dtype=torch.uint8, device=device), torch.zeros(bytes // size, dtype=torch.uint8, device=device)
    ),
    "barrier": lambda bytes, size, device: dist.barrier(**({} if device == "cpu" else {"device_ids": [0]})),
}
# (collective, bytes, how it goes, and how with HCCL_LIKE_DIRECT=0), around each threshold.
THRESHOLDS = [
    ("barrier", 0, "board", "board"),
    ("all_reduce", 8, "board", "board"),
    ("all_reduce", BOARD, "board", "board"),
    ("all_reduce", BOARD + 1, "direct", "messages"),
    ("broadcast", BOARD, "board", "board"),
    ("broadcast", BOARD + 1, "direct", "messages"),
    ("all_gather", 2 * BOARD, "board", "board"),
    ("all_gather", 2 * BOARD + 2, "direct", "messages"),
    ("all_reduce", 1 << 20, "direct", "messages"),
]


def one_call(rank, size, device, collective, bytes):
    """Whether the two ranks were connected for it: only messages need that, and a call finds them unconnected."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    unconnected = backend._info()["links"][1 - rank]
    store = dist.distributed_c10d._get_default_store()
    store.set(f"looked/{rank}", "")  # the other rank's call connects this one too
    store.wait([f"looked/{1 - rank}"])
    CALLS[collective](bytes, size, device)
    if device != "cpu":
        torch.accelerator.synchronize()
    return backend._info()["links"][1 - rank] != unconnected


@pytest.mark.parametrize("collective, bytes, way, without", THRESHOLDS)
def test_explain_says_how_a_call_goes(collective, bytes, way, without, device, monkeypatch):
    for direct, expected in (("1", way), ("0", without)):
        monkeypatch.setenv("HCCL_LIKE_DIRECT", direct)
        assert _extension.load().way(collective, bytes, [0, 0]) == expected
        connected = run_ranks(one_call, 2, device, collective, bytes, environment={"HCCL_LIKE_DIRECT": direct})
        assert connected == [expected == "messages"] * 2


def test_explain_asks_the_plugin_of_the_device(sim):
    done = command("explain", "all_reduce", "16M", "2", "--device", "sim", TORCH_SIM_DISCRETE="1")
    assert " goes by streams of the devices" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("environment", [{"HCCL_LIKE_TRANSPORTS": "tcp"}, {"HCCL_LIKE_ALGO": "all_reduce:ring"}], ids=str)
def test_explain_says_when_messages_are_asked_for(environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _extension.load().way("all_reduce", 8, [0, 0]) == "messages"
    assert run_ranks(one_call, 2, "cpu", "all_reduce", 8, environment=environment) == [True, True]


@pytest.mark.parametrize("name, family", [
    ("all_gather_into_tensor", "all_gather"), ("reduce_scatter_tensor", "reduce_scatter"), ("all_to_all_single", "all_to_all"),
    ("allreduce", "all_reduce")])
def test_explain_takes_torch_s_other_names_too(name, family, capsys):
    assert cli.main(["explain", name, "16M", "4"]) == 0
    asked = rows(capsys.readouterr().out)
    assert cli.main(["explain", family, "16M", "4"]) == 0
    assert rows(capsys.readouterr().out) == asked


def test_explain_names_what_there_is_when_it_does_not_know(capsys):
    assert cli.main(["explain", "all_reduced", "8", "2"]) == 1
    assert "there is no collective 'all_reduced'; there are all_reduce, reduce_scatter," in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["explain", "all_reduce", "8X", "2"])
    assert "'8X' is no size; write 4096, 64K, 1M or 2G" in capsys.readouterr().err


def test_a_plain_table_has_columns_and_keeps_long_cells():
    table = _tables.plain("title", ("a", "what"), [("x", "y" * 200), ("longer", "")])
    assert table == f"title\n  a       what\n  x       {'y' * 200}\n  longer\n"
    assert _tables.plain("title", ("", ""), [("x", "y")]) == "title\n  x  y\n"


def test_rich_shows_the_same_cells(monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    _tables.show("title", ("a", "b"), [("[bold]x", "y")])
    shown = capsys.readouterr().out
    assert "[bold]x" in shown and "│" in shown
