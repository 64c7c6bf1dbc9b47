use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, timeout};
use tonic::Streaming;

use crate::JobError;
use crate::cause::Meeting;
use crate::process::machine;
use crate::process::proto::{
    Entry, Fault, Join, Key, Member, Members, Nothing, Parcels, Row, Said, Told, fault, said, told,
};
use crate::process::rendezvous::channel::Client;
use crate::process::rendezvous::joining::{Attended, attend, serve_job};
use crate::process::watchdog::exit::end;
use crate::process::watchdog::place::{Overdue, Place, Seconds};
use crate::process::watchdog::timing::{BEAT, Clock, Timing};
use crate::rpc::{RpcEndpoint, log};
use crate::{EXIT_FAILED, EXIT_RETRY};

/// How long is waited for an answer whose lack is no news.
const MOMENT: Duration = Duration::from_secs(1);

/// This process's way to the first one, and the thread that watches over it.
///
/// **The thread** owns a runtime of its own and never waits for anything but the network and the clock, so that it
/// goes on whatever the ranks' threads wait for. Once all have joined, it ends the process when the job is over:
/// when the first process says so or is gone, or has said nothing until the deadline, or when a collective has
/// lasted longer than its own. It ends when this process has left.
#[derive(Debug)]
pub(crate) struct Control {
    handle: Handle,
    client: Client,
    commands: mpsc::UnboundedSender<Command>,
    /// Until this process has left.
    thread: Mutex<Option<thread::JoinHandle<()>>>,
    rank: usize,
    place: Arc<Place>,
    /// By rank.
    members: Vec<Member>,
    job_id: String,
}

#[derive(Debug)]
enum Command {
    /// Ends the job; the reason that stands comes back from the first process.
    Fail(Fault, std_mpsc::Sender<Fault>),
    /// Leaves; the thread ends when all have.
    Leave,
}

/// How a process joins.
pub(crate) struct Start {
    pub(crate) join: Join,
    /// On the first rank.
    pub(crate) listener: Option<std::net::TcpListener>,
    pub(crate) rpc_endpoint: RpcEndpoint,
    pub(crate) timing: Timing,
    pub(crate) place: Arc<Place>,
}

impl Control {
    /// Joins: returns when all processes have.
    pub(crate) fn start(start: Start) -> Result<Self, JobError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(JobError::Thread)?;
        let (handle, place, rank) = (runtime.handle().clone(), start.place.clone(), start.join.rank as usize);
        let (commands, orders) = mpsc::unbounded_channel();
        let (joined, join) = std_mpsc::channel();
        let body = move || {
            runtime.block_on(async {
                let watch = match Watch::join(start).await {
                    Ok(watch) => watch,
                    Err(error) => return drop(joined.send(Err(error))),
                };
                let known = (watch.members.clone(), watch.job_id.clone(), watch.client.clone());
                if joined.send(Ok(known)).is_ok() {
                    watch.run(orders).await;
                }
            });
        };
        let thread =
            thread::Builder::new().name("kiln-job".to_owned()).spawn(body).map_err(JobError::Thread)?;
        let gone = |_| JobError::Refused { reason: "the thread that joins the job has ended".to_owned() };
        let (members, job_id, client) = join.recv().map_err(gone)??;
        Ok(Self { handle, client, commands, thread: Mutex::new(Some(thread)), rank, place, members, job_id })
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn job_id(&self) -> &str {
        &self.job_id
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// This process as messages name it.
    pub(crate) fn name(&self) -> String {
        machine::name(self.rank, &self.members[self.rank])
    }

    /// What this process is doing.
    pub(crate) fn whereabouts(&self) -> String {
        self.place.doing(Instant::now()).to_string()
    }

    /// Keeps a value for all processes.
    pub(crate) fn put(&self, key: &str, value: Vec<u8>) -> Result<(), String> {
        let entry = Entry { key: key.to_owned(), value };
        self.handle.block_on(self.client.clone().put(entry)).map_err(said_by)?;
        Ok(())
    }

    /// The value that some process keeps or will keep there, within so long.
    pub(crate) fn get(&self, key: &str, within: Duration) -> Result<Vec<u8>, String> {
        let (mut client, late) = (self.client.clone(), format!("nobody has put `{key}` within {within:?}"));
        let get = async { timeout(within, client.get(Key { key: key.to_owned() })).await };
        Ok(self.handle.block_on(get).map_err(|_| late)?.map_err(said_by)?.into_inner().value)
    }

    /// Gives each member of a group what all have for it.
    pub(crate) fn exchange(&self, parcels: Parcels) -> Result<Vec<Vec<u8>>, String> {
        let answer = self.handle.block_on(self.client.clone().exchange(parcels)).map_err(said_by)?;
        Ok(answer.into_inner().parcels)
    }

    /// Tells all that this rank has failed, and ends the process. `line` is what this one says of it: before the others
    /// hear of it, whose end may be that of this process, too.
    pub(crate) fn fail(&self, what: &str, line: &str) -> ! {
        log(line);
        // That nobody answers is what the others will find out by themselves.
        let status = self.report(what).map_or(EXIT_FAILED, |fault| status_of(&fault));
        end(status, None)
    }

    /// The same for a failure that another attempt may not meet: all end as if this rank were lost.
    pub(crate) fn retry(&self, what: &str, line: &str) -> ! {
        log(line);
        let status = self.report_as(fault::Kind::Lost, what).map_or(EXIT_RETRY, |fault| status_of(&fault));
        end(status, None)
    }

    /// Tells all that this rank has failed; why the job is over, which may be because another was lost before.
    pub(crate) fn report(&self, what: &str) -> Option<Fault> {
        self.report_as(fault::Kind::Failed, what)
    }

    fn report_as(&self, kind: fault::Kind, what: &str) -> Option<Fault> {
        let text = format!("{} {what} {}", self.name(), self.whereabouts());
        let fault = Fault { rank: self.rank as u64, kind: kind.into(), what: text };
        let (heard, hear) = std_mpsc::channel();
        self.commands.send(Command::Fail(fault, heard)).ok()?;
        hear.recv_timeout(MOMENT).ok()
    }

    /// Leaves the job; returns when all have.
    pub(crate) fn leave(&self) {
        let _ = self.commands.send(Command::Leave);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A thread that has panicked watches no longer, which is as good.
            let _ = thread.join();
        }
    }
}

