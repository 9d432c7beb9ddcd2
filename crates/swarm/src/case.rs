//! One random run: machine, workload, scheduler, duration, seed.

use std::fmt;

use roost_fair::Features;

use crate::random::Random;

/// Everything that one run depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Counts of packages, nodes a package, LLCs a node, cores an LLC, CPUs a core.
    pub machine: [u64; 5],
    /// Version of the fair class.
    pub version: String,
    /// What differs from it: `sis-util`, `no-hrtick`, `name=number`.
    pub switches: Vec<String>,
    /// Tasks of an rt-app file.
    pub tasks: Vec<Task>,
    /// Simulated time after which the run ends, ms.
    pub duration_ms: u64,
    /// The run's own seed.
    pub seed: u64,
}

/// An entry of an rt-app file's "tasks".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// How many of it start with the run.
    pub instances: u64,
    /// What stands before the phases: priority, CPUs, task group, each with a comma behind it.
    pub settings: Vec<String>,
    /// What it does, again and again.
    pub phases: Vec<Phase>,
}

/// An entry of "phases".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// How often it is repeated.
    pub times: u64,
    /// Changes of priority, policy and CPUs, each with a comma behind it.
    pub settings: Vec<String>,
    /// Events; what belongs together (lock, run, unlock) is one.
    pub events: Vec<String>,
}

impl Case {
    /// The case of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random(seed);
        let machine = random_machine(&mut random);
        let cpus = machine.iter().product();
        let (version, switches) = random_scheduler(&mut random);
        let count = random.range(1, 5);
        let tasks = (0..count).map(|_| random_task(&mut random, cpus)).collect();
        Self { machine, version, switches, tasks, duration_ms: random.range(20, 400), seed }
    }

    /// How to run what this was made from again, as a sentence.
    pub fn repeat(&self) -> String {
        format!("repeat it with: make swarm SEED={} RUNS=1", self.seed)
    }

    /// The machine, as `--machine` takes it.
    pub fn machine(&self) -> String {
        let [packages, nodes, llcs, cores, threads] = self.machine;
        format!("pack:{packages} node:{nodes} l3:{llcs} core:{cores} pu:{threads}")
    }

    /// The scheduler, as `--sched` takes it.
    pub fn scheduler(&self) -> String {
        let mut name = format!("fair@{}", self.version);
        for switch in &self.switches {
            name += &format!("+{switch}");
        }
        name
    }

    /// The workload as an rt-app file.
    pub fn workload(&self) -> String {
        let mut tasks: Vec<String> =
            self.tasks.iter().enumerate().map(|(i, task)| task.json(i)).collect();
        tasks.push(r#""child": {"instance": 0, "loop": 3, "run": 150, "sleep": 100}"#.to_owned());
        format!("{{\"tasks\": {{\n  {}\n}}}}", tasks.join(",\n  "))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "machine    {}", self.machine())?;
        writeln!(f, "scheduler  {}", self.scheduler())?;
        writeln!(f, "duration   {} ms", self.duration_ms)?;
        writeln!(f, "seed       {}", self.seed)?;
        write!(f, "workload   {}", self.workload())
    }
}

impl Task {
    fn json(&self, number: usize) -> String {
        let phases: Vec<String> =
            self.phases.iter().enumerate().map(|(i, phase)| phase.json(i)).collect();
        format!(
            "\"t{number}\": {{\"instance\": {}, {}\"loop\": -1, \"phases\": {{{}}}}}",
            self.instances,
            self.settings.concat(),
            phases.join(", ")
        )
    }
}

impl Phase {
    fn json(&self, number: usize) -> String {
        format!(
            "\"p{number}\": {{\"loop\": {}, {}{}}}",
            self.times,
            self.settings.concat(),
            self.events.join(", ")
        )
    }
}

/// From one CPU to 256; many small LLCs and machines without SMT among them.
fn random_machine(random: &mut Random) -> [u64; 5] {
    if random.one_in(8) {
        return [1; 5];
    }
    let (packages, nodes) = (random.range(1, 2), random.range(1, 4));
    [packages, nodes, random.range(1, 4), random.range(1, 4), random.range(1, 2)]
}

