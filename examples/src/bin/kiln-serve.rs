//! Serves a part of a graph to programs that train elsewhere: the servers of `distributed_sage --mode server`.
//!
//! ```text
//! KILN_GRAPH_TOKEN_FILE=token kiln-serve --part parts/part0 --listen 10.0.0.1:29600
//! ```
//!
//! It holds nothing of any training, so that it may be started again at any time, and outlives its clients. It ends by
//! SIGTERM, with `--until-released` when nobody uses it any more, and with an error when a file of its part was changed. `kiln-serve --health 10.0.0.1:29600` asks it how it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use kiln_comm::rpc::Token;
use kiln_examples::{TlsArgs, flags, graph_token, say, stop_flag};
use kiln_partition::Part;
use kiln_remote::{Health, ServeConfig, Server};

/// How often it looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

/// How long a server may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves a part of a graph. Clients must know the token in KILN_GRAPH_TOKEN, or in a file that KILN_GRAPH_TOKEN_FILE names; or show a certificate.
#[derive(Debug, Parser)]
struct Args {
    /// Folder of the part (`cargo xtask data partition`).
    #[arg(long, value_name = "DIR", required_unless_present = "health", conflicts_with = "health")]
    part: Option<PathBuf>,
    /// Address of this machine to listen at, and at no other; port 0 is any that is free.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "health", conflicts_with = "health")]
    listen: Option<String>,
    /// Serves nothing: asks the server there which part it holds, how many clients it has and since when it has been there, and fails if it says nothing for 5 s.
    #[arg(long, value_name = "HOST:PORT")]
    health: Option<String>,
    /// Answers that are made at once; one a core, if not given.
    #[arg(long, value_parser = flags::threads, conflicts_with = "health")]
    threads: Option<usize>,
    /// Connections at once, of which a client has two; at most half of the files that the process may have open. Further ones wait.
    #[arg(long, value_parser = flags::size, default_value = "1024", conflicts_with = "health")]
    max_connections: usize,
    /// Seconds that a client which says nothing still counts, and that one which takes nothing of its answer is waited for.
    #[arg(long, value_parser = flags::size, default_value = "30", conflicts_with = "health")]
    lease: usize,
    /// Ends when nobody has used it for so many seconds, after somebody did; never, if not given.
    #[arg(long, value_name = "SECONDS", value_parser = flags::size, conflicts_with = "health")]
    until_released: Option<usize>,
    /// Reads the whole part once before and checks it.
    #[arg(long, conflicts_with = "health")]
    verify: bool,
    #[command(flatten)]
    tls: TlsArgs,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    kiln_graph::handle_bus_errors().context("handling SIGBUS")?;
    let token = graph_token(&args.tls)?.context(
        "set KILN_GRAPH_TOKEN to a word that clients know, or KILN_GRAPH_TOKEN_FILE to a file with it that only you can read; \
         or give certificates",
    )?;
    match &args {
        Args { health: Some(address), .. } => ask(address, token, &args),
        Args { part: Some(part), listen: Some(listen), .. } => serve(part, listen, token, &args),
        _ => bail!("--part and --listen are needed to serve"),
    }
}

fn ask(address: &str, token: Token, args: &Args) -> anyhow::Result<()> {
    let Health { part, n_clients, uptime, oldest_request } =
        Health::ask(address, token, args.tls.files()?, PATIENCE)?;
    let oldest = oldest_request.unwrap_or_default();
    say(format_args!("part {part}, {n_clients} clients, {uptime:.1?}, oldest request {oldest:.1?}"));
    Ok(())
}

fn serve(part: &Path, listen: &str, token: Token, args: &Args) -> anyhow::Result<()> {
    let stop = stop_flag()?;
    if args.verify {
        Part::verify(part)?;
    }
    let part = Arc::new(Part::open(part)?);
    let config = ServeConfig::new(listen, token);
    let config = ServeConfig {
        tls: args.tls.files()?,
        n_threads: args.threads.unwrap_or(config.n_threads),
        max_connections: args.max_connections,
        lease: Duration::from_secs(args.lease as u64),
        ..config
    };
    let server = Server::start(Arc::clone(&part), config)?;
    // Debian gives a machine's own name such an address.
    let is_meant = ["127.", "localhost:", "[::1]"].iter().any(|start| listen.starts_with(start));
    ensure!(
        is_meant || !server.address().ip().is_loopback(),
        "{} is {} here, which other machines cannot reach: give an address of this machine",
        listen,
        server.address()
    );
    let (index, n_parts, n_nodes) = (part.index, part.book.n_parts(), part.old_ids.len());
    let (name, n_edges, address) = (&part.name, part.graph.n_edges(), server.address());
    say(format_args!(
        "part {index} of {n_parts} of {name}, {n_nodes} nodes and {n_edges} edges, at {address}"
    ));
    let released = args.until_released.map(|seconds| Duration::from_secs(seconds as u64));
    let is_released = || released.is_some_and(|wait| server.free_for().is_some_and(|free| wait <= free));
    while !stop.load(Ordering::Relaxed) && !is_released() {
        // A path that cannot be looked up now is looked up again.
        if let Err(error @ kiln_graph::Error::FileChanged { .. }) = kiln_graph::check_mapped_files() {
            bail!(error);
        }
        std::thread::sleep(LOOK);
    }
    say(format_args!("part {index} ends, with {} clients", server.n_clients()));
    Ok(())
}
