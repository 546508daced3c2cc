#!/usr/bin/env bash
# Installs the wheels of hccl-like and of the simulator beside several versions of PyTorch, as users do, and tries them there: builds
# from the package index, which are for CUDA and need no GPU. Run scripts/wheels.sh first.
#
#   scripts/matrix.sh                       every version: first light, the Python tests, PyTorch's distributed tests
#   scripts/matrix.sh 2.14.1 2.15.0         these versions
#   scripts/matrix.sh --short 2.14.1        of the Python tests FILES alone
#   scripts/matrix.sh --light 2.13.0        first light and test_collectives.py
#
# BASE_PYTHON=/path/to/python3.12 names another Python than .venv's. Each version has a folder in build/matrix (6 GB).
# docs/torch-versions.md gets the table of what passed (scripts/matrix_table.py), but not with --light.
set -euo pipefail
STEPS=7
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
SHORT=no
case "${1:-}" in
  --short) SHORT=yes; shift ;;
  --light) SHORT=light STEPS=5 FILES=${FILES:-test_collectives.py}; shift ;;
esac
VERSIONS=("$@")
[ ${#VERSIONS[@]} -gt 0 ] || VERSIONS=(2.12.1 2.13.0 2.14.1 2.15.0)
FILES=${FILES:-test_collectives.py test_frameworks_ddp.py test_frameworks_fsdp.py test_frameworks_checkpoint.py test_symmetric_memory.py
  test_torch_builds.py test_torch_compat_apply.py test_torch_versions.py test_elastic.py test_mixed_devices.py}
BASE_PYTHON=${BASE_PYTHON:-$VENV/bin/python}
TAG=$("$BASE_PYTHON" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
WHEEL=$(echo "$ROOT"/dist/hccl_like-*-"$TAG"-*_"$(uname -m)".whl)
SIMULATOR=$(echo "$ROOT"/dist/torch_sim-*-"$TAG"-*_"$(uname -m)".whl)
[ -f "$WHEEL" ] && [ -f "$SIMULATOR" ] || die "dist/ has not the two wheels for $TAG; scripts/wheels.sh makes them"

pip() { try_again "$FOLDER/venv/bin/python" -m pip install --quiet --timeout 60 --retries 3 "$@"; }

# `===` compares the whole version: a 2.13.0+cpu in a folder of wheels does not match. Each torch asks for a setuptools and a triton of its
# own.
install_torch() {
  if ! "$FOLDER/venv/bin/python" -m pip --version >/dev/null 2>&1; then
    "$BASE_PYTHON" -m venv --clear "$FOLDER/venv" || return 1
  fi
  grep -vE '^(torch|setuptools|triton)==' requirements/constraints.txt >"$FOLDER/constraints.txt"
  pip --constraint "$FOLDER/constraints.txt" "torch===$VERSION" numpy setuptools wheel cmake ninja pytest pytest-timeout expecttest \
    safetensors scipy rich
}

# first_light PACKAGE: what a user does. No adapter is compiled on first use: the cache for them stays empty.
first_light() {
  local begin=$SECONDS
  "$FOLDER/venv/bin/python" -m pip uninstall --quiet --yes hccl-like torch_sim >/dev/null 2>&1 || true
  pip --no-deps "$1" || return 1
  "$FOLDER/venv/bin/hccl-like" demo -n 2 --device cpu || return 1
  [ ! -e "$XDG_CACHE_HOME/hccl_like" ] || { say "an adapter was compiled on first use, so $1 had none for torch $VERSION"; return 1; }
  say "      first light $((SECONDS - begin)) s after pip began"
  "$FOLDER/venv/bin/hccl-like" bench all_reduce -e 8 -n 2
}

# pip compiles it in isolation, for the torch that is installed: five minutes. One version is enough, at night.
source_distribution() {
  [ "$VERSION $SHORT" = "2.13.0 no" ] || { say "      left out"; return 0; }
  first_light "$(echo "$ROOT"/dist/hccl_like-*.tar.gz)"
}

# name, marks, files
pytest() {
  timeout --kill-after=30 7200 "$FOLDER/venv/bin/python" -m torch_sim.strictly "$FOLDER/venv/bin/python" -m pytest -q --timeout 1200 \
    -p no:cacheprovider -m "$2" --junit-xml "$FOLDER/$1.xml" "${@:3}" >"$FOLDER/$1.log" 2>&1 || failed+=("$VERSION $1")
  grep -E '^(FAILED|ERROR) |^(=+ )?[0-9]+ (passed|failed|errors?)\b.* in ' "$FOLDER/$1.log" || tail "$FOLDER/$1.log"
}

python_tests() {
  local files=(tests/python)
  # shellcheck disable=SC2206
  [ $SHORT = no ] || files=($(printf 'tests/python/%s ' $FILES))
  pytest python "not slow" "${files[@]}"
  [ $SHORT = light ] || pytest patches slow tests/python/test_torch_compat.py tests/python/test_torch_compat_apply.py
}

conformance() {
  local device
  for device in cpu sim; do
    rm -f "$FOLDER/conformance-$device.json"
    timeout --kill-after=30 7200 "$FOLDER/venv/bin/python" -m hccl_like.conformance --device "$device" --suite distributed \
      --skip test_ddp_uneven_inputs --jobs 2 --json "$FOLDER/conformance-$device.json" >"$FOLDER/conformance-$device.log" 2>&1 ||
      failed+=("$VERSION conformance $device")
    grep -E '^(FAIL|BROKEN|[0-9]+ pass)' "$FOLDER/conformance-$device.log" || tail "$FOLDER/conformance-$device.log"
  done
}

failed=()
for VERSION in "${VERSIONS[@]}"; do
  say "== PyTorch $VERSION"
  FOLDER=$ROOT/build/matrix/$VERSION-$TAG
  export XDG_CACHE_HOME=$FOLDER/cache
  mkdir -p "$FOLDER"
  rm -rf "$FOLDER"/{cache,*.log,*.xml}
  step_number=0
  step "PyTorch $VERSION from the package index" install_torch
  step "First light with the source distribution" source_distribution
  step "First light with $(basename "$WHEEL")" first_light "$WHEEL"
  step "The simulated accelerator, from $(basename "$SIMULATOR")" pip --no-deps "$SIMULATOR"
  step "Python tests" python_tests
  [ $SHORT != light ] || continue
  step "PyTorch's distributed tests" conformance
  step "The table" "$BASE_PYTHON" scripts/matrix_table.py "$FOLDER"
done
[ ${#failed[@]} = 0 ] || die "not everything passed; the logs are in build/matrix" "${failed[@]}"
