//! `cargo xtask bench --peers`: the benches and DGL's scripts in turn, in one run, as a table and a chart.

mod chart;
mod ours;
mod python;
mod rows;
mod table;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use self::python::Peers;
use self::rows::{Cell, Outcome, ROWS, Row};
use super::ceilings::Machine;
use super::measure::median;
use super::runs::{Host, commit, n_cores, today};
use crate::workspace;

/// What was asked for.
#[derive(Debug)]
pub(super) struct Options {
    /// The Python that has DGL; one is made where none is given.
    pub(super) python: Option<PathBuf>,
    /// How often each pair is measured.
    pub(super) rounds: u32,
    /// These rows only; all where none is named.
    pub(super) rows: Vec<String>,
    /// Folders of the data sets that are there; others are made.
    pub(super) data: Vec<PathBuf>,
    /// Whether our benches copy them into memory, as DGL does; memory and first step are measured mapped.
    pub(super) in_memory: bool,
}

/// Where and when rows were measured.
#[derive(Debug)]
struct About {
    host: Host,
    date: String,
    commit: String,
    rounds: u32,
    in_memory: bool,
    machine: Machine,
}

/// The names of all rows, for the command line.
pub(super) fn names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}

/// Measures the chosen rows; all of them together are written to `docs/benchmarks`, some are printed only.
pub(super) fn run(options: &Options) -> Result<()> {
    let is_chosen = |row: &&Row| options.rows.is_empty() || options.rows.iter().any(|name| name == row.name);
    let rows: Vec<&'static Row> = ROWS.iter().filter(is_chosen).collect();
    let peers = Peers::prepare(options, &rows)?;
    ours::build()?;
    let machine = Machine::measure(n_cores())?;
    print!("{machine}");
    let outcomes = measure(&rows, options.rounds, &peers, &machine)?;
    let about = About {
        host: Host::this(),
        date: today()?,
        commit: commit(),
        rounds: options.rounds,
        in_memory: options.in_memory,
        machine,
    };
    let text = table::markdown(&outcomes, &about);
    println!("\n{text}");
    if options.rows.is_empty() {
        let folder = workspace::root()?.join("docs").join("benchmarks");
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        for (name, text) in [("peers.md", text), ("peers.svg", chart::svg(&outcomes, &about))] {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
            println!("written to docs/benchmarks/{name}");
        }
    }
    Ok(())
}

/// Each row's numbers of one round, ours and the peer's in turn, and the median over the rounds.
fn measure(rows: &[&'static Row], rounds: u32, peers: &Peers, machine: &Machine) -> Result<Vec<Outcome>> {
    let mut found: Vec<(Vec<Cell>, Vec<Vec<f64>>)> = vec![Default::default(); rows.len()];
    for round in 1..=rounds {
        let mut said = python::Said::default();
        for (row, (ours, theirs)) in rows.iter().zip(&mut found) {
            if row.is_slow && 1 < round {
                continue;
            }
            ours.push(ours::measure(&row.ours, peers, machine)?);
            theirs.resize_with(row.peers.len(), Vec::new);
            for (script, values) in row.peers.iter().zip(theirs.iter_mut()) {
                values.push(peers.value(script, &mut said)?);
            }
            let last = |values: &Vec<f64>| values.last().map_or(String::new(), |value| row.unit.say(*value));
            let theirs: Vec<String> = theirs.iter().map(last).collect();
            let ours = ours.last().map_or(String::new(), |cell| row.unit.say(cell.value));
            println!("round {round}, {}: {ours}; DGL {}", row.name, theirs.join(", "));
        }
    }
    let outcome = |(row, (ours, theirs)): (&&'static Row, (Vec<Cell>, Vec<Vec<f64>>))| {
        let fractions: Vec<f64> = ours.iter().filter_map(|cell| cell.ceiling_fraction).collect();
        let ours = Cell {
            value: middle(ours.iter().map(|cell| cell.value).collect())
                .context("a row is measured once at least")?,
            ceiling_fraction: middle(fractions),
        };
        let theirs = theirs.into_iter().filter_map(middle);
        // Of several ways of the peer, its best.
        let peer = match row.unit.is_rate() {
            true => theirs.reduce(f64::max),
            false => theirs.reduce(f64::min),
        };
        Ok(Outcome { row, ours, peer })
    };
    rows.iter().zip(found).map(outcome).collect()
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| median(&values))
}
