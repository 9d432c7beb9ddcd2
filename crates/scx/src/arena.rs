//! A BPF arena (`kernel/bpf/arena.c`): pages that a program and its loader share, at the same addresses for both.
//!
//! A program keeps addresses of an arena in two forms, and casts between them (`addr_space_cast`). In the kernel, the
//! form for accesses is the lower half of the address, because machine code adds the arena's place in the kernel. Here
//! both forms are the whole address. Pages are pieces of the program's memory, so that their cache lines count as those
//! of maps do.
//!
//! Nothing that a program does with an address of the arena is an error: a read of a page that was not allocated gives
//! 0, and a write to it is lost.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::helpers::Function;
use crate::interpret::Stop;
use crate::kernel::Call;
use crate::memory::{BASE, Memory};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// Size of the addresses that an arena can have, in bytes.
const SPACE: u64 = 1 << 32;

/// An access may miss the space by the offset of an instruction (GUARD_SZ is twice that).
const GUARD: u64 = 1 << 15;

/// Marks a cast to the form that programs store, in a cast that has the arena's address as well.
pub(crate) const TO_USER: i32 = 1 << 16;

/// Error codes that the functions return (errno).
const EINVAL: i64 = 22;
const EBUSY: i64 = 16;

/// An arena.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    /// Address of the first page.
    start: u64,
    /// For each page, where it is in the memory. 0: it is not there.
    pages: Vec<u64>,
    /// Pages that can be allocated: number of the first one, and how many follow each other.
    free: BTreeMap<u32, u32>,
}

impl Arena {
    /// An arena without pages. `None` if the kernel would refuse it (`arena_map_alloc()`).
    pub(crate) fn new(start: u64, pages: u32) -> Option<Self> {
        let bytes = u64::from(pages) * PAGE;
        let last = start.checked_add(bytes)?.checked_sub(1)?;
        let fits = start.is_multiple_of(PAGE) && pages > 0 && start >> 32 == last >> 32;
        let fits = fits && start >> 32 != BASE >> 32;
        let arena =
            || Self { start, pages: vec![0; pages as usize], free: BTreeMap::from([(0, pages)]) };
        fits.then(arena)
    }

    /// Whether an address is one of the arena's.
    pub(crate) fn contains(&self, address: u64) -> bool {
        let first = self.start & !(SPACE - 1);
        address.wrapping_sub(first.wrapping_sub(GUARD)) < SPACE + 2 * GUARD
    }

    /// The number of the page of an address. `None` if it is not a page of the arena.
    pub(crate) fn page(&self, address: u64) -> Option<usize> {
        let page = usize::try_from(address.checked_sub(self.start)? / PAGE).ok()?;
        (page < self.pages.len()).then_some(page)
    }

    /// Where bytes are in the memory. `None` if not all are there, one after the other.
    #[inline]
    pub(crate) fn place(&self, address: u64, len: usize) -> Option<u64> {
        let (first, offset) = (self.page(address)?, address % PAGE);
        let place = self.pages[first];
        let last = self.page(address.checked_add(len.max(1) as u64 - 1)?)?;
        let follow = self.pages[first..=last].iter().enumerate();
        let mut follow = follow.map(|(number, &at)| at == place + PAGE * number as u64);
        (place != 0 && follow.all(|follows| follows)).then_some(place + offset)
    }

    /// The first of `count` pages in the smallest range that has as many (`range_tree_find()`).
    fn find(&self, count: u32) -> Option<u32> {
        let fitting = self.free.iter().filter(|(_, len)| **len >= count);
        fitting.min_by_key(|(first, len)| (**len, **first)).map(|(first, _)| *first)
    }

    /// Whether pages can be allocated (`is_range_tree_set()`).
    fn is_free(&self, first: u32, count: u32) -> bool {
        let before = self.free.range(..=first).next_back();
        before.is_some_and(|(&at, &len)| first - at < len && len - (first - at) >= count)
    }

    /// Takes pages out of the free ones (`range_tree_clear()`).
    fn take(&mut self, first: u32, count: u32) {
        let end = first + count;
        let touched: Vec<(u32, u32)> =
            self.free.range(..end).map(|(&at, &len)| (at, len)).collect();
        for (at, len) in touched.into_iter().filter(|(at, len)| at + len > first) {
            self.free.remove(&at);
            if at < first {
                self.free.insert(at, first - at);
            }
            if at + len > end {
                self.free.insert(end, at + len - end);
            }
        }
    }

    /// Adds pages to the free ones (`range_tree_set()`).
    fn give(&mut self, first: u32, count: u32) {
        self.take(first, count);
        let (mut first, mut end) = (first, first + count);
        if let Some(len) = self.free.remove(&end) {
            end += len;
        }
        let before = self.free.range(..first).next_back().map(|(&at, &len)| (at, len));
        if let Some((at, _)) = before.filter(|(at, len)| at + len == first) {
            first = at;
        }
        self.free.insert(first, end - first);
    }

