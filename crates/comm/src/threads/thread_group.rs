use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::call::Call;
use crate::sums::Sums;
use crate::threads::group::{Birth, Farewell, GroupId, Origin};
use crate::threads::state::Seat;
use crate::threads::world::World;
use crate::{Communicator, Error, GroupWatch, RankInfo, Reduce, Result};

/// The communicator of ranks that are threads of one process and communicate through its memory.
/// [`ThreadRanks`](crate::ThreadRanks) starts such threads.
///
/// A waiting rank sleeps, so there may be more ranks than cores. For each element type, a communicator keeps a buffer
/// as long as the longest slice that it has summed, and a buffer for its share of such a slice. All other data is freed
/// when every rank has received it.
///
/// The `n`-th channel that a rank creates with a name connects to the `n`-th one that each other rank creates with this
/// name. The same holds for subgroups with equal lists. Channels and subgroups outlive their parent, and can be created
/// from each other.
///
/// Dropping a communicator leaves the group. If another rank waits there, or waits there later, all ranks fail: at
/// once, or, for ranks that [`ThreadRanks`](crate::ThreadRanks) runs, within a second, in which the dropping rank may
/// report its error or panic as the cause.
pub struct ThreadGroup {
    position: GroupPosition,
    f32_sums: Sums<f32>,
    u64_sums: Sums<u64>,
}

/// A rank's position in a group of its world.
struct GroupPosition {
    world: Arc<World>,
    seat: Seat,
    /// The rank of each member in the world, in the order of the group.
    ranks: Arc<[usize]>,
    /// This rank's rank in the group.
    member: usize,
    /// The number of collectives called.
    n_calls: u64,
    /// The number of groups that this rank has created from this group, for each channel name and for each list of
    /// ranks of a subgroup.
    n_taken: BTreeMap<Birth, u64>,
}

impl ThreadGroup {
    /// Returns one communicator per rank, in ascending order of ranks; the caller runs each in its own thread. If a
    /// rank waits in a collective for longer than `deadline`, all ranks fail.
    pub fn new(n_ranks: usize, deadline: Duration) -> Vec<Self> {
        Self::of_world(&Arc::new(World::new(n_ranks, deadline)), n_ranks)
    }

    /// Creates one communicator per rank of the world.
    pub(crate) fn of_world(world: &Arc<World>, n_ranks: usize) -> Vec<Self> {
        let ranks: Arc<[usize]> = (0..n_ranks).collect();
        let seat = |rank| Seat { group: GroupId::WORLD, rank };
        (0..n_ranks).map(|rank| Self::at(Arc::clone(world), seat(rank), Arc::clone(&ranks), rank)).collect()
    }

    fn at(world: Arc<World>, seat: Seat, ranks: Arc<[usize]>, member: usize) -> Self {
        let position = GroupPosition { world, seat, ranks, member, n_calls: 0, n_taken: BTreeMap::new() };
        Self { position, f32_sums: Sums::default(), u64_sums: Sums::default() }
    }

    fn child(&mut self, birth: Birth, ranks: Arc<[usize]>, member: usize) -> Box<dyn Communicator> {
        let n_taken = self.position.n_taken.entry(birth.clone()).or_default();
        let origin = Origin { parent: self.position.seat.group, birth, nth: *n_taken };
        *n_taken += 1;
        let rank = self.position.seat.rank;
        let group = self.position.world.take_seat(rank, origin);
        Box::new(Self::at(Arc::clone(&self.position.world), Seat { group, rank }, ranks, member))
    }
}

impl Communicator for ThreadGroup {
    fn rank_info(&self) -> RankInfo {
        let GroupPosition { seat, ranks, member, .. } = &self.position;
        RankInfo { rank: *member, world_size: ranks.len(), local_rank: seat.rank }
    }

    fn set_step(&mut self, step: u64) {
        self.position.world.set_step(self.position.seat.rank, step);
    }

    fn all_reduce_sum(&mut self, buf: Reduce<'_>) -> Result<()> {
        let Self { position, f32_sums, u64_sums } = self;
        let member = position.member;
        let n_ranks = position.ranks.len();
        position.n_calls += 1;
        match buf {
            Reduce::F32(buf) => {
                let call = Call::all_reduce_sum(buf);
                f32_sums.all_reduce(member, n_ranks, buf, |values| position.exchange(call, values))
            }
            Reduce::U64(buf) => {
                let call = Call::all_reduce_sum(buf);
                u64_sums.all_reduce(member, n_ranks, buf, |values| position.exchange(call, values))
            }
        }
    }

    fn all_gather(&mut self, send: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.position.n_calls += 1;
        let all = self.position.exchange(Call::AllGather, Arc::new(send.to_vec()))?;
        Ok(all.iter().map(|bytes| bytes.to_vec()).collect())
    }

