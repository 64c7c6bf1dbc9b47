#!/bin/bash
# A program on several processes by torchrun, which starts all of them again, at most so often, when one has ended
# badly. The same command on each machine; NODES, HOST and PORT are those of torchrun:
#
#   KILN_JOB_TOKEN=... NODES=2 HOST=node1 PORT=29500 examples/launch/torchrun.sh 4 \
#       target/release/multi_node --engine store --continue runs/mine
#
# torchrun starts no MPI: the programs take `--engine store`, or one GPU each.
set -eu
n_local=$1
shift
: "${KILN_JOB_TOKEN:?set it to the same random text on all machines}"
export KILN_JOB_TOKEN
exec torchrun --no-python --nnodes="${NODES:-1}" --nproc-per-node="$n_local" --max-restarts="${MAX_RESTARTS:-20}" \
    --rdzv-backend=c10d --rdzv-endpoint="${HOST:-127.0.0.1}:${PORT:-29500}" --rdzv-id="${JOB:-kiln}" "$@"