    /// The number of the page at an address of which the lower half counts, if `count` pages begin there
    /// (`compute_pgoff()`).
    fn range_at(&self, address: u64, count: u32) -> Option<u32> {
        let first = (address as u32).wrapping_sub(self.start as u32) / PAGE as u32;
        let end = first.checked_add(count)?;
        (end as usize <= self.pages.len()).then_some(first)
    }

    /// The address of a page.
    pub(crate) fn address(&self, page: u32) -> u64 {
        self.start + PAGE * u64::from(page)
    }

    /// Ranges of pages that cannot be allocated.
    pub(crate) fn taken(&self) -> Vec<Range<u32>> {
        let starts = [0].into_iter().chain(self.free.iter().map(|(first, len)| first + len));
        let ends = self.free.keys().copied().chain([self.pages.len() as u32]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty()).collect()
    }
}

impl Memory {
    /// Puts zeroed pages where there are none. `None` if there is no room.
    pub(crate) fn populate(&mut self, first: u32, count: u32) -> Option<()> {
        let end = first.checked_add(count)?;
        if end as usize > self.arena.as_ref()?.pages.len() {
            return None;
        }
        for page in first as usize..end as usize {
            if self.arena.as_ref()?.pages[page] == 0 {
                let place = self.allocate(PAGE as usize)?;
                self.arena.as_mut()?.pages[page] = place;
            }
        }
        self.arena.as_mut()?.take(first, count);
        Some(())
    }

    /// Puts a page at its place that the loader has filled. `None` if there is no room, or no such page.
    pub(crate) fn fill_page(&mut self, page: u32, bytes: &[u8]) -> Option<()> {
        let arena = self.arena.as_ref().filter(|arena| (page as usize) < arena.pages.len())?;
        let address = arena.address(page);
        self.populate(page, 1)?;
        self.slice_mut(address, bytes.len()).ok().map(|to| to.copy_from_slice(bytes))
    }

    /// Allocates pages, at an address if it is not 0. Returns their address. 0: it is impossible
    /// (`arena_alloc_pages()`).
    pub(crate) fn allocate_pages(&mut self, address: u64, count: u32) -> u64 {
        let Some(arena) = self.arena.as_ref().filter(|_| count > 0) else { return 0 };
        let first = match address {
            0 => arena.find(count),
            _ if !address.is_multiple_of(PAGE) => None,
            _ => arena.range_at(address, count).filter(|&first| arena.is_free(first, count)),
        };
        let Some(first) = first else { return 0 };
        let address = arena.address(first);
        self.populate(first, count).map_or(0, |()| address)
    }

    /// Frees pages (`arena_free_pages()`).
    pub(crate) fn free_pages(&mut self, address: u64, count: u32) {
        let Some(arena) = self.arena.as_mut() else { return };
        let Some(first) = arena.range_at(address, 0) else { return };
        let count = count.min(arena.pages.len() as u32 - first);
        arena.give(first, count);
        let pages = &mut arena.pages[first as usize..(first + count) as usize];
        let places: Vec<u64> = pages.iter_mut().map(std::mem::take).collect();
        for place in places.into_iter().filter(|place| *place != 0) {
            self.release(place, PAGE as usize);
        }
    }

    /// Keeps pages from being allocated (`arena_reserve_pages()`). Returns the result of the kfunc.
    pub(crate) fn reserve_pages(&mut self, address: u64, count: u32) -> i64 {
        let Some(arena) = self.arena.as_mut() else { return -EINVAL };
        let Some(first) = arena.range_at(address, count) else { return -EINVAL };
        if count > 0 && !arena.is_free(first, count) {
            return -EBUSY;
        }
        arena.take(first, count);
        0
    }
}

/// The result of a cast of `value` between the two forms of an address. `imm` has the upper half of the arena's
/// addresses, and [`TO_USER`].
pub(crate) fn cast(value: u64, imm: i32) -> u64 {
    let low = u64::from(value as u32);
    let is_null = if imm & TO_USER != 0 { low == 0 } else { value == 0 };
    if is_null { 0 } else { u64::from(imm as u16) << 32 | low }
}

/// Functions for arenas: name, number of parameters, function.
pub(crate) const KFUNCS: [(&str, usize, Function); 3] = [
    ("bpf_arena_alloc_pages", 5, |call: &mut Call, [_, address, count, ..]| {
        Ok(call.kernel.memory.allocate_pages(address, count as u32))
    }),
    ("bpf_arena_free_pages", 3, |call: &mut Call, [_, address, count, ..]| {
        call.kernel.memory.free_pages(address, count as u32);
        Ok(0)
    }),
    ("bpf_arena_reserve_pages", 3, reserve),
];

