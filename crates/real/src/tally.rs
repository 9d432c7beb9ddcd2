//! How often the tasks of a workload were woken, left their CPU and changed it.

use roost_machine::Machine;

use crate::error::RealError;
use crate::result::{Measured, rows};

/// EXIT_DEAD and EXIT_ZOMBIE of include/linux/sched.h: the `prev_state` of a task that has ended.
const EXIT_STATES: u64 = 0x10 | 0x20;

/// All states in which `sched_switch` reports a task as not runnable (TASK_REPORT_IDLE). A preempted task has none of
/// these, but TASK_REPORT_MAX (0x100).
const ALL_STATES: u64 = 0xff;

/// Events of a workload's tasks in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Wakeups, including those of tasks that had not fallen asleep yet.
    pub wakeups: u64,
    /// Times that a task left its CPU.
    pub switches: u64,
    /// Times that a task left its CPU to sleep.
    pub sleeps: u64,
    /// Times that a task left its CPU although it was runnable.
    pub preemptions: u64,
    /// Changes of CPU.
    pub migrations: u64,
    /// CPU time of all tasks of the machine, ns.
    pub cpu_ns: u64,
    /// System calls that [`Workload::counting_calls`](crate::Workload::counting_calls) has chosen.
    pub calls: Option<u64>,
}

impl Tally {
    /// Adds the switches of a histogram with lines like `{ prev_state:    1 } hitcount:   23`.
    fn add_switches(&mut self, hist: &str) {
        for (keys, hits) in rows(hist) {
            let [state] = keys.as_slice() else { continue };
            self.switches += hits;
            match state & ALL_STATES {
                0 => self.preemptions += hits,
                state if state & EXIT_STATES == 0 => self.sleeps += hits,
                _ => {}
            }
        }
    }
}

impl Measured {
    /// What the workload's tasks did on `machine`.
    ///
    /// # Errors
    /// If the measurement has no such counts: it was made without root, or the tasks' names are not known.
    pub fn tally(&self, machine: &Machine) -> Result<Tally, RealError> {
        let mut tally = Tally::default();
        self.for_each(machine, &mut |name, value| match name {
            "wakeups" => tally.wakeups = value,
            "migrations" => tally.migrations = value,
            "run_ns" => tally.cpu_ns = value,
            _ => {}
        })?;
        tally.add_switches(&self.text("hist/switches")?);
        let calls = self.text("hist/calls").ok();
        tally.calls = calls.map(|hist| rows(&hist).map(|(_, hits)| hits).sum());
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_told_apart_by_the_state_in_which_a_task_leaves_its_cpu() {
        let hist = "# event histogram\n\
                    { prev_state:          0 } hitcount:         3\n\
                    { prev_state:        256 } hitcount:         4\n\
                    { prev_state:          1 } hitcount:        50\n\
                    { prev_state:          2 } hitcount:        60\n\
                    { prev_state:         16 } hitcount:       700\n\nTotals:\n    Hits: 817\n";
        let mut tally = Tally::default();
        tally.add_switches(hist);
        let expected = Tally { switches: 817, sleeps: 110, preemptions: 7, ..Tally::default() };
        assert_eq!(tally, expected);
    }
}
