//! `kiln serve` and `kiln health`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use kiln::comm::rpc::Token;
use kiln::partition::Part;
use kiln::remote::{Health, ServeConfig, Server};

use crate::flags;
use crate::output::print_rank_zero;
use crate::partitions::graph_token;
use crate::ranks::TlsArgs;

/// How often the server looks whether it should end.
const POLL: Duration = Duration::from_millis(100);

/// How long a server may take to answer `kiln health`.
const PATIENCE: Duration = Duration::from_secs(5);

/// The flags of `kiln serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Folder of the part (`kiln data partition`).
    #[arg(long, value_name = "DIR")]
    part: PathBuf,
    /// Address of this machine to listen at, and at no other; port 0 is any that is free.
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// Responses that are computed at once; one a core, if not given.
    #[arg(long, value_parser = flags::threads)]
    threads: Option<usize>,
    /// Connections at once, of which a client has two; at most half of the files that the process may have open. Further ones wait.
    #[arg(long, value_parser = flags::size, default_value = "1024")]
    max_connections: usize,
    /// Seconds that a client which says nothing still counts, and that one which takes nothing of its response is waited for.
    #[arg(long, value_parser = flags::size, default_value = "30")]
    lease: usize,
    /// Ends when nobody has used it for so many seconds, after somebody did; never, if not given.
    #[arg(long, value_name = "SECONDS", value_parser = flags::size)]
    until_released: Option<usize>,
    /// Reads the whole part once before and checks it.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    tls: TlsArgs,
}

/// The flags of `kiln health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// The server's address.
    #[arg(value_name = "HOST:PORT")]
    address: String,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Asks a server how it is.
pub(crate) fn health(args: &HealthArgs) -> anyhow::Result<()> {
    let Health { part, n_clients, uptime, oldest_request } =
        Health::ask(&args.address, token(&args.tls)?, args.tls.files()?, PATIENCE)?;
    let oldest = oldest_request.unwrap_or_default();
    print_rank_zero(format_args!(
        "part {part}, {n_clients} clients, {uptime:.1?}, oldest request {oldest:.1?}"
    ));
    Ok(())
}

/// Serves a part until a signal, or until it is released.
pub(crate) fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    let token = token(&args.tls)?;
    let stop = kiln::stop_on_signals().context("catching signals")?;
    if args.verify {
        Part::verify(&args.part)?;
    }
    let part = Arc::new(Part::open(&args.part)?);
    let config = ServeConfig::new(&args.listen, token);
    let config = ServeConfig {
        tls: args.tls.files()?,
        n_threads: args.threads.unwrap_or(config.n_threads),
        max_connections: args.max_connections,
        lease: Duration::from_secs(args.lease as u64),
        ..config
    };
    let server = Server::start(Arc::clone(&part), config)?;
    // Debian gives a machine's own name such an address.
    let is_meant = ["127.", "localhost:", "[::1]"].iter().any(|start| args.listen.starts_with(start));
    ensure!(
        is_meant || !server.address().ip().is_loopback(),
        "{} is {} here, which other machines cannot reach: give an address of this machine",
        args.listen,
        server.address()
    );
    let (index, n_parts, n_nodes) = (part.index, part.book.n_parts(), part.old_ids.len());
    let (name, n_edges, address) = (&part.name, part.graph.n_edges(), server.address());
    print_rank_zero(format_args!(
        "part {index} of {n_parts} of {name}, {n_nodes} nodes and {n_edges} edges, at {address}"
    ));
    let released = args.until_released.map(|seconds| Duration::from_secs(seconds as u64));
    let is_released = || released.is_some_and(|wait| server.free_for().is_some_and(|free| wait <= free));
    while !stop.load(Ordering::Relaxed) && !is_released() {
        // A path that cannot be looked up now is looked up again.
        if let Err(error @ kiln::graph::Error::FileChanged { .. }) = kiln::graph::check_mapped_files() {
            bail!(error);
        }
        std::thread::sleep(POLL);
    }
    print_rank_zero(format_args!("part {index} ends, with {} clients", server.n_clients()));
    Ok(())
}

fn token(tls: &TlsArgs) -> anyhow::Result<Token> {
    graph_token(tls)?.context(
        "set KILN_GRAPH_TOKEN to a word that clients know, or KILN_GRAPH_TOKEN_FILE to a file with it that only you can read; \
         or give certificates",
    )
}
