//! What a real kernel did, in the simulation's words.
//!
//! ```text
//! /proc/schedstat ─────────────► Schedstat ─ since ─► SchedstatDelta ─┐
//! /proc/vmstat ────────────────► Vmstat ─ since ─────────────────────►│ names and values, as the
//! tracefs: raw pages, formats ─► Capture ─► Replay ─► a Tracer ──────►┘
//!                                                     (Observed, or a Perfetto trace)
//! ```
//!
//! A [`Capture`] is read from the folder that a measurement leaves. [`Replay`] tells a
//! [`Tracer`](roost_engine::Tracer) what happened, as the engine tells it what happened in a
//! simulation, and [`Observed`] counts both alike. Everything read is untrusted: whatever is in the files, the worst
//! outcome is a [`MeasureError`].

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
