//! The scheduler's tables of cgroups and processes (`bpf/sets.h`, `bpf/home.h`) in the kernel.

use std::mem::size_of;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use roost_layout::{NONE, SetEntry, Tables};
use roost_policy::cling::NodeAttempts;

use crate::error::LiveError;
use crate::skeleton::{RoostSkel, types};

/// Handles of the tables. They stay valid when the scheduler ends, but then nothing changes any more.
#[derive(Debug)]
pub struct Handles {
    sets: MapHandle,
    ids: MapHandle,
    memory: MapHandle,
    moves: MapHandle,
    flags: MapHandle,
    homes: MapHandle,
    data: MapHandle,
}

impl Handles {
    /// The tables of a loaded scheduler.
    pub(crate) fn of(skel: &RoostSkel) -> Result<Self, LiveError> {
        let handle = |map: &libbpf_rs::MapImpl<libbpf_rs::Mut>| {
            MapHandle::try_from(map).map_err(|error| LiveError::Tables(error.to_string()))
        };
        let maps = &skel.maps;
        Ok(Self {
            sets: handle(&maps.sets)?,
            ids: handle(&maps.set_ids)?,
            memory: handle(&maps.set_memory)?,
            moves: handle(&maps.set_moves)?,
            flags: handle(&maps.set_flags)?,
            homes: handle(&maps.homes)?,
            data: handle(&maps.data)?,
        })
    }
}

impl Tables for Handles {
    fn ids(&mut self) -> Vec<u64> {
        self.ids.keys().map(|key| u64::from_ne_bytes(key.try_into().unwrap_or_default())).collect()
    }

    fn index(&mut self, id: u64) -> Option<u32> {
        lookup(&self.ids, &id.to_ne_bytes())
    }

    fn set(&mut self, index: u32) -> Option<SetEntry> {
        let set = lookup::<types::roost_set>(&self.sets, &index.to_ne_bytes())?;
        let types::roost_set { id, preferred, settled_at, started, .. } = set;
        Some(SetEntry { id, preferred, settled_at, started })
    }

    fn attempts(&mut self, node: u32) -> NodeAttempts {
        let home = lookup::<types::roost_home>(&self.homes, &node.to_ne_bytes());
        let attempts = home.unwrap_or_default().attempts;
        NodeAttempts { failed: attempts.failed, tried: attempts.tried, ratio: attempts.ratio }
    }

    fn busiest(&mut self) -> u32 {
        let at = std::mem::offset_of!(types::data, busiest);
        let data = self.data.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let bytes = data.as_ref().and_then(|all| all.get(at..at + 4));
        bytes.map_or(NONE, |bytes| u32::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    }

    fn write_memory(&mut self, index: u32, pages: u64) {
        write(&self.memory, index, &pages.to_ne_bytes());
    }

    fn write_moves(&mut self, index: u32, moves: u32) {
        write(&self.moves, index, &moves.to_ne_bytes());
    }

    fn write_flags(&mut self, index: u32, flags: u32) {
        write(&self.flags, index, &flags.to_ne_bytes());
    }
}

/// Writes a value of a table. A failed write is tried again with the next report.
fn write(map: &MapHandle, index: u32, value: &[u8]) {
    let _ = map.update(&index.to_ne_bytes(), value, MapFlags::ANY);
}

/// Reads a value of a table.
fn lookup<T: Copy>(map: &MapHandle, key: &[u8]) -> Option<T> {
    let value = map.lookup(key, MapFlags::ANY).ok()?;
    // SAFETY: there are enough bytes, and all values are integers or structs of integers, for which any bytes are
    // valid.
    let read = |bytes: Vec<u8>| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast::<T>()) };
    value.filter(|bytes| bytes.len() >= size_of::<T>()).map(read)
}