/// A version, and up to three switches or numbers that it has.
fn random_scheduler(random: &mut Random) -> (String, Vec<String>) {
    let versions = roost_fair::versions();
    let version = random.choose(&versions).to_string();
    let mut switches = Vec::new();
    let mut text = format!("fair@{version}");
    for _ in 0..random.range(0, 3) {
        let switch = match random.range(0, 3) {
            0 => random.choose(&roost_fair::switches()).0.to_owned(),
            1 => format!("no-{}", random.choose(&roost_fair::switches()).0),
            2 => random.choose(&roost_fair::switches()).0.to_owned(),
            _ => {
                let most = *random.choose(&[100, 10_000, 1_000_000]);
                format!("{}={}", random.choose(&roost_fair::numbers()).0, random.range(0, most))
            }
        };
        let longer = format!("{text}+{switch}");
        // Not every version has every switch, nor every number that range.
        if Features::parse(&longer).is_ok() {
            text = longer;
            switches.push(switch);
        }
    }
    (version, switches)
}

fn random_task(random: &mut Random, cpus: u64) -> Task {
    let mut settings = Vec::new();
    if random.one_in(2) {
        settings.push(format!("\"priority\": {}, ", random.range(0, 39) as i64 - 20));
    }
    let allowed = random.one_in(3).then(|| random_cpus(random, cpus));
    settings.extend(allowed.as_deref().map(cpus_json));
    if random.one_in(4) {
        settings.push(format!("\"taskgroup\": \"/g{}\", ", random.range(0, 1)));
    }
    let count = random.range(1, 3);
    let mut phases: Vec<Phase> = (0..count).map(|_| random_phase(random, cpus)).collect();
    keep_one_barrier(&mut phases);
    Task { instances: random.range(1, 6), settings, phases }
}

/// A task may wait at a barrier in one place only.
fn keep_one_barrier(phases: &mut [Phase]) {
    let mut found = false;
    for phase in phases {
        phase.events.retain(|event| {
            let barrier = event.starts_with("\"barrier");
            let second = barrier && found;
            found |= barrier;
            !second
        });
    }
}

/// Between one CPU and four, each named once.
fn random_cpus(random: &mut Random, cpus: u64) -> Vec<u64> {
    let mut list: Vec<u64> = (0..random.range(1, 4)).map(|_| random.range(0, cpus - 1)).collect();
    list.sort_unstable();
    list.dedup();
    list
}

fn cpus_json(cpus: &[u64]) -> String {
    format!("\"cpus\": {cpus:?}, ")
}

fn random_phase(random: &mut Random, cpus: u64) -> Phase {
    let mut settings = Vec::new();
    if random.one_in(5) {
        settings.push(cpus_json(&random_cpus(random, cpus)));
    }
    if random.one_in(5) {
        let policy = random.choose(&["SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE"]);
        settings.push(format!("\"policy\": \"{policy}\", "));
    }
    if random.one_in(8) {
        let group = random.choose(&["/", "/g0", "/g1", "/g1/h"]);
        settings.push(format!("\"taskgroup\": \"{group}\", "));
    }
    // What comes first takes time, so that a loop cannot stand still.
    let mut events = vec![format!("\"run\": {}", random.range(1, 2_000))];
    events.extend((0..random.range(0, 3)).map(|i| random_event(random, i)));
    Phase { times: random.range(1, 8), settings, events }
}

/// One event; `i` keeps keys of a phase apart. A mutex is held in one event and alone.
fn random_event(random: &mut Random, i: u64) -> String {
    let us = random.range(1, 2_000);
    let shared = random.range(0, 1);
    match random.range(0, 14) {
        0 | 1 => format!("\"run{i}\": {us}"),
        2 => format!("\"runtime{i}\": {us}"),
        3 | 4 => format!("\"sleep{i}\": {us}"),
        5 => format!("\"timer{i}\": {{\"ref\": \"unique{i}\", \"period\": {us}}}"),
        6 => format!("\"lock{i}\": \"m{shared}\", \"run{i}\": {us}, \"unlock{i}\": \"m{shared}\""),
        7 => format!("\"yield{i}\": \"\""),
        8 if random.one_in(2) => format!("\"fork{i}\": \"child\""),
        9 => format!("\"mem{i}\": {}", us * 64),
        10 => format!("\"resume{i}\": \"t{shared}\""),
        11 => format!("\"suspend{i}\": \"t{shared}\", \"sleep{i}\": {us}"),
        12 => format!("\"barrier{i}\": \"b{shared}\""),
        13 => format!(
            "\"lock{i}\": \"m{shared}\", \"broad{i}\": \"c{shared}\", \"unlock{i}\": \"m{shared}\", \
             \"sleep{i}\": {us}"
        ),
        _ => format!(
            "\"lock{i}\": \"m{shared}\", \"wait{i}\": {{\"ref\": \"c{shared}\", \
             \"mutex\": \"m{shared}\"}}, \"unlock{i}\": \"m{shared}\""
        ),
    }
}
