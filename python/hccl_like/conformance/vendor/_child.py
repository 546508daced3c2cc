"""One check in a fresh interpreter: ``_child ID DEVICE PIPE``."""

import os
import sys

from hccl_like.conformance.vendor import _checks, _run  # noqa: F401
from hccl_like.conformance.vendor._check import CHECKS

if __name__ == "__main__":
    id, device, pipe = sys.argv[1:]
    _run.answer(next(check for check in CHECKS if check.id == id), device, int(pipe))
    sys.stdout.flush()
    os._exit(0)
