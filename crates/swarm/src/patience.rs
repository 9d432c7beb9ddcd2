//! Finds runs that do not end. Events are counted, so that the result is the same on a busy machine. While a hook of
//! the scheduler does not return there are no events, so the CPU time of the run's thread is counted.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// When a run counts as hanging, and what to do then.
pub struct Patience<'a> {
    /// Number of events after which the run is asked to stop. It can do so between two events.
    pub events: u64,
    /// CPU time without an event. After it, a hook does not return.
    pub hook: Duration,
    /// Called in that case, from another thread, because nothing else can end the run.
    pub stuck: &'a (dyn Fn() + Sync),
}

/// Number of events of a run.
pub(crate) struct Events {
    number: AtomicU64,
    most: u64,
}

impl Events {
    /// Counts an event. Returns whether these are more than there should be.
    pub(crate) fn one_more(&self) -> bool {
        self.number.fetch_add(1, Ordering::Relaxed) >= self.most
    }
}

impl Patience<'_> {
    /// Calls `run` on this thread, and watches it from another thread.
    pub(crate) fn while_it_lasts<R>(&self, run: impl FnOnce(&Events) -> R) -> R {
        let events = Events { number: AtomicU64::new(0), most: self.events };
        // The link names this thread: PID/task/TID.
        let this = fs::read_link("/proc/thread-self").unwrap_or_default();
        let times = format!("/proc/{}/schedstat", this.display());
        thread::scope(|scope| {
            let (done, finished) = mpsc::channel::<()>();
            let number = &events.number;
            scope.spawn(move || self.watch(&times, number, &finished));
            let result = run(&events);
            drop(done);
            result
        })
    }

    fn watch(&self, times: &str, events: &AtomicU64, finished: &mpsc::Receiver<()>) {
        let now = || (events.load(Ordering::Relaxed), cpu_time(times));
        let (mut last, mut since) = now();
        while finished.recv_timeout(self.hook / 4) == Err(mpsc::RecvTimeoutError::Timeout) {
            let (number, time) = now();
            if number != last {
                (last, since) = (number, time);
            } else if time.saturating_sub(since) > self.hook {
                return (self.stuck)();
            }
        }
    }
}

/// For how long a thread has run: the first number of its `schedstat`, in ns.
fn cpu_time(file: &str) -> Duration {
    let text = fs::read_to_string(file).unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}
