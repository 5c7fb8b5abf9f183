//! The processes that have a pool open, as one of them sees the others.

use crate::error::Holder;
use crate::pool::Pool;
use crate::sharing::notice;
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Pool<M> {
    /// The other processes that have it open now.
    pub fn other_participants(&self) -> Vec<Holder> {
        let others = self.0.base().other_live_participants();
        let blocking = self.0.epochs().blocking_participants();
        let all = others.into_iter();
        all.map(|(index, holder)| Holder { blocks_reclaim: blocking.contains(&index), ..holder }).collect()
    }

    /// Recovers dead participants while others run. Returns their number. For a thread that checks
    /// from time to time. Does nothing in an exclusive pool.
    pub fn recover_dead(&self) -> u32 {
        self.0.peers.recover_all_dead()
    }

    /// Posts `text` as this participant's notice, in place of an earlier one; see
    /// [`notices`](crate::notices). Returns whether there was room: for
    /// [`NOTICE_MAX`](crate::NOTICE_MAX) bytes, and for the first 14 participants.
    pub fn post_notice(&self, text: &str) -> bool {
        !self.is_read_only() && notice::post(self.0.base(), text)
    }
}
