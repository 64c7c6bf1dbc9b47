use std::collections::HashMap;

use crate::process::proto::Member;

/// What this machine is called.
pub(crate) fn host() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

/// Identifies this machine: processes with equal ids share its cores and its loopback address.
///
/// Host names do not tell machines apart: images that are cloned have the same. Nor does `/etc/machine-id`, which
/// containers of one image share. The kernel draws its boot id anew whenever a machine starts, and containers of one
/// machine have network namespaces of their own, whose loopback addresses are different. Where the system has neither, the
/// host name must do.
pub(crate) fn machine_id() -> String {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let network = std::fs::read_link("/proc/self/ns/net").ok();
    match (boot_id, network) {
        (Some(boot_id), Some(network)) => format!("{} {}", boot_id.trim(), network.display()),
        (Some(boot_id), None) => format!("{} {}", boot_id.trim(), host()),
        (None, _) => host(),
    }
}

/// A process as messages name it.
pub(crate) fn name(rank: usize, member: &Member) -> String {
    format!("rank {rank} ({}, pid {})", member.host, member.pid)
}

/// The ranks on the machine of a rank, in order.
pub(crate) fn ranks_beside(members: &[Member], rank: usize) -> Vec<usize> {
    let own = &members[rank].machine;
    (0..members.len()).filter(|other| members[*other].machine == *own).collect()
}

/// The machines by the order of their first ranks, as `2 on n1, 1 on n2`.
pub(crate) fn list(members: &[Member]) -> String {
    let (mut machines, mut place_of) = (Vec::<(&str, usize)>::new(), HashMap::new());
    for Member { host, machine, .. } in members {
        let place = *place_of.entry(machine).or_insert(machines.len());
        match machines.get_mut(place) {
            Some((_, n_ranks)) => *n_ranks += 1,
            None => machines.push((host, 1)),
        }
    }
    let lines: Vec<String> = machines.iter().map(|(host, n_ranks)| format!("{n_ranks} on {host}")).collect();
    lines.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(host: &str, machine: &str) -> Member {
        Member { host: host.to_owned(), pid: 1, machine: machine.to_owned() }
    }

    #[test]
    fn machines_of_one_name_are_told_apart() {
        let members = [member("node", "a"), member("node", "b"), member("node", "a"), member("renamed", "b")];
        assert_eq!(ranks_beside(&members, 0), [0, 2]);
        assert_eq!(ranks_beside(&members, 3), [1, 3]);
        assert_eq!(list(&members), "2 on node, 2 on node");
    }

    #[test]
    fn the_own_machine_has_one_id() {
        assert_eq!(machine_id(), machine_id());
        assert!(!machine_id().trim().is_empty());
    }
}
