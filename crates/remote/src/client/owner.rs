use std::sync::Arc;

use crate::client::peer::Peer;
use crate::local_part::LocalPart;

/// The owner of a partition: this process or a server.
#[derive(Debug, Clone)]
pub(crate) enum Owner {
    Local(Arc<LocalPart>),
    Remote(Arc<Peer>),
}
