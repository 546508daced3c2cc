"""Faults on purpose: what becomes of a job's other ranks. See bench/README.md, "Faults"."""
