#!/usr/bin/env python3
"""Fetches the C++ headers of a version of PyTorch, and nothing else of it.

    scripts/torch_headers.py 2.12.0 FOLDER              puts them into FOLDER/torch/include, beside torch/version.py
    scripts/torch_headers.py 2.12.0 FOLDER PLATFORM     those of the wheel for another machine, as manylinux_2_28_aarch64

pip names the wheel; of its hundreds of megabytes only the table of contents and the part with the headers are read, which
a web server that answers range requests allows. Nothing is installed and no dependency is looked at.
"""

import io
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

_WANTED = ("torch/include/", "torch/version.py")
_BLOCK = 1 << 20


class RemoteFile(io.RawIOBase):
    """A file on a web server, read block by block and kept."""

    def __init__(self, url: str) -> None:
        self._url, self._at, self._blocks = url, 0, {}
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
            self._size = int(answer.headers["Content-Length"])
        self.read_bytes = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer) -> int:
        number, skip = divmod(self._at, _BLOCK)
        if self._at >= self._size:
            return 0
        part = self._block(number)[skip : skip + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            last = min(self._size, (number + 1) * _BLOCK) - 1
            request = urllib.request.Request(self._url, headers={"Range": f"bytes={number * _BLOCK}-{last}"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                if answer.status != 206:
                    raise SystemExit(f"{self._url}: the server does not answer range requests")
                self._blocks[number] = answer.read()
            self.read_bytes += len(self._blocks[number])
        return self._blocks[number]


def wheel_url(version: str, *platform: str) -> str:
    """What pip would download for this Python and this machine or that platform."""
    asked = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-",
             f"torch=={version}"]  # fmt: skip
    if platform:
        asked += ["--only-binary=:all:", "--target=nowhere", "--platform", *platform]
    found = subprocess.run(asked, capture_output=True, text=True)
    if found.returncode != 0:
        raise SystemExit(f"pip finds no torch {version}: {found.stderr.strip()}")
    return json.loads(found.stdout)["install"][0]["download_info"]["url"]


def opened(url: str) -> io.BufferedReader:
    """The wheel on a server, or in a folder that pip takes packages from."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return open(urllib.request.url2pathname(parts.path), "rb")
    return io.BufferedReader(RemoteFile(url), 1 << 16)


def main() -> None:
    version, folder, *platform = sys.argv[1:]
    wheel_file = opened(wheel_url(version, *platform))
    with zipfile.ZipFile(wheel_file) as wheel:
        names = [name for name in wheel.namelist() if name.startswith(_WANTED)]
        if not names:
            raise SystemExit(f"the wheel of torch {version} has no headers")
        for name in sorted(names, key=lambda name: wheel.getinfo(name).header_offset):
            wheel.extract(name, folder)
    Path(folder, "version").write_text(version + "\n")
    read_bytes = wheel_file.raw.read_bytes if isinstance(wheel_file.raw, RemoteFile) else 0
    print(f"torch {version}: {len(names)} files, {read_bytes / 1e6:.0f} MB read from the network")


if __name__ == "__main__":
    main()
