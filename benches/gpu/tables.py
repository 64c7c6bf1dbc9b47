"""Tables from the files that programs on a GPU have written, one line per row.

    python3 benches/gpu/tables.py bench FOLDER           medians, rates and targets of criterion's benches in FOLDER
    python3 benches/gpu/tables.py epochs RUN             time and loss of each epoch of a run folder, with the targets
    python3 benches/gpu/tables.py ncu LOG                means of each kernel's metrics, from ncu's CSV output
    python3 benches/gpu/tables.py steps LOG...           time of a step of each library, and its ratio to kiln's
    python3 benches/gpu/tables.py losses FILE RUN        compares the training losses of a run folder with those of FILE
    python3 benches/gpu/tables.py expect RUN             training losses of a run folder, as JSON, for `losses`
    python3 benches/gpu/tables.py weights LOG            fails unless all runs in a log ended with the same weights
    python3 benches/gpu/tables.py hang LOG               threads of a command that watchdog.py ended, by place
"""

import collections
import csv
import glob
import json
import os
import re
import sys

# The largest relative difference of two training losses that differ only by the rounding of sums in another order.
# Each step amplifies the differences of the steps before it.
MAX_LOSS_DIFFERENCE = 1e-3

# Targets on an H100 and an H200, by the beginning of a bench's name: bytes per second, or milliseconds of an iteration.
# docs/benchmarks/gpu.md says where they come from.
TARGETS = {
    "device/copy": ("rate", 3.0e12, 4.3e12),
    "device/mean": ("rate", 2.1e12, 3.0e12),
    "device/sample-15-10-5": ("ms", 0.7, 0.6),
    "device/sage-3x256-15-10-5": ("ms", 2.2, 1.8),
}

# Targets in seconds of an epoch of 192 batches on the graph of the size of ogbn-products.
EPOCH_TARGETS = (0.55, 0.45)


def bench(folder):
    """Yields a header and a line for each bench: its name, the median, the rate at the median, and both targets."""
    work = {}
    if os.path.exists(os.path.join(folder, "work.jsonl")):
        with open(os.path.join(folder, "work.jsonl")) as file:
            work = {line["bench"]: line for line in map(json.loads, file)}
    yield "\t".join(("bench", "median", "rate", "H100 target", "H200 target"))
    for path in sorted(glob.glob(os.path.join(folder, "**", "new", "estimates.json"), recursive=True)):
        name = os.path.relpath(os.path.dirname(os.path.dirname(path)), folder)
        with open(path) as file:
            median_ns = json.load(file)["median"]["point_estimate"]
        rate, unit = None, ""
        if name in work:
            rate, unit = work[name]["elements"] / median_ns * 1e9, f"{work[name]['unit']}/s"
        targets = targets_of(name, rate, unit, median_ns / 1e6)
        yield "\t".join((name, f"{median_ns / 1e6:.4f} ms", f"{rate:.4g} {unit}" if rate else "-", *targets))


def targets_of(name, rate, unit, ms):
    """Returns the targets of a bench as text, with the share that was reached: 1 or more is a hit."""
    for prefix, (kind, *targets) in TARGETS.items():
        if name.startswith(prefix) and kind == "ms":
            return [f"{target:g} ms ({target / ms:.2f})" for target in targets]
        if name.startswith(prefix) and rate:
            return [f"{target:.3g} {unit} ({rate / target:.2f})" for target in targets]
    return ["-", "-"]


def metrics(run):
    with open(os.path.join(run, "metrics.jsonl")) as file:
        return [json.loads(line) for line in file]


def epochs(run):
    """Yields a header and a line for each epoch."""
    yield "\t".join(("epoch", "seconds", "loss", "H100 target", "H200 target"))
    for number, line in enumerate(metrics(run), 1):
        targets = [f"{target:g} s ({target / line['seconds']:.2f})" for target in EPOCH_TARGETS]
        yield "\t".join((str(number), f"{line['seconds']:.3f}", f"{line['train_loss']:.5f}", *targets))


