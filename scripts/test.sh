#!/usr/bin/env bash
# Sets up everything and runs the tests: C++ (plain, and under the address, undefined-behaviour and thread sanitizers),
# Python, and PyTorch's own distributed tests. Every part runs, also after one has failed; the closing lines of each come
# last.
#
#   scripts/test.sh            what a change must pass
#   scripts/test.sh quick      without the sanitizers
#   scripts/test.sh nightly    besides: the slow tests, every suite of PyTorch's tests, the Python tests and process_group's with a sanitized extension,
#                              libFuzzer, the C++ tests for aarch64 under qemu-user, and wheels, tried beside every supported version of PyTorch
#
# What uses the simulator does so in strict mode; TORCH_SIM_STRICT=SEED repeats a run, whose seed is in its closing lines.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
SANITIZERS=(asan tsan)
MARKS="not slow or quick"
SECOND_TRY=3
SETUP=--tests
SUITES=(--suite distributed)
# Some hundred thousand billion operations of convolution: hours on a device that computes with this host's cores.
HEAVY=(--skip test_ddp_uneven_inputs)
case "${1:-all}" in
  all) ;;
  quick) SANITIZERS=() ;;
  nightly)
    MARKS=""
    SUITES=(--suite all)
    SECOND_TRY=0
    SETUP=--nightly
    # Whole jobs with faults, inputs for each parser, every call of the system that is made to fail, bytes through a modelled ring, and
    # steps round a connection that breaks.
    export HCCL_LIKE_FAULT_SEEDS=2000000 HCCL_LIKE_SOCKET_FAULT_SEEDS=300000 HCCL_LIKE_FUZZ_INPUTS=10000000 HCCL_LIKE_CALLS_EVERY=1
    export HCCL_LIKE_MODEL_BYTES=7 HCCL_LIKE_RESUME_STEPS=5
    # Every algorithm for so many ranks, and schedules with a mistake.
    export HCCL_LIKE_PROOF_RANKS=10000 HCCL_LIKE_MUTANTS=2000000
    # An interpreter of its own for each program of a test.
    export FRESH_INTERPRETERS=1
    ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

