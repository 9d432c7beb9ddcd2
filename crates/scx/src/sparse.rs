//! Bytes of which most are 0.

use serde::{Deserialize, Serialize};

/// Bytes that are looked at together. Scheduling programs have arrays of 100 MB, of which a loader fills some pages.
const PAGE: usize = 4096;

/// Bytes of which most are 0. Pages of zeros take no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sparse {
    len: u64,
    /// Pieces with other bytes, in order: where each begins, and its bytes. They do not overlap.
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Sparse {
    /// So many zeros.
    pub fn zeros(len: u64) -> Self {
        Self { len, pieces: Vec::new() }
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets bytes from a place on, which must be after all places that were set before.
    pub fn set(&mut self, at: u64, bytes: &[u8]) {
        for (number, page) in (0_u64..).zip(bytes.chunks(PAGE)) {
            if page.iter().all(|&byte| byte == 0) {
                continue;
            }
            let at = at + number * PAGE as u64;
            match self.pieces.last_mut() {
                Some((start, piece)) if *start + piece.len() as u64 == at => piece.extend(page),
                _ => self.pieces.push((at, page.to_vec())),
            }
            self.len = self.len.max(at + page.len() as u64);
        }
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.read(0, self.len as usize)
    }

    /// Bytes from a place on, fewer at the end.
    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let end = self.len.min(at + len as u64);
        let mut bytes = vec![0; end.saturating_sub(at) as usize];
        let after = self.pieces.partition_point(|(start, piece)| start + piece.len() as u64 <= at);
        for (start, piece) in self.pieces[after..].iter().take_while(|(start, _)| *start < end) {
            let (from, to) = (at.max(*start), end.min(start + piece.len() as u64));
            let source = &piece[(from - start) as usize..(to - start) as usize];
            bytes[(from - at) as usize..(to - at) as usize].copy_from_slice(source);
        }
        bytes
    }

    /// The values of so many bytes each that are not 0, with their numbers.
    pub fn values(&self, size: usize) -> impl Iterator<Item = (usize, Vec<u8>)> {
        let size = size.max(1) as u64;
        let numbers = self.pieces.iter().flat_map(move |(start, piece)| {
            start / size..(start + piece.len() as u64).div_ceil(size)
        });
        let mut next = 0;
        // The last value of a piece may be the first one of the next piece.
        let numbers = numbers.filter(move |&number| {
            let is_new = number >= next;
            next = next.max(number + 1);
            is_new
        });
        let value = move |number| (number as usize, self.read(number * size, size as usize));
        numbers.map(value).filter(|(_, value)| value.iter().any(|&byte| byte != 0))
    }
}

impl From<Vec<u8>> for Sparse {
    fn from(bytes: Vec<u8>) -> Self {
        let mut sparse = Self::zeros(bytes.len() as u64);
        sparse.set(0, &bytes);
        sparse
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_of_zeros_take_no_memory() {
        let mut sparse = Sparse::zeros(1 << 40);
        sparse.set(1 << 30, &[0; 3 * PAGE]);
        assert_eq!(sparse.pieces, []);
        sparse.set(1 << 35, &[1, 2]);
        assert_eq!(sparse.pieces, [(1 << 35, vec![1, 2])]);
        assert_eq!(sparse.values(8).collect::<Vec<_>>(), [(1 << 32, vec![1, 2, 0, 0, 0, 0, 0, 0])]);
        assert_eq!(sparse.len(), 1 << 40);
    }

    proptest! {
        /// Bytes and values are those of the bytes as a whole, wherever pages of zeros are.
        #[test]
        fn bytes_and_values_stay_as_they_are(
            pages in prop::collection::vec((any::<bool>(), 0..PAGE, 1..=255_u8), 0..6),
            rest in prop::collection::vec(any::<u8>(), 0..20),
            size in 1..10_000_usize,
        ) {
            let mut bytes = Vec::new();
            for (is_zero, at, byte) in pages {
                let mut page = vec![0; PAGE];
                page[at] = if is_zero { 0 } else { byte };
                bytes.extend(page);
            }
            bytes.extend(rest);
            let sparse = Sparse::from(bytes.clone());
            prop_assert_eq!(sparse.to_vec(), bytes.clone());
            let values = bytes.chunks(size).map(<[u8]>::to_vec).enumerate();
            let values: Vec<_> = values.filter(|(_, value)| value.iter().any(|&byte| byte != 0)).collect();
            prop_assert_eq!(sparse.values(size).collect::<Vec<_>>(), values);
        }
    }
}
