//! Progress bars of comparisons and sweeps. They are drawn only if standard error is a terminal. The time that a long
//! comparison takes is estimated and told in any case.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use roost_engine::Time;

use crate::error::tell;

/// A bar that counts runs; the caller sets the text about the time left.
pub fn of_sweep(runs: u64) -> ProgressBar {
    bar(runs, "{bar:30} {pos}/{len} runs  {elapsed}  {msg}")
}

/// A bar that counts runs and estimates the time left.
pub fn of_runs(runs: u64) -> ProgressBar {
    bar(runs, "{bar:30} {pos}/{len} runs  {elapsed}  {left}")
}

/// A bar that counts the estimated milliseconds of finished runs.
pub fn of_estimate(milliseconds: u64) -> ProgressBar {
    bar(milliseconds, "{bar:30} {percent}% of the runs' time  {elapsed}  {left}")
}

fn bar(length: u64, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("left", time_left));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The estimated time left. Empty until something is done.
fn time_left(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
    }
}

/// Number of cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A duration in whole minutes, or in seconds if it is short.
pub fn minutes(seconds: f64) -> String {
    match seconds {
        few if few < 100.0 => format!("{few:.0} s"),
        many => format!("{:.0} min", many / 60.0),
    }
}

/// Comparisons that take longer than this say so at their beginning.
const LONG: Duration = Duration::from_secs(60);

/// A bar that counts simulated time. Several runs may advance at once.
pub struct Simulated {
    bar: ProgressBar,
    begun: Instant,
    /// Whether the time of all runs has been estimated.
    estimated: AtomicBool,
    runs: Mutex<Runs>,
}

/// The progress of all runs.
struct Runs {
    /// Simulated time that each run has reached.
    reached_ns: Vec<u64>,
    ended: usize,
    /// Simulated time of the finished runs.
    ended_ns: u64,
    /// Length of a run, unless its tasks end earlier. `None`: a run lasts until its tasks end.
    duration_ns: Option<u64>,
}

impl Simulated {
    /// A bar for `runs` runs.
    pub fn new(runs: usize, duration_ns: Option<u64>) -> Self {
        let bar = bar(1, "{bar:30} {msg}  {elapsed}  {left}");
        let runs = Runs { reached_ns: vec![0; runs], ended: 0, ended_ns: 0, duration_ns };
        let (begun, estimated) = (Instant::now(), AtomicBool::new(false));
        let simulated = Self { bar, begun, estimated, runs: Mutex::new(runs) };
        simulated.show(|_| {});
        simulated
    }

    /// Records that a run has reached the simulated time `now`.
    pub fn reached(&self, run: usize, now: Time) {
        self.show(|runs| runs.reached_ns[run] = now.ns());
    }

    /// Records that a run has ended after `ns` of simulated time.
    pub fn ended(&self, run: usize, ns: u64) {
        self.show(|runs| {
            runs.reached_ns[run] = ns;
            runs.ended += 1;
            runs.ended_ns += ns;
        });
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints how long all runs will take, once and only if that is long.
    fn tell_if_long(&self, all: Duration) {
        let first = !self.estimated.swap(true, Ordering::Relaxed);
        if first && all >= LONG {
            let text = format!("the runs take about {}", minutes(all.as_secs_f64()));
            self.bar.suspend(|| tell(&text));
        }
    }

    fn show(&self, change: impl FnOnce(&mut Runs)) {
        let estimated = self.estimated.load(Ordering::Relaxed);
        if self.bar.is_hidden() && estimated {
            return;
        }
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut runs);
        if !estimated && let Some(all) = runs.estimate(self.begun.elapsed()) {
            self.tell_if_long(all);
        }
        if let Some(length_ns) = runs.length_ns() {
            self.bar.set_length(length_ns);
            self.bar.set_position(runs.sum_ns().min(length_ns));
        }
        self.bar.set_message(runs.to_string());
    }
}

impl Runs {
    /// Estimated time of all runs, if `elapsed` passed until now. `None` until a hundredth is done.
    fn estimate(&self, elapsed: Duration) -> Option<Duration> {
        let (done, all) = (self.sum_ns(), self.length_ns()?);
        (done >= all.div_ceil(100)).then(|| elapsed.mul_f64(all as f64 / done as f64))
    }

    /// Simulated time that all runs have reached, in sum.
    fn sum_ns(&self) -> u64 {
        self.reached_ns.iter().sum()
    }

    /// Estimated simulated time of all runs. Unfinished runs are assumed to take `duration_ns`, or the mean of the
    /// finished runs. `None` if neither is known.
    fn length_ns(&self) -> Option<u64> {
        let mean = || self.ended_ns.checked_div(self.ended as u64);
        let each = self.duration_ns.or_else(mean)?;
        let left = (self.reached_ns.len() - self.ended) as u64;
        Some((self.ended_ns + left * each).max(self.sum_ns()).max(1))
    }
}

impl std::fmt::Display for Runs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |ns: u64| ns as f64 / 1e9;
        write!(f, "{:.3}", seconds(self.sum_ns()))?;
        if let Some(length_ns) = self.length_ns() {
            write!(f, " of {:.3}", seconds(length_ns))?;
        }
        write!(f, " s simulated, {}/{} runs", self.ended, self.reached_ns.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(reached_ns: &[u64], ended: usize, ended_ns: u64, duration_ns: Option<u64>) -> Runs {
        Runs { reached_ns: reached_ns.to_vec(), ended, ended_ns, duration_ns }
    }

    #[test]
    fn time_counts_before_a_run_has_ended() {
        const S: u64 = 1_000_000_000;
        let known = runs(&[S, S / 2, 0, 0], 0, 0, Some(2 * S));
        assert_eq!(known.to_string(), "1.500 of 8.000 s simulated, 0/4 runs");
        let one_ended_early = runs(&[S, S / 2, 0, 0], 1, S, Some(2 * S));
        assert_eq!(one_ended_early.length_ns(), Some(7 * S));
        let unknown = runs(&[S, S / 2, 0], 0, 0, None);
        assert_eq!(unknown.to_string(), "1.500 s simulated, 0/3 runs");
        // The unfinished runs are assumed to take as long as the first, or as long as they have taken already.
        assert_eq!(runs(&[S, S / 2, 0], 1, S, None).length_ns(), Some(3 * S));
        assert_eq!(runs(&[S, 5 * S, 0], 1, S, None).length_ns(), Some(6 * S));
    }

    #[test]
    fn the_time_of_all_runs_follows_from_their_first_hundredth() {
        const S: u64 = 1_000_000_000;
        let three_seconds = Duration::from_secs(3);
        // 1 of 400 simulated seconds is too little to go by, 4 are a hundredth.
        let done = |ns| runs(&[ns, 0], 0, 0, Some(200 * S)).estimate(three_seconds);
        assert_eq!(done(S), None);
        assert_eq!(done(4 * S), Some(Duration::from_secs(300)));
        // Where only a run's end tells its length, the first of three runs is a third.
        assert_eq!(runs(&[S, 0, 0], 0, 0, None).estimate(three_seconds), None);
        assert_eq!(runs(&[S, 0, 0], 1, S, None).estimate(three_seconds), Some(three_seconds * 3));
    }
}