/// What a process ends with whose job is over for this.
fn status_of(fault: &Fault) -> u8 {
    match fault.kind() {
        fault::Kind::Lost => EXIT_RETRY,
        fault::Kind::Failed => EXIT_FAILED,
    }
}

fn said_by(status: tonic::Status) -> String {
    status.message().to_owned()
}

/// What the thread knows.
struct Watch {
    client: Client,
    say: mpsc::Sender<Said>,
    told: Streaming<Told>,
    place: Arc<Place>,
    rank: usize,
    members: Vec<Member>,
    job_id: String,
    timing: Timing,
}

impl Watch {
    async fn join(start: Start) -> Result<Self, JobError> {
        let Start { join, listener, rpc_endpoint, timing, place } = start;
        if let Some(listener) = listener {
            serve_job(listener, &rpc_endpoint, &join, timing)?;
        }
        let rank = join.rank as usize;
        let Attended { client, say, mut told } = attend(&rpc_endpoint, &join, timing).await?;
        let lost =
            |reason: &str| JobError::Lost { reason: format!("rank 0 at {}: {reason}", rpc_endpoint.address) };
        let silent = |_| lost(&format!("it has been silent for {:?}", timing.deadline));
        let Members { members, job } = loop {
            let news = timeout(timing.deadline, told.message()).await.map_err(silent)?;
            match news.map(|told| told.and_then(|told| told.what)) {
                Ok(Some(told::What::Members(members))) => break members,
                Ok(Some(told::What::Alive(_))) => {}
                Ok(Some(told::What::Fault(fault))) => {
                    let reason = fault.what.clone();
                    return Err(match fault.kind() {
                        fault::Kind::Lost => JobError::Lost { reason },
                        fault::Kind::Failed => JobError::Refused { reason },
                    });
                }
                Ok(Some(told::What::Farewell(_)) | None) | Err(_) => {
                    return Err(lost("it ended before all had joined"));
                }
            }
        };
        Ok(Self { client, say, told, place, rank, members, job_id: job, timing })
    }

    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Command>) {
        let (mut heard, mut clock) = (Instant::now(), Clock::start());
        let (mut leaves, mut has_failed) = (false, false);
        let mut beat = tokio::time::interval(BEAT / 2);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // The end comes before what this process has to say.
                biased;
                told = self.told.message() => {
                    heard = Instant::now();
                    match told.map(|told| told.and_then(|told| told.what)) {
                        // Who has said so ends by itself, with a status of its own.
                        Ok(Some(told::What::Fault(_))) if has_failed => {}
                        Ok(Some(told::What::Fault(fault))) => self.over(&fault),
                        Ok(Some(told::What::Farewell(_))) => return,
                        Ok(Some(told::What::Members(_) | told::What::Alive(_))) => {}
                        // Rank 0 has ended; where this one was about to, so have all.
                        Ok(None) | Err(_) if leaves || has_failed => return,
                        Ok(None) | Err(_) => self.first_is_lost("is gone: its connection has closed", heard),
                    }
                }
                order = orders.recv() => match order {
                    Some(Command::Fail(fault, done)) => {
                        has_failed = true;
                        if let Ok(Ok(stands)) = timeout(MOMENT, self.client.report(fault)).await {
                            let _ = done.send(stands.into_inner());
                        }
                    }
                    Some(Command::Leave) => {
                        leaves = true;
                        beat.reset_immediately();
                    }
                    None => return,
                },
                _ = beat.tick() => {
                    let slept = clock.tick();
                    heard += slept;
                    self.place.leave_out(slept);
                    let now = Instant::now();
                    let what = match leaves {
                        true => said::What::Leave(Nothing {}),
                        false => said::What::Doing(self.place.doing(now)),
                    };
                    // A full queue is a connection that takes nothing: the other side will see to it.
                    let _ = self.say.try_send(Said { what: Some(what) });
                    if self.timing.deadline < now.saturating_duration_since(heard) {
                        self.first_is_lost("has been silent", heard);
                    }
                    if let Some(overdue) = self.place.overdue(now) {
                        self.overdue(overdue).await;
                    }
                }
            }
        }
    }

    fn name(&self, rank: usize) -> String {
        machine::name(rank, &self.members[rank])
    }

    /// The first process says that the job is over. It alone repeats why; who is the reason has said so itself.
    fn over(&self, fault: &Fault) -> ! {
        let line = format!("the job is over: {}", fault.what);
        end(status_of(fault), (self.rank == 0 && fault.rank != 0).then_some(&line))
    }

    fn first_is_lost(&self, what: &str, heard: Instant) -> ! {
        let (own, first) = (self.name(self.rank), self.name(0));
        let (ago, doing) = (Seconds(heard.elapsed()), self.place.doing(Instant::now()));
        let line =
            format!("{own}: the job is over: {first} {what}; last heard of {ago} ago; this rank is {doing}");
        end(EXIT_RETRY, Some(&line))
    }

    /// A collective has lasted longer than its deadline: says who has not come to it, and what they do instead.
    async fn overdue(&mut self, overdue: Overdue) -> ! {
        let Overdue { meeting, ranks, waited } = overdue;
        let own = self.name(self.rank);
        let mut what = format!("{own} has waited in {meeting} for {}", Seconds(waited));
        let table = timeout(MOMENT, self.client.look(Nothing {})).await.ok().and_then(Result::ok);
        what += &match &table {
            Some(table) => suspects(&table.get_ref().rows, &ranks, &meeting),
            None => format!("; {} does not answer", self.name(0)),
        };
        let line = format!("the job is over: {what}");
        // Who does not answer hears nothing, either.
        if table.is_some() {
            let fault = Fault { rank: self.rank as u64, kind: fault::Kind::Lost.into(), what };
            let _ = timeout(MOMENT / 2, self.client.report(fault)).await;
        }
        end(EXIT_RETRY, Some(&line))
    }
}

/// Of the collective's ranks those that are not in it, with what they were last seen doing; all, if every one is there.
fn suspects(rows: &[Row], ranks: &[usize], meeting: &Meeting) -> String {
    let waits = |row: &Row| {
        let meetings = row.doing.iter().flat_map(|doing| &doing.meetings);
        meetings.into_iter().any(|other| other.number == meeting.number && other.group == meeting.group)
    };
    // Who has said nothing for several beats may have been there and be gone.
    let is_suspect = |row: &Row| !waits(row) || 4 * BEAT < Duration::from_millis(row.silent_ms);
    let members = || ranks.iter().filter_map(|rank| Some((*rank, rows.get(*rank)?)));
    let is_missed = members().any(|(_, row)| is_suspect(row));
    let mut text = String::new();
    for (rank, row) in members().filter(|(_, row)| !is_missed || is_suspect(row)) {
        let name = row.member.as_ref().map_or(format!("rank {rank}"), |member| machine::name(rank, member));
        let doing = row.doing.as_ref().map_or("when it joined".to_owned(), |doing| doing.to_string());
        text += &format!("; {name} was last seen {} ago {doing}", Seconds::of_ms(row.silent_ms));
    }
    text
}
