#!/usr/bin/env python3
"""nccl-tests' barrier_perf through torch.distributed: the same as `perf.py barrier`."""

import sys

from hccl_bench.launch import main

if __name__ == "__main__":
    sys.exit(main(["barrier", *sys.argv[1:]]))
