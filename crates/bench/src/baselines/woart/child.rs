//! The word that names a child.

/// The kind of a child, in the low bits of the word that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    None = 0,
    Leaf = 1,
    Four = 2,
    Sixteen = 3,
    FortyEight = 4,
    All = 5,
}

const KIND_MASK: u64 = 7;

impl Kind {
    /// The smallest kind with room for so many children.
    pub(super) fn for_children(count: usize) -> Self {
        let all = [Self::Four, Self::Sixteen, Self::FortyEight];
        all.into_iter().find(|kind| count <= kind.most()).unwrap_or(Self::All)
    }

    /// Most children.
    pub(super) fn most(self) -> usize {
        match self {
            Self::None | Self::Leaf => 0,
            Self::Four => 4,
            Self::Sixteen => 16,
            Self::FortyEight => 48,
            Self::All => 256,
        }
    }
}

/// A word that names a child: its offset, a multiple of 8, and its kind. 0 names none.
#[derive(Clone, Copy)]
pub(super) struct Child(pub(super) u64);

impl Child {
    pub(super) fn to(kind: Kind, offset: u64) -> Self {
        assert!(offset & KIND_MASK == 0, "a child at {offset:#x}");
        Self(offset | kind as u64)
    }

    pub(super) fn kind(self) -> Kind {
        match self.0 & KIND_MASK {
            0 => Kind::None,
            1 => Kind::Leaf,
            2 => Kind::Four,
            3 => Kind::Sixteen,
            4 => Kind::FortyEight,
            _ => Kind::All,
        }
    }

    pub(super) fn offset(self) -> u64 {
        self.0 & !KIND_MASK
    }
}
