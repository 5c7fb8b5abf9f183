//! The variants of the case study: which of the guidelines a layer follows.

/// How a full buffer gets into the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// By stores to the unit.
    InPlace,
    /// By a copy that is written in sequence, and pointers to it.
    OutOfPlace,
}

/// What a layer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpotVariant {
    /// How buffers are merged; none if there are no buffers.
    pub merge: Option<Merge>,
    /// Whether the search path is in DRAM, too.
    pub caches: bool,
    /// Whether what is buffered is in a log, so that a put is durable when it returns.
    pub logs: bool,
}

impl SpotVariant {
    /// The index as published.
    pub const BASE: Self = Self { merge: None, caches: false, logs: false };
    /// With buffers.
    pub const B: Self = Self { merge: Some(Merge::InPlace), ..Self::BASE };
    /// With buffers that are merged out of place.
    pub const BO: Self = Self { merge: Some(Merge::OutOfPlace), ..Self::BASE };
    /// With all guidelines.
    pub const BOC: Self = Self { caches: true, ..Self::BO };

    /// All of the case study.
    pub const ALL: [Self; 7] = [
        Self::BASE,
        Self::B,
        Self::BO,
        Self::BOC,
        Self::B.with_log(),
        Self::BO.with_log(),
        Self::BOC.with_log(),
    ];

    /// The same with a log.
    pub const fn with_log(self) -> Self {
        Self { logs: true, ..self }
    }

    /// Its name in the thesis.
    pub const fn name(self) -> &'static str {
        match (self.merge, self.caches, self.logs) {
            (None, _, _) => "base",
            (Some(Merge::InPlace), _, false) => "B",
            (Some(Merge::InPlace), _, true) => "B + log",
            (Some(Merge::OutOfPlace), false, false) => "BO",
            (Some(Merge::OutOfPlace), false, true) => "BO + log",
            (Some(Merge::OutOfPlace), true, false) => "BOC",
            (Some(Merge::OutOfPlace), true, true) => "BOC + log",
        }
    }
}
