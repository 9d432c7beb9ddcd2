//! sched_ext programs: reads BPF objects, finds out what they need of a kernel, and runs them as schedulers of the
//! engine.
//!
//! 1. [`Object::parse`] reads what clang compiled: ELF, BTF, maps, variables, the scheduler's hooks.
//! 2. [`relocate`] finds the members of the kernel's structs that the program reads ([`KernelTypes`]).
//! 3. [`describe`] lists what the object contains and needs, for people and scripts.
//! 4. [`Program`] is an object prepared for a kernel, with settings, or what a loader gave to a kernel ([`Loaded`]).
//!    Its pointers are checked as the kernel's verifier does (`pointers.rs`).
//! 5. [`Scx`] runs it as a scheduler of the engine: by the reference interpreter or, if it runs for long, as machine
//!    code.
//!
//! For any input bytes, the result is an object or an error of one line.

mod arena;
mod audit;
mod btf_ext;
mod bytes;
mod class;
mod companion;
mod costs;
mod css;
mod describe;
mod dispatch;
mod early;
mod error;
mod format;
mod groups;
mod helpers;
mod idle;
mod instruction;
mod interpret;
mod iterators;
mod kernel;
mod kernel_names;
mod kernel_types;
mod kfuncs;
mod lines;
mod maps;
mod masks;
mod memory;
mod own_counters;
mod pointers;
mod program;
mod queues;
mod relocate;
mod sparse;
mod takeover;
mod tasks;
mod timers;
mod translate;

pub mod btf;
pub mod object;

pub use class::Scx;
pub use companion::{Companion, UserMaps};
pub use describe::{Description, HookSize, Setting, describe};
pub use early::{Early, EarlyMasks, Store};
pub use error::ScxError;
pub use instruction::Instruction;
pub use kernel_names::{Resolved, resolve};
pub use kernel_types::{KernelTypes, SHIPPED_VERSION};
pub use object::Object;
pub use program::Program;
pub use relocate::{Asked, POISON, Relocated, relocate};
pub use sparse::Sparse;
pub use takeover::{Loaded, LoadedMap, LoadedOperations, LoadedProgram, STRUCT_OPS_VALUE};
