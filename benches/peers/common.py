"""Functions that DGL's scripts share: arguments, arrays, batches, times, and one JSON object per result."""
import argparse, json, os, statistics, time
import numpy as np


def arguments(doc, **flags):
    """Parses the folder of the data, `--threads`, and the flags of the script, whose defaults are given."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("data")
    parser.add_argument("--threads", type=int, default=1)
    for name, default in flags.items():
        parser.add_argument("--" + name, type=type(default), default=default)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    return args


def read(folder, *names):
    """Reads the first of these arrays that the folder contains. The kiln format and the generator differ in names."""
    paths = [os.path.join(folder, name + ".npy") for name in names]
    return np.load(next(path for path in paths if os.path.exists(path)))


def batches(folder, batch_size, limit):
    ids = np.random.default_rng(0).permutation(read(folder, "train_idx", "train"))
    return [ids[i:i + batch_size] for i in range(0, len(ids), batch_size)][:limit]


def fanouts(text):
    return [int(number) for number in text.split(",")]


def since_start():
    """Returns the seconds since this process was started."""
    with open("/proc/self/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime") as f:
        return float(f.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def timed(run, *args):
    start = time.perf_counter()
    result = run(*args)
    return time.perf_counter() - start, result


def report(what, values, unit):
    """Prints the median, the minimum and the maximum of the values."""
    line = dict(what=what, value=statistics.median(values), min=min(values), max=max(values), unit=unit)
    print(json.dumps(line), flush=True)
