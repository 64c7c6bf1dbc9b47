#!/usr/bin/env bash
# Tests and measures kiln on a machine with an NVIDIA GPU, its driver, bash and python3, but without cargo and network.
#
#   run.sh [PIECE|PART...]     runs these pieces or single parts in order, by default piece 1
#
# The pieces are groups of parts that can each be the first on a new machine; README.md lists them.
#   1: look smoke train    2: bench torch start    3: ncu suite    4: large sanitize
#
# The checkout needs target/gpu-day/package, which `cargo xtask gpu pack` creates. Environment variables:
#   OUT=FOLDER       receives table.txt, which grows row by row, and at the end logs.tar.xz (target/gpu-day/results)
#   BUDGET=SECONDS   ends the run early (360, 420, 420 and 300 for the pieces, 540 for parts); omitted parts are listed
#   DRY_RUN=1        uses small data, for a machine without a GPU: `cargo xtask gpu dry-run`
#
# The exit status is 0 if no part failed or was omitted for lack of time. A part whose tool is not on the machine is
# listed and does not count as failed.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.." || exit 2
root=$PWD

day=target/gpu-day
package=$day/package logs=$day/logs bin=$day/bin data=$day/data runs=$day/runs
out=${OUT:-$day/results}
max_log_bytes=$((15 << 20))
started=$(date +%s)
n_failed=0 n_omitted=0
# The process ids of the running command and of the generator of data, which the trap at the end of this script ends.
child='' generator=''
has_logs=''

# Sizes, and the flags of training on the generated graph.
if [ -n "${DRY_RUN:-}" ]; then
  shape=small fanouts=3,2,2 n_papers_nodes=100000
  products_flags="--layers 3 --hidden 8 --fanouts 3,2,2 --batch-size 64 --device cuda --graph-mode device"
  papers_flags="--layers 3 --hidden 8 --fanouts 3,2,2 --batch-size 256 --val-batches 1 --epochs 1 --device cuda --graph-mode device"
  parity_flags="--data fake:3000 --layers 3 --hidden 8 --fanouts 3,2,2 --batch-size 256 --val-batches 1 --epochs 2 --seed 1"
  gin_flags="--hidden 8 --epochs 1"
  export KILN_BENCH_SMALL=1 PROPTEST_CASES=4 PROPTEST_RNG_SEED=1
else
  shape=products fanouts=15,10,5 n_papers_nodes=111059956
  products_flags="--layers 3 --hidden 256 --fanouts 15,10,5 --batch-size 1024 --device cuda --graph-mode device"
  papers_flags="--layers 3 --hidden 256 --fanouts 10,10,10 --batch-size 1024 --epochs 1 --device cuda --graph-mode device"
  parity_flags="--epochs 5 --seed 1"
  gin_flags="--epochs 20"
fi
graph=$data/$shape-like
# The modules of kernels-device that piece 1 runs. Piece 3 runs the others.
smoke_modules="devices ops sampler"

seconds_left() { echo $((BUDGET - ($(date +%s) - started))); }
row() { printf '%s\t%s\n' "$1" "$2" | tee -a "$out/table.txt"; }
# not_here PART TOOL: writes the row of a part whose tool is not on this machine
not_here() { row "$1" "not run: $2 is not on this machine"; }

# packed PART PROGRAM: returns true if the program is in the package, and otherwise writes the row of the part
packed() {
  [ -e "$bin/$2" ] && return 0
  row "$1" "not run: $2 is not in the package"
  return 1
}

