"""Tables from the files that programs on a GPU have written, one line per row.

    python3 benches/gpu/tables.py bench FOLDER           medians and rates of criterion's benches in FOLDER
    python3 benches/gpu/tables.py ncu LOG                means of each kernel's metrics, from ncu's CSV output
    python3 benches/gpu/tables.py losses CPU DEVICE      compares the training losses of two run folders
"""

import collections
import csv
import glob
import json
import os
import sys

# The largest relative difference of two training losses that differ only by the rounding of sums in another order.
# Each step amplifies the differences of the steps before it.
MAX_LOSS_DIFFERENCE = 1e-3


def bench(folder):
    """Yields a line for each bench: its name, the median in ms, and the rate at the median."""
    work = {}
    if os.path.exists(os.path.join(folder, "work.jsonl")):
        with open(os.path.join(folder, "work.jsonl")) as file:
            work = {line["bench"]: line for line in map(json.loads, file)}
    for path in sorted(glob.glob(os.path.join(folder, "**", "new", "estimates.json"), recursive=True)):
        name = os.path.relpath(os.path.dirname(os.path.dirname(path)), folder)
        with open(path) as file:
            median_ns = json.load(file)["median"]["point_estimate"]
        line = f"{name} {median_ns / 1e6:.4f} ms"
        if name in work:
            line += f" {work[name]['elements'] / median_ns * 1e9:.4g} {work[name]['unit']}/s"
        yield line


def ncu(path):
    """Yields a header and a line for each kernel, the kernel with the most time first."""
    with open(path, errors="replace") as file:
        rows = csv.DictReader(line for line in file if line.startswith('"'))
        kernels = collections.defaultdict(lambda: collections.defaultdict(list))
        for row in rows:
            try:
                value = float(row["Metric Value"].replace(",", ""))
            except (KeyError, ValueError):
                continue
            kernels[row["Kernel Name"]][row["Metric Name"]].append(value)
    names = sorted({name for metrics in kernels.values() for name in metrics})
    yield "\t".join(["kernel", "launches", *names])
    total_time = lambda item: sum(item[1].get("gpu__time_duration.sum", [0]))
    for kernel, metrics in sorted(kernels.items(), key=total_time, reverse=True):
        means = [f"{sum(metrics[name]) / len(metrics[name]):.4g}" if name in metrics else "-" for name in names]
        yield "\t".join([kernel, str(max(map(len, metrics.values()))), *means])


def losses(cpu, device):
    """Yields a line per epoch, and raises `ValueError` if the losses of an epoch differ by more than rounding."""
    runs = []
    for folder in (cpu, device):
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            runs.append([json.loads(line)["train_loss"] for line in file])
    if len(runs[0]) != len(runs[1]) or not runs[0]:
        raise ValueError(f"{cpu} has {len(runs[0])} epochs, {device} has {len(runs[1])}")
    for epoch, (expected, got) in enumerate(zip(*runs), 1):
        difference = abs(got - expected) / abs(expected)
        yield f"epoch {epoch}: loss {expected:.6f} on the CPU, {got:.6f} on the device"
        if not difference <= MAX_LOSS_DIFFERENCE:
            raise ValueError(f"epoch {epoch}: the relative difference is {difference:.1e}, "
                             f"expected at most {MAX_LOSS_DIFFERENCE:.0e}")


def main(args):
    tables = {"bench": (bench, 1), "ncu": (ncu, 1), "losses": (losses, 2)}
    table, n_paths = tables.get(args[0] if args else "", (None, None))
    if len(args) - 1 != n_paths:
        sys.exit(__doc__)
    try:
        for line in table(*args[1:]):
            print(line)
    except (OSError, ValueError) as error:
        sys.exit(f"tables.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
