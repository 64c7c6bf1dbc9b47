//! The state of a job at rank 0, and the decision which processes may join.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::process::launch::AGENT_RESTART;
use crate::process::machine;
use crate::process::proto::{Doing, Fault, Join, Member, Members, Nothing, told};
use crate::process::watchdog::activity::Seconds;
use crate::process::watchdog::timing::RECENT;

/// The state of the job's processes at rank 0.
#[derive(Debug)]
pub(crate) struct State {
    job: JobId,
    /// The processes that have joined, by rank.
    pub(crate) seats: Vec<Option<Seat>>,
    /// The reason why the job has ended. Set once.
    pub(crate) fault: Option<Fault>,
    pub(crate) values: HashMap<String, Vec<u8>>,
    /// The exchanges in progress, by group and number.
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

/// An exchange of parcels between the members of a group.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The parcels received from each member, by rank of the group.
    pub(crate) brought: Vec<Option<Vec<Vec<u8>>>>,
    /// The number of members that have not received their parcels.
    pub(crate) n_due: usize,
}

/// The id of this attempt at the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobId {
    /// The launcher's id. A process with another one belongs to another attempt.
    Launcher(String),
    /// A random id of rank 0. Other processes learn it when they join.
    Drawn(String),
}

/// The reason why a process may not join. The variants differ in what happens to the process and the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The process duplicates a live rank or is not a rank of this job: only the process ends.
    Newcomer(String),
    /// The process belongs to another attempt at the job: it retries until rank 0 of that attempt serves here.
    OtherAttempt(String),
    /// The process replaces a silent rank: the job ends, and should be started again.
    Replacement(String),
    /// The process was started with different settings: the job fails before it has begun.
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
    /// Creates the state of a job of `world_size` processes, none of which has joined.
    pub(crate) fn new(world_size: usize, job: JobId) -> Self {
        let seats = (0..world_size).map(|_| None).collect();
        Self { job, seats, fault: None, values: HashMap::new(), exchanges: BTreeMap::new() }
    }

    pub(crate) fn missing(&self) -> Vec<usize> {
        (0..self.seats.len()).filter(|rank| self.seats[*rank].is_none()).collect()
    }

    /// Returns the reason why a process may not join, or `None` if it may.
    pub(crate) fn refusal(&self, join: &Join, now: Instant) -> Option<Refusal> {
        let rank = join.rank as usize;
        let world_size = self.seats.len();
        let who = name_of(join);
        let is_complete = self.missing().is_empty();
        let job = self.job.as_str();
        match (&self.fault, self.seats.get(rank)) {
            (_, None) => {
                let of = join.world_size;
                let reason = format!(
                    "{who} has world size {of}, rank 0 has {world_size}: start all processes with the same one"
                );
                Some(Refusal::Newcomer(reason))
            }
            (Some(fault), _) if is_complete => {
                Some(Refusal::OtherAttempt(format!("job {job} is ending, {who} has to wait: {}", fault.what)))
            }
            (_, Some(Some(seat))) if is_complete => Some(self.refusal_of_second(seat, join, now)),
            _ if self.is_of_another_attempt(join, is_same_run) => {
                let other = &join.job;
                Some(Refusal::OtherAttempt(format!("{who} belongs to job {other}, this rank 0 to job {job}")))
            }
            _ => self.misfit(join).map(Refusal::Misfit),
        }
    }

    /// Returns the reason why a process may not join a running job, in which its rank exists already.
    fn refusal_of_second(&self, seat: &Seat, join: &Join, now: Instant) -> Refusal {
        let who = name_of(join);
        let other = name_of(&seat.join);
        let job = self.job.as_str();
        let silence = now.saturating_duration_since(seat.heard);
        let ago = Seconds(silence);
        let is_there = format!("{other} of job {job} was heard from {ago} ago");
        if self.is_of_another_attempt(join, str::eq) {
            let attempt = &join.job;
            return Refusal::OtherAttempt(format!(
                "{is_there}; {who} belongs to job {attempt} and has to wait for the end of job {job}"
            ));
        }
        // A process with other settings cannot replace a rank of this job.
        if let Some(difference) = self.difference(join, &seat.join) {
            return Refusal::Newcomer(format!("{is_there}; {who} is not a rank of this job: {difference}"));
        }
        if RECENT < silence {
            let rank = join.rank;
            return Refusal::Replacement(format!(
                "two processes claim rank {rank}: {other}, last heard from {ago} ago, and {who}, which replaces it"
            ));
        }
        Refusal::Newcomer(format!(
            "{other} of job {job} is alive, heard from {ago} ago; {who} is a duplicate: start each rank once"
        ))
    }

    fn is_of_another_attempt(&self, join: &Join, is_same: fn(&str, &str) -> bool) -> bool {
        matches!(&self.job, JobId::Launcher(id) if !join.job.is_empty() && !is_same(id, &join.job))
    }

    /// Compares a process with those that have joined. Returns the difference if it may not join them.
    fn misfit(&self, join: &Join) -> Option<String> {
        let rank = join.rank as usize;
        let who = name_of(join);
        if let Some(seat) = &self.seats[rank] {
            let other = name_of(&seat.join);
            return Some(format!("two processes claim rank {rank}: {other} and {who}; start each rank once"));
        }
        match self.seats.iter().flatten().next() {
            Some(first) => self.difference(join, &first.join),
            None => self.other_size(join),
        }
    }

    fn other_size(&self, join: &Join) -> Option<String> {
        let who = name_of(join);
        let of = join.world_size;
        let world_size = self.seats.len();
        let differs = of as usize != world_size;
        differs.then(|| {
            format!(
                "{who} has world size {of}, rank 0 has {world_size}: start all processes with the same one"
            )
        })
    }

    /// Returns the first difference in world size, version or settings between a process and one that has joined.
    fn difference(&self, join: &Join, first: &Join) -> Option<String> {
        if let Some(text) = self.other_size(join) {
            return Some(text);
        }
        let who = name_of(join);
        let other = name_of(first);
        if join.version != first.version {
            let own = &join.version;
            let others = &first.version;
            return Some(format!(
                "{who} runs version {own} of the program, {other} version {others}: start the same version"
            ));
        }
        let of = |join: &Join| -> BTreeMap<String, String> {
            join.settings.iter().map(|setting| (setting.name.clone(), setting.value.clone())).collect()
        };
        let own = of(join);
        let others = of(first);
        let name = own.keys().chain(others.keys()).find(|name| own.get(*name) != others.get(*name))?;
        let text = |settings: &BTreeMap<String, String>| {
            settings.get(name).map_or("not set", String::as_str).to_owned()
        };
        let own = text(&own);
        let others = text(&others);
        let what = name.strip_prefix("the ").unwrap_or(name);
        Some(format!(
            "{name} is {own} for {who} and {others} for {other}: start all processes with the same {what}"
        ))
    }

    /// Returns the next message for a process that has joined. `knows_members` tells whether the process was sent the
    /// list of members; this sets it when it returns the list.
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

    /// Returns the first rank that has been silent for longer than the deadline.
    pub(crate) fn silent(&self, now: Instant, deadline: Duration) -> Option<usize> {
        self.seats.iter().position(|seat| {
            seat.as_ref().is_some_and(|seat: &Seat| {
                !seat.has_left && deadline < now.saturating_duration_since(seat.heard)
            })
        })
    }

    /// Formats the loss of a rank, with its last known activity. `what` is the predicate, such as `has been silent`.
    pub(crate) fn lost(&self, rank: usize, now: Instant, what: &str) -> String {
        let Some(seat) = &self.seats[rank] else { return format!("rank {rank} {what}") };
        let who = name_of(&seat.join);
        let ago = Seconds(now.saturating_duration_since(seat.heard));
        match &seat.doing {
            Some(doing) => format!("{who} {what}; last seen {ago} ago {doing}"),
            None => format!("{who} {what}; last seen {ago} ago when it joined"),
        }
    }

    /// Returns the parcels for a member, or `None` until all members have contributed. The last member's call removes
    /// the exchange.
    pub(crate) fn take(&mut self, key: &(String, u64), member: usize) -> Option<Vec<Vec<u8>>> {
        let exchange = self.exchanges.get_mut(key)?;
        if exchange.brought.iter().any(Option::is_none) {
            return None;
        }
        let own = exchange
            .brought
            .iter_mut()
            .flatten()
            .map(|parcels: &mut Vec<Vec<u8>>| match parcels.len() {
                1 => parcels[0].clone(),
                _ => parcels.get_mut(member).map(std::mem::take).unwrap_or_default(),
            })
            .collect();
        exchange.n_due -= 1;
        if exchange.n_due == 0 {
            self.exchanges.remove(key);
        }
        Some(own)
    }
}

