"""Tests of run.sh, archive.py, elf_filter.py and tables.py, without a GPU: python3 -m unittest discover benches/gpu"""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import archive
import elf_filter
import tables


def quietly(function, *args):
    """Returns the result of a function and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = function(*args)
    return result, out.getvalue()


class FolderTest(unittest.TestCase):
    """A test with a temporary folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name


class ArchiveTest(FolderTest):
    def setUp(self):
        super().setUp()
        noise = random.Random(0)
        for name, n_bytes in (("first", 100_000), ("second", 200_000), ("third", 10_000)):
            self.write(name, noise.randbytes(n_bytes))
        self.path = os.path.join(self.folder, "logs.tar.xz")

    def write(self, name, content):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(content)

    def read(self, *names):
        with open(os.path.join(self.folder, *names), "rb") as file:
            return file.read()

    def unpacked(self):
        folder = os.path.join(self.folder, "unpacked")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        archive.unpack(self.folder, folder)
        return sorted(os.listdir(folder))

    def test_packs_the_first_programs_that_fit_and_names_the_others(self):
        names = ["first", "second", "third"]
        for limit, n_expected in ((400_000, 3), (305_000, 2), (150_000, 1)):
            fitting, printed = quietly(archive.pack, limit, self.folder, self.folder, names)
            self.assertEqual(fitting, names[:n_expected])
            self.assertLessEqual(os.path.getsize(os.path.join(self.folder, "programs.lzma2")), limit)
            self.assertEqual(printed.count("left out"), 3 - n_expected)
            self.assertEqual(self.unpacked(), names[:n_expected])
            for name in names[:n_expected]:
                self.assertEqual(self.read("unpacked", name), self.read(name))
        with self.assertRaises(SystemExit):
            quietly(archive.pack, 50_000, self.folder, self.folder, names)

    def test_a_real_program_is_filtered_and_unpacked_unchanged(self):
        shutil.copy(os.path.realpath(shutil.which("bash")), os.path.join(self.folder, "bash"))
        quietly(archive.pack, 8 << 20, self.folder, self.folder, ["first", "bash"])
        self.assertEqual(self.unpacked(), ["bash", "first"])
        self.assertEqual(self.read("unpacked", "bash"), self.read("bash"))
        self.assertTrue(os.access(os.path.join(self.folder, "unpacked/bash"), os.X_OK))

    def test_a_damaged_package_is_an_error(self):
        quietly(archive.pack, 400_000, self.folder, self.folder, ["first", "third"])
        content = bytearray(self.read("programs.lzma2"))
        content[50_000] ^= 1
        self.write("programs.lzma2", content)
        with self.assertRaisesRegex(ValueError, "first is damaged"):
            self.unpacked()

    def test_logs_fit_into_the_limit(self):
        folder = os.path.join(self.folder, "logs")
        os.mkdir(folder)
        noise = random.Random(1).randbytes(archive.LOG_HALF_BYTES)
        self.write("logs/long", noise + b"middle" + noise)
        self.write("logs/short", b"text")
        _, printed = quietly(archive.logs, 100_000, self.path, folder)
        self.assertEqual(printed, "left out: long\n")
        self.assertLessEqual(os.path.getsize(self.path), 100_000)
        quietly(archive.logs, 16 << 20, self.path, folder)
        with tarfile.open(self.path) as tar:
            tar.extractall(os.path.join(self.folder, "out"))
        self.assertEqual(self.read("out/logs/short"), b"text")
        self.assertIn(b"[6 bytes omitted]", self.read("out/logs/long"))


class FilterTest(unittest.TestCase):
    def test_code_at_another_address_has_identical_tables(self):
        # Two functions of 16 and 32 bytes with one common entry, and a third number that is no address.
        def unwinding(address, function):
            common = struct.pack("<II", 24, 0) + b"\x01zPLR\0\x01\x78\x10\x07\x9b" + bytes(4) + b"\x1b\x1b"
            common += bytes(28 - len(common))
            entries = b""
            for start, size in ((function, 16), (function + 16, 32)):
                at = address + len(common) + len(entries)
                entries += struct.pack("<IIiIBi", 24, len(common) + len(entries) + 4, start - (at + 8), size, 4, start + 64 - (at + 17))
                entries += bytes(7)
            return bytearray(common + entries)

        tables = []
        for address, function in ((1000, 5000), (9000, 70_000)):
            table = unwinding(address, function)
            elf_filter.unwind_entries(memoryview(table), address, True)
            tables.append(bytes(table))
            elf_filter.unwind_entries(memoryview(table), address, False)
            self.assertEqual(table, unwinding(address, function))
        # The first entry contains addresses, and all others differences.
        self.assertNotEqual(tables[0][:56], tables[1][:56])
        self.assertEqual(tables[0][56:], tables[1][56:])

    def test_relocations_and_search_tables_are_reversible(self):
        header = bytes([1, elf_filter.PC_RELATIVE, 3, elf_filter.TABLE_RELATIVE]) + bytes(8)
        rows = random.Random(2).randbytes(240)
        for code, table in ((elf_filter.relocations, rows), (elf_filter.search_table, header + rows)):
            coded = bytearray(table)
            code(memoryview(coded), True)
            self.assertNotEqual(coded, table)
            code(memoryview(coded), False)
            self.assertEqual(coded, table)


