"""One device: its plugin, and what torch's interfaces offer of it. Asked in a process of its own, since it may crash or hang."""

from __future__ import annotations

import json
import subprocess
import sys

from hccl_like.doctor._findings import Findings

_LIMIT = 60.0
# How describe_device() puts it, and the entries by which large calls go in slices there.
_STAGED_IN_ORDER = "memory copied to and from the host, calls in stream order"
_COST_OF_PARTS = {True: "cheap", False: "dear", None: "not measured"}
_SLICES_IN_ORDER = ("stream_create", "event_record")


def examine(name: str, findings: Findings) -> bool:
    """Adds what there is to say about a device; whether it can be used."""
    try:
        asked = subprocess.run([sys.executable, "-m", "hccl_like.doctor._device", name],
                               capture_output=True, text=True, timeout=_LIMIT)  # fmt: skip
    except subprocess.TimeoutExpired:
        findings.problems.append(f"the device '{name}' hangs: it did not say what it can do within {_LIMIT:.0f} s")
        return False
    try:
        told = json.loads(asked.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last = (asked.stderr.strip().splitlines() or [""])[-1]
        how = f"crashed with signal {-asked.returncode}" if asked.returncode < 0 else f"ended with code {asked.returncode}"
        findings.problems.append(f"the process that asked the device '{name}' what it can do {how}: {last}")
        return False
    if "problem" in told:
        findings.problems.append(f"the device '{name}': {told['problem']}")
        return False
    facts = [("plugin", told["plugin"]), ("reached by", told["reached"]), ("devices", str(told["devices"]))]
    if told["parts"]:
        cheap, measured = told["parts"]
        facts.append(("copies of parts", f"{_COST_OF_PARTS[cheap]}: {measured}"))
        if cheap is False:
            findings.hints.append(
                f"to copy a part of a block of memory of '{name}' takes much of the time of copying all of it: large calls are copied "
                "at once where that is quicker, and copies do not overlap with the network; docs/devices.md, 'Large calls'"
            )
    findings.add(f"device {name}", facts)
    if told["offers"]:
        findings.add(f"what the plugin of {name} offers", [
            (entries, "yes" if present else "no", consequence) for entries, present, consequence in told["offers"]
        ], ("entries", "", "what follows"))  # fmt: skip
    findings.add(f"what torch's interfaces offer of {name}", [
        (feature, "yes" if present else "no", consequence, reason) for feature, present, reason, consequence in told["capabilities"]
    ], ("feature", "", "what follows", "how it is known"))  # fmt: skip
    if not told["offers"]:
        findings.hints.append(
            f"there is no plugin for '{name}': everything works, by copies; docs/plugin-guide.md says what one would add"
        )
    lacking = [entries for entries, present, _ in told["offers"] if not present and entries.startswith(_SLICES_IN_ORDER)]
    if lacking and told["reached"] == _STAGED_IN_ORDER:
        findings.hints.append(
            f"large calls on '{name}' go in one piece, and may take longer than without its plugin, which lacks "
            f"{' and '.join(lacking)}; docs/plugin-guide.md, 'Stream order without map'"
        )
    return True


def _ask(name: str) -> dict:
    import torch

    from hccl_like import _accelerator, _extension, _imports, _plugins

    _imports.ready()
    extension = _extension.load()
    try:
        device = torch.device(name, 0)
        count = _accelerator.device_count(name)
        if count == 0:
            return {"problem": "torch knows its name, but there is none on this host"}
        torch.empty(1, device=device)  # what else it can is found out below
    except (RuntimeError, AttributeError) as error:
        why = str(error).splitlines()[0]
        return {"problem": f"torch cannot use it: {why} (--import names a package that torch does not load by itself)"}
    found = _plugins.found().get(name)
    if isinstance(found, Exception):
        return {"problem": f"its plugin cannot be found: {type(found).__name__}: {found}"}
    _plugins.register(extension)
    try:
        reached = extension.describe_device(device)
        offers = extension.device_plugin_offers(device)
        capabilities = extension.device_capabilities(device)
        parts = extension.device_part_copies(device)
    except RuntimeError as error:
        return {"problem": str(error).splitlines()[0]}
    return {
        "plugin": found or f"none: {_why_none(name)}",
        "offers": offers,
        "reached": reached,
        "devices": count,
        "capabilities": capabilities,
        "parts": parts,
    }


def _why_none(name: str) -> str:
    from hccl_like import _plugins

    return f"{_plugins.SETTING} says so" if name in _plugins.packaged() else "no installed package has one"


if __name__ == "__main__":
    print(json.dumps(_ask(sys.argv[1])))
