#!/usr/bin/env bash
# A real Slurm cluster on one machine, for tests. Must run as root.
#
#   cluster.sh up DIR PREFIX [N_NODES=2] [CPUS=4]   start the cluster, and wait until all nodes are idle
#   cluster.sh exec DIR PREFIX CMD...               become CMD on the login node
#   cluster.sh cut DIR PREFIX NODE                  take the link of node 1, 2, ... down
#   cluster.sh mend DIR PREFIX NODE                 bring the link up again
#   cluster.sh down DIR PREFIX                      stop the cluster, also after an `up` that was killed
#   cluster.sh missing                              print the requirements that the machine lacks, if any
#
# Nodes are named vnode1, vnode2, ... Each is a network, UTS, mount and IPC namespace, and so has its own hostname,
# address, /tmp, /dev/shm and a link that can be cut. The links end at a bridge in another network namespace, which
# contains the login node and the controller. The namespaces are named PREFIXsw, PREFIXn1, ...
# DIR contains all state and all logs. Under /tmp a node sees only DIR and the folders that the environment variable
# KEEP lists, separated by colons, when `up` is called. `up` undoes its changes when it fails or is interrupted.
# `exec` sets no time limit; its caller does.
set -euo pipefail

SELF=$(readlink -f "${BASH_SOURCE[0]}")
UP_SECONDS=180     # until all nodes are idle
STEP_SECONDS=60    # for each command that contacts or starts a daemon
STOP_SECONDS=5     # from SIGTERM to SIGKILL

fail() {
  echo "cluster.sh: $*" >&2
  exit 1
}

