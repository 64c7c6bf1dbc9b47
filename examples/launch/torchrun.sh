#!/bin/bash
# Runs a program in several processes under torchrun. If a process fails, torchrun restarts all processes, at most
# MAX_RESTARTS times.
# Run the same command on each machine; NODES, HOST and PORT are passed to torchrun:
#
#   KILN_JOB_TOKEN=... NODES=2 HOST=node1 PORT=29500 examples/launch/torchrun.sh 4 \
#       target/release/kiln train --data debian-packages --engine store --continue runs/mine
#
# torchrun does not start MPI, so the programs need `--engine store`, or one GPU each.
set -eu
n_local=$1
shift
: "${KILN_JOB_TOKEN:?set it to the same random text on all machines}"
export KILN_JOB_TOKEN
exec torchrun --no-python --nnodes="${NODES:-1}" --nproc-per-node="$n_local" --max-restarts="${MAX_RESTARTS:-20}" \
    --rdzv-backend=c10d --rdzv-endpoint="${HOST:-127.0.0.1}:${PORT:-29500}" --rdzv-id="${JOB:-kiln}" "$@"
