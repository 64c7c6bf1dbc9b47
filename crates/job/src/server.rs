use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::exit::say;
use crate::place::Seconds;
use crate::proto::{
    Doing, Entry, Fault, Join, Key, Member, Members, Nothing, Parcels, Rendezvous, Row, Said, Table, Told,
    fault, said, told,
};
use crate::timing::{BEAT, Clock, Timing};

/// Where the processes of a job meet: in the first of them.
///
/// **Locks.** The state's mutex is the only one, and nothing is awaited while it is held. Whoever changes the
/// state tells all who wait for a change after it has been unlocked.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    /// Processes join and leave, the job ends.
    changed: watch::Sender<()>,
    /// Values and parcels come.
    brought: watch::Sender<()>,
    timing: Timing,
}

#[derive(Debug)]
struct State {
    /// By rank.
    seats: Vec<Option<Seat>>,
    /// Why the job is over. Set once.
    fault: Option<Fault>,
    values: HashMap<String, Vec<u8>>,
    /// By group and number.
    exchanges: BTreeMap<(String, u64), Exchange>,
}

/// A process that has joined.
#[derive(Debug)]
struct Seat {
    join: Join,
    doing: Option<Doing>,
    heard: Instant,
    has_left: bool,
}

/// What the members of a group have for each other.
#[derive(Debug)]
struct Exchange {
    /// By rank of the group.
    brought: Vec<Option<Vec<Vec<u8>>>>,
    /// Members that have not been given their part.
    n_due: usize,
}

impl Server {
    /// For a job of so many processes.
    pub(crate) fn new(world_size: usize, timing: Timing) -> Self {
        let seats = (0..world_size).map(|_| None).collect();
        let state = State { seats, fault: None, values: HashMap::new(), exchanges: BTreeMap::new() };
        let (changed, brought) = (watch::Sender::new(()), watch::Sender::new(()));
        Self { state: Arc::new(Mutex::new(state)), changed, brought, timing }
    }

    /// Says every 10 s who has not joined, until all have or the time for it is up; then looks for ranks that have
    /// fallen silent.
    pub(crate) async fn watch(self) {
        let (started, mut told, mut clock) = (Instant::now(), 0, Clock::start());
        loop {
            tokio::time::sleep(BEAT / 2).await;
            let slept = clock.tick();
            let (now, mut state) = (Instant::now(), self.lock());
            let missing = state.missing();
            let waited = now - started;
            if missing.is_empty() {
                // Where this process itself was stopped, it is not the others that were silent.
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
                let (waited, at_most) = (Seconds(waited), self.timing.join);
                say(&format!("waiting for {} to join: {waited} of {at_most:?}", ranks(&missing)));
            }
        }
    }

    /// Takes a process in; the error is for it alone, the fault that it is for all.
    fn join(&self, join: Join) -> Result<usize, Box<Status>> {
        let mut state = self.lock();
        let (rank, world_size) = (join.rank as usize, state.seats.len());
        if let Some(reason) = state.contradiction(&join) {
            if rank < world_size {
                // A process that comes late was started in the place of one that is lost, as it will turn out.
                let is_complete = state.missing().is_empty();
                let kind = if is_complete { fault::Kind::Lost } else { fault::Kind::Failed };
                self.end(state, rank, kind, reason.clone());
            }
            return Err(Box::new(Status::failed_precondition(reason)));
        }
        state.seats[rank] = Some(Seat { join, doing: None, heard: Instant::now(), has_left: false });
        if state.missing().is_empty() {
            // They say nothing before they know that all are there.
            state.seats.iter_mut().flatten().for_each(|seat| seat.heard = Instant::now());
        }
        drop(state);
        self.changed.send_replace(());
        Ok(rank)
    }

    /// Hears what a process says until it has left or its connection is gone.
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

    /// Tells a process of what it has to know, until the job is over or the process gone.
    async fn tell(self, tell: mpsc::Sender<Result<Told, Status>>) {
        let mut changed = self.changed.subscribe();
        let mut knows_members = false;
        loop {
            let what = self.lock().news(&mut knows_members);
            let is_last = matches!(what, told::What::Fault(_) | told::What::Farewell(_));
            if tell.send(Ok(Told { what: Some(what) })).await.is_err() || is_last {
                return;
            }
            // Changes that come while it is being told are not missed: the receiver counts them.
            let _ = tokio::time::timeout(BEAT, changed.changed()).await;
        }
    }

    /// Ends the job, unless it is over.
    fn end(&self, mut state: MutexGuard<'_, State>, rank: usize, kind: fault::Kind, text: String) -> Fault {
        let fault = Fault { rank: rank as u64, kind: kind.into(), what: text };
        let fault = state.fault.get_or_insert(fault).clone();
        drop(state);
        self.changed.send_replace(());
        self.brought.send_replace(());
        fault
    }

    /// Waits until `look` finds something in the state, or the job is over.
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

impl State {
    fn missing(&self) -> Vec<usize> {
        (0..self.seats.len()).filter(|rank| self.seats[*rank].is_none()).collect()
    }