# timed NAME LIMIT COMMAND...: runs a command within the limit and the rest of the budget, with its output in a log
timed() {
  local name=$1 limit=$2 rest before status
  shift 2
  rest=$(seconds_left)
  if [ "$rest" -lt 15 ]; then
    n_omitted=$((n_omitted + 1))
    row "$name" "not run: no time left"
    return 1
  fi
  # The stub of the driver is slower than a GPU, so that only the budget limits a dry run.
  if [ -n "${DRY_RUN:-}" ] || [ "$rest" -lt "$limit" ]; then limit=$rest; fi
  before=$(date +%s)
  # `wait` returns at once when this script receives a signal, so that its trap can end the command.
  timeout -k 5 "$limit" "$@" > "$logs/$name.log" 2>&1 < /dev/null &
  child=$!
  wait "$child"
  status=$?
  child=''
  [ "$status" -eq 0 ] || n_failed=$((n_failed + 1))
  local note=''
  [ "$status" -eq 124 ] && note=" (the limit was $limit s)"
  row "$name" "status $status after $(($(date +%s) - before)) s$note"
  [ "$status" -eq 0 ] || row "  $name" "$(tail -n 3 "$logs/$name.log" | cut -c1-200 | tr '\n' ';')"
  return "$status"
}
# lines NAME LOG PATTERN: writes the last matching lines of a log as rows
lines() {
  grep -E "$3" "$logs/$2.log" 2> /dev/null | tr -s ' ' | tail -n 8 | while read -r line; do row "  $1" "$line"; done
}
# table NAME ARGUMENTS...: writes the rows of a table of tables.py
table() {
  local name=$1
  shift
  if python3 benches/gpu/tables.py "$@" > "$logs/$name-table.tsv" 2> "$logs/$name-table.log"; then
    head -n 60 "$logs/$name-table.tsv" | cut -c1-300 | while IFS= read -r line; do row "  $name" "$line"; done
  else
    n_failed=$((n_failed + 1))
    row "  $name" "failed: $(tail -n 1 "$logs/$name-table.log")"
  fi
}

unpack() {
  [ -e "$bin/ready" ] && return
  local before
  before=$(date +%s)
  mkdir -p "$bin"
  if ! python3 benches/gpu/archive.py unpack "$package" "$bin" > "$logs/unpack.log" 2>&1; then
    row unpack "failed: $(tail -n 1 "$logs/unpack.log")"
    return 1
  fi
  touch "$bin/ready"
  row unpack "$(find "$bin" -type f ! -name ready | wc -l) programs after $(($(date +%s) - before)) s"
}

# CubeCL searches libdevice below CUDA_PATH. Kernels with exponentials, such as the loss, do not compile without it.
find_libdevice() {
  local path
  for path in "${CUDA_PATH:-}" /usr/local/cuda /opt/cuda "$root/$package/cuda"; do
    if [ -n "$path" ] && [ -e "$path/nvvm/libdevice/libdevice.10.bc" ]; then
      export CUDA_PATH=$path
      row libdevice "$path"
      return
    fi
  done
  row libdevice "not found: set CUDA_PATH to a toolkit"
}

# Generates a graph of the size of ogbn-products in the background, while the first parts run.
start_generator() {
  [ -e "$graph/meta.json" ] && return
  mkdir -p "$data"
  timeout -k 5 "$(seconds_left)" python3 benches/peers/generate.py "$data" "$shape" > "$logs/generate.log" 2>&1 < /dev/null &
  generator=$!
}
# Waits for the graph. The generator writes meta.json last.
await_graph() {
  if [ -n "$generator" ]; then
    wait "$generator"
    generator=''
  fi
  [ -e "$graph/meta.json" ] && return 0
  n_failed=$((n_failed + 1))
  row "$1" "not run: $shape-like was not generated: $(tail -n 1 "$logs/generate.log" | cut -c1-200)"
  return 1
}

part_look() {
  packed look cli-kiln || return
  # shellcheck disable=SC2016 # The inner shell expands it.
  timed machine 30 bash -c 'nvidia-smi; nvidia-smi -q -d CLOCK,MEMORY | head -n 60; nvcc --version
    ldconfig -p | grep -E "libcuda|libnccl|libnvrtc"; nproc; free -g; df -h .; ldd "$0"; python3 --version; true' "$bin/cli-kiln"
  lines machine machine 'NVIDIA-SMI|MiB /|release'
  timed look 90 "$bin/cli-kiln" device
  lines look look '.'
}

