"""kiln's measurements: benches, which `cargo xtask bench` runs, and programs, which are measured from outside."""
import json, os, shutil, statistics, subprocess, sys, time

from rows import FAKE, PRODUCTS, Bench

PROGRAMS = ("first_step", "kiln", "write_fake")
# The number of steps of a measurement of peak memory. It fills the loader's queue, and buffers are reused.
MEMORY_STEPS = 20
# The number of starts of a process. The median counts, because the first start may wait for free memory.
STARTS = 5
FANOUTS = f"{PRODUCTS}=15,10,5"
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
        """Returns the seconds from the start of a process to the end of its first training step."""
        return statistics.median(self.seconds_to_first_line(name) for _ in range(STARTS))

    def seconds_to_first_line(self, name):
        started = time.perf_counter()
        with subprocess.Popen(**self.steps(name, 1), stdout=subprocess.PIPE) as process:
            line = process.stdout.readline()
            seconds = time.perf_counter() - started
        if process.returncode != 0 or not line:
            raise RuntimeError(f"first_step ended with status {process.returncode}")
        return seconds

    def memory(self, name):
        """Returns the peak of anonymous memory in bytes, polled every millisecond: the kernel does not record it."""
        peak = 0
        with subprocess.Popen(**self.steps(name, MEMORY_STEPS), stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                peak = max(peak, anonymous_bytes(process.pid))
                time.sleep(0.001)
        if process.returncode != 0 or peak == 0:
            raise RuntimeError(f"first_step ended with status {process.returncode} and {peak} bytes of anonymous memory")
        return peak

    def steps(self, name, n_steps):
        env = {**os.environ, "RAYON_NUM_THREADS": "2", "KILN_BENCH_FANOUTS": FANOUTS}
        # The variable is removed, because the comparison is on the CPU.
        env.pop("KILN_DEVICE", None)
        return dict(args=[self.programs["first_step"], self.bench_data(name), str(n_steps)], env=env)

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


def anonymous_bytes(pid):
    """Returns the anonymous memory of a process in bytes, or 0 if the process has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return parse_anonymous(file.read()) or 0
    except OSError:
        return 0


def parse_anonymous(status):
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None


def last_accuracy(metrics):
    lines = metrics.splitlines()
    return json.loads(lines[-1]).get("val_accuracy") if lines else None
