//! Runs programs that a loader starts before it attaches its scheduler, and whose results it reads: those of an arena.
//!
//! The loader maps the values of arrays and the pages of the arena, and reads and writes them between two runs. So they
//! are copied in before a run, and what has changed is copied out after it. Pages are copied when the program accesses
//! them, because an arena may have many.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use roost_engine::World;
use roost_machine::Machine;

use crate::arena::PAGE;
use crate::error::ScxError;
use crate::instruction::Instruction;
use crate::interpret::{self, Callee, Host, Stop};
use crate::kernel::{Call, Kernel};
use crate::kernel_types::KernelTypes;
use crate::kfuncs;
use crate::lines::Lines;
use crate::maps::{ARENA, is_array};
use crate::masks;
use crate::memory::Memory;
use crate::object::Target;
use crate::program::Program;
use crate::takeover::{Became, Loaded};

/// What a loader has mapped: for each of its maps, by number, a file with the values of an array, or the pages of an
/// arena.
pub trait Store {
    /// Reads bytes from a place of a map's file. What is beyond its end is 0.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&self, map: usize, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes bytes to a place of a map's file.
    ///
    /// # Errors
    /// If they cannot be written.
    fn write(&self, map: usize, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// The ranges of a map's file that are not holes.
    fn data(&self, map: usize) -> Vec<Range<u64>>;
}

/// Functions whose effects would be lost when the scheduler starts, because only pages of an arena and masks stay.
const LOST: [&str; 2] = ["bpf_arena_free_pages", "bpf_arena_reserve_pages"];

/// Time between ticks of the kernel that a loader sees (CONFIG_HZ=250), in ns.
const TICK_NS: u64 = 4_000_000;

/// Where values of an array are: the map, the offset in its file, the address and the length.
struct Piece {
    map: usize,
    at: u64,
    address: u64,
    len: usize,
}

/// The masks that programs have made before the scheduler starts: the words of each, by number.
pub type EarlyMasks = Vec<Vec<u64>>;

/// A program that can be run before its scheduler starts.
pub struct Early {
    object: Arc<crate::Object>,
    code: Vec<Instruction>,
    kernel: Kernel,
    world: World,
    entry: usize,
    pieces: Vec<Piece>,
    /// Number of the loader's map that is the arena.
    arena: Option<usize>,
    /// Numbers of the masks that this program knows, by address.
    masks: BTreeMap<u64, u32>,
}

impl Early {
    /// Prepares a program of a loader that believes to run on a machine, and a kernel with these types.
    ///
    /// # Errors
    /// If what the loader gave contradicts itself, or the program needs something that the simulation does not have.
    pub fn new(
        loaded: &Loaded,
        number: usize,
        kernel: impl Into<Arc<KernelTypes>>,
        machine: &Arc<Machine>,
    ) -> Result<Self, ScxError> {
        let (program, places) = Program::taken_over_alone(loaded, kernel, number)?;
        program.check()?;
        let (kernel, code) = Kernel::load(machine, &program, TICK_NS)?;
        let entry = program.runs.first().map_or(0, |run| run.at);
        let mut early = Self {
            object: program.object.clone(),
            code,
            kernel,
            world: World::new(machine.clone(), 1),
            entry,
            pieces: Vec::new(),
            arena: None,
            masks: BTreeMap::new(),
        };
        for (map, place) in places.into_iter().enumerate() {
            early.share(map, place)?;
        }
        Ok(early)
    }

    /// Notes where values are that the program can reach.
    fn share(&mut self, map: usize, place: Became) -> Result<(), ScxError> {
        let reaches = |wanted: &dyn Fn(Target) -> bool| {
            self.object.references.iter().any(|reference| wanted(reference.to))
        };
        let nr_cpus = self.kernel.machine.nr_cpus();
        let pieces = match place {
            Became::Map(own) if self.kernel.maps[own].definition.kind == ARENA => {
                self.arena = Some(map);
                return Ok(());
            }
            Became::Map(own) if reaches(&|to| matches!(to, Target::Map(map) if map == own)) => {
                let own = &self.kernel.maps[own];
                let (name, kind) = (&own.definition.name, own.definition.kind);
                if !is_array(kind) {
                    return Err(ScxError::Lacks(format!("map {name} ({kind}) before the start")));
                }
                own.pieces(nr_cpus)
            }
            Became::Data(own)
                if reaches(&|to| matches!(to, Target::Data { section, .. } if section == own)) =>
            {
                vec![(0, self.kernel.sections[own], self.object.data[own].bytes.len())]
            }
            _ => return Ok(()),
        };
        let of_map = |(at, address, len)| Piece { map, at, address, len };
        self.pieces.extend(pieces.into_iter().map(of_map));
        Ok(())
    }

