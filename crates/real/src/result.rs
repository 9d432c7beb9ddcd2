//! The results of a measurement, with the simulation's names.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use roost_engine::{Outcome, RunTime};
use roost_machine::{Cpu, Machine};
use roost_measure::{Capture, Schedstat, Vmstat};

use crate::error::RealError;
use crate::program::Workload;

/// Levels of domains that lie within one LLC.
const WITHIN_LLC: [&str; 3] = ["SMT", "CLS", "MC"];

/// The folder that `measure.sh` has filled.
#[derive(Debug)]
pub struct Measured {
    folder: PathBuf,
    /// Time that the workload ran, in ns.
    pub elapsed_ns: u64,
}

impl Measured {
    /// Checks the results in `folder` of a measurement of `workload` under `scheduler`. A failed measurement is an
    /// error.
    pub(crate) fn check(folder: &Path, workload: &str, scheduler: &str) -> Result<Self, RealError> {
        if let Ok(reason) = std::fs::read_to_string(folder.join("failure")) {
            return Err(RealError::Failed(format!("{scheduler}: {}", reason.trim())));
        }
        let measured = Self { folder: folder.to_owned(), elapsed_ns: 0 };
        let status = measured.number("status")? as i32;
        if status != 0 {
            let errors = measured.text("stderr")?;
            let last = errors.lines().rev().find(|line| !line.trim().is_empty());
            return Err(RealError::Workload {
                workload: workload.to_owned(),
                scheduler: scheduler.to_owned(),
                status,
                reason: last.unwrap_or("it says nothing").trim().to_owned(),
            });
        }
        let (begin, end) = (measured.number("begin_ns")?, measured.number("end_ns")?);
        Ok(Self { elapsed_ns: end.saturating_sub(begin), ..measured })
    }

    /// The part of a [`Workload::of_rt_app`] that was measured, in ns from the creation of its first thread. It is
    /// later than requested by half of the time that reading the counters took.
    pub fn window_ns(&self) -> Result<Range<u64>, RealError> {
        let first = self.number("first_ns")?;
        let (begin, end) = (self.number("begin_ns")?, self.number("end_ns")?);
        Ok(begin.saturating_sub(first)..end.saturating_sub(first))
    }

    /// The kernel's release (`uname -r`).
    pub fn release(&self) -> Result<String, RealError> {
        Ok(self.text("release")?.trim().to_owned())
    }

    /// Metrics and counters of a run of `workload` on `machine`.
    pub fn outcome(&self, workload: &Workload, machine: &Machine) -> Result<Outcome, RealError> {
        let stdout = self.text("stdout")?;
        let mut counters = Vec::new();
        self.for_each(machine, &mut |name, value| counters.push((name.to_owned(), value as f64)))?;
        Ok(Outcome {
            elapsed_ns: self.elapsed_ns,
            metrics: workload.metrics(&stdout, &self.folder.join("work"), self.elapsed_ns),
            counters,
            histograms: Vec::new(),
            too_short: None,
            waiting: None,
            run_time: self.run_time(machine)?,
        })
    }

    /// Where tasks ran, including tasks that do not belong to the workload.
    fn run_time(&self, machine: &Machine) -> Result<RunTime, RealError> {
        let counted = self.schedstat(machine)?;
        let on = |cpu: &Cpu| counted.run_ns(cpu.os_index).unwrap_or(0);
        Ok(RunTime::by_place(machine, &machine.cpus.iter().map(on).collect::<Vec<_>>()))
    }

    /// Name and value of every counter: first those that the engine has too, then the kernel's own.
    /// [`Workload::counted`] says what they cover.
    pub fn for_each(
        &self,
        machine: &Machine,
        sink: &mut dyn FnMut(&str, u64),
    ) -> Result<(), RealError> {
        let mut kernel = BTreeMap::new();
        let mut own = Vec::new();
        self.schedstat(machine)?.for_each(&mut |name, value| {
            kernel.insert(name.to_owned(), value);
            own.push((name.to_owned(), value));
        });
        let of_kernel = |name: &str| kernel.get(name).copied().unwrap_or(0);
        let mut within_llc = None;
        // Without root there are no histograms, and possibly no statistics.
        if let Ok(hist) = self.text("hist/wakeups") {
            let moves = Moves::read(&hist, machine);
            sink("wakeups", moves.total);
            sink("wakeups_prev", moves.none);
            within_llc = moves.within_llc;
        }
        let counted = self.number("schedstats")? != 0;
        if let Some(within_llc) = within_llc {
            sink("wakeups_waker_llc", within_llc);
        } else if counted {
            let remote = WITHIN_LLC.map(|level| of_kernel(&format!("{level}.ttwu_wake_remote")));
            sink("wakeups_waker_llc", of_kernel("ttwu_local") + remote.iter().sum::<u64>());
        }
        if let Ok(hist) = self.text("hist/migrations") {
            Migrations::read(&hist, machine).for_each(sink);
        }
        let machine_wide = ["ctxt", "processes"].map(|name| self.stat(name));
        let [switches, forks] = machine_wide;
        sink("context_switches", switches?);
        sink("forks", forks?);
        sink("run_ns", of_kernel("rq_cpu_time"));
        sink("run_delay_ns", of_kernel("run_delay"));
        let named_above = ["rq_cpu_time", "run_delay", "ttwu_count", "ttwu_local"];
        let further = own.iter().filter(|(name, _)| !named_above.contains(&name.as_str()));
        for (name, value) in further.filter(|_| counted) {
            sink(name, *value);
        }
        self.vmstat()?.for_each(sink);
        Ok(())
    }

