//! Cgroups and processes in the scheduler's tables (`bpf/sets.h`, `bpf/home.h`), both called sets: reads where they
//! settled, and writes what the scheduler needs to know about their memory.
//!
//! Nodes have the kernel's numbers here. The scheduler's tables leave out nodes without CPUs, and number the others
//! from 0.

use std::mem::size_of;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use roost_layout::Layout;
use roost_policy::cling;

use crate::error::LiveError;
use crate::skeleton::{RoostSkel, types};

/// `NONE` in `bpf/state.h`.
const NONE: u32 = u32::MAX;

/// `PROCESS_ID` in `bpf/sets.h`.
const PROCESS_ID: u64 = 1 << 63;

/// `SET_EXCLUDED` in `bpf/sets.h`.
const EXCLUDED: u32 = 1;

/// The kind of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A cgroup. Its id is the inode number of its directory.
    Group,
    /// A process with several threads. Its id is its process number.
    Process,
}

/// A cgroup or a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetState {
    /// Index in the tables. The index may be reused for another set later, so compare `id` too.
    pub index: u32,
    /// See [`Kind`].
    pub id: u64,
    /// The node that the set settled on.
    pub preferred: Option<u32>,
    /// When the set settled there (CLOCK_MONOTONIC, ns).
    pub settled_at: u64,
    /// When the process started (CLOCK_BOOTTIME, ns). 0 for a cgroup.
    pub started: u64,
}

/// A node of the scheduler, and the nodes whose memory counts as its own: the node itself, and near nodes without CPUs.
#[derive(Clone, Debug)]
struct Place {
    number: u32,
    memory_of: Vec<u32>,
}

/// Handles of the scheduler's tables. They stay valid when the scheduler ends, but then nothing changes any more.
#[derive(Debug)]
pub struct Sets {
    sets: MapHandle,
    ids: MapHandle,
    memory: MapHandle,
    moves: MapHandle,
    flags: MapHandle,
    homes: MapHandle,
    data: MapHandle,
    busiest_at: usize,
    degree: u32,
    places: Vec<Place>,
}

impl Sets {
    /// The tables of a loaded scheduler. `degree` is the percentage of failed attempts from which a node may count as
    /// busy.
    pub(crate) fn new(skel: &RoostSkel, layout: &Layout, degree: u32) -> Result<Self, LiveError> {
        let handle = |map: &libbpf_rs::MapImpl<libbpf_rs::Mut>| MapHandle::try_from(map);
        let maps = &skel.maps;
        let places = layout.nodes.iter();
        Ok(Self {
            sets: handle(&maps.sets).map_err(failed)?,
            ids: handle(&maps.set_ids).map_err(failed)?,
            memory: handle(&maps.set_memory).map_err(failed)?,
            moves: handle(&maps.set_moves).map_err(failed)?,
            flags: handle(&maps.set_flags).map_err(failed)?,
            homes: handle(&maps.homes).map_err(failed)?,
            data: handle(&maps.data).map_err(failed)?,
            busiest_at: std::mem::offset_of!(types::data, busiest),
            degree,
            places: places
                .map(|node| Place { number: node.number, memory_of: node.memory_of.clone() })
                .collect(),
        })
    }

    /// All sets of a kind.
    pub fn all(&self, kind: Kind) -> Result<Vec<SetState>, LiveError> {
        let mut all = Vec::new();
        for key in self.ids.keys() {
            let id = u64::from_ne_bytes(key.try_into().unwrap_or_default());
            if (id & PROCESS_ID != 0) != (kind == Kind::Process) {
                continue;
            }
            let Some(index) = lookup::<u32>(&self.ids, &id.to_ne_bytes())? else { continue };
            all.extend(self.one(index, id)?);
        }
        Ok(all)
    }

    /// The set with this id, if the scheduler has it in its tables.
    pub fn find(&self, kind: Kind, id: u64) -> Result<Option<SetState>, LiveError> {
        let id = if kind == Kind::Process { id | PROCESS_ID } else { id };
        match lookup::<u32>(&self.ids, &id.to_ne_bytes())? {
            Some(index) => self.one(index, id),
            None => Ok(None),
        }
    }

    /// One set. `None` if the scheduler has dropped it meanwhile.
    fn one(&self, index: u32, id: u64) -> Result<Option<SetState>, LiveError> {
        let Some(set) = lookup::<types::roost_set>(&self.sets, &index.to_ne_bytes())? else {
            return Ok(None);
        };
        if set.id != id {
            return Ok(None);
        }
        Ok(Some(SetState {
            index,
            id: id & !PROCESS_ID,
            preferred: self.places.get(set.preferred as usize).map(|place| place.number),
            settled_at: set.settled_at,
            started: set.started,
        }))
    }

    /// Tells the scheduler how much memory a set has: pages of 4 KiB by the kernel's node number. Nodes that are not
    /// named have none. Memory on nodes without CPUs counts for the nearest node with CPUs.
    pub fn set_memory(&self, index: u32, pages: &[(u32, u64)]) -> Result<(), LiveError> {
        for (number, place) in (0..).zip(&self.places) {
            let own = pages.iter().filter(|(node, _)| place.memory_of.contains(node));
            let sum: u64 = own.map(|(_, pages)| pages).sum();
            let key = (index * self.places.len() as u32 + number).to_ne_bytes();
            self.memory.update(&key, &sum.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        }
        Ok(())
    }

    /// Tells the scheduler whether pages of a set are being moved to the set's node.
    pub fn set_moving(&self, index: u32, moving: bool) -> Result<(), LiveError> {
        let moves = u32::from(moving).to_ne_bytes();
        self.moves.update(&index.to_ne_bytes(), &moves, MapFlags::ANY).map_err(failed)
    }

    /// Sets whether a set is excluded: an excluded set does not settle.
    pub fn exclude(&self, index: u32, excluded: bool) -> Result<(), LiveError> {
        let flags = if excluded { EXCLUDED } else { 0 };
        self.flags.update(&index.to_ne_bytes(), &flags.to_ne_bytes(), MapFlags::ANY).map_err(failed)
    }

    /// The busy nodes, by the kernel's numbers. No set clings to them at present.
    pub fn busy_nodes(&self) -> Result<Vec<u32>, LiveError> {
        let data = self.data.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        let bytes = data.as_ref().and_then(|all| all.get(self.busiest_at..self.busiest_at + 4));
        let busiest = bytes.map_or(NONE, |b| u32::from_ne_bytes(b.try_into().unwrap_or_default()));
        let mut all = Vec::new();
        for (number, place) in (0_u32..).zip(&self.places) {
            let home = lookup::<types::roost_home>(&self.homes, &number.to_ne_bytes())?;
            let home = home.unwrap_or_default();
            let attempts = cling::NodeAttempts {
                failed: home.attempts.failed,
                tried: home.attempts.tried,
                ratio: home.attempts.ratio,
            };
            if attempts.busy(number, (busiest != NONE).then_some(busiest), self.degree) {
                all.push(place.number);
            }
        }
        Ok(all)
    }
}

fn failed(error: libbpf_rs::Error) -> LiveError {
    LiveError::Tables(error.to_string())
}

/// Reads a value of a table.
fn lookup<T: Copy>(map: &MapHandle, key: &[u8]) -> Result<Option<T>, LiveError> {
    let value = map.lookup(key, MapFlags::ANY).map_err(failed)?;
    // SAFETY: there are enough bytes, and all values are integers or structs of integers, for which any bytes are
    // valid.
    let read = |bytes: Vec<u8>| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast::<T>()) };
    Ok(value.filter(|bytes| bytes.len() >= size_of::<T>()).map(read))
}
