use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(feature = "mpi")]
use crate::failure::error_text;
use crate::process::engine::Engines;
#[cfg(feature = "mpi")]
use crate::process::machine::{host, machine_id};
use crate::process::store::Store;
use crate::process::watchdog::control::Control;
use crate::rpc::{RpcEndpoint, Token};
use crate::{CommBackend, EngineError, JobError, LaunchEnv, MasterAddress, RankConfig};

/// The selected engine, before the processes are connected.
pub(crate) enum Carrier {
    #[cfg(feature = "mpi")]
    Mpi(crate::process::mpi::MpiWorld),
    /// The store of rank 0.
    Store,
    #[cfg(feature = "nccl")]
    Nccl {
        /// The index of this process's GPU, from 0.
        device: usize,
    },
}

/// The endpoint of the job's rendezvous (its address, token and certificates) and, on rank 0, its listener.
pub(crate) struct Meet {
    pub(crate) rpc_endpoint: RpcEndpoint,
    /// The listener of rank 0; `None` on all other ranks.
    pub(crate) listener: Option<TcpListener>,
}

impl Carrier {
    /// Starts the configured engine, and returns it with its name. [`CommBackend::Auto`] means MPI if the program was
    /// built with it, otherwise NCCL.
    pub(crate) fn start(launch: &LaunchEnv, config: &RankConfig) -> Result<(Self, &'static str), JobError> {
        let mpi = || Ok((Self::start_mpi(launch)?, "mpi"));
        let nccl = || Ok((Self::start_nccl(launch, config.cuda_device)?, "nccl"));
        match config.engine {
            CommBackend::Store => Ok((Self::Store, "store")),
            CommBackend::Mpi => mpi(),
            CommBackend::Nccl => nccl(),
            CommBackend::Auto => first_that_works(&launch.to_string(), mpi, nccl),
        }
    }

    #[cfg(feature = "mpi")]
    fn start_mpi(launch: &LaunchEnv) -> Result<Self, JobError> {
        let world = crate::process::mpi::MpiWorld::start()?;
        let rank = world.rank();
        let world_size = world.world_size();
        if (rank, world_size) == (launch.rank, launch.world_size) {
            return Ok(Self::Mpi(world));
        }
        Err(JobError::Engine(EngineError::OtherWorld { launch: launch.to_string(), rank, world_size }))
    }

    #[cfg(not(feature = "mpi"))]
    fn start_mpi(_: &LaunchEnv) -> Result<Self, JobError> {
        Err(JobError::Engine(EngineError::NotBuilt { engine: "mpi" }))
    }

    #[cfg(feature = "nccl")]
    fn start_nccl(launch: &LaunchEnv, cuda_device: Option<usize>) -> Result<Self, JobError> {
        Ok(Self::Nccl { device: crate::process::nccl::Nccl::device_of(launch.local_rank, cuda_device)? })
    }

    #[cfg(not(feature = "nccl"))]
    fn start_nccl(_: &LaunchEnv, _: Option<usize>) -> Result<Self, JobError> {
        Err(JobError::Engine(EngineError::NotBuilt { engine: "nccl" }))
    }

    pub(crate) fn meet(&self, launch: &LaunchEnv, config: &RankConfig) -> Result<Meet, JobError> {
        match self {
            Self::Store => {
                let Some(master) = &launch.master else {
                    return Err(JobError::NoMaster { launch: launch.to_string() });
                };
                let token = Token::new(config.token.as_ref().ok_or(JobError::NoToken)?)?;
                let listener = if launch.rank == 0 { Some(listen_soon(master, config)?) } else { None };
                Ok(Meet {
                    rpc_endpoint: RpcEndpoint { address: master.to_string(), token, tls: config.tls.clone() },
                    listener,
                })
            }
            #[cfg(feature = "nccl")]
            Self::Nccl { .. } => Self::Store.meet(launch, config),
            #[cfg(feature = "mpi")]
            Self::Mpi(world) => {
                let is_one_machine = world.all_same(&machine_id())?;
                let first = (launch.rank == 0).then(|| first_of_mpi(launch, config, is_one_machine));
                // MPI also distributes an error of rank 0, so the other ranks fail instead of waiting for it.
                let text = match &first {
                    Some(Ok((address, token, _))) => format!("{address}\n{token}"),
                    Some(Err(error)) => format!("\n{}", error_text(error)),
                    None => String::new(),
                };
                let text = world.text_of_first(text)?;
                let listener = match first {
                    Some(first) => Some(first?.2),
                    None => None,
                };
                match text.split_once('\n') {
                    Some((address, token)) if !address.is_empty() => {
                        let address = address.to_owned();
                        let token = Token::new(token)?;
                        Ok(Meet {
                            rpc_endpoint: RpcEndpoint { address, token, tls: config.tls.clone() },
                            listener,
                        })
                    }
                    _ => Err(JobError::Refused { reason: text.trim_start().to_owned() }),
                }
            }
        }
    }

