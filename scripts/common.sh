# Shared by the scripts beside it: what a step looks like, how to try again, when there is nothing to do.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
STAMPS=$VENV/.hccl-like
cd "$ROOT"

# Tools of the virtual environment come first; one that is active in the caller's shell is left out of it.
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV
# nft and tc are in /usr/sbin, which is not in the path of every shell.
export PATH=$VENV/bin:$PATH:/usr/sbin:/sbin
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
# Where ccache is there, one checkout finds what another has compiled.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$ROOT} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}

say() { printf '%s\n' "$*"; }

die() {
  printf '\n%s: %s\n' "$(basename "$0")" "$1" >&2
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

STEPS=${STEPS:-1}
step_number=0
# step "what it does" command...: says so, runs it, says how long it took.
step() {
  local what=$1 begin=$SECONDS status=0
  shift
  step_number=$((step_number + 1))
  say "[$step_number/$STEPS] $what"
  "$@" || status=$?
  if [ $status -ne 0 ]; then
    die "this step failed: $what" "The lines above say why. Run the same command again once that is put right; it goes on from here."
  fi
  say "      done in $((SECONDS - begin)) s"
}

# Networks fail for a moment: three tries, each a little later.
try_again() {
  local try
  for try in 1 2 3; do
    "$@" </dev/null && return 0
    [ "$try" = 3 ] && return 1
    say "      that did not work; trying again in $((try * 5)) s"
    sleep $((try * 5))
  done
}

# Of LLVM 14 and newer, with the runtimes that Debian has in a package of their own.
clang_has_libfuzzer() {
  printf '%s\n' '#include <version>' 'static_assert(__clang_major__ >= 14 && __cpp_lib_ranges);' \
    'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, decltype(sizeof 0)) { return 0; }' |
    clang++ -std=c++20 -fsanitize=fuzzer,address,undefined -x c++ - -o /dev/null 2>/dev/null
}

# How many tests of GoogleTest have passed, of CTest's log.
googletest_passed() { say "GoogleTest: $(awk '/^\[  PASSED  \]/ { n += $4 } END { print n + 0 }' "$1") passed"; }

fingerprint() { cat -- "$@" 2>/dev/null | sha256sum | cut -d' ' -f1; }
# A stamp holds the fingerprint of what a step was made from, so that a step whose sources are the same is not repeated.
is_done() { [ -f "$STAMPS/$1" ] && [ "$(cat "$STAMPS/$1")" = "$2" ]; }
mark_done() { mkdir -p "$STAMPS" && printf '%s\n' "$2" >"$STAMPS/$1"; }
