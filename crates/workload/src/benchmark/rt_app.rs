//! Benchmarks as rt-app files. This lets a real kernel run benchmarks for which Debian has no program, and the
//! simulation run the same file. `rt-app:NAME:key=value` takes the parameters of the benchmark NAME.
//!
//! The files only copy who wakes whom, and how long the tasks compute in between. rt-app's condition variables replace
//! sockets and futexes. A wakeup carries no sync hint.

use std::fmt::Write;

use super::{Values, named};
use crate::{WorkloadError, costs};

/// Prefix of the names.
const PREFIX: &str = "rt-app:";

/// A form: name of the benchmark, description, tasks, and duration in s.
struct Form {
    name: &'static str,
    about: &'static str,
    tasks: fn(&Values) -> String,
    seconds: u32,
}

const FORMS: [Form; 4] = [
    Form {
        name: "coremark",
        about: "threads that compute 1 ms at a time, and never wait",
        tasks: coremark,
        seconds: 10,
    },
    Form {
        name: "netperf-tcp-rr",
        about: "pairs that wake each other in turn, with the CPU time of a TCP transaction in between",
        tasks: |values| pairs(values, costs::TCP_SEND_NS + costs::TCP_RECEIVE_NS),
        seconds: 1,
    },
    Form {
        name: "netperf-udp-rr",
        about: "pairs that wake each other in turn, with the CPU time of a UDP transaction in between",
        tasks: |values| pairs(values, costs::UDP_SEND_NS + costs::UDP_RECEIVE_NS),
        seconds: 1,
    },
    Form {
        name: "schbench",
        about: "message threads that sleep and then wake all their workers, which spin and wait",
        tasks: schbench,
        seconds: 10,
    },
];

/// Name and description of every form.
pub fn forms() -> impl Iterator<Item = (String, &'static str)> {
    FORMS.iter().map(|form| (format!("{PREFIX}{}", form.name), form.about))
}

/// The form of the benchmark that `spec` names, with the same parameters. `None` if the benchmark has no form.
pub fn form_of(spec: &str) -> Option<String> {
    let name = spec.split_once(':').map_or(spec, |(name, _)| name);
    FORMS.iter().any(|form| form.name == name).then(|| format!("{PREFIX}{spec}"))
}

/// The text of the file that `spec` (`rt-app:NAME:key=value`) names. `None` if `spec` has another prefix.
pub fn text(spec: &str) -> Result<Option<String>, WorkloadError> {
    let Some(inner) = spec.strip_prefix(PREFIX) else { return Ok(None) };
    let name = inner.split_once(':').map_or(inner, |(name, _)| name);
    let Some(form) = FORMS.iter().find(|form| form.name == name) else {
        let known: Vec<String> = forms().map(|(name, _)| name).collect();
        return Err(super::unknown(spec, spec, &known));
    };
    let (_, values) = named(inner)?;
    let (seconds, tasks) = (form.seconds, (form.tasks)(&values));
    Ok(Some(format!(
        "{{\n\"global\": {{\"duration\": {seconds}, \"calibration\": \"CPU0\"}},\n\"tasks\": \
         {{\n{tasks}\n}}\n}}\n"
    )))
}

fn coremark(values: &Values) -> String {
    let us = (costs::COREMARK_ITERATION_NS * costs::COREMARK_BATCH).div_ceil(1_000);
    let threads = values.number("threads");
    format!("\"coremark\": {{\"instance\": {threads}, \"loop\": -1, \"run\": {us}}}")
}

/// Two threads per pair. Each computes, wakes the other thread, and waits for it. (`sync` signals and waits in one
/// step; whichever thread comes first waits.)
fn pairs(values: &Values, transaction_ns: u64) -> String {
    let us = transaction_ns.div_ceil(1_000);
    let mut tasks = String::new();
    for pair in 0..values.number("clients") {
        let _ = write!(
            tasks,
            "{}\"pair{pair}\": {{\"instance\": 2, \"loop\": -1, \"run\": {us}, \"lock\": \
             \"m{pair}\", \"sync\": {{\"ref\": \"c{pair}\", \"mutex\": \"m{pair}\"}}, \"unlock\": \
             \"m{pair}\"}}",
            separator(pair)
        );
    }
    tasks
}