    /// Runs the program. Its argument and the masks are changed as the program changes them. Returns the program's
    /// result.
    ///
    /// # Errors
    /// If the program does something that ends it, or what it shares with the loader cannot be read or written.
    pub fn run(
        &mut self,
        argument: &mut [u8],
        store: &dyn Store,
        masks: &mut EarlyMasks,
    ) -> Result<u64, ScxError> {
        let failed = |error: io::Error| ScxError::broken(format!("what its loader maps: {error}"));
        let room = || ScxError::broken("no memory for a program's argument or pages");
        let before = copy_in(&mut self.kernel, &self.pieces, store).map_err(failed)?;
        self.masks_in(masks).ok_or_else(room)?;
        let Self { object, code, kernel, world, entry, arena, .. } = self;
        let known = arena.map_or_else(Vec::new, |map| store.data(map));
        let known: Vec<Range<u32>> = known.into_iter().map(pages).collect();
        for range in &known {
            kernel.memory.populate(range.start, range.end - range.start).ok_or_else(room)?;
        }
        let context = kernel.memory.allocate(argument.len()).ok_or_else(room)?;
        let wild = |_| room();
        kernel.memory.slice_mut(context, argument.len()).map_err(wild)?.copy_from_slice(argument);
        let stack = kernel.stack;
        let call = Call { home: 0, balancing: false, kernel, world, cpu: 0 };
        let mut paged = Paged { call, store, arena: *arena, pages: BTreeMap::new() };
        let returned = interpret::run(code, &mut paged, stack, *entry, [context, 0, 0, 0, 0]);
        paged.copy_out(&known).map_err(failed)?;
        let returned = returned.map_err(|fault| {
            let place = object.place(fault.at);
            ScxError::broken(format!("{} in {place}", fault.why))
        })?;
        if let Some(reason) = &self.kernel.ended {
            return Err(ScxError::broken(reason));
        }
        self.masks_out(masks);
        copy_out(&self.kernel, &self.pieces, &before, &self.masks, store).map_err(failed)?;
        let memory = &mut self.kernel.memory;
        argument.copy_from_slice(memory.slice(context, argument.len()).map_err(wild)?);
        memory.release(context, argument.len());
        Ok(returned.value)
    }
}

impl Early {
    /// Replaces what stands for masks in values by their addresses, and copies their words in.
    fn masks_in(&mut self, masks: &EarlyMasks) -> Option<()> {
        let Self { kernel, pieces, masks: known, .. } = self;
        let mut addresses = vec![0; masks.len()];
        for (&address, &number) in known.iter() {
            addresses[number as usize] = address;
        }
        for (number, (address, words)) in (0..).zip(addresses.iter_mut().zip(masks)) {
            if *address == 0 {
                *address = kernel.masks.create(&mut kernel.memory)?;
                known.insert(*address, number);
            }
            kernel.memory.write_all(*address, words);
        }
        if !masks.is_empty() {
            let address = |word| addresses.get(masks::number(word)? as usize).copied();
            for piece in pieces {
                masks::replace(kernel.memory.slice_mut(piece.address, piece.len).ok()?, address);
            }
        }
        Some(())
    }

