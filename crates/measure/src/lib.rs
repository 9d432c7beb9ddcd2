//! Reads what a real kernel counted and traced, and presents it with the simulation's names.
//!
//! ```text
//! /proc/schedstat ─────────────► Schedstat ─ since ─► SchedstatDelta ─┐
//! /proc/vmstat ────────────────► Vmstat ─ since ─────────────────────►│ names and values, as the
//! tracefs: raw pages, formats ─► Capture ─► Replay ─► a Tracer ──────►┘
//!                                                     (Observed, or a Perfetto trace)
//! ```
//!
//! A [`Capture`] is read from the folder of a measurement. [`Replay`] reports the events to a
//! [`Tracer`](roost_engine::Tracer), as the engine does for a simulation. [`Observed`] counts both in the same way. All
//! input is untrusted: whatever the files contain, the worst result is a [`MeasureError`].

mod error;
pub mod ftrace;
mod named;
mod observed;
mod replay;
mod schedstat;
mod statistics;

pub use error::MeasureError;
pub use ftrace::Capture;
pub use named::observe_named;
pub use observed::{Observed, Places, SharedObserved};
pub use replay::{Audience, Replay, ReplayNotes};
pub use schedstat::{Schedstat, SchedstatDelta};
pub use statistics::Vmstat;
