"""Compares the processor time and the page faults of programs that train for an epoch.

    python3 benches/epochs.py [--rounds 5] [--case nodes] NAME=PROGRAM [NAME=PROGRAM ...]

A program is a build of `kiln`, such as one of another commit or `kiln-glibc`. In each round, every program runs each case once, in
turn, and in the other order in every second round, because the first program after another case takes longer. The measures are
those of `getrusage` for a whole process: user and system time of all its threads, and page faults without access to a disk. The
table has the minimum and the median of all rounds.
"""

import argparse
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

CASES = {
    "nodes": "--data debian-packages --val-batches 1 --epochs 1",
    "links": "--task link --data debian-packages --link-split 0.01,0.01 --eval-negatives 10 --hidden 32 --fanouts 5,5 "
    "--batch-size 8192 --epochs 1",
    "heterogeneous": "--data debian-archive --fanouts 10,10 --hidden 64 --epochs 16",
    "partitions": "--parts {parts} --host 127.0.0.1 --ranks 2 --epochs 1",
}
COMMON = "--threads-per-rank 1"
PARTITION = "data partition debian-packages --standardize --parts 2 --out {parts}"


def resources_of(command):
    """Runs a command, and returns its processor time in seconds and its number of page faults."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{shlex.join(command)} failed:\n{errors}")
    return usage.ru_utime + usage.ru_stime, usage.ru_minflt


def measure(programs, cases, n_rounds, folder):
    """Returns the measures of each case and program, a pair for each round."""
    parts = folder / "parts"
    if "partitions" in cases:
        first = next(iter(programs.values()))
        resources_of([first, *shlex.split(PARTITION.format(parts=shlex.quote(str(parts))))])
    measures = {(case, name): [] for case in cases for name in programs}
    for round_number in range(n_rounds):
        for case in cases:
            flags = shlex.split(CASES[case].format(parts=shlex.quote(str(parts)))) + shlex.split(COMMON)
            in_turn = list(programs.items())
            if round_number % 2 == 1:
                in_turn.reverse()
            for name, program in in_turn:
                out = folder / f"{case}-{name}-{round_number}"
                measures[case, name].append(resources_of([program, "train", *flags, "--out", str(out)]))
    return measures


def table(measures):
    """Returns the table in Markdown."""
    lines = ["| case | program | CPU time, s: minimum | median | page faults: minimum | median |", "|---|---|---|---|---|---|"]
    for (case, name), rounds in measures.items():
        seconds = [seconds for seconds, _ in rounds]
        faults = [faults for _, faults in rounds]
        lines.append(
            f"| {case} | {name} | {min(seconds):.2f} | {statistics.median(seconds):.2f} "
            f"| {min(faults):,} | {round(statistics.median(faults)):,} |"
        )
    return "\n".join(lines)


def program(text):
    name, separator, path = text.partition("=")
    if not (name and separator and os.access(path, os.X_OK)):
        raise argparse.ArgumentTypeError(f"expected NAME=PROGRAM with a program that can be run, got {text}")
    return name, str(pathlib.Path(path).resolve())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only this case; may be given several times")
    parser.add_argument("programs", nargs="+", type=program, metavar="NAME=PROGRAM")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    with tempfile.TemporaryDirectory() as folder:
        print(table(measure(dict(args.programs), args.case or list(CASES), args.rounds, pathlib.Path(folder))))


if __name__ == "__main__":
    main()