class TablesTest(FolderTest):
    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_bench_prints_medians_and_rates(self):
        self.write("device/copy/1Ki/new/estimates.json", json.dumps({"median": {"point_estimate": 2e6}}))
        self.write("work.jsonl", json.dumps({"bench": "device/copy/1Ki", "elements": 4e9, "unit": "bytes"}))
        self.assertEqual(list(tables.bench(self.folder)), ["device/copy/1Ki 2.0000 ms 2e+12 bytes/s"])

    def test_ncu_prints_means_with_the_longest_kernel_first(self):
        log = self.write("ncu.log", "==PROF== Connected\n" + "\n".join([
            '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"',
            '"0","short","gpu__time_duration.sum","ns","10"',
            '"1","long","gpu__time_duration.sum","ns","1,000"',
            '"2","long","gpu__time_duration.sum","ns","3,000"',
            '"2","long","dram__bytes.sum","byte","n/a"',
        ]))
        expected = ["kernel\tlaunches\tgpu__time_duration.sum", "long\t2\t2000", "short\t1\t10"]
        self.assertEqual(list(tables.ncu(log)), expected)

    def run_of(self, name, *losses):
        lines = [json.dumps({"train_loss": loss}) for loss in losses]
        return os.path.dirname(self.write(f"{name}/metrics.jsonl", "\n".join(lines)))

    def test_losses_may_differ_by_rounding_only(self):
        cpu = self.run_of("cpu", 2.0, 1.0)
        self.assertEqual(len(list(tables.losses(cpu, self.run_of("a", 2.0, 1.0001)))), 2)
        for name, losses in (("b", [2.0, 1.01]), ("c", [2.0, float("nan")]), ("d", [2.0]), ("e", [])):
            with self.assertRaises(ValueError):
                list(tables.losses(cpu, self.run_of(name, *losses)))


@unittest.skipUnless(sys.platform == "linux", "run.sh needs GNU's timeout")
class ScriptTest(FolderTest):
    """Runs the part `smoke` of run.sh with shell scripts as programs."""

    def start(self, device_tests, **variables):
        """Starts the script in a checkout whose device tests are this shell script."""
        shutil.copytree(HERE, os.path.join(self.folder, "benches/gpu"), ignore=shutil.ignore_patterns("__pycache__"))
        package = os.path.join(self.folder, "target/gpu-day/package")
        os.makedirs(package)
        program = os.path.join(self.folder, "kernels-device")
        with open(program, "w") as file:
            file.write(f"#!/bin/sh\n{device_tests}\n")
        os.chmod(program, 0o755)
        quietly(archive.pack, 1 << 20, package, self.folder, ["kernels-device"])
        self.out = os.path.join(self.folder, "out")
        env = {name: value for name, value in os.environ.items() if name not in ("BUDGET", "DRY_RUN")}
        script = ["bash", os.path.join(self.folder, "benches/gpu/run.sh"), "smoke"]
        return subprocess.Popen(script, env={**env, "OUT": self.out, **variables}, stdout=subprocess.DEVNULL)

    def rows(self):
        with open(os.path.join(self.out, "table.txt")) as file:
            return [line.rstrip("\n").split("\t", 1) for line in file]

    def test_a_passing_part_has_rows_and_logs(self):
        self.assertEqual(self.start("echo test result: ok. 3 passed").wait(), 0)
        self.assertIn(["  kernels-ops", "test result: ok. 3 passed"], self.rows())
        self.assertEqual(sorted(os.listdir(self.out)), ["logs.tar.xz", "table.txt"])

    def test_a_failing_module_is_a_row_and_the_others_still_run(self):
        failing = "echo test $3a ... FAILED; [ $3 != ops:: ] && echo test result: ok. 3 passed"
        self.assertEqual(self.start(failing).wait(), 1)
        self.assertIn(["    kernels-ops", "test ops::a ... FAILED"], self.rows())
        self.assertIn(["  kernels-sampler", "test result: ok. 3 passed"], self.rows())
        self.assertTrue(self.rows()[-1][1].startswith("1 failed, 0 omitted"))

    def test_a_filter_that_matches_no_test_is_a_failure(self):
        self.assertEqual(self.start("echo test result: ok. 0 passed").wait(), 1)
        self.assertIn(["  kernels-ops", "failed: no test has this name"], self.rows())

    def test_parts_without_time_are_listed_and_end_with_status_1(self):
        self.assertEqual(self.start("echo test result: ok. 3 passed", BUDGET="10").wait(), 1)
        self.assertIn(["kernels-sampler", "not run: no time left"], self.rows())
        self.assertTrue(self.rows()[-1][1].startswith("0 failed, 3 omitted"))

    def test_an_interrupted_script_ends_its_programs_and_keeps_its_logs(self):
        pid_path = os.path.join(self.folder, "pid")
        script = self.start(f"echo $$ > {pid_path}.new; mv {pid_path}.new {pid_path}; exec sleep 60")
        while not os.path.exists(pid_path):
            time.sleep(0.01)
        with open(pid_path) as file:
            pid = int(file.read())
        script.send_signal(signal.SIGTERM)
        self.assertEqual(script.wait(), 143)
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)
        self.assertTrue(self.rows()[-1][1].startswith("interrupted by a signal"))
        self.assertIn("logs.tar.xz", os.listdir(self.out))


if __name__ == "__main__":
    unittest.main()
