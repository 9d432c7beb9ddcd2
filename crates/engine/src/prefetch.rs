//! Brings what the next event reads into the processor's caches while the present one is handled.
//!
//! The state of a run on hundreds of CPUs does not fit the first levels of cache. An event touches lines that were
//! used last about as many events ago as there are CPUs. Asking for them early takes 6 to 10% off a run
//! on 256 and 1024 CPUs. It costs 2 to 4% where few tasks run, so it is done from 512 tasks on
//! (docs/notes/2026-11-25-speed.md). It changes no result.

/// Asks for the cache lines `lines` of a value, counted from its start.
#[inline(always)]
pub fn prefetch<T>(of: &T, lines: std::ops::Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    for line in lines {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start: *const i8 = std::ptr::from_ref(of).cast();
        // SAFETY: a hint, which reads and writes nothing and may name any address; each x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(64 * line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (of, lines);
}