fn schbench(values: &Values) -> String {
    let [workers, spin, sleep] = ["workers", "c", "s"].map(|name| values.number(name));
    let mut tasks = String::new();
    for circle in 0..values.number("messages") {
        let _ = write!(
            tasks,
            "{}\"message{circle}\": {{\"loop\": -1, \"sleep\": {sleep}, \"lock\": \"m{circle}\", \
             \"broad\": \"c{circle}\", \"unlock\": \"m{circle}\"}},\n\
             \"worker{circle}\": {{\"instance\": {workers}, \"loop\": -1, \"runtime\": {spin}, \
             \"lock\": \"m{circle}\", \"wait\": {{\"ref\": \"c{circle}\", \"mutex\": \
             \"m{circle}\"}}, \"unlock\": \"m{circle}\"}}",
            separator(circle)
        );
    }
    tasks
}

/// The text before the entry with this number.
fn separator(number: u32) -> &'static str {
    if number == 0 { "" } else { ",\n" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::{resolve, resolve_noted};
    use crate::{MetricKind, Op};

    #[test]
    fn every_form_is_a_workload_without_notes() {
        for (name, _) in forms() {
            let loaded = resolve_noted(&name, None).unwrap();
            assert!(loaded.notes.is_empty(), "{name}: {:?}", loaded.notes);
            assert!(loaded.workload.duration_ns.is_some(), "{name}");
        }
    }

    #[test]
    fn forms_take_the_parameters_of_their_benchmarks() {
        let workload = resolve("rt-app:schbench:messages=3,workers=5,c=700,s=900", None).unwrap();
        assert_eq!(workload.start.iter().map(|(_, count)| count).sum::<u32>(), 3 * (1 + 5));
        let spins = |op: &Op| matches!(op, Op::Runtime { ns: 700_000 });
        assert!(workload.templates[1].program.ops.iter().any(spins));
        let workload = resolve("rt-app:coremark:threads=7", None).unwrap();
        assert_eq!(workload.start, [(0, 7)]);
        let error = resolve("rt-app:schbench:groups=1", None).unwrap_err().to_string();
        assert!(error.contains("groups"), "{error}");
        let error = resolve("rt-app:tbench", None).unwrap_err().to_string();
        assert!(error.contains("rt-app:schbench"), "{error}");
        assert_eq!(form_of("schbench:c=1").as_deref(), Some("rt-app:schbench:c=1"));
        assert_eq!(form_of("tbench"), None);
    }

    /// The loops in rt-app's log must match what the simulation counts.
    #[test]
    fn loops_are_counted_alike_in_the_log() {
        let text = "{\"tasks\": {\"a\": {\"loop\": 3, \"phases\": {\"x\": {\"loop\": 2, \"run\": 1}, \
                    \"y\": {\"run\": 1}}}, \"b\": {\"phases\": {\"x\": {\"loop\": 4, \"run\": 1}, \
                    \"y\": {\"loop\": -1, \"timer\": {\"ref\": \"t\", \"period\": 1000}}}}}, \
                    \"global\": {\"duration\": 1}}";
        let loaded = crate::rtapp::load(text, "f").unwrap();
        let [a, b] = loaded.logs.as_slice() else { panic!("two tasks") };
        assert_eq!([a.loops(0), a.loops(2), a.loops(3), a.loops(8), a.loops(9)], [0, 0, 1, 2, 3]);
        assert_eq!([b.loops(0), b.loops(4), b.loops(5), b.loops(14)], [0, 0, 1, 10]);
        assert_eq!([a.has_timer, b.has_timer], [false, true]);
        let rates = loaded.workload.metrics.iter();
        let rates = rates.filter(|metric| matches!(metric.kind, MetricKind::Rate { .. }));
        assert_eq!(rates.count(), 2);
    }
}
