//! The targets of indexes, each with integers and with byte strings as keys.

use super::histories::*;
use super::index::{Index, layered};
use super::trees;
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::ordered::{Art, BwTree, Hot, Masstree, SpTree};
use terrace_index::{Bytes, U64};
use terrace_medium::MappedMedium;
use terrace_testkit::TestRecord;
use terrace_testkit::crash::{Plan, Target};

/// P-CLHT with `u64` keys.
pub struct ClhtU64;
/// P-CLHT with byte strings.
pub struct ClhtBytes;
/// P-CLHT with byte strings, whose gets are those of a reader elsewhere.
pub struct ClhtRemote;
/// TurboHash with `u64` keys.
pub struct TurboU64;
/// TurboHash with byte strings.
pub struct TurboBytes;
/// Rewo-Hash with `u64` keys.
pub struct RewoU64;
/// Rewo-Hash with byte strings.
pub struct RewoBytes;
/// Level hashing with `u64` keys.
pub struct LevelU64;
/// Level hashing with byte strings.
pub struct LevelBytes;
/// P-ART with `u64` keys.
pub struct ArtU64;
/// P-ART with byte strings.
pub struct ArtBytes;
/// P-Masstree with `u64` keys, and nodes of at most three.
pub struct MasstreeU64;
/// P-Masstree with byte strings, and nodes of at most three.
pub struct MasstreeBytes;
/// SPTree with `u64` keys, and nodes of at most four.
pub struct SpTreeU64;
/// SPTree with byte strings, and nodes of at most four.
pub struct SpTreeBytes;
/// P-HOT with `u64` keys.
pub struct HotU64;
/// P-HOT with byte strings.
pub struct HotBytes;
/// P-BwTree with `u64` keys.
pub struct BwTreeU64;
/// P-BwTree with byte strings.
pub struct BwTreeBytes;

impl Target for ClhtU64 {
    const NAME: &'static str = "clht";
    const BYTES: (usize, usize) = (64 << 10, 64 << 10);
    type Subject<M: MappedMedium> = Index<Clht<M, U64>>;

    fn plan(seed: u64) -> Plan {
        plan::<U64>(seed, 3)
    }
}

impl Target for ClhtBytes {
    const NAME: &'static str = "clht-bytes";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = Index<Clht<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        plan::<Bytes<TestRecord>>(seed, 6)
    }
}

impl Target for ClhtRemote {
    const NAME: &'static str = "clht-remote";
    const BYTES: (usize, usize) = ClhtBytes::BYTES;
    const WITHOUT_CACHE: bool = false;
    type Subject<M: MappedMedium> = Index<Clht<M, Bytes<TestRecord>>, true>;

    fn plan(seed: u64) -> Plan {
        ClhtBytes::plan(seed)
    }
}

impl Target for TurboU64 {
    const NAME: &'static str = "turbo";
    const BYTES: (usize, usize) = (64 << 10, 64 << 10);
    const WITHOUT_CACHE: bool = false;
    type Subject<M: MappedMedium> = Index<Turbo<M, U64>>;

    fn plan(seed: u64) -> Plan {
        turbo_plan::<U64>(seed, 14)
    }
}

impl Target for TurboBytes {
    const NAME: &'static str = "turbo-bytes";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = Index<Turbo<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        turbo_plan::<Bytes<TestRecord>>(seed, 27)
    }
}

impl Target for RewoU64 {
    const NAME: &'static str = "rewo";
    const BYTES: (usize, usize) = (64 << 10, 64 << 10);
    type Subject<M: MappedMedium> = Index<Rewo<M, U64>>;

    fn plan(seed: u64) -> Plan {
        rewo_plan::<U64>(seed, 14)
    }
}

impl Target for RewoBytes {
    const NAME: &'static str = "rewo-bytes";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = Index<Rewo<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        rewo_plan::<Bytes<TestRecord>>(seed, 27)
    }
}

impl Target for LevelU64 {
    const NAME: &'static str = "level";
    const BYTES: (usize, usize) = (64 << 10, 64 << 10);
    type Subject<M: MappedMedium> = Index<Level<M, U64>>;

    fn plan(seed: u64) -> Plan {
        level_plan::<U64>(seed, 21)
    }
}