    /// Gives new masks numbers, and copies the words of all out. The program no longer knows masks that it has
    /// released.
    fn masks_out(&mut self, masks: &mut EarlyMasks) {
        let Self { kernel, masks: known, .. } = self;
        known.retain(|address, _| kernel.masks.has(*address));
        let words = kernel.machine.nr_cpus().div_ceil(64);
        for address in kernel.masks.addresses() {
            let number = *known.entry(address).or_insert_with(|| {
                masks.push(Vec::new());
                masks.len() as u32 - 1
            });
            let word = |at| kernel.memory.read(address + 8 * at as u64, 8).unwrap_or(0);
            masks[number as usize] = (0..words).map(word).collect();
        }
    }
}

/// Copies values of arrays from the loader. Returns them, one after the other.
fn copy_in(kernel: &mut Kernel, pieces: &[Piece], store: &dyn Store) -> io::Result<Vec<u8>> {
    let mut copied = Vec::new();
    for piece in pieces {
        let start = copied.len();
        copied.resize(start + piece.len, 0);
        store.read(piece.map, piece.at, &mut copied[start..])?;
        if let Ok(place) = kernel.memory.slice_mut(piece.address, piece.len) {
            place.copy_from_slice(&copied[start..]);
        }
    }
    Ok(copied)
}

/// Copies values of arrays to the loader where they differ from `before`. Addresses of masks become what stands for
/// them.
fn copy_out(
    kernel: &Kernel,
    pieces: &[Piece],
    mut before: &[u8],
    masks: &BTreeMap<u64, u32>,
    store: &dyn Store,
) -> io::Result<()> {
    let first = masks.first_key_value().map_or(u64::MAX, |(first, _)| *first);
    let stand_in = |word| {
        // Most words are smaller.
        let number = if word < first { None } else { masks.get(&word) };
        number.map(|&number| masks::stand_in(number))
    };
    for piece in pieces {
        let (old, rest) = before.split_at(piece.len);
        before = rest;
        let Ok(new) = kernel.memory.slice(piece.address, piece.len) else { continue };
        if new == old {
            continue;
        }
        let mut new = new.to_vec();
        masks::replace(&mut new, stand_in);
        if new != old {
            store.write(piece.map, piece.at, &new)?;
        }
    }
    Ok(())
}

/// The pages of a range of bytes.
fn pages(bytes: Range<u64>) -> Range<u32> {
    (bytes.start / PAGE) as u32..bytes.end.div_ceil(PAGE) as u32
}

/// A call whose pages of the arena are those of the loader.
struct Paged<'a> {
    call: Call<'a>,
    store: &'a dyn Store,
    arena: Option<usize>,
    /// The pages that were copied in, and whether the program has written to them.
    pages: BTreeMap<u32, bool>,
}

impl Paged<'_> {
    /// Number and address of the arena's page that has a byte, if it is there.
    fn page(&self, address: u64) -> Option<(u32, u64)> {
        let arena = self.call.kernel.memory.arena.as_ref()?;
        let page = arena.page(address)? as u32;
        let start = arena.address(page);
        arena.place(start, 1).map(|_| (page, start))
    }

    /// Copies a page in before its first access.
    fn copy_in(&mut self, address: u64) -> Result<(), Stop> {
        let Some((page, start)) = self.page(address) else { return Ok(()) };
        let Some(map) = self.arena.filter(|_| !self.pages.contains_key(&page)) else {
            return Ok(());
        };
        let place = self.call.kernel.memory.slice_mut(start, PAGE as usize)?;
        let read = self.store.read(map, u64::from(page) * PAGE, place);
        read.map_err(|error| Stop::Refused(format!("a page of its arena: {error}")))?;
        self.pages.insert(page, false);
        Ok(())
    }

    /// Copies pages to the loader that were written, and pages that were allocated.
    fn copy_out(&self, known: &[Range<u32>]) -> io::Result<()> {
        let Some(arena) = &self.call.kernel.memory.arena else { return Ok(()) };
        let Some(map) = self.arena else { return Ok(()) };
        let was_there = |page: &u32| known.iter().any(|range| range.contains(page));
        let new = arena.taken().into_iter().flatten().filter(|page| !was_there(page));
        let written = self.pages.iter().filter(|(_, written)| **written).map(|(page, _)| *page);
        for page in new.chain(written) {
            if let Ok(bytes) = self.call.kernel.memory.slice(arena.address(page), PAGE as usize) {
                self.store.write(map, u64::from(page) * PAGE, bytes)?;
            }
        }
        Ok(())
    }
}

impl Host for Paged<'_> {
    fn memory(&mut self) -> &mut Memory {
        self.call.memory()
    }

    fn fetch(&mut self, address: u64, write: bool) {
        self.touch(address, write);
    }

    fn lines(&mut self) -> (&mut Lines, usize) {
        self.call.lines()
    }

    fn prepare(&mut self, address: u64, bytes: u32) -> Result<(), Stop> {
        self.copy_in(address)?;
        self.copy_in(address.wrapping_add(u64::from(bytes) - 1))
    }

    fn touch(&mut self, address: u64, write: bool) {
        // A number of 8 bytes may reach into a second page.
        for address in [address, address.wrapping_add(7)].into_iter().filter(|_| write) {
            if let Some((page, _)) = self.page(address)
                && let Some(written) = self.pages.get_mut(&page)
            {
                *written = true;
            }
        }
    }

    fn call(&mut self, callee: Callee, arguments: [u64; 5]) -> Result<u64, Stop> {
        let lost = LOST.into_iter().find(|name| match callee {
            Callee::Kfunc(number) => kfuncs::find(name) == Some(number),
            Callee::Helper(_) => false,
        });
        if let Some(name) = lost {
            return Err(Stop::Refused(format!("{name} before the start is not simulated")));
        }
        self.call.call(callee, arguments)
    }
}
