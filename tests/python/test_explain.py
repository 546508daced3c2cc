"""hccl-like explain: the rounds of an algorithm as text and as a picture, and its slices on the cost model's clock."""

import json
import re
import xml.etree.ElementTree as xml

import pytest

from hccl_like import _extension, _pictures, cli, tune

RING = """The rounds of all_reduce:ring, 2 ranks:
rank 0
0: send in[0]->1  recv_reduce in[1]+<-1 to out[1]
1: send out[1]->1  recv out[0]<-1
rank 1
0: send in[1]->0  recv_reduce in[0]+<-0 to out[0]
1: send out[0]->0  recv out[1]<-0
"""


def labels(path):
    """The texts of a picture, which must be well-formed."""
    return [element.text for element in xml.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")]


def test_the_rounds_of_an_algorithm_are_printed(capsys):
    assert cli.main(["explain", "all_reduce", "1M", "2", "--hosts", "2", "--algorithm", "ring", "--rounds"]) == 0
    assert capsys.readouterr().out.endswith(RING)


def test_the_first_algorithm_is_shown_if_none_is_named(capsys):
    assert cli.main(["explain", "broadcast", "8", "4", "--hosts", "4", "--rounds"]) == 0
    told = capsys.readouterr().out
    first = re.search(r"\n  algorithm .*\n  (\w+) ", told)[1]
    assert f"The rounds of broadcast:{first}, 4 ranks:\nrank 0\n0: send in[0]->" in told


def test_the_picture_of_rounds_has_a_box_for_each_step(tmp_path, capsys):
    picture = tmp_path / "ring.svg"
    assert cli.main(["explain", "all_reduce", "1M", "2", "--hosts", "2", "--algorithm", "ring", "--svg", str(picture)]) == 0
    assert capsys.readouterr().out.endswith(f"written: {picture}\n")
    assert labels(picture) == [
        "all_reduce:ring, 2 ranks", "rank 0", "rank 1",
        "round 0", "send in[0] to 1", "send in[1] to 0", "out[1] = in[1] + received from 1", "out[0] = in[0] + received from 0",
        "round 1", "send out[1] to 1", "send out[0] to 0", "out[0] = received from 1", "out[1] = received from 0"]  # fmt: skip


def test_the_timeline_has_every_slice_and_round(tmp_path, capsys):
    picture = tmp_path / "slices.svg"
    assert cli.main(["explain", "all_reduce", "16M", "2", "--hosts", "2", "--algorithm", "ring", "--timeline", str(picture)]) == 0
    name, slices, texts, uses = _extension.load().plan("all_reduce", 16 << 20, [0, 1], algorithm="ring")
    assert (name, slices, len(texts)) == ("ring", 4, 2)
    # Each rank sends and receives once in each of two rounds of each slice.
    assert sorted(use[:5] for use in uses) == sorted((rank, out, 1 - rank, slice_, round_) for rank in (0, 1) for out in (False, True)
                                                     for slice_ in range(4) for round_ in (0, 1))
    assert all(0 <= begin < end for *_, begin, end in uses)
    shown = labels(picture)
    assert shown[:5] == ["all_reduce:ring, 2 ranks on 2 hosts: 16777216 bytes in 4 slices; the numbers are rounds",
                         "slice 0", "slice 1", "slice 2", "slice 3"]
    assert shown.count("0") == shown.count("1") == 16 and shown[-1].endswith(" us")


def test_messages_of_a_port_follow_each_other():
    uses = _extension.load().plan("all_reduce", 8 << 20, [0, 1, 2, 3], algorithm="direct")[3]
    for rank in range(4):
        for out in (False, True):
            times = sorted(use[5:] for use in uses if use[:2] == (rank, out))
            assert all(end <= begin + 1e-6 for (_, end), (begin, _) in zip(times, times[1:]))


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "barrier"])
def test_every_algorithm_has_a_picture(collective, tmp_path):
    """Every arrow has both ends, or the picture raises."""
    extension = _extension.load()
    for layout in ([0, 0, 0], [0, 1, 2, 3], [0, 0, 1, 1]):
        for name, _, _ in extension.explain(collective, 4096, layout):
            texts = extension.plan(collective, 4096, layout, algorithm=name)[2]
            picture = _pictures.schedule_svg(name, texts)
            sends = sum(text.count("send ") for text in texts)
            assert picture.count("marker-end") == sends and xml.fromstring(picture) is not None


