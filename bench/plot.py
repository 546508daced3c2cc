#!/usr/bin/env python3
"""plot.py -o OUT.png RESULT.json...: draws the results of one run or of several into one picture."""

import argparse
import json
import sys
from pathlib import Path

from hccl_bench.plot import draw


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", help="files that -J wrote")
    parser.add_argument("-o", "--output", default="bench.png")
    args = parser.parse_args(argv)
    draw([json.loads(Path(name).read_text()) for name in args.results], args.output)
    print(f"wrote {Path(args.output).resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
