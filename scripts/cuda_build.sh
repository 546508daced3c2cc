#!/usr/bin/env bash
# Installs a CUDA build of PyTorch, which is what `pip install torch` gives to most people, and runs every collective and symmetric
# memory with it, on CPU tensors and on the simulated accelerator. It needs no GPU.
#
#   scripts/cuda_build.sh             builds hccl-like and torch_sim for that PyTorch, from a copy of the sources
#   scripts/cuda_build.sh --as-built  takes what scripts/setup.sh built for the PyTorch in .venv, which may be a CPU build
#
# All it makes is in build/torch-cuda (6 GB); remove that folder to begin anew. FILES names other test files.
set -euo pipefail
STEPS=3
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
TORCH=2.13.0
FOLDER=$ROOT/build/torch-cuda
CUDA_VENV=$FOLDER/venv
PYTHON=$CUDA_VENV/bin/python
FILES=${FILES:-test_collectives.py test_symmetric_memory.py test_symmetric_operators.py test_torch_builds.py}

# The index's own build: `===` compares the whole version, so 2.13.0+cpu in a folder of wheels does not match.
install_torch() {
  if ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
    rm -rf "$CUDA_VENV"
    "${BASE_PYTHON:-$VENV/bin/python}" -m venv "$CUDA_VENV" || return 1
  fi
  try_again "$PYTHON" -m pip install --quiet --timeout 60 --retries 3 --constraint requirements/constraints.txt \
    "torch===$TORCH" numpy setuptools wheel cmake ninja pytest pytest-timeout expecttest || return 1
  "$PYTHON" -c 'import sys, torch
sys.exit(0 if torch.version.cuda else f"the package index has no CUDA build of torch: pip took {torch.__version__}")'
}

# A copy, so that the build folder and the metadata in the sources stay those of the PyTorch in .venv.
build() {
  local source=$FOLDER/source part
  mkdir -p "$source"
  find "$source" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} + || return 1
  tar --exclude ./build --exclude ./.venv --exclude ./.git --exclude '*.so' --exclude '*.egg-info' --exclude __pycache__ \
    -cf - . | tar -C "$source" -xf - || return 1
  export PATH=$CUDA_VENV/bin:$PATH CCACHE_BASEDIR=$source TORCH_SIM_BUILD_DIR=$source/build/torch_sim
  for part in . simulator; do
    (cd "$source/$part" && "$PYTHON" -m pip install --quiet --no-deps --no-build-isolation --force-reinstall .) || return 1
  done
}

# Both packages as they are installed in .venv: hccl-like in the source tree, named by its metadata, and torch_sim.
as_built() {
  local from to
  from=$(echo "$VENV"/lib/python*/site-packages) to=$(echo "$CUDA_VENV"/lib/python*/site-packages)
  rm -rf "$to"/{hccl_like*,__editable__.hccl_like*,torch_sim*}
  cp -r "$from"/{hccl_like-*.dist-info,__editable__.hccl_like-*.pth,torch_sim,torch_sim-*.dist-info} "$to"
}

first_light() {
  # shellcheck disable=SC2086
  (cd tests/python && timeout --kill-after=30 3600 "$PYTHON" -m pytest -q --timeout 600 -p no:cacheprovider -m "not slow" $FILES) ||
    return 1
  "$PYTHON" -c 'import torch, hccl_like, torch_sim
print(f"torch {torch.__version__}: hccl-like of {hccl_like.__path__[0]} and torch_sim work")'
}

case "${1:-}" in
  "") part=build what="Building hccl-like and torch_sim for it" ;;
  --as-built) part=as_built what="Taking hccl-like and torch_sim as they were built for the PyTorch in .venv" ;;
  *) sed -n '2,8p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
step "PyTorch $TORCH, a CUDA build, in build/torch-cuda" install_torch
step "$what" "$part"
step "First light: $FILES" first_light
