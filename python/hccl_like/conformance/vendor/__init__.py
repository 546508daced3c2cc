"""What a device offers of PyTorch's device interfaces, what of that works, and what follows from it.

``python -m hccl_like.conformance --device D --what device``. Every point is a real test in a process of its own with a
deadline, so that a crash or a hang becomes a row. Nothing here knows a particular device, and nothing needs the C++
extension: a vendor can run it against any torch that his device works with.
"""
