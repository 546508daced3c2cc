"""hccl-like doctor: that it finds everything in order where it is, and says what is not."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

import fresh
from conftest import slow_after_first
from hccl_like import _plugins
from hccl_like.doctor import _command, _device, _host, _self_test
from hccl_like.doctor._findings import Findings
from plugins import build


# A hint that rests on measured times: on a busy machine doctor may give it for a device without that flaw, too.
DEAR_PARTS = "a part of a block"


def run(*arguments, **environment):
    return fresh.run(["-m", "hccl_like", "doctor", *arguments], env={**os.environ, **environment}, timeout=170)


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


# What a command imports for its processes, which torch does not load by itself.
IMPORTED = {"TORCH_SIM": "0", "PYTHONPATH": os.path.dirname(__file__)}


@pytest.mark.slow
def test_a_device_that_is_only_imported_and_tells_torch_nothing_is_in_order(sim, tmp_path):
    done = run("--device", "sim", "--import", "bare_sim", "--json", str(tmp_path / "found.json"), **IMPORTED)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert table(found, "backend")["accelerators here"] == table(found, "device sim")["devices"]
    assert sorted(table(found, "self test with 2 ranks")) == ["all_reduce on cpu", "all_reduce on sim"]


@pytest.mark.slow
def test_it_is_in_order_where_torch_loads_no_backends_by_itself(sim, tmp_path):
    done = run("--device", "sim", "--import", "bare_sim", "--json", str(tmp_path / "found.json"),
               **IMPORTED, TORCH_DEVICE_BACKEND_AUTOLOAD="0")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert not found["problems"]
    backend = table(found, "backend")
    assert backend["accelerator"] == ["sim"]
    assert backend["registered"] == [
        "no; TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading backends; hccl_like.register() makes it known"
    ]
    assert sorted(table(found, "self test with 2 ranks")) == ["all_reduce on cpu", "all_reduce on sim"]


def test_a_module_that_is_not_there_is_refused_at_once():
    done = run("--import", "no_such_module")
    assert done.returncode == 2
    assert "argument --import: there is no module 'no_such_module' on the path (PYTHONPATH)" in done.stderr


def test_a_device_that_torch_does_not_know_is_a_problem_with_the_way_out(sim):
    done = run("--device", "sim", "--no-self-test", TORCH_SIM="0")
    assert done.returncode == 1
    first = done.stdout.splitlines()[0]
    assert first.startswith("problem: the device 'sim': torch cannot use it: ") and "--import" in first


# (what the device is, how its plugin goes, which features are missing with words of the reason)
LACKING = {
    "one stream, no events": (
        {"TORCH_SIM_FLAWS": "no-streams,no-events,no-native-handles"},
        {
            "streams": "it has one stream",
            "events": "Backend doesn't support events",
            "native_streams": "Backend doesn't support native stream handles",
        },
    ),
    "no pinned memory, copies of whole storages": (
        {"TORCH_SIM_FLAWS": "no-pinned-memory,no-offsets,blocking-copies"},
        {
            "pinned_memory": "sim: there is no pinned memory",
            "non_blocking_copies": "sim: there is no pinned memory",
            "offset_copies": "a view was read at the wrong place",
        },
    ),
    "opaque storage": ({"TORCH_SIM_OPAQUE": "1"}, {}),
}


@pytest.mark.parametrize("kind", slow_after_first(LACKING))
def test_what_a_device_without_a_plugin_lacks_is_told_with_what_follows(sim, monkeypatch, kind):
    environment, lacking = LACKING[kind]
    for name, value in environment.items() | {("HCCL_LIKE_DEVICE_PLUGINS", "sim=none")}:
        monkeypatch.setenv(name, value)
    findings = Findings()
    assert _device.examine("sim", findings)
    assert not findings.problems
    sections = {section.title: {row[0]: row[1:] for row in section.rows} for section in findings.sections}
    assert sections["device sim"]["plugin"] == ("none: HCCL_LIKE_DEVICE_PLUGINS says so",)
    assert sections["device sim"]["reached by"] == ("memory copied to and from the host, calls wait on the host",)
    hints = [hint for hint in findings.hints if DEAR_PARTS not in hint]
    assert len(hints) == 1 and "there is no plugin for 'sim'" in hints[0]
    offered = sections["what torch's interfaces offer of sim"]
    assert {feature for feature, row in offered.items() if row[0] == "no"} == set(lacking)
    for feature, words in lacking.items():
        _, consequence, reason = offered[feature]
        assert words in reason and consequence


@pytest.mark.parametrize("plugin", slow_after_first(["none", "stripped"]))
def test_copies_of_parts_that_are_dear_are_a_hint(sim, monkeypatch, tmp_path, plugin):
    if plugin == "none":
        monkeypatch.setenv("HCCL_LIKE_DEVICE_PLUGINS", "sim=none")
    else:
        strip(monkeypatch, tmp_path, "map")
    monkeypatch.setenv("TORCH_SIM_FLAWS", "block-copies")
    findings = Findings()
    assert _device.examine("sim", findings)
    assert not findings.problems
    (row,) = [row for section in findings.sections if section.title == "device sim" for row in section.rows if row[0] == "copies of parts"]
    assert re.search(r"^dear: 64 KiB of a block of 8 MiB went to the host and back in \d+\.\d\d ms, .* all 8 MiB in \d+\.\d\d ms$", row[1])
    assert len([hint for hint in findings.hints if DEAR_PARTS in hint]) == 1


def test_a_device_without_operators_is_in_order(sim, tmp_path):
    done = run("--device", "sim", "--json", str(tmp_path / "found.json"),
               TORCH_SIM_FLAWS="no-operators", HCCL_LIKE_DEVICE_PLUGINS="sim=none")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert table(found, "what torch's interfaces offer of sim")["offset_copies"][0] == "yes"
    assert sorted(table(found, "self test with 2 ranks")) == ["all_reduce on cpu", "all_reduce on sim"]


ENTRIES = {
    "map": "map, unmap",
    "host functions": "host_func",
    "words": "stream_wait_value, stream_write_value",
    "export": "ipc_export, ipc_open, ipc_close",
    "freed": "ipc_lives",
    "peers": "peer_open, peer_close",
    "own streams": "stream_create, stream_destroy",
    "events": "event_record, stream_wait_event, event_query, event_sync, event_destroy",
    "files": "export_fd, identify",
    "small sums": "all_reduce_small",
}


# Mandatory; called by nobody but the contract's tests (docs/plugin-guide.md).
UNLISTED = {"init", "fini", "last_error", "stream_sync", "copy_d2h", "copy_h2d"}
UNUSED = {"mem_alloc", "mem_free"}
OF_EXTENSIONS = {"export_fd", "identify"}


def test_every_optional_entry_of_the_table_that_is_used_is_listed(sim):
    header = Path(__file__).parents[2].joinpath("device", "plugin.h").read_text()
    table_of_entries = header[header.index("typedef struct hcd_api {") :]
    entries = set(re.findall(r"^  [a-z* ]+\(\*(\w+)\)\(", table_of_entries, re.MULTILINE))
    assert UNLISTED | UNUSED < entries
    findings = Findings()
    assert _device.examine("sim", findings)
    sections = {section.title: section.rows for section in findings.sections}
    rows = sections["what the plugin of sim offers"]
    listed = [entry for row in rows for entry in row[0].split(", ")]
    assert len(listed) == len(set(listed))
    assert set(listed) == entries - UNLISTED - UNUSED | OF_EXTENSIONS
    assert all(row[1] == "yes" for row in rows)


@pytest.mark.parametrize(
    ("without", "missing", "reached"),
    [
        ("", [], "memory mapped by its plugin, calls in stream order"),
        pytest.param("map,files", ["map", "files"], "memory copied to and from the host, calls in stream order", marks=pytest.mark.slow),
        pytest.param("host functions", ["host functions"], "memory mapped by its plugin, calls in stream order", marks=pytest.mark.slow),
        ("host functions,words,export", ["host functions", "words", "export", "freed", "peers", "small sums"],
         "memory mapped by its plugin, calls wait on the host"),
    ],
)
def test_what_a_plugin_lacks_is_told_with_what_follows(sim, monkeypatch, tmp_path, without, missing, reached):
    findings = examine_stripped(monkeypatch, tmp_path, without)
    sections = {section.title: {row[0]: row[1:] for row in section.rows} for section in findings.sections}
    assert sections["device sim"]["reached by"] == (reached,)
    offered = sections["what the plugin of sim offers"]
    assert {entries for entries, row in offered.items() if row[0] == "no"} == {ENTRIES[one] for one in missing}
    assert all(row[1] for row in offered.values()) and not findings.hints


def strip(monkeypatch, tmp_path, without):
    """Serves the simulator by its plugin without some of its entries."""
    source = Path(__file__).with_name("stripped_plugin.c")
    monkeypatch.setenv("PLUGIN", _plugins.found()["sim"])
    monkeypatch.setenv("WITHOUT", without)
    monkeypatch.setenv("HCCL_LIKE_DEVICE_PLUGINS", f"sim={build(source, tmp_path / 'libstripped.so', '-ldl')}")


def examine_stripped(monkeypatch, tmp_path, without):
    strip(monkeypatch, tmp_path, without)
    findings = Findings()
    assert _device.examine("sim", findings)
    return findings


# In stream order a call that is staged goes in slices only if the plugin has both.
@pytest.mark.parametrize("lacking", slow_after_first([["events"], ["own streams"], ["own streams", "events"]]))
def test_a_plugin_that_makes_large_calls_slower_is_a_hint(sim, monkeypatch, tmp_path, lacking):
    findings = examine_stripped(monkeypatch, tmp_path, ",".join(["map", *lacking]))
    assert [hint for hint in findings.hints if DEAR_PARTS not in hint] == [
        "large calls on 'sim' go in one piece, and may take longer than without its plugin, which lacks "
        f"{' and '.join(ENTRIES[one] for one in lacking)}; docs/plugin-guide.md, 'Stream order without map'"
    ]
    hints = examine_stripped(monkeypatch, tmp_path, ",".join(lacking)).hints
    assert all(DEAR_PARTS in hint for hint in hints), "mapped memory needs neither"


def test_a_plugin_whose_copies_fail_fails_the_self_test(sim, monkeypatch, tmp_path):
    strip(monkeypatch, tmp_path, "map,copies")
    findings = Findings()
    _self_test.examine("sim", findings)
    assert len(findings.problems) == 1 and "copy_d2h" in findings.problems[0], findings.problems


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


def test_what_a_rank_logs_after_its_error_is_not_the_cause():
    told = "[rank1]: DistBackendError: no copy\nhost:12 hccl-like WARN the dump is in /tmp\n"
    assert _self_test._cause(told) == "DistBackendError: no copy"
    assert _self_test._cause("host:12 hccl-like WARN that is all\n") == "it said nothing"


def test_an_extension_that_does_not_fit_is_all_that_is_said(monkeypatch, capsys, tmp_path):
    from hccl_like import _extension

    def load():
        raise ImportError("hccl-like was built for torch 2.9")

    monkeypatch.setattr(_extension, "load", load)
    assert _command.main(["--json", str(tmp_path / "found.json")]) == 1
    assert capsys.readouterr().out.splitlines()[0] == "problem: hccl-like was built for torch 2.9"
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
