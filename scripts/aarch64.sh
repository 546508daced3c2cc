#!/usr/bin/env bash
# Compiles the layers without torch, and their tests, for hosts with aarch64, and runs the tests under qemu-user.
#
#   scripts/aarch64.sh            a quarter of an hour on two cores
#   scripts/aarch64.sh --short    core alone: memory, copies, threads, counters; a minute
#
# What qemu-user shows: that it compiles, the kernels for NEON and SVE, alignment, and what takes the architecture for granted. It
# gives a program the order of memory that its host has, so that order is what tests/model looks at.
set -euo pipefail
STEPS=4
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source scripts/sysroot.sh
FOLDER=$ROOT/build/aarch64
LAYERS=(core device transport collectives)
[ "${1:-}" != --short ] || LAYERS=(core)
# What qemu-user has not: robust futexes (Life, and links in shared memory between the ranks of a mesh), a program's own list of its
# threads, tests that start the program again. And what only calculates, for long.
LEFT_OUT=CrashNoteDeathTest.*:ThreadPool.HasNoThread*:ThreadPool.AChildOfFork*:Commons.MakesThePages*:Life*
LEFT_OUT=$LEFT_OUT:*LazyMesh.*/shm:*MeshAcrossNetworks.*:*MeshOver.*/shm*:*ThousandRanks.*:*Prove.*:Cost.*:Simulate.*:Choose.*

build() {
  cmake -S . -B "$FOLDER/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$ROOT/cmake/aarch64.cmake" -DHCCL_LIKE_SYSROOT="$SYSROOT" \
    -DCMAKE_BUILD_TYPE=Dev -DHCCL_LIKE_BENCH=OFF -DHCCL_LIKE_UNITY=ON -DHCCL_LIKE_PRECOMPILE=ON -DHCCL_LIKE_QUICK_TESTS=ON \
    -DHCCL_LIKE_FABRIC_INCLUDE= "-DHCCL_LIKE_TESTS_LEFT_OUT=$LEFT_OUT" || return 1
  cmake --build "$FOLDER/build" --target "${LAYERS[@]/%/_test}"
}

run_tests() {
  ctest --test-dir "$FOLDER/build" --output-on-failure --parallel "$CMAKE_BUILD_PARALLEL_LEVEL" --no-tests=error \
    -L "^($(IFS='|'; echo "${LAYERS[*]}"))\$" || return 1
  googletest_passed "$FOLDER/build/Testing/Temporary/LastTest.log"
}

mkdir -p "$FOLDER"
step "The cross compiler and qemu-user" cross_tools
step "Debian's libraries for aarch64, in build/aarch64/sysroot" cross_libraries
step "The layers and their tests" build
step "The tests under qemu-user" run_tests
