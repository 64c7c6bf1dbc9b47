#!/usr/bin/env bash
# Tests and measures kiln on a machine with a GPU, a driver and Python, but without network and cargo.
#
#   gpu-day.sh pack [MiB]      with cargo: builds for `cuda`, strips, and packs up to 45 MiB into target/gpu-day/package
#   gpu-day.sh run [PART...]   with the GPU, in a checkout with that folder: runs all parts in order, or the given ones
#
# Parts, by value: look smoke train bench torch start ncu suite sanitize large; 1 to 4 are groups of them, see README.md.
# Each part has a time limit and writes a log. $OUT (target/gpu-results) receives table.txt, which grows line by line, and
# logs.tar.xz at the end. $BUDGET (seconds, 540) ends a run early; the omitted parts are listed.
set -u
root=$(cd "$(dirname "$0")" && pwd)
script=$root/$(basename "$0")
while [ ! -e "$root/Cargo.toml" ] && [ "$root" != / ]; do root=$(dirname "$root"); done
cd "$root" || exit 2

package=target/gpu-day/package
# The programs as PACKAGE-TARGET, most important first: the first ones show whether the GPU runs kiln at all.
programs="kernels-device cli-kiln nn-device train-device benches-device
  benches-first_step kernels-sampler_large"
# The modules of kernels-device. Each is a separate run, so that a crash does not affect the others.
smoke_modules="devices ops sampler"
suite_modules="segments features gradient dense maxima half_precision dropout rows own"