# tests LOG LIMIT PACKAGE TEST [FILTER]: runs device tests, and writes a row of counts and the first failures
tests() {
  local log=$1 limit=$2 program=$3-$4 filter=${5:-}
  packed "$log" "$program" || return
  # Tests find their fixtures below the folder of their package.
  CARGO_MANIFEST_DIR=$root/crates/$3 KILN_DEVICE=cuda \
    timed "$log" "$limit" "$bin/$program" --test-threads 4 ${filter:+"$filter::"}
  lines "$log" "$log" '^test result'
  if grep -qsE '^test result: ok. 0 passed' "$logs/$log.log"; then
    n_failed=$((n_failed + 1))
    row "  $log" "failed: no test has this name"
  fi
  grep -E ' FAILED$|panicked at' "$logs/$log.log" 2> /dev/null | head -n 5 | while read -r line; do row "    $log" "$line"; done
}
# Each module is a separate run, so that a crash does not affect the others.
part_smoke() {
  local module
  for module in $smoke_modules; do tests "kernels-$module" 120 kernels device "$module"; done
}
part_suite() {
  local module
  if packed kernels kernels-device; then
    for module in $("$bin/kernels-device" --list --format terse | sed -n 's/::.*: test$//p' | sort -u); do
      case " $smoke_modules " in *" $module "*) continue ;; esac
      tests "kernels-$module" 120 kernels device "$module"
    done
  fi
  tests nn 180 nn device
}

# Compares training on the GPU with the CPU: identical blocks, and losses that differ by rounding only.
part_train() {
  local name kiln=$bin/cli-kiln
  local -a place
  packed train cli-kiln || return
  for name in cpu cuda cuda-graph; do
    case $name in
      cpu) place=() ;;
      cuda) place=(--device cuda) ;;
      cuda-graph) place=(--device cuda --graph-mode device) ;;
    esac
    # shellcheck disable=SC2086 # Flags without blanks.
    timed "train-$name" 120 "$kiln" train $parity_flags ${place[@]+"${place[@]}"} --out "$runs/$name"
    lines "train-$name" "train-$name" '^(iteration|test accuracy|weights)'
    [ "$name" = cpu ] || table "losses-$name" losses "$runs/cpu" "$runs/$name"
  done
  # shellcheck disable=SC2086 # Flags without blanks.
  timed train-gin 60 "$kiln" train --data mutag $gin_flags --device cuda --out "$runs/gin"
  lines train-gin train-gin '^(iteration|test accuracy|weights)'
  tests train-device 120 train device
  await_graph train-products || return
  # shellcheck disable=SC2086 # Flags without blanks.
  timed train-products 240 "$kiln" train --data "$graph" $products_flags --epochs 3 --out "$runs/products"
  lines train-products train-products '^(epoch|iteration)'
}

part_bench() {
  local criterion=$day/criterion
  packed bench benches-device || return
  await_graph bench || return
  KILN_DEVICE=cuda KILN_BENCH_DATA=$graph KILN_BENCH_FANOUTS=$shape-like=$fanouts CRITERION_HOME=$criterion \
    timed bench 300 "$bin/benches-device" --bench --noplot
  table bench bench "$criterion"
  # The file contains the work per iteration of each bench, from which rates are computed.
  cp "$criterion/work.jsonl" "$logs/" 2> /dev/null
}

part_torch() {
  if ! python3 -c 'import torch; assert torch.cuda.is_available()' > "$logs/torch-import.log" 2>&1; then
    not_here torch "PyTorch with CUDA"
    return
  fi
  timed torch 180 python3 benches/gpu/torch_compare.py --device cuda
  grep '^{' "$logs/torch.log" | tail -n 60 | while IFS= read -r line; do row "  torch" "$line"; done
}

# Measures the first step of two processes, which shows whether the second process reuses compiled kernels.
part_start() {
  local time before
  packed start benches-first_step || return
  await_graph start || return
  for time in cold warm; do
    before=$(date +%s%N)
    KILN_DEVICE=cuda KILN_BENCH_FANOUTS=$shape-like=$fanouts timed "start-$time" 90 "$bin/benches-first_step" "$graph" 1
    row "  first step $time" "$((($(date +%s%N) - before) / 1000000)) ms"
  done
}

