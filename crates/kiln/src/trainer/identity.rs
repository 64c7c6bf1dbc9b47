use std::collections::BTreeSet;
use std::time::Duration;

use kiln_kernels::ops::{MatmulPrecision, matmul_precision_on};
use kiln_nn::ModelConfig;
use kiln_train::{DataHash, InitialWeights, Metric, RunIdentity};

use crate::{DataLoader, Error, Result, Trainer};

/// The timeout for the ranks that wait for another one to open its data: a day.
const READING: Duration = Duration::from_secs(24 * 3600);

impl<C: ModelConfig> Trainer<C> {
    /// Checks that all ranks train with the same settings and, if they are processes, with data of the same sizes and
    /// sampled values. Collective: every rank must call it.
    pub(super) fn agree<L: DataLoader<C::Model>>(&self, loader: &L, identity: &RunIdentity) -> Result<()> {
        if self.rank.world_size() == 1 {
            return Ok(());
        }
        let sample = if self.rank.process.is_one_rank { loader.data_sample()? } else { String::new() };
        let mut comm = self.rank.communicator("settings")?;
        // The timeout may be long, because a lost rank is detected during the wait.
        comm.barrier(READING)?;
        let text = |all: &[Vec<u8>], rank: usize| String::from_utf8_lossy(&all[rank]).into_owned();
        // Other data often has other settings, too, such as the number of items.
        let all = comm.all_gather(sample.as_bytes())?;
        if let Some(rank) = all.iter().position(|other| *other != all[0]) {
            let (what, first) = ("hash of its sizes and of sampled values", 0);
            let (expected, got) = (text(&all, 0), text(&all, rank));
            return Err(kiln_train::Error::Input(kiln_train::InputError::DataDiffers {
                what,
                first,
                rank,
                expected,
                got,
            })
            .into());
        }
        let all = comm.all_gather(lines_of(identity).as_bytes())?;
        if let Some(rank) = all.iter().position(|other| *other != all[0]) {
            let of_zero = text(&all, 0);
            let of_rank = text(&all, rank);
            let expected = line_only_in(&of_zero, &of_rank);
            let got = line_only_in(&of_rank, &of_zero);
            return Err(Error::SettingsDiffer { rank, expected, got });
        }
        Ok(())
    }

    /// Returns the identity of the run, which must match when it is resumed. Ranks that are threads of one process share
    /// the hash of rank 0, which alone compares it with a checkpoint.
    pub(super) fn identity<L: DataLoader<C::Model>>(
        &self,
        loader: &L,
        metric: Metric,
        patience: Option<usize>,
        initial: Option<&InitialWeights>,
    ) -> Result<RunIdentity> {
        let mut settings = loader.settings(self.rank.world_size());
        settings.extend([
            ("model", format!("{:?}", self.model)),
            ("optimizer", format!("{:?}", self.optimizer)),
            ("seed", self.seed.to_string()),
        ]);
        // Checkpoints of default values do not name them.
        if metric != Metric::Accuracy {
            settings.push(("metric", metric.to_string()));
        }
        if self.accumulate != 1 {
            settings.push(("batches per step", self.accumulate.to_string()));
        }
        settings.extend(initial.map(|weights| ("initial weights", weights.hash().to_owned())));
        settings.extend(patience.map(|n_epochs| ("patience", n_epochs.to_string())));
        settings.extend(self.device_kinds().map(|kinds| ("devices", kinds)));
        settings.extend(self.precision().map(|name| ("matmul precision", name.to_owned())));
        let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let has_own = self.rank.is_zero() || self.rank.process.is_one_rank;
        let data_hash = if has_own { loader.data_hash()? } else { DataHash::default() };
        Ok(RunIdentity { settings, data_hash })
    }

    /// Returns the kinds of the devices, such as `cuda`, which round sums differently; `None` for the CPU.
    fn device_kinds(&self) -> Option<String> {
        let names = self.devices.iter().flat_map(|devices| devices.iter()).map(|device| device.name.as_str());
        let kinds: BTreeSet<&str> = names.filter_map(|name| name.split(':').next()).collect();
        let is_other = kinds.iter().any(|kind| *kind != "cpu");
        is_other.then(|| kinds.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Returns the name of the precision of matrix products; `None` for f32, in which devices compute that lack the other one.
    fn precision(&self) -> Option<&'static str> {
        let precision = matmul_precision_on(&self.config().device);
        (precision != MatmulPrecision::F32).then(|| precision.name())
    }
}

/// Returns a line for each setting.
fn lines_of(identity: &RunIdentity) -> String {
    let mut lines = String::new();
    for (name, value) in &identity.settings {
        lines.push_str(&format!("{name} {value}\n"));
    }
    lines
}

/// Returns the first line of a text that another text lacks.
fn line_only_in(text: &str, other: &str) -> String {
    let line = text.lines().find(|line| other.lines().all(|of_other| of_other != *line));
    line.unwrap_or("no such setting").to_owned()
}
