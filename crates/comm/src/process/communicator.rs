use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytemuck::{Pod, Zeroable};

use crate::call::{Call, group_name};
use crate::cause::Cause;
use crate::process::engine::{Engine, Engines, Parts, PartsMut};
use crate::process::watchdog::activity::Activity;
use crate::sums::{Number, share};
use crate::{Communicator, Error, RankInfo, Reduce, Result};

/// The communicator of a group of processes. It numbers the collectives, records where this rank waits and until when,
/// and checks that all ranks are in the same collective before any of them transfers data.
///
/// Sums are computed here in rank order, not by the engine, so they are bit-identical with every engine, and to those
/// of ranks that are threads. The engine moves each rank's values to the rank that sums them, and the sums to all
/// ranks. An all-reduce of the engine would transfer the same number of bytes.
pub(crate) struct ProcessCommunicator {
    context: Arc<Context>,
    /// The rank of each member in the job, in the order of the group.
    ranks: Vec<usize>,
    /// This rank's rank in the group.
    member: usize,
    /// The name of the group, which identifies it on all ranks; empty for the world.
    name: String,
    /// The engine. The first collective opens it, because all members must open it together.
    engine: Option<Box<dyn Engine>>,
    n_calls: u64,
    /// The number of groups created for each name.
    n_taken: BTreeMap<String, u64>,
}

/// The state that all groups of a process share.
pub(crate) struct Context {
    pub(crate) rank_info: RankInfo,
    pub(crate) activity: Arc<Activity>,
    pub(crate) engines: Box<dyn Engines>,
    /// The maximum time that a rank waits in a collective.
    pub(crate) deadline: Duration,
    /// The reason why the ranks cannot communicate any more, if there is one.
    pub(crate) over: OnceLock<Cause>,
}

/// The description of a rank's collective, which the ranks exchange before its data.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
struct Header {
    kind: u64,
    /// The number of values of a sum, or the root of a broadcast; 0 for other collectives.
    argument: u64,
    /// The sequence number of the collective in its group.
    number: u64,
    /// The maximum number of bytes that this rank sends to one rank.
    n_bytes: u64,
    /// The step of this rank plus 1; 0 before the first step.
    step: u64,
}

impl ProcessCommunicator {
    /// Creates the communicator of all ranks of the job.
    pub(crate) fn world(context: Arc<Context>) -> Self {
        let RankInfo { rank, world_size, .. } = context.rank_info;
        Self::new(context, (0..world_size).collect(), rank, String::new())
    }

    fn new(context: Arc<Context>, ranks: Vec<usize>, member: usize, name: String) -> Self {
        Self { context, ranks, member, name, engine: None, n_calls: 0, n_taken: BTreeMap::new() }
    }

    fn child(&mut self, name: String, ranks: Vec<usize>, member: usize) -> Box<dyn Communicator> {
        let n_taken = self.n_taken.entry(name.clone()).or_default();
        let name = group_name(&name, *n_taken, &self.name);
        *n_taken += 1;
        Box::new(Self::new(Arc::clone(&self.context), ranks, member, name))
    }

    fn n_ranks(&self) -> usize {
        self.ranks.len()
    }

    /// Runs a collective in which this rank sends at most `n_bytes` to one rank. First checks that all ranks have
    /// called the same collective, then calls `body` with the engine and the `n_bytes` of every rank.
    fn meet<V>(
        &mut self,
        call: Call,
        n_bytes: usize,
        deadline: Duration,
        body: impl FnOnce(&mut dyn Engine, &[usize]) -> std::result::Result<V, String>,
    ) -> Result<V> {
        self.n_calls += 1;
        let context = Arc::clone(&self.context);
        let meeting = call.meeting(self.n_calls, &self.name);
        let failed = |reason| Error::Engine { meeting: meeting.to_string(), reason };
        if let Some(cause) = context.over.get() {
            return Err(cause.error(&meeting));
        }
        let _waiting = context.activity.enter(meeting.clone(), &self.ranks, deadline);
        let mut engine = match self.engine.take() {
            Some(engine) => engine,
            None => context.engines.open(&self.ranks, &self.name).map_err(failed)?,
        };
        let headers = self.headers(&mut *engine, &call, n_bytes).map_err(failed)?;
        self.check(&headers)?;
        let n_bytes: Vec<usize> = headers.iter().map(|header| header.n_bytes as usize).collect();
        let outcome = body(&mut *engine, &n_bytes).map_err(failed);
        self.engine = Some(engine);
        outcome
    }

