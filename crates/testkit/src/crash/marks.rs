//! Marks in a trace: where each operation of a history begins and ends.

/// The mark before operation `index`.
pub(crate) fn mark_begin(index: usize) -> u64 {
    2 * index as u64 + 2
}
/// The mark after it.
pub(crate) fn mark_end(index: usize) -> u64 {
    2 * index as u64 + 3
}
/// The operation that begins with this mark, if any.
pub(super) fn operation_begun(mark: u64) -> Option<usize> {
    (mark >= 2 && mark.is_multiple_of(2)).then(|| (mark - 2) as usize / 2)
}
/// The mark after the creation of the store.
pub(crate) const MARK_CREATED: u64 = 1;
