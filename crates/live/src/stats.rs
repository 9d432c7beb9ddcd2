//! Statistics over the socket that tools of sched_ext schedulers know (scx_stats).

use std::io::Write;
use std::time::{Duration, Instant};

use scx_stats::prelude::*;

use crate::error::LiveError;
use crate::tables::Counters;

/// A running server; requests are answered by whoever has the scheduler.
pub struct Server(StatsServer<(), Counters>);

/// Answering the requests of a [`Server`].
pub trait Requests {
    /// Waits so long for requests and answers them.
    fn answer(&self, wait: Duration, counters: impl Fn() -> Counters);
}

impl Requests for Server {
    fn answer(&self, wait: Duration, counters: impl Fn() -> Counters) {
        let (answers, requests) = self.0.channels();
        let end = Instant::now() + wait;
        while requests.recv_deadline(end).is_ok() {
            // A client that is gone needs no answer.
            let _ = answers.send(counters());
        }
    }
}

/// What the server tells: each client what was counted since it last asked.
fn data() -> StatsServerData<(), Counters> {
    let open: Box<dyn StatsOpener<(), Counters>> = Box::new(|_| {
        let mut last: Option<Counters> = None;
        Ok(Box::new(move |_, (requests, answers)| {
            requests.send(())?;
            let now = answers.recv()?;
            let since = now.since(&last.replace(now.clone()).unwrap_or_default());
            since.to_json()
        }))
    });
    StatsServerData::new().add_meta(Counters::meta()).add_ops("top", StatsOps { open, close: None })
}

/// Starts the server.
pub fn serve() -> Result<Server, LiveError> {
    match StatsServer::new(data()).launch() {
        Ok(server) => Ok(Server(server)),
        Err(error) => Err(LiveError::Stats(format!("{error:#}; they are not served"))),
    }
}

/// Prints counters, those that are zero left out.
pub fn print(out: &mut impl Write, counters: &Counters) -> Result<(), LiveError> {
    let all = counters.rows().into_iter().filter(|(_, value)| *value != 0);
    let line: Vec<String> = all.map(|(name, value)| format!("{name}={value}")).collect();
    let failed = |error: std::io::Error| LiveError::Stats(error.to_string());
    writeln!(out, "{}", line.join(" ")).and_then(|()| out.flush()).map_err(failed)
}

/// Describes all statistics.
pub fn help(out: &mut impl Write) -> Result<(), LiveError> {
    data().describe_meta(out, None).map_err(|error| LiveError::Stats(format!("{error:#}")))
}

/// Prints the statistics of a running scheduler until it ends.
pub fn monitor(interval: Duration) -> Result<(), LiveError> {
    let failed = |error: &dyn std::fmt::Display| {
        LiveError::Stats(format!("{error}; is scx_roost running, and is this root?"))
    };
    let mut client =
        StatsClient::new().connect(None).map_err(|error| failed(&format!("{error:#}")))?;
    loop {
        let counters = client.request::<Counters>("stats", Vec::new());
        print(&mut std::io::stdout().lock(), &counters.map_err(|e| failed(&format!("{e:#}")))?)?;
        std::thread::sleep(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_zero_is_not_printed() {
        let counters = Counters { direct: 3, sis_search: 4, ..Counters::default() };
        let mut out = Vec::new();
        print(&mut out, &counters).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "direct=3 sis_search=4\n");
    }

    #[test]
    fn every_counter_is_described() {
        let mut out = Vec::new();
        help(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for (name, _) in Counters::default().rows() {
            assert!(text.contains(name), "{name} is missing in\n{text}");
        }
    }
}
