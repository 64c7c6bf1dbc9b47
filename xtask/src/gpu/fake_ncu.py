#!/usr/bin/env python3
"""Stands for NVIDIA's profiler `ncu` in a dry run: runs the program and prints made-up metrics in ncu's CSV format."""

import subprocess
import sys

WITH_VALUE = {"--clock-control", "--print-units", "--metrics", "--launch-skip", "--launch-count"}
ALONE = {"--csv"}
COLUMNS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
           "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value")
UNITS = {"gpu__time_duration.sum": "ns", "dram__bytes.sum": "byte", "launch__registers_per_thread": "register/thread",
         "sm__warps_active.avg.pct_of_peak_sustained_active": "%", "launch__grid_size": ""}

given, args = {}, sys.argv[1:]
while args and args[0].startswith("-"):
    name = args.pop(0)
    if name in WITH_VALUE:
        given[name] = args.pop(0)
    elif name not in ALONE:
        sys.exit(f"==ERROR== unrecognised option '{name}'")
if not args:
    sys.exit("==ERROR== No target application specified")
print(f"==PROF== Connected to process 1 ({args[0]})", flush=True)
status = subprocess.run(args).returncode
print("==PROF== Disconnected from process 1")
line = lambda values: print(",".join(f'"{value}"' for value in values))
line(COLUMNS)
for launch in range(int(given["--launch-count"])):
    kernel = ("segment_sum", "adam_kernel")[launch % 2]
    for metric in given["--metrics"].split(","):
        line((launch, 1, "kiln", "127.0.0.1", kernel, 1, 7, "(256, 1, 1)", "(12, 1, 1)", 0, "9.0", "Command line profiler metrics",
              metric, UNITS[metric], f"{1000 + launch:,}"))
sys.exit(status)
