use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a free TCP port on the loopback address, for a process that the test starts later.
///
/// The port is below Linux's range of ephemeral ports, which starts at 32,768, so the kernel does not assign it to an
/// outgoing connection in the meantime. Calls in one process return distinct ports.
///
/// # Panics
/// Panics if no port from 20,000 to 31,999 is free.
pub fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const N_PORTS: u16 = 12_000;
    static N_CALLS: AtomicU16 = AtomicU16::new(0);
    // The start depends on the process id, so that concurrent test processes use different ports. The factor
    // is close to the golden section of `N_PORTS`, so processes with similar ids start far from each other.
    let start = (std::process::id() % u32::from(N_PORTS) * 7417 % u32::from(N_PORTS)) as u16;
    for _ in 0..N_PORTS {
        let offset = (start + N_CALLS.fetch_add(1, Ordering::Relaxed) % N_PORTS) % N_PORTS;
        if TcpListener::bind(("127.0.0.1", FIRST + offset)).is_ok() {
            return FIRST + offset;
        }
    }
    panic!("no port from {FIRST} to {} is free", FIRST + N_PORTS - 1)
}
