//! Statistics over the socket that tools for sched_ext schedulers use (scx_stats).

use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, after, unbounded};
use crossbeam::select;
use scx_stats::prelude::*;

use crate::console::{self, say};
use crate::error::LiveError;
use crate::metrics::{self, Question};
use crate::options::Options;
use crate::tables::Report;

/// Time that a running scheduler may take to answer, in ms.
const ANSWER_MS: u64 = 10_000;

/// Serves statistics while the scheduler runs: over the socket of scx_stats, and to Prometheus. The thread that has the
/// scheduler answers the questions.
pub struct Service {
    /// `None` if the socket cannot be used.
    stats: Option<StatsServer<(), Report>>,
    metrics: Receiver<Question>,
}

impl Service {
    /// Starts serving. If the socket of scx_stats cannot be used, this is reported and everything else continues. The
    /// address for Prometheus must work, because the user asked for it.
    pub fn start(options: &Options) -> Result<Self, LiveError> {
        let stats = StatsServer::new(data()).launch().map_err(|error| {
            say(format_args!("scx_roost: statistics: {error:#}; they are not served"));
        });
        let metrics = match options.metrics {
            Some(address) => metrics::serve(address)?,
            None => crossbeam::channel::never(),
        };
        Ok(Self { stats: stats.ok(), metrics })
    }

    /// Waits for questions for the time `wait`, and answers them.
    pub fn answer(&self, wait: Duration, report: impl Fn() -> Report) {
        let nobody = (unbounded().0, crossbeam::channel::never());
        let (answers, requests) = self.stats.as_ref().map_or(nobody, StatsServer::channels);
        let end = after(wait);
        loop {
            select! {
                recv(requests) -> request => match request {
                    // An error means that the questioner has gone away.
                    Ok(()) => drop(answers.send(report())),
                    Err(_) => return std::thread::sleep(wait),
                },
                recv(self.metrics) -> question => match question {
                    Ok(answer) => drop(answer.send(report())),
                    Err(_) => return std::thread::sleep(wait),
                },
                recv(end) -> _ => return,
            }
        }
    }
}

/// Describes the server's data: each client gets the counts since its last question.
fn data() -> StatsServerData<(), Report> {
    let open: Box<dyn StatsOpener<(), Report>> = Box::new(|_| {
        let mut last: Option<Report> = None;
        Ok(Box::new(move |_, (requests, answers)| {
            requests.send(())?;
            let now = answers.recv()?;
            let since = now.since(&last.replace(now.clone()).unwrap_or_default());
            since.to_json()
        }))
    });
    StatsServerData::new().add_meta(Report::meta()).add_ops("top", StatsOps { open, close: None })
}

/// All counters in one line, except those that are zero.
fn line(report: &Report) -> String {
    let all = report.rows().into_iter().filter(|(_, value)| *value != 0);
    let words: Vec<String> = all.map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ") + "\n"
}

/// Prints the lines of `--stats`.
pub struct Lines {
    interval: Duration,
    due: Instant,
    shown: Report,
}

impl Lines {
    /// Starts with the first line an interval from now.
    pub fn every(interval: Duration, now: Instant) -> Self {
        Self { interval, due: now + interval, shown: Report::default() }
    }

    /// Time until the next line is due.
    pub fn left(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// Prints the counts since the last line. The next line is due an interval from now, even if this one was late.
    pub fn show(&mut self, report: Report, now: Instant) {
        self.due = now + self.interval;
        if console::show(line(&report.since(&self.shown))) {
            self.shown = report;
        }
    }
}

/// Prints the meaning of all statistics.
pub fn help() -> Result<(), LiveError> {
    console::print(&description()?).map(drop)
}

fn description() -> Result<String, LiveError> {
    let mut text = Vec::new();
    let described = data().describe_meta(&mut text, None);
    described.map_err(|error| LiveError::Stats(format!("{error:#}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A connection to a running scheduler.
pub struct Client(StatsClient);

impl Client {
    /// Connects to the running scheduler.
    pub fn connect() -> Result<Self, LiveError> {
        match StatsClient::new().connect(Some(ANSWER_MS)) {
            Ok(client) => Ok(Self(client)),
            Err(error) => Err(not_running(&format!("{error:#}"))),
        }
    }

    /// The counts since the last question.
    pub fn report(&mut self) -> Result<Report, LiveError> {
        let answer = self.0.request::<Report>("stats", Vec::new());
        answer.map_err(|error| not_running(&format!("{error:#}")))
    }
}

fn not_running(reason: &str) -> LiveError {
    LiveError::Stats(format!("{reason}; check that scx_roost runs, and use sudo"))
}

/// Prints the statistics of a running scheduler until it ends, or until the reader goes away.
pub fn monitor(interval: Duration) -> Result<(), LiveError> {
    let mut client = Client::connect()?;
    while console::print(&line(&client.report()?))? {
        std::thread::sleep(interval);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_zero_is_not_printed() {
        let counters = Report { direct: 3, sis_search: 4, ..Report::default() };
        assert_eq!(line(&counters), "direct=3 sis_search=4\n");
    }

    /// As after the loader was stopped for a minute.
    #[test]
    fn lines_that_were_missed_are_not_made_up_for() {
        let (second, start) = (Duration::from_secs(1), Instant::now());
        let mut lines = Lines::every(second, start);
        assert_eq!((lines.left(start), lines.left(start + second / 4)), (second, second * 3 / 4));
        let late = start + 60 * second;
        assert!(lines.left(late).is_zero());
        lines.show(Report::default(), late);
        assert_eq!(lines.left(late), second);
    }

    #[test]
    fn every_counter_is_described() {
        let text = description().unwrap();
        for (name, _) in Report::default().rows() {
            assert!(text.contains(name), "{name} is missing in\n{text}");
        }
    }
}
