//! Sums by place and window of time.

use std::ops::Range;

use roost_engine::Time;

/// Number of windows that are kept of a run.
pub const WINDOWS: usize = 128;

/// Sums by place (rows) and window of time (columns).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    nr_rows: usize,
    /// The values, window by window, because values of the same time are written together.
    cells: Vec<u64>,
}

impl Grid {
    pub(crate) fn new(nr_rows: usize) -> Self {
        Self { nr_rows, cells: vec![0; nr_rows * WINDOWS] }
    }

    /// A row: one value per window.
    ///
    /// # Panics
    /// If the row does not exist.
    pub fn row(&self, row: usize) -> impl ExactSizeIterator<Item = u64> {
        assert!(row < self.nr_rows, "row {row} of {}", self.nr_rows);
        self.cells[row..].iter().step_by(self.nr_rows).copied()
    }

    /// All rows.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Vec<u64>> {
        (0..self.nr_rows).map(|row| self.row(row).collect())
    }

    /// The sum of all values.
    pub fn sum(&self) -> u64 {
        self.cells.iter().sum()
    }

    #[inline]
    pub(crate) fn add(&mut self, row: usize, window: usize, value: u64) {
        self.cells[window * self.nr_rows + row] += value;
    }

    /// Merges each pair of neighbouring windows. The second half is empty afterwards.
    pub(crate) fn fold(&mut self) {
        let rows = self.nr_rows;
        for window in 0..WINDOWS / 2 {
            for row in 0..rows {
                let first = 2 * window * rows + row;
                self.cells[window * rows + row] = self.cells[first] + self.cells[first + rows];
            }
        }
        self.cells[WINDOWS / 2 * rows..].fill(0);
    }

    /// A grid of `rows` rows. Row `i` of this grid is added to row `of[i]`.
    pub(crate) fn merged(&self, rows: usize, of: &[usize]) -> Self {
        let mut merged = Self::new(rows);
        for (row, &to) in of.iter().enumerate() {
            for (window, value) in self.row(row).enumerate() {
                merged.add(to, window, value);
            }
        }
        merged
    }
}

/// Windows of equal length: `2^shift` ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    shift: u32,
}

impl Windows {
    /// The shortest windows. They are enough for a run of 131 us.
    pub(crate) const FIRST: Self = Self { shift: 10 };

    /// Windows of twice the length.
    pub(crate) fn doubled(self) -> Self {
        Self { shift: self.shift + 1 }
    }

    /// Length of a window, in ns.
    pub(crate) fn ns(self) -> u64 {
        1 << self.shift
    }

    /// Whether all of [`WINDOWS`] windows end before `now`.
    pub(crate) fn are_outgrown_by(self, now: u64) -> bool {
        now > (WINDOWS as u64) << self.shift
    }

    /// The time of a window.
    pub(crate) fn span(self, window: usize) -> Range<Time> {
        let window = window as u64;
        Time(window << self.shift)..Time((window + 1) << self.shift)
    }

    /// The windows that overlap `from..to`, each with the overlap in ns.
    pub(crate) fn split(self, from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> {
        let mut from = from;
        std::iter::from_fn(move || {
            if from >= to {
                return None;
            }
            let window = from >> self.shift;
            let end = ((window + 1) << self.shift).min(to);
            let ns = end - from;
            from = end;
            Some((window as usize, ns))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_split_where_windows_end() {
        let windows = Windows::FIRST;
        let split = |from, to| windows.split(from, to).collect::<Vec<_>>();
        assert_eq!(split(5, 5), []);
        assert_eq!(split(5, 9), [(0, 4)]);
        assert_eq!(split(1000, 1024), [(0, 24)]);
        assert_eq!(windows.span(2), Time(2048)..Time(3072));
        assert_eq!(split(1000, 3000), [(0, 24), (1, 1024), (2, 952)]);
        assert!(!windows.are_outgrown_by(128 * 1024));
        assert!(windows.are_outgrown_by(128 * 1024 + 1));
    }

    #[test]
    fn neighbours_merge_and_rows_add_up() {
        let mut grid = Grid::new(2);
        for window in 0..WINDOWS {
            grid.add(0, window, 1);
            grid.add(1, window, 10);
        }
        grid.add(1, 3, 5);
        grid.fold();
        let rows: Vec<Vec<u64>> = grid.rows().collect();
        assert_eq!(rows[0][..2], [2, 2]);
        assert_eq!(rows[1][..3], [20, 25, 20]);
        assert!(rows[1][WINDOWS / 2..].iter().all(|&value| value == 0));
        assert_eq!(grid.sum(), 11 * WINDOWS as u64 + 5);
        let merged = grid.merged(1, &[0, 0]);
        assert_eq!(merged.row(0).take(3).collect::<Vec<_>>(), [22, 27, 22]);
    }
}
