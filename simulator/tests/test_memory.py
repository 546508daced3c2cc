"""Device memory: protected from the host, cached, reused in the order of streams, bounded."""

import signal
import weakref

import pytest
import torch

MIB = 1 << 20


def test_a_host_access_to_device_memory_faults(python):
    python(
        """
        import ctypes, torch
        x = torch.ones(3, device="sim")
        ctypes.string_at(x.data_ptr(), 4)
        """,
        returncode=-signal.SIGSEGV,
    )


def test_a_host_access_to_the_middle_of_a_large_tensor_faults(python):
    python(
        """
        import ctypes, torch
        x = torch.ones(30 << 20, dtype=torch.uint8, device="sim")
        ctypes.memset(x.data_ptr() + (17 << 20), 0, 1)
        """,
        returncode=-signal.SIGSEGV,
    )


def test_statistics_count_bytes_exactly():
    torch.sim.empty_cache()
    before = torch.sim.memory_allocated()
    torch.sim.reset_peak_memory_stats()
    x = torch.empty(1000, device="sim")  # 4000 bytes, in blocks of 512
    y = torch.empty(3 * MIB, dtype=torch.uint8, device="sim")
    assert torch.sim.memory_allocated() - before == 4096 + 3 * MIB
    del y
    assert torch.sim.memory_allocated() - before == 4096
    assert torch.sim.max_memory_allocated() - before == 4096 + 3 * MIB
    stats = torch.sim.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.sim.memory_allocated()
    assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"]
    del x
    assert torch.sim.memory_allocated() == before


def test_empty_cache_gives_everything_back():
    torch.sim.set_device(3)
    x = torch.empty(100 * MIB, dtype=torch.uint8, device="sim")
    assert torch.sim.memory_reserved() == 100 * MIB
    free, total = torch.sim.mem_get_info()
    assert free <= total - 100 * MIB
    del x
    assert torch.sim.memory_reserved() == 100 * MIB
    torch.sim.empty_cache()
    assert torch.sim.memory_reserved() == 0


def test_small_blocks_share_segments_and_join_again():
    torch.sim.set_device(4)
    many = [torch.empty(1 + 100 * i, device="sim") for i in range(50)]
    assert len({x.data_ptr() for x in many}) == 50
    assert torch.sim.memory_reserved() == 2 * MIB
    del many[::2]
    del many
    whole = torch.empty(MIB, dtype=torch.uint8, device="sim")
    assert torch.sim.memory_reserved() == 2 * MIB
    assert torch.sim.memory_stats()["inactive_split_bytes.all.current"] == MIB
    del whole
    assert torch.sim.memory_stats()["inactive_split_bytes.all.current"] == 0


def test_a_full_device_is_a_clear_error_and_the_device_goes_on(python):
    output = python(
        """
        import torch
        x = torch.ones(100 << 20, dtype=torch.uint8, device="sim")
        try:
            torch.empty(100 << 20, dtype=torch.uint8, device="sim")
        except torch.OutOfMemoryError as error:
            print(error)
        del x
        print(torch.ones(120 << 20, dtype=torch.uint8, device="sim").amin().item())
        """,
        TORCH_SIM_MEMORY=str(128 << 20),
    )
    assert "device 0 has 28 of 128 MiB left, 100 MiB are asked for" in output
    assert output.splitlines()[-1] == "1"


def test_more_than_the_host_has_is_an_out_of_memory_error():
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(200 << 30, dtype=torch.uint8, device="sim")


def test_a_freed_block_is_reused_by_its_stream_only():
    side = torch.sim.Stream()
    with torch.sim.stream(side):
        x = torch.empty(5000, device="sim")
        place = x.data_ptr()
        del x
    assert torch.empty(5000, device="sim").data_ptr() != place
    with torch.sim.stream(side):
        assert torch.empty(5000, device="sim").data_ptr() == place


def test_record_stream_keeps_a_freed_block_until_that_stream_has_passed(gate):
    side = torch.sim.Stream()
    x = torch.empty(7777, device="sim")
    place = x.data_ptr()
    gate.close(side)
    x.record_stream(side)
    del x
    while_used = torch.empty(7777, device="sim")
    assert while_used.data_ptr() != place
    gate.open()
    side.synchronize()
    assert torch.empty(7777, device="sim").data_ptr() == place


def test_memory_freed_early_is_still_right_for_queued_work(gate):
    pinned = torch.empty(100_000, pin_memory=True)
    x = torch.full((100_000,), 7.0, device="sim")
    gate.close()
    pinned.copy_(x, non_blocking=True)
    place = x.data_ptr()
    del x
    y = torch.full((100_000,), 9.0, device="sim")  # in the same place, behind the copy
    assert y.data_ptr() == place
    gate.open()
    torch.sim.synchronize()
    assert torch.equal(pinned, torch.full((100_000,), 7.0))
    assert torch.equal(y.cpu(), torch.full((100_000,), 9.0))


def test_results_of_host_kernels_are_device_memory_and_go_with_their_tensor():
    before = torch.sim.memory_allocated()
    x = torch.tensor([1, 0, 2, 0, 3], device="sim")
    found = x.nonzero()
    assert found.device == torch.device("sim:0")
    assert found.flatten().tolist() == [0, 2, 4]
    assert torch.sim.memory_allocated() - before == 1024
    alive = weakref.ref(found.untyped_storage())
    del x, found
    assert torch.sim.memory_allocated() == before
    del alive


def test_storages_can_be_emptied_and_filled_again():
    x = torch.arange(10.0, device="sim")
    before = torch.sim.memory_allocated()
    x.untyped_storage().resize_(0)
    assert torch.sim.memory_allocated() == before - 512
    x.untyped_storage().resize_(40)
    x.fill_(3)
    assert x.tolist() == [3.0] * 10


def test_resize_keeps_what_was_there():
    x = torch.arange(5, device="sim")
    x.resize_(2000)
    assert x[:5].tolist() == [0, 1, 2, 3, 4]
    x.resize_(2, 2)
    assert x.tolist() == [[0, 1], [2, 3]]


def test_the_accelerator_interface_agrees():
    x = torch.empty(123, device="sim")
    assert torch.accelerator.current_accelerator() == torch.device("sim")
    assert torch.accelerator.memory_allocated() == torch.sim.memory_allocated()
    assert torch.accelerator.device_count() == torch.sim.device_count()
    torch.accelerator.empty_cache()
    del x


def test_a_summary_to_print():
    x = torch.ones(1000, device="sim:4")
    lines = torch.sim.memory_summary(4).splitlines()
    assert lines[0] == "memory of sim:4, bytes" and lines[2].split()[0] == "allocated"
    assert int(lines[2].split()[1].replace(",", "")) >= x.nbytes
