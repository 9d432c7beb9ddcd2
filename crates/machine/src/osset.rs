//! Sets of CPUs by the operating system's numbers, in the formats of files.

/// A set of numbers below [`OsSet::LIMIT`].
#[derive(Clone, Debug, Default)]
pub(crate) struct OsSet {
    /// 32 numbers per word, lowest first. Empty words may follow.
    words: Vec<u32>,
}

impl OsSet {
    /// The limit for numbers, far above any kernel's number of CPUs.
    pub(crate) const LIMIT: usize = 1 << 16;

    /// Reads a mask: hexadecimal words of 32 bits, highest first, separated by commas, each with or
    /// without 0x. hwloc leaves words of 0 empty.
    pub(crate) fn from_mask(text: &str) -> Result<Self, ()> {
        let mut words = Vec::new();
        for word in text.trim().rsplit(',') {
            let digits = word.strip_prefix("0x").unwrap_or(word);
            let valid = digits.len() <= 8 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            let empty = word.is_empty() && text.contains(',');
            if !valid || (digits.is_empty() && !empty) || words.len() == Self::LIMIT / 32 {
                return Err(());
            }
            words.push(if empty { 0 } else { u32::from_str_radix(digits, 16).map_err(|_| ())? });
        }
        Ok(Self { words })
    }

    /// Reads the kernel's list format: `0-3,8`. Empty text is the empty set.
    pub(crate) fn from_list(text: &str) -> Result<Self, ()> {
        let mut set = Self::default();
        for range in text.trim().split(',').filter(|range| !range.is_empty()) {
            let (start, end) = range.split_once('-').unwrap_or((range, range));
            let start: usize = start.parse().map_err(|_| ())?;
            let end: usize = end.parse().map_err(|_| ())?;
            if start > end || end >= Self::LIMIT {
                return Err(());
            }
            (start..=end).for_each(|number| set.insert(number as u32));
        }
        Ok(set)
    }

    pub(crate) fn insert(&mut self, number: u32) {
        let word = number as usize / 32;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (number % 32);
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 32).is_some_and(|word| word >> (number % 32) & 1 != 0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.words.len() as u32 * 32).filter(|&number| self.contains(number))
    }

    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }
}

impl PartialEq for OsSet {
    fn eq(&self, other: &Self) -> bool {
        let words = |set: &Self, index: usize| set.words.get(index).copied().unwrap_or(0);
        (0..self.words.len().max(other.words.len()))
            .all(|index| words(self, index) == words(other, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(text: &str) -> Vec<u32> {
        OsSet::from_mask(text).unwrap().iter().collect()
    }

    #[test]
    fn masks_are_read_as_hwloc_and_the_kernel_write_them() {
        assert_eq!(mask("0x00000005"), [0, 2]);
        assert_eq!(mask("0x1,0x80000000"), [31, 32]);
        assert_eq!(mask("0x40000000,,,0x0"), [126]);
        assert_eq!(mask("00000000,00000003\n"), [0, 1]);
        assert_eq!(mask("0x0"), Vec::<u32>::new());
    }

    #[test]
    fn garbage_is_no_mask() {
        for text in ["", "0x", "0xg", "0x123456789", "-1", "0xf...f", "1 2", "0x1,x"] {
            assert!(OsSet::from_mask(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        let list = |text| OsSet::from_list(text).map(|set| set.iter().collect::<Vec<_>>());
        assert_eq!(list("0-2,5\n"), Ok(vec![0, 1, 2, 5]));
        assert_eq!(list("\n"), Ok(vec![]));
        for text in ["a", "3-1", "0-99999999", "-1", "1-"] {
            assert!(list(text).is_err(), "{text:?}");
        }
    }
}