    /// What is wrong with a process that wants to join.
    fn contradiction(&self, join: &Join) -> Option<String> {
        let (rank, world_size, who) = (join.rank as usize, self.seats.len(), name_of(join));
        if join.world_size as usize != world_size || world_size <= rank {
            let of = join.world_size;
            return Some(format!("{who} says it is one of {of}, rank 0 says {world_size}: start all alike"));
        }
        if let Some(seat) = &self.seats[rank] {
            let other = name_of(&seat.join);
            return Some(format!("two processes say they are rank {rank}: {other} and {who}"));
        }
        let first = &self.seats.iter().flatten().next()?.join;
        let other = name_of(first);
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
    fn news(&self, knows_members: &mut bool) -> told::What {
        if let Some(fault) = &self.fault {
            return told::What::Fault(fault.clone());
        }
        let seats = || self.seats.iter().flatten();
        if !self.missing().is_empty() {
            return told::What::Alive(Nothing {});
        }
        if !*knows_members {
            *knows_members = true;
            return told::What::Members(Members {
                members: seats().map(|seat| member(&seat.join)).collect(),
            });
        }
        match seats().all(|seat| seat.has_left) {
            true => told::What::Farewell(Nothing {}),
            false => told::What::Alive(Nothing {}),
        }
    }

    /// The first rank that has said nothing for longer than the deadline.
    fn silent(&self, now: Instant, deadline: Duration) -> Option<usize> {
        let is_silent = |seat: &Seat| !seat.has_left && deadline < now.saturating_duration_since(seat.heard);
        self.seats.iter().position(|seat| seat.as_ref().is_some_and(is_silent))
    }

    /// What there is to say of a rank that is lost.
    fn lost(&self, rank: usize, now: Instant, what: &str) -> String {
        let Some(seat) = &self.seats[rank] else { return format!("rank {rank} {what}") };
        let (who, ago) = (name_of(&seat.join), Seconds(now.saturating_duration_since(seat.heard)));
        match &seat.doing {
            Some(doing) => format!("{who} {what}; last seen {ago} ago {doing}"),
            None => format!("{who} {what}; last seen {ago} ago when it joined"),
        }
    }

    /// Gives a member what all have for it, once all have come.
    fn take(&mut self, key: &(String, u64), member: usize) -> Option<Vec<Vec<u8>>> {
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

#[tonic::async_trait]
impl Rendezvous for Server {
    type AttendStream = Pin<Box<dyn Stream<Item = Result<Told, Status>> + Send>>;

    async fn attend(
        &self,
        request: Request<Streaming<Said>>,
    ) -> Result<Response<Self::AttendStream>, Status> {
        let mut said = request.into_inner();
        let Some(Said { what: Some(said::What::Join(join)) }) = said.message().await? else {
            return Err(Status::invalid_argument("a process joins before it says anything else"));
        };
        let rank = self.join(join).map_err(|status| *status)?;
        let (tell, told) = mpsc::channel(4);
        tokio::spawn(self.clone().hear(rank, said));
        tokio::spawn(self.clone().tell(tell));
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }

    async fn put(&self, request: Request<Entry>) -> Result<Response<Nothing>, Status> {
        let Entry { key, value } = request.into_inner();
        self.lock().values.insert(key, value);
        self.brought.send_replace(());
        Ok(Response::new(Nothing {}))
    }

    async fn get(&self, request: Request<Key>) -> Result<Response<Entry>, Status> {
        let Key { key } = request.into_inner();
        let value = self.wait(|state| state.values.get(&key).cloned()).await?;
        Ok(Response::new(Entry { key, value }))
    }

    async fn exchange(&self, request: Request<Parcels>) -> Result<Response<Parcels>, Status> {
        let Parcels { group, number, member, n_members, parcels } = request.into_inner();
        let (key, n_members, member_idx) = ((group, number), n_members as usize, member as usize);
        {
            let mut state = self.lock();
            if n_members <= member_idx || state.seats.len() < n_members {
                return Err(Status::invalid_argument("no such member"));
            }
            let new = || Exchange { brought: vec![None; n_members], n_due: n_members };
            let exchange = state.exchanges.entry(key.clone()).or_insert_with(new);
            match exchange.brought.get_mut(member_idx) {
                Some(place) => *place = Some(parcels),
                None => return Err(Status::invalid_argument("the members are of different groups")),
            }
        }
        self.brought.send_replace(());
        let parcels = self.wait(|state| state.take(&key, member_idx)).await?;
        Ok(Response::new(Parcels { group: key.0, number, member, n_members: n_members as u64, parcels }))
    }

    async fn report(&self, request: Request<Fault>) -> Result<Response<Fault>, Status> {
        let Fault { rank, kind, what } = request.into_inner();
        let kind = fault::Kind::try_from(kind).unwrap_or(fault::Kind::Failed);
        Ok(Response::new(self.end(self.lock(), rank as usize, kind, what)))
    }

    async fn look(&self, _: Request<Nothing>) -> Result<Response<Table>, Status> {
        let (now, state) = (Instant::now(), self.lock());
        let row = |seat: &Seat| Row {
            member: Some(member(&seat.join)),
            doing: seat.doing.clone(),
            silent_ms: now.saturating_duration_since(seat.heard).as_millis() as u64,
        };
        Ok(Response::new(Table { rows: state.seats.iter().flatten().map(row).collect() }))
    }
}

fn member(join: &Join) -> Member {
    Member { host: join.host.clone(), pid: join.pid }
}

fn name_of(join: &Join) -> String {
    crate::name(join.rank as usize, &member(join))
}

fn ranks(ranks: &[usize]) -> String {
    let list = ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    format!("{} {list}", if ranks.len() == 1 { "rank" } else { "ranks" })
}
