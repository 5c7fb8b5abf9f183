//! Pieces of a table: their compression and their checksums; and its foot.

use crate::DiskError;
use crate::codec::{Reader, checksum};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use terrace_medium::files::StoredFile;

/// Bytes behind a piece's own.
pub(super) const TRAILER: usize = 9;
/// Bytes of the foot.
pub(super) const FOOT: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"terrtabl");
const FORMAT: u32 = 1;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;
/// LZ4 makes no byte of more than this many.
const EXPANDED_MAX: usize = 255;

/// Where a piece lies, with its trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// The seed of a piece's checksum.
fn seed(table: u64, offset: u64) -> u64 {
    table.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset
}

/// Appends a piece, which will lie at `offset`, to `out`, compressed if that saves an eighth.
pub(super) fn put_piece(out: &mut Vec<u8>, bytes: &[u8], table: u64, offset: u64, compress: bool) {
    let start = out.len();
    let compressed = compress.then(|| lz4_flex::block::compress_prepend_size(bytes));
    match compressed.filter(|shorter| shorter.len() < bytes.len() - bytes.len() / 8) {
        Some(shorter) => {
            out.extend_from_slice(&shorter);
            out.push(LZ4);
        }
        None => {
            out.extend_from_slice(bytes);
            out.push(PLAIN);
        }
    }
    seal(out, start, table, offset);
}

/// Appends the checksum of the piece that begins at `start`.
pub(super) fn seal(out: &mut Vec<u8>, start: usize, table: u64, offset: u64) {
    let sum = checksum(&out[start..], seed(table, offset));
    out.extend_from_slice(&sum.to_le_bytes());
}

/// The pieces of a table in its file.
pub(super) struct Pieces {
    pub(super) file: Box<dyn StoredFile>,
    pub(super) path: PathBuf,
    pub(super) table: u64,
    /// Bytes of the file.
    pub(super) length: u64,
}

impl Pieces {
    pub(super) fn corrupt(&self, offset: u64, what: &'static str) -> DiskError {
        DiskError::corrupt(&self.path, offset, what)
    }

    /// Reads a piece and compares it with its checksum.
    pub(super) fn read(&self, place: Place) -> Result<Vec<u8>, DiskError> {
        let mut bytes = Vec::new();
        self.read_raw(place.offset, u64::from(place.bytes), &mut bytes)?;
        let len = match self.unpack(&bytes, place)? {
            Cow::Owned(expanded) => return Ok(expanded),
            Cow::Borrowed(content) => content.len(),
        };
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Fills `bytes` with those of the file from `offset` on.
    pub(super) fn read_raw(&self, offset: u64, bytes: u64, into: &mut Vec<u8>) -> Result<(), DiskError> {
        // Before there is memory for it.
        if offset.checked_add(bytes).is_none_or(|end| end > self.length) {
            return Err(self.corrupt(offset, "a part of a table lies behind the end of the file"));
        }
        into.resize(bytes as usize, 0);
        self.file.read_exact_at(into, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.corrupt(offset, "the file ends within a part of a table")
            }
            std::io::ErrorKind::InvalidData => {
                self.corrupt(offset, "another file has come into the place of the table")
            }
            _ => DiskError::io("read", &self.path)(error),
        })
    }

    /// What the piece of these bytes holds.
    pub(super) fn unpack<'b>(&self, bytes: &'b [u8], place: Place) -> Result<Cow<'b, [u8]>, DiskError> {
        let corrupt = |what| self.corrupt(place.offset, what);
        let Some((content, [kind, sum @ ..])) = bytes.split_last_chunk::<TRAILER>() else {
            return Err(corrupt("a part of a table is too short"));
        };
        let summed = &bytes[..=content.len()];
        if checksum(summed, seed(self.table, place.offset)).to_le_bytes() != *sum {
            return Err(corrupt("a part of a table does not fit its checksum"));
        }
        match *kind {
            PLAIN => Ok(Cow::Borrowed(content)),
            LZ4 => {
                let expanded = expand(content).ok_or_else(|| corrupt("a part of a table does not expand"));
                expanded.map(Cow::Owned)
            }
            _ => Err(corrupt("a part of a table is compressed in an unknown way")),
        }
    }
}

fn expand(bytes: &[u8]) -> Option<Vec<u8>> {
    let size = Reader(bytes).u32()? as usize;
    (size / EXPANDED_MAX <= bytes.len()).then(|| lz4_flex::block::decompress_size_prepended(bytes).ok())?
}

/// The end of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foot {
    pub(super) table: u64,
    pub(super) store: u64,
    pub(super) top: Place,
    /// Bytes of the properties, which follow the top.
    pub(super) properties: u32,
}

impl Foot {
    pub(super) fn properties_place(&self) -> Place {
        Place { offset: self.top.offset + u64::from(self.top.bytes), bytes: self.properties }
    }

    pub(super) fn to_bytes(self) -> [u8; FOOT] {
        let mut out = Vec::with_capacity(FOOT);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&self.table.to_le_bytes());
        out.extend_from_slice(&self.top.offset.to_le_bytes());
        out.extend_from_slice(&self.top.bytes.to_le_bytes());
        out.extend_from_slice(&self.properties.to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        out.resize(FOOT - 8, 0);
        out.extend_from_slice(&checksum(&out, 0).to_le_bytes());
        out.try_into().expect("as many bytes as a foot has")
    }

    /// Reads the foot of a file of `length` bytes.
    pub(super) fn read(file: &dyn StoredFile, path: &Path, length: u64) -> Result<Self, DiskError> {
        let corrupt = |what| DiskError::corrupt(path, length.saturating_sub(FOOT as u64), what);
        let at =
            length.checked_sub(FOOT as u64).ok_or_else(|| corrupt("the file is too short for a table"))?;
        let mut bytes = [0; FOOT];
        file.read_exact_at(&mut bytes, at).map_err(DiskError::io("read", path))?;
        let mut reader = Reader(&bytes);
        if reader.u64() != Some(MAGIC) {
            return Err(corrupt("the file does not end as a table does"));
        }
        let format = reader.u32().unwrap_or(0);
        // Every format has its checksum there.
        if checksum(&bytes[..FOOT - 8], 0).to_le_bytes() != bytes[FOOT - 8..] {
            return Err(corrupt("the end of the table does not fit its checksum"));
        }
        if format > FORMAT {
            return Err(DiskError::Newer { path: path.into(), format, known: FORMAT });
        }
        let mut rest = || {
            reader.u32()?;
            let (table, offset, bytes) = (reader.u64()?, reader.u64()?, reader.u32()?);
            let (properties, store) = (reader.u32()?, reader.u64()?);
            Some(Self { table, store, top: Place { offset, bytes }, properties })
        };
        let foot: Self = rest().ok_or_else(|| corrupt("the end of the table is incomplete"))?;
        let pieces = u64::from(foot.top.bytes) + u64::from(foot.properties);
        if foot.top.offset.checked_add(pieces) != Some(at) {
            return Err(corrupt("the file does not have the length of its table"));
        }
        Ok(foot)
    }
}
