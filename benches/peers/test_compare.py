"""Tests of the comparison, without DGL and without a build: `python3 -m unittest discover benches/peers`."""
import contextlib, io, json, os, stat, sys, tempfile, unittest

sys.dont_write_bytecode = True
import compare, ours, peer, report
from report import About, Axis, markdown, svg, times_better
from rows import GIB, IMDB, ROWS, Outcome, Script

ABOUT = About("a <fast> processor, 2 cores", "2026-01-31", "abc", 1, False, ("ceilings of 1 thread: read 1.0 GB/s",))


def row(name):
    return next(row for row in ROWS if row.name == name)


def outcome(name, value, fraction=None, peer=None):
    return Outcome(row(name), value, fraction, peer)


def is_met(name, value, fraction=None, peer=None):
    return outcome(name, value, fraction, peer).is_met([outcome("sample", 50e6)])


class Targets(unittest.TestCase):
    def test_rates_need_a_multiple_of_the_peers_and_a_fraction_of_the_ceiling(self):
        self.assertIs(is_met("sample", 60e6, 0.7, 10e6), True)
        self.assertIs(is_met("sample", 59e6, 0.7, 10e6), False)
        self.assertIs(is_met("sample", 60e6, 0.69, 10e6), False)
        self.assertIs(is_met("sample", 60e6, None, 10e6), False)
        self.assertIs(is_met("sample", 60e6, 0.7, None), None)

    def test_times_need_a_fraction_of_the_peers(self):
        self.assertIs(is_met("backward", 35.0, None, 100.0), True)
        self.assertIs(is_met("backward", 36.0, None, 100.0), False)

    def test_other_targets_compare_with_another_row_or_with_a_number(self):
        self.assertIs(is_met("sample-2", 90e6, None, 1.0), True)
        self.assertIs(is_met("sample-2", 89e6, None, 1.0), False)
        self.assertIs(outcome("sample-2", 90e6).is_met([]), None)
        self.assertIs(is_met("accuracy", 0.768, None, 0.778), True)
        self.assertIs(is_met("accuracy", 0.767, None, 0.778), False)
        self.assertIs(is_met("memory-arxiv", 0.56 * GIB), False)
        self.assertIs(is_met("ingest", 30e6), True)

    def test_names_of_rows_differ(self):
        self.assertEqual(len({row.name for row in ROWS}), len(ROWS))


class Report(unittest.TestCase):
    def test_a_row_has_both_values_their_ratio_and_whether_the_target_is_met(self):
        outcomes = [
            outcome("sample", 60e6, 0.75, 7.5e6),
            outcome("step-arxiv", 90.0, None, 300.0),
            outcome("ingest", 31e6, 0.5),
        ]
        lines = [line for line in markdown(outcomes, ABOUT).splitlines() if line.startswith("| ")][1:]
        ends = [
            "| 60.0 M edges/s | 7.5 M edges/s | 8.00x | >= 6x, 70 % of the ceiling | yes | 75 % |",
            "| 90.0 ms | 300.0 ms | 0.30x | <= 0.38x | yes | - |",
            "| 31.0 M edges/s | - | - | >= 30.0 M edges/s | yes | 50 % |",
        ]
        self.assertEqual(len(lines), len(ends))
        for line, end in zip(lines, ends):
            self.assertTrue(line.endswith(end), line)

    def test_the_table_names_machine_date_commit_and_ceilings(self):
        text = markdown([], ABOUT)
        for part in ("a <fast> processor, 2 cores", "2026-01-31", "commit abc", "data is mapped", "- ceilings of 1 thread: read"):
            self.assertIn(part, text)

    def test_rates_and_times_are_both_times_better(self):
        self.assertEqual(times_better(outcome("sample", 60e6, None, 10e6)), 6.0)
        self.assertEqual(times_better(outcome("step-arxiv", 50.0, None, 200.0)), 4.0)
        self.assertIsNone(times_better(outcome("accuracy", 0.7, None, 0.7)))
        self.assertIsNone(times_better(outcome("ingest", 30e6)))

    def test_the_axis_has_powers_of_two_at_equal_distances(self):
        axis = Axis(0.5, 8.0)
        self.assertEqual(axis.ticks(), [0.5, 1.0, 2.0, 4.0, 8.0])
        self.assertEqual([axis.x(times) for times in (0.5, 1.0, 8.0)], [report.LEFT, report.LEFT + report.WIDTH / 4, report.LEFT + report.WIDTH])

    def test_the_chart_has_a_bar_for_each_row_with_a_peer_and_is_well_formed(self):
        outcomes = [
            outcome("sample", 80e6, None, 10e6),
            outcome("step-arxiv", 300.0, None, 150.0),
            outcome("accuracy", 0.7, None, 0.7),
            outcome("ingest", 30e6),
        ]
        text = svg(outcomes, ABOUT)
        self.assertEqual(text.count('class="bar"'), 2)
        self.assertIn(">8.0x<", text)
        self.assertIn(">0.5x<", text)
        self.assertIn("a &lt;fast&gt; processor, 2 cores, 2026-01-31", text)
        for tag in ("svg", "text", "style", "title"):
            self.assertEqual(text.count(f"<{tag}"), text.count(f"</{tag}>"), tag)


