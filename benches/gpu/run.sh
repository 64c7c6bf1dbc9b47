#!/usr/bin/env bash
# Tests and measures kiln on a machine with an NVIDIA GPU, its driver, bash and python3, but without cargo and network.
#
#   run.sh [day1|day2|PART...]     runs the parts of a day or single parts in order, by default day1
#
#   day1: look probe tests train repeat nccl ranks products    does kiln compute on the GPU what it computes on the CPU?
#   day2: bench torch pyg ncu sanitize                         how fast is it, and is each access in bounds?
#   parts of neither day: start large
#
# The checkout needs target/gpu-day/package, which `cargo xtask gpu pack` creates. Environment variables:
#   OUT=FOLDER       receives table.txt, which grows row by row, and at the end logs.tar.xz (target/gpu-day/results)
#   BUDGET=SECONDS   ends the run early (285 and 365 for the days, 285 for parts); omitted parts are listed
#   DRY_RUN=1        uses small data, for a machine without a GPU: `cargo xtask gpu dry-run`
#
# A command has 45 seconds, the generator of the graph 150 and the part `large` 240. watchdog.py then records where its threads are, and ends it; the next part begins. The exit
# status is 0 if no part failed or was omitted for lack of time. A part whose tool is not on the machine is listed and does
# not count as failed.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd) || exit 2

