//! Workloads as real programs: the script to run, and where its output has the results.
//!
//! Names, parameters and metrics are the same as in the simulation (`roost_workload`), so that both can be compared.

use std::ops::Range;
use std::path::Path;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use roost_engine::MetricValue;
use roost_vm::{Addition, MARIADB};
use roost_workload::benchmark::{self, Values, rt_app, stress_ng};
use roost_workload::rtapp::TaskLog;
use roost_workload::{Metric, MetricKind};

use crate::error::RealError;

/// A workload that a real kernel can run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The name that the user gave.
    pub name: String,
    /// A bash script.
    pub(crate) script: String,
    /// A bash script that starts and stops what the workload needs. It is not measured.
    pub(crate) server: Option<String>,
    /// What the workload needs beyond the usual programs of a guest.
    pub(crate) addition: Option<Addition>,
    /// Files that the script needs in its folder.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// The metrics, as in the simulation.
    metrics: Vec<Metric>,
    /// Where the output has the results.
    meter: Meter,
    /// What rt-app logs for each kind of task.
    logs: Vec<TaskLog>,
    /// How long rt-app runs, in ns. `None`: until its tasks end.
    duration_ns: Option<u64>,
    /// Patterns of the tasks' names. Other tasks belong to the machine. Empty: the names are not known.
    pub(crate) tasks: Vec<String>,
    /// Whether the script itself marks the part that is measured.
    pub(crate) own_window: bool,
    /// The system call with which a task of this name begins each operation, if the program does not say how many
    /// operations there were from its start to its end.
    pub(crate) calls: Option<[&'static str; 2]>,
    /// Whether these calls are counted.
    pub(crate) counts_calls: bool,
}

/// Where a program's output has the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meter {
    /// The number after this word, on the last line that contains the word. It is the workload's last metric.
    After(&'static str),
    /// The number after a metric's own name and a colon.
    Named,
    /// The receiver's rate, as printed by iperf3.
    Iperf3,
    /// rt-app's logs, one file per task.
    RtApp,
}

/// Time after its duration within which rt-app must have ended, in s. It calibrates itself before.
const RT_APP_GRACE_S: u64 = 30;

/// Default duration of programs that run until they are stopped, in s. It is netperf's own default. tbench needs
/// seconds to begin.
const SHORTEST_S: u64 = 10;

/// The file whose existence says that rt-app had to be killed, so its logs are incomplete.
const CUT_SHORT: &str = "cut-short";

/// The port of roost's own netserver. It differs from the default 12865, which the system's netserver uses.
const PORT: u16 = 12_965;

const NS_PER_S: u64 = 1_000_000_000;

/// Largest size of a filter in bytes. The kernel reads at most a page.
const LONGEST_FILTER: usize = 2_000;

/// Largest length of a thread's name in bytes, without the number that rt-app may add. rt-app's threads with longer
/// names keep the name of the process.
const LONGEST_NAME: usize = 12;

/// The servers of sysbench.
const SYSBENCH_SERVER: &str = include_str!("sysbench_server.sh");

/// Name of the threads of MariaDB 11.8 that serve a connection. Its other threads have other names.
const MARIADB_CONNECTION: &str = "one_connection";

/// Size of the messages of iperf3's client, as in the simulation.
const IPERF3_MESSAGE: &str = "128K";

impl Workload {
    /// The program for `name`, which is a benchmark with parameters or an rt-app file. `duration_ns` overrides its
    /// duration.
    pub fn resolve(name: &str, duration_ns: Option<u64>) -> Result<Self, RealError> {
        let loaded = benchmark::resolve_noted(name, duration_ns)?;
        let workload = loaded.workload;
        let text = match rt_app::text(name)? {
            None if name.ends_with(".json") => Some(
                std::fs::read_to_string(name)
                    .map_err(|error| RealError::file(Path::new(name), error))?,
            ),
            text => text,
        };
        let seconds = |ns: u64| ns.div_ceil(NS_PER_S);
        let program = match text {
            Some(text) => {
                let names = workload.templates.iter().map(|task| task.name.as_str());
                let ends = workload.duration_ns.map(seconds);
                rt_app_program(adapted(name, &text, duration_ns)?, names, ends)
            }
            None => {
                let own = workload.duration_ns.map_or(0, seconds).max(SHORTEST_S);
                packaged(name, duration_ns.map_or(own, seconds))?
            }
        };
        Ok(Self {
            name: name.to_owned(),
            script: program.script,
            server: program.server,
            addition: program.addition,
            files: program.files,
            metrics: workload.metrics,
            meter: program.meter,
            logs: loaded.logs,
            duration_ns: workload.duration_ns.map(|ns| seconds(ns) * NS_PER_S),
            tasks: program.tasks,
            own_window: false,
            calls: program.calls,
            counts_calls: false,
        })
    }

