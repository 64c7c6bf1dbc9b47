"""Threads and processes: Ctrl-C, fork, the interpreter's lock, and the end of the process."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import kiln

START = """
import numpy as np, os, signal, sys, threading, time, kiln
data = kiln.Dataset.open("debian-packages")
loader = kiln.NeighborLoader(data, [5, 5], batch_size=256, num_workers=2, output="numpy")
"""


def run(program):
    """Returns the output of a program that runs in a process of its own."""
    done = subprocess.run([sys.executable, "-c", START + program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


FORK = """
batches = iter(loader)
next(batches)
child = os.fork()
if child == 0:
    for call in (lambda: next(batches), lambda: iter(loader), lambda: kiln.Dataset.open("debian-packages")):
        try:
            call()
            os._exit(1)
        except kiln.ForkError as error:
            assert "spawn" in str(error)
    # The end of the batches does not wait for threads that this process does not have.
    del batches, loader
    os._exit(0)
print(os.waitpid(child, 0)[1], len(list(batches)) + 1 == len(loader))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_use_after_fork_is_an_error_that_says_what_to_do():
    assert run(FORK) == ["0", "True"]


def test_ctrl_c_ends_a_loop_over_batches():
    program = """
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        for batch in loader:
            pass
except KeyboardInterrupt:
    print("stopped", len(list(loader)) == len(loader))
"""
    assert run(program) == ["stopped", "True"]


def test_a_process_ends_in_the_middle_of_an_epoch():
    assert run("batches = iter(loader); next(batches); print('end')") == ["end"]


def test_other_threads_of_python_run_while_one_waits_for_a_batch():
    data = kiln.Dataset.open("debian-packages")
    loader = kiln.NeighborLoader(data, [-1, -1, -1], batch_size=20_000, num_workers=0, output="numpy")
    ticks = []
    is_done = threading.Event()

    def tick():
        while not is_done.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    next(iter(loader))
    end = time.monotonic()
    is_done.set()
    thread.join()
    # With the lock held, no tick would be between the start and the end.
    middle = [time for time in ticks if start + (end - start) / 4 < time < end - (end - start) / 4]
    assert middle, f"no tick in {end - start} s"


def test_several_threads_take_batches_of_their_own_iterators():
    data = kiln.Dataset.from_arrays(np.array([[0, 1], [1, 0]]))
    totals = []
    threads = [
        threading.Thread(target=lambda: totals.append(sum(1 for _ in kiln.NeighborLoader(data, [1], output="numpy")))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [2] * 4
