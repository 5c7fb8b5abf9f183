//! What a process that serves clients has in common with others: its ports and addresses, its
//! signals, and what it asks of its store.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::Signals,
    low_level::emulate_default_handler,
};
use terrace::Store;
use terrace_server::{
    config::Config,
    net::{ListenError, Listeners},
    server::Stopper,
    shared::apply_eviction,
};

use crate::{
    clock,
    failure::{FAILED, Failure},
    open::ATTEMPTS,
};

/// Fails if the settings ask a store to evict that cannot.
pub(crate) fn check_eviction(config: &Config, store: &Store) -> Result<(), Failure> {
    apply_eviction(store, config)
        .map_err(|why| Failure::new(format!("--maxmemory and --maxmemory-policy are not possible: {why}")))
}

/// Listens; retries for a second, as a killed server keeps its ports until the kernel has released
/// its memory.
pub(crate) fn listen<T>(bind: impl Fn() -> Result<T, ListenError>) -> Result<T, Failure> {
    for _ in 0..ATTEMPTS {
        match bind() {
            Err(ListenError::PortInUse { .. } | ListenError::UnixInUse { .. }) => {
                clock::pause(Duration::from_secs(1) / ATTEMPTS);
            }
            bound => return bound.map_err(refusal),
        }
    }
    bind().map_err(refusal)
}

fn refusal(error: ListenError) -> Failure {
    Failure::new(&error).hints(error.hints())
}

/// Where a metrics page is, for people.
pub(crate) fn metrics_place(address: SocketAddr) -> String {
    format!("metrics http://{address}/metrics")
}

/// The addresses of the server, for clients and metrics scrapers.
pub(crate) fn places(listeners: &Listeners) -> String {
    let tcp = listeners.tcp_addresses().into_iter().map(|address| format!("redis://{address}"));
    let unix = listeners.unix_path().map(|path| format!("unix://{}", path.display()));
    let metrics = listeners.metrics_address().map(metrics_place);
    tcp.chain(unix).chain(metrics).collect::<Vec<_>>().join(" · ")
}

/// Signals that the server handles. Every Rust program ignores SIGPIPE. SIGQUIT keeps its default
/// action: the process dumps core.
const SIGNALS: [i32; 5] = [SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2];

/// Handles [`SIGNALS`] in a thread. The first SIGTERM or SIGINT shuts the server down cleanly, as
/// soon as the caller has set the returned cell; the second exits at once. The others are ignored:
/// as in Redis, a closed terminal (SIGHUP) does not stop the server.
pub(crate) fn handle_signals() -> Result<Arc<OnceLock<Stopper>>, Failure> {
    let stopper = Arc::new(OnceLock::new());
    let (mut signals, server) = (Signals::new(SIGNALS)?, Arc::clone(&stopper));
    let wait = move || {
        let mut is_ending = false;
        for signal in signals.forever() {
            match signal {
                SIGTERM | SIGINT => is_ending = end(signal, is_ending, server.get()),
                SIGHUP => {
                    log::info!("SIGHUP ignored: there is no configuration file to reload; use CONFIG SET");
                }
                other => log::info!("signal {other} ignored"),
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(stopper)
}

/// Shuts the server down, or ends the process if there is no server yet or it is shutting down
/// already.
fn end(signal: i32, is_ending: bool, server: Option<&Stopper>) -> bool {
    match server {
        Some(_) if is_ending => std::process::exit(i32::from(FAILED)),
        Some(server) => {
            log::info!("shutting down: received commands are still answered; a second signal exits at once");
            server.stop();
        }
        None => _ = emulate_default_handler(signal),
    }
    true
}
