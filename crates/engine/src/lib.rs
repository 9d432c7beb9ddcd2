//! Discrete-event engine: time, CPUs, tasks, wakeups and their costs. It knows no policy.
//!
//! [`run()`] executes a workload on a machine under a [`Scheduler`]. A run is a function of (machine,
//! workload, scheduler, seed): the same inputs give the same [`Outcome`].
//!
//! # A scheduler
//!
//! The smallest useful scheduler, and a run under it (`examples/fifo.rs`, which a test runs):
//!
//! ```
#![doc = include_str!("../examples/fifo.rs")]
//! ```
//!
//! All other hooks of [`Scheduler`] have defaults. The kernel's fair class uses them.
//!
//! # What costs time
//!
//! These things cost simulated time: every hook's kernel work (the scheduler charges what it reads,
//! the engine charges wakeups, switches, ticks and interrupts), SMT sharing, refilling caches after
//! a migration, and sweeps over memory. `cpu.rs` describes how a task's progress follows from them,
//! and `memory.rs` describes sweeps.

mod audit;
mod background;
mod changes;
mod channels;
mod counters;
mod cpu;
mod events;
mod facts;
mod hotplug;
mod interpret;
mod memory;
mod mutex;
mod outcome;
mod own_thread;
mod power;
mod reached;
mod record;
mod run;
mod scheduler;
mod sync;
mod task;
mod time;
mod totals;
mod trace;
mod workers;
mod world;

pub use background::{Each, KERNEL_THREADS, KernelThread};
pub use counters::Counters;
pub use events::EVENT_NAMES;
pub use memory::{Area, Followed, GROUP_PAGES, Mapping, Marked};
pub use outcome::{Histogram, MetricValue, Outcome, RunTime, Waiting};
pub use reached::{Missing, TooShort};
pub use record::{Accessed, MemoryNow, Recorder, Start};
pub use run::{Control, RunError, run, run_observed};
pub use scheduler::{
    CpuId, Dequeue, Enqueue, HintingFault, LastAccess, Pick, Scheduler, TaskId, Wake, Work,
};
pub use time::Time;
pub use trace::{KnowsTasks, LeftAs, TraceTask, Tracer};
pub use world::LATEST_NS;
pub use world::World;
