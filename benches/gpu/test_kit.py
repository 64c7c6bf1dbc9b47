"""Tests of run.sh and of the programs beside it, without a GPU: python3 -m unittest discover benches/gpu"""

import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest.mock

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

    def test_packs_all_programs_or_fails(self):
        names = ["first", "second", "third"]
        _, printed = quietly(archive.pack, 400_000, self.folder, self.folder, names)
        self.assertIn("3 programs", printed)
        self.assertEqual(self.unpacked(), names)
        for name in names:
            self.assertEqual(self.read("unpacked", name), self.read(name))
        with self.assertRaisesRegex(SystemExit, "3 programs do not fit into 0.3 MiB"):
            quietly(archive.pack, 300_000, self.folder, self.folder, names)

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

    @unittest.mock.patch.object(archive, "LOG_HALF_BYTES", 100_000)
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

    def test_bench_prints_medians_rates_and_the_targets_of_both_cards(self):
        for name, ns in (("device/copy/1Ki", 2e6), ("device/sample-15-10-5/graph", 1.4e6), ("device/gather/graph", 1e6)):
            self.write(f"{name}/new/estimates.json", json.dumps({"median": {"point_estimate": ns}}))
        self.write("work.jsonl", json.dumps({"bench": "device/copy/1Ki", "elements": 3e9, "unit": "bytes"}))
        self.assertEqual(list(tables.bench(self.folder)), [
            "bench\tmedian\trate\tH100 target\tH200 target",
            "device/copy/1Ki\t2.0000 ms\t1.5e+12 bytes/s\t3e+12 bytes/s (0.50)\t4.3e+12 bytes/s (0.35)",
            "device/gather/graph\t1.0000 ms\t-\t-\t-",
            "device/sample-15-10-5/graph\t1.4000 ms\t-\t0.7 ms (0.50)\t0.6 ms (0.43)",
        ])

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
        with self.assertRaisesRegex(ValueError, "has no metrics"):
            list(tables.ncu(self.write("empty.log", "==ERROR== ERR_NVGPUCTRPERM")))

    def test_steps_are_compared_with_those_of_kiln(self):
        step = lambda library, ms, **more: json.dumps(
            {"library": library, **more, "steps": 40, "ms_per_step": ms, "loss": 0.5})
        logs = [self.write("kiln.log", "a line\n" + step("kiln", 2.0)), self.write("pyg.log", step("pyg", 5.0, compiled=True))]
        lines = list(tables.steps(*logs, os.path.join(self.folder, "missing.log")))
        self.assertEqual(lines[1:], ["kiln\t2.000\t1.00\t40\t0.5000", "pyg, compiled\t5.000\t2.50\t40\t0.5000"])
        with self.assertRaises(ValueError):
            list(tables.steps(self.write("none.log", "killed")))

    def test_equal_runs_have_the_same_weights(self):
        line = lambda digit: "weights         sha256 " + digit * 64
        same = self.write("same.log", "\n".join([line("a")] * 5))
        self.assertEqual(list(tables.weights(same)), [f"5 runs with the same weights, sha256 {'a' * 64}"])
        for name, lines in (("differ", [line("a"), line("b")]), ("one", [line("a")]), ("none", [])):
            with self.assertRaises(ValueError):
                list(tables.weights(self.write(name, "\n".join(lines))))

    def run_of(self, name, *losses):
        lines = [json.dumps({"train_loss": loss, "seconds": 1.1}) for loss in losses]
        return os.path.dirname(self.write(f"{name}/metrics.jsonl", "\n".join(lines)))

    def test_losses_may_differ_by_rounding_only(self):
        cpu = self.run_of("cpu", 2.0, 1.0)
        expected = self.write("expected.json", next(iter(tables.expect(cpu))))
        self.assertEqual(len(list(tables.losses(expected, self.run_of("a", 2.0, 1.0001)))), 2)
        for name, losses in (("b", [2.0, 1.01]), ("c", [2.0, float("nan")]), ("d", [2.0]), ("e", [])):
            with self.assertRaises(ValueError):
                list(tables.losses(expected, self.run_of(name, *losses)))

    def test_epochs_have_the_targets_of_both_cards(self):
        lines = list(tables.epochs(self.run_of("a", 2.0)))
        self.assertEqual(lines[1:], ["1\t1.100\t2.00000\t0.55 s (0.50)\t0.45 s (0.41)"])


