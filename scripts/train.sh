#!/usr/bin/env bash
# Sets up everything and trains a small vision transformer on handwritten digits: two processes, each with a simulated
# accelerator, that share the work through hccl-like. Arguments go to examples/train_digits.py, for instance
#
#   scripts/train.sh --parallel ddp --device cpu
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin=$SECONDS
bash scripts/setup.sh
say "Everything is set up after $((SECONDS - begin)) s. Training with: torchrun --nproc-per-node=2 examples/train_digits.py $*"
# One thread a process: two processes that each take every core get in each other's way.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
torchrun --standalone --nproc-per-node=2 examples/train_digits.py "$@"
