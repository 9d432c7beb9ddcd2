//! Reads the scheduler's events of a run from the raw pages of the kernel's trace buffers, merged by time.

mod events;
mod format;
mod pages;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs;
use std::path::Path;

use events::Decoders;
pub use events::{Comm, EVENTS, SchedEvent};
use pages::{PageLayout, Pages};

use crate::error::{Line, MEASURE_AGAIN, MeasureError};

/// The layouts of buffers and events, as described by the kernel that wrote them.
#[derive(Clone, Debug)]
pub struct Formats {
    page: PageLayout,
    decoders: Decoders,
}

impl Formats {
    /// Parses `events/header_page`, `events/header_event` and the `format` files of [`EVENTS`] in that order. Each is
    /// its name for errors, and its text.
    pub fn parse(
        header_page: (&str, &str),
        header_event: (&str, &str),
        events: &[(String, String); EVENTS.len()],
    ) -> Result<Self, MeasureError> {
        format::check_event_header(header_event.0, header_event.1)?;
        Ok(Self {
            page: PageLayout::parse(header_page.0, header_page.1)?,
            decoders: Decoders::parse(events)?,
        })
    }
}

/// The buffer of one CPU.
#[derive(Clone, Debug)]
pub struct CpuBuffer {
    /// The CPU's number in the operating system.
    pub cpu: u32,
    /// The file's name, for errors.
    pub file: String,
    /// The contents of `trace_pipe_raw`.
    pub pages: Vec<u8>,
    /// Number of events that the kernel overwrote or dropped, according to the buffer's `stats`.
    pub lost: u64,
}

/// A recorded trace.
#[derive(Clone, Debug)]
pub struct Capture {
    formats: Formats,
    /// The buffers, by CPU.
    buffers: Vec<CpuBuffer>,
    /// The process of each thread.
    tgids: BTreeMap<u32, u32>,
    root_pid: u32,
}

impl Capture {
    /// Combines the parts of a trace. `tgids` is tracefs's `saved_tgids` (its name for errors, and its text).
    /// `root_pid` is the task whose descendants are the workload.
    pub fn new(
        formats: Formats,
        mut buffers: Vec<CpuBuffer>,
        tgids: (&str, &str),
        root_pid: u32,
    ) -> Result<Self, MeasureError> {
        buffers.sort_by_key(|buffer| buffer.cpu);
        Ok(Self { formats, buffers, tgids: parse_tgids(tgids.0, tgids.1)?, root_pid })
    }

    /// Reads the folder of a measurement. It contains `root_pid` and, in `trace`, the files `cpuN`, `stats/cpuN`,
    /// `header_page`, `header_event`, `format/EVENT` and, if the kernel has it, `saved_tgids`.
    pub fn read(dir: &Path) -> Result<Self, MeasureError> {
        let trace = dir.join("trace");
        let text = |path: &Path| -> Result<(String, String), MeasureError> {
            Ok((path.display().to_string(), text_of(path)?))
        };
        let header_page = text(&trace.join("header_page"))?;
        let header_event = text(&trace.join("header_event"))?;
        let mut events: [(String, String); EVENTS.len()] = Default::default();
        for (event, name) in events.iter_mut().zip(EVENTS) {
            *event = text(&trace.join("format").join(name))?;
        }
        let formats = Formats::parse(
            (&header_page.0, &header_page.1),
            (&header_event.0, &header_event.1),
            &events,
        )?;
        let (root_file, root_text) = text(&dir.join("root_pid"))?;
        let root_line = Line { file: &root_file, number: 1, text: &root_text };
        let root_pid = root_line.number(root_text.trim())?;
        let tgids = trace.join("saved_tgids");
        let tgids = if tgids.exists() { text(&tgids)? } else { Default::default() };
        Self::new(formats, read_buffers(&trace)?, (&tgids.0, &tgids.1), root_pid)
    }

    /// All events, ordered by time, and at the same time by CPU.
    pub fn events(&self) -> Events<'_> {
        let streams = self.buffers.iter().map(|buffer| Stream {
            cpu: buffer.cpu,
            pages: Pages::new(&buffer.file, &buffer.pages, &self.formats.page),
            pending: None,
        });
        Events {
            decoders: &self.formats.decoders,
            streams: streams.collect(),
            next: BinaryHeap::new(),
            begun: false,
            now: 0,
        }
    }

    /// Number of events that the kernel lost because a buffer was full. It is the larger of the kernel's own count and
    /// the count in the pages that `read` has seen.
    pub fn lost_events(&self, read: &Events<'_>) -> u64 {
        let sum = |lost: u64, more| lost.saturating_add(more);
        let counted = self.buffers.iter().map(|buffer| buffer.lost).fold(0, sum);
        let missed = read.streams.iter().map(|stream| stream.pages.missed).fold(0, sum);
        counted.max(missed)
    }

    /// Name of the file with the buffer of `cpu`, for errors.
    pub(crate) fn file_of(&self, cpu: u32) -> String {
        let buffer = self.buffers.iter().find(|buffer| buffer.cpu == cpu);
        buffer.map_or_else(|| "trace".into(), |buffer| buffer.file.clone())
    }

    /// The process of thread `pid`, if the kernel saved it. Otherwise the thread itself.
    pub fn process_of(&self, pid: u32) -> u32 {
        self.tgids.get(&pid).copied().unwrap_or(pid)
    }

    /// The task whose descendants are the workload.
    pub fn root_pid(&self) -> u32 {
        self.root_pid
    }
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, MeasureError> {
    let error = |error: std::io::Error| MeasureError::Read {
        file: path.display().to_string(),
        reason: error.to_string(),
    };
    fs::read(path).map_err(error)
}

