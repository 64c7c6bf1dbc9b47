# The flags of training whose losses run.sh compares with those that expect.sh has computed on the CPU. Both read this
# file. Sourced by bash; DRY_RUN selects small data.
# shellcheck shell=bash disable=SC2034 # The scripts that source this file use the variables.

if [ -n "${DRY_RUN:-}" ]; then
  parity_name=dry-run
  parity_flags="--data fake:2000 --layers 2 --hidden 8 --fanouts 3,2 --batch-size 256 --val-batches 1 --epochs 2 --seed 1"
  repeat_flags="--data fake:2000 --layers 2 --hidden 8 --fanouts 3,2 --batch-size 256 --val-batches 1 --epochs 1 --seed 2"
  repeats="1 2"
else
  parity_name=day
  parity_flags="--epochs 4 --seed 1"
  repeat_flags="--epochs 1 --seed 2"
  repeats="1 2 3 4 5"
fi
