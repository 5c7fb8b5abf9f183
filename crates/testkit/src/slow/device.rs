//! The memory device: its latencies, buffer and bandwidth.

use super::Profile;
use super::thread::{Distance, Thread};
use std::collections::VecDeque;
use std::ops::Sub;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_medium::LINE;

/// The traffic of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Lines read that were not in the cache.
    pub lines_read: u64,
    /// Lines written: written back, streamed, or evicted from the cache.
    pub lines_written: u64,
    /// Blocks read from the media, including those read in order to be written.
    pub blocks_read: u64,
    /// Blocks written to the media. Blocks still in the device's buffer are not included.
    pub blocks_written: u64,
    /// Reads of a block far from the previous ones.
    pub random_reads: u64,
}

impl Sub for Traffic {
    type Output = Self;
    /// The difference between two readings, the earlier one on the right.
    fn sub(self, earlier: Self) -> Self {
        Self {
            lines_read: self.lines_read - earlier.lines_read,
            lines_written: self.lines_written - earlier.lines_written,
            blocks_read: self.blocks_read - earlier.blocks_read,
            blocks_written: self.blocks_written - earlier.blocks_written,
            random_reads: self.random_reads - earlier.random_reads,
        }
    }
}

#[derive(Default)]
struct Counters {
    lines_read: AtomicU64,
    lines_written: AtomicU64,
    blocks_read: AtomicU64,
    blocks_written: AtomicU64,
    random_reads: AtomicU64,
}

/// One direction of the device: transfers of all threads follow each other.
struct Channel {
    /// When all transfers requested so far are done, in picoseconds.
    free_at_ps: AtomicU64,
    ps_per_byte: u64,
}

impl Channel {
    fn new(mb_per_s: u64) -> Self {
        Self { free_at_ps: AtomicU64::new(0), ps_per_byte: 1_000_000_u64.checked_div(mb_per_s).unwrap_or(0) }
    }

    /// When `bytes` requested at `now` (ns) are transferred.
    fn transfer(&self, now: u64, bytes: u64) -> u64 {
        if self.ps_per_byte == 0 {
            return now;
        }
        let takes = bytes * self.ps_per_byte;
        let end = |free_at: u64| free_at.max(now * 1000) + takes;
        let before = self.free_at_ps.fetch_update(Relaxed, Relaxed, |free_at| Some(end(free_at)));
        end(before.unwrap_or(0)).div_ceil(1000)
    }
}

/// A block in the write-combining buffer: its number, and which of its lines are present.
struct Combined {
    block: u64,
    lines: u64,
}

pub(super) struct Device {
    profile: Profile,
    reading: Channel,
    writing: Channel,
    buffer: Mutex<VecDeque<Combined>>,
    counters: Counters,
}

impl Device {
    pub(super) fn new(profile: Profile) -> Self {
        Self {
            profile,
            reading: Channel::new(profile.read_mb_per_s),
            writing: Channel::new(profile.write_mb_per_s),
            buffer: Mutex::default(),
            counters: Counters::default(),
        }
    }

    pub(super) fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(super) fn traffic(&self) -> Traffic {
        let c = &self.counters;
        Traffic {
            lines_read: c.lines_read.load(Relaxed),
            lines_written: c.lines_written.load(Relaxed),
            blocks_read: c.blocks_read.load(Relaxed),
            blocks_written: c.blocks_written.load(Relaxed),
            random_reads: c.random_reads.load(Relaxed),
        }
    }

    /// When a line arrives that `thread` requests at `now`.
    pub(super) fn read(&self, thread: &Thread, now: u64, line: u64) -> u64 {
        let (c, profile) = (&self.counters, &self.profile);
        c.lines_read.fetch_add(1, Relaxed);
        let (distance, stream) = thread.read(line / profile.lines_of_block());
        let before = stream.ready_at.load(Relaxed);
        if distance == Distance::Same {
            // Requested together with the block's first line, it arrives with that one, not before.
            return before.max(now + profile.same_block_read_ns);
        }
        c.blocks_read.fetch_add(1, Relaxed);
        let moved = self.reading.transfer(now, profile.block_bytes);
        let latency = if distance == Distance::Next {
            // The device continues from its position; but a block requested alone takes no longer
            // than that.
            (before.max(now) - now + profile.sequential_read_ns).min(profile.random_read_ns)
        } else {
            c.random_reads.fetch_add(1, Relaxed);
            profile.random_read_ns
        };
        let ready_at = moved.max(now + latency);
        stream.ready_at.store(ready_at, Relaxed);
        ready_at
    }

    /// When a line that is sent at `now` is durable.
    pub(super) fn write(&self, now: u64, line: u64) -> u64 {
        self.counters.lines_written.fetch_add(1, Relaxed);
        let accepted = match self.combine(line) {
            None => now,
            Some(evicted) => self.write_block(now, &evicted),
        };
        accepted.max(now + self.profile.write_back_ns)
    }

    /// Puts a line into the buffer. Returns the block evicted from it, if any.
    fn combine(&self, line: u64) -> Option<Combined> {
        let lines = self.profile.lines_of_block();
        let (block, bit) = (line / lines, 1 << (line % lines));
        if self.profile.write_combining_bytes == 0 {
            return Some(Combined { block, lines: bit });
        }
        let mut buffer = self.buffer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match buffer.iter_mut().find(|combined| combined.block == block) {
            Some(combined) => combined.lines |= bit,
            None => buffer.push_back(Combined { block, lines: bit }),
        }
        let full = buffer.len() as u64 * self.profile.block_bytes > self.profile.write_combining_bytes;
        full.then(|| buffer.pop_front()).flatten()
    }

    /// When the media have accepted a block. A block with missing lines is read first.
    fn write_block(&self, now: u64, combined: &Combined) -> u64 {
        let (bytes, lines) = (self.profile.block_bytes, self.profile.lines_of_block());
        let whole = combined.lines.count_ones() as u64 == lines;
        self.counters.blocks_written.fetch_add(1, Relaxed);
        let mut now = now;
        if !whole {
            self.counters.blocks_read.fetch_add(1, Relaxed);
            now = self.reading.transfer(now, bytes);
        }
        self.writing.transfer(now, bytes)
    }
}

const _: () =
    assert!(Profile::CMM_H.block_bytes / LINE as u64 <= 64, "the lines of a block fit a word of bits");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_limits_the_bandwidth_of_all() {
        let channel = Channel::new(1000);
        assert_eq!(channel.transfer(0, 500), 500);
        assert_eq!(channel.transfer(100, 500), 1000, "after the first");
        assert_eq!(channel.transfer(5000, 500), 5500, "it was idle");
        assert_eq!(Channel::new(0).transfer(7, 1 << 40), 7, "no ceiling");
    }

    #[test]
    fn lines_of_a_block_leave_the_buffer_together() {
        let device = Device::new(Profile::OPTANE_100);
        for line in 0..4 * 64 + 4 {
            device.write(0, line);
        }
        let traffic = device.traffic();
        assert_eq!((traffic.lines_written, traffic.blocks_written, traffic.blocks_read), (260, 1, 0));
    }

    #[test]
    fn scattered_line_costs_a_block_read_and_a_block_write() {
        let device = Device::new(Profile::OPTANE_100);
        for i in 0..1064 {
            device.write(0, i * 64);
        }
        let traffic = device.traffic();
        assert_eq!((traffic.lines_written, traffic.blocks_written, traffic.blocks_read), (1064, 1000, 1000));
    }
}
