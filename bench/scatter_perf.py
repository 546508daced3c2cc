#!/usr/bin/env python3
"""nccl-tests' scatter_perf through torch.distributed: the same as `perf.py scatter`."""

import sys

from hccl_bench.launch import main

if __name__ == "__main__":
    sys.exit(main(["scatter", *sys.argv[1:]]))
