//! What rank 0 knows of the job's processes, and which of them it takes in.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::process::launch::AGENT_RESTART;
use crate::process::machine;
use crate::process::proto::{Doing, Fault, Join, Member, Members, Nothing, told};
use crate::process::watchdog::place::Seconds;
use crate::process::watchdog::timing::RECENT;

/// What rank 0 knows of the job's processes.
#[derive(Debug)]
pub(crate) struct State {
    job: JobId,
    /// By rank.
    pub(crate) seats: Vec<Option<Seat>>,
    /// Why the job is over. Set once.
    pub(crate) fault: Option<Fault>,
    pub(crate) values: HashMap<String, Vec<u8>>,
    /// By group and number.
    pub(crate) exchanges: BTreeMap<(String, u64), Exchange>,
}

/// A process that has joined.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) join: Join,
    pub(crate) doing: Option<Doing>,
    pub(crate) heard: Instant,
    pub(crate) has_left: bool,
}

/// What the members of a group have for each other.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// By rank of the group.
    pub(crate) brought: Vec<Option<Vec<Vec<u8>>>>,
    /// Members that have not been given their part.
    pub(crate) n_due: usize,
}

/// Identifies this attempt at the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobId {
    /// The launcher's: processes that were started with another one are of another attempt.
    Launcher(String),
    /// One that rank 0 has drawn, which no process knows before it has joined.
    Drawn(String),
}

/// Why a process is not taken in, and who ends because of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A duplicate of a rank that is alive, or no rank of this job: it alone ends.
    Newcomer(String),
    /// A process of another attempt at the job: it retries until rank 0 of that one serves here.
    OtherAttempt(String),
    /// A process in the place of a silent rank: the job ends, to be started again.
    Replacement(String),
    /// A process that was started differently: the job fails before it has begun.
    Misfit(String),
}

impl JobId {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Launcher(id) | Self::Drawn(id) => id,
        }
    }
}

impl State {
    /// Of a job of so many processes, none of which has joined.
    pub(crate) fn new(world_size: usize, job: JobId) -> Self {
        let seats = (0..world_size).map(|_| None).collect();
        Self { job, seats, fault: None, values: HashMap::new(), exchanges: BTreeMap::new() }
    }

    pub(crate) fn missing(&self) -> Vec<usize> {
        (0..self.seats.len()).filter(|rank| self.seats[*rank].is_none()).collect()
    }

    /// Why a process that wants to join is not taken in.
    pub(crate) fn refusal(&self, join: &Join, now: Instant) -> Option<Refusal> {
        let (rank, world_size, who) = (join.rank as usize, self.seats.len(), name_of(join));
        let is_complete = self.missing().is_empty();
        let job = self.job.as_str();
        match (&self.fault, self.seats.get(rank)) {
            (_, None) => {
                let of = join.world_size;
                let reason =
                    format!("{who} says it is one of {of}, rank 0 says {world_size}: start all alike");
                Some(Refusal::Newcomer(reason))
            }
            (Some(fault), _) if is_complete => {
                Some(Refusal::OtherAttempt(format!("job {job} is ending, {who} must wait: {}", fault.what)))
            }
            (_, Some(Some(seat))) if is_complete => Some(self.refusal_of_second(seat, join, now)),
            _ if self.is_of_another_attempt(join, is_same_run) => {
                let other = &join.job;
                Some(Refusal::OtherAttempt(format!("{who} is of job {other}, rank 0 here is of job {job}")))
            }
            _ => self.misfit(join).map(Refusal::Misfit),
        }
    }

