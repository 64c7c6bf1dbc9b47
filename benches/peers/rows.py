"""The rows of the comparison. A row contains kiln's measurement, DGL's scripts, and the target."""
from dataclasses import dataclass
from typing import Optional

GIB = float(1 << 30)
ARXIV, PRODUCTS, IMDB, FAKE = "arxiv-like", "products-like", "imdb-like", "fake"

# The units. Higher values are better for the units in RATES, lower values for all others.
MS, SECONDS, EDGES, ROWS_S, BYTES, SHARE = "ms", "s", "edges/s", "rows/s", "bytes", "share"
RATES = (EDGES, ROWS_S, SHARE)
FORMATS = {
    MS: lambda value: f"{value:.1f} ms",
    SECONDS: lambda value: f"{value:.2f} s",
    EDGES: lambda value: f"{value / 1e6:.1f} M edges/s",
    ROWS_S: lambda value: f"{value / 1e6:.2f} M rows/s",
    BYTES: lambda value: f"{value / GIB:.2f} GiB",
    SHARE: lambda value: f"{value:.4f}",
}


@dataclass(frozen=True)
class Bench:
    """The bench `stage/variant/data`. `value` is the key of its JSON object that is read: `rate` or `median_ms`."""
    data: str
    stage: str
    variant: str
    threads: int
    value: str


@dataclass(frozen=True)
class Program:
    """A measurement of `kiln train`. `measure` is a method in ours.py: `first_step`, `anonymous`, `resident` or
    `accuracy`."""
    data: str
    measure: str


@dataclass(frozen=True)
class Script:
    """A script in this folder, its arguments, and `what`, the name of the result that is read."""
    data: str
    file: str
    args: str
    what: str


@dataclass(frozen=True)
class Target:
    """The target of a row. Ratios are kiln's value divided by the other value.

    times_peer  at least this multiple of the peer's rate
    of_peer     at most this fraction of the peer's time
    times_row   at least this multiple of kiln's rate in the row `row`
    peer_less   at least the peer's value minus this
    at_most     at most this value
    at_least    at least this value
    """
    kind: str
    value: float
    row: Optional[str] = None


@dataclass(frozen=True)
class Row:
    name: str
    what: str
    unit: str
    ours: object
    # DGL's scripts for the same task. The best result counts.
    peers: tuple
    target: Target
    # The minimum fraction of the machine's ceiling; None for a row without this target.
    least_fraction: Optional[float] = None
    # True if a measurement takes minutes, so that the row is measured in the first round only.
    slow: bool = False


@dataclass(frozen=True)
class Outcome:
    """A row with the medians over the rounds; `peer` is None for a row without a script of DGL."""
    row: Row
    ours: float
    ceiling_fraction: Optional[float]
    peer: Optional[float]

    def ratio(self):
        return None if self.peer is None else self.ours / self.peer

    def is_met(self, outcomes):
        """Returns True if target and ceiling are reached, and None if the value for comparison was not measured."""
        target, ratio = self.row.target, self.ratio()
        if target.kind in ("times_peer", "of_peer", "peer_less") and ratio is None:
            return None
        if target.kind == "times_peer":
            met = target.value <= ratio
        elif target.kind == "of_peer":
            met = ratio <= target.value
        elif target.kind == "times_row":
            other = next((other for other in outcomes if other.row.name == target.row), None)
            if other is None:
                return None
            met = target.value <= self.ours / other.ours
        elif target.kind == "peer_less":
            met = self.peer - target.value <= self.ours
        elif target.kind == "at_most":
            met = self.ours <= target.value
        else:
            met = target.value <= self.ours
        least, fraction = self.row.least_fraction, self.ceiling_fraction
        return met and (least is None or fraction is not None and least <= fraction)


def say(unit, value):
    """Formats a value with its unit."""
    return FORMATS[unit](value)


def sample(mode, threads, what):
    return Script(PRODUCTS, "sample.py", f"--mode {mode} --fanouts 15,10,5 --threads {threads}", what)


def aggregate(threads, what):
    return Script(PRODUCTS, "aggregate.py", f"--fanouts 15,10,5 --threads {threads}", what)


def train(data, args, what):
    """DGL's two loaders, of which the better result counts."""
    return tuple(
        Script(data, "train.py", f"--loader {loader} {args} --threads 2", what) for loader in ("graphbolt", "dgl"))


TRAIN_ARXIV = "--steps 20"
TRAIN_PRODUCTS = "--steps 20 --fanouts 15,10,5"
TRAIN_GCN = "--model gcn --fanouts 50,50 --hidden 64 --batch 128 --decay 0.0005 --steps 40"

