//! Reads `.BTF.ext`, which says which source line an instruction comes from, and which instructions depend on the
//! kernel's types.

use crate::btf::Btf;
use crate::bytes::{u16_at, u32_at};
use crate::error::ScxError;

const MAGIC: u16 = 0xeb9f;

/// A record of `.BTF.ext`: the section of the object that it describes, and its words.
pub(crate) struct Record {
    /// Name of the section.
    pub section: String,
    /// Offset of the instruction in the section, in bytes.
    pub offset: u32,
    /// The words that follow.
    pub words: [u32; 3],
}

/// Source lines and relocations.
#[derive(Default)]
pub(crate) struct Extension {
    /// Words: file name, source line's text, line and column.
    pub lines: Vec<Record>,
    /// Words: type, access string, kind.
    pub relocations: Vec<Record>,
}

/// Reads a `.BTF.ext` section. Its names are in `btf`.
pub(crate) fn parse(bytes: &[u8], btf: &Btf) -> Result<Extension, ScxError> {
    let bad = || ScxError::btf(".BTF.ext is cut off or unknown");
    if u16_at(bytes, 0) != Some(MAGIC) {
        return Err(bad());
    }
    let word = |at| u32_at(bytes, at).map(|value| value as usize);
    let header = word(4).ok_or_else(bad)?;
    let part = |at: usize| -> Result<Vec<Record>, ScxError> {
        // Older objects have a shorter header without relocations.
        if at + 8 > header {
            return Ok(Vec::new());
        }
        let place = || {
            let start = header.checked_add(word(at)?)?;
            bytes.get(start..start.checked_add(word(at + 4)?)?)
        };
        records(place().ok_or_else(bad)?, btf).ok_or_else(bad)
    };
    Ok(Extension { lines: part(16)?, relocations: part(24)? })
}

fn records(bytes: &[u8], btf: &Btf) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    if bytes.is_empty() {
        return Some(records);
    }
    let size = u32_at(bytes, 0)? as usize;
    if size < 16 {
        return None;
    }
    let mut at = 4;
    while at < bytes.len() {
        let section = btf.text(u32_at(bytes, at)?);
        let count = u32_at(bytes, at + 4)? as usize;
        at += 8;
        for _ in 0..count {
            let words = [u32_at(bytes, at + 4)?, u32_at(bytes, at + 8)?, u32_at(bytes, at + 12)?];
            records.push(Record { section: section.to_owned(), offset: u32_at(bytes, at)?, words });
            at += size;
        }
    }
    Some(records)
}
