use std::fmt;
use std::net::Ipv6Addr;
use std::num::NonZeroU16;
use std::str::FromStr;

use crate::LaunchError;

/// The address at which rank 0 of a job serves the others, written `HOST:PORT` or `[V6]:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterAddress {
    /// The host name or IP address; an IPv6 address has no brackets here.
    pub host: String,
    /// The port, at least 1 if parsed from text.
    pub port: u16,
}

impl FromStr for MasterAddress {
    type Err = LaunchError;

    fn from_str(text: &str) -> Result<Self, LaunchError> {
        let read = || {
            let (host, port) = text.rsplit_once(':')?;
            let port = port.parse::<NonZeroU16>().ok()?.get();
            let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let host = inside.unwrap_or(host).to_owned();
            // Without brackets, the last group of an IPv6 address could be mistaken for the port.
            (is_host(&host) && host.contains(':') == inside.is_some()).then_some(Self { host, port })
        };
        read().ok_or_else(|| LaunchError::BadMaster(text.to_owned()))
    }
}

impl fmt::Display for MasterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Returns the first host of a compact Slurm node list, such as `vnode1` of `vnode[1-2,5],login`. Brackets contain
/// numbers and ranges of numbers; leading zeros are kept.
pub(crate) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host += &rest[..end];
        if !rest[end..].starts_with('[') {
            break;
        }
        let (numbers, behind) = rest[end + 1..].split_once(']')?;
        host += numbers.split([',', '-']).next().filter(|first| first.parse::<u64>().is_ok())?;
        rest = behind;
    }
    is_host(&host).then_some(host)
}

pub(crate) fn is_host(text: &str) -> bool {
    let is_name = !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-._".contains(c));
    is_name || text.parse::<Ipv6Addr>().is_ok()
}
