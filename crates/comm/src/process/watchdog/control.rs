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
use crate::process::watchdog::activity::{Activity, Overdue, Seconds};
use crate::process::watchdog::exit::{end, log_last};
use crate::process::watchdog::timing::{BEAT, Clock, Timing};
use crate::rpc::RpcEndpoint;
use crate::{EXIT_FAILED, EXIT_RETRY};

/// The timeout of requests to rank 0 about a failure. Without a reply in time, this process proceeds anyway.
/// A loaded machine may delay the reply by seconds; a process that ends before counts as lost, not as failed.
const MOMENT: Duration = Duration::from_secs(3);

/// The connection of this process to rank 0, and the watchdog thread.
///
/// **The thread** has its own runtime and waits for the network and the clock only, so it keeps running while the
/// ranks' threads are blocked. Once all processes have joined, it ends this process when the job ends: if rank 0
/// reports it, closes its connection or is silent until the deadline, or if a collective exceeds its own deadline. The
/// thread ends when all processes have left the job.
#[derive(Debug)]
pub(crate) struct Control {
    handle: Handle,
    client: Client,
    commands: mpsc::UnboundedSender<Command>,
    /// The watchdog thread; `None` once this process has left.
    thread: Mutex<Option<thread::JoinHandle<()>>>,
    rank: usize,
    activity: Arc<Activity>,
    /// The processes of the job, by rank.
    members: Vec<Member>,
    job_id: String,
}

#[derive(Debug)]
enum Command {
    /// Ends the job. Rank 0 replies with the fault that is in effect, which may be an earlier one.
    Fail(Fault, std_mpsc::Sender<Fault>),
    /// Leaves the job. The watchdog thread ends when all processes have left.
    Leave,
}

/// The arguments of [`Control::start`].
pub(crate) struct Start {
    pub(crate) join: Join,
    /// The listener of rank 0; `None` on all other ranks.
    pub(crate) listener: Option<std::net::TcpListener>,
    pub(crate) rpc_endpoint: RpcEndpoint,
    pub(crate) timing: Timing,
    pub(crate) activity: Arc<Activity>,
}

impl Control {
    /// Joins the job, and returns when all processes have joined.
    pub(crate) fn start(start: Start) -> Result<Self, JobError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(JobError::Thread)?;
        let handle = runtime.handle().clone();
        let activity = start.activity.clone();
        let rank = start.join.rank as usize;
        let (commands, orders) = mpsc::unbounded_channel();
        let (joined, join) = std_mpsc::channel();
        let thread = thread::Builder::new()
            .name("kiln-job".to_owned())
            .spawn(move || {
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
            })
            .map_err(JobError::Thread)?;
        let (members, job_id, client) = join.recv().map_err(|_| JobError::Refused {
            reason: "the thread that joins the job has panicked".to_owned(),
        })??;
        Ok(Self {
            handle,
            client,
            commands,
            thread: Mutex::new(Some(thread)),
            rank,
            activity,
            members,
            job_id,
        })
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

    /// Formats this process for messages, as `rank 1 (host, pid 42)`.
    pub(crate) fn name(&self) -> String {
        machine::name(self.rank, &self.members[self.rank])
    }

    /// Formats the current activity of this process.
    pub(crate) fn whereabouts(&self) -> String {
        self.activity.doing(Instant::now()).to_string()
    }

    /// Stores a value under a key at rank 0.
    pub(crate) fn put(&self, key: &str, value: Vec<u8>) -> Result<(), String> {
        let entry = Entry { key: key.to_owned(), value };
        self.handle.block_on(self.client.clone().put(entry)).map_err(said_by)?;
        Ok(())
    }

    /// Returns the value stored under a key. Waits for it at most `within`.
    pub(crate) fn get(&self, key: &str, within: Duration) -> Result<Vec<u8>, String> {
        let mut client = self.client.clone();
        let late = format!("no process stored `{key}` within {within:?}");
        let get = async { timeout(within, client.get(Key { key: key.to_owned() })).await };
        Ok(self.handle.block_on(get).map_err(|_| late)?.map_err(said_by)?.into_inner().value)
    }

    /// Exchanges parcels with all members of a group. Returns the parcels for this process, one from each member.
    pub(crate) fn exchange(&self, parcels: Parcels) -> Result<Vec<Vec<u8>>, String> {
        let answer = self.handle.block_on(self.client.clone().exchange(parcels)).map_err(said_by)?;
        Ok(answer.into_inner().parcels)
    }

    /// Reports that this rank has failed, and ends the process. Logs `line` first, because the launcher may kill this
    /// process as soon as the report has ended another process.
    pub(crate) fn fail(&self, what: &str, line: &str) -> ! {
        log_last(line);
        // If the report fails, the other ranks notice the lost connection.
        let status = self.report(what).map_or(EXIT_FAILED, |fault| status_of(&fault));
        end(status, None)
    }

    /// Same as [`Control::fail`], but asks for another attempt: all processes end as if this rank were lost.
    pub(crate) fn retry(&self, what: &str, line: &str) -> ! {
        log_last(line);
        let status = self.report_as(fault::Kind::Lost, what).map_or(EXIT_RETRY, |fault| status_of(&fault));
        end(status, None)
    }

