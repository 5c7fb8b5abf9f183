//! Bw-tree; made durable by its medium, P-BwTree.
//!
//! Levandoski, Lomet, Sengupta: *The Bw-Tree: A B-tree for New Hardware Platforms*, ICDE 2013 (the
//! tree); Wang, Pavlo et al.: *Building a Bw-Tree Takes More Than Just Buzz Words*, SIGMOD 2018
//! (changes in a page's own block, and much about merges); Lee et al.: *RECIPE*, SOSP 2019 (its
//! conversion: changes of keys meet Condition #1, changes of the structure Condition #2).
//!
//! # Picture
//! ```text
//!   mapping table                          page 0, the root
//!   | 0: entry -|------------------------> | from the lowest key on: 3 | from "m" on: 5 |
//!   | 3: entry -|----------> leaf 3              |                           |
//!   | 5: entry -|---+        | header | slots | keys below "m", words |      |
//!   | ...       |   |                    + a change                     5 --+ right neighbour of 3
//!                   +------> leaf 5
//!                            | header | slots | keys from "m" on, words |
//! ```
//! * Pages are linked by numbers. The *mapping table* has an entry for each number: one word that
//!   says where the page lies. Each change of a page is one compare-and-swap of its entry, so no
//!   thread waits for another.
//! * A page's block is fixed once it is linked, but for its *slots*. A change of a key goes into a
//!   slot, and the entry counts the slot from its swap on. When all slots are used, the page is
//!   written anew, and the old block is retired.
//! * Each page has a low key, which never changes, a high key, and the number of its right
//!   neighbour, which begins there. So a page can be split in two steps, and merged in five
//!   (`room`, `post`, `merge`). A root with one child takes the content of that one (`collapse`).
//! * A page to which keys were added in a row is split behind them: rising keys leave full pages.
//! * In a pool without any memory a page can neither be written anew nor absorbed. Then, and only
//!   then, present keys are changed in place, under a lock (`in_place`).
//!
//! # What differs from the papers
//! * Changes are no chains of records. They lie in slots of the page's own block, as there they
//!   take no memory and are next to each other; and no record names the next one. An entry has a
//!   bit for each slot. So a writer that loses its swap gives its slot back, and one that dies
//!   loses nothing but the slot. Each slot names the place that it replaces, so the order of slots
//!   does not matter. This is the layout with the fewest states: a page is what its entry says.
//! * Inner pages have no slots. They change rarely, and a search in them is then only a search of
//!   sorted keys. Their changes are swaps of whole pages.
//! * A merge has no abort record, which stops all changes of the page above until its thread goes
//!   on. It freezes the right page instead, and any thread gives the merge up or completes it.
//! * The mapping table grows, and its numbers are used again.
//! * A page of byte strings leaves out the bytes that its low and high key have in common. It keeps
//!   the next eight of each key. A search reads a record only where these are the same.
//! * RECIPE flushes what it loads of the mapping table's entries of leaves. Here any entry that a
//!   thread relies on is made durable first, and its dirty bit says whether that is due.
//!
//! # Invariants
//! 1. A page's content is what its block and the slots say that its entry counts. Neither changes
//!    while a thread is pinned that has read the entry, unless the entry says *in place*.
//! 2. A block, and a slot, is durable before an entry leads to it. Each change of the set of keys
//!    is one swap of one entry: Condition #1.
//! 3. The low key of a number never changes while a page has it. The pages of a level, from the
//!    first one by high keys and right neighbours, have all keys once.
//! 4. A page below an inner page begins at the key that the inner page has for it. A page that the
//!    page above does not know is the right neighbour of one that it knows.
//! 5. Changes of the structure are rows of swaps. Each state between them is one that readers
//!    understand, and that the next writer completes or takes back: Condition #2.
//! 6. A frozen page takes no change. Nor does a doomed one, unless it is changed in place: then it
//!    is absorbed under that lock, too. A page is doomed only by a thread that has taken its key
//!    from the page above after the page was frozen (`merge`), or that has frozen the root after
//!    it (`collapse`).
//! 7. Readers and writers persist a dirty entry before they rely on it (see `entry`).
//! 8. A number is given to another page only once no thread is pinned that may know it.
//!
//! # Bad input
//! Keys of up to 64 KiB; no function recurses. An entry and a header are checked before they are
//! followed, and a page's content before it is copied. Levels fall and low keys rise along a way,
//! so no damage makes a loop.
//!
//! # Files
//! What is stored: `entry`, `page`, `slots`, `build`. The tree below its operations: `tree`
//! (entries), `table` (numbers), `spare` (blocks for a full pool), `find`, `many`, `live`. Above
//! it: `ops`, `change`, `in_place`, `room` (new pages, splits), `post`, `merge`, `collapse`,
//! `sweep`, `range`, `sample`, `trace`, `verify`, `stored`.

mod build;
mod change;
mod collapse;
mod entry;
mod find;
mod in_place;
mod live;
mod many;
mod merge;
mod ops;
mod page;
mod post;
mod range;
mod room;
mod sample;
mod slots;
mod spare;
mod stored;
mod sweep;
mod table;
mod trace;
mod tree;
mod verify;

pub use ops::BwTree;
pub use stored::BwShape;
