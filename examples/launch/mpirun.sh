#!/bin/bash
# A program on several processes by Open MPI, which is started again, where it stopped, after a rank was lost or a
# signal has stopped it:
#
#   examples/launch/mpirun.sh 4 target/release/multi_node --continue runs/mine
#   MPIRUN_FLAGS="--hostfile machines --map-by ppr:2:node" examples/launch/mpirun.sh 8 target/release/multi_node ...
set -u
n_ranks=$1
shift

# After so many starts something else is wrong.
max_restarts=${MAX_RESTARTS:-20}

# More ranks than cores: those that wait must leave the cores to those that work.
if ((n_ranks > $(nproc))); then
    export OMPI_MCA_mpi_yield_when_idle=1
    MPIRUN_FLAGS="--oversubscribe ${MPIRUN_FLAGS:-}"
fi

# mpirun passes USR1 on to all ranks, which write a checkpoint after their step and end with status 75; then, and
# when mpirun is told to end, it is not started again.
told= job=
stop() {
    told=1
    [[ -z $job ]] || kill -"$1" "$job" 2>/dev/null
}
trap 'stop USR1' USR1
trap 'stop TERM' TERM INT

for ((restarts = 0; ; restarts++)); do
    # shellcheck disable=SC2086 # flags are words
    mpirun ${MPIRUN_FLAGS:-} -n "$n_ranks" "$@" &
    job=$!
    # A signal that came before the number was known.
    [[ -z $told ]] || kill -TERM "$job" 2>/dev/null
    # A signal ends the wait, too.
    wait "$job"
    status=$?
    while kill -0 "$job" 2>/dev/null; do
        wait "$job"
        status=$?
    done
    # 75: a rank was lost, or told to stop; 137: one was killed. Anything else would go wrong again.
    if [[ -n $told ]] || ((status != 75 && status != 137)) || ((restarts >= max_restarts)); then
        exit "$status"
    fi
    echo "exit status $status: started again"
done
