//! The flags of `kiln train` for neighbour sampling and evaluation.

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use kiln::EvalMode;
use kiln::sample::{Fanout, Rule};

use crate::flags;

/// The neighbours that evaluation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Eval {
    /// Samples neighbours as in training.
    Sampled,
    /// Reads all neighbours, layer by layer over the whole graph.
    Exact,
}

/// The values of `--fanouts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fanouts {
    /// The fanouts of all relations without their own; empty if none were given.
    pub(crate) of_all: Vec<Fanout>,
    /// The fanouts of relations, by name.
    pub(crate) of_relations: Vec<(String, Vec<Fanout>)>,
}

impl Fanouts {
    /// Parses lists that are separated by semicolons: one for all relations, and others that begin with the name of a
    /// relation and `=`.
    fn parse(text: &str) -> Result<Self, String> {
        let (mut of_all, mut of_relations) = (Vec::new(), Vec::<(String, Vec<Fanout>)>::new());
        for part in text.split(';') {
            // Names of relations may contain the sign.
            let (name, list) = part.rsplit_once('=').map_or((None, part), |(name, list)| (Some(name), list));
            let fanouts = list.split(',').map(flags::fanouts).collect::<Result<Vec<_>, _>>()?;
            match name {
                None if of_all.is_empty() => of_all = fanouts,
                None => return Err("expected one list without a name of a relation".into()),
                Some(name) if of_relations.iter().any(|(other, _)| other == name.trim()) => {
                    return Err(format!("the relation `{}` has two lists", name.trim()));
                }
                Some(name) => of_relations.push((name.trim().to_owned(), fanouts)),
            }
        }
        Ok(Self { of_all, of_relations })
    }

    /// Returns the fanouts of a homogeneous graph.
    pub(crate) fn of_homogeneous(&self) -> anyhow::Result<&[Fanout]> {
        match self.of_relations.first() {
            None => Ok(&self.of_all),
            Some((name, _)) => bail!(
                "--fanouts names the relation `{name}`, but the data has no named relations: give one list of numbers"
            ),
        }
    }
}

/// The flags for neighbour sampling and evaluation.
#[derive(Debug, Args)]
#[command(next_help_heading = "Neighbours")]
pub(crate) struct SamplingArgs {
    /// Neighbours per node: a number or `all` per layer, input layer first. With --layers, one value is used for all
    /// layers. Relations of a heterogeneous graph may have their own, such as `10,10;depends=5,5;tagged=0,0`.
    #[arg(long, value_parser = Fanouts::parse, default_value = "10,10,10")]
    pub(crate) fanouts: Fanouts,
    /// Sampling rule, for sage and rgcn.
    #[arg(long, default_value = "uniform", value_parser = flags::choice([
        ("uniform", "Uniform without replacement", Rule::Uniform),
        ("uniform-with-replacement", "Uniform with replacement", Rule::UniformWithReplacement),
    ]))]
    pub(crate) rule: Rule,
    /// Neighbours that evaluation reads.
    #[arg(long, value_enum, default_value = "sampled")]
    pub(crate) eval: Eval,
    /// Memory limit of `--eval exact` for layer outputs, such as 512MiB; the rest is written to temporary files
    /// (TMPDIR). The scores of the test nodes are not included. Default: no limit.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Validates on N batches on rank 0, while the other ranks wait. Default: the whole split on all ranks.
    #[arg(long, value_parser = flags::size, conflicts_with = "eval")]
    pub(crate) val_batches: Option<usize>,
    /// Cross-validates on N stratified folds of a set of graphs, which the ranks (threads) divide; writes no files.
    #[arg(long, value_parser = flags::folds, conflicts_with_all = ["out", "resume", "start_or_resume", "patience", "checkpoint_every"])]
    pub(crate) folds: Option<usize>,
}

impl SamplingArgs {
    /// Returns the evaluation that the flags request.
    pub(crate) fn evaluation(&self) -> anyhow::Result<EvalMode> {
        ensure!(
            self.eval == Eval::Exact || self.memory.is_none(),
            "--memory requires --eval exact: add it, or remove --memory"
        );
        Ok(match (self.eval, self.val_batches) {
            (Eval::Exact, _) => EvalMode::Exact { memory_bytes: self.memory },
            (Eval::Sampled, Some(n_batches)) => EvalMode::FirstRank { n_batches },
            (Eval::Sampled, None) => EvalMode::Sampled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fanouts_of_relations_have_names() {
        let up_to = |numbers: &[u32]| numbers.iter().map(|&n| Fanout::UpTo(n)).collect::<Vec<_>>();
        let plain = Fanouts::parse("10, all").unwrap();
        assert_eq!((plain.of_all.len(), plain.of_all[1], plain.of_relations.len()), (2, Fanout::All, 0));
        assert!(plain.of_homogeneous().is_ok());
        let named = Fanouts::parse("10,10; a=b=5,4;c=0").unwrap();
        assert_eq!(named.of_all, up_to(&[10, 10]));
        let expected = [("a=b".to_owned(), up_to(&[5, 4])), ("c".to_owned(), up_to(&[0]))];
        assert_eq!(named.of_relations, expected);
        assert!(named.of_homogeneous().unwrap_err().to_string().contains("names the relation `a=b`"));
        for bad in ["", "1;2", "a=1;a=2", "a=", "a=1,x"] {
            assert!(Fanouts::parse(bad).is_err(), "{bad}");
        }
    }
}
