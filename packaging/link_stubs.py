#!/usr/bin/env python3
"""Makes stand-ins for this system's libraries that show no symbol newer than a given glibc and libstdc++.

    packaging/link_stubs.py FOLDER    writes them to FOLDER and prints the options for the linker; CXX is the compiler, g++ if unset

A program that is linked with them asks for the old version of each symbol, which newer libraries still have. What is too new to be
there is taken from libstdc++.a, or from compatibility.c, or is an error of the linker. The versions are those that the policy
manylinux_2_28 allows (https://peps.python.org/pep-0600/).
"""

import os
import re
import subprocess
import sys
from pathlib import Path

NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
LIBRARIES = ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"]
# glibc before 2.34 has some functions in these; a program that names them finds the functions there, and newer systems still have the files.
EMPTY = ["libpthread.so.0", "libdl.so.2", "librt.so.1"]
# A line of readelf: value, size, type, binding, visibility, section, name.
SYMBOL = re.compile(r"^\s*\d+: [0-9a-f]+\s+(\S+) (FUNC|OBJECT|TLS|IFUNC)\s+(GLOBAL|WEAK|UNIQUE)\s+DEFAULT\s+(?:\d+|ABS)\s+([^@\s]+)@@?(\S+)$")


def ask_compiler(*arguments):
    return subprocess.run([os.environ.get("CXX", "g++"), *arguments], check=True, capture_output=True, text=True).stdout.strip()


def version_of(label):
    """("GLIBC", (2, 28)) of "GLIBC_2.28"; None of a label without numbers, as GLIBC_PRIVATE."""
    family, _, numbers = label.rpartition("_")
    return (family, tuple(map(int, numbers.split(".")))) if re.fullmatch(r"[\d.]+", numbers) else None


def symbols(library):
    """(name, type, size, version label) of all that the library shows: of several versions the newest that is not too new."""
    best = {}
    path = ask_compiler(f"-print-file-name={library}")
    listing = subprocess.run(["readelf", "--dyn-syms", "--wide", path], check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        if not (match := SYMBOL.match(line)):
            continue
        size, kind, _, name, label = match.groups()
        version = version_of(label)
        if version is None or version[0] not in NEWEST or version[1] > NEWEST[version[0]]:
            continue
        if name not in best or version > best[name][0]:
            best[name] = (version, kind, int(size, 0), label)
    return [(name, kind, size, label) for name, (_, kind, size, label) in sorted(best.items())]


def make_stub(folder, library, shown):
    source, script = folder / f"{library}.s", folder / f"{library}.map"
    lines = []
    for number, (name, kind, size, label) in enumerate(shown):
        section = {"TLS": '.section .tbss,"awT",@nobits', "OBJECT": ".bss"}.get(kind, ".text")
        type_ = {"TLS": "tls_object", "OBJECT": "object"}.get(kind, "function")
        lines += [section, f".globl s{number}", f".type s{number}, @{type_}", f"s{number}: .skip {max(size, 1)}",
                  f".size s{number}, {size}", f".symver s{number}, {name}@@{label}, remove"]  # fmt: skip
    source.write_text("\n".join(lines) + '\n.section .note.GNU-stack,"",@progbits\n')
    labels = sorted({label for *_, label in shown}, key=version_of)
    script.write_text("".join(f"{label} {{ }};\n" for label in labels) or "{ local: *; };\n")
    ask_compiler("-shared", "-nostdlib", f"-Wl,-soname,{library}", f"-Wl,--version-script={script}", "-o", folder / library, source)


def link_name(folder, name, *parts):
    """What `-lNAME` finds: the parts in turn."""
    (folder / f"lib{name}.so").write_text(f"GROUP ( {' '.join(map(str, parts))} )\n")


def main():
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES:
        make_stub(folder, library, symbols(library))
    for library in EMPTY:
        make_stub(folder, library, [])
    archive = {name: ask_compiler(f"-print-file-name={name}") for name in ("libc_nonshared.a", "libstdc++.a", "libgcc.a")}
    loaders = ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")
    loader = next(path for name in loaders if (path := Path(ask_compiler(f"-print-file-name={name}"))).is_absolute())
    link_name(folder, "c", folder / "libc.so.6", archive["libc_nonshared.a"], f"AS_NEEDED ( {loader} )")
    link_name(folder, "m", folder / "libm.so.6")
    link_name(folder, "stdc++", folder / "libstdc++.so.6", archive["libstdc++.a"])
    link_name(folder, "gcc_s", folder / "libgcc_s.so.1", archive["libgcc.a"])
    for library in EMPTY:
        link_name(folder, library[3:].split(".")[0], folder / library)
    compatibility = folder / "compatibility.o"
    ask_compiler("-x", "c", "-O2", "-fPIC", "-fvisibility=hidden", "-c", "-o", compatibility, Path(__file__).with_name("compatibility.c"))
    needed = " ".join(str(folder / library) for library in EMPTY)
    print(f"-L{folder} -Wl,--no-as-needed {needed} -Wl,--as-needed {compatibility}")


if __name__ == "__main__":
    main()
