use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::process::proto::{
    Entry, Fault, Join, Key, Nothing, Parcels, Rendezvous, Row, Said, Table, Told, fault, said, told,
};
use crate::process::rendezvous::seats::{Exchange, JobId, Refusal, Seat, State, member, ranks};
use crate::process::watchdog::activity::Seconds;
use crate::process::watchdog::timing::{BEAT, Clock, Timing};
use crate::rpc::{Admission, Throttle};

/// The rendezvous server of a job, which runs in rank 0.
///
/// **Locks.** The state's mutex is the only lock, and nothing is awaited while it is held. Methods that change the
/// state notify the waiting tasks after they have unlocked it.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    /// Notified when a process joins or leaves, and when the job ends.
    changed: watch::Sender<()>,
    /// Notified when a value or parcel arrives, and when the job ends.
    brought: watch::Sender<()>,
    /// The counter of processes that were refused without ending the job.
    refused: Arc<Throttle>,
    timing: Timing,
}

/// The minimum time between log lines about refused processes.
const LOG_EVERY: Duration = Duration::from_secs(10);

impl Server {
    /// Creates the server of a job of `world_size` processes.
    pub(crate) fn new(world_size: usize, job: JobId, timing: Timing) -> Self {
        let state = Arc::new(Mutex::new(State::new(world_size, job)));
        let changed = watch::Sender::new(());
        let brought = watch::Sender::new(());
        Self { state, changed, brought, refused: Arc::new(Throttle::new(LOG_EVERY)), timing }
    }

    /// Logs the missing ranks every 10 s until all have joined, and ends the job if they do not join in time. After
    /// that, ends the job if a rank is silent for longer than the deadline.
    pub(crate) async fn watch(self) {
        let started = Instant::now();
        let mut told = 0;
        let mut clock = Clock::start();
        loop {
            tokio::time::sleep(BEAT / 2).await;
            let slept = clock.tick();
            let now = Instant::now();
            let mut state = self.lock();
            let missing = state.missing();
            let waited = now - started;
            if missing.is_empty() {
                // Silence of the others does not count while this process itself was stopped.
                state.seats.iter_mut().flatten().for_each(|seat| seat.heard += slept);
                if let Some(rank) = state.silent(now, self.timing.deadline) {
                    let text = state.lost(rank, now, "has been silent");
                    self.end(state, rank, fault::Kind::Lost, text);
                }
            } else if self.timing.join < waited {
                let text = format!("{} did not join within {:?}", ranks(&missing), self.timing.join);
                self.end(state, missing[0], fault::Kind::Lost, text);
            } else if told < waited.as_secs() / 10 {
                told = waited.as_secs() / 10;
                drop(state);
                let waited = Seconds(waited);
                let at_most = self.timing.join;
                let missing = ranks(&missing);
                tracing::info!(
                    name: "waiting-for-ranks", target: "kiln_comm::job", missing,
                    "waiting for {missing} to join: {waited} of {at_most:?}"
                );
            }
        }
    }

    /// Adds a process to the job. The returned error is sent to this process only; some refusals also end the job.
    async fn join(&self, join: Join) -> Result<usize, Status> {
        let refusal = self.lock().refusal(&join, Instant::now());
        if let Some(Refusal::Replacement(_)) = refusal {
            // If this process was suspended, messages of the rank that appears silent may be unread. During this wait,
            // other tasks read them, before the decision below.
            tokio::time::sleep(2 * BEAT).await;
        }
        let mut state = self.lock();
        let rank = join.rank as usize;
        if let Some(refusal) = state.refusal(&join, Instant::now()) {
            return Err(self.refuse(state, rank, refusal));
        }
        state.seats[rank] = Some(Seat { join, doing: None, heard: Instant::now(), has_left: false });
        if state.missing().is_empty() {
            // The ranks send no heartbeats before all have joined, so their silence counts from now.
            state.seats.iter_mut().flatten().for_each(|seat| seat.heard = Instant::now());
        }
        drop(state);
        self.changed.send_replace(());
        Ok(rank)
    }

