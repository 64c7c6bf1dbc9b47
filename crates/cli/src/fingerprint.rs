//! The settings that the result of `kiln train` depends on.

use std::collections::BTreeMap;

use kiln::comm::LaunchEnv;
use kiln::train::{DataHash, RunIdentity};

use crate::ranks::RankArgs;

/// The flags that do not affect the result, or that another setting represents.
const NOT_OF_THE_RESULT: &str = "ranks batch-size threads-per-rank deadline rank world-size local-rank master engine \
    join-within tls-ca tls-cert tls-key workers data in-memory verify epochs loss-every tensorboard log-format \
    checkpoint-every memory graph-mode feature-cache hot-by mode parts servers host no-static-cache cache-size worker-concurrency \
    channel-size out resume continue";

/// Defaults of flags that older checkpoints do not have, so that new ones do not name them either.
const UNNAMED_DEFAULTS: [(&str, &str); 8] = [
    ("precision", "f32"),
    ("metric", "accuracy"),
    ("loss", "cross-entropy"),
    ("momentum", "0"),
    ("nesterov", "false"),
    ("accumulate", "1"),
    ("residual", "false"),
    ("reject-edges", "false"),
];

/// Returns the settings that the result depends on: flags and the hash of the data. Excludes flags that only affect how
/// the result is computed, the location of the data, and defaults that older checkpoints do not have.
pub(crate) fn fingerprint(
    flags: &BTreeMap<String, String>,
    ranks: &RankArgs,
    launch: Option<&LaunchEnv>,
    is_of_graphs: bool,
    data_hash: DataHash,
) -> RunIdentity {
    let flags = flags
        .iter()
        .filter(|(flag, _)| NOT_OF_THE_RESULT.split(' ').all(|other| other != flag.as_str()))
        .filter(|(flag, value)| !UNNAMED_DEFAULTS.contains(&(flag.as_str(), value.as_str())));
    // `0.50` and `0.5` are the same setting. Integers are kept as text, because a float may not represent them.
    let plain = |value: &String| match (value.parse::<u64>(), value.parse::<f64>()) {
        (Err(_), Ok(number)) => number.to_string(),
        _ => value.clone(),
    };
    let flags = flags.map(|(flag, value)| (name_of(flag, value), plain(value)));
    let (n_ranks, batches) = (ranks.job.n_ranks(launch), ranks.batches(is_of_graphs));
    let of_ranks = [
        ("--batch-size x --ranks".to_owned(), Some(batches.batch_size * n_ranks)),
        ("--ranks".to_owned(), (batches.uneven != kiln::loader::UnevenShards::Join).then_some(n_ranks)),
    ];
    let of_ranks = of_ranks.into_iter().filter_map(|(name, value)| Some((name, value?.to_string())));
    let program = ("the program".to_owned(), "kiln train".to_owned());
    let settings = flags.chain(of_ranks).chain([program]).collect();
    RunIdentity { settings, data_hash }
}

/// Returns the name of a flag's setting. That of TF32 is the name that the flag had before it had other values, so that
/// earlier checkpoints can be resumed.
fn name_of(flag: &str, value: &str) -> String {
    match (flag, value) {
        ("precision", "tf32") => "--matmul".to_owned(),
        _ => format!("--{flag}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::flags;
    use crate::train::TrainArgs;

    /// Returns the settings of a command line, without computed defaults.
    fn settings(flags: &str) -> BTreeMap<String, String> {
        let command = TrainArgs::augment_args(clap::Command::new("train"));
        let words = ["train", "--data", "sbm"].into_iter().chain(flags.split_whitespace());
        let matches = command.clone().try_get_matches_from(words).expect("the flags should be valid");
        let given = flags::given(&command, &matches).all;
        let ranks = RankArgs::from_arg_matches(&matches).expect("the flags should be valid");
        fingerprint(&given, &ranks, None, false, DataHash::default()).settings
    }

    /// A new flag whose default has a name here would end the resumption of all earlier runs.
    #[test]
    fn defaults_have_the_settings_of_earlier_versions() {
        let names = settings("").into_keys().collect::<Vec<String>>().join(" ");
        let expected = "--batch-size x --ranks --device --drop-last --eval --input-dropout --learn-epsilon \
                        --node-features --optimizer --row-normalize --rule --seed --symmetrize --uneven --weight-decay \
                        the program";
        assert_eq!(names, expected);
    }

    #[test]
    fn each_training_option_is_a_setting() {
        let plain = settings("");
        for (flags, name, value) in [
            ("--optimizer sgd --momentum 0.90", "--momentum", "0.9"),
            ("--optimizer sgd --momentum 0.9 --nesterov", "--nesterov", "true"),
            ("--lr-schedule cosine", "--lr-schedule", "cosine"),
            ("--lr-epochs 5", "--lr-epochs", "5"),
            ("--warmup 2epochs", "--warmup", "2epochs"),
            ("--clip-grad-norm 1", "--clip-grad-norm", "1"),
            ("--accumulate 4", "--accumulate", "4"),
            ("--norm layer", "--norm", "layer"),
            ("--residual", "--residual", "true"),
            ("--jumping-knowledge cat", "--jumping", "cat"),
            ("--precision bf16", "--precision", "bf16"),
            ("--precision tf32", "--matmul", "tf32"),
            ("--matmul tf32", "--matmul", "tf32"),
        ] {
            assert_eq!(plain.get(name), None, "{flags}");
            assert_eq!(settings(flags).get(name).map(String::as_str), Some(value), "{flags}");
        }
    }
}
