"""Runs a command with a time limit, and records where its threads are before it ends a command that hangs.

    python3 benches/gpu/watchdog.py LIMIT LOG COMMAND...     LIMIT in seconds; LOG receives the output

The command is in a process group of its own, which ends with it. After the limit, the state of its threads is appended to
LOG: the stacks from gdb if it is installed, otherwise from /proc. The exit status is the command's, 124 after the limit,
or 128 plus the number of the signal that ended the command or this program.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading

# The seconds that gdb may take for the stacks of all threads.
GDB_SECONDS = 6

# The seconds that a killed command may take to end.
END_SECONDS = 5

# The largest number of characters of gdb's output that is kept.
MAX_STACKS = 200_000


def threads(pid):
    """Returns the state of a process's threads from /proc, one block of lines per thread."""
    lines = []
    try:
        ids = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError as error:
        return f"process {pid}: {error}\n"
    for thread in ids:
        lines.append(f"thread {thread} of process {pid}:")
        for name in ("comm", "wchan", "syscall", "stack", "status"):
            try:
                with open(f"/proc/{pid}/task/{thread}/{name}") as file:
                    text = file.read()
            except OSError as error:
                text = f"({error.strerror})"
            if name == "status":
                wanted = ("State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")
                text = "; ".join(line for line in text.splitlines() if line.startswith(wanted))
            lines.append(f"  {name}: " + text.strip().replace("\n", "\n    ").replace("\t", " "))
    return "\n".join(lines) + "\n"


def stacks(pid):
    """Returns the stacks of a process's threads from gdb, or why there are none."""
    if not shutil.which("gdb"):
        return "gdb is not on this machine\n"
    command = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "set pagination off", "-ex", "thread apply all bt 24"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GDB_SECONDS)
        return done.stdout[-MAX_STACKS:]
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"gdb failed: {error}\n"


def members(group):
    """Returns the ids of the running processes of a group."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rpartition(") ")[2].split()
        except OSError:
            continue
        if fields[2] == str(group) and fields[0] != "Z":
            found.append(int(entry))
    return found


def end(group, number):
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


def run(limit, path, command):
    """Runs the command and returns the exit status."""
    with open(path, "ab") as log:
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, process_group=0)
        except OSError as error:
            log.write(f"watchdog.py: {command[0]}: {error.strerror}\n".encode())
            return 127
        interrupted = threading.Event()

        def interrupt(number, _):
            interrupted.number = number
            interrupted.set()
            end(child.pid, signal.SIGKILL)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, interrupt)
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            log.write(f"\nwatchdog.py: the command still ran after {limit:g} s\n".encode())
            for pid in members(child.pid):
                # The state first: gdb stops the process.
                log.write((threads(pid) + stacks(pid)).encode())
                log.flush()
            end(child.pid, signal.SIGKILL)
            try:
                # A process that waits inside the driver may not end.
                child.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                log.write(b"watchdog.py: the command does not end\n")
            status = 124
        # What the command started and did not end.
        end(child.pid, signal.SIGKILL)
        if interrupted.is_set():
            return 128 + interrupted.number
        return status if 0 <= status else 128 - status


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(run(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))
