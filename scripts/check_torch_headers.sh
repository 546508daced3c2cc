#!/usr/bin/env bash
# Compiles process_group/ and the bindings against the headers of other versions of PyTorch, without building anything.
#
#   scripts/check_torch_headers.sh 2.12.0 2.14.0          all sources
#   FILES="process_group/work.cc" scripts/check_torch_headers.sh 2.12.0
#
# The headers come from the wheels that pip would install (12 MB of each, scripts/torch_headers.py) and stay in
# build/torch-headers. Logs of what does not compile lie beside them.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
[ $# -gt 0 ] || { sed -n 2,8p "$0" | sed 's/^# \{0,1\}//'; exit 2; }
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
FILES=${FILES:-$(find process_group python/bindings -name '*.cc' ! -name '*_test.cc' | LC_ALL=C sort)}
JOBS=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
PYTHON_INCLUDE=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')
failed=()

for version in "$@"; do
  headers=build/torch-headers/$version
  if [ ! -f "$headers/version" ]; then
    rm -rf "$headers"
    "$PYTHON" scripts/torch_headers.py "$version" "$headers"
  fi
  logs=$headers/logs
  rm -rf "$logs"
  mkdir -p "$logs"
  compile() {
    local log=$2/${1//\//_}.log
    "${CXX:-g++}" -std=c++20 -fsyntax-only -w -DFMT_HEADER_ONLY=1 -DTORCH_API_INCLUDE_EXTENSION_H -DTORCH_EXTENSION_NAME=_C \
      -I. -isystem "$3/torch/include" -isystem "$3/torch/include/torch/csrc/api/include" -isystem "$4" "$1" >"$log" 2>&1 &&
      rm "$log" || true
  }
  export -f compile
  printf '%s\n' $FILES | xargs -P "$JOBS" -I{} bash -c 'compile "$@"' _ {} "$logs" "$headers" "$PYTHON_INCLUDE"
  count=$(find "$logs" -type f | wc -l)
  echo "torch $version: $(wc -w <<<"$FILES") files, $count of them do not compile"
  if [ "$count" -gt 0 ]; then
    grep -h -m 3 'error:' "$logs"/*.log | LC_ALL=C sort | uniq -c | sort -rn | head -20
    failed+=("$version")
  fi
done
[ ${#failed[@]} = 0 ]
