use std::time::Duration;

use crate::{Communicator, Error, RankInfo, Reduce, Result};

/// A group of one rank, in which every collective returns its input.
#[derive(Debug, Clone, Copy, Default)]
pub struct SingleRank;

impl SingleRank {
    /// Returns the communicator of the only rank.
    pub fn new() -> Self {
        Self
    }
}

impl Communicator for SingleRank {
    fn rank_info(&self) -> RankInfo {
        RankInfo { rank: 0, world_size: 1, local_rank: 0 }
    }

    fn set_step(&mut self, _: u64) {}

    fn all_reduce_sum(&mut self, _: Reduce<'_>) -> Result<()> {
        Ok(())
    }

    fn all_gather(&mut self, send: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(vec![send.to_vec()])
    }

    fn all_to_all(&mut self, send: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        match send.len() {
            1 => Ok(send.to_vec()),
            got => Err(Error::SendCount { world_size: 1, got }),
        }
    }

    fn broadcast(&mut self, root: usize, _: &mut Vec<u8>) -> Result<()> {
        if root == 0 { Ok(()) } else { Err(Error::NoSuchRank { rank: root, world_size: 1 }) }
    }

    fn barrier(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn subgroup(&mut self, ranks: &[usize]) -> Result<Box<dyn Communicator>> {
        self.rank_info().rank_in(ranks)?;
        Ok(Box::new(Self))
    }

    fn duplicate(&mut self, _: &str) -> Result<Box<dyn Communicator>> {
        Ok(Box::new(Self))
    }
}