day=$root/target/gpu-day
package=$day/package logs=$day/logs bin=$day/bin data=$day/data runs=$day/runs
case ${OUT:=$day/results} in /*) out=$OUT ;; *) out=$PWD/$OUT ;; esac
max_log_bytes=$((15 << 20))
limit=45
# A test of this script shortens the limit.
limit=${KILN_KIT_LIMIT:-$limit}
started=$(date +%s)
n_failed=0 n_omitted=0
# The process ids of the running command and of the generator of data, which the trap at the end of this script ends.
child='' generator=''
has_logs=''
# The Python of programs that use PyTorch. In a dry run, it must not load the stub of the driver.
torch_python=(python3) torch_status=''
if [ -n "${DRY_RUN:-}" ]; then torch_python=(env -u LD_LIBRARY_PATH python3); fi

. "$here/flags.sh"

# Sizes, and the flags of training on the generated graph.
if [ -n "${DRY_RUN:-}" ]; then
  shape=small fanouts=3,2,2 n_papers_nodes=100000 n_batches=4 n_launches=20 n_skipped=10
  torch_device=cpu torch_flags="--rows 1024 --edges 2000 --copied 16384 --iterations 3" pyg_flags="--device cpu --hidden 8 --backend aot_eager"
  graph_flags="--layers 3 --hidden 8 --fanouts 3,2,2 --batch-size 64 --device cuda --graph-mode device"
  papers_flags="--layers 3 --hidden 8 --fanouts 3,2,2 --batch-size 256 --val-batches 1 --epochs 1 --device cuda --graph-mode device"
  bench_flags="--warm-up-time 0.01 --measurement-time 0.01"
  export KILN_BENCH_SMALL=1 PROPTEST_CASES=2 PROPTEST_RNG_SEED=1
else
  shape=products fanouts=15,10,5 n_papers_nodes=111059956 n_batches=50 n_launches=90 n_skipped=400
  torch_device=cuda torch_flags="" pyg_flags=""
  graph_flags="--layers 3 --hidden 256 --fanouts 15,10,5 --batch-size 1024 --val-batches 8 --device cuda --graph-mode device"
  papers_flags="--layers 3 --hidden 256 --fanouts 10,10,10 --batch-size 1024 --epochs 1 --device cuda --graph-mode device"
  bench_flags="--warm-up-time 0.2 --measurement-time 0.8"
fi
graph=$data/$shape-like
# The tests of sampling and features. The other tests of kernels are `tests-ops`, except that of a graph of 9 GB.
sampling_tests="kernels::sampler kernels::scan kernels::features kernels::edge_features"
ncu_metrics=gpu__time_duration.sum,dram__bytes.sum,sm__warps_active.avg.pct_of_peak_sustained_active
ncu_metrics+=,launch__grid_size,launch__registers_per_thread
# One case for each kind of kernel that could access memory out of bounds or without a barrier.
sanitized="kernels::scan::running_sums_are_those_of_the_host
  kernels::sampler::fanouts_above_any_degree_take_all_edges
  kernels::sampler::unsorted_neighbours_give_blocks_with_valid_edges
  kernels::features::caches_the_hottest_rows_and_counts_hits
  kernels::segments::reduces_one_segment_of_all_rows
  kernels::dense::linear_equals_its_reference_for_ragged_shapes
  kernels::adam::a_step_matches_the_formula_in_one_op
  kernels::cross_entropy::losses_and_gradients_match_the_formula"

seconds_left() { echo $((BUDGET - ($(date +%s) - started))); }
row() { printf '%s\t%s\n' "$1" "$2" | tee -a "$out/table.txt"; }
# not_here PART TOOL: writes the row of a part whose tool is not on this machine
not_here() { row "$1" "not run: $2 is not on this machine"; }

# timed NAME COMMAND...: runs a command within the limit and the rest of the budget, with its output in a log
timed() {
  local name=$1 rest before status seconds=$limit
  shift
  rest=$(seconds_left)
  if [ "$rest" -lt 8 ]; then
    n_omitted=$((n_omitted + 1))
    row "$name" "not run: no time left"
    return 1
  fi
  # The stub of the driver is slower than a GPU, so that only the budget limits a dry run.
  if [ -n "${DRY_RUN:-}" ] || [ "$rest" -lt "$seconds" ]; then seconds=$rest; fi
  before=$(date +%s)
  : > "$logs/$name.log"
  # `wait` returns at once when this script receives a signal, so that its trap can end the command.
  python3 "$here/watchdog.py" "$seconds" "$logs/$name.log" "$@" < /dev/null &
  child=$!
  wait "$child"
  status=$?
  child=''
  [ "$status" -eq 0 ] || n_failed=$((n_failed + 1))
  local note=''
  [ "$status" -eq 124 ] && note=" (the limit was $seconds s)"
  row "$name" "status $status after $(($(date +%s) - before)) s$note"
  if [ "$status" -eq 124 ]; then table "$name" hang "$logs/$name.log"; fi
  [ "$status" -eq 0 ] || [ "$status" -eq 124 ] || row "  $name" "$(tail -n 3 "$logs/$name.log" | cut -c1-200 | tr '\n' ';')"
  return "$status"
}
# lines NAME PATTERN: writes the last matching lines of a log as rows
lines() {
  grep -E "$2" "$logs/$1.log" 2> /dev/null | tr -s ' ' | tail -n 8 | cut -c1-300 | while IFS= read -r line; do row "  $1" "$line"; done
}
# table NAME ARGUMENTS...: writes the rows of a table of tables.py
table() {
  local name=$1
  shift
  python3 "$here/tables.py" "$@" > "$logs/$name-$1.tsv" 2> "$logs/$name-$1.log"
  local status=$?
  head -n 60 "$logs/$name-$1.tsv" | cut -c1-300 | while IFS= read -r line; do row "  $name" "$line"; done
  if [ "$status" -ne 0 ]; then
    n_failed=$((n_failed + 1))
    row "  $name" "failed: $(tail -n 1 "$logs/$name-$1.log")"
  fi
}

unpack() {
  [ -e "$bin/ready" ] && return
  local before
  before=$(date +%s)
  mkdir -p "$bin"
  if ! python3 "$here/archive.py" unpack "$package" "$bin" > "$logs/unpack.log" 2>&1; then
    row unpack "failed: $(tail -n 1 "$logs/unpack.log")"
    return 1
  fi
  # By this name, `kit` is the program `kiln`.
  ln -sf kit "$bin/kiln"
  touch "$bin/ready"
  row unpack "$(find "$bin" -type f ! -name ready | wc -l) programs after $(($(date +%s) - before)) s"
}

# CubeCL searches libdevice below CUDA_PATH. Kernels with exponentials, such as the loss, do not compile without it.
find_libdevice() {
  local path
  for path in "${CUDA_PATH:-}" /usr/local/cuda /opt/cuda "$package/cuda"; do
    if [ -n "$path" ] && [ -e "$path/nvvm/libdevice/libdevice.10.bc" ]; then
      export CUDA_PATH=$path
      row libdevice "$path"
      return
    fi
  done
  row libdevice "not found: set CUDA_PATH to a toolkit"
}
# NCCL may lie in the folder of PyTorch's wheels, where the loader does not search. What is found elsewhere has priority.
find_nccl() {
  local path
  path=$(python3 -c 'import nvidia
print(next(p for p in (f"{base}/nccl/lib" for base in nvidia.__path__) if __import__("os").path.exists(f"{p}/libnccl.so.2")))' 2> /dev/null)
  [ -n "$path" ] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$path
  row nccl "${path:-not in the folders of Python}"
  row LD_LIBRARY_PATH "${LD_LIBRARY_PATH:-}"
  row libcuda.so.1 "$(python3 -c 'import ctypes; print(ctypes.CDLL("libcuda.so.1"))' 2>&1 | tail -n 1)"
}
# Kernels that a process has compiled are read from files by the next one: the PTX by CubeCL, the machine code by the driver.
keep_kernels() {
  export CUDA_CACHE_PATH=$day/driver-cache CUDA_CACHE_MAXSIZE=2147483648 TORCHINDUCTOR_CACHE_DIR=$day/inductor-cache
  cat > "$day/cubecl.toml" << END
[compilation]
cache = true
[environment]
name = "kit"
path = { directory = "$day/kernel-cache" }
END
}

# Tests once whether PyTorch can be imported, with CUDA except in a dry run.
has_torch() {
  if [ -z "$torch_status" ]; then
    "${torch_python[@]}" -c "import torch; assert '$torch_device' == 'cpu' or torch.cuda.is_available()" > "$logs/torch-import.log" 2>&1
    torch_status=$?
  fi
  return "$torch_status"
}

# Generates a graph of the size of ogbn-products in the background.
start_generator() {
  [ -e "$graph/meta.json" ] && return
  mkdir -p "$data"
  : > "$logs/generate.log"
  local seconds
  local -a device=()
  seconds=$(seconds_left)
  # NumPy takes up to two minutes.
  if [ "$seconds" -gt 150 ]; then seconds=150; fi
  # On a GPU machine, graphs.py itself looks for PyTorch with CUDA.
  [ -n "${DRY_RUN:-}" ] && has_torch && device=(--device cpu)
  python3 "$here/watchdog.py" "$seconds" "$logs/generate.log" "${torch_python[@]}" "$here/graphs.py" "$data" "$shape" --test-nodes 20480 ${device[@]+"${device[@]}"} < /dev/null &
  generator=$!
}
# Waits for the graph. The generator writes meta.json last.
await_graph() {
  [ -e "$graph/meta.json" ] || [ -n "$generator" ] || start_generator
  if [ -n "$generator" ]; then
    wait "$generator"
    generator=''
    row "  graph" "$(tail -n 1 "$logs/generate.log" | cut -c1-300)"
  fi
  [ -e "$graph/meta.json" ] && return 0
  n_failed=$((n_failed + 1))
  row "$1" "not run: $shape-like was not generated: $(tail -n 1 "$logs/generate.log" | cut -c1-200)"
  return 1
}

part_look() {
  # shellcheck disable=SC2016 # The inner shell expands it.
  timed machine bash -c 'nvidia-smi; nvidia-smi -q -d CLOCK,MEMORY | head -n 60; nvcc --version
    ldconfig -p | grep -E "libcuda|libnccl|libnvrtc"; nproc; free -g; df -h .; ldd "$0"; python3 --version; true' "$bin/kiln"
  lines machine 'NVIDIA-SMI|MiB /|release|not found'
  timed look "$bin/kiln" device
  lines look '.'
}

part_probe() {
  KILN_DEVICE=cuda timed probe "$bin/kit" probe "$package/expected/cases.json"
  lines probe '^cases|^differs'
}

# tests NAME CRATE FILTER...: runs device tests, and writes a row of counts and the first failures
tests() {
  local name=$1 crate=$2
  shift 2
  # Tests find their fixtures below the folder of their package.
  CARGO_MANIFEST_DIR=$root/crates/$crate KILN_DEVICE=cuda timed "$name" "$bin/device_tests" --test-threads 4 "$@"
  lines "$name" '^test result|kiln-skip'
  if grep -qsE '^test result: ok. 0 passed' "$logs/$name.log"; then
    n_failed=$((n_failed + 1))
    row "  $name" "failed: no test has this name"
  fi
  grep -E ' FAILED$|panicked at' "$logs/$name.log" 2> /dev/null | head -n 5 | while read -r line; do row "    $name" "$line"; done
}
part_tests() {
  local filter
  local -a skips=()
  if [ -n "${DRY_RUN:-}" ]; then
    tests tests-sampling kernels kernels::scan kernels::sampler::fanouts_above
    tests tests-ops kernels kernels::adam kernels::rows
    tests tests-nn nn nn::loss
    tests tests-train train train::device_nodes::batches_of_the_device_equal
    return
  fi
  for filter in $sampling_tests; do skips+=(--skip "$filter"); done
  # shellcheck disable=SC2086 # Filters without blanks.
  tests tests-sampling kernels $sampling_tests
  tests tests-ops kernels kernels:: "${skips[@]}" --skip kernels::large_graph
  tests tests-nn nn nn::
  tests tests-train train train::
  tests tests-large kernels kernels::large_graph
}
part_nccl() { tests nccl nccl nccl::; }

# Compares training on the GPU with the CPU: the same batches, and losses that differ by rounding only.
part_train() {
  local name
  for name in cuda cuda-graph; do
    # shellcheck disable=SC2086 # Flags without blanks.
    timed "train-$name" "$bin/kiln" train $parity_flags --device cuda $([ $name = cuda ] || echo --graph-mode device) --out "$runs/$name"
    lines "train-$name" '^(epoch|iteration|test accuracy|weights)'
    table "train-$name" losses "$package/expected/losses-$parity_name-1.json" "$runs/$name"
  done
}

# Equal runs, five on a GPU, must end with the same weights.
part_repeat() {
  # shellcheck disable=SC2016 # The inner shell expands it.
  RUNS=$repeats timed repeat bash -c 'for run in $RUNS; do "$@" --out "$0/repeat-$run" || exit; done' "$runs" \
    "$bin/kiln" train $repeat_flags --device cuda --graph-mode device
  table repeat weights "$logs/repeat.log"
}

# Two ranks on one device, which the host sums: NCCL refuses two ranks on one device.
part_ranks() {
  # shellcheck disable=SC2086 # Flags without blanks.
  timed ranks "$bin/kiln" train $parity_flags --ranks 2 --device cuda:0,cuda:0 --deadline 20 --out "$runs/ranks"
  lines ranks '^(epoch|iteration|weights)'
  table ranks losses "$package/expected/losses-$parity_name-2.json" "$runs/ranks"
}

part_products() {
  await_graph products || return
  # shellcheck disable=SC2086 # Flags without blanks.
  timed products-f32 "$bin/kiln" train --data "$graph" $graph_flags --epochs 2 --out "$runs/products-f32"
  table products-f32 epochs "$runs/products-f32"
  # shellcheck disable=SC2086 # Flags without blanks.
  timed products-tf32 "$bin/kiln" train --data "$graph" $graph_flags --epochs 1 --precision tf32 --out "$runs/products-tf32"
  table products-tf32 epochs "$runs/products-tf32"
}

# The first command needs no graph. `fake` as the only data set omits the benches of graphs.
part_bench() {
  local criterion=$day/criterion
  rm -rf "$criterion"
  # shellcheck disable=SC2086 # Flags without blanks.
  KILN_DEVICE=cuda KILN_BENCH_DATA=fake CRITERION_HOME=$criterion timed bench-rows "$bin/kit" device --bench --noplot $bench_flags
  if await_graph bench-graph; then
    # shellcheck disable=SC2086 # Flags without blanks.
    KILN_DEVICE=cuda KILN_BENCH_INPUTS_ONLY=1 KILN_BENCH_DATA=$graph KILN_BENCH_FANOUTS=$shape-like=$fanouts CRITERION_HOME=$criterion \
      timed bench-graph "$bin/kit" device --bench --noplot $bench_flags
  fi
  table bench bench "$criterion"
  # The file contains the work per iteration of each bench, from which rates are computed.
  cp "$criterion/work.jsonl" "$logs/" 2> /dev/null
}

part_torch() {
  has_torch || { not_here torch PyTorch; return; }
  # shellcheck disable=SC2086 # Flags without blanks.
  timed torch "${torch_python[@]}" "$here/torch_compare.py" --device "$torch_device" $torch_flags
  grep '^{' "$logs/torch.log" | tail -n 60 | while IFS= read -r line; do row "  torch" "$line"; done
}

# Steps of kiln and of PyG on the same batches.
part_pyg() {
  local name
  await_graph pyg || return
  export KILN_BENCH_FANOUTS=$shape-like=$fanouts
  KILN_DEVICE=cuda timed steps-kiln "$bin/kit" steps "$graph" "$n_batches"
  timed batches "$bin/kit" batches "$graph" "$data/batches" "$n_batches" || return
  if has_torch && "${torch_python[@]}" -c 'import torch_geometric' 2> /dev/null; then
    for name in eager compiled; do
      # shellcheck disable=SC2086 # Flags without blanks.
      timed "steps-pyg-$name" "${torch_python[@]}" "$here/pyg_steps.py" "$data/batches" "$graph" --steps "$n_batches" $pyg_flags $([ $name = eager ] || echo --compile)
    done
  else
    not_here steps-pyg "PyTorch or PyG"
  fi
  table pyg steps "$logs"/steps-kiln.log "$logs"/steps-pyg-*.log
}

# Measures the first step of two processes, which shows whether the second process reuses compiled kernels.
part_start() {
  local time
  await_graph start || return
  for time in cold warm; do
    [ $time = cold ] && rm -rf "$day/driver-cache" "$day/kernel-cache"
    KILN_DEVICE=cuda KILN_BENCH_FANOUTS=$shape-like=$fanouts timed "start-$time" "$bin/kit" first-step "$graph"
    lines "start-$time" '^{'
  done
}

# Measures the launches of about one step and one batch, after those of the first batches.
part_ncu() {
  command -v ncu > /dev/null || { not_here ncu ncu; return; }
  await_graph ncu || return
  # shellcheck disable=SC2086 # Flags without blanks.
  timed ncu ncu --clock-control none --csv --print-units base --metrics "$ncu_metrics" --launch-skip "$n_skipped" --launch-count "$n_launches" \
    "$bin/kiln" train --data "$graph" $graph_flags --epochs 1 --out "$runs/ncu"
  table ncu ncu "$logs/ncu.log"
}

part_sanitize() {
  local tool names=$sanitized
  command -v compute-sanitizer > /dev/null || { not_here sanitize compute-sanitizer; return; }
  for tool in memcheck racecheck initcheck synccheck; do
    # shellcheck disable=SC2086 # Names without blanks.
    CARGO_MANIFEST_DIR=$root/crates/kernels KILN_DEVICE=cuda timed "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$bin/device_tests" --test-threads 1 --exact $names
    lines "$tool" 'SUMMARY|^test result'
    # A test that was renamed is no test.
    if grep -qs '^test result: ok' "$logs/$tool.log" && ! grep -qs "^running $(set -- $names; echo $#) tests\?$" "$logs/$tool.log"; then
      n_failed=$((n_failed + 1))
      row "  $tool" "failed: a named case does not exist"
    fi
    # The names are tested now, and the stub finds nothing in a second run of the same cases.
    if [ -n "${DRY_RUN:-}" ]; then names=${sanitized##* }; fi
  done
}

# Trains on a graph of the shape of ogbn-papers100M.
part_large() {
  local limit=240
  timed large-data python3 "$here/papers.py" "$data/papers-like" "$n_papers_nodes" || return
  # shellcheck disable=SC2086 # Flags without blanks.
  timed large "$bin/kiln" train --data "$data/papers-like" $papers_flags --out "$runs/large"
  lines large '^(epoch|iteration|peak)'
}

# Ends the running command and the generator, so that no process outlives this script, and packs the logs.
finish() {
  local pid
  for pid in $child $generator; do kill "$pid" 2> /dev/null; done
  wait
  [ -n "$has_logs" ] && python3 "$here/archive.py" logs "$max_log_bytes" "$out/logs.tar.xz" "$logs"
}
interrupted() {
  row end "interrupted by a signal after $(($(date +%s) - started)) s"
  exit 143
}

# Adds the parts of the arguments to `parts`, and their budget to `budget`.
select_parts() {
  local name
  for name in "$@"; do
    case $name in
      day1) parts+=(look probe tests train repeat nccl ranks products) budget=$((budget + 285)) ;;
      day2) parts+=(bench torch pyg ncu sanitize) budget=$((budget + 365)) ;;
      look | probe | tests | train | repeat | nccl | ranks | products | bench | torch | pyg | ncu | sanitize | start | large)
        parts+=("$name") budget=$((budget + 285))
        ;;
      *)
        echo "run.sh: no part $name: expected day1, day2 or a part that the head of this script lists" >&2
        return 2
        ;;
    esac
  done
}

main() {
  local name budget=0
  local -a parts=()
  [ $# -gt 0 ] || set -- day1
  select_parts "$@" || return
  BUDGET=${BUDGET:-$budget}
  # `kiln train` rejects the folder of an earlier run.
  rm -rf "$runs"
  mkdir -p "$out" "$logs" "$runs" || return 2
  row kiln "$(cat "$package/commit" 2> /dev/null || echo 'no package'), parts ${parts[*]}, $(date -u '+%Y-%m-%d %H:%M:%S'), ${DRY_RUN:+dry run, }budget $BUDGET s"
  if [ ! -e "$package/programs.json" ]; then
    row package "$package/programs.json does not exist: run \`cargo xtask gpu pack\` on the machine with cargo"
    return 2
  fi
  # CubeCL reads cubecl.toml from the working directory.
  cd "$day" || return 2
  has_logs=1
  unpack || return 2
  find_libdevice
  find_nccl
  keep_kernels
  for name in "${parts[@]}"; do
    "part_$name"
    # The graph is generated while the tests after the first kernel run.
    case "$name ${parts[*]}" in look*products*) start_generator ;; esac
  done
  row end "$n_failed failed, $n_omitted omitted for lack of time, after $(($(date +%s) - started)) s"
  [ $((n_failed + n_omitted)) -eq 0 ]
}

trap finish EXIT
trap interrupted TERM INT HUP
main "$@"
