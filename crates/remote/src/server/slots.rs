//! Slots that the clients of a server share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// A number of slots. A free slot goes to the waiting client that has the fewest; of several, to the one that waits longest. A
/// client with many requests therefore delays another one by a request at most.
#[derive(Debug)]
pub(crate) struct Slots(Mutex<State>);

#[derive(Debug)]
struct State {
    n_free: usize,
    /// The number of slots of each client that has any.
    held: HashMap<u64, usize>,
    /// In the order of their arrival.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    client: u64,
    granted: oneshot::Sender<Slot>,
}

/// A slot, which becomes free when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    client: u64,
    /// `None` for a slot that is passed on.
    slots: Option<Arc<Slots>>,
}

impl Slots {
    pub(crate) fn new(n_slots: usize) -> Arc<Self> {
        let state = State { n_free: n_slots, held: HashMap::new(), waiting: Vec::new() };
        Arc::new(Self(Mutex::new(state)))
    }

    /// Waits for a slot for a client.
    pub(crate) async fn take(self: &Arc<Self>, client: u64) -> Slot {
        let (granted, slot) = oneshot::channel();
        {
            let mut state = self.lock();
            state.waiting.retain(|waiting| !waiting.granted.is_closed());
            state.waiting.push(Waiting { client, granted });
        }
        self.grant();
        match slot.await {
            Ok(slot) => slot,
            Err(_) => unreachable!("a waiting client should be dropped with its receiver only"),
        }
    }

    /// Gives free slots to waiting clients.
    fn grant(self: &Arc<Self>) {
        loop {
            let Waiting { client, granted } = {
                let mut state = self.lock();
                let State { n_free, held, waiting } = &mut *state;
                let n_held = |waiting: &Waiting| held.get(&waiting.client).copied().unwrap_or(0);
                // Of several, the first one.
                let next = waiting.iter().enumerate().min_by_key(|(_, waiting)| n_held(waiting));
                let Some((position, _)) = next.filter(|_| 0 < *n_free) else { return };
                let next = waiting.remove(position);
                *n_free -= 1;
                *held.entry(next.client).or_default() += 1;
                next
            };
            let slot = Slot { client, slots: Some(Arc::clone(self)) };
            if let Err(mut slot) = granted.send(slot) {
                // The client has disconnected. Its slot is free again for the next turn of the loop.
                slot.slots = None;
                self.lock().free(client);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn free(&mut self, client: u64) {
        self.n_free += 1;
        let n_held = self.held.entry(client).or_default();
        *n_held = n_held.saturating_sub(1);
        if *n_held == 0 {
            self.held.remove(&client);
        }
    }
}

impl Slot {
    /// Returns the slots that this one is of.
    pub(crate) fn slots(&self) -> Option<&Arc<Slots>> {
        self.slots.as_ref()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.lock().free(self.client);
            slots.grant();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll(taking: Pin<&mut impl Future<Output = Slot>>) -> Option<Slot> {
        match taking.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(slot) => Some(slot),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_free_slot_goes_to_the_client_with_the_fewest() {
        let slots = Slots::new(2);
        let mut first = pin!(slots.take(1));
        let mut second = pin!(slots.take(1));
        let of_first = [poll(first.as_mut()), poll(second.as_mut())].map(Option::unwrap);
        let mut more = pin!(slots.take(1));
        let mut other = pin!(slots.take(2));
        let mut last = pin!(slots.take(2));
        assert!(
            poll(more.as_mut()).is_none() && poll(other.as_mut()).is_none() && poll(last.as_mut()).is_none()
        );
        let [slot, kept] = of_first;
        drop(slot);
        // Client 1 waits longer, but has a slot.
        assert!(poll(more.as_mut()).is_none());
        let of_other = poll(other.as_mut()).unwrap();
        drop(kept);
        // Both have one slot or none: client 1 has none.
        assert!(poll(last.as_mut()).is_none());
        let of_more = poll(more.as_mut()).unwrap();
        drop((of_other, of_more));
        assert!(poll(last.as_mut()).is_some());
    }

    #[test]
    fn slots_of_clients_that_disconnect_are_free_again() {
        let slots = Slots::new(1);
        let held = poll(pin!(slots.take(1))).unwrap();
        {
            let mut leaving = pin!(slots.take(2));
            assert!(poll(leaving.as_mut()).is_none());
        }
        let mut waiting = pin!(slots.take(3));
        assert!(poll(waiting.as_mut()).is_none());
        drop(held);
        drop(poll(waiting.as_mut()).unwrap());
        // A slot that was granted, and whose client left before it took it.
        let held = poll(pin!(slots.take(1))).unwrap();
        {
            let mut granted = pin!(slots.take(2));
            assert!(poll(granted.as_mut()).is_none());
            drop(held);
        }
        assert!(poll(pin!(slots.take(3))).is_some());
    }
}