    /// Exchanges the headers of all ranks and returns them by rank.
    fn headers(
        &self,
        engine: &mut dyn Engine,
        call: &Call,
        n_bytes: usize,
    ) -> std::result::Result<Vec<Header>, String> {
        let (kind, argument) = encode(call);
        let step = self.context.activity.step().map_or(0, |step| step + 1);
        let own = Header { kind, argument, number: self.n_calls, n_bytes: n_bytes as u64, step };
        let mut all = vec![Header::zeroed(); self.n_ranks()];
        let counts = vec![size_of::<Header>(); self.n_ranks()];
        engine.all_gather(bytemuck::bytes_of(&own), &counts, bytemuck::cast_slice_mut(&mut all))?;
        Ok(all)
    }

    /// Checks that all ranks have called the same collective. All ranks see the same headers and get the same result.
    fn check(&self, headers: &[Header]) -> Result<()> {
        let of = |header: &Header| (header.kind, header.argument, header.number);
        let first = headers[0];
        let Some(other) = headers.iter().position(|header| of(header) != of(&first)) else { return Ok(()) };
        let step = |header: &Header| header.step.checked_sub(1);
        let meeting = |header: &Header| decode(header).meeting(header.number, &self.name);
        let cause = Cause::Mismatch {
            meeting: Box::new(meeting(&first)),
            rank: self.ranks[0],
            step: step(&first),
            other_rank: self.ranks[other],
            other_step: step(&headers[other]),
            other_collective: decode(&headers[other]).to_string(),
        };
        let cause = self.context.over.get_or_init(|| cause);
        Err(cause.error(&meeting(&headers[self.member])))
    }

    fn sum<T: Number + Pod>(&mut self, values: &mut [T]) -> Result<()> {
        let member = self.member;
        let n_ranks = self.n_ranks();
        let deadline = self.context.deadline;
        let call = Call::all_reduce_sum(values);
        self.meet(call, size_of_val(values), deadline, |engine, _| {
            let at_once = (engine.max_bytes() / size_of::<T>()).max(1);
            let mut shares = Vec::new();
            for piece in values.chunks_mut(at_once) {
                sum_piece(engine, member, n_ranks, piece, &mut shares)?;
            }
            Ok(())
        })
    }
}

impl Communicator for ProcessCommunicator {
    fn rank_info(&self) -> RankInfo {
        RankInfo { rank: self.member, world_size: self.n_ranks(), ..self.context.rank_info }
    }

    fn set_step(&mut self, step: u64) {
        self.context.activity.set_step(step);
    }

    fn set_stage(&mut self, phase: &'static str) {
        self.context.activity.set_stage(phase);
    }

    fn all_reduce_sum(&mut self, buf: Reduce<'_>) -> Result<()> {
        match buf {
            Reduce::F32(values) => self.sum(values),
            Reduce::U64(values) => self.sum(values),
        }
    }

    fn device_sum(&mut self, n_values: usize, sum: &mut dyn FnMut()) -> Result<()> {
        let deadline = self.context.deadline;
        self.meet(Call::DeviceSum { n_values }, 0, deadline, |_, _| {
            sum();
            Ok(())
        })
    }

