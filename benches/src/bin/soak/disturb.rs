//! The disturbances of servers and jobs: unauthenticated clients, invalid requests and crashes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use kiln_benches::Result;
use kiln_comm::rpc::Token;
use kiln_graph::NodeId;
use kiln_remote::{DistNeighborSampler, Health};
use kiln_sample::{Fanout, FrontierSampler, RngKey, SamplerConfig, Scratch, Seeds};

use crate::Soak;
use crate::job::rank_command;
use crate::server::{PANICS, connect, limited, token};

/// The time within which a connection without an authenticated call must be closed. A server closes it after 5 s. A job
/// accepts only 16 such connections at a time, so a connection may first wait until earlier ones are closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(180);

/// The number of clients that are stopped at a time. The server has two threads.
const N_STOPPED: usize = 4;

/// The number of keys that collide.
const N_COLLIDING: usize = 50_000;

/// A disturbance, which is repeated until the soak test ends.
pub(crate) type Disturbance = fn(&Soak) -> Result;

pub(crate) const DISTURBANCES: &[(&str, Disturbance)] = &[
    ("garbage", garbage),
    ("idle connections", idle),
    ("wrong tokens", wrong_tokens),
    ("duplicate ranks", duplicate_rank),
    ("panicking rules", panicking_rule),
    ("killed clients", killed_client),
    ("stopped readers", stopped_readers),
    ("colliding keys", colliding_keys),
    ("health", health),
];

/// Returns the addresses of the server and of the running job, if there is one.
fn addresses(soak: &Soak) -> Vec<SocketAddr> {
    let all = [Some(soak.server.clone()), soak.job_address()];
    all.into_iter().flatten().filter_map(|address| address.parse().ok()).collect()
}

/// Opens a connection, or returns `None` if the address does not accept it within a second.
fn open(address: &SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(address, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(CLOSED_WITHIN)).ok()?;
    Some(stream)
}

/// Reads until the other side closes the connection. Returns an error if it is still open after [`CLOSED_WITHIN`].
fn until_closed(mut stream: TcpStream) -> Result {
    let started = Instant::now();
    let mut bytes = [0; 4096];
    while started.elapsed() < CLOSED_WITHIN {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(_) => return Ok(()),
        }
    }
    Err(format!("an unauthenticated connection is still open after {:?}", started.elapsed()).into())
}

/// Sends bytes that are not HTTP/2, or that only begin as HTTP/2.
fn garbage(soak: &Soak) -> Result {
    let noise: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_769) >> 24) as u8).collect();
    let begun = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &noise].concat();
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), noise, begun, settings] {
        for address in addresses(soak) {
            let Some(mut stream) = open(&address) else { continue };
            // A failed write is ignored, because the other side may already have closed the connection.
            let _ = stream.write_all(&bytes);
            until_closed(stream)?;
        }
    }
    Ok(())
}

/// Opens 150 idle connections to each address, more than half of the 256 descriptors that a process may have. Shuts
/// down half of them, and waits until the other side closes the rest.
fn idle(soak: &Soak) -> Result {
    let streams: Vec<TcpStream> =
        addresses(soak).iter().flat_map(|address| (0..150).filter_map(|_| open(address))).collect();
    soak.pause(Duration::from_secs(2));
    // This side shuts down every other connection, and waits until the server or job closes the remaining ones.
    for (at, stream) in streams.into_iter().enumerate() {
        match at % 2 {
            0 => _ = stream.shutdown(Shutdown::Both),
            _ => until_closed(stream)?,
        }
    }
    Ok(())
}

fn wrong_tokens(soak: &Soak) -> Result {
    let wrong = Token::new("another-word-of-the-soak")?;
    for address in addresses(soak) {
        // A job does not have the service `Health`, but it checks the token before the service.
        let told = Health::ask(address.to_string(), wrong.clone(), None, Duration::from_secs(1));
        if told.is_ok() {
            return Err(format!("{address} accepts a wrong token").into());
        }
    }
    soak.pause(Duration::from_millis(200));
    Ok(())
}

