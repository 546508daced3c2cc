#!/usr/bin/env python3
"""nccl-tests' broadcast_perf through torch.distributed: the same as `perf.py broadcast`."""

import sys

from hccl_bench.launch import main

if __name__ == "__main__":
    sys.exit(main(["broadcast", *sys.argv[1:]]))
