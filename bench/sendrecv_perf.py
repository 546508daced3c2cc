#!/usr/bin/env python3
"""nccl-tests' sendrecv_perf through torch.distributed: the same as `perf.py sendrecv`."""

import sys

from hccl_bench.launch import main

if __name__ == "__main__":
    sys.exit(main(["sendrecv", *sys.argv[1:]]))
