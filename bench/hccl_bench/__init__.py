"""The parts of the benchmarks that run through torch.distributed: see ../README.md."""