class Peer(unittest.TestCase):
    def test_results_are_read_among_other_lines(self):
        text = 'a warning\n{"what": "edges", "value": 2.5, "min": 1, "max": 3, "unit": "edges/s"}\n'
        self.assertEqual(peer.parse(text), {"edges": 2.5})
        with self.assertRaises(KeyError):
            peer.parse('{"what": 1}')

    def test_every_script_of_a_row_exists_and_reports_its_result(self):
        for script in (script for row in ROWS for script in row.peers):
            with open(os.path.join(peer.HERE, script.file)) as file:
                text = file.read()
            self.assertIn(f'report("{script.what}"', text, script.file)
            for word in script.args.split():
                if word.startswith("--") and word != "--threads":
                    self.assertIn(f"{word[2:]}=", text, f"{script.file} has no {word}")

    def test_a_script_runs_once_a_round(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = os.path.join(folder, "mark")
            with open(os.path.join(folder, "a.py"), "w") as file:
                file.write(f'open({mark!r}, "a").write("run\\n")\nprint(\'{{"what": "a", "value": 2}}\')\n')
            dgl = peer.Peer(sys.executable, folder, scripts=folder)
            dgl.data = {IMDB: folder}
            self.assertEqual(dgl.value(Script(IMDB, "a.py", "", "a")), 2)
            with self.assertRaisesRegex(RuntimeError, "a.py printed no b"):
                dgl.value(Script(IMDB, "a.py", "", "b"))
            with open(mark) as file:
                self.assertEqual(file.read(), "run\n")


class OurSide(unittest.TestCase):
    def test_memory_is_read_from_the_status_of_a_process(self):
        status = "Name:\tx\nVmHWM:\t   60000 kB\nVmRSS:\t   50000 kB\nRssAnon:\t   12345 kB\nRssFile:\t  7 kB\n"
        self.assertEqual(ours.parse_status(status, "RssAnon"), 12345 * 1024)
        self.assertEqual(ours.parse_status(status, "VmHWM"), 60000 * 1024)
        self.assertIsNone(ours.parse_status("Name:\tx\n", "VmHWM"))

    def test_a_run_is_stopped_after_its_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "kiln")
            write_program(program, """
import sys, time
memory = bytearray(30_000_000)
print("opened")
for step in range(100):
    print(f"step     {step}  loss 1.0", flush=True)
time.sleep(100)
""")
            side = ours.Ours(folder, os.path.join(folder, "machine.json"), False)
            side.data, side.programs = {IMDB: folder}, {"kiln": program}
            trained = side.train(IMDB, 3)
            self.assertTrue(0 < trained.seconds < 100)
            self.assertTrue(30_000_000 < trained.anonymous <= trained.resident)
            with self.assertRaisesRegex(RuntimeError, "kiln train ended after 0 steps"):
                write_program(program, "")
                side.train(IMDB, 1)

    def test_the_accuracy_is_that_of_the_last_epoch(self):
        text = '{"epoch": 1, "val_accuracy": 0.9}\n{"epoch": 2, "val_accuracy": 0.8}\n'
        self.assertEqual(ours.last_accuracy(text), 0.8)
        self.assertIsNone(ours.last_accuracy('{"epoch": 1}'))
        self.assertIsNone(ours.last_accuracy(""))


