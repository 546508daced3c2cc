#!/usr/bin/env python3
"""nccl-tests' alltoall_perf through torch.distributed: the same as `perf.py alltoall`."""

import sys

from hccl_bench.launch import main

if __name__ == "__main__":
    sys.exit(main(["alltoall", *sys.argv[1:]]))
