//! A set of CPUs as a bit set over dense CPU numbers.

use serde::{Serialize, Serializer};

/// A set of CPU numbers below a fixed capacity.
///
/// Two sets combined with each other must have the same capacity: that of the
/// machine they describe.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet {
    words: Box<[u64]>,
}

/// Serialised as the list of its CPUs.
impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl CpuSet {
    /// The empty set that can hold CPUs `0..capacity`.
    pub fn new(capacity: usize) -> Self {
        Self { words: vec![0; capacity.div_ceil(64)].into_boxed_slice() }
    }

    /// All CPUs `0..capacity`.
    pub fn full(capacity: usize) -> Self {
        Self::from_cpus(capacity, 0..capacity)
    }

    /// The set of the given CPUs, each below `capacity`.
    pub fn from_cpus(capacity: usize, cpus: impl IntoIterator<Item = usize>) -> Self {
        let mut set = Self::new(capacity);
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }

    /// Adds `cpu`.
    #[inline]
    pub fn insert(&mut self, cpu: usize) {
        self.words[cpu >> 6] |= 1 << (cpu & 63);
    }

    /// Removes `cpu`.
    #[inline]
    pub fn remove(&mut self, cpu: usize) {
        self.words[cpu >> 6] &= !(1 << (cpu & 63));
    }

    /// Whether `cpu` is in the set.
    #[inline]
    pub fn contains(&self, cpu: usize) -> bool {
        self.words[cpu >> 6] & (1 << (cpu & 63)) != 0
    }

    /// The set's bits, 64 CPUs per word, lowest CPU in the lowest bit.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Number of CPUs in the set.
    #[inline]
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether no CPU is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// The lowest CPU.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        self.next_from(0)
    }

    /// The lowest CPU from `from` on.
    #[inline]
    pub fn next_from(&self, from: usize) -> Option<usize> {
        let mut word = from >> 6;
        let mut bits = *self.words.get(word)? & (!0 << (from & 63));
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        Some((word << 6) + bits.trailing_zeros() as usize)
    }

    /// All CPUs in increasing order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| Bits { word, base: index << 6 })
    }

    /// All CPUs in increasing order from `start`, then the CPUs below it: the kernel's
    /// `for_each_cpu_wrap`.
    pub fn iter_wrap(&self, start: usize) -> impl Iterator<Item = usize> + '_ {
        let above = std::iter::successors(self.next_from(start), |&cpu| self.next_from(cpu + 1));
        let below = std::iter::successors(self.next_from(0), |&cpu| self.next_from(cpu + 1));
        above.chain(below.take_while(move |&cpu| cpu < start))
    }

    /// Whether both sets share a CPU.
    #[inline]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether every CPU of `self` is in `other`.
    #[inline]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// Number of CPUs in both sets.
    #[inline]
    pub fn count_and(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// Keeps only CPUs that are also in `other`.
    #[inline]
    pub fn intersect_with(&mut self, other: &Self) {
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a &= b;
        }
    }

    /// Adds all CPUs of `other`.
    #[inline]
    pub fn union_with(&mut self, other: &Self) {
        for (a, b) in self.words.iter_mut().zip(&other.words) {
            *a |= b;
        }
    }

    /// Copies `other` without allocating.
    #[inline]
    pub fn copy_from(&mut self, other: &Self) {
        self.words.copy_from_slice(&other.words);
    }
}

struct Bits {
    word: u64,
    base: usize,
}

impl Iterator for Bits {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        if self.word == 0 {
            return None;
        }
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(self.base + bit)
    }
}

/// The kernel's list format: `0-3,8,10-11`.
impl std::fmt::Display for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut next = self.first();
        let mut separator = "";
        while let Some(start) = next {
            let mut end = start;
            while (end + 1) >> 6 < self.words.len() && self.contains(end + 1) {
                end += 1;
            }
            match end - start {
                0 => write!(f, "{separator}{start}")?,
                _ => write!(f, "{separator}{start}-{end}")?,
            }
            separator = ",";
            next = self.next_from(end + 1);
        }
        Ok(())
    }
}

impl std::fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_like_for_each_cpu_wrap() {
        let set = CpuSet::from_cpus(130, [1, 5, 64, 129]);
        assert_eq!(set.iter_wrap(6).collect::<Vec<_>>(), [64, 129, 1, 5]);
        assert_eq!(set.iter_wrap(130).collect::<Vec<_>>(), [1, 5, 64, 129]);
        assert_eq!(set.iter_wrap(0).collect::<Vec<_>>(), [1, 5, 64, 129]);
    }

    #[test]
    fn prints_the_kernels_list_format() {
        assert_eq!(
            CpuSet::from_cpus(128, [0, 1, 2, 3, 8, 63, 64, 127]).to_string(),
            "0-3,8,63-64,127"
        );
        assert_eq!(CpuSet::new(8).to_string(), "");
    }

    #[test]
    fn counts_and_compares() {
        let a = CpuSet::from_cpus(70, [0, 1, 69]);
        let b = CpuSet::from_cpus(70, [1, 69]);
        assert_eq!(a.count_and(&b), 2);
        assert!(b.is_subset(&a) && !a.is_subset(&b) && a.intersects(&b));
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 1, 69]);
    }
}