pack() {
  local limit=$((${1:-45} * 1048576)) built=target/gpu-day/built name path libdevice
  rm -rf target/gpu-day
  mkdir -p "$package" "$built"
  cargo xtask llvm || return
  cargo build --release --locked --features cuda --workspace --exclude debian-packages --bin kiln --bin first_step \
    --test device --test sampler_large --bench device --message-format=json > "$built/messages" || return
  python3 - "$built/messages" > "$built/list" <<'PY' || return
import json, os, sys
for line in open(sys.argv[1]):
    message = json.loads(line)
    if message["reason"] == "compiler-artifact" and message["executable"]:
        package = os.path.basename(os.path.dirname(message["manifest_path"]))
        print(f"{package}-{message['target']['name']}", message["executable"])
PY
  for name in $programs; do
    path=$(awk -v name="$name" '$1 == name { print $2 }' "$built/list")
    [ -n "$path" ] || { echo "the build has no program $name"; return 1; }
    strip -o "$built/$name" "$path" && echo "$name" >> "$package/order" || return
  done
  pwd > "$package/built-in"
  cp "$script" "$package/" || return
  # Kernels are linked with the toolkit's libdevice for exponentials and logarithms when they are compiled at run time.
  libdevice=$(find "${CUDA_PATH:-/usr/local/cuda}" target/cuda-stub -name libdevice.10.bc 2> /dev/null | head -1)
  [ -n "$libdevice" ] && mkdir -p "$package/cuda/nvvm/libdevice" && cp "$libdevice" "$package/cuda/nvvm/libdevice/"
  # The dictionary is as large as the archive, because the programs share most of their code. The last programs are
  # omitted until the archive fits.
  python3 - "$limit" "$package" "$built" <<'PY' || return
import io, lzma, sys, tarfile
limit, package, built = int(sys.argv[1]), sys.argv[2], sys.argv[3]
names = open(f"{package}/order").read().split()
# xz's filter for jumps is not used, because it would make shared code differ.
filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 512 << 20}]
while names:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in names:
            tar.add(f"{built}/{name}", name)
    packed = lzma.compress(buffer.getvalue(), filters=filters)
    print(f"{len(names)} programs: {len(buffer.getvalue()) >> 20} MiB, packed {len(packed) >> 20} MiB")
    if len(packed) <= limit:
        break
    n_left = min(max(1, len(names) * limit // len(packed)), len(names) - 1)
    print("left out:", " ".join(names[n_left:]))
    names = names[:n_left]
if not names:
    sys.exit("nothing fits: give a larger limit")
open(f"{package}/programs.tar.xz", "wb").write(packed)
PY
  rm -rf "$built"
  ls -la "$package"
}

started=$(date +%s)
out=${OUT:-target/gpu-results}
logs=target/gpu-day/logs bin=target/gpu-day/bin data=target/gpu-day/data runs=target/gpu-day/runs
left() { echo $((${BUDGET:-540} - ($(date +%s) - started))); }
row() { printf '%s\t%s\n' "$1" "$2" | tee -a "$out/table.txt"; }
# part NAME LIMIT COMMAND...: runs a command within the limit and the rest of the budget, with its output in a log
part() {
  local name=$1 limit=$2 rest before status
  shift 2
  rest=$(left)
  [ "$rest" -lt 15 ] && { row "$name" "not run: no time left"; return 1; }
  [ "$rest" -lt "$limit" ] && limit=$rest
  before=$(date +%s)
  timeout -k 5 "$limit" "$@" > "$logs/$name.log" 2>&1
  status=$?
  row "$name" "status $status after $(($(date +%s) - before)) s"
  return $status
}
# summary NAME LOG PATTERN: writes the matching lines of a log as one row
summary() { row "  $1" "$(grep -hE "$3" "$logs/$2.log" 2> /dev/null | tr -s ' ' | tail -8 | tr '\n' ';')"; }

unpack() {
  [ -e "$bin/ready" ] && return
  mkdir -p "$bin"
  python3 - "$package/programs.tar.xz" "$bin" <<'PY' || exit 2
import lzma, sys, tarfile
with lzma.open(sys.argv[1], format=lzma.FORMAT_XZ) as file, tarfile.open(fileobj=file) as tar:
    tar.extractall(sys.argv[2])
PY
  # Tests find their fixtures by the path of the checkout in which they were built, so that path must exist here.
  local built
  built=$(cat "$package/built-in")
  [ -e "$built" ] || { mkdir -p "$(dirname "$built")" && ln -s "$PWD" "$built"; }
  touch "$bin/ready"
}

# CubeCL searches libdevice below CUDA_PATH. Kernels with exponentials, such as the loss, do not compile without it.
toolkit() {
  for path in "${CUDA_PATH:-}" /usr/local/cuda /opt/cuda "$PWD/$package/cuda"; do
    [ -n "$path" ] && [ -e "$path/nvvm/libdevice/libdevice.10.bc" ] && { export CUDA_PATH=$path; return; }
  done
  row toolkit "no libdevice.10.bc: set CUDA_PATH to a toolkit"
}

# Generates a graph of the size of ogbn-products in the background, while the tests run.
make_data() {
  [ -e "$data/products-like/test_idx.npy" ] || [ -e "$data/making" ] && return
  mkdir -p "$data"
  touch "$data/making"
  setsid nohup python3 benches/peers/generate.py "$data" products > "$logs/data.log" 2>&1 &
}
await_data() {
  for _ in $(seq 120); do
    [ -e "$data/products-like/test_idx.npy" ] && return 0
    sleep 1
  done
  row data "products-like was not generated within two minutes"
  return 1
}

look() {
  # shellcheck disable=SC2016 # The inner shell expands it.
  part look 30 bash -c 'nvidia-smi; nvidia-smi -q -d CLOCK,MEMORY | head -60; nvcc --version; ldconfig -p | grep -E "libcuda|libnccl|libnvrtc"
    nproc; free -g; df -h .; ldd "$0"; "$0" --help | head -3' "$bin/cli-kiln"
}

# tests LOG LIMIT PROGRAM [FILTER]: runs tests, and writes a row of counts and the first failures
tests() {
  local log=$1 limit=$2 program=$3
  [ -e "$bin/$program" ] || { row "$log" "not packed"; return; }
  KILN_DEVICE=cuda part "$log" "$limit" "$bin/$program" --test-threads 4 ${4:+"$4::"}
  row "  $log" "$(grep -h '^test result' "$logs/$log.log" | tail -1)"
  grep -h ' FAILED$\|panicked at' "$logs/$log.log" | head -5 | while read -r line; do row "    $log" "$line"; done
}
smoke() { for module in $smoke_modules; do tests "kernels-$module" 120 kernels-device "$module"; done; }
suite() {
  for module in $suite_modules; do tests "kernels-$module" 120 kernels-device "$module"; done
  tests nn 120 nn-device
  tests train 120 train-device
  tests large-graph 120 kernels-sampler_large
}

products="--layers 3 --hidden 256 --fanouts 15,10,5 --batch-size 1024 --device cuda --graph-mode device"
# Compares training on the GPU with the CPU: identical blocks, and losses that differ by rounding only.
train() {
  local name kiln=$bin/cli-kiln
  for name in cpu cuda cuda-graph; do
    local -a flags=(--epochs 5 --seed 1 --out "$runs/$name")
    case $name in cuda) flags+=(--device cuda) ;; cuda-graph) flags+=(--device cuda --graph-mode device) ;; esac
    part "train-$name" 120 "$kiln" train "${flags[@]}"
    summary "train-$name" "train-$name" '^(iteration|test accuracy|weights)'
  done
  part train-gin 60 "$kiln" train --data mutag --epochs 20 --device cuda --out "$runs/gin"
  summary train-gin train-gin '^(iteration|test accuracy|weights)'
  await_data || return
  # shellcheck disable=SC2086 # Flags without blanks.
  part train-products 240 "$kiln" train --data "$data/products-like" $products --epochs 3 --out "$runs/products"
  summary train-products train-products '^(epoch|iteration)'
}

