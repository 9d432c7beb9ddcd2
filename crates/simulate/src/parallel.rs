//! Runs are what is done in parallel.

use rayon::prelude::*;

/// So many threads could not be had.
#[derive(Debug, thiserror::Error)]
#[error("--jobs: {0}; give fewer")]
pub struct JobsError(#[from] rayon::ThreadPoolBuildError);

/// What `one` makes of each of `items`, `jobs` at a time (0: one a core), in the order of the items. Each thread takes
/// the next item that nobody has taken, so `items` may decide late which that is.
///
/// # Errors
/// If so many threads cannot be had.
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
