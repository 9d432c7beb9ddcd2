//! Reads the kernel's ring buffer as `trace_pipe_raw` provides it: pages of events (include/linux/ring_buffer.h and
//! kernel/trace/ring_buffer.c).
//!
//! ```text
//! page   timestamp │ commit │ event event event ... │ unused │
//!                  │        └─ commit bytes ────────┘
//!                  └─ with flags: events before this page are missing, and how many
//! event  type_len:5 time_delta:27 │ data
//! ```

use super::format::{Field, Fields};
use crate::error::{MEASURE_AGAIN, MeasureError, UNKNOWN_KERNEL};

/// Flag in a page's commit: events before this page are missing (RB_MISSED_EVENTS).
const MISSED_EVENTS: u64 = 1 << 31;
/// Flag: the number of missing events follows the page's events (RB_MISSED_STORED).
const MISSED_STORED: u64 = 1 << 30;

/// Types of events (enum ring_buffer_type). 0 is an event with its length in front of its data. Smaller numbers are the
/// length of the data in words of 4 bytes.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Bits of a time delta in an event's header.
const DELTA_BITS: u32 = 27;

/// The layout of a page.
#[derive(Clone, Debug)]
pub(crate) struct PageLayout {
    timestamp: Field,
    commit: Field,
    data: Field,
}

impl PageLayout {
    /// Reads `header_page`.
    pub fn parse(file: &str, text: &str) -> Result<Self, MeasureError> {
        let fields = Fields::parse(file, text)?;
        let layout = Self {
            timestamp: fields.get("timestamp")?,
            commit: fields.get("commit")?,
            data: fields.get("data")?,
        };
        let in_header = |field: &Field| field.offset + field.size <= layout.data.offset;
        if in_header(&layout.timestamp) && in_header(&layout.commit) && layout.data.size >= 4 {
            return Ok(layout);
        }
        Err(MeasureError::Mismatch {
            file: file.to_owned(),
            problem: "the data do not follow the header".into(),
            remedy: UNKNOWN_KERNEL,
        })
    }

    fn page_size(&self) -> usize {
        self.data.offset + self.data.size
    }
}

/// An event as stored in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent<'a> {
    /// The trace clock, ns.
    pub time: u64,
    /// The data that the event's format describes.
    pub data: &'a [u8],
    /// Offset of `data` in the file.
    pub offset: usize,
}

/// Reads one CPU's buffer from beginning to end.
#[derive(Clone, Debug)]
pub(crate) struct Pages<'a> {
    file: &'a str,
    bytes: &'a [u8],
    layout: &'a PageLayout,
    /// Start of the next page.
    next_page: usize,
    /// Position within the current page's events.
    position: usize,
    end: usize,
    time: u64,
    /// Number of events that are missing before the pages read so far. It is at least 1 if the kernel did not count
    /// them.
    pub missed: u64,
}

impl<'a> Pages<'a> {
    pub fn new(file: &'a str, bytes: &'a [u8], layout: &'a PageLayout) -> Self {
        Self { file, bytes, layout, next_page: 0, position: 0, end: 0, time: 0, missed: 0 }
    }

    pub fn error(&self, offset: usize, problem: String) -> MeasureError {
        MeasureError::Buffer { file: self.file.to_owned(), offset, problem, remedy: MEASURE_AGAIN }
    }

    /// The next event with data. `None` at the end of the buffer.
    pub fn next_event(&mut self) -> Result<Option<RawEvent<'a>>, MeasureError> {
        loop {
            if self.position >= self.end {
                if self.next_page >= self.bytes.len() {
                    return Ok(None);
                }
                self.open_page()?;
                continue;
            }
            if let Some(event) = self.step()? {
                return Ok(Some(event));
            }
        }
    }

    fn open_page(&mut self) -> Result<(), MeasureError> {
        let start = self.next_page;
        let page = self.bytes.get(start..).unwrap_or_default();
        let page = page.get(..self.layout.page_size()).unwrap_or(page);
        let header = self.layout.timestamp.integer(page).zip(self.layout.commit.integer(page));
        let Some((time, commit)) = header else {
            return Err(self.error(start, "the page's header is cut short".into()));
        };
        let commit = commit as u64;
        let used = usize::try_from(commit & !(MISSED_EVENTS | MISSED_STORED)).unwrap_or(usize::MAX);
        let begin = self.layout.data.offset;
        let Some(end) = begin.checked_add(used).filter(|end| *end <= page.len()) else {
            let there = page.len().saturating_sub(begin);
            return Err(
                self.error(start, format!("the page holds {used} bytes, {there} are there"))
            );
        };
        if commit & MISSED_EVENTS != 0 {
            let stored = self.layout.commit.at(end);
            let stored = stored.integer(page).filter(|_| commit & MISSED_STORED != 0);
            let missed = stored.and_then(|count| u64::try_from(count).ok()).unwrap_or(1);
            self.missed = self.missed.saturating_add(missed);
        }
        self.time = time as u64;
        self.position = start + begin;
        self.end = start + end;
        self.next_page = start + page.len();
        Ok(())
    }

    /// Reads one event, which may have data or only advance the time.
    fn step(&mut self) -> Result<Option<RawEvent<'a>>, MeasureError> {
        let header = self.word(0)?;
        let kind = header & 31;
        let delta = u64::from(header >> 5);
        match kind {
            PADDING if delta == 0 => self.position = self.end,
            // A discarded event. The kernel does not count its time either.
            PADDING => {
                let length = self.word(4)?;
                self.skip(4 + length as usize)?;
            }
            TIME_EXTEND => {
                let extend = u64::from(self.word(4)?) << DELTA_BITS;
                self.time = self.time.wrapping_add(extend | delta);
                self.skip(8)?;
            }
            TIME_STAMP => {
                self.time = absolute(u64::from(self.word(4)?) << DELTA_BITS | delta, self.time);
                self.skip(8)?;
            }
            _ => return self.data(kind, delta).map(Some),
        }
        Ok(None)
    }

    fn data(&mut self, kind: u32, delta: u64) -> Result<RawEvent<'a>, MeasureError> {
        let at = self.position;
        // A length in front of the data includes itself.
        let (before, length) = match kind {
            0 => (8, (self.word(4)? as usize).checked_sub(4)),
            words => (4, Some(4 * words as usize)),
        };
        let Some(length) = length else {
            return Err(self.error(at, "an event has no length".into()));
        };
        let offset = at + before;
        self.skip((before + length).next_multiple_of(4))?;
        let data = self.bytes.get(offset..offset + length).unwrap_or_default();
        self.time = self.time.wrapping_add(delta);
        Ok(RawEvent { time: self.time, data, offset })
    }

    /// The word at `offset` from the current position. It must be within the page's events.
    fn word(&self, offset: usize) -> Result<u32, MeasureError> {
        let place = self.position + offset;
        let bytes = self.bytes.get(place..self.end).and_then(<[u8]>::first_chunk::<4>);
        let short = || self.error(self.position, "an event is cut short".into());
        bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or_else(short)
    }

    fn skip(&mut self, length: usize) -> Result<(), MeasureError> {
        if length > self.end - self.position {
            let problem = "an event reaches beyond its page".into();
            return Err(self.error(self.position, problem));
        }
        self.position += length;
        Ok(())
    }
}

/// Completes a time stamp, which has only 59 bits, with the upper bits of the clock (rb_fix_abs_ts).
fn absolute(stamp: u64, now: u64) -> u64 {
    const BITS: u32 = 59;
    let upper = now >> BITS << BITS;
    let time = upper | stamp;
    if upper != 0 && time < now { time.wrapping_add(1 << BITS) } else { time }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
