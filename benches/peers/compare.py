"""Measures kiln's benches and DGL's scripts in turn and compares them: `cargo xtask bench --peers` starts it.

All rows together are written to docs/benchmarks as peers.md and peers.svg; chosen rows are printed only."""
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
    parser.add_argument("--machine", required=True, help="a saved run of `cargo xtask bench`, for the machine and its ceilings")
    parser.add_argument("--python", help="the Python that has DGL; without it one is made, which downloads packages")
    parser.add_argument("--rounds", type=int, default=2, help="how often each row is measured")
    parser.add_argument("--row", action="append", default=[], choices=[row.name for row in ROWS], help="measures this row only")
    parser.add_argument("--data", action="append", default=[], help="the folder of a data set; others are generated")
    parser.add_argument("--in-memory", action="store_true", help="kiln's benches copy their data into memory")
    return parser.parse_args(argv)


def measure(rows, rounds, ours, peer):
    """Measures each row in each round, kiln and the peer in turn."""
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
    """The medians over the rounds; of several ways of the peer, the best one."""
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