# The rows, in the order of a training step. As in DGL, each hop samples neighbours of all nodes reached so far.
ROWS = (
    Row("sample", "sample and relabel, products-like [15, 10, 5], 1,024 seeds, 1 thread", EDGES,
        Bench(PRODUCTS, "sample", "uniform-15-10-5", 1, "rate"),
        (sample("classic", 1, "edges"), sample("graphbolt", 1, "edges")), Target("times_peer", 6.0), least_fraction=0.7),
    Row("sample-2", "the same with 2 threads", EDGES,
        Bench(PRODUCTS, "sample", "uniform-15-10-5-workers", 2, "rate"),
        (sample("graphbolt", 2, "edges"),), Target("times_row", 1.8, "sample")),
    Row("gather", "gather its 603 k random rows of 400 B, 1 thread; DGL into new memory", ROWS_S,
        Bench(PRODUCTS, "gather", "dense-f32x100", 1, "rate"),
        (sample("rows", 1, "rows"),), Target("times_peer", 4.0), least_fraction=0.85),
    Row("gather-out", "the same, DGL into the same memory (`out=`)", ROWS_S,
        Bench(PRODUCTS, "gather", "dense-f32x100", 1, "rate"),
        (sample("rows", 1, "rows-out"),), Target("times_peer", 1.0), least_fraction=0.85),
    Row("forward", "mean of its largest block, 128 columns, 1 thread", MS,
        Bench(PRODUCTS, "aggregate", "mean-forward", 1, "median_ms"),
        (aggregate(1, "forward"),), Target("of_peer", 0.9), least_fraction=0.8),
    Row("backward", "its gradient on a fresh block, 1 thread", MS,
        Bench(PRODUCTS, "aggregate", "mean-backward-transpose", 1, "median_ms"),
        (aggregate(1, "backward"),), Target("of_peer", 0.35)),
    Row("backward-2", "the same with 2 threads", MS,
        Bench(PRODUCTS, "aggregate", "mean-backward-transpose", 2, "median_ms"),
        (aggregate(2, "backward"),), Target("of_peer", 0.35)),
    Row("step-arxiv", "GraphSAGE 3 x 256, a step, arxiv-like [10, 10, 10], 2 threads", MS,
        Bench(ARXIV, "step", "sage-3x256-10-10-10", 2, "median_ms"),
        train(ARXIV, TRAIN_ARXIV, "step"), Target("of_peer", 0.38)),
    Row("step-arxiv-bf16", "the same with products in bf16", MS,
        Bench(ARXIV, "step", "sage-3x256-10-10-10-bf16", 2, "median_ms"),
        train(ARXIV, TRAIN_ARXIV, "step"), Target("of_peer", 0.28)),
    Row("step-products", "the same, products-like [15, 10, 5]", MS,
        Bench(PRODUCTS, "step", "sage-3x256-15-10-5", 2, "median_ms"),
        train(PRODUCTS, TRAIN_PRODUCTS, "step"), Target("of_peer", 0.33)),
    Row("step-products-bf16", "the same with products in bf16", MS,
        Bench(PRODUCTS, "step", "sage-3x256-15-10-5-bf16", 2, "median_ms"),
        train(PRODUCTS, TRAIN_PRODUCTS, "step"), Target("of_peer", 0.27)),
    Row("accuracy", "its validation accuracy after 5 epochs, arxiv-like", SHARE,
        Program(ARXIV, "accuracy"), train(ARXIV, "--epochs 5", "accuracy")[:1], Target("peer_less", 0.01), slow=True),
    Row("gin", "GIN 2 x 64, an epoch of 800 graphs of 20 nodes, batches of 32, 2 threads", MS,
        Bench(IMDB, "step", "gin-2x64-epoch", 2, "median_ms"),
        (Script(IMDB, "gin.py", "--threads 2", "epoch"),), Target("of_peer", 0.27)),
    Row("gcn", "GCN 2 x 64, a step, fake graph of 100,000 nodes, [50, 50], 128 seeds, 2 threads", MS,
        Bench(FAKE, "step", "gcn-2x64-50-50", 2, "median_ms"),
        train(FAKE, TRAIN_GCN, "step"), Target("of_peer", 0.35)),
    Row("first-step", "start of the process to the end of the first step, arxiv-like", SECONDS,
        Program(ARXIV, "first_step"), train(ARXIV, TRAIN_ARXIV, "first_step"), Target("of_peer", 0.12)),
    Row("first-step-products", "the same, products-like", SECONDS,
        Program(PRODUCTS, "first_step"), train(PRODUCTS, TRAIN_PRODUCTS, "first_step"), Target("at_most", 0.6)),
    Row("resident-arxiv", "peak resident memory in training, arxiv-like (kiln's includes mapped files)", BYTES,
        Program(ARXIV, "resident"), train(ARXIV, TRAIN_ARXIV, "memory"), Target("of_peer", 1.0)),
    Row("resident-products", "the same, products-like", BYTES,
        Program(PRODUCTS, "resident"), train(PRODUCTS, TRAIN_PRODUCTS, "memory"), Target("of_peer", 1.0)),
    Row("memory-arxiv", "peak anonymous memory in training, arxiv-like", BYTES,
        Program(ARXIV, "anonymous"), (), Target("at_most", 0.55 * GIB)),
    Row("memory-products", "the same, products-like", BYTES,
        Program(PRODUCTS, "anonymous"), (), Target("at_most", 1.5 * GIB)),
    Row("ingest", "edge list to CSC, products-like, 2 threads", EDGES,
        Bench(PRODUCTS, "graph", "ingest", 2, "rate"), (), Target("at_least", 30e6), slow=True),
)
