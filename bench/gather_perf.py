#!/usr/bin/env python3
"""nccl-tests' gather_perf through torch.distributed: the same as `perf.py gather`."""

import sys

from hccl_bench.launch import main

if __name__ == "__main__":
    sys.exit(main(["gather", *sys.argv[1:]]))
