#!/usr/bin/env bash
# Runs everything that needs a GPU: the plugin's contract, all collectives of 2 and 4 ranks on one GPU, and figures.
#
#   scripts/cuda_check.sh                          every step
#   scripts/cuda_check.sh contract figures         these steps
#   scripts/cuda_check.sh --device sim contract    on another device of torch, to try the script
#
# PYTHON names the Python whose torch is a build with CUDA (.venv/bin/python). CUDA_VISIBLE_DEVICES=0,1 spreads the ranks of the figures over
# two GPUs. LIMIT_S is the time for all steps (600); on few cores the first build takes longer: run the step build before, with a larger one.
# The exit code is 0 if every step passed, 1 if one failed, 2 if something is missing.
# shellcheck disable=SC2317  # steps are called by their names
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export PYTHON=${PYTHON:-$VENV/bin/python} DEVICE=cuda
LIMIT_S=${LIMIT_S:-600}
LOGS=$ROOT/build/logs/cuda_check
if [ "${1:-}" = --device ]; then
  DEVICE=$2
  shift 2
fi

# Each step is a function. The last line that it prints is its result.

build() {
  "$PYTHON" -m pip install --no-deps --no-build-isolation --editable . && ls python/hccl_like/plugins/cuda.so
}

contract() { "$PYTHON" -m hccl_like contract "$DEVICE" | tee -a /dev/stderr | grep '^\[  PASSED  \]'; }

doctor() { "$PYTHON" -m hccl_like doctor --device "$DEVICE"; }

# Several at a time where pytest-xdist is installed.
pytest() {
  local several=()
  ! "$PYTHON" -c "import xdist" 2>/dev/null || several=(-n "$((($(nproc) + 1) / 2))")
  RANKS_DEVICES=$DEVICE "$PYTHON" -m pytest -q -p no:cacheprovider ${several[@]+"${several[@]}"} "$@"
}
# ranks, files...: tests of collectives, each of which starts that many ranks.
tests() { pytest -m "slow or not slow" -k "$DEVICE-$1- or $DEVICE-shm-$1-" "${@:2}"; }
collectives_of_2() { tests 2 tests/python/test_collectives.py tests/python/test_collectives_types.py; }
collectives_of_4() { tests 4 tests/python/test_collectives.py; }
# Calls that are large enough for streams.
large_of_2() { RANKS_COUNTS=70001,524287 tests 2 tests/python/test_collectives.py; }
large_of_4() { RANKS_COUNTS=524287 tests 4 tests/python/test_collectives.py; }

frameworks() { pytest -m "not slow" -k "$DEVICE" tests/python/test_frameworks_{ddp,fsdp}.py; }

# Fails if a call goes another way.
streams() {
  local ranks
  for ranks in 2 4; do
    "$PYTHON" -m hccl_like explain all_reduce 64M "$ranks" --device "$DEVICE" | tee -a /dev/stderr | grep ' by streams of the devices' >/dev/null || return 1
    HCCL_LIKE_DEBUG=INFO perf all_reduce -g "$ranks" -b 64M -e 64M -n 1 -w 0 2>&1 | tee -a /dev/stderr >"$LOGS/way.log" || return 1
    ! grep -E 'through the host|cannot be mapped for the device' "$LOGS/way.log" || return 1
  done
  echo "no call went through the host"
}

# All types and operations by streams. The benchmark checks each result.
types() {
  local ranks
  for ranks in 2 4; do perf all_reduce -g "$ranks" -d all -o all -b 1000K -e 1000K -n 1 -w 0 || return 1; done | tee -a /dev/stderr | grep 'Out of bounds'
}

perf() { "$PYTHON" -m hccl_like bench "$1" --device "$DEVICE" "${@:2}"; }
figures() {
  local collective largest=${LARGEST:-256M}
  for collective in all_reduce all_gather reduce_scatter alltoall; do perf "$collective" -b 64K -e "$largest" || return 1; done
  perf all_reduce -d bfloat16 -b "$largest" -e "$largest" && perf all_reduce -g 4 -b "$largest" -e "$largest" && echo "through the host:" &&
    HCCL_LIKE_DIRECT=0 perf all_reduce -b "$largest" -e "$largest"
}

ALL=(build contract doctor collectives_of_2 collectives_of_4 large_of_2 large_of_4 types streams frameworks figures)
CHOSEN=("$@")
[ $# -gt 0 ] || CHOSEN=("${ALL[@]}")
for name in "${CHOSEN[@]}"; do
  [[ " ${ALL[*]} " == *" $name "* ]] || { say "there is no step $name, but: ${ALL[*]}" >&2; exit 2; }
done

# One line for each thing that is missing.
missing() {
  "$PYTHON" - <<'PY' || say "a Python with PyTorch ($PYTHON is none)"
import ctypes

import torch

if torch.version.cuda is None:
    print(f"a PyTorch with CUDA ({torch.__version__} has none)")
try:
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        print("a GPU (the CUDA driver finds none)")
except OSError:
    print("the CUDA driver (libcuda.so.1 does not load)")
PY
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || say "nvcc"
}

if [ "$DEVICE" = cuda ]; then
  # All ranks on one GPU. They are forked by a process that must not open the driver. An installed simulator would take the GPU's place.
  export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} PYTORCH_NVML_BASED_CUDA_CHECK=1 TORCH_SIM=0
  lacking=$(missing 2>/dev/null | paste -sd ';' | sed 's/;/; /g')
  if [ -n "$lacking" ]; then
    say "cuda_check.sh: nothing was run, because this is missing: $lacking." >&2
    exit 2
  fi
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || true
fi

mkdir -p "$LOGS"
export LOGS
export -f perf pytest tests "${CHOSEN[@]}"
summary=()
failed=0
for name in "${CHOSEN[@]}"; do
  begin=$SECONDS outcome=ok status=0
  : >"$LOGS/$name.log"
  if [ "$SECONDS" -ge "$LIMIT_S" ]; then
    outcome=FAILED result="not run: $LIMIT_S s were over"
  else
    timeout --kill-after=10 $((LIMIT_S - SECONDS)) bash -o pipefail -c "$name" </dev/null >>"$LOGS/$name.log" 2>&1 || status=$?
    result=$(grep . "$LOGS/$name.log" | tail -1) || true
    if [ $status -ne 0 ]; then
      outcome=FAILED
      [ $status -ne 124 ] || result="stopped after $((SECONDS - begin)) s"
      tail -n 40 "$LOGS/$name.log"
    elif [ "$name" = figures ]; then
      cat "$LOGS/$name.log"
    fi
  fi
  [ $outcome = ok ] || failed=1
  summary+=("$(printf '%-6s  %-16s  %4d s  %s' $outcome "$name" $((SECONDS - begin)) "$result")")
  say "${summary[-1]}"
done
say "" "Summary on $DEVICE after $SECONDS s (logs in $LOGS):"
printf '%s\n' "${summary[@]}"
exit $failed
