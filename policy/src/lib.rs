//! The decisions of roost, as the C headers in `policy/include/roost` make them.
//!
//! Each module is one mechanism; its header tells what it does, the formula, the units and where it
//! was published. The same headers are compiled into the BPF scheduler.

pub mod cling;
pub mod consolidate;
pub mod llc_imbalance;
pub mod numa_imbalance;
pub mod sis_util;
pub mod utilisation;