    /// Reports that this rank has failed. Returns the fault that is in effect, which may be an earlier one of another
    /// rank.
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

    /// Leaves the job, and returns when all processes have left.
    pub(crate) fn leave(&self) {
        let _ = self.commands.send(Command::Leave);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A watchdog that panicked has ended as well, so the error is ignored.
            let _ = thread.join();
        }
    }
}

/// Returns the exit status of the processes of a job that ended because of this fault.
fn status_of(fault: &Fault) -> u8 {
    match fault.kind() {
        fault::Kind::Lost => EXIT_RETRY,
        fault::Kind::Failed => EXIT_FAILED,
    }
}

fn said_by(status: tonic::Status) -> String {
    status.message().to_owned()
}

/// The state of the watchdog thread.
struct Watch {
    client: Client,
    say: mpsc::Sender<Said>,
    told: Streaming<Told>,
    activity: Arc<Activity>,
    rank: usize,
    members: Vec<Member>,
    job_id: String,
    timing: Timing,
}

impl Watch {
    async fn join(start: Start) -> Result<Self, JobError> {
        let Start { join, listener, rpc_endpoint, timing, activity } = start;
        if let Some(listener) = listener {
            serve_job(listener, &rpc_endpoint, &join, timing)?;
        }
        let rank = join.rank as usize;
        let Attended { client, say, mut told } = attend(&rpc_endpoint, &join, timing).await?;
        let lost =
            |reason: &str| JobError::Lost { reason: format!("rank 0 at {}: {reason}", rpc_endpoint.address) };
        let Members { members, job } = loop {
            let news = timeout(timing.deadline, told.message())
                .await
                .map_err(|_| lost(&format!("it has been silent for {:?}", timing.deadline)))?;
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
                    return Err(lost("it ended before all processes had joined"));
                }
            }
        };
        Ok(Self { client, say, told, activity, rank, members, job_id: job, timing })
    }

    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Command>) {
        let mut heard = Instant::now();
        let mut clock = Clock::start();
        let mut leaves = false;
        let mut has_failed = false;
        let mut beat = tokio::time::interval(BEAT / 2);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Messages of rank 0 come first, as they may end the job.
                biased;
                told = self.told.message() => {
                    heard = Instant::now();
                    match told.map(|told| told.and_then(|told| told.what)) {
                        // This process has reported a fault itself, and ends with its own status.
                        Ok(Some(told::What::Fault(_))) if has_failed => {}
                        Ok(Some(told::What::Fault(fault))) => self.over(&fault),
                        Ok(Some(told::What::Farewell(_))) => return,
                        Ok(Some(told::What::Members(_) | told::What::Alive(_))) => {}
                        // Rank 0 has ended, and this process is about to end as well.
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
                    self.activity.leave_out(slept);
                    let now = Instant::now();
                    let what = match leaves {
                        true => said::What::Leave(Nothing {}),
                        false => said::What::Doing(self.activity.doing(now)),
                    };
                    // If the queue is full, the connection is stuck and rank 0 will notice the silence.
                    let _ = self.say.try_send(Said { what: Some(what) });
                    if self.timing.deadline < now.saturating_duration_since(heard) {
                        self.first_is_lost("has been silent", heard);
                    }
                    if let Some(overdue) = self.activity.overdue(now) {
                        self.overdue(overdue).await;
                    }
                }
            }
        }
    }

    fn name(&self, rank: usize) -> String {
        machine::name(rank, &self.members[rank])
    }

    /// Ends the process because rank 0 reports the end of the job. Only rank 0 logs the cause; a failing rank has
    /// logged its own already.
    fn over(&self, fault: &Fault) -> ! {
        let line = format!("the job is over: {}", fault.what);
        end(status_of(fault), (self.rank == 0 && fault.rank != 0).then_some(&line))
    }

    fn first_is_lost(&self, what: &str, heard: Instant) -> ! {
        let own = self.name(self.rank);
        let first = self.name(0);
        let ago = Seconds(heard.elapsed());
        let doing = self.activity.doing(Instant::now());
        let line =
            format!("{own}: the job is over: {first} {what}; last message {ago} ago; this rank is {doing}");
        end(EXIT_RETRY, Some(&line))
    }

    /// Ends the job because a collective has exceeded its deadline. Logs the missing ranks and their activities.
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
        // If rank 0 did not answer, a report would not reach it either.
        if table.is_some() {
            let fault = Fault { rank: self.rank as u64, kind: fault::Kind::Lost.into(), what };
            let _ = timeout(MOMENT / 2, self.client.report(fault)).await;
        }
        end(EXIT_RETRY, Some(&line))
    }
}

/// Formats the ranks that are missing from the collective, with their last known activities. If none is missing,
/// formats all ranks that take part in the collective.
fn suspects(rows: &[Row], ranks: &[usize], meeting: &Meeting) -> String {
    let waits = |row: &Row| {
        let meetings = row.doing.iter().flat_map(|doing| &doing.meetings);
        meetings.into_iter().any(|other| other.number == meeting.number && other.group == meeting.group)
    };
    // A rank that has not sent several of its heartbeats may have been lost after it had joined the collective.
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