    /// rt-app with this file, measured within `window`, in ns after it created its first thread; before that, it visits
    /// every CPU. It is killed after `window`, because at the end of its duration it wakes its tasks once more, and
    /// hangs if one of them starts to wait after that. Its logs are not used. The shell raises its own priority,
    /// because on a busy machine it would need 150 ms to read the counters. It waits by reading from a pipe to which
    /// nobody writes, because waiting with a program would run that program on the machine.
    pub fn of_rt_app(name: &str, text: &str, window: Range<u64>) -> Result<Self, RealError> {
        let text = adapted(name, text, None)?;
        let files = vec![("workload.json".to_owned(), text.into_bytes())];
        let (start_us, end_us) = (window.start / 1000, window.end / 1000);
        let script = format!(
            "[ -n \"${{ROOST_FIRST:-}}\" ] || ROOST_FIRST=1 exec nice -n -20 bash \"$0\"\n\
             . \"$ROOST_WINDOW\"\nmkfifo never && exec 9<>never\n\
             wait_until() {{\n\
             local left=$(($1 - ${{EPOCHREALTIME//[!0-9]/}})) text\n\
             ((left > 0)) || return\n\
             printf -v text %d.%06d $((left / 1000000)) $((left % 1000000))\n\
             read -rt \"$text\" -u 9\n}}\n\
             nice -n 20 rt-app \"$ROOST_HERE/workload.json\" &\n\
             until tasks=(/proc/$!/task/*); [ ${{#tasks[@]}} -gt 1 ]; do read -rt 0.001 -u 9; done\n\
             first=${{EPOCHREALTIME//[!0-9]/}}\n\
             echo \"${{first}}000\" >\"$out/first_ns\"\n\
             wait_until $((first + {start_us}))\nbegin_window\n\
             wait_until $((first + {end_us}))\nend_window\n\
             kill -KILL $! && wait $! 2>/dev/null\nexit 0\n"
        );
        Ok(Self {
            name: name.to_owned(),
            script,
            server: None,
            addition: None,
            files,
            metrics: Vec::new(),
            meter: Meter::RtApp,
            logs: Vec::new(),
            duration_ns: Some(window.end),
            tasks: Vec::new(),
            own_window: true,
            calls: None,
            counts_calls: false,
        })
    }

    /// The same, with a count of its operations where its output has none. Tracing makes system calls slower.
    pub fn counting_calls(self) -> Self {
        Self { counts_calls: true, ..self }
    }

    /// A filter for the kernel's trace events that matches the workload's tasks. `None` if their names are not known,
    /// or there are too many.
    pub(crate) fn filter(&self) -> Option<String> {
        let plain =
            |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.*".contains(c));
        if self.tasks.is_empty() || !self.tasks.iter().all(plain) {
            return None;
        }
        let one = |name: &String| format!("comm ~ \"{name}\"");
        let filter = self.tasks.iter().map(one).collect::<Vec<_>>().join(" || ");
        (filter.len() <= LONGEST_FILTER).then_some(filter)
    }

