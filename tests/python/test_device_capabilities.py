"""What a device offers through torch's own interfaces is found by trying, feature by feature."""

from ranks import run_ranks

FEATURES = {
    "copies",
    "offset_copies",
    "pinned_memory",
    "non_blocking_copies",
    "streams",
    "stream_waits",
    "events",
    "device_waits",
    "native_streams",
}


def capabilities(rank, size, listener):
    from hccl_like import _C

    listener.close()
    assert _C.device_capabilities("cpu") == []
    return _C.device_capabilities("sim:1")


def test_a_device_with_everything_has_every_feature(sim):
    (rows,) = run_ranks(capabilities, 1, group=False)
    assert {name for name, *_ in rows} == FEATURES
    for name, present, reason, consequence in rows:
        assert present, f"{name}: {reason}"
        assert reason and consequence
