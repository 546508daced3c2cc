"""The simulator as a package without an entry point brings a device, with a Python module that answers nothing of what torch asks."""

import sys

import torch
import torch_sim


class Bare:
    pass


torch_sim.enable()
torch.sim = sys.modules["torch.sim"] = Bare
