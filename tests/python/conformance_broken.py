"""A suite that cannot be loaded."""


def load(backend, device, world_size):
    raise RuntimeError("no such thing here")
