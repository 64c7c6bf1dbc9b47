"""Measures kiln's benches and DGL's scripts in turn and compares them: `cargo xtask bench --peers` starts it.

A comparison of all rows is written to docs/benchmarks as peers.md and peers.svg. A comparison of selected rows is only
printed."""
import argparse, json, os, statistics, subprocess, sys

sys.dont_write_bytecode = True
import report
from ours import Ours
from peer import Peer
from rows import RATES, ROWS, Outcome, say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main(argv=None):
    args = parse(argv)
    rows = [row for row in ROWS if not args.row or row.name in args.row]
    with open(args.machine) as file:
        run = json.load(file)
    kept = os.path.dirname(os.path.abspath(args.machine))
    ours = Ours(ROOT, os.path.abspath(args.machine), args.in_memory)
    peer = Peer(args.python, kept)
    ours.build()
    names = sorted({row.ours.data for row in rows})
    ours.data = peer.prepare(names, args.data, kept, ours.programs["write_fake"])
    outcomes = measure(rows, args.rounds, ours, peer)
    cores = run["machine"]["cores"]
    host = f"{run['machine']['cpu']}, {cores} core{'' if cores == 1 else 's'}"
    about = report.About(host, run["date"], run["commit"], args.rounds, args.in_memory, tuple(ours.ceilings))
    text = report.markdown(outcomes, about)
    print(f"\n{text}")
    if not args.row:
        for name, text in (("peers.md", text), ("peers.svg", report.svg(outcomes, about))):
            with open(os.path.join(ROOT, "docs", "benchmarks", name), "w") as file:
                file.write(text)
            print(f"written to docs/benchmarks/{name}")


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", required=True, help="saved run of `cargo xtask bench`, with the machine and its ceilings")
    parser.add_argument("--python", help="Python with DGL; by default an environment is created from downloads")
    parser.add_argument("--rounds", type=int, default=2, help="number of measurements per row")
    parser.add_argument("--row", action="append", default=[], choices=[row.name for row in ROWS], help="measures only this row")
    parser.add_argument("--data", action="append", default=[], help="folder of a data set; others are generated")
    parser.add_argument("--in-memory", action="store_true", help="copies the data of kiln's benches into memory")
    return parser.parse_args(argv)


def measure(rows, rounds, ours, peer):
    """Measures each row in each round, first kiln and then DGL. Slow rows are measured in the first round only."""
    found = [([], [[] for _ in row.peers]) for row in rows]
    for round_no in range(1, rounds + 1):
        peer.printed.clear()
        for row, (cells, theirs) in zip(rows, found):
            if row.slow and 1 < round_no:
                continue
            cells.append(ours.measure(row.ours))
            for script, values in zip(row.peers, theirs):
                values.append(peer.value(script))
            peers = ", ".join(say(row.unit, values[-1]) for values in theirs)
            print(f"round {round_no}, {row.name}: {say(row.unit, cells[-1][0])}; DGL {peers}", flush=True)
    return [outcome(row, cells, theirs) for row, (cells, theirs) in zip(rows, found)]


def outcome(row, cells, theirs):
    """Returns the medians over the rounds. If DGL has several ways to compute a row, the best one counts."""
    fractions = [fraction for _, fraction in cells if fraction is not None]
    medians = [statistics.median(values) for values in theirs if values]
    best = max if row.unit in RATES else min
    return Outcome(
        row,
        statistics.median(value for value, _ in cells),
        statistics.median(fractions) if fractions else None,
        best(medians) if medians else None,
    )


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"error: {error}")