LOGS=$ROOT/build/logs
mkdir -p "$LOGS"
rm -f "$LOGS"/*.{log,built} "$LOGS"/{failed,beside}.txt "$LOGS"/*-skipped.txt "$LOGS"/conformance-*.json

# part name command...: runs it with a log; notes its failure.
part() {
  local name=$1 begin=$SECONDS
  shift
  say "== $name: $*"
  if "$@" </dev/null 2>&1 | tee "$LOGS/$name.log"; then
    say "== $name: passed in $((SECONDS - begin)) s"
  else
    echo "$name" >>"$LOGS/failed.txt"
    say "== $name: FAILED after $((SECONDS - begin)) s"
  fi
}

outcomes() { "$VENV/bin/python" scripts/outcomes.py "$@"; }

# second_try FILE command...: on a machine that does other things besides, a test may fail for want of time or for what its
# neighbours do. Up to three tests of a part that failed, of which FILE has the names, are run again without the rest.
# Those that pass then are unstable, which is a fault too: the closing lines name them, and whether tests/unstable.txt has them.
# What a sanitizer finds has no second try, and at night nothing has.
second_try() {
  local names=$LOGS/unstable-$BASHPID.txt failed
  outcomes failed "$1" >"$names" || return 1
  shift
  failed=$(wc -l <"$names")
  [ "$failed" -ge 1 ] && [ "$failed" -le "$SECOND_TRY" ] || return 1
  say "SECOND TRY of $failed that failed"
  "$@" && outcomes unstable "$names"
}

cpp_build() {
  local preset=$1 nightly=-DHCCL_LIKE_NIGHTLY=OFF
  [ -n "$MARKS" ] || nightly=-DHCCL_LIKE_NIGHTLY=ON
  if ! cmake --preset "$preset" "$nightly" >"$LOGS/$preset-configure.log" 2>&1; then
    rm -rf "build/$preset"  # it may be of another checkout or another CMake
    cmake --preset "$preset" "$nightly" || return 1
  fi
  cmake --build --preset "$preset"
}

# The plain tests are added to the build of the Python package, whose layers are compiled already. At night they are built by preset
# dev: without optimisation across files, and each header alone.
plain_build() {
  cmake -S . -B "$PLAIN" -DHCCL_LIKE_TESTS=ON -DHCCL_LIKE_BENCH=ON -DHCCL_LIKE_QUICK_TESTS=ON >"$LOGS/plain-configure.log" &&
    cmake --build "$PLAIN"
}

# beside FILE command...: runs it at the same time as what follows, in a process group of its own, which ends with this script.
started=()
trap 'for group in ${started[@]+"${started[@]}"}; do kill -- "-$group" 2>/dev/null || true; done' EXIT
beside() {
  local file=$1
  shift
  set -m
  "$@" </dev/null >"$file" 2>&1 &
  started+=("$!")
  set +m
}

# Compiles what comes last while the Python tests wait for their ranks, on cores that would else be idle. What goes wrong here
# does so again, and is told, where the part itself builds.
build_ahead() {
  chrt --idle --pid 0 "$BASHPID" || renice -n 19 "$BASHPID"
  for preset in ${SANITIZERS[@]+"${SANITIZERS[@]}"}; do
    cpp_build "$preset"
    touch "$LOGS/$preset.built"
  done
}

# Waits for what build_ahead compiles of this preset.
ahead_has_built() {
  [ -n "${ahead:-}" ] && [[ " ${SANITIZERS[*]-} " == *" $1 "* ]] || return 0
  while [ ! -f "$LOGS/$1.built" ] && kill -0 "$ahead" 2>/dev/null; do sleep 0.5; done
}

# part, folder of the build, what chooses the tests for ctest
cpp_tests() {
  local logs=$2/Testing/Temporary status=0
  # One more at a time than there are cores: many tests wait more than they compute.
  ctest "${@:3}" --output-on-failure --parallel $((CMAKE_BUILD_PARALLEL_LEVEL + 1)) --no-tests=error || status=$?
  outcomes skipped "$logs/LastTest.log" >"$LOGS/$1-skipped.txt"
  googletest_passed "$logs/LastTest.log"
  [ $status -ne 0 ] || return 0
  ! grep -qE '(Address|Leak|Thread)Sanitizer:|: runtime error: ' "$logs/LastTest.log" || return 1
  second_try "$logs/LastTestsFailed.log" ctest "${@:3}" --output-on-failure --rerun-failed
}

plain() { plain_build && cpp_tests cpp "$PLAIN" --test-dir "$PLAIN"; }

# preset, part
cpp() {
  ahead_has_built "$1"
  cpp_build "$1" && cpp_tests "${2:-$1}" "build/$1" --preset "$1"
}

# In front of a command: strict mode in each of its processes, none of which may touch the device's memory itself.
STRICTLY=("$VENV/bin/python" -m torch_sim.strictly)

# python_tests NAME PATTERN command...: the tests of a folder, or of the files that fit the pattern; the command comes in front. Two runs
# at the same time need two names.
python_tests() {
  local cache=$ROOT/build/pytest-cache/$1 files status=0
  # shellcheck disable=SC2206
  files=($2)
  # -ra: the simulator's tests have settings of their own, and skipped tests must be listed for outcomes.py.
  local run=(-m pytest -q -ra --no-fold-skipped --timeout 1200 -m "$MARKS" -o cache_dir="$cache")
  timeout --kill-after=30 7200 "${@:3}" "$VENV/bin/python" "${run[@]}" --cache-clear "${files[@]}" || status=$?
  [ $status -eq 1 ] || return $status  # 1: tests have failed; all else is worse
  TORCH_SIM_STRICT=${TORCH_SIM_STRICT:-1} \
    second_try "$cache/v/cache/lastfailed" "$VENV/bin/python" "${run[@]}" --last-failed "${files[@]}"
}

# sanitized_package NAME SANITIZERS RUNTIMES...: a build of the package under build/NAME, of which it makes the C++ tests of process_group/;
# sets `preload` to the runtimes, which come before all else, libstdc++ with them, so that they see what is thrown.
sanitized_package() {
  local library
  cmake -S . -B "build/$1" -G Ninja -DCMAKE_BUILD_TYPE=Dev -DHCCL_LIKE_PYTHON=ON -DHCCL_LIKE_BENCH=OFF -DHCCL_LIKE_SANITIZE="$2" \
    -DPython3_EXECUTABLE="$VENV/bin/python" -DHCCL_LIKE_EXTENSION_DIR="$ROOT/build/$1/package/hccl_like" || return 1
  cmake --build "build/$1" --target process_group_test || return 1
  preload=()
  for library in "${@:3}" libstdc++.so; do preload+=("$(realpath "$(g++ -print-file-name="$library")")"); done
}

# The C++ tests of process_group/ in build/NAME, with settings in front.
group_tests() {
  env LD_PRELOAD="${preload[*]}" "${@:2}" "$VENV/bin/python" process_group/testing/run.py "build/$1/process_group/process_group_test.so"
}

# The Python tests and those of process_group/ with an extension that the address and undefined-behaviour sanitizers watch, in a package
# of its own. The simulator handles SIGSEGV itself.
python_asan() {
  local preload options="detect_leaks=0:handle_segv=0:allocator_may_return_null=1" status=0
  sanitized_package python-asan address,undefined libasan.so libubsan.so || return 1
  group_tests python-asan UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=$options || status=1
  cmake --build build/python-asan --target hccl_like_python || return 1
  tar -C python --exclude hccl_like/lib --exclude hccl_like/adapters --exclude __pycache__ -cf - hccl_like |
    tar -C build/python-asan/package -xf - || return 1
  python_tests asan tests/python env LD_PRELOAD="${preload[*]}" PYTHONPATH="$ROOT/build/python-asan/package" SANITIZED=1 RANKS_PATIENCE=5 \
    UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=$options || status=1
  return $status
}

# torch's own code is not watched, nor what it does for us.
group_tsan() {
  local preload
  sanitized_package group-tsan thread libtsan.so || return 1
  group_tests group-tsan TSAN_OPTIONS="ignore_noninstrumented_modules=1:halt_on_error=0:exitcode=66:second_deadlock_stack=1"
}

# Each parser for a minute. What is found stays in build/found, where the next run begins.
libfuzzer() {
  local program=build/fuzz/tests/fuzz/libfuzzer targets target log folders status=0
  if ! clang_has_libfuzzer; then
    say "libfuzzer: FAILED: this takes clang++ 14 or newer with its sanitizers and a C++20 library: apt-get install clang libclang-rt-dev"
    return 1
  fi
  cpp_build fuzz || return 1
  targets=$("$program" 2>&1 | sed -n 's/^  //p')
  if [ -z "$targets" ]; then
    say "libfuzzer: FAILED: $program names no parser"
    return 1
  fi
  for target in $targets; do
    folders=("build/found/$target") log=$LOGS/libfuzzer-$target.txt
    mkdir -p "${folders[0]}"
    [ ! -d "tests/fuzz/corpus/$target" ] || folders+=("tests/fuzz/corpus/$target")
    if HCCL_LIKE_FUZZ_TARGET=$target HCCL_LIKE_FUZZ_SEEDS=${folders[0]} "$program" -max_total_time="${HCCL_LIKE_FUZZ_SECONDS:-60}" \
      -print_final_stats=1 -artifact_prefix="$LOGS/libfuzzer-$target-" "${folders[@]}" >"$log" 2>&1; then
      say "libfuzzer, $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, none of them bad"
    else
      say "libfuzzer, $target: FAILED"
      tail -n 60 "$log"
      status=1
    fi
  done
  return $status
}

# In strict mode, but for the few tests of what that changes.
simulator_tests() {
  python_tests simulator simulator/tests "${STRICTLY[@]}" || return 1
  TORCH_SIM_STRICT=0 MARKS=not_strict python_tests simulator simulator/tests
}

# device, what to put in front
conformance() {
  timeout --kill-after=30 7200 "${@:2}" "$VENV/bin/python" -m hccl_like.conformance --device "$1" "${SUITES[@]}" "${HEAVY[@]}" \
    --jobs 2 --json "$LOGS/conformance-$1.json" --junit "$LOGS/conformance-$1.xml"
}

# The runner itself is right if gloo has gloo's result.
conformance_of_gloo() {
  "$VENV/bin/python" -m hccl_like.conformance --backend gloo --jobs 2 --json "$LOGS/conformance-gloo.json"
}

# The Python tests, in two runs that take about as long: most of them wait, for ranks or for a time-out.
FIRST_HALF='tests/python/test_[f-z]*.py' SECOND_HALF='tests/python/test_[a-e]*.py'

other_tests() {
  part simulator simulator_tests
  part conformance-cpu conformance cpu
  part conformance-sim conformance sim "${STRICTLY[@]}"
  [ -z "$MARKS" ] || part aarch64 bash scripts/aarch64.sh --short
  part python-2 python_tests python-2 "$SECOND_HALF" "${STRICTLY[@]}"
}

bash scripts/setup.sh "$SETUP"
PLAIN=build/$("$VENV/bin/python" -c 'import sys; print("cpython-%d%d" % sys.version_info[:2])')
if [ -z "$MARKS" ]; then part cpp cpp dev cpp; else part cpp plain; fi
part structure python_tests structure tests/structure
beside "$LOGS/ahead.txt" build_ahead
ahead=${started[-1]}
if [ -z "$MARKS" ]; then  # at night nothing has a second try
  other_tests
else  # ranks wait for each other more than they compute
  beside "$LOGS/beside.txt" other_tests
fi
part python python_tests python "$FIRST_HALF" "${STRICTLY[@]}"
if [ -z "$MARKS" ]; then wait; else wait "${started[-1]}"; fi
[ ! -f "$LOGS/beside.txt" ] || cat "$LOGS/beside.txt"
for preset in ${SANITIZERS[@]+"${SANITIZERS[@]}"}; do part "$preset" cpp "$preset"; done
if [ -z "$MARKS" ]; then
  # On a device whose memory the host cannot reach.
  part discrete python_tests discrete 'tests/python/test_frameworks_*.py tests/python/test_collectives*.py' env TORCH_SIM_DISCRETE=1
  part conformance-gloo conformance_of_gloo
  part python-asan python_asan
  part group-tsan group_tsan
  part libfuzzer libfuzzer
  part aarch64 bash scripts/aarch64.sh
  part wheels bash scripts/wheels.sh
  part matrix bash scripts/matrix.sh
fi

say ""
for log in structure cpp asan tsan simulator python python-2 discrete python-asan group-tsan libfuzzer aarch64 wheels matrix conformance-cpu conformance-sim conformance-gloo; do
  [ -f "$LOGS/$log.log" ] || continue
  say "-- $log"
  grep -E '^[0-9]+% tests passed|^Total Test time|^The following tests FAILED|^\s+[0-9]+ - |^(FAILED|ERROR) |^(=+ )?[0-9]+ (passed|failed|errors?)\b.* in |^[0-9]+ pass, [0-9]+ fail|^strict mode, .*: |^== PyTorch |^ +first light |^ +done in |^libfuzzer[,:] |^GoogleTest: |^SECOND TRY|^UNSTABLE' \
    "$LOGS/$log.log" || say "no closing line: see $LOGS/$log.log"
  case $log in
    group-tsan) ;;
    cpp | asan | tsan) [ ! -f "$LOGS/$log-skipped.txt" ] || cat "$LOGS/$log-skipped.txt" ;;
    conformance-*) [ ! -f "$LOGS/$log.json" ] || outcomes skipped "$LOGS/$log.json" ;;
    *) outcomes skipped "$LOGS/$log.log" ;;
  esac
done
if [ -s "$LOGS/failed.txt" ]; then
  say "failed: $(tr '\n' ' ' <"$LOGS/failed.txt")" >&2
  exit 1
fi