    /// Ends the job if the refusal requires it, otherwise logs the refusal. Returns the status for the refused process.
    fn refuse(&self, state: MutexGuard<'_, State>, rank: usize, refusal: Refusal) -> Status {
        let log_once = |reason: &String| {
            self.refused.event(|n_refused| {
                tracing::warn!(
                    name: "process-refused", target: "kiln_comm::job", n_refused, reason,
                    "refused a process, the job continues ({n_refused} so far): {reason}"
                );
            });
        };
        match refusal {
            Refusal::Newcomer(reason) => {
                log_once(&reason);
                Status::already_exists(reason)
            }
            Refusal::OtherAttempt(reason) => {
                log_once(&reason);
                Status::aborted(reason)
            }
            Refusal::Replacement(reason) => {
                self.end(state, rank, fault::Kind::Lost, reason.clone());
                Status::unavailable(reason)
            }
            Refusal::Misfit(reason) => {
                self.end(state, rank, fault::Kind::Failed, reason.clone());
                Status::failed_precondition(reason)
            }
        }
    }

    /// Receives the messages of a process until its connection closes, which ends the job unless the process has left.
    async fn hear(self, rank: usize, mut said: Streaming<Said>) {
        loop {
            let heard = said.message().await;
            let mut state = self.lock();
            let Some(seat) = &mut state.seats[rank] else { return };
            seat.heard = Instant::now();
            match heard.map(|said| said.and_then(|said| said.what)) {
                Ok(Some(said::What::Doing(doing))) => seat.doing = Some(doing),
                Ok(Some(said::What::Leave(Nothing {}))) => {
                    seat.has_left = true;
                    drop(state);
                    self.changed.send_replace(());
                }
                Ok(Some(said::What::Join(_))) => {}
                Ok(None) | Err(_) => {
                    if !seat.has_left {
                        let text = state.lost(rank, Instant::now(), "is gone: its connection has closed");
                        self.end(state, rank, fault::Kind::Lost, text);
                    }
                    return;
                }
            }
        }
    }

    /// Sends heartbeats and news to a process, until the job ends or the connection closes.
    async fn tell(self, tell: mpsc::Sender<Result<Told, Status>>) {
        let mut changed = self.changed.subscribe();
        let mut knows_members = false;
        loop {
            let what = self.lock().news(&mut knows_members);
            let is_last = matches!(what, told::What::Fault(_) | told::What::Farewell(_));
            if tell.send(Ok(Told { what: Some(what) })).await.is_err() || is_last {
                return;
            }
            // Changes during the send are not missed, because the receiver tracks the version it has seen.
            let _ = tokio::time::timeout(BEAT, changed.changed()).await;
        }
    }

    /// Ends the job unless it has ended already. Returns the fault that ended the job, which may be an earlier one.
    fn end(&self, mut state: MutexGuard<'_, State>, rank: usize, kind: fault::Kind, text: String) -> Fault {
        let fault = Fault { rank: rank as u64, kind: kind.into(), what: text };
        let fault = state.fault.get_or_insert(fault).clone();
        drop(state);
        self.changed.send_replace(());
        self.brought.send_replace(());
        fault
    }