    /// A sentence that says what the counters of its runs cover.
    pub fn counted(&self) -> &'static str {
        match self.filter() {
            Some(_) => {
                "wakeups and migrations are of the workload's tasks, all other counters of the \
                 whole machine"
            }
            None => "all counters are of the whole machine",
        }
    }

    /// The metrics of a run. `stdout` is its output, `folder` contains other files. `elapsed_ns` is the time that the
    /// run took.
    pub(crate) fn metrics(&self, stdout: &str, folder: &Path, elapsed_ns: u64) -> Vec<MetricValue> {
        let logs = Logs::read(folder, &self.logs);
        let seconds = elapsed_ns as f64 / 1e9;
        let ran_s = self.duration_ns.unwrap_or(elapsed_ns) as f64 / 1e9;
        let value = |metric: &Metric| match (self.meter, &metric.kind) {
            (Meter::After(word), _) => number_after(stdout, word),
            (Meter::Named, _) => number_after(stdout, &format!("{}:", metric.name)),
            (Meter::Iperf3, _) => iperf3_rate(stdout),
            (Meter::RtApp, MetricKind::MeanWakeupLatencyUs { class }) => logs.mean_latency(class),
            (Meter::RtApp, MetricKind::WakeupLatencyUs { class, percentile_milli }) => {
                logs.latency(class, f64::from(*percentile_milli) / 100_000.0)
            }
            (Meter::RtApp, MetricKind::WallSeconds) => Some(seconds),
            (Meter::RtApp, MetricKind::Rate { .. }) => {
                let task = metric.name.strip_suffix(" loops/s");
                logs.loops(task.unwrap_or_default()).map(|loops| loops as f64 / ran_s)
            }
            // No rt-app file has a stopwatch or a gate.
            (Meter::RtApp, MetricKind::BestRate { .. } | MetricKind::SecondsSince { .. }) => None,
        };
        self.metrics
            .iter()
            .map(|metric| MetricValue {
                name: metric.name.clone(),
                unit: metric.unit.to_owned(),
                better: metric.better,
                value: value(metric),
                drift: None,
            })
            .collect()
    }
}

/// The real program of a benchmark.
struct Program {
    script: String,
    /// As in [`Workload`].
    server: Option<String>,
    /// As in [`Workload`].
    addition: Option<Addition>,
    files: Vec<(String, Vec<u8>)>,
    meter: Meter,
    /// As in [`Workload`].
    tasks: Vec<String>,
    /// As in [`Workload`].
    calls: Option<[&'static str; 2]>,
}

impl Program {
    /// A program that checks that `needs` (program and package) is installed, and then runs `script`. `tasks` are the
    /// names of its tasks.
    fn new(needs: [&str; 2], script: &str, meter: Meter, tasks: &[&str]) -> Self {
        let script = check_of(needs) + script;
        let tasks = tasks.iter().map(|&name| name.to_owned()).collect();
        let (server, addition) = (None, None);
        Self { script, server, addition, files: Vec::new(), meter, tasks, calls: None }
    }
}

/// A line of a script that checks that a program of a package is installed.
fn check_of([program, package]: [&str; 2]) -> String {
    format!(
        "command -v {program} >/dev/null || {{ echo \"{program} is needed and missing: apt-get \
         install {package}\" >&2; exit 127; }}\n"
    )
}

/// The program of Debian's for the workload `name`, which is not an rt-app file.
fn packaged(name: &str, seconds: u64) -> Result<Program, RealError> {
    if let Some((_, values)) = stress_ng::stands_for(name)? {
        return Ok(stress_ng_cpu(values.number("threads"), seconds));
    }
    let (benchmark, values) = benchmark::named(name)?;
    program(benchmark.name, &values, seconds).ok_or_else(|| not_packaged(name))
}

/// The real program of a benchmark. `None` if Debian has none.
fn program(name: &str, values: &Values, seconds: u64) -> Option<Program> {
    match name {
        "hackbench" => Some(hackbench(values)),
        "iperf3" => Some(iperf3(values.number("noise"), seconds)),
        "netperf-tcp-rr" => Some(netperf("TCP_RR", values.number("clients"), seconds)),
        "netperf-udp-rr" => Some(netperf("UDP_RR", values.number("clients"), seconds)),
        "sysbench-oltp" => Some(sysbench(values, seconds)),
        "tbench" => Some(tbench(values.number("clients"), seconds)),
        _ => None,
    }
}

/// rt-app with this file. At its end it wakes its tasks once more. A task that starts to wait just then waits for ever,
/// and so does rt-app.
fn rt_app_program<'a>(
    text: String,
    names: impl Iterator<Item = &'a str>,
    seconds: Option<u64>,
) -> Program {
    let run = "rt-app \"$ROOST_HERE/workload.json\"";
    let script = match seconds {
        None => format!("exec {run}\n"),
        Some(seconds) => format!(
            "timeout --foreground -s KILL {} {run}\nstatus=$?\n\
             [ $status = 137 ] && {{ touch {CUT_SHORT}; exit 0; }}\nexit $status\n",
            seconds + RT_APP_GRACE_S
        ),
    };
    let mut program = Program::new(["rt-app", "rt-app"], &script, Meter::RtApp, &[]);
    // Threads have the name of their task, with or without a number.
    let pattern = |name: &str| match name.len() {
        0..=LONGEST_NAME => format!("{name}*"),
        _ => "rt-app".to_owned(),
    };
    program.tasks = names.map(pattern).collect();
    program.tasks.dedup();
    program.files.push(("workload.json".to_owned(), text.into_bytes()));
    program
}