    fn all_to_all(&mut self, send: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let member = self.position.member;
        let world_size = self.position.ranks.len();
        if send.len() != world_size {
            return Err(Error::SendCount { world_size, got: send.len() });
        }
        self.position.n_calls += 1;
        // Each message has exactly one reader, so the reader can take the message without a copy.
        let messages: Vec<Mutex<Vec<u8>>> = send.iter().map(|bytes| Mutex::new(bytes.clone())).collect();
        let all = self.position.exchange(Call::AllToAll, Arc::new(messages))?;
        Ok(all
            .iter()
            .map(|messages: &Arc<Vec<Mutex<Vec<u8>>>>| {
                std::mem::take(&mut *messages[member].lock().unwrap_or_else(PoisonError::into_inner))
            })
            .collect())
    }

    fn broadcast(&mut self, root: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let Some(world_root) = self.position.ranks.get(root) else {
            return Err(Error::NoSuchRank { rank: root, world_size: self.position.ranks.len() });
        };
        let call = Call::Broadcast { root: *world_root };
        self.position.n_calls += 1;
        let is_root = root == self.position.member;
        let brought = if is_root { bytes.clone() } else { Vec::new() };
        let all = self.position.exchange(call, Arc::new(brought))?;
        if !is_root {
            bytes.clear();
            bytes.extend_from_slice(&all[root]);
        }
        Ok(())
    }

    fn barrier(&mut self, deadline: Duration) -> Result<()> {
        self.position.n_calls += 1;
        self.position.exchange_until(Call::Barrier, deadline, Arc::new(()))?;
        Ok(())
    }

    fn subgroup(&mut self, ranks: &[usize]) -> Result<Box<dyn Communicator>> {
        let position = self.rank_info().rank_in(ranks)?;
        let of_world = ranks.iter().map(|rank| self.position.ranks[*rank]).collect();
        Ok(self.child(Birth::Subgroup(ranks.to_vec()), of_world, position))
    }

    fn duplicate(&mut self, name: &str) -> Result<Box<dyn Communicator>> {
        let ranks = Arc::clone(&self.position.ranks);
        let member = self.position.member;
        Ok(self.child(Birth::Channel(name.to_owned()), ranks, member))
    }

    fn watch(&self) -> Option<GroupWatch> {
        let world = Arc::clone(&self.position.world);
        Some(GroupWatch::new(move || world.cause()))
    }
}

impl fmt::Debug for ThreadGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupPosition { ranks, member, n_calls, .. } = &self.position;
        f.debug_struct("ThreadGroup")
            .field("rank", member)
            .field("ranks", ranks)
            .field("n_calls", n_calls)
            .finish_non_exhaustive()
    }
}

impl GroupPosition {
    /// Gathers the payloads of all ranks of the group, in rank order. All collectives are built on this.
    fn exchange<P: Any + Send + Sync>(&self, call: Call, payload: Arc<P>) -> Result<Vec<Arc<P>>> {
        self.exchange_until(call, self.world.deadline(), payload)
    }

    fn exchange_until<P: Any + Send + Sync>(
        &self,
        call: Call,
        deadline: Duration,
        payload: Arc<P>,
    ) -> Result<Vec<Arc<P>>> {
        let brought = self.world.meet(self.seat, call, self.n_calls, deadline, payload)?;
        Ok(brought
            .into_iter()
            .map(|payload: Arc<dyn Any + Send + Sync>| {
                payload.downcast().expect("payloads of one collective should have the same type")
            })
            .collect())
    }
}

impl Drop for GroupPosition {
    fn drop(&mut self) {
        let farewell = if thread::panicking() { Farewell::Panicking } else { Farewell::Dropped };
        self.world.leave(self.seat, farewell);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Before a rank writes its buffers again, the other ranks have dropped their references to the buffers.
    #[test]
    fn sums_reuse_their_buffers() {
        let comms = ThreadGroup::new(3, Duration::from_secs(1_000_000));
        thread::scope(|scope| {
            for mut comm in comms {
                scope.spawn(move || {
                    let mut places = BTreeSet::new();
                    for _ in 0..100 {
                        comm.all_reduce_sum(Reduce::F32(&mut [1.0; 100])).unwrap();
                        let Sums { values, share } = &comm.f32_sums;
                        places.insert((
                            Arc::as_ptr(values),
                            values.as_ptr(),
                            Arc::as_ptr(share),
                            share.as_ptr(),
                        ));
                        assert_eq!((values.len(), Arc::strong_count(values)), (100, 1));
                    }
                    assert_eq!(places.len(), 1);
                });
            }
        });
    }
}
