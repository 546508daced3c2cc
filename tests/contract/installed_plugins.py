"""Puts every device plugin that is installed for this Python to its contract: installed_plugins.py PROGRAM.

Ends with 77 if there is none to try. Plugins find torch's libraries as they do beside torch.
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys

NOTHING = 77


def main(program: str) -> int:
    torch = importlib.util.find_spec("torch")
    if torch is None:
        return NOTHING
    libraries = os.path.join(torch.submodule_search_locations[0], "lib")
    environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join([libraries, os.environ.get("LD_LIBRARY_PATH", "")])}
    results = []
    for entry in importlib.metadata.entry_points(group="hccl_like.devices"):
        print(f"-- {entry.name}: {entry.value}", flush=True)
        path = entry.load()
        results.append(subprocess.run([program, os.fspath(path())], env=environment).returncode)
    tried = [result for result in results if result != NOTHING]
    return max(map(abs, tried), default=NOTHING)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
