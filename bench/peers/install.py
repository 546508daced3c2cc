#!/usr/bin/env python3
"""install.py [NAME...]: fetches other libraries' packages into build/peers, each into a folder of its own, and builds the
programs that measure them. compare.py does it too, when a library is missing."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from libraries import LIBRARIES, ROOT, install  # noqa: E402


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(LIBRARIES), metavar="NAME", help=", ".join(LIBRARIES))
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "peers")
    args = parser.parse_args(argv)
    missing = 0
    for name in args.names:
        reason = install(LIBRARIES[name], args.into)
        missing += reason is not None
        print(f"{LIBRARIES[name].title}: {reason or 'ready'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
