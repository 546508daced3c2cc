"""Discrete mode: the host cannot reach device memory."""

import pytest

# The address where the device's kernels reach the first memory of the device.
KERNEL_ADDRESS = """
import ctypes, torch
tensor = torch.ones(1000, device="sim") + 1
torch.sim.synchronize()
ours = [line for line in open("/proc/self/maps") if "memfd:torch_sim" in line]
address = max(int(line.split("-")[0], 16) for line in ours)
"""


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"TORCH_SIM_DISCRETE": "1"}, "TORCH_SIM_DISCRETE=1"),
        ({"TORCH_SIM_DISCRETE": "1", "TORCH_SIM_STRICT": "7"}, "TORCH_SIM_STRICT=7"),
        ({"TORCH_SIM_DISCRETE": "0"}, None),
    ],
)
def test_the_host_cannot_reach_device_memory(python, tmp_path, settings, told):
    report = tmp_path / "report"
    environment = {"TORCH_SIM_STRICT": "0", "TORCH_SIM_STRICT_REPORT": str(report), **settings}
    program = KERNEL_ADDRESS + "ctypes.string_at(address, 4)"
    output = python(program, returncode=-11 if told else 0, **environment)
    if told:
        _, access = report.read_text().splitlines()
        assert access.startswith("sim: the host touched memory of sim:0 at 0x") and told in access
        assert access in output and "ctypes" in output
    else:
        assert output == "" and not report.exists()


TRAINING = """
import torch

def trained(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.randn(5, 64, 20)
    for batch in data:
        loss = model(batch.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [p.detach().cpu() for p in model.parameters()] + [loss.detach().cpu()]

wanted = trained("cpu")
for device in ("sim:0", "sim:1"):
    assert all(torch.equal(a, b) for a, b in zip(trained(device), wanted))

a = torch.arange(12.0, device="sim").view(3, 4)
b = a.t().contiguous().to("sim:1")
b[1:] *= 2
side = torch.sim.Stream()
side.wait_stream(torch.sim.current_stream())
with torch.sim.stream(side):
    a.resize_(5, 4)[3:].fill_(7)
torch.sim.current_stream().wait_stream(side)
assert a[:, 0].tolist() == [0, 4, 8, 7, 7] and b[:, 2].tolist() == [8, 18, 20, 22]
pinned = torch.ones(100_000).pin_memory()
assert pinned.to("sim", non_blocking=True).sum().item() == 100_000
assert torch.eye(9, device="sim").to_sparse().to_dense().trace().item() == 9
"""


@pytest.mark.parametrize("strict", ["0", "3"])
def test_tensors_operators_and_training_work(python, strict):
    python(TRAINING, TORCH_SIM_DISCRETE="1", TORCH_SIM_STRICT=strict)


def test_the_plugin_maps_nothing_for_the_host(python):
    python(
        f"""
        import sys
        sys.path.insert(0, {__file__.rpartition("/")[0]!r})
        from test_plugin import *

        api = table()
        assert api.init() == OK and not api.map and not api.unmap
        info, where, size = Info(size=c.sizeof(Info)), c.c_void_p(), c.c_size_t()
        assert api.device_info(0, c.byref(info)) == OK and info.caps == ASYNC_COPY
        x = torch.arange(6, dtype=torch.int32, device="sim")
        torch.sim.synchronize()
        handle, offset = export(api, x)
        assert api.ipc_open(0, c.byref(handle), c.byref(where), c.byref(size)) == UNSUPPORTED
        assert b"TORCH_SIM_DISCRETE" in api.last_error() and b"peer_open" in api.last_error()
        assert api.ipc_close(0, None) == INVALID
        assert api.peer_open(0, c.byref(handle), c.byref(where), c.byref(size)) == OK
        mine, read = torch.zeros(6, dtype=torch.int32, device="sim"), (c.c_int32 * 6)()
        torch.sim.synchronize()
        assert api.copy_d2d(0, ref(mine), Ref(where.value, offset), 24, 0) == OK
        assert api.reduce(0, ref(mine), Ref(where.value, offset), 6, 8, 0, 0) == OK
        assert api.copy_d2h(0, read, ref(mine), 24, 0) == OK
        assert list(read) == [0, 2, 4, 6, 8, 10]
        """,
        TORCH_SIM_DISCRETE="1",
    )


@pytest.mark.parametrize(
    "name, value",
    [
        ("TORCH_SIM_DISCRETE", "yes"),
        ("TORCH_SIM_LINK_GBPS", "fast"),
        ("TORCH_SIM_HOST_GBPS", "0"),
        ("TORCH_SIM_KERNEL_GBPS", "-1"),
    ],
)
def test_settings_that_make_no_sense_are_told(python, name, value):
    told = python("import torch; torch.ones(1, device='sim')", returncode=1, **{name: value})
    assert f"ValueError: {name}={value} must be " in told
