"""Calls functions with a module: at once if the module is there, else right after its first import.

Waiting costs a look into a small dict for each module that is imported, until every awaited module
was found. The module's own loader runs it, unchanged; the functions come after.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder

_waiting: dict[str, list[Callable]] = {}


def call(module: str, function: Callable) -> None:
    """Calls ``function(module)`` once that module is imported; the import raises what it raises."""
    if module in sys.modules:
        function(sys.modules[module])
        return
    _waiting.setdefault(module, []).append(function)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder(MetaPathFinder):
    """Lets the other finders find the awaited modules, and is called back after these have run.

    There is one of it: two would ask each other without end.
    """

    def find_spec(self, name, path, target=None):
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)  # an old finder may have none
            if finder is not self and find is not None and (spec := find(name, path, target)):
                self._watch(name, spec.loader)
                return spec
        return None

    def _watch(self, name: str, loader) -> None:
        """The loader is this module's own: for this one run its method is replaced."""
        run = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            run(module)
            for function in _waiting.pop(name, ()):
                function(module)
            if not _waiting and self in sys.meta_path:
                sys.meta_path.remove(self)

        loader.exec_module = exec_module


_finder = _Finder()
