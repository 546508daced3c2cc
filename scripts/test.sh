#!/usr/bin/env bash
# Sets up everything and runs the tests: C++ (plain, and under the address, undefined-behaviour and thread sanitizers),
# Python, and PyTorch's own distributed tests. Every part runs, also after one has failed; the closing lines of each come
# last.
#
#   scripts/test.sh            what a change must pass
#   scripts/test.sh quick      without the sanitizers
#   scripts/test.sh nightly    the slow tests, and every suite of PyTorch's tests, besides; the simulator in strict mode
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
SANITIZERS=(asan tsan)
MARKS="not slow"
SUITES=(--suite distributed)
# Some hundred thousand billion operations of convolution: hours on a device that computes with this host's cores.
HEAVY=(--skip test_ddp_uneven_inputs)
case "${1:-all}" in
  all) ;;
  quick) SANITIZERS=() ;;
  nightly)
    MARKS=""
    SUITES=(--suite all)
    # The simulator in strict mode; the seed is in the heading of each run of tests.
    export TORCH_SIM_STRICT=${TORCH_SIM_STRICT:-$((RANDOM + 1))}
    # Whole jobs with faults, inputs for each parser, and every call of the system that is made to fail.
    export HCCL_LIKE_STORM_SEEDS=2000000 HCCL_LIKE_FUZZ_INPUTS=10000000 HCCL_LIKE_CALLS_EVERY=1
    ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

LOGS=$ROOT/build/logs
mkdir -p "$LOGS"
rm -f "$LOGS"/*.log
failed=()

# part name command...: runs it with a log; notes its failure.
part() {
  local name=$1 begin=$SECONDS
  shift
  say "== $name: $*"
  if "$@" </dev/null 2>&1 | tee "$LOGS/$name.log"; then
    say "== $name: passed in $((SECONDS - begin)) s"
  else
    failed+=("$name")
    say "== $name: FAILED after $((SECONDS - begin)) s"
  fi
}

cpp_build() {
  local preset=$1
  if ! cmake --preset "$preset" >"$LOGS/$preset-configure.log" 2>&1; then
    rm -rf "build/$preset"  # it may be of another checkout or another CMake
    cmake --preset "$preset" || return 1
  fi
  cmake --build --preset "$preset"
}

# Compiles what comes last while the Python tests wait for their ranks, on cores that would else be idle. What goes wrong here
# does so again, and is told, where the part itself builds. A process group of its own, so that it ends with this script.
build_ahead() {
  set -m
  {
    chrt --idle --pid 0 "$BASHPID" || renice -n 19 "$BASHPID"
    for preset in ${SANITIZERS[@]+"${SANITIZERS[@]}"}; do cpp_build "$preset"; done
  } </dev/null >"$LOGS/ahead.txt" 2>&1 &
  ahead=$!
  set +m
  trap 'kill -- "-$ahead" 2>/dev/null || true' EXIT
}

cpp() {
  local preset=$1
  cpp_build "$preset" || return 1
  # Two at a time at least: many tests wait more than they compute.
  ctest --preset "$preset" --parallel "$CMAKE_BUILD_PARALLEL_LEVEL" --no-tests=error
}

# One run for each folder: two of them may have files of the same name.
python_tests() {
  timeout --kill-after=30 7200 "$VENV/bin/python" -m pytest -q --timeout 1200 -m "$MARKS" "$1"
}

# In strict mode, but for the few tests of what that changes; the seed is in the heading of the run.
simulator_tests() {
  TORCH_SIM_STRICT=${TORCH_SIM_STRICT:-$((RANDOM + 1))} python_tests simulator/tests || return 1
  TORCH_SIM_STRICT=0 MARKS=not_strict python_tests simulator/tests
}

conformance() {
  timeout --kill-after=30 7200 "$VENV/bin/python" -m hccl_like.conformance --device "$1" "${SUITES[@]}" "${HEAVY[@]}" \
    --jobs 2 --json "$LOGS/conformance-$1.json" --junit "$LOGS/conformance-$1.xml"
}

bash scripts/setup.sh --tests
part cpp cpp dev
part structure python_tests tests/structure
build_ahead
part simulator simulator_tests
part python python_tests tests/python
part conformance-cpu conformance cpu
part conformance-sim conformance sim
wait "$ahead" || true
for preset in ${SANITIZERS[@]+"${SANITIZERS[@]}"}; do part "$preset" cpp "$preset"; done

say ""
for log in structure cpp asan tsan simulator python conformance-cpu conformance-sim; do
  [ -f "$LOGS/$log.log" ] || continue
  say "-- $log"
  grep -E '^[0-9]+% tests passed|^Total Test time|^The following tests FAILED|^\s+[0-9]+ - |^(FAILED|ERROR) |^(=+ )?[0-9]+ (passed|failed|errors?)\b.* in |^[0-9]+ pass, [0-9]+ fail' \
    "$LOGS/$log.log" || say "no closing line: see $LOGS/$log.log"
done
if [ ${#failed[@]} -gt 0 ]; then
  say "failed: ${failed[*]}" >&2
  exit 1
fi