fn hackbench(values: &Values) -> Program {
    let pipe = if values.choice("mode") == "pipe" { " -p" } else { "" };
    let tasks = if values.choice("tasks") == "threads" { "-T" } else { "-P" };
    let script = format!(
        "exec hackbench -g {} -l {} -s {} -f {} {tasks}{pipe}\n",
        values.number("groups"),
        values.number("loops"),
        values.number("size"),
        values.number("fds"),
    );
    Program::new(["hackbench", "rt-tests"], &script, Meter::After("Time:"), &["hackbench"])
}

/// A server and a client on loopback. rt-app produces the noise, with the same figures as in the simulation.
fn iperf3(noise: u32, seconds: u64) -> Program {
    let client = format!("iperf3 -c 127.0.0.1 -t {seconds} -l {IPERF3_MESSAGE} -f g -i 0\n");
    let mut script = "iperf3 -s -1 >/dev/null & sleep 1\n".to_owned();
    let mut files = Vec::new();
    if noise > 0 {
        let text = format!(
            "{{\"tasks\": {{\"noise\": {{\"instance\": {noise}, \"loop\": -1, \"runtime\": 30, \
             \"timer\": {{\"ref\": \"unique\", \"period\": 4000}}}}}}, \"global\": \
             {{\"calibration\": 100, \"log_size\": 0}}}}\n"
        );
        files.push(("noise.json".to_owned(), text.into_bytes()));
        script += "rt-app \"$ROOST_HERE/noise.json\" >/dev/null 2>&1 & trap 'kill $!' EXIT\n";
    }
    script += &client;
    let names = ["iperf3", "noise*"];
    Program { files, ..Program::new(["iperf3", "iperf3"], &script, Meter::Iperf3, &names) }
}

/// Pairs on loopback, with a server of their own. Each client prints only its rate.
fn netperf(test: &str, clients: u32, seconds: u64) -> Program {
    let script = format!(
        "netserver -D -4 -L 127.0.0.1 -p {PORT} >/dev/null & server=$!\ntrap 'kill $server' EXIT\n\
         sleep 1\nclients=()\nfor ((i = 0; i < {clients}; i++)); do\n\
         netperf -4 -H 127.0.0.1 -p {PORT} -t {test} -l {seconds} -P 0 -v 0 >rate.$i & \
         clients+=($!)\ndone\nfor client in \"${{clients[@]}}\"; do wait $client || exit; done\n\
         awk '{{ sum += $1 }} END {{ print \"Rate: \" sum }}' rate.*\n"
    );
    let names = ["netperf", "netserver"];
    Program::new(["netserver", "netperf"], &script, Meter::After("Rate:"), &names)
}

/// The load file is part of the package. tbench itself decides how long it warms up before it measures, and counts only
/// what it did after that. A client sends one packet for each operation (sockio.c of dbench).
fn tbench(clients: u32, seconds: u64) -> Program {
    let script = format!(
        "tbench_srv >/dev/null & server=$!\ntrap 'kill $server' EXIT\nsleep 1\n\
         tbench -t {seconds} -c /usr/share/dbench/client.txt {clients} 127.0.0.1\n"
    );
    let names = ["tbench", "tbench_srv"];
    let calls = Some(["sendto", "tbench"]);
    Program {
        calls,
        ..Program::new(["tbench", "dbench"], &script, Meter::After("Throughput"), &names)
    }
}