class Rounds(unittest.TestCase):
    def test_medians_over_rounds_and_the_best_way_of_the_peer(self):
        class Fixed:
            def __init__(self, values):
                self.values, self.printed = list(values), {}

            def measure(self, _):
                return self.values.pop(0), 0.5

            def value(self, _):
                return self.values.pop(0)

        rows = [row("sample"), row("ingest")]
        with contextlib.redirect_stdout(io.StringIO()):
            # The row `ingest` is slow and has no script of DGL, so it has one value. The row `sample` has two scripts,
            # each measured twice.
            found = compare.measure(rows, 2, Fixed([10e6, 1e6, 30e6]), Fixed([3e6, 5e6, 5e6, 1e6]))
        self.assertEqual([(outcome.ours, outcome.peer) for outcome in found], [(20e6, 4e6), (1e6, None)])

    @unittest.skipUnless(os.name == "posix", "the stand-ins are scripts with a first line that names their interpreter")
    def test_a_comparison_runs_from_the_first_build_to_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = lambda name: os.path.join(folder, name)
            write_program(path("kiln"), "print('step     0  loss 1.0', flush=True)\nimport time\ntime.sleep(9)")
            # A stub of `cargo` that prints the paths of built programs, and benches that take 2 ms.
            write_program(path("cargo"), f"""
import json, sys
if sys.argv[1] == "build":
    target = dict(name="kiln")
    print(json.dumps(dict(reason="compiler-artifact", target=target, executable={path("kiln")!r})))
    target = dict(name="write_fake")
    print(json.dumps(dict(reason="compiler-artifact", target=target, executable="write_fake")))
else:
    flags = dict(zip(sys.argv[3::2], sys.argv[4::2]))
    line = dict(bench=flags["--only"], median_ms=2.0, rate=5e8, ceiling_fraction=0.25)
    open(flags["--json"], "w").write(json.dumps(line) + "\\n")
    print("ceilings of 2 threads: read 3.0 GB/s")
""")
            # A stub of DGL's Python that ignores the script.
            write_program(path("python"), """
import json
print(json.dumps(dict(what="step", value=8.0)))
print(json.dumps(dict(what="first_step", value=1e6)))
""")
            with open(path("machine.json"), "w") as file:
                json.dump(dict(commit="abc", date="2026-01-31", machine=dict(cpu="a processor", cores=1)), file)
            os.mkdir(path("arxiv-like"))
            before, os.environ["CARGO"] = os.environ.get("CARGO"), path("cargo")
            try:
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    compare.main(["--machine", path("machine.json"), "--python", path("python"), "--rounds", "1",
                                  "--row", "step-arxiv", "--row", "first-step", "--data", path("arxiv-like")])
            finally:
                os.environ.pop("CARGO")
                if before is not None:
                    os.environ["CARGO"] = before
            text = printed.getvalue()
            self.assertIn("2 threads | 2.0 ms | 8.0 ms | 0.25x | <= 0.38x | yes | 25 % |", text)
            self.assertIn(" s | 1000000.00 s | 0.00x | <= 0.12x | yes | - |", text)
            self.assertIn("a processor, 1 core; 2026-01-31; commit abc; the median of 1 round,", text)
            self.assertIn("- ceilings of 2 threads: read 3.0 GB/s", text)


def write_program(path, text):
    """Writes an executable Python program."""
    with open(path, "w") as file:
        file.write(f"#!{sys.executable}\n{text}\n")
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


if __name__ == "__main__":
    unittest.main()
