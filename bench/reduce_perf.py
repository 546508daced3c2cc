#!/usr/bin/env python3
"""nccl-tests' reduce_perf through torch.distributed: the same as `perf.py reduce`."""

import sys

from hccl_bench.launch import main

if __name__ == "__main__":
    sys.exit(main(["reduce", *sys.argv[1:]]))