# Prints the requirements that the machine lacks, separated by commas.
missing() {
  local lacks=() program
  [ "$(id -u)" = 0 ] || lacks+=("the rights of root")
  for program in slurmctld slurmd munged srun sbatch sinfo ip nsenter unshare mount hostname timeout; do
    command -v "$program" >/dev/null || lacks+=("$program")
  done
  # The links can be tested only if all other requirements are met.
  [ ${#lacks[@]} -gt 0 ] || timeout $STEP_SECONDS unshare --net --uts --mount --ipc bash -c \
    'ip link add bridge0 type bridge && ip link add end0 type veth peer name end1 && mount -t tmpfs tmpfs /tmp' \
    >/dev/null 2>&1 || lacks+=("namespaces with links and mounts of their own")
  (IFS=, && echo "${lacks[*]}" | sed 's/,/, /g')
}

up() {
  local n_nodes=${1:-2} cpus=${2:-4} i kept_paths
  [[ $n_nodes =~ ^[1-9][0-9]?$ ]] || fail "expected 1 to 99 nodes, got \"$n_nodes\""
  [[ $cpus =~ ^[1-9][0-9]*$ ]] || fail "expected a number of CPUs, got \"$cpus\""
  IFS=: read -r -a kept_paths <<<"${KEEP:-}"
  for i in "${kept_paths[@]}"; do
    [ -d "$i" ] && [ "$(readlink -e "$i")" != /tmp ] || fail "expected folders other than /tmp in KEEP, got \"$i\""
  done
  [ -z "$(namespaces)" ] || fail "there are namespaces of the prefix $PREFIX already"
  # From here on, any exit before the last line of this function undoes the changes.
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  trap 'taken_back $?' EXIT
  make_links "$n_nodes"
  write_files "$n_nodes" "$cpus"
  # Daemons must not inherit the standard streams of `up`: a reader of its pipes would wait until the daemons exit.
  nsenter --net="/run/netns/${PREFIX}sw" timeout $STEP_SECONDS munged --force --socket="$DIR/run/munge.sock" \
    --key-file="$DIR/munge/key" --seed-file="$DIR/munge/seed" --pid-file="$DIR/run/munged.pid" \
    --log-file="$DIR/log/munged.log" </dev/null >"$DIR/log/munged.out" 2>&1
  start "${PREFIX}sw" ctl slurmctld -f "$SLURM_CONF" -c
  for i in $(seq 1 "$n_nodes"); do
    mkdir -p "$DIR/spool/vnode$i" "$DIR/tmp/vnode$i"
    start "${PREFIX}n$i" "vnode$i" slurmd -f "$SLURM_CONF" -N "vnode$i"
  done
  await_idle "$n_nodes"
  trap - EXIT INT TERM HUP
}

taken_back() {
  # Neither a second signal nor a failed command may stop the cleanup.
  trap '' INT TERM HUP
  trap - EXIT
  set +e
  echo "cluster.sh: up failed with status $1; the ends of the logs:" >&2
  if [ -d "$DIR/log" ]; then find "$DIR/log" -type f -size +0 -exec tail -v -n 8 {} + >&2; fi
  down
  exit "$1"
}

make_links() {
  local n_nodes=$1 i sw="${PREFIX}sw"
  ip netns add "$sw"
  ip -n "$sw" link set lo up
  ip -n "$sw" link add br0 type bridge
  ip -n "$sw" link set br0 up
  ip -n "$sw" addr add 10.77.0.254/24 dev br0
  for i in $(seq 1 "$n_nodes"); do
    ip netns add "${PREFIX}n$i"
    ip link add eth0 netns "${PREFIX}n$i" type veth peer name "port$i" netns "$sw"
    ip -n "${PREFIX}n$i" addr add "10.77.0.$i/24" dev eth0
    ip -n "${PREFIX}n$i" link set lo up
    ip -n "${PREFIX}n$i" link set eth0 up
    ip -n "$sw" link set "port$i" master br0 up
  done
}

write_files() {
  local n_nodes=$1 cpus=$2 i
  mkdir -p "$DIR"/{munge,ctld,spool,log,run,tmp}
  # munged rejects a key that other users can read, and a socket folder that they cannot.
  chmod 755 "$DIR" "$DIR/run"
  chmod 700 "$DIR/munge"
  (umask 077 && head -c 1024 /dev/urandom >"$DIR/munge/key")
  {
    echo "127.0.0.1 localhost"
    echo "10.77.0.254 ctl"
    for i in $(seq 1 "$n_nodes"); do echo "10.77.0.$i vnode$i"; done
  } >"$DIR/hosts"
  printf '%s' "${KEEP:-}" >"$DIR/keep"
  # A requeued job waits for the lifetime of its credentials (120 s by default) and for the next scheduling interval (60
  # s by default), so both are shortened. `config_overrides` lets nodes have more CPUs than the machine.
  cat >"$SLURM_CONF" <<CONF
ClusterName=kiln
SlurmctldHost=ctl(10.77.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$DIR/run/munge.sock,cred_expire=10
CredType=cred/munge
SlurmctldPidFile=$DIR/run/slurmctld.pid
SlurmctldLogFile=$DIR/log/slurmctld.log
StateSaveLocation=$DIR/ctld
SlurmdPidFile=$DIR/run/slurmd.%n.pid
SlurmdLogFile=$DIR/log/slurmd.%n.log
SlurmdSpoolDir=$DIR/spool/%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobRequeue=1
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
SlurmdTimeout=10
MessageTimeout=5
NodeName=vnode[1-$n_nodes] NodeAddr=10.77.0.[1-$n_nodes] CPUs=$cpus RealMemory=2000 State=UNKNOWN
PartitionName=ci Nodes=ALL Default=YES MaxTime=30 State=UP
CONF
}

# start NAMESPACE HOSTNAME DAEMON...: starts a daemon, which moves to the background by itself.
start() {
  timeout $STEP_SECONDS nsenter --net="/run/netns/$1" unshare --uts --mount --ipc \
    bash "$SELF" inside "$DIR" "$PREFIX" "${@:2}" </dev/null >"$DIR/log/$3.$2.out" 2>&1
}

# inside HOSTNAME CMD...: runs in new namespaces, sets them up as that host and becomes the command.
# `ip netns exec` is not used, because it mounts another /sys, which lacks the control groups that slurmd needs.
inside() {
  local host=$1
  hostname "$host"
  mount --make-rprivate /
  mount -t tmpfs tmpfs /dev/shm
  mount --bind "$DIR/hosts" /etc/hosts
  [ "$host" = ctl ] || own_tmp "$DIR/tmp/$host"
  shift
  exec "$@"
}

# Mounts an empty /tmp, in which DIR and the folders of KEEP keep their paths.
own_tmp() {
  local staged=$1 tmp=/tmp kept kept_paths
  IFS=: read -r -a kept_paths <<<"$(cat "$DIR/keep")"
  mount -t tmpfs -o mode=1777 tmpfs "$staged"
  for kept in "$DIR" "${kept_paths[@]}"; do
    kept=$(readlink -e "$kept")
    [[ $kept == "$tmp"/* ]] || continue
    mkdir -p "$staged${kept#/tmp}"
    mount --bind "$kept" "$staged${kept#/tmp}"
  done
  # A mount on /tmp hides its contents, so the mounts are made elsewhere first and then moved.
  mount --move "$staged" /tmp
}

await_idle() {
  local n_nodes=$1 n_idle deadline=$((SECONDS + UP_SECONDS))
  until
    n_idle=$(on_login timeout $STEP_SECONDS sinfo --noheader --Node --format=%T 2>"$DIR/log/sinfo.out" |
      grep -cx idle || true)
    [ "$n_idle" = "$n_nodes" ]
  do
    [ "$SECONDS" -lt "$deadline" ] || fail "$n_idle of $n_nodes nodes are idle after $UP_SECONDS s"
    sleep 0.1
  done
}

# Keeps the PID for CMD, so that a caller's signals reach it.
become_on_login() {
  exec nsenter --net="/run/netns/${PREFIX}sw" unshare --uts --mount --ipc \
    bash "$SELF" inside "$DIR" "$PREFIX" ctl "$@"
}

on_login() {
  (become_on_login "$@")
}

# set_link NODE up|down: changes the link on the side of the switch, so that the node loses its carrier.
set_link() {
  [[ $1 =~ ^[1-9][0-9]?$ ]] || fail "expected the number of a node, got \"$1\""
  ip -n "${PREFIX}sw" link set "port$1" "$2"
}

# Stops the recorded daemons, then all other processes in this cluster's namespaces, then deletes the namespaces.
down() {
  local deadline=$((SECONDS + STOP_SECONDS)) namespace
  signal_recorded TERM || true
  while signal_recorded 0 && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.05; done
  signal_recorded KILL || true
  rm -f "$DIR"/run/*.pid
  for namespace in $(namespaces); do
    kill_inside "$namespace"
    ip netns del "$namespace"
  done
}

# signal_recorded SIGNAL: signals the recorded daemons, and succeeds if there was at least one. Checks the program's
# name, because the PID may have been reused.
signal_recorded() {
  local file pid program found=1
  for file in "$DIR"/run/*.pid; do
    pid=$(cat "$file" 2>/dev/null) || continue
    program=$(basename "$file")
    if [[ $pid =~ ^[1-9][0-9]*$ ]] && [ "$(running "$pid")" = "${program%%.*}" ]; then
      kill -s "$1" "$pid" 2>/dev/null || true
      found=0
    fi
  done
  return $found
}

# Prints the name of a process's program, or nothing if it has exited or is a zombie.
running() {
  grep -q '^State:[[:space:]]*[ZX]' "/proc/$1/status" 2>/dev/null || cat "/proc/$1/comm" 2>/dev/null || true
}

# Kills the processes in a namespace. Job steps outlive the daemons, and may start processes until they are killed, so
# it repeats until there are none.
kill_inside() {
  local pids deadline=$((SECONDS + STOP_SECONDS))
  while pids=$(ip netns pids "$1") && [ -n "$pids" ]; do
    [ "$SECONDS" -lt "$deadline" ] || fail "cannot kill these processes in the namespace $1:" $pids
    kill -s KILL $pids 2>/dev/null || true
    sleep 0.02
  done
}

# Prints the network namespaces of this cluster.
namespaces() {
  ip netns list | awk '{ print $1 }' | grep -Ex "$PREFIX(sw|n[0-9]+)" || true
}

# Slurm's daemons and `ip` are in sbin folders, which may be missing from the PATH.
PATH=$PATH:/usr/sbin:/sbin
[ "${1:-}" != missing ] || { missing; exit; }
[ $# -ge 3 ] || fail "usage: cluster.sh up|exec|cut|mend|down DIR PREFIX [...], or cluster.sh missing"
ACTION=$1
DIR=$(readlink -m "$2")
PREFIX=$3
shift 3
# Socket paths below DIR have at most 107 bytes, of which slurmstepd appends about 40. slurm.conf has no quoting, which
# restricts the characters.
[[ $DIR =~ ^/[A-Za-z0-9._/-]{1,63}$ ]] || fail "expected a DIR of at most 64 plain characters, got \"$DIR\""
[ "$DIR" != /tmp ] || fail "DIR must not be /tmp itself, because nodes have their own /tmp"
[[ $PREFIX =~ ^[a-z][a-z0-9]{0,11}$ ]] || fail "expected a PREFIX of 1 to 12 of a-z and 0-9, got \"$PREFIX\""
export SLURM_CONF="$DIR/slurm.conf"
# PMIx's shared-memory store is suspected of rare crashes in MPI_Init when one step starts right after another.
export PMIX_MCA_gds=hash
case $ACTION in
  up) up "$@" ;;
  down) down ;;
  exec) become_on_login "$@" ;;
  cut) set_link "${1:-}" down ;;
  mend) set_link "${1:-}" up ;;
  inside) inside "$@" ;;
  *) fail "expected up, exec, cut, mend or down, got \"$ACTION\"" ;;
esac
