//! What `--picture` and `--html` show: a timeline of each scheduler's first run.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

use roost_engine::{Outcome, Time};
use roost_report::{Timeline, TimelineRecorder};
use roost_simulate::Simulation;
use roost_workload::Workload;

use crate::args::{CompareArgs, Format, On};
use crate::error::{Error, tell};

/// The timelines of a comparison.
pub struct Look {
    wanted: bool,
    /// A timeline per scheduler, once its first run has ended.
    kept: Mutex<Vec<Option<Timeline>>>,
}

impl Look {
    /// The timelines that `args` asks for.
    pub fn new(args: &CompareArgs) -> Result<Self, Error> {
        if args.picture && args.format != Format::Table {
            let problem = "--picture is drawn below the table: leave out --format";
            return Err(Error::Usage(problem.into()));
        }
        Ok(Self { wanted: is_wanted(args), kept: Mutex::new(vec![None; args.schedulers.len()]) })
    }

    /// The recorder of a run, if timelines are wanted and this is the scheduler's first run.
    pub fn recorder(&self, simulation: &Simulation, is_first: bool) -> Option<TimelineRecorder> {
        let Simulation { machine, workload, .. } = simulation;
        (self.wanted && is_first).then(|| TimelineRecorder::new(machine, measured_from(workload)))
    }

    /// Stores the timeline of a scheduler's run that has ended.
    pub fn keep(&self, scheduler: usize, recorder: TimelineRecorder, outcome: &Outcome) {
        let timeline = recorder.finish(Time(outcome.elapsed_ns));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = kept.get_mut(scheduler) {
            *place = Some(timeline);
        }
    }

    /// The timelines, one per scheduler. Prints a note for each one that is missing because of `--resume`.
    pub fn timelines(self, args: &CompareArgs) -> Vec<Option<Timeline>> {
        let kept = self.kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (name, _) in
            args.schedulers.iter().zip(&kept).filter(|(_, timeline)| timeline.is_none())
        {
            if self.wanted && args.resume.is_some() {
                tell(&format!(
                    "note: no picture of {name}: its first run comes from the file of --resume"
                ));
            }
        }
        kept
    }
}

/// Whether `args` asks for something that shows runs over time.
pub fn is_wanted(args: &CompareArgs) -> bool {
    args.picture || args.html.is_some()
}

/// What a page lacks because its runs were on a real kernel, in a sentence each.
pub fn lacks(args: &CompareArgs, timelines: &[Option<Timeline>]) -> Vec<&'static str> {
    let mut lacks = Vec::new();
    if args.on != On::Sim {
        lacks.push(
            "A real kernel does not tell which thread accessed which memory: that part is left out.",
        );
        if timelines.iter().all(Option::is_none) {
            lacks.push(
                "Occupancy, migrations and latencies are left out: only root can trace a kernel.",
            );
        }
    }
    lacks
}

/// The time from which the engine measures.
fn measured_from(workload: &Workload) -> Time {
    let from = workload.measured_from_ns;
    Time(if workload.duration_ns.is_some_and(|end| from < end) { from } else { 0 })
}

/// The command line of this process, quoted for a shell.
pub fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    std::iter::once("roost".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Whether standard output shows colours and the user has not disabled them (no-color.org).
pub fn colours() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_what_was_given() {
        assert_eq!(quoted("fair@5.16+numa-imbalance"), "fair@5.16+numa-imbalance");
        assert_eq!(quoted("node:2 l3:8"), "'node:2 l3:8'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
