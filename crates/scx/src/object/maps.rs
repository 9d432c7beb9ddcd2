//! Maps: variables of the section `.maps`. Their type describes the map.

use super::{Elf, data};
use crate::btf::{Btf, Kind, TypeId};
use crate::error::ScxError;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use serde::{Deserialize, Serialize};

/// A map, as the object defines it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapDefinition {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: MapKind,
    /// Size of a key, in bytes.
    pub key_size: u32,
    /// Size of a value, in bytes.
    pub value_size: u32,
    /// Largest number of entries.
    pub max_entries: u32,
    /// BPF_F_ flags.
    pub flags: u32,
    /// Type of the value, as a number in the object. 0: not given.
    pub value: TypeId,
    /// `map_extra`: for an arena, the address of its first page.
    pub extra: u64,
}

/// The kind of a map: the kernel's `enum bpf_map_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapKind(pub u32);

/// Kinds of maps that sched_ext schedulers use, by number.
const NAMES: [(u32, &str); 14] = [
    (1, "hash"),
    (2, "array"),
    (4, "perf_event_array"),
    (5, "percpu_hash"),
    (6, "percpu_array"),
    (9, "lru_hash"),
    (12, "array_of_maps"),
    (13, "hash_of_maps"),
    (22, "queue"),
    (27, "ringbuf"),
    (29, "task_storage"),
    (31, "user_ringbuf"),
    (32, "cgrp_storage"),
    (33, "arena"),
];

impl std::fmt::Display for MapKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "map type {}", self.0),
        }
    }
}

/// Reads all maps, each with its offset in the section.
pub(crate) fn read(elf: &Elf, btf: &Btf) -> Result<Vec<(u64, MapDefinition)>, ScxError> {
    let Some(section) = elf.section_by_name(".maps") else { return Ok(Vec::new()) };
    let mut maps = Vec::new();
    for variable in data::variables_of(btf, ".maps") {
        let name = btf.name(variable.variable);
        let symbol = elf.symbols().find(|symbol| {
            symbol.section_index() == Some(section.index()) && symbol.name() == Ok(name)
        });
        let offset = symbol.map_or(variable.offset.into(), |symbol| symbol.address());
        let Kind::Variable { of, .. } = *btf.kind(variable.variable) else { continue };
        let map = definition(btf, name, of)
            .ok_or_else(|| ScxError::broken(format!("map {name}: its definition is unknown")))?;
        maps.push((offset, map));
    }
    Ok(maps)
}

fn definition(btf: &Btf, name: &str, of: TypeId) -> Option<MapDefinition> {
    let of = btf.plain(of);
    let Kind::Composite { .. } = btf.kind(of) else { return None };
    // `__uint(name, N)` declares a pointer to an array of N elements.
    let number = |field: &str| -> Option<Option<u32>> {
        let Some((member, _)) = btf.member(of, field) else { return Some(None) };
        let Kind::Pointer(to) = btf.kind(btf.plain(member.of)) else { return None };
        let Kind::Array { count, .. } = btf.kind(btf.plain(*to)) else { return None };
        Some(Some(*count))
    };
    // `__type(name, T)` declares a pointer to T.
    let pointee = |field: &str| -> Option<TypeId> {
        let (member, _) = btf.member(of, field)?;
        let Kind::Pointer(to) = btf.kind(btf.plain(member.of)) else { return None };
        Some(*to)
    };
    // `__ulong(name, N)` declares an enum with the one value N.
    let long = |field: &str| -> Option<Option<u64>> {
        let Some((member, _)) = btf.member(of, field) else { return Some(None) };
        match btf.kind(btf.plain(member.of)) {
            Kind::Enum { values, .. } => values.first().map(|(_, value)| Some(*value as u64)),
            _ => number(field).map(|short| short.map(u64::from)),
        }
    };
    let (key, value) = (pointee("key"), pointee("value"));
    let size = |of: Option<TypeId>| of.and_then(|of| btf.size(of));
    Some(MapDefinition {
        name: name.to_owned(),
        kind: MapKind(number("type")??),
        key_size: number("key_size")?.or(size(key)).unwrap_or(0),
        value_size: number("value_size")?.or(size(value)).unwrap_or(0),
        max_entries: number("max_entries")?.unwrap_or(0),
        flags: number("map_flags")?.unwrap_or(0),
        value: value.unwrap_or(0),
        extra: long("map_extra")?.unwrap_or(0),
    })
}
