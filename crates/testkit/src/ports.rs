use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// A TCP port of the loopback address that nothing listens on, for a process that the test starts later.
///
/// The system does not give such a port to an outgoing connection in the meantime: it is below Linux's range for these,
/// which starts at 32,768. No two calls of a process return the same port.
///
/// # Panics
/// When every port from 20,000 to 31,999 is taken.
pub fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const N_PORTS: u16 = 12_000;
    static N_CALLS: AtomicU16 = AtomicU16::new(0);
    // Tests of other processes start elsewhere.
    let start = (std::process::id() % u32::from(N_PORTS)) as u16;
    for _ in 0..N_PORTS {
        let offset = (start + N_CALLS.fetch_add(1, Ordering::Relaxed) % N_PORTS) % N_PORTS;
        if TcpListener::bind(("127.0.0.1", FIRST + offset)).is_ok() {
            return FIRST + offset;
        }
    }
    panic!("no port from {FIRST} to {} is free", FIRST + N_PORTS - 1)
}