    /// Name and increase of each counter that the scheduler keeps itself. Nothing if it was not asked for them.
    pub fn for_each_own(&self, sink: &mut dyn FnMut(&str, u64)) -> Result<(), RealError> {
        if !self.folder.join("before/counters").exists() {
            return Ok(());
        }
        let [before, after] = ["before", "after"].map(|moment| {
            let file = format!("{moment}/counters");
            let counted = served(&self.text(&file)?);
            match counted.is_empty() {
                true => Err(RealError::Failed(format!(
                    "{file}: the scheduler did not answer with its counters; measure again"
                ))),
                false => Ok(counted),
            }
        });
        let before = before?;
        for (name, value) in after? {
            let earlier = before.get(&name).copied().unwrap_or(0);
            sink(&name, value.saturating_sub(earlier));
        }
        Ok(())
    }

    /// Every switch and wakeup. Only available if the measurement had a stream.
    pub fn capture(&self) -> Result<Capture, RealError> {
        Ok(Capture::read(&self.folder)?)
    }

    fn schedstat(&self, machine: &Machine) -> Result<roost_measure::SchedstatDelta, RealError> {
        let levels = Levels::of(machine);
        let read = |moment: &str| {
            let file = format!("{moment}/schedstat");
            let text = self.text(&file)?;
            Ok::<_, RealError>(Schedstat::parse(&file, &text, |_, level| levels.name(level))?)
        };
        Ok(read("after")?.since(&read("before")?)?)
    }

    fn vmstat(&self) -> Result<Vmstat, RealError> {
        let read = |moment: &str| {
            let file = format!("{moment}/vmstat");
            Ok::<_, RealError>(Vmstat::parse(&file, &self.text(&file)?)?)
        };
        Ok(read("after")?.since(&read("before")?))
    }

    /// The increase of a number in `/proc/stat`.
    fn stat(&self, name: &str) -> Result<u64, RealError> {
        let read = |moment: &str| {
            let text = self.text(&format!("{moment}/stat"))?;
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
            let number = lines.find_map(|rest| rest.trim().parse::<u64>().ok());
            number.ok_or_else(|| {
                RealError::Failed(format!("{moment}/stat: no {name}; measure again"))
            })
        };
        Ok(read("after")?.saturating_sub(read("before")?))
    }

    pub(crate) fn text(&self, file: &str) -> Result<String, RealError> {
        let path = self.folder.join(file);
        let bytes = std::fs::read(&path).map_err(|error| RealError::file(&path, error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn number(&self, file: &str) -> Result<u64, RealError> {
        let text = self.text(file)?;
        let wrong = || RealError::Failed(format!("{file}: \"{}\" is not a number", text.trim()));
        text.trim().parse().map_err(|_| wrong())
    }
}

/// The counters in an answer for Prometheus (OpenMetrics): lines like `roost_direct_total 17`. Levels are not counters,
/// and have no `_total`.
fn served(answer: &str) -> BTreeMap<String, u64> {
    let counter = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.strip_suffix("_total")?.to_owned(), value.trim().parse().ok()?))
    };
    answer.lines().filter_map(counter).collect()
}

/// Names of the levels of domains, which `/proc/schedstat` does not contain up to version 16.
struct Levels(Vec<&'static str>);

impl Levels {
    /// Names of levels that give the right counters: it only matters whether a level is within the LLC.
    fn of(machine: &Machine) -> Self {
        let features = roost_fair::Features::parse("fair@6.15").ok();
        let rows = features.map(|features| roost_fair::domain_rows(machine, &features, 0));
        Self(rows.unwrap_or_default().into_iter().map(|row| row.level).collect())
    }

    fn name(&self, level: usize) -> Option<String> {
        self.0.get(level).map(|name| (*name).to_owned())
    }
}

/// Where wakeups placed tasks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Moves {
    total: u64,
    /// Wakeups on the CPU where the task last ran.
    none: u64,
    /// Wakeups within the waker's LLC. `None` if these were not counted.
    within_llc: Option<u64>,
}

