"""All checks, in the order in which they are run and shown."""

from hccl_like.conformance.vendor import _interfaces, _streams, _copies, _programs  # noqa: F401, I001
