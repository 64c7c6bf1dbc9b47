//! The commands `kiln serve` and `kiln health`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use kiln::comm::rpc::Token;
use kiln::partition::Part;
use kiln::remote::{Health, ServeConfig, Server};

use crate::flags::parse;
use crate::flags::ranks::TlsArgs;
use crate::output::print_rank_zero;

/// The interval at which the server checks for a signal, for its release by all clients, and for changed files.
const POLL: Duration = Duration::from_millis(100);

/// The timeout of `kiln health`.
const PATIENCE: Duration = Duration::from_secs(5);

/// The flags of `kiln serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Folder of the partition, from `kiln data partition`.
    #[arg(long, value_name = "DIR")]
    part: PathBuf,
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// Threads that compute responses. Default: the number of cores.
    #[arg(long, value_parser = parse::whole(1, 1024))]
    threads: Option<usize>,
    /// Maximum number of connections, two per client; at most half of the process's open file limit. Further
    /// connections wait.
    #[arg(long, value_parser = parse::size, default_value = "1024")]
    max_connections: usize,
    /// Seconds after which a silent client is no longer counted, and a response that its client does not read is
    /// dropped.
    #[arg(long, value_parser = parse::size, default_value = "30")]
    lease: usize,
    /// Exits after N seconds without clients, once there was at least one. Default: never.
    #[arg(long, value_name = "SECONDS", value_parser = parse::size)]
    until_released: Option<usize>,
    /// Verifies the whole partition before serving it.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    tls: TlsArgs,
}

/// The flags of `kiln health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Address of the server.
    #[arg(value_name = "HOST:PORT")]
    address: String,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Queries a server's health and prints it.
pub(crate) fn health(args: &HealthArgs) -> anyhow::Result<()> {
    let Health { part, n_clients, uptime, oldest_request } =
        Health::ask(&args.address, token(&args.tls)?, args.tls.files()?, PATIENCE)?;
    let oldest = oldest_request.unwrap_or_default();
    print_rank_zero(format_args!(
        "part {part}, {n_clients} clients, {uptime:.1?}, oldest request {oldest:.1?}"
    ));
    Ok(())
}

/// Serves a partition until a signal arrives or, with `--until-released`, until all clients have been gone for that
/// time.
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
    // On Debian a machine's own name resolves to a loopback address. A loopback address given explicitly is accepted.
    let is_meant = ["127.", "localhost:", "[::1]"].iter().any(|start| args.listen.starts_with(start));
    ensure!(
        is_meant || !server.address().ip().is_loopback(),
        "{} resolves to {}, which other machines cannot reach: give an address of this machine",
        args.listen,
        server.address()
    );
    let (index, n_parts, n_nodes) = (part.index, part.n_parts(), part.n_owned());
    let (name, n_edges, address) = (&part.name, part.n_edges(), server.address());
    print_rank_zero(format_args!(
        "part {index} of {n_parts} of {name}, {n_nodes} nodes and {n_edges} edges, at {address}"
    ));
    let released = args.until_released.map(|seconds| Duration::from_secs(seconds as u64));
    let is_released = || released.is_some_and(|wait| server.free_for().is_some_and(|free| wait <= free));
    while !stop.load(Ordering::Relaxed) && !is_released() {
        // Other errors mean that a path could not be looked up. They may be transient, so the next check retries.
        if let Err(error @ kiln::graph::Error::FileChanged { .. }) = kiln::graph::check_mapped_files() {
            bail!(error);
        }
        std::thread::sleep(POLL);
    }
    print_rank_zero(format_args!("part {index}: exiting, {} clients", server.n_clients()));
    Ok(())
}

fn token(tls: &TlsArgs) -> anyhow::Result<Token> {
    tls.graph_token()?.context(
        "set KILN_GRAPH_TOKEN to a secret that clients share, or KILN_GRAPH_TOKEN_FILE to a file that contains it and \
         that only you can read, or give certificates",
    )
}
