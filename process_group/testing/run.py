"""run.py LIBRARY [GoogleTest's options]: the C++ tests of process_group/, which need torch's libraries."""

import ctypes
import os
import sys

# The tests have an accelerator of their own, and torch room for one.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch  # noqa: E402, F401

arguments = [argument.encode() for argument in sys.argv[1:]]
run = ctypes.CDLL(sys.argv[1]).hccl_like_process_group_tests
sys.exit(run(len(arguments), (ctypes.c_char_p * (len(arguments) + 1))(*arguments, None)))