/// Returns true if two ids belong to one run of torchrun. Each agent counts its own restarts, so the counts differ
/// within an attempt if an agent was replaced or joined later.
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

    /// Returns a job of two ranks, of which the first `n_joined` have joined.
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
        let refusal = |silence, join: &Join| {
            state.refusal(join, heard + silence).expect("the process should be refused")
        };
        let short = Duration::from_millis(10);
        let long = 2 * RECENT;
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
    fn names_with_an_article_have_one_in_messages() {
        let of = |value: &str| {
            let setting =
                crate::process::proto::Setting { name: "the model".to_owned(), value: value.to_owned() };
            Join { settings: vec![setting], ..join(1, 2, "a") }
        };
        let text = state("a", 0, Instant::now()).difference(&of("b"), &of("c"));
        let text = text.expect("the settings should differ");
        assert!(text.starts_with("the model is b for "), "{text}");
        assert!(text.ends_with(": start all processes with the same model"), "{text}");
    }

    #[test]
    fn restart_counts_of_torchrun_agents_may_differ_while_ranks_join() {
        let now = Instant::now();
        let of = |restarts| format!("run{AGENT_RESTART}{restarts}");
        assert_eq!(state(&of(1), 1, now).refusal(&join(1, 2, &of(0)), now), None);
        let other = state(&of(1), 1, now).refusal(&join(1, 2, "other, agent restart 1"), now);
        assert!(matches!(other, Some(Refusal::OtherAttempt(_))));
        // Once all ranks have joined, another restart count means the next attempt.
        let next = state(&of(0), 2, now).refusal(&join(1, 2, &of(1)), now);
        assert!(matches!(next, Some(Refusal::OtherAttempt(_))));
    }
}