impl Target for LevelBytes {
    const NAME: &'static str = "level-bytes";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    const WITHOUT_CACHE: bool = false;
    type Subject<M: MappedMedium> = Index<Level<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        level_plan::<Bytes<TestRecord>>(seed, 42)
    }
}

impl Target for ArtU64 {
    const NAME: &'static str = "art";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = Index<Art<M, U64>>;

    fn plan(seed: u64) -> Plan {
        trees::plan::<U64>(seed)
    }
}

impl Target for ArtBytes {
    const NAME: &'static str = "art-bytes";
    const BYTES: (usize, usize) = (128 << 10, 128 << 10);
    type Subject<M: MappedMedium> = Index<Art<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        trees::plan::<Bytes<TestRecord>>(seed)
    }
}

impl Target for MasstreeU64 {
    const NAME: &'static str = "masstree";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = Index<Masstree<M, U64>>;

    fn plan(seed: u64) -> Plan {
        trees::plan::<U64>(seed)
    }
}

impl Target for MasstreeBytes {
    const NAME: &'static str = "masstree-bytes";
    const BYTES: (usize, usize) = (128 << 10, 128 << 10);
    type Subject<M: MappedMedium> = Index<Masstree<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        trees::plan::<Bytes<TestRecord>>(seed)
    }
}

impl Target for SpTreeU64 {
    const NAME: &'static str = "sptree";
    const BYTES: (usize, usize) = (128 << 10, 128 << 10);
    type Subject<M: MappedMedium> = Index<SpTree<M, U64>>;

    fn plan(seed: u64) -> Plan {
        layered(trees::plan::<U64>(seed))
    }
}

impl Target for SpTreeBytes {
    const NAME: &'static str = "sptree-bytes";
    const BYTES: (usize, usize) = (128 << 10, 128 << 10);
    type Subject<M: MappedMedium> = Index<SpTree<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        layered(trees::plan::<Bytes<TestRecord>>(seed))
    }
}

impl Target for HotU64 {
    const NAME: &'static str = "hot";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = Index<Hot<M, U64>>;

    fn plan(seed: u64) -> Plan {
        trees::small_plan::<U64>(seed)
    }
}

impl Target for HotBytes {
    const NAME: &'static str = "hot-bytes";
    const BYTES: (usize, usize) = (128 << 10, 128 << 10);
    type Subject<M: MappedMedium> = Index<Hot<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        trees::small_plan::<Bytes<TestRecord>>(seed)
    }
}

impl HotBytes {
    /// A plan over these keys, which are in order, for a script: without operations.
    pub fn plan_over(seed: u64, keys: &[&[u8]]) -> Plan {
        trees::plan_over::<Bytes<TestRecord>>(seed, keys)
    }
}

impl HotU64 {
    /// A plan over these keys, which are in order, for a script: without operations.
    pub fn plan_over(seed: u64, keys: &[u64]) -> Plan {
        trees::plan_over_integers(seed, keys)
    }
}

impl Target for BwTreeU64 {
    const NAME: &'static str = "bwtree";
    const BYTES: (usize, usize) = (128 << 10, 128 << 10);
    type Subject<M: MappedMedium> = Index<BwTree<M, U64>>;

    fn plan(seed: u64) -> Plan {
        trees::bw_plan::<U64>(seed)
    }
}

impl Target for BwTreeBytes {
    const NAME: &'static str = "bwtree-bytes";
    const BYTES: (usize, usize) = (128 << 10, 128 << 10);
    type Subject<M: MappedMedium> = Index<BwTree<M, Bytes<TestRecord>>>;

    fn plan(seed: u64) -> Plan {
        trees::bw_plan::<Bytes<TestRecord>>(seed)
    }
}

impl ArtBytes {
    /// A plan over these keys, which are in order, for a script: without operations.
    pub fn plan_over(seed: u64, keys: &[&[u8]]) -> Plan {
        trees::plan_over::<Bytes<TestRecord>>(seed, keys)
    }
}

impl ArtU64 {
    /// A plan over these keys, which are in order, for a script: without operations.
    pub fn plan_over(seed: u64, keys: &[u64]) -> Plan {
        trees::plan_over_integers(seed, keys)
    }
}