    fn all_gather(&mut self, send: &[u8]) -> Result<Vec<Vec<u8>>> {
        let deadline = self.context.deadline;
        self.meet(Call::AllGather, send.len(), deadline, |engine, n_bytes| {
            let mut all: Vec<Vec<u8>> = n_bytes.iter().map(|n| Vec::with_capacity(*n)).collect();
            for start in pieces(engine, n_bytes) {
                let counts: Vec<usize> = n_bytes.iter().map(|n| start.of(*n).len()).collect();
                let mut recv = vec![0; counts.iter().sum()];
                engine.all_gather(&send[start.of(send.len())], &counts, &mut recv)?;
                append(&mut all, &recv, &counts);
            }
            Ok(all)
        })
    }

    fn all_to_all(&mut self, send: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let n_ranks = self.n_ranks();
        if send.len() != n_ranks {
            return Err(Error::SendCount { world_size: n_ranks, got: send.len() });
        }
        let longest = send.iter().map(Vec::len).max().unwrap_or(0);
        let deadline = self.context.deadline;
        self.meet(Call::AllToAll, longest, deadline, |engine, n_bytes| {
            let lengths: Vec<u64> = send.iter().map(|bytes| bytes.len() as u64).collect();
            let mut incoming = vec![0u64; n_ranks];
            let words = vec![size_of::<u64>(); n_ranks];
            engine.all_to_all(
                Parts { bytes: bytemuck::cast_slice(&lengths), counts: &words },
                PartsMut { bytes: bytemuck::cast_slice_mut(&mut incoming), counts: &words },
            )?;
            let mut all = vec![Vec::new(); n_ranks];
            for start in pieces(engine, n_bytes) {
                let parts: Vec<&[u8]> = send.iter().map(|bytes| &bytes[start.of(bytes.len())]).collect();
                let send_counts: Vec<usize> = parts.iter().map(|part| part.len()).collect();
                let recv_counts: Vec<usize> = incoming.iter().map(|n| start.of(*n as usize).len()).collect();
                let bytes = parts.concat();
                let mut recv = vec![0; recv_counts.iter().sum()];
                engine.all_to_all(
                    Parts { bytes: &bytes, counts: &send_counts },
                    PartsMut { bytes: &mut recv, counts: &recv_counts },
                )?;
                append(&mut all, &recv, &recv_counts);
            }
            Ok(all)
        })
    }

    fn broadcast(&mut self, root: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let Some(&root_of_job) = self.ranks.get(root) else {
            return Err(Error::NoSuchRank { rank: root, world_size: self.n_ranks() });
        };
        let n_bytes = if root == self.member { bytes.len() } else { 0 };
        let deadline = self.context.deadline;
        self.meet(Call::Broadcast { root: root_of_job }, n_bytes, deadline, |engine, n_bytes| {
            bytes.resize(n_bytes[root], 0);
            bytes.chunks_mut(engine.max_bytes()).try_for_each(|piece| engine.broadcast(root, piece))
        })
    }

    fn barrier(&mut self, deadline: Duration) -> Result<()> {
        self.meet(Call::Barrier, 0, deadline, |_, _| Ok(()))
    }

    fn subgroup(&mut self, ranks: &[usize]) -> Result<Box<dyn Communicator>> {
        let position = self.rank_info().rank_in(ranks)?;
        let of_job: Vec<usize> = ranks.iter().map(|rank| self.ranks[*rank]).collect();
        Ok(self.child(format!("subgroup {of_job:?}"), of_job, position))
    }

    fn duplicate(&mut self, name: &str) -> Result<Box<dyn Communicator>> {
        let ranks = self.ranks.clone();
        let member = self.member;
        Ok(self.child(format!("channel {name:?}"), ranks, member))
    }
}

impl fmt::Debug for ProcessCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, member, name, n_calls, .. } = self;
        f.debug_struct("ProcessCommunicator")
            .field("rank", member)
            .field("ranks", ranks)
            .field("name", name)
            .field("n_calls", n_calls)
            .finish_non_exhaustive()
    }
}

