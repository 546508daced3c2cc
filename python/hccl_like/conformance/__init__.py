"""PyTorch's own distributed tests, run out of the installed torch wheel against any backend and any device.

``python -m hccl_like.conformance --backend NAME --device KIND``; docs/conformance.md tells the rest. Nothing here is
imported by ``import hccl_like``, nothing here knows a particular backend or device, and torch's files stay as they are:
what its tests assume about names and about CUDA is patched in the runner's own processes.

Four kinds of process, each the parent of the next:

* the command (``__main__``) reads options and reports; it never imports torch;
* a zygote for each suite imports torch and the suite's classes once, with that suite's patches;
* a test's own process is forked from the zygote: it runs the test case's setUp, waits, judges, and can be killed whole;
* the ranks of the test are forked from that one.
"""