/// The text of a file. Invalid characters are replaced, because names of tasks may contain any bytes.
fn text_of(path: &Path) -> Result<String, MeasureError> {
    Ok(String::from_utf8_lossy(&bytes_of(path)?).into_owned())
}

/// Reads the files `cpuN` and their statistics.
fn read_buffers(trace: &Path) -> Result<Vec<CpuBuffer>, MeasureError> {
    let error = |error: std::io::Error| MeasureError::Read {
        file: trace.display().to_string(),
        reason: error.to_string(),
    };
    let mut buffers = Vec::new();
    for entry in fs::read_dir(trace).map_err(error)? {
        let name = entry.map_err(error)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        let Some(cpu) = number else { continue };
        let path = trace.join(&name);
        let stats = trace.join("stats").join(&name);
        buffers.push(CpuBuffer {
            cpu,
            file: path.display().to_string(),
            pages: bytes_of(&path)?,
            lost: lost(&stats.display().to_string(), &text_of(&stats)?)?,
        });
    }
    match buffers.is_empty() {
        false => Ok(buffers),
        true => Err(MeasureError::Mismatch {
            file: trace.display().to_string(),
            problem: "no buffer of any CPU".into(),
            remedy: MEASURE_AGAIN,
        }),
    }
}

/// Number of overwritten or dropped events, according to a buffer's `stats`.
fn lost(file: &str, text: &str) -> Result<u64, MeasureError> {
    let mut sum = 0_u64;
    for line in Line::all(file, text) {
        let Some((key, value)) = line.text.split_once(':') else { continue };
        if matches!(key, "overrun" | "commit overrun" | "dropped events") {
            sum = sum.saturating_add(line.number(value.trim())?);
        }
    }
    Ok(sum)
}

/// Parses lines with the numbers of a thread and its process.
fn parse_tgids(file: &str, text: &str) -> Result<BTreeMap<u32, u32>, MeasureError> {
    let mut tgids = BTreeMap::new();
    for line in Line::all(file, text) {
        let Some((pid, tgid)) = line.text.trim().split_once(' ') else {
            return Err(line.error("not a thread and its process".into(), MEASURE_AGAIN));
        };
        tgids.insert(line.number(pid)?, line.number(tgid.trim())?);
    }
    Ok(tgids)
}

/// An event with its time and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedEvent<'a> {
    /// The trace clock, ns.
    pub time: u64,
    /// The CPU on which it happened, with the operating system's number.
    pub cpu: u32,
    /// Offset of its data in the CPU's file.
    pub offset: usize,
    /// What happened.
    pub event: SchedEvent<'a>,
}

/// The events of all CPUs, merged. The iterator ends after the first error.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    decoders: &'a Decoders,
    streams: Vec<Stream<'a>>,
    /// Streams with a pending event, by the event's time.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    begun: bool,
    now: u64,
}

#[derive(Clone, Debug)]
struct Stream<'a> {
    cpu: u32,
    pages: Pages<'a>,
    pending: Option<TimedEvent<'a>>,
}

impl<'a> Stream<'a> {
    /// Reads up to the next event of a known kind.
    fn advance(&mut self, decoders: &Decoders) -> Result<Option<u64>, MeasureError> {
        while let Some(raw) = self.pages.next_event()? {
            let wrong = |problem: &str| self.pages.error(raw.offset, problem.to_owned());
            if let Some(event) = decoders.decode(&raw).map_err(wrong)? {
                let (time, offset) = (raw.time, raw.offset);
                self.pending = Some(TimedEvent { time, cpu: self.cpu, offset, event });
                return Ok(Some(time));
            }
        }
        Ok(None)
    }
}

impl<'a> Events<'a> {
    fn advance(&mut self, index: usize) -> Result<(), MeasureError> {
        let Some(stream) = self.streams.get_mut(index) else { return Ok(()) };
        if let Some(time) = stream.advance(self.decoders)? {
            self.next.push(Reverse((time, index)));
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Option<TimedEvent<'a>>, MeasureError> {
        if !self.begun {
            self.begun = true;
            (0..self.streams.len()).try_for_each(|index| self.advance(index))?;
        }
        let Some(Reverse((_, index))) = self.next.pop() else { return Ok(None) };
        let event = self.streams.get_mut(index).and_then(|stream| stream.pending.take());
        self.advance(index)?;
        // Time never moves back within a CPU: if the clock steps back, the last time is kept.
        Ok(event.map(|event| {
            self.now = self.now.max(event.time);
            TimedEvent { time: self.now, ..event }
        }))
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<TimedEvent<'a>, MeasureError>;

    fn next(&mut self) -> Option<Self::Item> {
        let taken = self.take();
        if taken.is_err() {
            self.next.clear();
        }
        taken.transpose()
    }
}