    /// Why a process is not taken in whose rank is there, in a job that runs.
    fn refusal_of_second(&self, seat: &Seat, join: &Join, now: Instant) -> Refusal {
        let (who, other, job) = (name_of(join), name_of(&seat.join), self.job.as_str());
        let silence = now.saturating_duration_since(seat.heard);
        let ago = Seconds(silence);
        let is_there = format!("{other} of job {job} was heard from {ago} ago");
        if self.is_of_another_attempt(join, str::eq) {
            let attempt = &join.job;
            return Refusal::OtherAttempt(format!(
                "{is_there}, {who} is of job {attempt} and must wait for its end"
            ));
        }
        // Neither could take the other's place.
        if let Some(difference) = self.difference(join, &seat.join) {
            return Refusal::Newcomer(format!("{is_there}, {who} is no rank of it: {difference}"));
        }
        if RECENT < silence {
            let rank = join.rank;
            return Refusal::Replacement(format!(
                "two processes say they are rank {rank}: {other}, last heard from {ago} ago, and {who} in its place"
            ));
        }
        Refusal::Newcomer(format!(
            "{other} of job {job} is alive, heard from {ago} ago, {who} is a duplicate: start each rank once"
        ))
    }

    fn is_of_another_attempt(&self, join: &Join, is_same: fn(&str, &str) -> bool) -> bool {
        matches!(&self.job, JobId::Launcher(id) if !join.job.is_empty() && !is_same(id, &join.job))
    }

    /// How a process differs from those that have joined, in what must be alike.
    fn misfit(&self, join: &Join) -> Option<String> {
        let (rank, who) = (join.rank as usize, name_of(join));
        if let Some(seat) = &self.seats[rank] {
            let other = name_of(&seat.join);
            return Some(format!("two processes say they are rank {rank}: {other} and {who}"));
        }
        match self.seats.iter().flatten().next() {
            Some(first) => self.difference(join, &first.join),
            None => self.other_size(join),
        }
    }

    fn other_size(&self, join: &Join) -> Option<String> {
        let (who, of, world_size) = (name_of(join), join.world_size, self.seats.len());
        let differs = of as usize != world_size;
        differs.then(|| format!("{who} says it is one of {of}, rank 0 says {world_size}: start all alike"))
    }

    /// How a process differs from one that has joined, in what must be alike.
    fn difference(&self, join: &Join, first: &Join) -> Option<String> {
        if let Some(text) = self.other_size(join) {
            return Some(text);
        }
        let (who, other) = (name_of(join), name_of(first));
        if join.version != first.version {
            let (own, others) = (&join.version, &first.version);
            return Some(format!(
                "{who} runs version {own} of the program, {other} version {others}: start the same"
            ));
        }
        let of = |join: &Join| -> BTreeMap<String, String> {
            join.settings.iter().map(|setting| (setting.name.clone(), setting.value.clone())).collect()
        };
        let (own, others) = (of(join), of(first));
        let name = own.keys().chain(others.keys()).find(|name| own.get(*name) != others.get(*name))?;
        let text = |settings: &BTreeMap<String, String>| {
            settings.get(name).map_or("not set", String::as_str).to_owned()
        };
        let (own, others) = (text(&own), text(&others));
        Some(format!("{name} is {own} for {who} and {others} for {other}: start all processes alike"))
    }

    /// What a process that has joined is to be told next.
    pub(crate) fn news(&self, knows_members: &mut bool) -> told::What {
        if let Some(fault) = &self.fault {
            return told::What::Fault(fault.clone());
        }
        let seats = || self.seats.iter().flatten();
        if !self.missing().is_empty() {
            return told::What::Alive(Nothing {});
        }
        if !*knows_members {
            *knows_members = true;
            let members = seats().map(|seat| member(&seat.join)).collect();
            return told::What::Members(Members { members, job: self.job.as_str().to_owned() });
        }
        match seats().all(|seat| seat.has_left) {
            true => told::What::Farewell(Nothing {}),
            false => told::What::Alive(Nothing {}),
        }
    }

    /// The first rank that has said nothing for longer than the deadline.
    pub(crate) fn silent(&self, now: Instant, deadline: Duration) -> Option<usize> {
        let is_silent = |seat: &Seat| !seat.has_left && deadline < now.saturating_duration_since(seat.heard);
        self.seats.iter().position(|seat| seat.as_ref().is_some_and(is_silent))
    }