    pub(crate) fn engines(self, control: &Arc<Control>) -> Result<Box<dyn Engines>, JobError> {
        Ok(match self {
            Self::Store => Box::new(Store { control: Arc::clone(control) }),
            #[cfg(feature = "nccl")]
            Self::Nccl { device } => Box::new(crate::process::nccl::Nccl::new(control, device)),
            #[cfg(feature = "mpi")]
            Self::Mpi(world) => Box::new(world),
        })
    }
}

/// Starts MPI, or NCCL if the program was built without MPI. If MPI fails or reports another rank or world size, this
/// returns the error and does not try NCCL, because the other ranks may already use MPI.
fn first_that_works<T>(
    launch: &str,
    mpi: impl FnOnce() -> Result<T, JobError>,
    nccl: impl FnOnce() -> Result<T, JobError>,
) -> Result<T, JobError> {
    let no_mpi = match mpi() {
        Err(error @ JobError::Engine(EngineError::NotBuilt { .. })) => error,
        outcome => return outcome,
    };
    nccl().map_err(|no_nccl| {
        let tried = format!("mpi ({no_mpi}), nccl ({no_nccl})");
        JobError::Engine(EngineError::NoEngine { launch: launch.to_owned(), tried })
    })
}

/// Opens the listener of rank 0 for a job over MPI. Returns the address at which other ranks reach the listener, the
/// configured token or a random one, and the listener.
#[cfg(feature = "mpi")]
fn first_of_mpi(
    launch: &LaunchEnv,
    config: &RankConfig,
    is_one_machine: bool,
) -> Result<(String, String, TcpListener), JobError> {
    let listener = match &launch.master {
        Some(master) => listen(master)?,
        None if is_one_machine => listen(&MasterAddress { host: "127.0.0.1".to_owned(), port: 0 })?,
        None => listen(&MasterAddress { host: host(), port: 0 })?,
    };
    let address = listener
        .local_addr()
        .map_err(|error| JobError::Engine(EngineError::Mpi { reason: error.to_string() }))?;
    if !is_one_machine && address.ip().is_loopback() {
        let reason = format!("other machines cannot reach {}: give --master HOST:PORT", address.ip());
        return Err(JobError::NoAddress { host: host(), reason });
    }
    // Certificates are issued for host names, so the name is kept instead of the IP address.
    let address = match &launch.master {
        Some(master) => master.to_string(),
        None => address.to_string(),
    };
    Ok((address, config.token.clone().map_or_else(Token::random_text, Ok)?, listener))
}

/// The maximum time that rank 0 retries to listen.
const PATIENT: Duration = Duration::from_secs(30);

/// Listens as [`listen`] does, with retries: the host name may not resolve yet, or resolve to a previous machine (as in
/// Kubernetes after a restart), and rank 0 of the previous attempt may still hold the port.
fn listen_soon(master: &MasterAddress, config: &RankConfig) -> Result<TcpListener, JobError> {
    let started = Instant::now();
    let limit = config.join_within.min(PATIENT);
    let mut is_logged = false;
    loop {
        match listen(master) {
            Err(JobError::Listen { source, .. })
                if source.kind() != ErrorKind::PermissionDenied && started.elapsed() < limit =>
            {
                if !is_logged {
                    tracing::warn!(
                        name: "listen-retried", target: "kiln_comm::job", address = %master, error = %source,
                        "rank 0 cannot listen at {master} yet, retrying for up to {limit:?}: {source}"
                    );
                    is_logged = true;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
            outcome => return outcome,
        }
    }
}

/// Listens at this address only, not at all addresses of the machine.
fn listen(master: &MasterAddress) -> Result<TcpListener, JobError> {
    let failed = |source| JobError::Listen { address: master.to_string(), source };
    let listener = TcpListener::bind((master.host.as_str(), master.port)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(engine: &'static str) -> Result<&'static str, JobError> {
        Err(JobError::Engine(EngineError::NotBuilt { engine }))
    }

    fn broken(reason: &str) -> Result<&'static str, JobError> {
        Err(JobError::Engine(EngineError::Nccl { reason: reason.to_owned() }))
    }

    #[test]
    fn auto_engine_selects_mpi_if_built_in_and_otherwise_nccl() {
        assert_eq!(first_that_works("2 ranks", || Ok("mpi"), || Ok("nccl")).unwrap(), "mpi");
        assert_eq!(first_that_works("2 ranks", || missing("mpi"), || Ok("nccl")).unwrap(), "nccl");
    }

    #[test]
    fn auto_engine_error_names_every_engine_tried() {
        let outcome = first_that_works("2 ranks", || missing("mpi"), || broken("no libnccl.so.2"));
        let error = outcome.unwrap_err().to_string();
        let expected = [
            "2 ranks: ",
            "tried mpi (this program was built without",
            "), nccl (NCCL cannot be used: no libnccl.so.2)",
        ];
        assert!(expected.iter().all(|expected| error.contains(expected)), "{error}");
    }

    #[test]
    fn auto_engine_returns_the_error_of_a_failing_mpi() {
        let outcome = first_that_works(
            "2 ranks",
            || Err(JobError::Engine(EngineError::Mpi { reason: "no MPI_THREAD_MULTIPLE".to_owned() })),
            || Ok("nccl"),
        );
        assert!(matches!(outcome, Err(JobError::Engine(EngineError::Mpi { .. }))), "{outcome:?}");
    }
}
