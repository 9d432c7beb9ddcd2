//! How far a comparison is, for a person who watches the terminal.

use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use roost_engine::Time;

/// A bar on the terminal that counts runs, whose owner says how long they will still take; nothing where nobody
/// watches.
pub fn of_sweep(runs: u64) -> ProgressBar {
    bar(runs, "{bar:30} {pos}/{len} runs  {elapsed}  {msg}")
}

/// A bar on the terminal that counts runs; nothing where nobody watches.
pub fn of_runs(runs: u64) -> ProgressBar {
    bar(runs, "{bar:30} {pos}/{len} runs  {elapsed}  {left}")
}

/// A bar that counts the estimated milliseconds of runs that have ended.
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

/// How long it will still take: nobody knows before something is done.
fn time_left(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 {
        let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whole minutes, or seconds where there are few.
pub fn minutes(seconds: f64) -> String {
    match seconds {
        few if few < 100.0 => format!("{few:.0} s"),
        many => format!("{:.0} min", many / 60.0),
    }
}

/// A bar that counts the simulated time of runs, some of which go on at once.
pub struct Simulated {
    bar: ProgressBar,
    runs: Mutex<Runs>,
}

/// How far the runs are.
struct Runs {
    /// By run.
    reached_ns: Vec<u64>,
    ended: usize,
    /// Simulated time of those that have ended.
    ended_ns: u64,
    /// What a run takes if its tasks do not end before; `None`: until they do.
    duration_ns: Option<u64>,
}

impl Simulated {
    /// Of so many runs.
    pub fn new(runs: usize, duration_ns: Option<u64>) -> Self {
        let bar = bar(1, "{bar:30} {msg}  {elapsed}  {left}");
        let runs = Runs { reached_ns: vec![0; runs], ended: 0, ended_ns: 0, duration_ns };
        let simulated = Self { bar, runs: Mutex::new(runs) };
        simulated.show(|_| {});
        simulated
    }

    /// A run has reached that simulated time.
    pub fn reached(&self, run: usize, now: Time) {
        self.show(|runs| runs.reached_ns[run] = now.ns());
    }

    /// A run has ended after that simulated time.
    pub fn ended(&self, run: usize, ns: u64) {
        self.show(|runs| {
            runs.reached_ns[run] = ns;
            runs.ended += 1;
            runs.ended_ns += ns;
        });
    }

    /// All is done: the bar goes away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self, change: impl FnOnce(&mut Runs)) {
        if self.bar.is_hidden() {
            return;
        }
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut runs);
        if let Some(length_ns) = runs.length_ns() {
            self.bar.set_length(length_ns);
            self.bar.set_position(runs.sum_ns().min(length_ns));
        }
        self.bar.set_message(runs.to_string());
    }
}

impl Runs {
    /// Simulated time so far.
    fn sum_ns(&self) -> u64 {
        self.reached_ns.iter().sum()
    }

    /// Simulated time of all runs together: those that have not ended take as long as their duration, or
    /// as the others did. `None` if nobody knows yet.
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
        // The others will take as long as the first did, or longer if they are further already.
        assert_eq!(runs(&[S, S / 2, 0], 1, S, None).length_ns(), Some(3 * S));
        assert_eq!(runs(&[S, 5 * S, 0], 1, S, None).length_ns(), Some(6 * S));
    }
}
