#!/usr/bin/env bash
# Sets up what hccl-like needs on Debian or Ubuntu: system packages, a virtual environment in .venv, and the two packages
# of this repository built into it. Does only what is not done yet.
#
#   scripts/setup.sh             to use it
#   scripts/setup.sh --tests     to test it as well
#   scripts/setup.sh --nightly   to test it with the launchers of others, and with larger frameworks, too
#
# As root it installs missing system packages; as a user it names them. PYTHON=/path/to/python3 picks another Python.
set -euo pipefail
TESTS=no
case "${1:-}" in
  --tests) TESTS=yes ;;
  --nightly) TESTS=nightly ;;
  '') ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
STEPS=5
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# One set-up at a time in one checkout.
exec 9>"$ROOT/.setup.lock"
flock -n 9 || { say "another set-up is running in this folder; waiting for it"; flock 9; }

CXX_USED=${CXX:-g++}
has_header() { printf '#include <%s>\n' "$1" | "$CXX_USED" -std=c++20 -E -x c++ - >/dev/null 2>&1; }
python_is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

# Never the virtual environment's own: it is what may have to be made anew.
base_python() {
  local found
  if [ -n "${PYTHON:-}" ]; then command -v "$PYTHON" || true; return; fi
  found=$(PATH=${PATH#"$VENV/bin:"} command -v python3 || true)
  printf '%s' "$found"
}

missing_packages() {
  local python
  python=$(base_python)
  command -v "$CXX_USED" >/dev/null || echo g++
  command -v make >/dev/null || echo make
  has_header hwy/highway.h || echo libhwy-dev
  has_header spdlog/spdlog.h || echo libspdlog-dev
  has_header nlohmann/json.hpp || echo nlohmann-json3-dev
  has_header hwloc.h || echo libhwloc-dev
  has_header openssl/evp.h || echo libssl-dev
  if [ $TESTS != no ]; then
    has_header gtest/gtest.h || echo libgtest-dev
    has_header rdma/fabric.h || echo libfabric-dev
    has_header CLI/CLI.hpp || echo libcli11-dev
    has_header benchmark/benchmark.h || echo libbenchmark-dev
    command -v mpiexec.openmpi >/dev/null || echo openmpi-bin
    # Hosts are network namespaces in tests, which only root can make.
    if [ "$(id -u)" = 0 ]; then
      command -v ip >/dev/null || echo iproute2
      command -v nft >/dev/null || echo nftables
    fi
  fi
  if [ $TESTS = nightly ]; then
    command -v slurmctld >/dev/null || echo slurm-wlm
    command -v munged >/dev/null || echo munge
    command -v mpiexec.mpich >/dev/null || echo mpich
    clang_has_libfuzzer || echo clang libclang-rt-dev
  fi
  if [ -z "$python" ]; then
    echo python3 python3-dev python3-venv
  else
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || echo python3-dev
  fi
}

apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"; }

system_packages() {
  local missing
  if [ -n "${PYTHON:-}" ] && [ -z "$(base_python)" ]; then die "PYTHON=$PYTHON is not there"; fi
  missing=$(missing_packages | tr ' ' '\n' | sort -u | tr '\n' ' ')
  missing=${missing% }
  if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null; then
      die "these are missing, under the names they have in Debian: $missing" \
          "This machine has no apt-get: install what carries the same by its own means, then run this again."
    fi
    if [ "$(id -u)" != 0 ]; then
      die "system packages are missing. An administrator must run:" "" \
          "apt-get update && apt-get install -y $missing" "" "Then run this again."
    fi
    say "      installing: $missing"
    try_again apt update || return 1
    # shellcheck disable=SC2086
    try_again apt install -y --no-install-recommends $missing >/dev/null || return 1
    missing=$(missing_packages | tr '\n' ' ')
    [ -z "$missing" ] || die "still missing after the installation: $missing" \
      "A Python that Debian did not make brings its own headers and venv module: name one that has them with PYTHON=..."
  fi
  local python
  python=$(base_python)
  python_is_new_enough "$python" || die "Python 3.10 or newer is needed; $python is $("$python" --version 2>&1)" \
    "Name another one: PYTHON=/path/to/python3 $0"
  printf '#include <concepts>\nstatic_assert(__cpp_concepts >= 201907L && __GNUC__ >= 12);\n' |
    "$CXX_USED" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null ||
    die "a C++20 compiler as new as g++ 12 is needed; $CXX_USED is $("$CXX_USED" --version | head -1)" \
        "Debian 12 and Ubuntu 24.04 have one. Name another one: CXX=/path/to/g++ $0"
}

virtual_environment() {
  local python
  python=$(base_python)
  # One that was interrupted, lost its Python, or was moved with its folder (its scripts hold the path) is made anew.
  if "$VENV/bin/python" -m pip --version >/dev/null 2>&1 && python_is_new_enough "$VENV/bin/python" &&
     grep -qF "$VENV/bin/python" "$VENV/bin/pip"; then return; fi
  rm -rf "$VENV"
  "$python" -m venv "$VENV" || return 1
}

pip_install() { try_again "$VENV/bin/python" -m pip install --quiet --timeout 60 --retries 3 "$@"; }

python_packages() {
  local files=(requirements/run.txt requirements/examples.txt)
  [ $TESTS = no ] || files+=(requirements/test.txt requirements/docs.txt)
  [ $TESTS != nightly ] || files+=(requirements/nightly.txt)
  # Each set of packages includes those before it, so the stamp of a later one will do for an earlier one.
  local all=(requirements/*.txt) marks=(packages-nightly packages-tests packages) mark
  case $TESTS in nightly) marks=("${marks[0]}") ;; yes) marks=("${marks[@]:0:2}") ;; esac
  for mark in "${marks[@]}"; do ! is_done "$mark" "$(fingerprint "${all[@]}")" || return 0; done
  "$VENV/bin/python" -c 'import pip, sys; sys.exit(int(pip.__version__.split(".")[0]) < 22)' ||
    pip_install --upgrade 'pip>=22' || return 1
  # torch first and alone: asked for together with others, an older resolver may try every build of it there is.
  if ! "$VENV/bin/python" -c 'import importlib.metadata as m, sys; sys.exit(m.version("torch").split("+")[0] != "2.13.0")' 2>/dev/null; then
    say "      PyTorch 2.13.0: 200 MB; several GB where your package index has only builds with CUDA"
    pip_install --constraint requirements/constraints.txt torch==2.13.0 || return 1
  fi
  pip_install --constraint requirements/constraints.txt "${files[@]/#/--requirement=}" || return 1
  # The build's own tools, where the system has none.
  local tools=()
  cmake_is_new_enough || tools+=(cmake)
  command -v ninja >/dev/null || tools+=(ninja)
  [ ${#tools[@]} = 0 ] || pip_install --constraint requirements/constraints.txt "${tools[@]}" || return 1
  mark_done "$mark" "$(fingerprint "${all[@]}")"
}

cmake_is_new_enough() {
  command -v cmake >/dev/null || return 1
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9]*\.[0-9]*\).*/\1/p')
  [ "$(printf '3.22\n%s\n' "$version" | sort -V | head -1)" = 3.22 ]
}

# Both builds are incremental: with nothing to do they take a second or two.
hccl_like() {
  "$VENV/bin/python" setup.py --quiet build_ext --inplace || return 1
  local made_from
  made_from=$(fingerprint setup.py pyproject.toml; echo "$ROOT")
  if ! is_done hccl-like "$made_from"; then
    pip_install --no-deps --no-build-isolation --editable . || return 1
    mark_done hccl-like "$made_from"
  fi
}

simulator() {
  local files made_from
  mapfile -t files < <(find simulator device/plugin.h cmake/torch.cmake -type f -not -path '*/build/*' -not -name '*.so' \
                            -not -path '*/__pycache__/*' -not -path '*.egg-info/*' | LC_ALL=C sort)
  made_from=$(fingerprint "${files[@]}")
  is_done simulator "$made_from" && return
  # First by hand, because pip would hide the progress; it then finds everything compiled.
  export TORCH_SIM_BUILD_DIR=$ROOT/build/torch_sim
  (cd simulator && "$VENV/bin/python" setup.py --quiet build_ext) || return 1
  pip_install --no-deps --no-build-isolation --force-reinstall ./simulator || return 1
  mark_done simulator "$made_from"
}

step "System packages" system_packages
step "A virtual environment in .venv" virtual_environment
step "Python packages, PyTorch 2.13 among them" python_packages
step "Building hccl-like" hccl_like
step "Building torch_sim, the simulated accelerator" simulator
