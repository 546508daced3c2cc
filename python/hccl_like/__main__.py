"""``python -m hccl_like`` is the command ``hccl-like``."""

import sys

from hccl_like.cli import main

sys.exit(main())
