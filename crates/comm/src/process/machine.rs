use std::collections::HashMap;

use crate::process::proto::Member;

/// Returns the host name of this machine.
pub(crate) fn host() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

/// Returns the id of this machine. Processes with equal ids share its cores and its loopback address.
///
/// Machines with clones of one image have equal host names, and containers of one image have equal `/etc/machine-id`s.
/// The id therefore consists of the kernel's boot id, which is random at each start, and the network namespace, because
/// containers with separate namespaces do not share a loopback address. If the system does not provide the namespace,
/// the host name replaces it. If it does not provide the boot id, the id is the host name alone.
pub(crate) fn machine_id() -> String {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let network = std::fs::read_link("/proc/self/ns/net").ok();
    match (boot_id, network) {
        (Some(boot_id), Some(network)) => format!("{} {}", boot_id.trim(), network.display()),
        (Some(boot_id), None) => format!("{} {}", boot_id.trim(), host()),
        (None, _) => host(),
    }
}

/// Formats a process for messages, as `rank 1 (host, pid 42)`.
pub(crate) fn name(rank: usize, member: &Member) -> String {
    format!("rank {rank} ({}, pid {})", member.host, member.pid)
}

/// Returns, in order, the ranks on the machine of `rank`, including `rank`.
pub(crate) fn ranks_beside(members: &[Member], rank: usize) -> Vec<usize> {
    let own = &members[rank].machine;
    (0..members.len()).filter(|other| members[*other].machine == *own).collect()
}

/// Formats the number of ranks on each machine, in the order of the machines' first ranks, as `2 on n1, 1 on n2`.
pub(crate) fn list(members: &[Member]) -> String {
    let mut machines = Vec::<(&str, usize)>::new();
    let mut place_of = HashMap::new();
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
    fn machines_with_equal_host_names_are_distinguished() {
        let members = [member("node", "a"), member("node", "b"), member("node", "a"), member("renamed", "b")];
        assert_eq!(ranks_beside(&members, 0), [0, 2]);
        assert_eq!(ranks_beside(&members, 3), [1, 3]);
        assert_eq!(list(&members), "2 on node, 2 on node");
    }

    #[test]
    fn machine_id_is_stable_and_not_empty() {
        assert_eq!(machine_id(), machine_id());
        assert!(!machine_id().trim().is_empty());
    }
}