/// Servers of MariaDB, each with its client in a cgroup. sysbench prints `transactions: 1117 (371.77 per sec.)`. Each
/// thread of a client has a connection, which a thread of the server serves.
fn sysbench(values: &Values, seconds: u64) -> Program {
    let [instances, threads, weight] =
        ["instances", "threads", "weight"].map(|name| values.number(name));
    let script = format!(
        "clients=()\nfor ((i = 0; i < {instances}; i++)); do\n\
         (echo $BASHPID >/sys/fs/cgroup/oltp/$i/cgroup.procs && exec sysbench oltp_read_write \
         --mysql-socket=\"$PWD/socket.$i\" --mysql-user=root --threads={threads} \
         --time={seconds} run) >result.$i & clients+=($!)\ndone\n\
         for client in \"${{clients[@]}}\"; do wait $client || exit; done\n\
         awk '/transactions:/ {{ sub(/.*[.]/, \"\", FILENAME); rate = substr($3, 2); sum += rate\n\
         print \"eps of \" FILENAME \": \" rate }}\n\
         END {{ print \"average eps: \" sum / {instances} }}' result.*\n"
    );
    let needs = ["sysbench", "sysbench"];
    let checks = check_of(needs) + &check_of(["mariadbd", "mariadb-server-core"]);
    let server = format!("{checks}instances={instances} weight={weight}\n{SYSBENCH_SERVER}");
    let names = ["sysbench", MARIADB_CONNECTION];
    Program {
        server: Some(server),
        addition: Some(MARIADB),
        ..Program::new(needs, &script, Meter::Named, &names)
    }
}

/// Processes that compute. The default method of `--cpu` fails where a CPU is emulated. It has no metrics.
fn stress_ng_cpu(threads: u32, seconds: u64) -> Program {
    let script = format!(
        "exec stress-ng --cpu {threads} --cpu-method loop --timeout {seconds} --temp-path .\n"
    );
    Program::new(["stress-ng", "stress-ng"], &script, Meter::Named, &["stress-ng-cpu*"])
}

fn not_packaged(name: &str) -> RealError {
    let remedy = match rt_app::form_of(name) {
        Some(form) => {
            format!("its rt-app form runs here and in the simulation: --workload {form}")
        }
        None => "write what it does as an rt-app file: --workload FILE.json".to_owned(),
    };
    RealError::Usage(format!(
        "{name}: there is no real program of it in a guest (Debian has no package, or none that runs \
         by itself); {remedy}"
    ))
}

/// Changes an rt-app file so that it writes complete logs into its folder, and ends after `duration_ns`.
fn adapted(name: &str, text: &str, duration_ns: Option<u64>) -> Result<String, RealError> {
    let unreadable = |what: String| RealError::Usage(format!("{name}: {what}"));
    let root = CstRootNode::parse(text, &ParseOptions::default())
        .map_err(|error| unreadable(error.to_string()))?;
    let object = root.object_value().ok_or_else(|| unreadable("is not a JSON object".into()))?;
    let global = object.object_value_or_set("global");
    set(&global, "logdir", CstInputValue::String(".".into()));
    set(&global, "log_basename", CstInputValue::String("rt-app".into()));
    // With a size in MiB, rt-app keeps only the last lines; with 0 it logs nothing. rt-app 1.0 confuses the words
    // "file" and "disable". Without any of these it writes a file.
    if let Some(size) = global.get("log_size") {
        size.remove();
    }
    if let Some(ns) = duration_ns {
        // rt-app accepts only whole seconds.
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

/// The number after `word`, on the last line that contains both.
fn number_after(text: &str, word: &str) -> Option<f64> {
    text.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once(word)?;
        rest.split_whitespace().next()?.parse().ok()
    })
}

/// Finds the rate in a line such as `[  5]   0.00-10.00  sec  11.6 GBytes  9.98 Gbits/sec      receiver`.
fn iperf3_rate(text: &str) -> Option<f64> {
    let line = text.lines().rev().find(|line| line.trim_end().ends_with("receiver"))?;
    let (before, _) = line.split_once("Gbits/sec")?;
    before.split_whitespace().next_back()?.parse().ok()
}

/// The contents of rt-app's logs.
#[derive(Debug, Default)]
struct Logs {
    classes: Vec<Class>,
}

/// All tasks with the same name.
#[derive(Debug)]
struct Class {
    name: String,
    /// Wakeup latencies of its timers in us, sorted.
    latencies: Vec<u64>,
    /// Number of completed loops.
    loops: u64,
}

impl Logs {
    /// Reads `rt-app-CLASS-N.log` in `folder` for the classes in `tasks`. Reads nothing if the logs may be incomplete.
    fn read(folder: &Path, tasks: &[TaskLog]) -> Self {
        let mut logs = Self::default();
        let Ok(entries) = std::fs::read_dir(folder) else { return logs };
        if folder.join(CUT_SHORT).exists() {
            return logs;
        }
        for file in entries.flatten().map(|entry| entry.path()) {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let task = name.strip_prefix("rt-app-").and_then(|name| name.strip_suffix(".log"));
            let Some((class, _)) = task.and_then(|task| task.rsplit_once('-')) else { continue };
            let Some(task) = tasks.iter().find(|task| task.task == class) else { continue };
            logs.add(task, &std::fs::read_to_string(&file).unwrap_or_default());
        }
        for class in &mut logs.classes {
            class.latencies.sort_unstable();
        }
        logs
    }

