//! A metrics page of a process that serves no Redis clients.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{Builder, JoinHandle},
};

use mio::{Waker, net::TcpListener};

use super::{ListenError, MetricsServer, StartError, listen::metrics_listener, metrics::Metrics};
use crate::state::{config::Config, routing::Figure};

/// Where a metrics page is to be.
#[derive(Debug)]
pub struct MetricsListener(TcpListener);

/// A metrics page that a thread of its own serves. To drop it is to end it.
#[derive(Debug)]
pub struct MetricsPage {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl MetricsListener {
    /// Listens at the port that the settings name, if they name one.
    ///
    /// # Errors
    /// If it cannot listen there.
    pub fn bind(config: &Config) -> Result<Option<MetricsListener>, ListenError> {
        Ok(metrics_listener(config)?.map(MetricsListener))
    }

    /// Serves figures, as they are at each scrape. Their names begin with `terrace_` and `part`.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn serve(
        self,
        part: &'static str,
        figures: impl Fn() -> Vec<Figure> + Send + Sync + 'static,
    ) -> Result<MetricsPage, StartError> {
        let address = self.0.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let metrics = Metrics::of_figures(part, figures);
        // ORDER: Relaxed: the flag says all there is to know.
        let (server, waker) = MetricsServer::new(self.0, metrics, Box::new(move || ends.load(Relaxed)))?;
        let run = || {
            if let Err(error) = server.run() {
                log::error!("the metrics page has ended: {error}");
            }
        };
        let thread = Some(Builder::new().name("metrics".into()).spawn(run)?);
        Ok(MetricsPage { address, is_over, waker, thread })
    }
}

impl MetricsPage {
    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsPage {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // If it cannot be woken, it looks by itself within a second.
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
