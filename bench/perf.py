#!/usr/bin/env python3
"""perf.py COLLECTIVE [flags]: measures one collective through torch.distributed. See README.md."""

import sys

from hccl_bench.launch import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