def test_slices_between_hosts_are_counted_as_calls_do(monkeypatch):
    monkeypatch.setenv("HCCL_LIKE_REMOTE_SLICE_BYTES", "2M")
    monkeypatch.setenv("HCCL_LIKE_SLICE_BYTES", "8M")
    slices = {hosts: _extension.load().plan("all_reduce", 16 << 20, [rank * hosts // 2 for rank in range(2)], algorithm="ring")[1] for hosts in (1, 2)}
    assert slices == {1: 2, 2: 8}


@pytest.mark.parametrize("arguments, told", [
    (["send", "8", "2", "--rounds"], "one rank sends and one receives: there is no schedule of all ranks"),
    (["all_reduce", "8", "2", "--algorithm", "rings", "--rounds"], 'there is no all_reduce algorithm "rings"; use one of: '),
    (["all_reduce", "8", "64", "--hosts", "64", "--svg", "x.svg"], "a picture shows up to 32 ranks; --rounds prints more"),
    (["all_reduce", "2G", "8", "--hosts", "8", "--algorithm", "ring", "--timeline", "x.svg"], "more than a picture shows; ask for fewer bytes or ranks"),
    (["all_reduce", "8", "2", "--hosts", "2", "--svg", "/no/such/folder/x.svg"], "No such file or directory")])  # fmt: skip
def test_what_cannot_be_shown_says_why(arguments, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["explain", *arguments]) == 1
    assert told in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_the_algorithm_of_one_s_own_that_the_settings_name_is_used(monkeypatch, capsys):
    import own

    monkeypatch.setenv("HCCL_LIKE_ALGO", f"all_reduce:{own.my_ring.name};broadcast:binomial")
    assert cli.main(["explain", "all_reduce", "64K", "4", "--hosts", "2", "--rounds"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"\n  algorithm .*\n  (\w+) ", told)[1] == "my_ring"
    assert "The rounds of all_reduce:my_ring, 4 ranks:\nrank 0\n0: send in[0]->1" in told
    monkeypatch.setenv("HCCL_LIKE_ALGO", "all_reduce:nobodys")
    assert cli.main(["explain", "all_reduce", "64K", "4", "--hosts", "2"]) == 1
    assert 'there is no all_reduce algorithm "nobodys"' in capsys.readouterr().err


def test_what_tune_measured_stands_beside_the_estimate(tmp_path, monkeypatch, capsys):
    rows = [{"bytes": size, "seconds": {"ring": size * 1e-9, "direct": 2e-3}, "best": "ring"} for size in (4096, 65536)]
    tune.write(str(tmp_path / "profile.json"), {"layout": "2x2", "collectives": {"all_reduce": rows}})
    monkeypatch.setenv("HCCL_LIKE_PROFILE", str(tmp_path / "profile.json"))
    assert cli.main(["explain", "all_reduce", "50K", "4", "--hosts", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"the profile {tmp_path}/profile.json is used: it chooses ring, measured at 65536 bytes"
    assert lines[2].endswith("measured us, 65536 bytes")
    shown = {line.split()[0]: line.split()[-1] for line in lines[3:] if line.strip()}
    assert (shown["ring"], shown["direct"], shown["rabenseifner"]) == ("65.54", "2000.00", "-")
    assert next(iter(shown)) == "ring", "the profile decides"
    assert cli.main(["explain", "all_reduce", "50K", "8", "--hosts", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"the profile {tmp_path}/profile.json has nothing for this call on this layout: it is not used\n")
    assert "measured us" not in said


def test_json_has_the_way_and_the_times(tmp_path, monkeypatch, capsys):
    assert cli.main(["explain", "all_reduce", "64K", "4", "--hosts", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["way"] == "messages" and told["measured_bytes"] is None
    assert {"name", "slices", "estimate_us", "measured_us"} == set(told["algorithms"][0])


@pytest.mark.parametrize("format, bytes_", [("mx8", 33 << 15), ("mx4", 17 << 15), ("bf16", 64 << 15)])
def test_compressed_calls_have_fewer_bytes_and_less_time(format, bytes_, capsys, monkeypatch):
    monkeypatch.delenv("HCCL_LIKE_COMPRESSION", raising=False)
    call = ["explain", "all_reduce", "4M", "4", "--hosts", "2"]
    assert cli.main([*call, "--algorithm", "rails_direct", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["compression"] is None
    monkeypatch.setenv("HCCL_LIKE_COMPRESSION", format)
    assert cli.main([*call, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    # Each host sends half of its sum, and half of the result: 4 MiB of floats, 32 in 128 bytes.
    assert told["compression"] == {"format": format, "bytes_between_hosts": bytes_, "uncompressed_bytes": 4 << 20}
    (row,) = told["algorithms"]  # a sum that is compressed has one
    assert row["name"] == "rails_direct"
    assert row["estimate_us"] < next(one["estimate_us"] for one in plain["algorithms"] if one["name"] == "rails_direct")
    assert cli.main(call) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"compressed with {format}: {bytes_} bytes leave a host instead of 4194304. ")


@pytest.mark.parametrize("call", [["all_reduce", "4M", "4"], ["all_reduce", "64K", "4", "--hosts", "2"], ["broadcast", "4M", "4", "--hosts", "2"]])
def test_calls_that_are_not_compressed_say_so(call, capsys, monkeypatch):
    monkeypatch.setenv("HCCL_LIKE_COMPRESSION", "none")  # which is put back after --compression
    assert cli.main(["explain", *call, "--compression", "mx8"]) == 0
    assert capsys.readouterr().out.startswith(
        "not compressed with mx8, which is for all_reduce, reduce_scatter and all_gather between hosts, of 64 KiB or more for each rank of a host")


@pytest.mark.parametrize("more, told", [
    (["--compression", "zip"], "zip"), (["--compression", "mx8", "--algorithm", "ring", "--rounds"], "a compressed all_reduce is made by rails_direct, not by ring")])  # fmt: skip
def test_a_compression_that_cannot_be_is_an_error(more, told, capsys, monkeypatch):
    monkeypatch.setenv("HCCL_LIKE_COMPRESSION", "none")
    assert cli.main(["explain", "all_reduce", "4M", "4", "--hosts", "2", *more]) == 1
    assert told in capsys.readouterr().err


def test_a_text_that_is_no_schedule_is_refused():
    with pytest.raises(ValueError, match="this is no step of a schedule: jump in.0."):
        _pictures.rounds_of("0: jump in[0]")
