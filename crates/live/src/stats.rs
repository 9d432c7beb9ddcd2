//! Statistics over the socket that tools of sched_ext schedulers know (scx_stats).

use std::io::Write;
use std::time::Duration;

use crossbeam::channel::{Receiver, after, unbounded};
use crossbeam::select;
use scx_stats::prelude::*;

use crate::error::LiveError;
use crate::metrics::{self, Question};
use crate::options::Options;
use crate::say;
use crate::tables::Report;

/// Milliseconds that a running scheduler may take to answer.
const ANSWER_MS: u64 = 10_000;

/// What is asked for while the scheduler runs: over the socket of scx_stats, and by Prometheus.
/// Questions are answered by whoever has the scheduler.
pub struct Service {
    /// `None` if the socket cannot be had.
    stats: Option<StatsServer<(), Report>>,
    metrics: Receiver<Question>,
}

impl Service {
    /// Starts serving. A socket that cannot be had is told, and all else goes on; an address for
    /// Prometheus was asked for, so that it has to be had.
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

    /// Waits so long for questions and answers them.
    pub fn answer(&self, wait: Duration, report: impl Fn() -> Report) {
        let nobody = (unbounded().0, crossbeam::channel::never());
        let (answers, requests) = self.stats.as_ref().map_or(nobody, StatsServer::channels);
        let end = after(wait);
        loop {
            select! {
                recv(requests) -> request => match request {
                    // Who is gone needs no answer.
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

/// What the server tells: each client what was counted since it last asked.
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

/// Prints counters, those that are zero left out.
pub fn print(out: &mut impl Write, report: &Report) -> Result<(), LiveError> {
    let all = report.rows().into_iter().filter(|(_, value)| *value != 0);
    let line: Vec<String> = all.map(|(name, value)| format!("{name}={value}")).collect();
    let failed = |error: std::io::Error| LiveError::Stats(error.to_string());
    writeln!(out, "{}", line.join(" ")).and_then(|()| out.flush()).map_err(failed)
}

/// Describes all statistics.
pub fn help(out: &mut impl Write) -> Result<(), LiveError> {
    data().describe_meta(out, None).map_err(|error| LiveError::Stats(format!("{error:#}")))
}

/// A connection to a running scheduler.
pub struct Client(StatsClient);

impl Client {
    /// Connects.
    pub fn connect() -> Result<Self, LiveError> {
        match StatsClient::new().connect(Some(ANSWER_MS)) {
            Ok(client) => Ok(Self(client)),
            Err(error) => Err(not_running(&format!("{error:#}"))),
        }
    }

    /// What was counted since it last asked.
    pub fn report(&mut self) -> Result<Report, LiveError> {
        let answer = self.0.request::<Report>("stats", Vec::new());
        answer.map_err(|error| not_running(&format!("{error:#}")))
    }
}

fn not_running(reason: &str) -> LiveError {
    LiveError::Stats(format!("{reason}; is scx_roost running, and is this root?"))
}

/// Prints the statistics of a running scheduler until it ends.
pub fn monitor(interval: Duration) -> Result<(), LiveError> {
    let mut client = Client::connect()?;
    loop {
        print(&mut std::io::stdout().lock(), &client.report()?)?;
        std::thread::sleep(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_zero_is_not_printed() {
        let counters = Report { direct: 3, sis_search: 4, ..Report::default() };
        let mut out = Vec::new();
        print(&mut out, &counters).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "direct=3 sis_search=4\n");
    }

    #[test]
    fn every_counter_is_described() {
        let mut out = Vec::new();
        help(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for (name, _) in Report::default().rows() {
            assert!(text.contains(name), "{name} is missing in\n{text}");
        }
    }
}
