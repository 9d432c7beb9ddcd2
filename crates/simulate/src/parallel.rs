//! Runs independent tasks in parallel.

use rayon::prelude::*;

/// That many threads could not be started.
#[derive(Debug, thiserror::Error)]
#[error("--jobs: {0}; give fewer")]
pub struct JobsError(#[from] rayon::ThreadPoolBuildError);

/// The results of `one` for all `items`, in the order of the items. `jobs` items are processed at a time (0: one per
/// core). Each thread takes the next item when it is free, so `items` may decide late what comes next.
///
/// # Errors
/// If that many threads cannot be started.
pub fn in_parallel<T: Send, R: Send>(
    jobs: usize,
    items: impl Iterator<Item = T> + Send,
    one: impl Fn(T) -> R + Send + Sync,
) -> Result<Vec<R>, JobsError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build()?;
    let one = |(index, item): (usize, T)| (index, one(item));
    let mut results: Vec<(usize, R)> =
        pool.install(|| items.enumerate().par_bridge().map(one).collect());
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