fn reserve(call: &mut Call, [_, address, count, ..]: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.kernel.memory.reserve_pages(address, count as u32) as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::memory::Wild;

    const START: u64 = 1 << 44;

    fn memory(pages: u32) -> Memory {
        let mut memory = Memory::default();
        memory.arena = Arena::new(START, pages);
        memory
    }

    #[test]
    fn an_arena_is_refused_where_the_kernel_refuses_it() {
        assert!(Arena::new(START, 1 << 20).is_some());
        assert!(Arena::new(START + 1, 1).is_none(), "not at a page");
        assert!(Arena::new(START, 0).is_none());
        assert!(Arena::new(START + PAGE, 1 << 20).is_none(), "it has two upper halves");
        assert!(Arena::new(u64::MAX - PAGE + 1, 2).is_none());
    }

    /// Examples of `emit_insn` for casts in the kernel's `bpf_jit_comp.c`, but for accesses with the upper half.
    #[test]
    fn casts_give_the_upper_half_of_the_arena() {
        let (to_user, for_access) = (TO_USER | 0x1000, 0x1000);
        for imm in [to_user, for_access] {
            assert_eq!(cast(0, imm), 0);
            assert_eq!(cast(0x2340, imm), START + 0x2340);
            assert_eq!(cast(0xdead_0000_2340, imm), START + 0x2340);
        }
        assert_eq!(cast(START, to_user), 0, "a lower half of 0 is NULL");
        assert_eq!(cast(START, for_access), START);
    }

    #[test]
    fn pages_are_taken_from_the_smallest_range_that_has_enough() {
        let mut memory = memory(8);
        assert_eq!(memory.allocate_pages(0, 5), START);
        memory.free_pages(START + PAGE, 2);
        assert_eq!(memory.allocate_pages(0, 1), START + PAGE, "ranges of 2 and 3 pages are free");
        assert_eq!(memory.allocate_pages(0, 3), START + 5 * PAGE);
        assert_eq!(memory.allocate_pages(0, 2), 0, "one page is free");
        assert_eq!(memory.allocate_pages(START + 2 * PAGE, 1), START + 2 * PAGE);
        assert_eq!(memory.allocate_pages(START + 2 * PAGE, 1), 0, "it is taken");
        assert_eq!(memory.allocate_pages(START + 8 * PAGE, 1), 0, "it is not of the arena");
        assert_eq!(memory.allocate_pages(0, 0), 0);
    }

    #[test]
    fn a_freed_page_is_gone_and_a_new_one_is_empty() {
        let mut memory = memory(2);
        let page = memory.allocate_pages(0, 2);
        memory.write(page + 8, 8, 7).unwrap();
        assert_eq!(memory.read(page + 8, 8), Ok(7));
        memory.free_pages(page, 9);
        memory.free_pages(page, 9);
        assert_eq!(memory.read(page + 8, 8), Ok(0));
        memory.write(page + 8, 8, 7).unwrap();
        assert_eq!(memory.allocate_pages(0, 2), page, "both pages are free, as one range");
        assert_eq!(memory.read(page + 8, 8), Ok(0));
    }

    #[test]
    fn reserved_pages_are_not_allocated() {
        let mut memory = memory(4);
        assert_eq!(memory.reserve_pages(START, 3), 0);
        assert_eq!(memory.reserve_pages(START + 2 * PAGE, 1), -EBUSY);
        assert_eq!(memory.reserve_pages(START + 3 * PAGE, 2), -EINVAL);
        assert_eq!(memory.allocate_pages(0, 2), 0);
        assert_eq!(memory.allocate_pages(0, 1), START + 3 * PAGE);
        assert_eq!(memory.read(START, 8), Ok(0), "they are not there");
    }

    #[test]
    fn no_access_to_an_arena_fails() {
        let mut memory = memory(4);
        let page = memory.allocate_pages(START + PAGE, 1);
        memory.write(page + PAGE - 4, 8, u64::MAX).unwrap();
        assert_eq!(memory.read(page + PAGE - 4, 8), Ok(0xffff_ffff), "half of it has a page");
        memory.write(page - 2, 4, u64::MAX).unwrap();
        assert_eq!(memory.read(page - 2, 4), Ok(0xffff_0000));
        for address in [START, START + 4 * PAGE, START + SPACE + GUARD - 8, START - GUARD, 16] {
            memory.write(address, 8, 1).unwrap();
            assert_eq!(memory.read(address, 8), Ok(0), "{address:#x}");
        }
        let address = START + SPACE + GUARD;
        assert_eq!(memory.write(address, 8, 1), Err(Wild { address, write: true }));
    }

    #[test]
    fn an_access_to_two_pages_finds_both() {
        let mut memory = memory(4);
        // Two pages that follow each other in the arena, but not in memory.
        let second = memory.allocate_pages(START + 2 * PAGE, 1);
        let first = memory.allocate_pages(START + PAGE, 1);
        memory.write(second - 4, 8, 0x0102_0304_0506_0708).unwrap();
        assert_eq!(memory.read(second - 4, 8), Ok(0x0102_0304_0506_0708));
        assert_eq!(memory.read(second, 4), Ok(0x0102_0304));
        assert_eq!(memory.read(first + PAGE - 4, 4), Ok(0x0506_0708));
    }
}
