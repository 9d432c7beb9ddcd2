//! Boots a stock kernel in QEMU on a chosen machine, and runs jobs in it.
//!
//! ```no_run
//! use roost_vm::{Cache, Given, Guest, GuestSpec, Job, Pieces};
//!
//! let cache = Cache::of_user()?;
//! Pieces::prepare(&cache, &Given::default(), &mut |line| eprintln!("{line}"))?;
//! let machine = roost_machine::resolve("2n2l4c")?;
//! let mut guest = Guest::boot(&cache, &GuestSpec::new(&machine))?;
//! let result = guest.run(&Job::of(["hackbench", "-g", "2", "-l", "200"]))?;
//! println!("{}: {}", result.status, String::from_utf8_lossy(&result.stdout));
//! # Ok::<(), roost_vm::VmError>(())
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`prepare`] | finds, fetches and builds kernel, QEMU and root |
//! | `cache`, `apt`, `kernel`, `root`, `cpio`, `partition` | parts of [`prepare`] |
//! | [`shape`] | machines as QEMU can emulate them |
//! | [`qemu`] | the command line of QEMU |
//! | [`guest`] | one boot in the host's time: jobs go in, results come out |
//! | [`exact`] | one boot in which time counts instructions: repeats are identical |
//! | [`job`] | the jobs and their results |
//! | [`survey`] | what the guest's kernel says about its machine and its scheduling domains |
//! | [`domains`] | compares these with the model |
//! | [`terminal`] | the user's terminal, while it is used for a guest |
//! | `process` | a QEMU that does not outlive this program |
//! | `init.sh` | the guest's side of roost |

mod apt;
mod cache;
mod cpio;
pub mod domains;
mod error;
pub mod exact;
pub mod guest;
pub mod job;
mod kernel;
mod partition;
pub mod prepare;
mod process;
pub mod qemu;
mod root;
pub mod shape;
pub mod survey;
pub mod terminal;
mod tool;

pub use cache::Cache;
pub use error::VmError;
pub use guest::{Guest, GuestSpec, Shell};
pub use job::{Job, JobResult};
pub use kernel::Kernel;
pub use prepare::{Given, Pieces};
pub use root::{Addition, MARIADB};
pub use survey::Survey;