impl Moves {
    /// Reads two histograms, with lines like `{ moved:    0 } hitcount:  692` and `{ waker:    3, target:    2 }
    /// hitcount:   7`.
    fn read(hist: &str, machine: &Machine) -> Self {
        let mut moves = Self::default();
        for (keys, hits) in rows(hist) {
            match keys.as_slice() {
                [moved] => {
                    moves.total += hits;
                    moves.none += if *moved == 0 { hits } else { 0 };
                }
                [waker, target] => {
                    let [waker, target] = [waker, target].map(|cpu| place(machine, *cpu));
                    let same = waker.is_some() && waker.map(|p| p.1) == target.map(|p| p.1);
                    *moves.within_llc.get_or_insert(0) += if same { hits } else { 0 };
                }
                _ => {}
            }
        }
        moves
    }
}

/// Node and LLC of a CPU, by the operating system's number.
fn place(machine: &Machine, os_index: u64) -> Option<(u32, u32)> {
    let cpu = machine.cpus.iter().find(|cpu| u64::from(cpu.os_index) == os_index);
    cpu.map(|cpu| (cpu.node, cpu.llc))
}

/// Migrations by distance.
#[derive(Debug, Default, PartialEq, Eq)]
struct Migrations {
    all: u64,
    llc: u64,
    node: u64,
}

impl Migrations {
    /// Reads lines like `{ orig_cpu:    7, dest_cpu:    8 } hitcount:   23`.
    fn read(hist: &str, machine: &Machine) -> Self {
        let mut migrations = Self::default();
        for (keys, hits) in rows(hist) {
            let [from, to] = keys.as_slice() else { continue };
            let (Some(from), Some(to)) = (place(machine, *from), place(machine, *to)) else {
                continue;
            };
            migrations.all += hits;
            migrations.node += if from.0 == to.0 { 0 } else { hits };
            migrations.llc += if from.0 == to.0 && from.1 != to.1 { hits } else { 0 };
        }
        migrations
    }

    fn for_each(&self, sink: &mut dyn FnMut(&str, u64)) {
        sink("migrations", self.all);
        sink("migrations_llc", self.llc);
        sink("migrations_node", self.node);
    }
}

/// Keys and counts of the entries in a histogram.
pub(crate) fn rows(hist: &str) -> impl Iterator<Item = (Vec<u64>, u64)> + '_ {
    hist.lines().filter_map(|line| {
        let (keys, hits) = line.strip_prefix("{ ")?.split_once(" } hitcount:")?;
        let key = |key: &str| key.split_once(':')?.1.trim().parse().ok();
        Some((keys.split(',').map(key).collect::<Option<_>>()?, hits.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakeups_that_did_not_move_are_those_on_the_previous_cpu() {
        let hist = "# event histogram\n#\n\n\
                    { moved: 18446744073709551614 } hitcount:         72\n\
                    { moved:          0 } hitcount:        692\n\nTotals:\n    Hits: 764\n";
        // CPUs 0-3 share an LLC.
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let moves = Moves::read(hist, &machine);
        assert_eq!(moves, Moves { total: 764, none: 692, within_llc: None });
        let hist = format!(
            "{hist}\n# event histogram\n{{ waker:          0, target:          3 }} hitcount:    7\n\
             {{ waker:          3, target:          4 }} hitcount:   5\n"
        );
        let moves = Moves::read(&hist, &machine);
        assert_eq!(moves, Moves { total: 764, none: 692, within_llc: Some(7) });
        assert_eq!(Moves::read("", &machine), Moves::default());
    }

    #[test]
    fn counters_of_the_scheduler_are_those_with_a_total() {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n\
                      # HELP roost_direct tasks given to an idle CPU at once.\n# TYPE roost_direct counter\n\
                      roost_direct_total 17\nroost_run_delay_max_ns 3\n\
                      roost_scheduler_info{kernel=\"7.2\"} 1\nroost_late_total 0\n# EOF\n";
        let direct = ("roost_direct".to_owned(), 17);
        assert_eq!(served(answer), BTreeMap::from([direct, ("roost_late".to_owned(), 0)]));
        assert!(
            served("HTTP/1.1 503 Service Unavailable\r\n\r\nthe scheduler is being loaded\n")
                .is_empty()
        );
    }

    #[test]
    fn migrations_are_told_apart_by_llc_and_node() {
        // CPUs 0-3 and 4-7 are the LLCs of node 0. CPUs 8-15 are node 1.
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let hist = "{ orig_cpu:          0, dest_cpu:          3 } hitcount:         5\n\
                    { orig_cpu:          3, dest_cpu:          4 } hitcount:          2\n\
                    { orig_cpu:          7, dest_cpu:          8 } hitcount:         23\n\
                    { orig_cpu:         99, dest_cpu:          8 } hitcount:         23\n";
        let migrations = Migrations::read(hist, &machine);
        assert_eq!(migrations, Migrations { all: 30, llc: 2, node: 23 });
    }
}