    /// Adds the log of a task.
    fn add(&mut self, task: &TaskLog, text: &str) {
        let known = self.classes.iter().position(|class| class.name == task.task);
        let index = known.unwrap_or(self.classes.len());
        if known.is_none() {
            let name = task.task.clone();
            self.classes.push(Class { name, latencies: Vec::new(), loops: 0 });
        }
        let class = &mut self.classes[index];
        class.loops += task.loops(lines(text).count() as u64);
        if task.has_timer {
            class.latencies.extend(lines(text).filter_map(latency));
        }
    }

    fn class(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|class| class.name == name)
    }

    fn loops(&self, class: &str) -> Option<u64> {
        self.class(class).map(|class| class.loops)
    }

    fn values(&self, class: &str) -> Option<&[u64]> {
        let values = self.class(class)?.latencies.as_slice();
        (!values.is_empty()).then_some(values)
    }

    fn mean_latency(&self, class: &str) -> Option<f64> {
        let values = self.values(class)?;
        Some(values.iter().sum::<u64>() as f64 / values.len() as f64)
    }

    /// The latency that the fraction `share` of all latencies does not exceed.
    fn latency(&self, class: &str, share: f64) -> Option<f64> {
        let values = self.values(class)?;
        let rank = (share * values.len() as f64).ceil() as usize;
        values.get(rank.saturating_sub(1)).map(|&value| value as f64)
    }
}

/// The lines of a log that describe a loop. Lines that begin with `#` name the columns.
fn lines(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty())
}

