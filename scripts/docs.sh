#!/usr/bin/env bash
# Builds the documentation as a site, with warnings as errors, in the virtual environment of the tests if it is there, else in one
# of its own. Needs no build of hccl-like.
#
#   scripts/docs.sh          into build/site; open build/site/index.html
#   scripts/docs.sh serve    shows it at http://127.0.0.1:8000 and follows changes
set -euo pipefail
case "${1:-build}" in
  build | serve) ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
STEPS=2
SITE_VENV=$ROOT/build/docs-venv
[ ! -x "$VENV/bin/mkdocs" ] || SITE_VENV=$VENV

packages() {
  local from
  from=$(fingerprint requirements/docs.txt requirements/constraints.txt)
  if [ "$SITE_VENV" = "$VENV" ] || [ "$(cat "$SITE_VENV/.packages" 2>/dev/null)" = "$from" ]; then return; fi
  rm -rf "$SITE_VENV"
  "${PYTHON:-python3}" -m venv "$SITE_VENV" || return 1
  try_again "$SITE_VENV/bin/python" -m pip install --quiet --timeout 60 --constraint requirements/constraints.txt \
    --requirement requirements/docs.txt || return 1
  printf '%s\n' "$from" >"$SITE_VENV/.packages"
}

export NO_MKDOCS_2_WARNING=1
step "A virtual environment with MkDocs in ${SITE_VENV#"$ROOT/"}" packages
if [ "${1:-build}" = serve ]; then exec "$SITE_VENV/bin/mkdocs" serve --strict "${@:2}"; fi
step "The site in build/site" "$SITE_VENV/bin/mkdocs" build --strict
