#!/bin/bash
# Runs a program in several processes under Open MPI, and restarts it after the loss of a rank or a signal to the ranks.
# The run resumes from its last checkpoint:
#
#   examples/launch/mpirun.sh 4 target/release/multi_node --continue runs/mine
#   MPIRUN_FLAGS="--hostfile machines --map-by ppr:2:node" examples/launch/mpirun.sh 8 target/release/multi_node ...
set -u
n_ranks=$1
shift

# The limit on restarts, because more of them indicate a persistent failure.
max_restarts=${MAX_RESTARTS:-20}

# With more ranks than cores, ranks that wait must yield to ranks that compute.
if ((n_ranks > $(nproc))); then
    export OMPI_MCA_mpi_yield_when_idle=1
    MPIRUN_FLAGS="--oversubscribe ${MPIRUN_FLAGS:-}"
fi

# mpirun forwards USR1 to all ranks, which write a checkpoint after the current step and exit with status 75. After a
# signal to this script, the program is not restarted.
told= job=
stop() {
    told=1
    [[ -z $job ]] || kill -"$1" "$job" 2>/dev/null
}
trap 'stop USR1' USR1
trap 'stop TERM' TERM INT

for ((restarts = 0; ; restarts++)); do
    # shellcheck disable=SC2086 # The flags are separate words.
    mpirun ${MPIRUN_FLAGS:-} -n "$n_ranks" "$@" &
    job=$!
    # A signal may have arrived before the PID was known.
    [[ -z $told ]] || kill -TERM "$job" 2>/dev/null
    # A signal interrupts `wait`, too.
    wait "$job"
    status=$?
    while kill -0 "$job" 2>/dev/null; do
        wait "$job"
        status=$?
    done
    # 75: a rank was lost or stopped; 137: a rank was killed. Other failures are permanent.
    if [[ -n $told ]] || ((status != 75 && status != 137)) || ((restarts >= max_restarts)); then
        exit "$status"
    fi
    echo "exit status $status: started again"
done
