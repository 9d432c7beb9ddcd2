//! Workloads as real programs: what is run, and where its figures are in what it prints.
//!
//! Names, parameters and metrics are those of the simulation (`roost_workload`), so that the two can
//! be laid side by side.

use std::path::Path;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use roost_engine::MetricValue;
use roost_workload::benchmark::{self, Values};
use roost_workload::{Metric, MetricKind};

use crate::error::RealError;

/// A workload that a real kernel can run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// As given.
    pub name: String,
    /// A bash script.
    pub(crate) script: String,
    /// Files it needs beside it.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// What it measures, as in the simulation.
    metrics: Vec<Metric>,
    /// Where the figures are.
    meter: Meter,
    /// Whether the script says itself what is measured.
    pub(crate) own_window: bool,
}

/// Where a program's figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meter {
    /// The number after this word, on the last line that has it; the last metric is measured.
    After(&'static str),
    /// The receiver's rate that iperf3 prints.
    Iperf3,
    /// rt-app's logs, a file a task.
    RtApp,
}

/// Runs the file beside the script.
const RT_APP: &str = "exec rt-app \"$ROOST_HERE/workload.json\"\n";

/// Messages of iperf3's client, bytes, as in the simulation.
const IPERF3_MESSAGE: &str = "128K";

impl Workload {
    /// The program that `name` means, a benchmark with parameters or an rt-app file; `duration_ns`
    /// overrides how long it runs.
    pub fn resolve(name: &str, duration_ns: Option<u64>) -> Result<Self, RealError> {
        let workload = benchmark::resolve(name, duration_ns)?;
        let metrics = workload.metrics;
        let (script, files, meter) = if name.ends_with(".json") {
            let text = std::fs::read_to_string(name)
                .map_err(|error| RealError::file(Path::new(name), error))?;
            let text = adapted(name, &text, duration_ns)?;
            let files = vec![("workload.json".to_owned(), text.into_bytes())];
            (RT_APP.to_owned(), files, Meter::RtApp)
        } else {
            let (benchmark, values) = benchmark::named(name)?;
            let seconds = workload.duration_ns.map_or(0, |ns| ns.div_ceil(1_000_000_000));
            program(benchmark.name, &values, seconds).ok_or_else(|| not_packaged(benchmark.name))?
        };
        Ok(Self { name: name.to_owned(), script, files, metrics, meter, own_window: false })
    }

    /// rt-app with this file, measured from when it creates its first thread until `duration_ns`
    /// later, as the simulation is: before that rt-app visits every CPU, after it it wakes its tasks
    /// once more, and hangs where one of them comes to wait after that. Nothing is taken from its
    /// logs.
    pub fn of_rt_app(name: &str, text: &str, duration_ns: u64) -> Result<Self, RealError> {
        let text = adapted(name, text, None)?;
        let files = vec![("workload.json".to_owned(), text.into_bytes())];
        let (seconds, ns) = (duration_ns / 1_000_000_000, duration_ns % 1_000_000_000);
        let script = format!(
            ". \"$ROOST_WINDOW\"\nrt-app \"$ROOST_HERE/workload.json\" &\n\
             until tasks=(/proc/$!/task/*); [ ${{#tasks[@]}} -gt 1 ]; do sleep 0.001; done\n\
             begin_window\nsleep {seconds}.{ns:09}\nend_window\n\
             kill -KILL $! && wait $! 2>/dev/null\nexit 0\n"
        );
        let name = name.to_owned();
        let (metrics, meter) = (Vec::new(), Meter::RtApp);
        Ok(Self { name, script, files, metrics, meter, own_window: true })
    }

    /// The metrics of a run that left `stdout` and, in `folder`, other files. `elapsed_ns` is how
    /// long it took.
    pub(crate) fn metrics(&self, stdout: &str, folder: &Path, elapsed_ns: u64) -> Vec<MetricValue> {
        let logs = Logs::read(folder);
        let seconds = elapsed_ns as f64 / 1e9;
        let value = |metric: &Metric| match (self.meter, &metric.kind) {
            (Meter::After(word), _) => number_after(stdout, word),
            (Meter::Iperf3, _) => iperf3_rate(stdout),
            (Meter::RtApp, MetricKind::MeanWakeupLatencyUs { class }) => logs.mean_latency(class),
            (Meter::RtApp, MetricKind::WakeupLatencyUs { class, percentile_milli }) => {
                logs.latency(class, f64::from(*percentile_milli) / 100_000.0)
            }
            (Meter::RtApp, MetricKind::WallSeconds) => Some(seconds),
            // rt-app counts the loops of phases, the simulation those of tasks.
            // No rt-app file has a stopwatch.
            (Meter::RtApp, MetricKind::Rate { .. } | MetricKind::BestRate { .. }) => None,
        };
        self.metrics
            .iter()
            .map(|metric| MetricValue {
                name: metric.name.clone(),
                unit: metric.unit,
                better: metric.better,
                value: value(metric),
            })
            .collect()
    }
}

