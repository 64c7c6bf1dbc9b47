use std::sync::Arc;

use crate::process::engine::{Engine, Engines, Outcome, Parts, PartsMut};
use crate::process::proto::Parcels;
use crate::process::watchdog::control::Control;

/// The engine that exchanges bytes through rank 0, over the rendezvous connections. It needs no library, but moves all
/// data through one machine.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) control: Arc<Control>,
}

/// The store engine of one group.
struct StoreEngine {
    control: Arc<Control>,
    group: String,
    member: usize,
    n_members: usize,
    n_exchanges: u64,
}

/// The maximum number of bytes of one call, which limits the size of the message that contains the parts of all ranks.
const MAX_BYTES: usize = 16 << 20;

impl Engines for Store {
    fn open(&self, ranks: &[usize], name: &str) -> Result<Box<dyn Engine>, String> {
        let member = ranks.iter().position(|rank| *rank == self.control.rank());
        let member = member.ok_or("this rank is not in the group")?;
        let control = Arc::clone(&self.control);
        let group = name.to_owned();
        let n_members = ranks.len();
        Ok(Box::new(StoreEngine { control, group, member, n_members, n_exchanges: 0 }))
    }
}

impl StoreEngine {
    /// Exchanges parcels with all members and returns one parcel from each. `parcels` contains one parcel per member,
    /// or a single one for all.
    fn exchange(&mut self, parcels: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, String> {
        let number = self.n_exchanges;
        self.n_exchanges += 1;
        let member = self.member as u64;
        let n_members = self.n_members as u64;
        self.control.exchange(Parcels { group: self.group.clone(), number, member, n_members, parcels })
    }
}

impl Engine for StoreEngine {
    fn max_bytes(&self) -> usize {
        MAX_BYTES
    }

    fn all_gather(&mut self, send: &[u8], counts: &[usize], recv: &mut [u8]) -> Outcome {
        unpack(self.exchange(vec![send.to_vec()])?, PartsMut { bytes: recv, counts })
    }

    fn all_to_all(&mut self, send: Parts<'_>, recv: PartsMut<'_>) -> Outcome {
        let mut rest = send.bytes;
        let mut parcels = Vec::with_capacity(send.counts.len());
        for count in send.counts {
            let (parcel, others) = rest.split_at(*count);
            parcels.push(parcel.to_vec());
            rest = others;
        }
        unpack(self.exchange(parcels)?, recv)
    }

    fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Outcome {
        let parcel = if root == self.member { bytes.to_vec() } else { Vec::new() };
        let brought = self.exchange(vec![parcel])?;
        let counts = [bytes.len()];
        unpack(brought.into_iter().skip(root).take(1).collect(), PartsMut { bytes, counts: &counts })
    }
}

fn unpack(parcels: Vec<Vec<u8>>, recv: PartsMut<'_>) -> Outcome {
    let got: Vec<usize> = parcels.iter().map(Vec::len).collect();
    if got != recv.counts {
        return Err(format!("received parcels of {got:?} bytes, expected {:?}", recv.counts));
    }
    recv.bytes.copy_from_slice(&parcels.concat());
    Ok(())
}
