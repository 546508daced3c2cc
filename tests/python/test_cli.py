"""The command hccl-like."""

import os
import subprocess
import sys

import pytest

import hccl_like
from hccl_like import _tables, cli


def command(*arguments, **environment):
    """Runs it as `python -m hccl_like`."""
    return subprocess.run(
        [sys.executable, "-m", "hccl_like", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_without_a_command_it_lists_them(capsys):
    assert cli.main([]) == 2
    told = capsys.readouterr().out
    for name in ("demo", "info", "doctor", "settings", "compat", "explain", "topology", "tune"):
        assert f"\n  {name} " in told


def test_an_unknown_command_is_refused_with_the_list(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["inof"])
    told = capsys.readouterr().err
    assert "inof" in told and "settings" in told


def test_help_does_not_wait_for_torch():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from hccl_like import cli; cli.main([]); sys.exit('torch' in sys.modules)"],
        capture_output=True,
    )
    assert done.returncode == 0


def test_settings_lists_every_one_with_its_value(monkeypatch, capsys):
    monkeypatch.setenv("HCCL_LIKE_SPINS", "7")
    monkeypatch.setenv("HCCL_LIKE_LAP_BYTES", "1024K")
    assert cli.main(["settings"]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if "HCCL_LIKE_" in line}
    assert len(lines) == len(hccl_like.settings())
    assert lines["HCCL_LIKE_SPINS"][1:3] == ["7", "50"]
    assert lines["HCCL_LIKE_LAP_BYTES"][1:3] == ["1M", "1M"]


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
    assert "built for torch 2.13" in shown
    assert "registered as hccl-like" in shown
    assert "HCCL_LIKE_TRANSPORTS tcp shm,tcp" in shown


def test_info_tells_the_error_of_the_autoload(monkeypatch, capsys):
    monkeypatch.setattr(hccl_like, "_autoload_error", ValueError("the entry point tripped"))
    assert cli.main(["info"]) == 1
    shown = capsys.readouterr()
    assert "ValueError: the entry point tripped" in shown.err
    assert "built for torch" in shown.out


def test_info_says_that_loading_was_switched_off():
    done = command("info", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 0
    assert "no; TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading backends; hccl_like.register() makes it known" in done.stdout


def test_the_demo_gets_its_options():
    done = command("demo", "-n", "2", "--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everybody gets [3.0, 3.0, 3.0, 3.0]: right" in done.stdout
    assert done.stderr == ""


def rows(table):
    """The names of the algorithms in a plain table."""
    return [line.split()[0] for line in table.splitlines()[2:] if line]


def test_explain_shows_what_would_be_used_first(monkeypatch, capsys):
    assert cli.main(["explain", "allreduce", "16M", "4"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("allreduce of 16777216 bytes on 4 ranks; the first is used\n")
    algorithms = rows(told)
    assert "ring" in algorithms and len(set(algorithms)) == len(algorithms) >= 3
    other = algorithms[-1]
    monkeypatch.setenv("HCCL_LIKE_ALGO", f"allreduce:{other}")
    assert cli.main(["explain", "allreduce", "16M", "4"]) == 0
    forced = rows(capsys.readouterr().out)
    assert forced[0] == other and sorted(forced) == sorted(algorithms)


def test_explain_knows_of_hosts(capsys):
    assert cli.main(["explain", "allreduce", "8", "8", "--hosts", "2"]) == 0
    assert "leaders_one_shot" in capsys.readouterr().out.splitlines()[2]


def test_explain_names_what_there_is_when_it_does_not_know(capsys):
    assert cli.main(["explain", "all_reduce", "8", "2"]) == 1
    assert "there is no collective 'all_reduce'; there are allreduce, reduce_scatter," in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["explain", "allreduce", "8X", "2"])
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
