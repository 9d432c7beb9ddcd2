//! The memory that a program sees: one region, with the same addresses in every run.
//!
//! Maps, variables, stacks and the kernel's structs are pieces of the region, so that pointers compare and hash alike
//! in every run. A read near NULL returns 0, as the kernel's PROBE_MEM does for pointers that the verifier trusts to
//! point to kernel memory or to be NULL. Any other access outside of the region is wild, and ends the call.

use crate::arena::Arena;

/// Start of the region. No 32-bit number and no small offset can reach this address.
pub const BASE: u64 = 0x0000_7000_0000_0000;

/// Reads below this address count as reads of a member through a NULL pointer.
const NEAR_NULL: u64 = 1 << 16;

/// Alignment of pieces: a cache line.
const ALIGNMENT: usize = 64;

/// Largest memory of a program, in bytes. A machine of 1024 CPUs needs less.
pub(crate) const MOST_BYTES: usize = 1 << 32;

/// An access outside of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wild {
    /// The address.
    pub address: u64,
    /// Whether the access was a write.
    pub write: bool,
}

/// Finds the number of a thing by its address. Pieces begin at cache lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByAddress {
    /// For each line, the number plus one. 0: no piece begins there.
    numbers: Vec<u32>,
}

impl ByAddress {
    /// Records that the thing with this number begins at an address of the region.
    pub(crate) fn insert(&mut self, address: u64, number: u32) {
        let line = (address.saturating_sub(BASE) / ALIGNMENT as u64) as usize;
        if line >= self.numbers.len() {
            self.numbers.resize(line + 1, 0);
        }
        self.numbers[line] = number + 1;
    }

    /// For each line, the number plus one of the thing that begins there. 0: nothing does.
    pub(crate) fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// The number of the thing that begins at an address.
    #[inline]
    pub(crate) fn get(&self, address: u64) -> Option<u32> {
        let at = address.checked_sub(BASE).filter(|at| at.is_multiple_of(ALIGNMENT as u64))?;
        let number = self.numbers.get(usize::try_from(at / ALIGNMENT as u64).ok()?)?;
        number.checked_sub(1)
    }
}

/// The region, and its unused pieces.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    bytes: Vec<u8>,
    /// Released pieces, by size. The last one released is reused first.
    free: std::collections::BTreeMap<usize, Vec<u64>>,
    /// The program's arena, whose pages are pieces of the region.
    pub(crate) arena: Option<Arena>,
}

impl Memory {
    /// A piece of `size` bytes, all 0. `None` if there is no room.
    pub fn allocate(&mut self, size: usize) -> Option<u64> {
        let size = size.max(1).checked_next_multiple_of(ALIGNMENT)?;
        if let Some(address) = self.free.get_mut(&size).and_then(Vec::pop) {
            self.slice_mut(address, size).ok()?.fill(0);
            return Some(address);
        }
        let at = self.bytes.len();
        let end = at.checked_add(size).filter(|&end| end <= MOST_BYTES)?;
        self.bytes.resize(end, 0);
        Some(BASE + at as u64)
    }

    /// Releases a piece that [`Memory::allocate`] returned for this size.
    pub fn release(&mut self, address: u64, size: usize) {
        let size = size.max(1).next_multiple_of(ALIGNMENT);
        self.free.entry(size).or_default().push(address);
    }