def ncu(path):
    """Yields a header and a line for each kernel, the kernel with the most time first."""
    with open(path, errors="replace") as file:
        rows = csv.DictReader(line for line in file if line.startswith('"'))
        kernels = collections.defaultdict(lambda: collections.defaultdict(list))
        for row in rows:
            try:
                value = float(row["Metric Value"].replace(",", ""))
            except (KeyError, ValueError, AttributeError):
                continue
            kernels[row["Kernel Name"]][row["Metric Name"]].append(value)
    if not kernels:
        raise ValueError(f"{path} has no metrics")
    names = sorted({name for metrics in kernels.values() for name in metrics})
    yield "\t".join(["kernel", "launches", *names])
    total_time = lambda item: sum(item[1].get("gpu__time_duration.sum", [0]))
    for kernel, values in sorted(kernels.items(), key=total_time, reverse=True):
        means = [f"{sum(values[name]) / len(values[name]):.4g}" if name in values else "-" for name in names]
        yield "\t".join([kernel, str(max(map(len, values.values()))), *means])


def steps(*paths):
    """Yields a header and a line for each log that has a JSON object with the time of a step."""
    found = []
    for path in paths:
        if not os.path.exists(path):
            continue
        with open(path, errors="replace") as file:
            found += [json.loads(line) for line in file if line.startswith('{"') and "ms_per_step" in line]
    if not found:
        raise ValueError("no log has the time of a step")
    ours = next((line["ms_per_step"] for line in found if line["library"] == "kiln"), None)
    yield "\t".join(("library", "ms per step", "times kiln's", "steps", "loss"))
    for line in found:
        name = line["library"] + (", compiled" if line.get("compiled") else "")
        ratio = f"{line['ms_per_step'] / ours:.2f}" if ours else "-"
        yield "\t".join((name, f"{line['ms_per_step']:.3f}", ratio, str(line["steps"]), f"{line['loss']:.4f}"))


def losses_of(run):
    return [line["train_loss"] for line in metrics(run)]


def expect(run):
    yield json.dumps(losses_of(run))


def losses(path, run):
    """Yields a line per epoch, and raises `ValueError` if the losses of an epoch differ by more than rounding."""
    with open(path) as file:
        wanted = json.load(file)
    found = losses_of(run)
    if len(wanted) != len(found) or not wanted:
        raise ValueError(f"{path} has {len(wanted)} epochs, {run} has {len(found)}")
    for epoch, (expected, got) in enumerate(zip(wanted, found), 1):
        difference = abs(got - expected) / abs(expected)
        yield f"epoch {epoch}: loss {expected:.6f} on the CPU, {got:.6f} on the device"
        if not difference <= MAX_LOSS_DIFFERENCE:
            raise ValueError(f"epoch {epoch}: the relative difference is {difference:.1e}, "
                             f"expected at most {MAX_LOSS_DIFFERENCE:.0e}")


def weights(path):
    """Yields the number of runs and their digest."""
    with open(path, errors="replace") as file:
        digests = re.findall(r"^weights\s+sha256 ([0-9a-f]{64})$", file.read(), re.MULTILINE)
    if len(digests) < 2 or len(set(digests)) != 1:
        raise ValueError(f"{len(digests)} runs ended with {len(set(digests))} different weights")
    yield f"{len(digests)} runs with the same weights, sha256 {digests[0]}"


def hang(path):
    """Yields the number of threads for each name and place in the kernel, the most frequent first."""
    with open(path, errors="replace") as file:
        text = file.read()
    places = re.findall(r"^thread \d+ of process \d+:\n  comm: (.*)\n  wchan: (.*)$", text, re.MULTILINE)
    for (name, place), n in collections.Counter(places).most_common(6):
        yield f"hung: {n} threads {name!r} in {place}"


TABLES = {"bench": (bench, 1), "epochs": (epochs, 1), "ncu": (ncu, 1), "steps": (steps, None), "losses": (losses, 2),
          "expect": (expect, 1), "weights": (weights, 1), "hang": (hang, 1)}


def main(args):
    table, n_paths = TABLES.get(args[0] if args else "", (None, None))
    if table is None or len(args) < 2 or n_paths not in (None, len(args) - 1):
        sys.exit(__doc__)
    try:
        for line in table(*args[1:]):
            print(line)
    except (OSError, ValueError) as error:
        sys.exit(f"tables.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