bench() {
  local folders='' criterion=target/gpu-day/criterion
  await_data && folders=$data/products-like
  KILN_DEVICE=cuda KILN_BENCH_DATA=$folders KILN_BENCH_FANOUTS=products-like=15,10,5 CRITERION_HOME=$criterion \
    part bench 300 "$bin/benches-device" --bench --noplot
  python3 - "$criterion" <<'PY' | while read -r line; do row "  bench" "$line"; done
import glob, json, os, sys
for path in sorted(glob.glob(f"{sys.argv[1]}/**/new/estimates.json", recursive=True)):
    folder = os.path.dirname(path)
    ns = json.load(open(path))["median"]["point_estimate"]
    print(f"{os.path.relpath(os.path.dirname(folder), sys.argv[1])} {ns / 1e6:.4f} ms")
PY
  # The file contains the work per iteration of each bench, from which rates are computed.
  cp "$criterion/work.jsonl" "$logs/" 2> /dev/null
}

torch() {
  part torch 180 python3 benches/gpu/torch_compare.py --device cuda
  tail -30 "$logs/torch.log" >> "$out/table.txt"
}

# Measures the first step of two processes, which shows whether the second process reuses compiled kernels.
start() {
  local time before
  await_data || return
  for time in cold warm; do
    before=$(date +%s%N)
    KILN_DEVICE=cuda KILN_BENCH_FANOUTS=products-like=15,10,5 part "start-$time" 90 "$bin/benches-first_step" "$data/products-like" 1
    row "  first step $time" "$((($(date +%s%N) - before) / 1000000)) ms"
  done
}

# Measures bytes, cache hits, warps and sectors of each kernel over 600 launches. The first 1200 launches are skipped.
ncu_part() {
  local metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,dram__bytes.sum,lts__t_sector_hit_rate.pct
  metrics+=,l1tex__t_sector_hit_rate.pct,sm__warps_active.avg.pct_of_peak_sustained_active,smsp__inst_executed.sum
  metrics+=,l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
  metrics+=,l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio,launch__registers_per_thread,launch__grid_size
  await_data || return
  # shellcheck disable=SC2086 # Flags without blanks.
  part ncu 240 ncu --clock-control none --csv --metrics "$metrics" --launch-skip 1200 --launch-count 600 \
    "$bin/cli-kiln" train --data "$data/products-like" $products --epochs 1 --out "$runs/ncu"
  python3 - "$logs/ncu.log" <<'PY' > "$logs/ncu.tsv"
import collections, csv, sys
lines = [line for line in open(sys.argv[1], errors="replace") if line.startswith('"')]
kernels = collections.defaultdict(lambda: collections.defaultdict(list))
for line in csv.DictReader(lines):
    try:
        kernels[line["Kernel Name"]][line["Metric Name"]].append(float(line["Metric Value"].replace(",", "")))
    except (KeyError, ValueError):
        pass
names = sorted({metric for metrics in kernels.values() for metric in metrics})
print("\t".join(["kernel", "launches"] + names))
for kernel, metrics in sorted(kernels.items(), key=lambda item: -sum(item[1].get("gpu__time_duration.sum", [0]))):
    means = [f"{sum(metrics[m]) / len(metrics[m]):.4g}" if metrics.get(m) else "-" for m in names]
    print("\t".join([kernel, str(max(map(len, metrics.values())))] + means))
PY
  head -40 "$logs/ncu.tsv" | cut -c1-300 >> "$out/table.txt"
}