type Program = (String, Vec<(String, Vec<u8>)>, Meter);

/// The real program of a benchmark; `None` if Debian has none.
fn program(name: &str, values: &Values, seconds: u64) -> Option<Program> {
    match name {
        "hackbench" => Some((hackbench(values), Vec::new(), Meter::After("Time:"))),
        "iperf3" => Some(iperf3(values.number("noise"), seconds)),
        _ => None,
    }
}

fn hackbench(values: &Values) -> String {
    let pipe = if values.choice("mode") == "pipe" { " -p" } else { "" };
    let tasks = if values.choice("tasks") == "threads" { "-T" } else { "-P" };
    format!(
        "exec hackbench -g {} -l {} -s {} -f {} {tasks}{pipe}\n",
        values.number("groups"),
        values.number("loops"),
        values.number("size"),
        values.number("fds"),
    )
}

/// Server and client on loopback; the noise is rt-app's, with the figures of the simulation's.
fn iperf3(noise: u32, seconds: u64) -> Program {
    let client = format!("iperf3 -c 127.0.0.1 -t {seconds} -l {IPERF3_MESSAGE} -f g -i 0\n");
    let mut script = "iperf3 -s -1 >/dev/null & sleep 1\n".to_owned();
    let mut files = Vec::new();
    if noise > 0 {
        let text = format!(
            "{{\"tasks\": {{\"noise\": {{\"instance\": {noise}, \"loop\": -1, \"runtime\": 30, \
             \"timer\": {{\"ref\": \"unique\", \"period\": 4000}}}}}}, \"global\": \
             {{\"calibration\": 100, \"log_size\": \"disable\"}}}}\n"
        );
        files.push(("noise.json".to_owned(), text.into_bytes()));
        script += "rt-app \"$ROOST_HERE/noise.json\" >/dev/null 2>&1 & trap 'kill $!' EXIT\n";
    }
    (script + &client, files, Meter::Iperf3)
}

fn not_packaged(name: &str) -> RealError {
    let form = match name {
        "schbench" => "what comes nearest as an rt-app file: --workload validation/broad.json",
        "netperf-tcp-rr" | "netperf-udp-rr" => {
            "what comes nearest as an rt-app file: --workload validation/pingpong.json"
        }
        _ => "write what it does as an rt-app file: --workload FILE.json",
    };
    RealError::Usage(format!(
        "{name} is not in the guest (Debian has no package of it or it is left out); {form}"
    ))
}

/// An rt-app file that leaves its logs in its folder, and ends when `duration_ns` says.
fn adapted(name: &str, text: &str, duration_ns: Option<u64>) -> Result<String, RealError> {
    let unreadable = |what: String| RealError::Usage(format!("{name}: {what}"));
    let root = CstRootNode::parse(text, &ParseOptions::default())
        .map_err(|error| unreadable(error.to_string()))?;
    let object = root.object_value().ok_or_else(|| unreadable("is no JSON object".into()))?;
    let global = object.object_value_or_set("global");
    set(&global, "logdir", CstInputValue::String(".".into()));
    set(&global, "logbasename", CstInputValue::String("rt-app".into()));
    if let Some(ns) = duration_ns {
        // Whole seconds are all that rt-app takes.
        let seconds = ns.div_ceil(1_000_000_000);
        set(&global, "duration", CstInputValue::Number(seconds.to_string()));
    }
    Ok(root.to_string())
}

fn set(object: &CstObject, name: &str, value: CstInputValue) {
    match object.get(name) {
        Some(property) => property.set_value(value),
        None => {
            object.append(name, value);
        }
    }
}

/// The number after `word`, on the last line that has both.
fn number_after(text: &str, word: &str) -> Option<f64> {
    text.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once(word)?;
        rest.split_whitespace().next()?.parse().ok()
    })
}

/// `[  5]   0.00-10.00  sec  11.6 GBytes  9.98 Gbits/sec                  receiver`
fn iperf3_rate(text: &str) -> Option<f64> {
    let line = text.lines().rev().find(|line| line.trim_end().ends_with("receiver"))?;
    let (before, _) = line.split_once("Gbits/sec")?;
    before.split_whitespace().next_back()?.parse().ok()
}

/// The wakeup latencies, us, that rt-app logged for each task's timers.
#[derive(Debug, Default)]
struct Logs {
    /// Class and sorted latencies.
    classes: Vec<(String, Vec<u64>)>,
}

