//! A memory node's parts together, and the threads over them.

use super::area::Area;
use super::base::Base;
use super::data::Data;
use super::error::MemoryError;
use super::links;
use super::merging::Merging;
use super::options::Options;
use super::pins::{self, Pins};
use super::segments::{Logs, Segments};
use super::sessions::{Counts, OnSessions, Parts, Serving, Sessions};
use super::stats::Stats;
use super::threads::Threads;
use crate::clock::now;
use crate::link::Secret;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use terrace_fabric::Fabric;

/// Threads that answer requests.
const REQUEST_THREADS: usize = 2;

/// A memory node. Below stand all its parts: each knows only those that were made before it.
pub(crate) struct Node<F: Fabric> {
    pub(crate) base: Arc<Base>,
    threads: Arc<Threads>,
    pins: Arc<Pins>,
    merging: Arc<Merging>,
    sessions: Arc<Sessions<F>>,
}

/// What the threads of a node begin with.
pub(crate) struct Start {
    pub(crate) merge_threads: usize,
    /// Hears of the sessions that serve, and their nodes.
    pub(crate) on_sessions: OnSessions,
    pub(crate) told: mpsc::Receiver<Serving>,
    pub(crate) listener: TcpListener,
    pub(crate) secret: Secret,
}

impl<F> Node<F>
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    pub(crate) fn new(
        (fabric, options): (F, &Options),
        base: Base,
        (segments, found): (Segments, Logs),
        tell: mpsc::Sender<Serving>,
    ) -> Self {
        let (base, threads, pins) = (Arc::new(base), Arc::<Threads>::default(), Pins::new());
        let merging = Arc::new(Merging::new(base.clone()));
        let parts = Parts {
            base: base.clone(),
            merging: merging.clone(),
            threads: threads.clone(),
            pins: pins.clone(),
            fabric,
            segments,
            found,
            tell,
        };
        let sessions = Arc::new(Sessions::new(parts, options));
        Self { base, threads, pins, merging, sessions }
    }

    /// Starts all threads.
    pub(crate) fn start(self: &Arc<Self>, start: Start) -> Result<(), MemoryError> {
        let Start { merge_threads, mut on_sessions, told, listener, secret } = start;
        self.spawn("terrace-told", move |_| told.iter().for_each(|sessions| on_sessions(&sessions)))?;
        for nth in 0..pins::THREADS {
            self.spawn("terrace-pin", move |node| node.pins.run(nth, node.base.data.pool(), &now))?;
        }
        self.pins.wait_for_first();
        for _ in 0..merge_threads {
            self.spawn("terrace-merge", |node| node.merge())?;
        }
        for _ in 0..REQUEST_THREADS {
            self.spawn("terrace-request", |node| node.answer())?;
        }
        self.spawn("terrace-count", |node| node.count_keys())?;
        self.spawn("terrace-tick", |node| node.sessions.tick())?;
        self.spawn("terrace-listen", move |node| links::listen(&node.sessions, &listener, &secret))
    }

    fn spawn(
        self: &Arc<Self>,
        name: &'static str,
        work: impl FnOnce(&Self) + Send + 'static,
    ) -> Result<(), MemoryError> {
        let node = self.clone();
        match self.threads.spawn(name, move || work(&node)) {
            true => Ok(()),
            false => Err(MemoryError::Thread(ErrorKind::OutOfMemory.into())),
        }
    }

    fn merge(&self) {
        self.merging.run(&self.threads, &|logs, freed| self.sessions.merged(logs, freed));
    }

    fn answer(&self) {
        self.sessions.requests().run(&self.base.data, &self.base.area, &now);
    }

    fn count_keys(&self) {
        self.base.data.count_keys(&|| self.threads.is_stopping());
        self.sessions.requests().progressed();
    }

    /// Begins to stop: ends all sessions. Returns how many are not merged after `patience`.
    pub(crate) fn end_sessions(&self, patience: Duration) -> usize {
        self.sessions.end(patience)
    }

    /// Ends all threads and links.
    pub(crate) fn end_threads(&self) {
        self.threads.stop();
        self.merging.end();
        self.pins.end();
        self.sessions.end_links();
    }

    /// Waits for the threads.
    pub(crate) fn join(&self) {
        self.threads.join();
    }

    pub(crate) fn stats(&self) -> Stats {
        let Counts { sessions, serving, segments_free, segments_granted, segments_unread } =
            self.sessions.counts();
        let (merged_entries, merged_bytes) = self.merging.figures();
        let (requests, requests_waiting) = self.sessions.requests().figures();
        let data = &self.base.data;
        Stats {
            sessions,
            serving,
            segments_free,
            segments_granted,
            segments_unmerged: segments_unread,
            merged_entries,
            merged_bytes,
            refused_changes: data.refused.load(Relaxed),
            pins: self.pins.held(),
            newest_pin: self.pins.newest(),
            requests,
            requests_waiting,
            is_resizing: data.engine.stats().index.is_some_and(|index| index.resizing),
        }
    }

    /// Bytes that keys may still take.
    pub(crate) fn room(&self) -> u64 {
        self.sessions.room()
    }

    /// The data and the log area, once all threads have ended; `None` if a thread has them still.
    pub(crate) fn into_parts(self) -> Option<(Data, Arc<Area>)> {
        let Self { base, threads: _, pins: _, merging, sessions } = self;
        drop((merging, sessions));
        let Base { data, area } = Arc::into_inner(base)?;
        Some((data, area))
    }
}