sanitize() {
  local tool module
  for tool in memcheck racecheck; do
    for module in ops sampler; do
      KILN_DEVICE=cuda part "$tool-$module" 100 compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$bin/kernels-device" --test-threads 1 "$module::"
      summary "$tool $module" "$tool-$module" 'ERROR SUMMARY|RACECHECK SUMMARY'
    done
  done
}

# Trains on a graph of the shape of ogbn-papers100M: 111 M nodes of degree 15, and 128 columns of f16 in a sparse file.
large() {
  local at=$data/papers-like
  part large-data 200 python3 - "$at" <<'PY'
import numpy as np, os, sys
at, n, degree = sys.argv[1], 111_059_956, 15
os.makedirs(at, exist_ok=True)
np.save(f"{at}/indptr.npy", np.arange(n + 1, dtype=np.int64) * degree)
indices = np.lib.format.open_memmap(f"{at}/indices.npy", "w+", np.int32, (n * degree,))
for first in range(0, n * degree, 1 << 25):
    e = np.arange(first, min(first + (1 << 25), n * degree), dtype=np.uint64)
    e *= np.uint64(0x9E3779B97F4A7C15)
    e ^= e >> np.uint64(29)
    e *= np.uint64(0xBF58476D1CE4E5B9)
    indices[first:first + len(e)] = ((e >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int32)
rows = np.lib.format.open_memmap(f"{at}/features.npy", "w+", np.float16, (n, 128))
rows[:1024] = 0.5
np.save(f"{at}/labels.npy", np.arange(n, dtype=np.int64) % 172)
ids = np.arange(1_207_179, dtype=np.int64) * 91
np.save(f"{at}/train_idx.npy", ids)
np.save(f"{at}/val_idx.npy", ids[:1000] + 1)
np.save(f"{at}/test_idx.npy", ids[:1000] + 2)
PY
  part large 400 "$bin/cli-kiln" train --data "$at" --layers 3 --hidden 256 --fanouts 10,10,10 \
    --batch-size 1024 --epochs 1 --device cuda --graph-mode device --out "$runs/large"
  summary large large '^(epoch|iteration|peak)'
}

run() {
  local name
  [ $# -gt 0 ] || set -- 1 2 3 4
  mkdir -p "$out" "$logs" "$runs"
  [ -e "$package/programs.tar.xz" ] || { echo "$package has no programs: run \`$0 pack\` where cargo is"; return 2; }
  unpack
  toolkit
  local -a parts=()
  for name in "$@"; do
    case $name in
      1) parts+=(look smoke train) ;;
      2) parts+=(bench torch start) ;;
      3) parts+=(ncu suite) ;;
      4) parts+=(sanitize large) ;;
      look | smoke | suite | train | bench | torch | ncu | start | sanitize | large) parts+=("$name") ;;
      *) echo "no part $name"; return 2 ;;
    esac
  done
  make_data
  for name in "${parts[@]}"; do
    case $name in ncu) ncu_part ;; *) "$name" ;; esac
  done
  tar -C target/gpu-day -cJf "$out/logs.tar.xz" logs
  echo
  cat "$out/table.txt"
}

case ${1:-} in
  pack | run) "$@" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$script"; exit 2 ;;
esac
