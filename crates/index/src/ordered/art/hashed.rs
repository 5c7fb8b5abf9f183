//! Nodes of kind 64: the places of links by their bytes' hash.
//!
//! A byte's places are the eight of its own line, from its own place on and around, then those of
//! the next line, and so on. Its link lies in one of them, and no place before that is new: 0, and
//! so never used. So a search stops at the first new place. As a rule, it reads one line.
//!
//! A removed link leaves a *vacated* word (see `link`), so a used place never is new again. The
//! next link that passes it takes it. Thus a line has no new place only if all of its eight were
//! in use at a time, and nothing has to be cleaned up.
//!
//! A writer makes the places that its link has passed durable before it stores the link. Otherwise
//! a crash could leave a new place before the link, which would hide it.

use super::super::keys::OrderedKind;
use super::super::link::Link;
use super::super::links::load;
use super::node::{LARGE_LINKS, Node, Slot};
use super::tree::Tree;
use crate::Damage;
use terrace_medium::{MappedMedium, Medium, Word};

pub(super) const PLACES: usize = 64;

/// Children at most. With so many, one of fifteen lies behind its own line.
pub(super) const MOST: usize = 56;

const IN_LINE: usize = 8;

/// What is said of a place that looks as if it were new, before a link.
pub(super) const HIDDEN: &str = "a place of a node hides a link";

/// The `nth` place of a byte. Seven bytes that follow each other lie in seven lines.
#[inline(always)]
pub(super) fn place(byte: u8, nth: usize) -> usize {
    let own = usize::from(byte) * 9 % PLACES;
    (own / IN_LINE + nth / IN_LINE) % (PLACES / IN_LINE) * IN_LINE + (own + nth) % IN_LINE
}

/// The places of a byte in their order. `links` are all of a node.
#[inline(always)]
fn places(links: &[Word], byte: u8) -> impl Iterator<Item = &Word> {
    (0..PLACES).map(move |nth| &links[place(byte, nth)])
}

/// The link of a byte; what is left of one that was removed if there is none.
#[inline(always)]
pub(super) fn find<'g, M: Medium>(medium: &M, links: &'g [Word], byte: u8) -> Option<Slot<'g>> {
    let mut removed = None;
    for word in places(links, byte) {
        let link = load(medium, word);
        if link == Link::NONE {
            break;
        }
        if link.byte() == byte {
            if !link.is_empty() {
                return Some((word, link));
            }
            removed = Some((word, link));
        }
    }
    removed
}

/// Puts a link into the image of a node that no thread can see.
pub(super) fn put(words: &mut [u64], link: Link) {
    let is_new = |at: &usize| words[LARGE_LINKS + at] == 0;
    let at = (0..PLACES).map(|nth| place(link.byte(), nth)).find(is_new);
    words[LARGE_LINKS + at.expect("fewer links than places")] = link.0;
}

/// What a writer finds for a new child.
pub(super) enum Room<'g> {
    At(&'g Word),
    /// There is a child with its byte.
    Taken,
    Full,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The place for a child with this byte in a node of kind 64. All places before it are used,
    /// and durable. Called under the lock.
    pub(super) fn room_in_hashed<'g>(&self, node: Node<'g>, byte: u8) -> Room<'g> {
        let (medium, mut free, mut own) = (self.pool.medium(), None, None);
        for word in places(node.links(), byte) {
            let link = load(medium, word);
            if link.is_empty() {
                free = free.or(Some(word));
            }
            if link == Link::NONE {
                break;
            }
            if link.byte() == byte {
                if !link.is_empty() {
                    return Room::Taken;
                }
                own = Some(word);
            }
        }
        // What is left of the byte's earlier link lies where the next may lie. If that one's
        // removal is not durable, a crash could leave both elsewhere.
        match own.or(free) {
            Some(_) if self.children_counted(node) >= MOST => Room::Full,
            Some(room) => {
                // PERSIST: that the places before it are used, before the link is stored.
                let passed = places(node.links(), byte).take_while(|word| !std::ptr::eq(*word, room));
                passed.for_each(|word| _ = self.follow_locked(word));
                Room::At(room)
            }
            None => Room::Full,
        }
    }

    /// Fails if a node has a child with this byte that a search for it does not find. Called under
    /// the lock.
    pub(super) fn check_unhidden(&self, node: Node<'_>, byte: u8) -> Result<(), Damage> {
        let medium = self.pool.medium();
        let is_child = |slot: Option<Slot<'_>>| slot.is_some_and(|(_, link)| !link.is_empty());
        if is_child(node.child_by_look(medium, byte)) && !is_child(node.child(medium, byte)) {
            return Err(self.record_damage(node.offset(self.pool.region()), HIDDEN));
        }
        Ok(())
    }

    /// A node's children, or fewer if a thread has died. Called under the lock.
    fn children_counted(&self, node: Node<'_>) -> usize {
        let (medium, here) = (self.pool.medium(), node.here());
        node.len_hint(medium, self.mark).saturating_sub(usize::from(!load(medium, here).is_empty()))
    }
}

#[cfg(test)]
#[path = "tests/hashed.rs"]
mod tests;