class FakeToolsTest(FolderTest):
    """The programs that stand for NVIDIA's tools in a dry run print what tables.py and run.sh read."""

    def run_tool(self, name, *args):
        tool = os.path.join(HERE, "../../xtask/src/gpu", name)
        return subprocess.run([sys.executable, tool, *args], capture_output=True, text=True)

    def test_metrics_of_the_fake_profiler_become_a_table(self):
        with open(os.path.join(HERE, "run.sh")) as file:
            metrics = "".join(re.findall(r"^ncu_metrics\+?=(\S+)$", file.read(), re.MULTILINE))
        done = self.run_tool("fake_ncu.py", "--csv", "--metrics", metrics, "--launch-count", "6", "echo", "a line")
        path = os.path.join(self.folder, "ncu.log")
        with open(path, "w") as file:
            file.write(done.stdout)
        lines = list(tables.ncu(path))
        self.assertEqual(lines[0].split("\t"), ["kernel", "launches", *sorted(metrics.split(","))])
        self.assertEqual(len(metrics.split(",")), 5)
        self.assertEqual([line.split("\t")[:2] for line in lines[1:]], [["adam_kernel", "3"], ["segment_sum", "3"]])
        self.assertNotEqual(self.run_tool("fake_ncu.py", "--unknown", "true").returncode, 0)

    def test_the_fake_sanitizer_passes_on_the_status_of_the_program(self):
        self.assertIn("ERROR SUMMARY: 0", self.run_tool("fake_sanitizer.py", "--tool", "memcheck", "true").stdout)
        self.assertEqual(self.run_tool("fake_sanitizer.py", "--tool", "racecheck", "false").returncode, 1)


class GraphTest(FolderTest):
    def graph(self, module, *args):
        folder = os.path.join(self.folder, module)
        subprocess.run([sys.executable, *args, folder, "small"], check=True, stdout=subprocess.DEVNULL)
        return os.path.join(folder, "small-like")

    def test_a_graph_of_torch_has_the_statistics_of_one_of_numpy(self):
        try:
            import numpy
            import torch  # noqa: F401
        except ImportError as error:
            self.skipTest(str(error))
        load = lambda folder, name: numpy.load(os.path.join(folder, f"{name}.npy"))
        graphs = [self.graph("numpy", os.path.join(HERE, "../peers/generate.py")),
                  self.graph("torch", os.path.join(HERE, "graphs.py"), "--device", "cpu")]
        statistics = []
        for graph in graphs:
            indptr, indices, labels = (load(graph, name) for name in ("indptr", "indices", "labels"))
            n, degrees = len(indptr) - 1, numpy.diff(indptr)
            dsts = numpy.repeat(numpy.arange(n), degrees)
            edges = dsts * n + indices
            # Distinct, in ascending order of destination and source, in both directions, and without self-loops.
            self.assertTrue((numpy.diff(edges) > 0).all())
            self.assertTrue((numpy.sort(indices.astype(numpy.int64) * n + dsts) == edges).all())
            self.assertFalse((dsts == indices).any())
            splits = [load(graph, f"{split}_idx") for split in ("train", "val", "test")]
            self.assertEqual(len(numpy.unique(numpy.concatenate(splits))), sum(map(len, splits)))
            features = load(graph, "features")
            means = numpy.stack([features[labels == label].mean(0) for label in range(8)])
            statistics.append({
                "exact": [n, len(indices), features.shape, str(features.dtype), list(map(len, splits)), labels.max()],
                "same class": (labels[dsts] == labels[indices]).mean(),
                "99 %": numpy.percentile(degrees, 99), "largest": degrees.max(), "median": numpy.median(degrees),
                "noise": features.std(), "class means": means.std(), "largest class": numpy.bincount(labels).max(),
            })
        ours, theirs = statistics[1], statistics[0]
        self.assertEqual(ours.pop("exact"), theirs["exact"])
        # Random graphs of 2,000 nodes differ by this much: the largest degree the most.
        allowed = {"99 %": 0.4, "largest": 0.4, "median": 0.2, "class means": 0.3}
        for name, value in ours.items():
            self.assertAlmostEqual(value / theirs[name], 1.0, delta=allowed.get(name, 0.06), msg=name)


@unittest.skipUnless(sys.platform == "linux", "the state of threads is in Linux's /proc")
class WatchdogTest(FolderTest):
    def run_command(self, limit, *command):
        self.log = os.path.join(self.folder, "log")
        status = subprocess.run([sys.executable, os.path.join(HERE, "watchdog.py"), str(limit), self.log, *command]).returncode
        with open(self.log) as file:
            return status, file.read()

    def test_passes_on_output_and_status(self):
        self.assertEqual(self.run_command(60, "sh", "-c", "echo out; echo err >&2; exit 3"), (3, "out\nerr\n"))
        self.assertEqual(self.run_command(60, "sh", "-c", "kill -9 $$")[0], 137)
        self.assertEqual(self.run_command(60, "/no/such/program")[0], 127)

    def test_a_hanging_command_ends_with_its_children_and_leaves_the_place_of_its_threads(self):
        path = os.path.join(self.folder, "pids")
        status, log = self.run_command(1, "sh", "-c", f"echo before; sleep 60 & echo $$ $! > {path}; wait")
        self.assertEqual(status, 124)
        self.assertIn("before\n", log)
        self.assertIn("the command still ran after 1 s", log)
        with open(path) as file:
            for pid in map(int, file.read().split()):
                self.assertIn(f"thread {pid} of process {pid}:", log)
                # The child may be a zombie of init for a moment.
                with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
                    self.assertIn(stat.read().rpartition(") ")[2][0], "ZX")
        rows = list(tables.hang(self.log))
        self.assertEqual(len(rows), 2)
        self.assertTrue(any("1 threads 'sleep' in " in row for row in rows), rows)


