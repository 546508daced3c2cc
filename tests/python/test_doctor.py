"""hccl-like doctor: that it finds everything in order where it is, and says what is not."""

import json
import os
import re
import subprocess
import sys

import pytest

from hccl_like.doctor import _command, _device, _host, _self_test
from hccl_like.doctor._findings import Findings


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "hccl_like", "doctor", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=170,
    )  # fmt: skip


def table(document, title):
    return {row[0]: row[1:] for section in document["sections"] if section["title"] == title for row in section["rows"]}


def test_all_is_in_order_on_the_simulator(sim, tmp_path):
    done = run("--device", "sim", "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything is in order" in done.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["ok"] and not found["problems"]
    assert table(found, "device sim")["reached by"] == ["memory mapped by its plugin, calls in stream order"]
    offered = table(found, "what torch's interfaces offer of sim")
    assert offered["events"][0] == "yes" and offered["pinned_memory"][0] == "yes"
    tested = table(found, "self test with 2 ranks")
    assert sorted(tested) == ["all_reduce on cpu", "all_reduce on sim"]
    assert all(result[0].startswith("right, over shm") for result in tested.values())
    host = table(found, "this host")
    assert {"addresses, best first", "open files", "locked memory"} <= set(host)


def test_what_a_device_lacks_is_told_with_what_follows(sim, monkeypatch):
    monkeypatch.setenv("TORCH_SIM_FLAWS", "no-pinned-memory,no-events")
    findings = Findings()
    assert _device.examine("sim", findings)
    offered = {row[0]: row[1:] for row in findings.sections[-1].rows}
    for feature, words in (("pinned_memory", "sim: there is no pinned memory"), ("events", "Backend doesn't support events")):
        present, consequence, reason = offered[feature]
        assert present == "no" and words in reason and consequence
    assert not findings.problems


def test_a_device_that_is_not_there_is_a_problem():
    findings = Findings()
    assert not _device.examine("nosuch", findings)
    assert len(findings.problems) == 1 and findings.problems[0].startswith("the device 'nosuch': torch cannot use it: ")


def test_a_plugin_that_cannot_be_loaded_is_a_problem(sim, tmp_path, monkeypatch):
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    (tmp_path / "sitecustomize.py").write_text(
        f"import hccl_like._plugins as plugins\nplugins.found = lambda: {{'sim': {str(broken)!r}}}\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    findings = Findings()
    assert not _device.examine("sim", findings)
    assert "broken.so" in findings.problems[0] and "'sim'" in findings.problems[0]


def test_a_device_that_crashes_or_hangs_is_a_problem(sim, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    findings = Findings()
    assert not _device.examine("sim", findings)
    assert findings.problems[0].startswith("the process that asked the device 'sim' what it can do crashed with signal 11")
    (tmp_path / "sitecustomize.py").write_text("import signal\nsignal.pause()\n")
    monkeypatch.setattr(_device, "_LIMIT", 1.0)
    findings = Findings()
    assert not _device.examine("sim", findings)
    assert findings.problems == ["the device 'sim' hangs: it did not say what it can do within 1 s"]


def test_a_self_test_that_fails_names_rank_and_reason(monkeypatch):
    monkeypatch.setattr(_self_test.sys, "executable", "/bin/false")
    findings = Findings()
    _self_test.examine("cpu", findings)
    assert len(findings.problems) == 1
    assert re.fullmatch("the self test failed: rank [01] ended with code 1: it said nothing", findings.problems[0])


def test_an_extension_that_does_not_fit_is_all_that_is_said(monkeypatch, capsys, tmp_path):
    from hccl_like import _extension

    monkeypatch.setattr(_extension, "problem", lambda: "hccl-like was built for torch 2.9")
    assert _command.main(["--json", str(tmp_path / "found.json")]) == 1
    assert capsys.readouterr().err == "problem: hccl-like was built for torch 2.9\n"
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["problems"] == ["hccl-like was built for torch 2.9"] and not found["ok"]
    assert [section["title"] for section in found["sections"]][:2] == ["versions", "backend"]


def test_little_of_anything_is_a_hint(monkeypatch):
    monkeypatch.setattr(_host.resource, "getrlimit", lambda which: (100, 200))
    findings = Findings()
    _host.examine(findings)
    assert not findings.problems
    assert any("may open 100 files only" in hint and "ulimit -n" in hint for hint in findings.hints)
    rows = dict(findings.sections[0].rows)
    assert rows["open files"] == "100, at most 200" and rows["locked memory"] == "100 B, at most 200 B"


def test_settings_that_leave_no_interface_are_a_problem(monkeypatch):
    monkeypatch.setenv("HCCL_LIKE_SOCKET_IFNAME", "=nosuch0")
    findings = Findings()
    _host.examine(findings)
    assert len(findings.problems) == 1 and "HCCL_LIKE_SOCKET_IFNAME==nosuch0 leaves no network interface" in findings.problems[0]
