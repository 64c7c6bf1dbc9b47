"""kiln's measurements: benches, which `cargo xtask bench` runs, and programs, which are measured from outside."""
import json, os, shutil, statistics, subprocess, sys, threading, time
from dataclasses import dataclass

from rows import FAKE, PRODUCTS, Bench

PROGRAMS = ("kiln", "write_fake")
# The number of steps of a measurement of peak memory. It fills the loader's queue, and buffers are reused.
MEMORY_STEPS = 20
# The number of starts of a process. The median counts, because the first start may wait for free memory.
STARTS = 5
FANOUTS = f"{PRODUCTS}=15,10,5"
# The settings of `train.py --steps`. Each step prints a line.
STEPS = "--layers 3 --hidden 256 --dropout 0 --lr 0.01 --batch-size 1024 --epochs 1 --threads-per-rank 2 --loss-every 1"
# The settings of `train.py --epochs 5`. Both sample neighbours in validation.
ACCURACY = "--layers 3 --hidden 256 --dropout 0 --lr 0.01 --fanouts 10,10,10 --batch-size 1024 --epochs 5 --threads-per-rank 2"


class Ours:
    """`root` is the folder of the workspace, and `machine` the file of a saved run with the machine's ceilings. If
    `in_memory` is true, benches copy their data into memory. `data` maps the name of each data set to its folder."""

    def __init__(self, root, machine, in_memory):
        self.root, self.machine, self.in_memory = root, machine, in_memory
        self.cargo = os.environ.get("CARGO", "cargo")
        self.data, self.programs, self.ceilings = {}, {}, []

    def build(self):
        """Builds the programs, and stores the paths of their executables."""
        command = ["build", "--quiet", "--release", "--locked", "--message-format=json", "--package", "kiln-benches",
                   "--package", "kiln-cli"]
        text = self.run_cargo(command + [word for program in PROGRAMS for word in ("--bin", program)])
        for line in text.splitlines():
            message = json.loads(line)
            if message["reason"] == "compiler-artifact" and message["executable"]:
                self.programs[message["target"]["name"]] = message["executable"]

    def run_cargo(self, args):
        return output_of([self.cargo, *args], cwd=self.root)

    def measure(self, ours):
        """Returns a measured value, and its fraction of the machine's ceiling or None."""
        if isinstance(ours, Bench):
            return self.bench(ours)
        return getattr(self, ours.measure)(ours.data), None

    def bench(self, bench):
        name = f"{bench.stage}/{bench.variant}/{bench.data}"
        lines = os.path.join(os.path.dirname(self.machine), "bench.jsonl")
        args = ["xtask", "bench", "--only", name, "--data", self.bench_data(bench.data), "--fanouts", FANOUTS]
        args += ["--threads", str(bench.threads), "--ceilings", self.machine, "--json", lines]
        text = self.run_cargo(args + ["--in-memory"] * self.in_memory)
        self.ceilings = [line for line in text.splitlines() if line.startswith("ceilings of ")]
        with open(lines) as file:
            found = [line for line in map(json.loads, file) if line["bench"] == name]
        if not found:
            raise RuntimeError(f"`cargo xtask bench` printed no bench {name}")
        return found[0][bench.value], found[0]["ceiling_fraction"]

    def bench_data(self, name):
        """Returns the value of `--data`: a folder, or the name of the data set that the benches generate."""
        return name if name == FAKE else self.data[name]

    def first_step(self, name):
        """Returns the seconds from the start of `kiln train` to the end of its first training step."""
        return statistics.median(self.train(name, 1).seconds for _ in range(STARTS))

    def anonymous(self, name):
        """Returns the peak of anonymous memory in bytes, polled every millisecond: the kernel does not record it."""
        return self.train(name, MEMORY_STEPS).anonymous

    def resident(self, name):
        """Returns the peak of resident memory in bytes, which includes the pages of mapped files."""
        return self.train(name, MEMORY_STEPS).resident

    def train(self, name, n_steps):
        """Runs `kiln train` until it has printed the loss of `n_steps` steps, and stops it."""
        out = os.path.join(self.root, "target", "peers", "run")
        shutil.rmtree(out, ignore_errors=True)
        fanouts = "15,10,5" if name == PRODUCTS else "10,10,10"
        command = [self.programs["kiln"], "train", "--data", self.data[name], "--out", out, *STEPS.split(), "--fanouts", fanouts]
        started = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            memory = Peaks(process.pid)
            memory.start()
            n_printed = 0
            for line in process.stdout:
                n_printed += line.startswith("step ")
                if n_printed == n_steps:
                    break
            seconds = time.perf_counter() - started
            resident = status_bytes(process.pid, "VmHWM")
            process.kill()
        memory.join()
        if n_printed < n_steps or not resident:
            raise RuntimeError(f"kiln train ended after {n_printed} steps")
        return Trained(seconds, memory.anonymous, resident)

    def accuracy(self, name):
        """Returns the validation accuracy of the last epoch. DGL's script reports the same."""
        out = os.path.join(self.root, "target", "peers", "run")
        shutil.rmtree(out, ignore_errors=True)
        output_of([self.programs["kiln"], "train", "--data", self.data[name], "--out", out, *ACCURACY.split()])
        with open(os.path.join(out, "metrics.jsonl")) as file:
            return last_accuracy(file.read())


def output_of(command, **options):
    """Runs a command and returns its standard output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        sys.stdout.write(done.stdout)
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}")
    return done.stdout


@dataclass(frozen=True)
class Trained:
    """The start of a run: the seconds until the last of its steps, and the peaks of its memory in bytes."""
    seconds: float
    anonymous: int
    resident: int


class Peaks(threading.Thread):
    """Polls the anonymous memory of a process until the process ends."""

    def __init__(self, pid):
        super().__init__()
        self.pid, self.anonymous = pid, 0

    def run(self):
        while (found := status_bytes(self.pid, "RssAnon")) is not None:
            self.anonymous = max(self.anonymous, found)
            time.sleep(0.001)


def status_bytes(pid, name):
    """Returns a size in bytes from the status of a process, or None if the process has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return parse_status(file.read(), name)
    except OSError:
        return None


def parse_status(status, name):
    for line in status.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def last_accuracy(metrics):
    lines = metrics.splitlines()
    return json.loads(lines[-1]).get("val_accuracy") if lines else None