    /// What there is to say of a rank that is lost.
    pub(crate) fn lost(&self, rank: usize, now: Instant, what: &str) -> String {
        let Some(seat) = &self.seats[rank] else { return format!("rank {rank} {what}") };
        let (who, ago) = (name_of(&seat.join), Seconds(now.saturating_duration_since(seat.heard)));
        match &seat.doing {
            Some(doing) => format!("{who} {what}; last seen {ago} ago {doing}"),
            None => format!("{who} {what}; last seen {ago} ago when it joined"),
        }
    }

    /// Gives a member what all have for it, once all have come.
    pub(crate) fn take(&mut self, key: &(String, u64), member: usize) -> Option<Vec<Vec<u8>>> {
        let exchange = self.exchanges.get_mut(key)?;
        if exchange.brought.iter().any(Option::is_none) {
            return None;
        }
        let part = |parcels: &mut Vec<Vec<u8>>| match parcels.len() {
            1 => parcels[0].clone(),
            _ => parcels.get_mut(member).map(std::mem::take).unwrap_or_default(),
        };
        let own = exchange.brought.iter_mut().flatten().map(part).collect();
        exchange.n_due -= 1;
        if exchange.n_due == 0 {
            self.exchanges.remove(key);
        }
        Some(own)
    }
}

/// Whether two ids are of one run of torchrun. Its agents count their own restarts: after one was replaced, or joined later,
/// their counts differ within an attempt.
fn is_same_run(one: &str, other: &str) -> bool {
    let run = |id: &str| id.split_once(AGENT_RESTART).map_or(id.to_owned(), |(run, _)| run.to_owned());
    run(one) == run(other)
}

pub(crate) fn member(join: &Join) -> Member {
    Member { host: join.host.clone(), pid: join.pid, machine: join.machine.clone() }
}

pub(crate) fn name_of(join: &Join) -> String {
    machine::name(join.rank as usize, &member(join))
}

pub(crate) fn ranks(ranks: &[usize]) -> String {
    let list = ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    format!("{} {list}", if ranks.len() == 1 { "rank" } else { "ranks" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(rank: u64, world_size: u64, job: &str) -> Join {
        Join { rank, world_size, job: job.to_owned(), ..Join::default() }
    }

    /// A job of two ranks, of which the first ones have joined.
    fn state(job: &str, n_joined: usize, heard: Instant) -> State {
        let mut state = State::new(2, JobId::Launcher(job.to_owned()));
        for rank in 0..n_joined {
            let join = join(rank as u64, 2, job);
            state.seats[rank] = Some(Seat { join, doing: None, heard, has_left: false });
        }
        state
    }

    #[test]
    fn only_a_process_that_could_replace_a_silent_rank_ends_the_job() {
        let heard = Instant::now();
        let state = state("a", 2, heard);
        let refusal = |silence, join: &Join| state.refusal(join, heard + silence).expect("the rank is there");
        let (short, long) = (Duration::from_millis(10), 2 * RECENT);
        assert!(matches!(refusal(short, &join(1, 2, "a")), Refusal::Newcomer(_)));
        assert!(matches!(refusal(long, &join(1, 2, "a")), Refusal::Replacement(_)));
        for silence in [short, long] {
            assert!(matches!(refusal(silence, &join(1, 2, "b")), Refusal::OtherAttempt(_)));
            assert!(matches!(refusal(silence, &join(1, 3, "a")), Refusal::Newcomer(_)));
            let other_version = Join { version: "2".to_owned(), ..join(1, 2, "a") };
            assert!(matches!(refusal(silence, &other_version), Refusal::Newcomer(_)));
        }
    }

    #[test]
    fn restarts_of_torchruns_agents_may_differ_while_ranks_join() {
        let now = Instant::now();
        let of = |restarts| format!("run{AGENT_RESTART}{restarts}");
        assert_eq!(state(&of(1), 1, now).refusal(&join(1, 2, &of(0)), now), None);
        let other = state(&of(1), 1, now).refusal(&join(1, 2, "other, agent restart 1"), now);
        assert!(matches!(other, Some(Refusal::OtherAttempt(_))));
        // In a job that runs, it is one of the next attempt.
        let next = state(&of(0), 2, now).refusal(&join(1, 2, &of(1)), now);
        assert!(matches!(next, Some(Refusal::OtherAttempt(_))));
    }
}
