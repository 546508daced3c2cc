#!/usr/bin/env python3
"""nccl-tests' reduce_scatter_perf through torch.distributed: the same as `perf.py reduce_scatter`."""

import sys

from hccl_bench.launch import main

if __name__ == "__main__":
    sys.exit(main(["reduce_scatter", *sys.argv[1:]]))
