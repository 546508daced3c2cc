#!/usr/bin/env python3
"""nccl-tests' all_reduce_perf through torch.distributed: the same as `perf.py all_reduce`."""

import sys

from hccl_bench.launch import main

if __name__ == "__main__":
    sys.exit(main(["all_reduce", *sys.argv[1:]]))
