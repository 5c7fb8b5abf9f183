//! Connections that wait for cold reads of their commands, while their loop serves others.
//!
//! A command whose record lies on a slower tier alone has no effect yet. Its session is parked
//! here, and its reads go on by io_uring; then the command runs again, with what they read. Without
//! io_uring, as in many containers, a worker runs such a command, and waits.

use mio::{Registry, Token, unix::SourceFd};
use slab::Slab;
use std::os::fd::{AsFd, AsRawFd};
use terrace::cold::{ColdRead, Ring};

use super::job::Job;
use crate::state::flow::Flow;

/// Reads that go on at once; more wait for their turn.
const READS_MOST: u32 = 256;

/// The parked sessions of one loop.
pub(super) struct ColdDesk {
    ring: Ring,
    parked: Slab<Parked>,
    /// Reads that go on, with the session that each is for.
    reads: Slab<(usize, ColdRead)>,
}

struct Parked {
    job: Job,
    /// Reads that have not ended.
    left: usize,
}

impl ColdDesk {
    /// A desk whose reads wake the poll with `token`; `None` if the system has no io_uring for us.
    pub(super) fn new(registry: &Registry, token: Token) -> Option<ColdDesk> {
        let ring = Ring::new(READS_MOST).ok()?;
        let descriptor = ring.as_fd().as_raw_fd();
        registry.register(&mut SourceFd(&descriptor), token, mio::Interest::READABLE).ok()?;
        Some(ColdDesk { ring, parked: Slab::new(), reads: Slab::new() })
    }

    /// Parks a session until the reads that its command wants are made.
    pub(super) fn park(&mut self, mut job: Job) {
        let wanted = job.session.cold_reads().take_wanted();
        let key = self.parked.vacant_key();
        let left = wanted.len();
        for read in wanted {
            let (file, at, len) = (read.file.clone(), read.at(), read.len);
            let token = self.reads.insert((key, read));
            self.ring.read(token as u64, file, at, len);
        }
        self.parked.insert(Parked { job, left });
    }

    /// Begins the reads of the sessions that were parked, and takes the sessions whose reads are
    /// made. To be called until there is none.
    pub(super) fn proceed(&mut self) -> Vec<Job> {
        let mut ready = Vec::new();
        if self.parked.is_empty() {
            return ready;
        }
        // A kernel that is short of memory is asked again in the next turn.
        let _ = self.ring.submit();
        while let Some(done) = self.ring.take() {
            let (key, read) = self.reads.remove(done.token as usize);
            let parked = &mut self.parked[key];
            parked.left -= 1;
            match done.bytes {
                Ok(bytes) => parked.job.session.cold_reads().give(read, bytes),
                // The command meets the error itself.
                Err(_) => parked.job.session.wait_next(),
            }
            if parked.left == 0 {
                let mut job = self.parked.remove(key).job;
                job.flow = Some(Flow::More);
                ready.push(job);
            }
        }
        ready
    }
}