/// Replaces each value by its sum over the ranks. The values must fit into one call of the engine. `shares` is a buffer
/// that the caller reuses for all such calls.
fn sum_piece<T: Number + Pod>(
    engine: &mut dyn Engine,
    member: usize,
    n_ranks: usize,
    values: &mut [T],
    shares: &mut Vec<T>,
) -> std::result::Result<(), String> {
    let send_counts: Vec<usize> =
        (0..n_ranks).map(|rank| share(values.len(), rank, n_ranks).len() * size_of::<T>()).collect();
    let n_own = share(values.len(), member, n_ranks).len();
    shares.clear();
    shares.resize(n_ranks * n_own, T::zeroed());
    engine.all_to_all(
        Parts { bytes: bytemuck::cast_slice(values), counts: &send_counts },
        PartsMut { bytes: bytemuck::cast_slice_mut(shares), counts: &vec![n_own * size_of::<T>(); n_ranks] },
    )?;
    let (sums, others) = shares.split_at_mut(n_own);
    for other in others.chunks(n_own.max(1)) {
        for (sum, value) in sums.iter_mut().zip(other) {
            *sum = sum.plus(*value);
        }
    }
    engine.all_gather(bytemuck::cast_slice(sums), &send_counts, bytemuck::cast_slice_mut(values))
}

/// A byte range of the messages of a collective. One call of the engine transfers this range of every message.
#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    n_bytes: usize,
}

impl Piece {
    /// Returns the part of this range that lies within a message of the given length; it may be empty.
    fn of(self, message_bytes: usize) -> std::ops::Range<usize> {
        let end = self.start.saturating_add(self.n_bytes).min(message_bytes);
        self.start.min(end)..end
    }
}

/// Returns the pieces in which messages are sent. `n_bytes` contains the length of the longest message of each rank and
/// is equal on all ranks, so all ranks compute the same pieces.
fn pieces(engine: &dyn Engine, n_bytes: &[usize]) -> impl Iterator<Item = Piece> + use<> {
    let longest = n_bytes.iter().copied().max().unwrap_or(0);
    let at_once = (engine.max_bytes() / n_bytes.len()).max(1);
    (0..longest).step_by(at_once).map(move |start| Piece { start, n_bytes: at_once })
}

/// Splits `recv` into `counts[r]` bytes from each rank `r`, and appends them to the bytes received from this rank
/// before.
fn append(all: &mut [Vec<u8>], recv: &[u8], counts: &[usize]) {
    let mut rest = recv;
    for (bytes, count) in all.iter_mut().zip(counts) {
        let (own, others) = rest.split_at(*count);
        bytes.extend_from_slice(own);
        rest = others;
    }
}

const SUM_OF_F32: u64 = 1;
const SUM_OF_U64: u64 = 2;
const ALL_GATHER: u64 = 3;
const ALL_TO_ALL: u64 = 4;
const BROADCAST: u64 = 5;
const BARRIER: u64 = 6;
const DEVICE_SUM: u64 = 7;

fn encode(call: &Call) -> (u64, u64) {
    match *call {
        Call::AllReduceSum { n_values, element } if element == f32::NAME => (SUM_OF_F32, n_values as u64),
        Call::AllReduceSum { n_values, .. } => (SUM_OF_U64, n_values as u64),
        Call::DeviceSum { n_values } => (DEVICE_SUM, n_values as u64),
        Call::AllGather => (ALL_GATHER, 0),
        Call::AllToAll => (ALL_TO_ALL, 0),
        Call::Broadcast { root } => (BROADCAST, root as u64),
        Call::Barrier => (BARRIER, 0),
    }
}

fn decode(header: &Header) -> Call {
    let argument = header.argument as usize;
    match header.kind {
        SUM_OF_F32 => Call::AllReduceSum { n_values: argument, element: f32::NAME },
        SUM_OF_U64 => Call::AllReduceSum { n_values: argument, element: u64::NAME },
        DEVICE_SUM => Call::DeviceSum { n_values: argument },
        ALL_GATHER => Call::AllGather,
        ALL_TO_ALL => Call::AllToAll,
        BROADCAST => Call::Broadcast { root: argument },
        _ => Call::Barrier,
    }
}
