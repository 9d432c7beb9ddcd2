//! Prefetches the data of the next event while the current one is handled.
//!
//! The state of a run on hundreds of CPUs does not fit the first levels of cache. An event touches
//! lines that were last used about as many events ago as there are CPUs. Prefetching them makes a
//! run on 256 and 1024 CPUs 6 to 10 % faster. With few tasks it costs 2 to 4 %, so it is done only
//! from 512 tasks on (docs/notes/2026-11-25-speed.md). It does not change any result.

/// Prefetches the cache lines `lines` of a value, counted from its start.
#[inline(always)]
pub fn prefetch<T>(of: &T, lines: std::ops::Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    for line in lines {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start: *const i8 = std::ptr::from_ref(of).cast();
        // SAFETY: a hint that reads and writes nothing and may name any address. Every x86-64
        // processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(64 * line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (of, lines);
}
