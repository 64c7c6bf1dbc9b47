//! The comparison as a table in Markdown.

use std::fmt::Write as _;

use super::About;
use super::rows::{Outcome, Target, Unit};

/// The whole file.
pub(super) fn markdown(outcomes: &[Outcome], about: &About) -> String {
    let About { host, date, commit, rounds, in_memory, machine } = about;
    let s = if *rounds == 1 { "" } else { "s" };
    let held = if *in_memory { "copied into memory" } else { "mapped" };
    let mut text = format!(
        "# kiln beside DGL\n\n{host}; {date}; commit {commit}; the median of {rounds} round{s}, in each of which ours \
         and DGL 2.1.0 are\nmeasured in turn, by `cargo xtask bench --peers`. In kiln's benches of arxiv-like and\nproducts-like the data is {held}; accuracy, first step and memory are of mapped data.\nHow: [README.md](README.md).\n\n\
         | what | kiln | DGL | ratio | to reach | met | of the ceiling |\n|---|---|---|---|---|---|---|\n"
    );
    for outcome in outcomes {
        let (row, unit) = (outcome.row, outcome.row.unit);
        let peer = outcome.peer.map_or("-".into(), |value| unit.say(value));
        let ratio = outcome.ratio().filter(|_| unit != Unit::Share);
        let ratio = ratio.map_or("-".into(), |ratio| format!("{ratio:.2}x"));
        let met = match outcome.is_met(outcomes) {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        let fraction = outcome.ours.ceiling_fraction;
        let fraction = fraction.map_or("-".into(), |fraction| format!("{:.0} %", fraction * 100.0));
        let ours = unit.say(outcome.ours.value);
        let target = target(outcome);
        let _ =
            writeln!(text, "| {} | {ours} | {peer} | {ratio} | {target} | {met} | {fraction} |", row.what);
    }
    let _ = writeln!(text, "\nWhat the machine can do, measured in the same run:\n");
    for line in machine.to_string().lines() {
        let _ = writeln!(text, "- {line}");
    }
    text
}

/// What a row is to reach, in words.
fn target(outcome: &Outcome) -> String {
    let unit = outcome.row.unit;
    let text = match outcome.row.target {
        Target::TimesPeer(times) => format!(">= {times}x"),
        Target::OfPeer(part) => format!("<= {part}x"),
        Target::TimesRow(times, name) => format!(">= {times}x the row `{name}`"),
        Target::PeerLess(difference) => format!("DGL's - {difference}"),
        Target::AtMost(most) => format!("<= {}", unit.say(most)),
        Target::AtLeast(least) => format!(">= {}", unit.say(least)),
    };
    match outcome.row.least_fraction {
        Some(fraction) => format!("{text}, {:.0} % of the ceiling", fraction * 100.0),
        None => text,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::rows::tests::outcome;
    use super::*;
    use crate::bench::ceilings::tests::machine;
    use crate::bench::runs::Host;

    /// A made-up run.
    pub(in super::super) fn about() -> About {
        let host = Host { cpu: "a <fast> processor".into(), cores: 2 };
        About {
            host,
            date: "2026-01-31".into(),
            commit: "abc".into(),
            rounds: 1,
            in_memory: false,
            machine: machine(),
        }
    }

    #[test]
    fn a_row_says_both_sides_their_ratio_and_whether_it_is_met() {
        let outcomes = [
            outcome("sample", 60e6, Some(0.75), Some(7.5e6)),
            outcome("step-arxiv", 90.0, None, Some(300.0)),
            outcome("ingest", 31e6, Some(0.5), None),
        ];
        let text = markdown(&outcomes, &about());
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        let ends = [
            "| 60.0 M edges/s | 7.5 M edges/s | 8.00x | >= 6x, 70 % of the ceiling | yes | 75 % |",
            "| 90.0 ms | 300.0 ms | 0.30x | <= 0.25x | no | - |",
            "| 31.0 M edges/s | - | - | >= 30.0 M edges/s | yes | 50 % |",
        ];
        assert_eq!(rows.len(), ends.len());
        for (row, end) in rows.iter().zip(ends) {
            assert!(row.ends_with(end), "{row}");
        }
    }

    #[test]
    fn a_table_says_where_when_and_what_the_machine_can_do() {
        let text = markdown(&[], &about());
        for part in [
            "a <fast> processor, 2 cores",
            "2026-01-31",
            "commit abc",
            "data is mapped",
            "- ceilings of 1 thread: read",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