impl Logs {
    /// Reads `rt-app-CLASS-N.log` in `folder`: a line a loop, the last number of which is the
    /// latency; lines that begin with `#` name the columns.
    fn read(folder: &Path) -> Self {
        let mut logs = Self::default();
        let Ok(entries) = std::fs::read_dir(folder) else { return logs };
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let task = name.strip_prefix("rt-app-").and_then(|name| name.strip_suffix(".log"));
            let Some((class, _)) = task.and_then(|task| task.rsplit_once('-')) else { continue };
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            logs.of(class).extend(latencies(&text));
        }
        for (_, values) in &mut logs.classes {
            values.sort_unstable();
        }
        logs
    }

    fn of(&mut self, class: &str) -> &mut Vec<u64> {
        let index = self.classes.iter().position(|(name, _)| name == class).unwrap_or_else(|| {
            self.classes.push((class.to_owned(), Vec::new()));
            self.classes.len() - 1
        });
        &mut self.classes[index].1
    }

    fn values(&self, class: &str) -> Option<&[u64]> {
        let (_, values) = self.classes.iter().find(|(name, _)| name == class)?;
        (!values.is_empty()).then_some(values)
    }

    fn mean_latency(&self, class: &str) -> Option<f64> {
        let values = self.values(class)?;
        Some(values.iter().sum::<u64>() as f64 / values.len() as f64)
    }

    /// The value that `share` of them do not exceed.
    fn latency(&self, class: &str, share: f64) -> Option<f64> {
        let values = self.values(class)?;
        let rank = (share * values.len() as f64).ceil() as usize;
        values.get(rank.saturating_sub(1)).map(|&value| value as f64)
    }
}

/// Where a timer had run out before the task came to wait for it, rt-app prints a negative time
/// without its sign: there was no wakeup.
fn latencies(log: &str) -> impl Iterator<Item = u64> + '_ {
    let lines = log.lines().filter(|line| !line.starts_with('#'));
    let last = |line: &str| line.split_whitespace().next_back()?.parse::<u64>().ok();
    lines.filter_map(last).filter(|&us| i64::try_from(us).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_the_parameters() {
        let workload = Workload::resolve("hackbench:groups=3,pipe,threads,loops=7", None).unwrap();
        assert_eq!(workload.script, "exec hackbench -g 3 -l 7 -s 100 -f 20 -T -p\n");
        let workload = Workload::resolve("iperf3:noise=4", Some(2_500_000_000)).unwrap();
        assert!(workload.script.contains("-t 3 -l 128K"), "{}", workload.script);
        assert!(String::from_utf8_lossy(&workload.files[0].1).contains("\"instance\": 4"));
    }

    #[test]
    fn what_debian_lacks_is_said_with_the_way_out() {
        let error = Workload::resolve("schbench", None).unwrap_err().to_string();
        assert!(error.contains("no package") && error.contains("broad.json"), "{error}");
        let error = Workload::resolve("coremark", None).unwrap_err().to_string();
        assert!(error.contains("FILE.json"), "{error}");
    }

    #[test]
    fn figures_are_found_in_what_programs_print() {
        assert_eq!(number_after("Running in process mode\nTime: 0.097\n", "Time:"), Some(0.097));
        assert_eq!(number_after("", "Time:"), None);
        let text = "\
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-20.00  sec  23.2 GBytes  9.97 Gbits/sec    0            sender
[  5]   0.00-20.00  sec  23.2 GBytes  9.96 Gbits/sec                  receiver
";
        assert_eq!(iperf3_rate(text), Some(9.96));
    }

    #[test]
    fn an_rt_app_file_keeps_what_it_says_but_where_logs_go() {
        let text =
            "{ /* two */ \"tasks\": {\"a\": {\"run\": 10}}, \"global\": {\"logdir\": \"/x\"}}";
        let adapted = adapted("f.json", text, Some(1)).unwrap();
        assert!(adapted.contains("/* two */") && adapted.contains("\"run\": 10"), "{adapted}");
        assert!(adapted.contains("\"logdir\": \".\"") && !adapted.contains("/x"), "{adapted}");
        assert!(adapted.contains("\"duration\": 1"), "{adapted}");
    }

    #[test]
    fn latencies_are_those_of_the_log() {
        let log = "#idx perf run period start end rel_st slack c_duration c_period wu_lat\n\
                   0 1 1000 5000 1 2 3 4 5 6 70\n0 1 1000 5000 1 2 3 4 5 6 30\n\
                   0 1 1000 5000 1 2 3 4 5 6 18446744073709551533\n";
        let mut logs = Logs::default();
        logs.of("a").extend(latencies(log));
        logs.classes[0].1.sort_unstable();
        assert_eq!(logs.mean_latency("a"), Some(50.0));
        assert_eq!(logs.latency("a", 0.99), Some(70.0));
        assert_eq!(logs.latency("a", 0.5), Some(30.0));
        assert_eq!(logs.latency("b", 0.5), None);
    }
}
