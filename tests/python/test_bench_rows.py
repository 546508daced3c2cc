"""What the benchmarks calculate and print: factors, counts, columns, files; and one real run over gloo."""

import argparse
import csv
import json

import pytest
import torch

import fresh
from hccl_like.bench import floor, machine, options, output, plot
from hccl_like.bench.collectives import COLLECTIVES, Case
from hccl_like.bench.types import type_named


def case(**changes):
    fields = {"rank": 1, "ranks": 4, "count": 6, "kind": type_named("float"), "op": "sum", "root": 1,
              "device": torch.device("cpu")}
    return Case(**{**fields, **changes})


@pytest.mark.parametrize("name, factor", [
    ("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("alltoall", 0.75), ("gather", 0.75),
    ("scatter", 0.75), ("broadcast", 1.0), ("reduce", 1.0), ("sendrecv", 1.0)])
def test_the_bus_bandwidth_factors_of_four_ranks_are_those_of_nccl_tests(name, factor):
    assert COLLECTIVES[name].factor(4) == factor


@pytest.mark.parametrize("name, count, size", [
    ("all_reduce", 103, 103), ("broadcast", 103, 103), ("sendrecv", 103, 103), ("all_gather", 25, 100),
    ("reduce_scatter", 25, 100), ("alltoall", 25, 100), ("gather", 25, 100), ("scatter", 25, 100)])
def test_the_count_is_what_one_rank_gives_and_the_size_is_the_larger_buffer(name, count, size):
    collective = COLLECTIVES[name]
    assert collective.count(103, 4) == count
    assert collective.size(count, 4) == size


@pytest.mark.parametrize("name", [name for name, c in COLLECTIVES.items() if "in_place" in c.forms])
def test_in_place_buffers_share_their_memory(name):
    send, receive = COLLECTIVES[name].buffers(case(), "in_place")
    assert send.untyped_storage().data_ptr() == receive.untyped_storage().data_ptr()


def test_in_place_parts_lie_where_torch_wants_them():
    send, receive = COLLECTIVES["all_gather"].buffers(case(), "in_place")
    assert send.data_ptr() == receive[6:].data_ptr() and send.numel() == 6 and receive.numel() == 24
    send, receive = COLLECTIVES["reduce_scatter"].buffers(case(), "in_place")
    assert receive.data_ptr() == send[6:].data_ptr()


@pytest.mark.parametrize("text, size", [("8", 8), ("64K", 65536), ("64k", 65536), ("16M", 2**24), ("16MiB", 2**24),
                                        ("1G", 2**30), ("512B", 512)])
def test_sizes_are_read_with_units(text, size):
    assert options.size(text) == size


@pytest.mark.parametrize("text", ["", "K", "many", "-8", "1.5M"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is no size"):
        options.size(text)


def test_sizes_go_up_by_the_factor_or_by_steps():
    assert options.sizes(options.parse(["all_reduce", "-b", "8", "-e", "600"])) == [8, 64, 512, 600]
    assert options.sizes(options.parse(["all_reduce", "-b", "8", "-e", "600", "-i", "300"])) == [8, 308, 600]
    assert options.sizes(options.parse(["all_reduce", "-b", "8", "-e", "512"])) == [8, 64, 512]
    assert options.sizes(options.parse(["barrier"])) == [0]


@pytest.mark.parametrize("more, sizes", [
    ([], [0, 4, 32, 64]), (["-d", "f8e4m3"], [0, 1, 8, 64]), (["-d", "float64"], [0, 8, 64]), (["-d", "all"], [0, 1, 8, 64]),
    (["-i", "40"], [0, 40, 64]), (["-f", "2"], [0, 4, 8, 16, 32, 64]), (["-e", "2"], [0, 2]), (["-e", "0"], [0])], ids=str)
def test_sizes_go_on_after_0_with_one_element(more, sizes):
    assert options.sizes(options.parse(["all_reduce", "-b", "0", "-e", "64", *more])) == sizes


def test_foreign_load_is_what_others_used_of_all_cores():
    assert machine.foreign(busy=3.0, capacity=4.0, own=1.0) == 0.5
    assert machine.foreign(busy=1.0, capacity=4.0, own=1.5) == 0.0
    assert machine.foreign(busy=0.01, capacity=0.02, own=0.0) is None


def block(**changes):
    fields = {"time_us": 12.5, "p99_us": 20.0, "algbw": 1.5, "busbw": 1.5, "wrong": 0}
    return {**fields, **changes}


def row(**changes):
    fields = {"size": 4096, "count": 1024, "type": "float", "redop": "sum", "root": -1, "out_of_place": None,
              "in_place": block(), "foreign": 0.25}
    return {**fields, **changes}


@pytest.mark.parametrize("reference", [None, "gloo"])
def test_rows_stand_under_their_headers(reference):
    text = output.line(row(in_place=block(reference_us=25.0, gain=2.0)), reference)
    _, names, units = output.header(reference)
    assert len(text) == len(names) and len(units) <= len(names)
    assert text.split() == (["4096", "1024", "float", "sum", "-1"] + ["N/A"] * 4 + ["12.50", "1.50", "1.50", "0"]
                            + ["20.00", "25"] + (["25.00", "2.00"] if reference else []))
    for value, name in (("4096", "size"), ("1024", "count"), ("float", "type"), ("sum", "redop")):
        assert text.index(value) + len(value) == names.index(name) + len(name)


def test_the_floor_stands_at_the_end_of_a_row():
    text = output.line(row(in_place=block(floor_us=5.0)), None, floor=True)
    _, names, _ = output.header(None, floor=True)
    assert len(text) == len(names) and names.split()[-2:] == ["floor", "%floor"]
    assert text.split()[-2:] == ["5.00", "40"]
    assert output.line(row(in_place=block(floor_us=None)), None, floor=True).split()[-2:] == ["-", "-"]


def test_the_floor_is_what_the_c_benchmark_measured_for_that_row(tmp_path):
    perf = tmp_path / "perf"
    perf.write_text("#!/bin/sh\necho \"$@\" > $(dirname $0)/asked\n"
                    "while [ $1 != -J ]; do shift; done\n"
                    'echo \'{"results": [{"out_of_place": null, "in_place": {"floor_us": 3.5}}]}\' > $2\n')
    perf.chmod(0o755)
    args = options.parse(["all_reduce", "--dirty"])
    assert floor.measure(floor.program(str(perf)), args, row(size=4096), 4, {0}) == {"out_of_place": None, "in_place": 3.5}
    asked = (tmp_path / "asked").read_text()
    assert "all_reduce -g 4 -b 4096 -e 4096" in asked and "--dirty" in asked and "--pin" not in asked
    with pytest.raises(SystemExit, match="build"):
        floor.program(str(tmp_path / "missing"))


def test_large_numbers_lose_decimals_before_columns_shift():
    assert output.number(1.234, 7) == "1.23"
    assert output.number(12345.67, 7) == "12345.7"
    assert output.number(123456.78, 7) == "123457"


def record(collective="all_reduce"):
    return {"config": {"collective": collective, "datatype": "float", "ranks": 2, "device": "cpu", "dirty": False,
                       "iters": 20, "backend": "hccl-like", "compare": "gloo"},
            "environment": {"processor": "a processor", "cores": 2, "torch": "2.13.0"},
            "results": [row(in_place=block(reference_us=25.0, gain=2.0)), row(size=2**24, in_place=block())]}


def test_markdown_has_a_row_for_each_size():
    lines = output.markdown(record()).strip().split("\n")
    assert lines[2] == "| size | type | hccl-like, us | p99, us | busbw, GB/s | gloo, us | gain |"
    assert lines[4] == "| 4 KiB | float | 12.5 | 20.0 | 1.50 | 25.0 | 2.0 x |"
    assert lines[5] == "| 16 MiB | float | 12.5 | 20.0 | 1.50 | - | - |"


def test_a_plot_shows_both_backends(tmp_path):
    pytest.importorskip("matplotlib")
    labels = [series[0] for series in plot.series(record())]
    assert labels == ["hccl-like: all_reduce, 2 x cpu", "gloo: all_reduce, 2 x cpu"]
    figure = plot.draw([record(), record("all_gather")], str(tmp_path / "all.png"))
    times = [label.get_text() for label in figure.axes[0].yaxis.get_ticklabels()]
    assert "20" in times and "1,000" not in times and not any("10^" in text or "mathdefault" in text for text in times), times
    assert not figure.axes[0].yaxis.get_minorticklocs().size
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")


def perf(*arguments):
    command = ["-m", "hccl_like", "bench", *map(str, arguments)]
    return fresh.run(command)


def test_a_run_over_gloo_checks_its_results_and_writes_its_files(tmp_path):
    done = perf("reduce_scatter", "--backend", "gloo", "--compare", "gloo", "-g", 2, "-b", 1000, "-e", 1000, "-n", 3,
                "-d", "bfloat16", "-J", tmp_path / "r.json", "--csv", tmp_path / "r.csv",
                "--markdown", tmp_path / "r.md")
    assert done.returncode == 0, done.stderr
    assert "# Out of bounds values : 0 OK" in done.stdout
    (result,) = json.loads((tmp_path / "r.json").read_text())["results"]
    assert (result["size"], result["count"], result["type"], result["redop"]) == (1000, 250, "bfloat16", "sum")
    assert result["in_place"]["wrong"] == 0 and result["out_of_place"]["gain"] > 0
    with open(tmp_path / "r.csv") as lines:
        (flat,) = csv.DictReader(lines)
    assert flat["in_place_wrong"] == "0"
    assert "| 1000 B | bfloat16 |" in (tmp_path / "r.md").read_text()


@pytest.mark.slow
def test_a_refused_type_is_told_and_fails_the_run():
    done = perf("all_reduce", "--backend", "gloo", "-b", 64, "-e", 64, "-n", 1, "-d", "f8e4m3")
    assert done.returncode == 1
    assert "# N/A: gloo: Invalid scalar type (f8e4m3 sum)" in done.stdout