    /// Waits until `look` returns a value, or the job ends.
    async fn wait<V>(&self, mut look: impl FnMut(&mut State) -> Option<V>) -> Result<V, Status> {
        let mut changed = self.brought.subscribe();
        loop {
            {
                let mut state = self.lock();
                if let Some(value) = look(&mut state) {
                    return Ok(value);
                }
                if let Some(fault) = &state.fault {
                    return Err(Status::aborted(fault.what.clone()));
                }
            }
            if changed.changed().await.is_err() {
                return Err(Status::aborted("the job is over"));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl Rendezvous for Server {
    type AttendStream = Pin<Box<dyn Stream<Item = Result<Told, Status>> + Send>>;

    async fn attend(
        &self,
        request: Request<Streaming<Said>>,
    ) -> Result<Response<Self::AttendStream>, Status> {
        let admission = request.extensions().get::<Admission>().cloned();
        let mut said = request.into_inner();
        let rank = match said.message().await? {
            Some(Said { what: Some(said::What::Join(join)) }) => self.join(join).await,
            _ => Err(Status::invalid_argument("the first message of a process must be a join request")),
        };
        match (&rank, admission) {
            (Ok(_), Some(admission)) => admission.admit(),
            (Err(_), Some(admission)) => admission.refuse(),
            (_, None) => {}
        }
        let rank = rank?;
        let (tell, told) = mpsc::channel(4);
        tokio::spawn(self.clone().hear(rank, said));
        tokio::spawn(self.clone().tell(tell));
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }

    async fn put(&self, request: Request<Entry>) -> Result<Response<Nothing>, Status> {
        of_a_rank(&request)?;
        let Entry { key, value } = request.into_inner();
        self.lock().values.insert(key, value);
        self.brought.send_replace(());
        Ok(Response::new(Nothing {}))
    }

    async fn get(&self, request: Request<Key>) -> Result<Response<Entry>, Status> {
        of_a_rank(&request)?;
        let Key { key } = request.into_inner();
        let value = self.wait(|state| state.values.get(&key).cloned()).await?;
        Ok(Response::new(Entry { key, value }))
    }

    async fn exchange(&self, request: Request<Parcels>) -> Result<Response<Parcels>, Status> {
        of_a_rank(&request)?;
        let Parcels { group, number, member, n_members, parcels } = request.into_inner();
        let key = (group, number);
        let n_members = n_members as usize;
        let member_idx = member as usize;
        {
            let mut state = self.lock();
            if n_members <= member_idx || state.seats.len() < n_members {
                return Err(Status::invalid_argument("the group has no such member"));
            }
            let exchange = state
                .exchanges
                .entry(key.clone())
                .or_insert_with(|| Exchange { brought: vec![None; n_members], n_due: n_members });
            match exchange.brought.get_mut(member_idx) {
                Some(place) => *place = Some(parcels),
                None => return Err(Status::invalid_argument("the group's members disagree on its size")),
            }
        }
        self.brought.send_replace(());
        let parcels = self.wait(|state| state.take(&key, member_idx)).await?;
        Ok(Response::new(Parcels { group: key.0, number, member, n_members: n_members as u64, parcels }))
    }

    async fn report(&self, request: Request<Fault>) -> Result<Response<Fault>, Status> {
        of_a_rank(&request)?;
        let Fault { rank, kind, what } = request.into_inner();
        let kind = fault::Kind::try_from(kind).unwrap_or(fault::Kind::Failed);
        Ok(Response::new(self.end(self.lock(), rank as usize, kind, what)))
    }

    async fn look(&self, request: Request<Nothing>) -> Result<Response<Table>, Status> {
        of_a_rank(&request)?;
        let now = Instant::now();
        let state = self.lock();
        Ok(Response::new(Table {
            rows: state
                .seats
                .iter()
                .flatten()
                .map(|seat: &Seat| Row {
                    member: Some(member(&seat.join)),
                    doing: seat.doing.clone(),
                    silent_ms: now.saturating_duration_since(seat.heard).as_millis() as u64,
                })
                .collect(),
        }))
    }
}

/// Rejects calls over connections on which no rank has joined; the token alone does not suffice.
fn of_a_rank<T>(request: &Request<T>) -> Result<(), Status> {
    let admission = request.extensions().get::<Admission>();
    if admission.is_some_and(Admission::is_admitted) {
        return Ok(());
    }
    if let Some(admission) = admission {
        admission.refuse();
    }
    Err(Status::failed_precondition("a process must join the job before it makes other calls"))
}