    /// The whole region.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn range(&self, address: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let own = |address: u64| {
            let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
            let end = start.checked_add(len)?;
            (end <= self.bytes.len()).then_some(start..end)
        };
        own(address).or_else(|| own(self.arena.as_ref()?.place(address, len)?))
    }

    /// Where the byte at an address is in the region, if it is in a page of the arena. Otherwise the address.
    #[inline]
    pub(crate) fn place(&self, address: u64) -> u64 {
        let arena = self.arena.as_ref().filter(|arena| arena.contains(address));
        arena.and_then(|arena| arena.place(address, 1)).unwrap_or(address)
    }

    /// Whether an access at an address cannot fail although it is outside of the region. It is one to the arena or,
    /// with an arena, to a member through a pointer that is NULL.
    fn is_in_arena(&self, address: u64) -> bool {
        let arena = self.arena.as_ref();
        arena.is_some_and(|arena| address < NEAR_NULL || arena.contains(address))
    }

    /// The bytes at an address.
    ///
    /// # Errors
    /// If they are not all in the region.
    pub fn slice(&self, address: u64, len: usize) -> Result<&[u8], Wild> {
        let range = self.range(address, len).ok_or(Wild { address, write: false })?;
        Ok(&self.bytes[range])
    }

    /// The bytes at an address, for writing.
    ///
    /// # Errors
    /// As [`Memory::slice`].
    pub fn slice_mut(&mut self, address: u64, len: usize) -> Result<&mut [u8], Wild> {
        let range = self.range(address, len).ok_or(Wild { address, write: true })?;
        Ok(&mut self.bytes[range])
    }

    #[inline]
    fn get<const N: usize>(&self, address: u64) -> Result<[u8; N], Wild> {
        // An address before the region wraps, and is outside of it too.
        let rest = self.bytes.get(address.wrapping_sub(BASE) as usize..);
        match rest.and_then(<[u8]>::first_chunk) {
            Some(bytes) => Ok(*bytes),
            None => self.get_outside(address),
        }
    }

    /// Bytes that are not all in the region itself.
    #[cold]
    fn get_outside<const N: usize>(&self, address: u64) -> Result<[u8; N], Wild> {
        match self.range(address, N) {
            // The range has N bytes.
            Some(range) => Ok(self.bytes[range].try_into().unwrap_or([0; N])),
            None if address < NEAR_NULL => Ok([0; N]),
            None if N > 1 && self.is_in_arena(address) => {
                // A page is missing, or the next page is elsewhere.
                let mut bytes = [0; N];
                for (at, byte) in bytes.iter_mut().enumerate() {
                    [*byte] = self.get(address.wrapping_add(at as u64))?;
                }
                Ok(bytes)
            }
            None if self.is_in_arena(address) => Ok([0; N]),
            None => Err(Wild { address, write: false }),
        }
    }

    /// Reads an unsigned number of 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// If it is outside of the region and not near NULL.
    #[inline]
    pub fn read(&self, address: u64, bytes: u32) -> Result<u64, Wild> {
        Ok(match bytes {
            1 => self.get::<1>(address)?[0].into(),
            2 => u16::from_le_bytes(self.get(address)?).into(),
            4 => u32::from_le_bytes(self.get(address)?).into(),
            _ => u64::from_le_bytes(self.get(address)?),
        })
    }

    /// Writes the lowest 1, 2, 4 or 8 bytes of a number.
    ///
    /// # Errors
    /// If they are outside of the region.
    #[inline]
    pub fn write(&mut self, address: u64, bytes: u32, value: u64) -> Result<(), Wild> {
        match bytes {
            1 => self.put(address, (value as u8).to_le_bytes()),
            2 => self.put(address, (value as u16).to_le_bytes()),
            4 => self.put(address, (value as u32).to_le_bytes()),
            _ => self.put(address, value.to_le_bytes()),
        }
    }

    /// Writes numbers of 8 bytes, one behind the other. Those that do not fit into the region are left out.
    #[inline]
    pub(crate) fn write_all(&mut self, address: u64, values: &[u64]) {
        let rest = self.bytes.get_mut(address.wrapping_sub(BASE) as usize..).unwrap_or_default();
        for (place, value) in rest.as_chunks_mut().0.iter_mut().zip(values) {
            *place = value.to_le_bytes();
        }
    }

    #[inline]
    fn put<const N: usize>(&mut self, address: u64, value: [u8; N]) -> Result<(), Wild> {
        let rest = self.bytes.get_mut(address.wrapping_sub(BASE) as usize..);
        match rest.and_then(<[u8]>::first_chunk_mut) {
            Some(place) => *place = value,
            None => self.put_outside(address, &value)?,
        }
        Ok(())
    }

    /// Writes bytes that are not all in the region itself.
    #[cold]
    fn put_outside(&mut self, address: u64, value: &[u8]) -> Result<(), Wild> {
        match self.range(address, value.len()) {
            Some(range) => self.bytes[range].copy_from_slice(value),
            None if self.is_in_arena(address) => {
                // A page is missing, or the next page is elsewhere.
                for (at, byte) in value.iter().enumerate() {
                    if let Some(range) = self.range(address.wrapping_add(at as u64), 1) {
                        self.bytes[range].fill(*byte);
                    }
                }
            }
            None => return Err(Wild { address, write: true }),
        }
        Ok(())
    }

    /// The text at an address up to a NUL, at most `most` bytes long.
    ///
    /// # Errors
    /// If it is outside of the region.
    pub fn text(&self, address: u64, most: usize) -> Result<String, Wild> {
        let mut text = Vec::new();
        for at in 0..most as u64 {
            match self.read(address.wrapping_add(at), 1)? {
                0 => break,
                byte => text.push(byte as u8),
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn addresses_are_the_same_in_every_run() {
        let addresses = || {
            let mut memory = Memory::default();
            let first = memory.allocate(100).unwrap();
            let second = memory.allocate(8).unwrap();
            memory.release(first, 100);
            [first, second, memory.allocate(128).unwrap()]
        };
        assert_eq!(addresses(), [BASE, BASE + 128, BASE]);
        assert_eq!(addresses(), addresses());
    }

    #[test]
    fn what_was_given_back_is_zero_when_it_is_given_again() {
        let mut memory = Memory::default();
        let piece = memory.allocate(8).unwrap();
        memory.write(piece, 8, u64::MAX).unwrap();
        memory.release(piece, 8);
        assert_eq!(memory.allocate(8), Some(piece));
        assert_eq!(memory.read(piece, 8), Ok(0));
    }

    #[test]
    fn a_read_near_null_gives_nothing_and_other_accesses_outside_are_wild() {
        let mut memory = Memory::default();
        let end = memory.allocate(64).unwrap() + 64;
        assert_eq!(memory.read(0, 8), Ok(0));
        assert_eq!(memory.read(0xfff0, 4), Ok(0));
        for address in [NEAR_NULL, BASE - 1, end - 7, end, u64::MAX] {
            assert_eq!(memory.read(address, 8), Err(Wild { address, write: false }));
        }
        assert_eq!(memory.write(0, 4, 1), Err(Wild { address: 0, write: true }));
        assert_eq!(memory.write(end - 1, 2, 1), Err(Wild { address: end - 1, write: true }));
    }
}
