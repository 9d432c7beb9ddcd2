//! The decisions of roost, as the C headers in `policy/include/roost` make them.
//!
//! Each module is one mechanism. Its header says what it does, with the formula, the units and the place of
//! publication. The same headers are compiled into the BPF scheduler. A user's rule may replace functions of the
//! headers ([`Decisions`], [`headers`]).

pub mod cling;
pub mod consolidate;
pub mod headers;
pub mod llc_imbalance;
pub mod numa_imbalance;
mod rules;
pub mod sis_util;
pub mod utilisation;

pub use rules::{Decisions, InForce};

/// The functions that decide, for each mechanism.
struct Table {
    cling: cling::Functions,
    consolidate: consolidate::Functions,
    llc_imbalance: llc_imbalance::Functions,
    numa_imbalance: numa_imbalance::Functions,
    sis_util: sis_util::Functions,
    utilisation: utilisation::Functions,
}

/// The functions of the headers.
static HEADERS_RULES: Table = Table::OF_HEADERS;

impl Table {
    const OF_HEADERS: Self = Self {
        cling: cling::Functions::OF_HEADER,
        consolidate: consolidate::Functions::OF_HEADER,
        llc_imbalance: llc_imbalance::Functions::OF_HEADER,
        numa_imbalance: numa_imbalance::Functions::OF_HEADER,
        sis_util: sis_util::Functions::OF_HEADER,
        utilisation: utilisation::Functions::OF_HEADER,
    };

    /// The functions that `find` returns, by name.
    ///
    /// # Safety
    /// The same as for [`Decisions::of_object`].
    unsafe fn find<E>(
        find: &mut impl FnMut(&'static str) -> Result<*const (), E>,
    ) -> Result<Self, E> {
        // SAFETY: the caller's promise is the same.
        unsafe {
            Ok(Self {
                cling: cling::Functions::find(find)?,
                consolidate: consolidate::Functions::find(find)?,
                llc_imbalance: llc_imbalance::Functions::find(find)?,
                numa_imbalance: numa_imbalance::Functions::find(find)?,
                sis_util: sis_util::Functions::find(find)?,
                utilisation: utilisation::Functions::find(find)?,
            })
        }
    }
}