/// Waits for the end of a process. Kills it and returns an error after [`CLOSED_WITHIN`].
fn end_of(mut process: Child, what: &str) -> Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        if CLOSED_WITHIN < started.elapsed() {
            process.kill()?;
            process.wait()?;
            return Err(format!("{what} did not exit within {CLOSED_WITHIN:?}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts a process with the job's token and a duplicate rank. The job must reject it, so that it exits with status 70.
fn duplicate_rank(soak: &Soak) -> Result {
    soak.pause(Duration::from_secs(3));
    let Some(address) = soak.job_address() else { return Ok(()) };
    let log = std::env::temp_dir().join(format!("kiln-soak-duplicate-{}", std::process::id()));
    let process = rank_command(&soak.program, &address, 1, &log)?.arg("--join-within").arg("60").spawn()?;
    let status = end_of(process, "a process with a duplicate rank")?;
    let text = std::fs::read_to_string(&log)?;
    std::fs::remove_file(&log)?;
    // The duplicate is not rejected if the job has finished in the meantime.
    let is_refused = status.code() == Some(70);
    if !is_refused {
        soak.pause(Duration::from_secs(2));
    }
    let is_late = soak.is_over() || soak.job_address().as_deref() != Some(&*address);
    if is_refused || is_late {
        Ok(())
    } else {
        Err(format!("a process with a duplicate rank exited with {status}, expected 70: {text}").into())
    }
}

fn panicking_rule(soak: &Soak) -> Result {
    let graph = connect(&soak.server)?;
    let config = SamplerConfig::new([Fanout::UpTo(2)]).with_rule(graph.rule(PANICS)?);
    let sampler = DistNeighborSampler::with_config(graph, config)?;
    let seeds = Seeds::nodes((0..100).map(NodeId).collect());
    let sampled = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default());
    soak.pause(Duration::from_millis(500));
    match sampled.map_err(|error| error.to_string()) {
        Err(error) if error.contains(&soak.server) && error.contains("panicked") => Ok(()),
        other => {
            Err(format!("expected an error that names the server and the panic, got {:?}", other.map(|_| ()))
                .into())
        }
    }
}

/// Kills a client while its requests for whole neighbourhoods are in flight.
fn killed_client(soak: &Soak) -> Result {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["sample", &soak.server]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.spawn()?;
    soak.pause(Duration::from_millis(700));
    process.kill()?;
    process.wait()?;
    Ok(())
}

/// Starts more clients than the server has threads, and stops them while their requests for whole neighbourhoods are in flight, so that
/// nothing reads the responses. They have the token.
fn stopped_readers(soak: &Soak) -> Result {
    let mut processes = Vec::new();
    for _ in 0..N_STOPPED {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["sample", &soak.server]).stdout(Stdio::null()).stderr(Stdio::null());
        processes.push(command.spawn()?);
    }
    soak.pause(Duration::from_millis(700));
    for process in &processes {
        let stopped = Command::new("kill").args(["-STOP", &process.id().to_string()]).status()?;
        if !stopped.success() {
            return Err("a client has exited before it was stopped".into());
        }
    }
    // Longer than the lease of the server.
    soak.pause(Duration::from_secs(8));
    for mut process in processes {
        process.kill()?;
        process.wait()?;
    }
    Ok(())
}

/// Imports a table whose keys have the same upper bits of an FNV-1a hash without a secret. In a table of slots by these bits, they would
/// be in one place.
fn colliding_keys(soak: &Soak) -> Result {
    let folder = tempfile::tempdir()?;
    let keys = (0_u32..).map(|n| format!("key-{n:08x}")).filter(|key| hash(key) >> 54 == 0);
    let rows: Vec<String> = keys.take(N_COLLIDING).collect();
    std::fs::write(folder.path().join("keys.csv"), format!("id\n{}\n", rows.join("\n")))?;
    std::fs::write(
        folder.path().join("spec.yaml"),
        "{name: keys, nodes: [{name: key, files: [keys.csv], key: id}], relations: [{name: is, files: [keys.csv], \
         src: {type: key, column: id}, dst: {type: key, column: id}}]}",
    )?;
    let log = folder.path().join("log");
    let mut command = limited(&soak.program, &log)?;
    command.args(["data", "import"]).arg(folder.path().join("spec.yaml")).arg("--out");
    let process = command.arg(folder.path().join("set")).spawn()?;
    let status = end_of(process, "an import of colliding keys")?;
    soak.pause(Duration::from_secs(5));
    match status.success() {
        true => Ok(()),
        false => Err(format!("an import of colliding keys failed: {}", std::fs::read_to_string(log)?).into()),
    }
}

/// FNV-1a (Fowler, Noll, Vo), mixed by the finaliser of SplitMix64 (Steele et al. 2014).
fn hash(key: &str) -> u64 {
    let state = key.bytes().fold(0xcbf2_9ce4_8422_2325, |state: u64, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// Checks that the server responds to a health request, and that no request is older than its client's deadline.
fn health(soak: &Soak) -> Result {
    let health = Health::ask(&*soak.server, token()?, None, Duration::from_secs(60))?;
    soak.pause(Duration::from_secs(1));
    match health.oldest_request.filter(|age| Duration::from_secs(60) < *age) {
        None => Ok(()),
        Some(age) => Err(format!("a request has been in flight for {age:?}, at most 60 s allowed").into()),
    }
}
