//! Benches formatted as lines of text and of JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;

use super::measure::Measurement;
use super::runs::Run;

/// The result of a bench, as a line of the file that `--json` names.
#[derive(Debug, Serialize)]
struct Line<'a> {
    bench: &'a str,
    data: &'a str,
    threads: usize,
    min_ms: f64,
    median_ms: f64,
    max_ms: f64,
    rate: f64,
    unit: String,
    ceiling_fraction: Option<f64>,
    random_rows_fraction: Option<f64>,
    commit: &'a str,
    machine: String,
}

/// Formats a bench as `sample/uniform-10-10-10/rmat-17x16  1.200 / 1.250 / 1.400 ms  80.10 M edges/s  3.20 GB/s  75 %
/// of the ceiling`: the minimum, median and maximum time, the rates at the median, and the ceiling fraction.
pub(super) fn of(bench: &Measurement) -> String {
    let Measurement { name, min_ns, median_ns, max_ns, .. } = bench;
    let (unit, unit_ns) = match *median_ns {
        ns if ns < 1e3 => ("ns", 1.0),
        ns if ns < 1e6 => ("µs", 1e3),
        ns if ns < 1e9 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let [min, median, max] = [min_ns, median_ns, max_ns].map(|ns| ns / unit_ns);
    let mut line = format!("{name:<56} {min:.3} / {median:.3} / {max:.3} {unit}");
    if let Some((rate, counts)) = bench.rate() {
        let _ = write!(line, "  {} {counts}/s", with_prefix(rate));
    }
    let work = bench.work.iter();
    for work in work {
        for (n, what) in
            [(work.streamed + work.row_traffic, "B/s"), (work.lines, "lines/s"), (work.flop, "FLOP/s")]
        {
            if 0 < n {
                let _ = write!(line, "  {}{what}", with_prefix(n as f64 / median_ns * 1e9));
            }
        }
    }
    if let Some(fraction) = bench.ceiling_fraction {
        let _ = write!(line, "  {:.0} % of the ceiling", fraction * 100.0);
    }
    if let Some(fraction) = bench.random_rows_fraction {
        let _ = write!(line, " ({:.0} % of that of random rows)", fraction * 100.0);
    }
    line
}

/// Formats a rate with the SI prefix of its unit, such as `80.10 M`.
fn with_prefix(rate: f64) -> String {
    match rate {
        rate if rate < 1e3 => format!("{rate:.2} "),
        rate if rate < 1e6 => format!("{:.2} k", rate / 1e3),
        rate if rate < 1e9 => format!("{:.2} M", rate / 1e6),
        rate => format!("{:.2} G", rate / 1e9),
    }
}

/// Returns a line of JSON for each bench.
pub(super) fn json(run: &Run) -> Result<String> {
    let mut text = String::new();
    for bench in &run.benches {
        let (rate, counts) = bench.rate().unwrap_or_default();
        let [min_ms, median_ms, max_ms] = [bench.min_ns, bench.median_ns, bench.max_ns].map(|ns| ns / 1e6);
        let line = Line {
            bench: &bench.name,
            data: bench.name.rsplit('/').next().unwrap_or_default(),
            threads: bench.work.as_ref().map_or(run.machine.cores, |work| work.threads),
            min_ms,
            median_ms,
            max_ms,
            rate,
            unit: format!("{counts}/s"),
            ceiling_fraction: bench.ceiling_fraction,
            random_rows_fraction: bench.random_rows_fraction,
            commit: &run.commit,
            machine: run.machine.to_string(),
        };
        text += &serde_json::to_string(&line)?;
        text.push('\n');
    }
    Ok(text)
}

/// Returns a text that compares each median with that of another run.
pub(super) fn comparison(benches: &[Measurement], base: &Run, name: &str) -> String {
    let threads = base.threads.map_or("all".to_owned(), |threads| threads.to_string());
    let mut text = format!(
        "\nagainst {name}: commit {}, {}, {}, {threads} threads\n",
        base.commit, base.date, base.machine
    );
    let base: BTreeMap<&str, f64> =
        base.benches.iter().map(|bench| (bench.name.as_str(), bench.median_ns)).collect();
    for bench in benches {
        let _ = match base.get(bench.name.as_str()) {
            Some(median_ns) => {
                writeln!(text, "{:<56} {:.3}x the time", bench.name, bench.median_ns / median_ns)
            }
            None => writeln!(text, "{:<56} not in {name}", bench.name),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::measure::tests::bench;
    use super::super::runs::tests::run_of;
    use super::*;

    #[test]
    fn a_bench_line_has_times_rates_and_the_ceiling_fraction() {
        let line = of(&bench("sample/a/b"));
        let expected =
            "1.000 / 2.000 / 3.000 ms  500.00 k edges/s  4.00 GB/s  50.00 Mlines/s  200 % of the ceiling";
        assert!(line.starts_with("sample/a/b ") && line.ends_with(expected), "{line}");
    }

    #[test]
    fn json_objects_have_exactly_the_documented_keys() {
        let text = json(&run_of(vec![bench("sample/a/b")])).unwrap();
        let object: Value = serde_json::from_str(text.trim_end()).unwrap();
        let keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = [
            "bench",
            "data",
            "threads",
            "min_ms",
            "median_ms",
            "max_ms",
            "rate",
            "unit",
            "ceiling_fraction",
            "random_rows_fraction",
            "commit",
            "machine",
        ];
        expected.sort();
        assert_eq!(keys, expected);
        assert_eq!((&object["bench"], &object["data"]), (&"sample/a/b".into(), &"b".into()));
        assert_eq!((&object["median_ms"], &object["rate"]), (&2.0.into(), &500_000.0.into()));
        assert_eq!((&object["unit"], &object["ceiling_fraction"]), (&"edges/s".into(), &2.0.into()));
        assert_eq!(object["machine"], "a processor, 2 cores");
    }

    #[test]
    fn json_ceiling_fraction_is_null_without_a_ceiling() {
        let text = json(&run_of(vec![Measurement { ceiling_fraction: None, ..bench("a/b/c") }])).unwrap();
        assert!(text.contains(r#""ceiling_fraction":null"#), "{text}");
    }

    #[test]
    fn medians_are_compared_by_name() {
        let base = run_of(vec![Measurement { median_ns: 4e6, ..bench("a/b/c") }]);
        let text = comparison(&[bench("a/b/c"), bench("a/b/d")], &base, "old");
        assert!(text.contains("a/b/c ") && text.contains("0.500x the time"), "{text}");
        assert!(text.trim_end().ends_with("not in old"), "{text}");
    }
}