@unittest.skipUnless(sys.platform == "linux", "run.sh needs GNU's timeout")
class ScriptTest(FolderTest):
    """Runs parts of run.sh with shell scripts as programs."""

    def start(self, program, part="tests", **variables):
        """Starts the script in a checkout whose programs are all this shell script."""
        shutil.copytree(HERE, os.path.join(self.folder, "benches/gpu"), ignore=shutil.ignore_patterns("__pycache__"))
        package = os.path.join(self.folder, "target/gpu-day/package")
        os.makedirs(package)
        names = ["device_tests", "kit"]
        for name in names:
            path = os.path.join(self.folder, name)
            with open(path, "w") as file:
                file.write(f"#!/bin/sh\n{program}\n")
            os.chmod(path, 0o755)
        quietly(archive.pack, 1 << 20, package, self.folder, names)
        self.out = os.path.join(self.folder, "out")
        env = {name: value for name, value in os.environ.items() if name not in ("BUDGET", "DRY_RUN")}
        script = ["bash", os.path.join(self.folder, "benches/gpu/run.sh"), part]
        return subprocess.Popen(script, env={**env, "OUT": self.out, **variables}, stdout=subprocess.DEVNULL)

    def rows(self):
        with open(os.path.join(self.out, "table.txt")) as file:
            return [line.rstrip("\n").split("\t", 1) for line in file]

    def test_a_passing_part_has_rows_and_logs(self):
        self.assertEqual(self.start("echo test result: ok. 3 passed").wait(), 0)
        self.assertIn(["  tests-ops", "test result: ok. 3 passed"], self.rows())
        self.assertEqual(sorted(os.listdir(self.out)), ["logs.tar.xz", "table.txt"])

    def test_a_failing_crate_is_a_row_and_the_others_still_run(self):
        failing = "echo test $3a ... FAILED; [ $3 != nn:: ] && echo test result: ok. 3 passed"
        self.assertEqual(self.start(failing).wait(), 1)
        self.assertIn(["    tests-nn", "test nn::a ... FAILED"], self.rows())
        self.assertIn(["  tests-train", "test result: ok. 3 passed"], self.rows())
        self.assertTrue(self.rows()[-1][1].startswith("1 failed, 0 omitted"))

    def test_the_tests_of_ops_are_those_that_are_not_tests_of_sampling(self):
        self.assertEqual(self.start("echo test result: ok. $*").wait(), 0)
        arguments = {name: text.split()[5:] for name, text in self.rows() if text.startswith("test result")}
        self.assertEqual(arguments["  tests-ops"][:1], ["kernels::"])
        apart = [*arguments["  tests-sampling"], *arguments["  tests-large"]]
        self.assertEqual(arguments["  tests-ops"][2::2], apart)

    def test_a_filter_that_matches_no_test_is_a_failure(self):
        self.assertEqual(self.start("echo test result: ok. 0 passed").wait(), 1)
        self.assertIn(["  tests-ops", "failed: no test has this name"], self.rows())

    def test_a_hanging_command_costs_its_limit_only_and_leaves_rows(self):
        with open(os.path.join(HERE, "run.sh")) as file:
            self.assertIn("\nlimit=45\n", file.read())
        hanging = "[ $3 = nn:: ] && sleep 60; echo test result: ok. 3 passed"
        self.assertEqual(self.start(hanging, KILN_KIT_LIMIT="2").wait(), 1)
        rows = dict(self.rows())
        self.assertRegex(rows["tests-nn"], r"^status 124 after \d+ s \(the limit was 2 s\)$")
        self.assertTrue(any(text.startswith("hung: 1 threads 'sleep'") for _, text in self.rows()))
        self.assertEqual(rows["  tests-train"], "test result: ok. 3 passed")

    def test_parts_without_time_are_listed_and_end_with_status_1(self):
        self.assertEqual(self.start("echo test result: ok. 3 passed", BUDGET="5").wait(), 1)
        self.assertIn(["tests-sampling", "not run: no time left"], self.rows())
        self.assertTrue(self.rows()[-1][1].startswith("0 failed, 5 omitted"))

    def test_the_sanitizer_part_fails_if_a_named_case_does_not_exist(self):
        tools = os.path.join(self.folder, "tools")
        os.mkdir(tools)
        shutil.copy(os.path.join(HERE, "../../xtask/src/gpu/fake_sanitizer.py"), os.path.join(tools, "compute-sanitizer"))
        os.chmod(os.path.join(tools, "compute-sanitizer"), 0o755)
        path = f"{tools}:{os.environ['PATH']}"
        # The program has only seven of the eight tests.
        printed = "echo running 7 tests; echo test result: ok. 7 passed"
        self.assertEqual(self.start(printed, "sanitize", PATH=path).wait(), 1)
        self.assertIn(["  memcheck", "failed: a named case does not exist"], self.rows())
        self.assertIn(["  memcheck", "========= ERROR SUMMARY: 0 errors"], self.rows())

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