/// The last number of a line, which is the wakeup latency. If a timer had expired before the task started to wait for
/// it, there was no wakeup. Then `slack`, three columns before, is negative. Or the latency is negative, and is printed
/// without its sign.
fn latency(line: &str) -> Option<u64> {
    let mut numbers = line.split_whitespace().rev();
    let us = numbers.next()?.parse::<u64>().ok()?;
    let late = numbers.nth(2).is_some_and(|slack| slack.starts_with('-'));
    (i64::try_from(us).is_ok() && !late).then_some(us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_the_parameters() {
        let workload = Workload::resolve("hackbench:groups=3,pipe,threads,loops=7", None).unwrap();
        assert!(workload.script.ends_with("\nexec hackbench -g 3 -l 7 -s 100 -f 20 -T -p\n"));
        assert!(workload.script.contains("apt-get install rt-tests"), "{}", workload.script);
        let workload = Workload::resolve("netperf-udp-rr:clients=4", None).unwrap();
        assert!(workload.script.contains("-t UDP_RR -l 10 ") && workload.script.contains("i < 4"));
        let workload = Workload::resolve("tbench", Some(1)).unwrap();
        assert!(
            workload.script.contains("tbench -t 1 -c /usr/share/dbench/client.txt 1 127.0.0.1")
        );
        let workload = Workload::resolve("iperf3:noise=4", Some(2_500_000_000)).unwrap();
        assert!(workload.script.contains("-t 3 -l 128K"), "{}", workload.script);
        assert!(String::from_utf8_lossy(&workload.files[0].1).contains("\"instance\": 4"));
    }

    #[test]
    fn every_instance_of_sysbench_has_a_server_that_starts_before_the_measurement() {
        let workload = Workload::resolve("sysbench-oltp:instances=2,threads=3,weight=50", None);
        let workload = workload.unwrap();
        assert!(workload.script.contains("i < 2") && workload.script.contains("--threads=3"));
        let server = workload.server.as_deref().unwrap();
        assert!(server.contains("\ninstances=2 weight=50\n"), "{server}");
        assert!(server.contains("apt-get install mariadb-server-core"), "{server}");
        assert_eq!(workload.addition, Some(MARIADB));
        let printed = "eps of 1: 7.5\neps of 0: 12.5\naverage eps: 10\n";
        let metrics = workload.metrics(printed, Path::new("/none"), 1);
        let values: Vec<_> = metrics.iter().map(|one| (one.name.as_str(), one.value)).collect();
        let expected =
            [("average eps", Some(10.0)), ("eps of 0", Some(12.5)), ("eps of 1", Some(7.5))];
        assert_eq!(values, expected);
    }

    #[test]
    fn stress_ng_stands_for_coremark_without_results() {
        let workload = Workload::resolve("stress-ng:coremark:threads=3", Some(1)).unwrap();
        assert!(workload.script.contains("stress-ng --cpu 3 --cpu-method loop --timeout 1 "));
        assert!(workload.metrics.is_empty());
    }

    #[test]
    fn what_debian_lacks_is_said_with_the_way_out() {
        let error = |name| Workload::resolve(name, None).unwrap_err().to_string();
        let told = error("schbench:workers=3");
        assert!(told.contains("no package"), "{told}");
        assert!(told.ends_with("--workload rt-app:schbench:workers=3"), "{told}");
        assert!(error("coremark").contains("rt-app:coremark"));
        assert!(error("stream").contains("FILE.json"));
    }

    #[test]
    fn rt_app_forms_and_files_run_rt_app() {
        let workload = Workload::resolve("rt-app:schbench:messages=1", None).unwrap();
        assert!(workload.script.contains("timeout --foreground -s KILL 40 rt-app"));
        assert_eq!(workload.filter().unwrap(), "comm ~ \"message0*\" || comm ~ \"worker0*\"");
        assert!(workload.metrics.iter().any(|metric| metric.name == "worker0 loops/s"));
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
        let text = "{ /* two */ \"tasks\": {\"a\": {\"run\": 10}}, \"global\": {\"logdir\": \"/x\", \
             \"log_size\": 0}}";
        let adapted = adapted("f.json", text, Some(1)).unwrap();
        assert!(adapted.contains("/* two */") && adapted.contains("\"run\": 10"), "{adapted}");
        assert!(adapted.contains("\"logdir\": \".\"") && !adapted.contains("/x"), "{adapted}");
        assert!(adapted.contains("\"duration\": 1"), "{adapted}");
        assert!(!adapted.contains("log_size"), "{adapted}");
    }

    /// A log of two loops of two phases. Timers wake the task in both phases.
    const LOG: &str = "#idx perf run period start end rel_st slack c_duration c_period wu_lat\n\
                       0 1 1000 5000 1 2 3 4 5 6 70\n0 1 1000 5000 1 2 3 4 5 6 30\n\
                       0 1 1000 5000 1 2 3 4 5 6 18446744073709551533\n\
                       0 1 1000 5000 1 2 3 -4 5 6 0\n";

    fn logs_of(file: &str) -> Logs {
        let folder = tempfile::tempdir().unwrap();
        for name in ["rt-app-a-0.log", "rt-app-a-1.log", "rt-app-noise-2.log"] {
            std::fs::write(folder.path().join(name), LOG).unwrap();
        }
        let text = format!("{{\"tasks\": {{\"a\": {file}}}, \"global\": {{\"duration\": 1}}}}");
        Logs::read(folder.path(), &roost_workload::rtapp::load(&text, "f").unwrap().logs)
    }

    #[test]
    fn latencies_and_loops_are_those_of_the_logs() {
        let timer = "\"timer\": {\"ref\": \"unique\", \"period\": 1000}";
        let logs = logs_of(&format!("{{\"phases\": {{\"x\": {{{timer}}}, \"y\": {{{timer}}}}}}}"));
        assert_eq!(logs.mean_latency("a"), Some(50.0));
        assert_eq!(logs.latency("a", 0.99), Some(70.0));
        assert_eq!(logs.latency("a", 0.5), Some(30.0));
        assert_eq!(logs.loops("a"), Some(4), "two of each task");
        assert_eq!((logs.latency("b", 0.5), logs.loops("b")), (None, None));
        let logs = logs_of("{\"run\": 1000}");
        assert_eq!(logs.loops("a"), Some(8));
        assert_eq!(logs.mean_latency("a"), None, "0 where no timer wakes");
    }

    #[test]
    fn logs_that_were_cut_short_tell_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rt-app-a-0.log"), LOG).unwrap();
        std::fs::write(folder.path().join(CUT_SHORT), "").unwrap();
        let file = "{\"tasks\": {\"a\": {\"run\": 1}}, \"global\": {\"duration\": 1}}";
        let tasks = roost_workload::rtapp::load(file, "f").unwrap().logs;
        assert_eq!(Logs::read(folder.path(), &tasks).loops("a"), None);
    }
}
