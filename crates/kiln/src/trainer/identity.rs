use std::time::Duration;

use kiln_kernels::is_cpu;
use kiln_kernels::ops::{MatmulPrecision, matmul_precision};
use kiln_nn::ModelConfig;
use kiln_train::{DataHash, Metric, RunIdentity};

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
        let all = comm.all_gather(format!("{:?}", identity.settings).as_bytes())?;
        if let Some(rank) = all.iter().position(|other| *other != all[0]) {
            return Err(Error::SettingsDiffer { rank, expected: text(&all, 0), got: text(&all, rank) });
        }
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
        Ok(())
    }

    /// Returns the identity of the run, which must match when it is resumed. Ranks that are threads of one process share
    /// the hash of rank 0, which alone compares it with a checkpoint.
    pub(super) fn identity<L: DataLoader<C::Model>>(
        &self,
        loader: &L,
        metric: Metric,
    ) -> Result<RunIdentity> {
        let own = [
            ("model", format!("{:?}", self.model)),
            ("optimizer", format!("{:?}", self.optimizer)),
            ("seed", self.seed.to_string()),
        ];
        // Checkpoints of default values do not name them.
        let metric = (metric != Metric::Accuracy).then(|| ("metric", metric.to_string()));
        let accumulate = (self.accumulate != 1).then(|| ("batches per step", self.accumulate.to_string()));
        // Earlier checkpoints name no precision. Other devices than the CPU do not compute in bf16.
        let is_bf16 = matmul_precision() == MatmulPrecision::Bf16 && is_cpu(&self.config().device);
        let precision = is_bf16.then(|| ("matmul precision", MatmulPrecision::Bf16.name().to_owned()));
        let settings = loader.settings(self.rank.world_size()).into_iter().chain(own);
        let settings = settings.chain(metric).chain(accumulate).chain(precision);
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).collect();
        let has_own = self.rank.is_zero() || self.rank.process.is_one_rank;
        let data_hash = if has_own { loader.data_hash()? } else { DataHash::default() };
        Ok(RunIdentity { settings, data_hash })
    }
}
