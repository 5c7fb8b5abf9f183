//! Searches of many keys, side by side: each takes one step while the next line of all is fetched.

/// Cache misses of a core that can overlap.
const BATCH: usize = 16;

/// Searches `keys`, a batch at a time. `start` begins the search of a key. `step` takes the next
/// step of one, whose line was prefetched, prefetches the next line, and returns whether the search
/// goes on; it is called again for searches that have ended. `end` gets each search in order, with
/// the position of its key.
#[inline(always)]
pub(super) fn search_together<'k, Key: ?Sized + 'k, Search>(
    keys: impl IntoIterator<Item = &'k Key>,
    mut start: impl FnMut(&'k Key) -> Search,
    mut step: impl FnMut(&mut Search) -> bool,
    mut end: impl FnMut(usize, &Search),
) {
    let (mut keys, mut done) = (keys.into_iter(), 0);
    loop {
        let mut batch = [const { None }; BATCH];
        let mut len = 0;
        for key in keys.by_ref().take(BATCH) {
            batch[len] = Some(start(key));
            len += 1;
        }
        let batch = &mut batch[..len];
        while batch.iter_mut().flatten().fold(false, |going, search| step(search) | going) {}
        for search in batch.iter().flatten() {
            end(done, search);
            done += 1;
        }
        if len < BATCH {
            return;
        }
    }
}
