#!/usr/bin/env bash
# Sets up everything and runs all tests: C++ (plain, and under the address, undefined-behaviour and thread sanitizers)
# and Python. Every part runs, also after one has failed; the closing lines of each come last.
#
#   scripts/test.sh          all of it
#   scripts/test.sh quick    without the sanitizers
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
case "${1:-all}" in
  all) SANITIZERS=(asan tsan) ;;
  quick) SANITIZERS=() ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
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

cpp() {
  local preset=$1
  if ! cmake --preset "$preset" >"$LOGS/$preset-configure.log" 2>&1; then
    rm -rf "build/$preset"  # it may be of another checkout or another CMake
    cmake --preset "$preset" || return 1
  fi
  cmake --build --preset "$preset" || return 1
  # Two at a time at least: many tests wait more than they compute.
  ctest --preset "$preset" --parallel "$CMAKE_BUILD_PARALLEL_LEVEL" --no-tests=error
}

# One run for each folder: two of them may have files of the same name.
python_tests() {
  timeout --kill-after=30 1800 "$VENV/bin/python" -m pytest -q --timeout 300 "$1"
}

bash scripts/setup.sh --tests
part cpp cpp dev
part structure python_tests tests/structure
part simulator python_tests simulator/tests
part python python_tests tests/python
for preset in ${SANITIZERS[@]+"${SANITIZERS[@]}"}; do part "$preset" cpp "$preset"; done

say ""
for log in structure cpp asan tsan simulator python; do
  [ -f "$LOGS/$log.log" ] || continue
  say "-- $log"
  grep -E '^[0-9]+% tests passed|^Total Test time|^The following tests FAILED|^\s+[0-9]+ - |^(FAILED|ERROR) |^(=+ )?[0-9]+ (passed|failed|errors?)\b.* in ' \
    "$LOGS/$log.log" || say "no closing line: see $LOGS/$log.log"
done
if [ ${#failed[@]} -gt 0 ]; then
  say "failed: ${failed[*]}" >&2
  exit 1
fi