# Measures bytes, cache hits, warps and sectors of each kernel over 600 launches. The first 1200 launches are skipped.
part_ncu() {
  local metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,dram__bytes.sum,lts__t_sector_hit_rate.pct
  metrics+=,l1tex__t_sector_hit_rate.pct,sm__warps_active.avg.pct_of_peak_sustained_active,smsp__inst_executed.sum
  metrics+=,l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
  metrics+=,l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio,launch__registers_per_thread,launch__grid_size
  command -v ncu > /dev/null || { not_here ncu ncu; return; }
  packed ncu cli-kiln || return
  await_graph ncu || return
  # shellcheck disable=SC2086 # Flags without blanks.
  timed ncu 240 ncu --clock-control none --csv --metrics "$metrics" --launch-skip 1200 --launch-count 600 \
    "$bin/cli-kiln" train --data "$graph" $products_flags --epochs 1 --out "$runs/ncu"
  table ncu ncu "$logs/ncu.log"
}

# Trains on a graph of the shape of ogbn-papers100M.
part_large() {
  local at=$data/papers-like
  packed large cli-kiln || return
  timed large-data 200 python3 benches/gpu/papers.py "$at" "$n_papers_nodes" || return
  # shellcheck disable=SC2086 # Flags without blanks.
  timed large 240 "$bin/cli-kiln" train --data "$at" $papers_flags --out "$runs/large"
  lines large large '^(epoch|iteration|peak)'
}

part_sanitize() {
  local tool module
  command -v compute-sanitizer > /dev/null || { not_here sanitize compute-sanitizer; return; }
  packed sanitize kernels-device || return
  for tool in memcheck racecheck; do
    for module in ops sampler; do
      KILN_DEVICE=cuda timed "$tool-$module" 100 compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$bin/kernels-device" --test-threads 1 "$module::"
      lines "$tool-$module" "$tool-$module" 'ERROR SUMMARY|RACECHECK SUMMARY'
    done
  done
}

# Ends the running command and the generator, so that no process outlives this script, and packs the logs.
finish() {
  local pid
  for pid in $child $generator; do kill "$pid" 2> /dev/null; done
  wait
  [ -n "$has_logs" ] && python3 benches/gpu/archive.py logs "$max_log_bytes" "$out/logs.tar.xz" "$logs"
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
      1) parts+=(look smoke train) budget=$((budget + 360)) ;;
      2) parts+=(bench torch start) budget=$((budget + 420)) ;;
      3) parts+=(ncu suite) budget=$((budget + 420)) ;;
      4) parts+=(large sanitize) budget=$((budget + 300)) ;;
      look | smoke | train | bench | torch | start | ncu | suite | large | sanitize) parts+=("$name") budget=$((budget + 540)) ;;
      *)
        echo "run.sh: no part $name: expected 1 to 4, look, smoke, train, bench, torch, start, ncu, suite, large or sanitize" >&2
        return 2
        ;;
    esac
  done
}

main() {
  local name budget=0
  local -a parts=()
  [ $# -gt 0 ] || set -- 1
  select_parts "$@" || return
  BUDGET=${BUDGET:-$budget}
  mkdir -p "$out" "$logs" "$runs" || return 2
  row kiln "$(cat "$package/commit" 2> /dev/null || echo 'no package'), parts ${parts[*]}, $(date -u '+%Y-%m-%d %H:%M:%S'), ${DRY_RUN:+dry run, }budget $BUDGET s"
  if [ ! -e "$package/programs.json" ]; then
    row package "$package/programs.json does not exist: run \`cargo xtask gpu pack\` on the machine with cargo"
    return 2
  fi
  has_logs=1
  unpack || return 2
  find_libdevice
  case " ${parts[*]} " in *' train '* | *' bench '* | *' start '* | *' ncu '*) start_generator ;; esac
  for name in "${parts[@]}"; do "part_$name"; done
  row end "$n_failed failed, $n_omitted omitted for lack of time, after $(($(date +%s) - started)) s"
  [ $((n_failed + n_omitted)) -eq 0 ]
}

trap finish EXIT
trap interrupted TERM INT HUP
main "$@"
