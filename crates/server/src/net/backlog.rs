//! Replies that wait until their socket accepts them.

use super::turn::READ;

/// Replies that the socket has not accepted yet.
#[derive(Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    written: usize,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Keeps the unwritten part of `output`: takes the buffer if that part is long, copies it
    /// otherwise.
    pub(super) fn begin(&mut self, output: &mut Vec<u8>, written: usize) {
        debug_assert!(self.is_empty(), "replies are written past none that wait");
        if output.len() - written > READ {
            *self = Backlog { bytes: std::mem::take(output), written };
        } else {
            self.bytes.extend_from_slice(&output[written..]);
        }
    }

    pub(super) fn append(&mut self, output: &[u8]) {
        if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        self.bytes.extend_from_slice(output);
    }

    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.len(), "the socket accepts bytes that there are");
        self.written += count;
        if self.written == self.bytes.len() {
            // Backlogs are rare, so an empty one keeps no memory.
            *self = Backlog::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlog_keeps_order_and_frees_its_memory() {
        let mut backlog = Backlog::default();
        let mut seen = Vec::new();
        let mut expected = Vec::new();
        for round in 0..100_u8 {
            let mut output = vec![round; usize::from(round) * 1000 + 1];
            expected.extend_from_slice(&output);
            if backlog.is_empty() {
                backlog.begin(&mut output, 0)
            } else {
                backlog.append(&output)
            }
            let count = backlog.len().min(30_000);
            seen.extend_from_slice(&backlog.waiting()[..count]);
            backlog.consume(count);
        }
        seen.extend_from_slice(backlog.waiting());
        backlog.consume(backlog.len());
        assert!(seen == expected);
        assert!(backlog.is_empty() && backlog.bytes.capacity() == 0);
    }
}
