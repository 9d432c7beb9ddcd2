//! One random run: machine, workload, scheduler, duration, seed.

use std::fmt;

use roost_workload::{Workload, rtapp};

use crate::beside::Beside;
use crate::disturber::Tempo;
use crate::generate;
use crate::random::Random;
use crate::shape::Shape;

const NS_PER_MS: u64 = 1_000_000;

/// How cases are drawn, beside their seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Whether runs of the shipped program have faults. `None`: some have.
    pub faults: Option<bool>,
    /// Whether only small runs of the shipped program are drawn, with which many schedules are seen.
    pub small: bool,
}

/// Everything that one run depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The machine.
    pub machine: Shape,
    /// Version of the fair class. `None`: the scheduler is the BPF program that this project ships.
    pub version: Option<String>,
    /// Switches and numbers that are set: `sis-util`, `no-hrtick`, `name=number`.
    pub switches: Vec<String>,
    /// Tasks of an rt-app file.
    pub tasks: Vec<Task>,
    /// Tasks that run next to these.
    pub beside: Vec<Beside>,
    /// `cpu.weight` of the groups, in the order in which tasks name them. Further groups have the default weight.
    pub weights: Vec<u32>,
    /// Simulated time after which the run ends, in ms. `None`: when all tasks have exited, which they all do.
    pub duration_ms: Option<u64>,
    /// Whether kernel threads run too.
    pub background: bool,
    /// Whether faults happen (`CONTRIBUTING.md` lists them).
    pub faults: bool,
    /// The run's own seed.
    pub seed: u64,
    /// How it was drawn.
    pub draw: Draw,
}

/// An entry of an rt-app file's "tasks".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Number of its tasks that start with the run.
    pub instances: u64,
    /// The settings before the phases: priority, CPUs, task group, each followed by a comma.
    pub settings: Vec<String>,
    /// Its phases, which it repeats.
    pub phases: Vec<Phase>,
}

/// An entry of "phases".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Number of repetitions.
    pub times: u64,
    /// Changes of priority, policy and CPUs, each followed by a comma.
    pub settings: Vec<String>,
    /// Events. Events that belong together (lock, run, unlock) are one entry.
    pub events: Vec<String>,
}

impl Case {
    /// The case of a seed.
    pub fn of(seed: u64) -> Self {
        Self::drawn(seed, Draw::default())
    }

    /// The case of a seed, drawn like this.
    pub fn drawn(seed: u64, draw: Draw) -> Self {
        let random = &mut Random(seed);
        let case = match draw.small {
            true => generate::small_case(random, seed),
            false => generate::case(random, seed),
        };
        let faults = draw.faults.filter(|_| case.version.is_none()).unwrap_or(case.faults);
        Self { faults, draw, ..case }
    }

    /// Another case of a seed, in which all tasks end. Their loops end. A task waits for another one only at a mutex,
    /// which is locked and unlocked within one event and never nested, or for a message that is sent.
    pub fn that_ends(seed: u64) -> Self {
        generate::case_that_ends(&mut Random(seed), seed)
    }

    /// The command that repeats the case that this one was made from, as a sentence.
    pub fn repeat(&self) -> String {
        let Draw { faults, small } = self.draw;
        let small = if small { " SCHEDULES=1" } else { "" };
        let faults = match faults {
            Some(true) => " FAULTS=on",
            Some(false) => " FAULTS=off",
            None => "",
        };
        format!("repeat it with: make swarm SEED={} RUNS=1{small}{faults}", self.seed)
    }

    /// How soon faults happen to CPUs and classes.
    pub(crate) fn tempo(&self) -> Tempo {
        if self.draw.small { Tempo::QUICK } else { Tempo::USUAL }
    }

    /// The scheduler, in the form of the command line.
    pub fn scheduler(&self) -> String {
        let mut name = match &self.version {
            Some(version) => format!("fair@{version}"),
            None => "roost".to_owned(),
        };
        for switch in &self.switches {
            name += &format!("+{switch}");
        }
        name
    }

    /// The workload.
    ///
    /// # Errors
    /// If it is not valid, in one line.
    pub fn workload(&self) -> Result<Workload, String> {
        let workload = rtapp::parse(&self.rt_app(), "swarm");
        let mut workload = workload.map_err(|error| error.to_string())?;
        workload.duration_ns = self.duration_ms.map(|ms| ms * NS_PER_MS);
        for beside in &self.beside {
            beside.add_to(&mut workload, self.times());
        }
        for (group, weight) in workload.groups.iter_mut().zip(&self.weights) {
            group.weight = *weight;
        }
        workload.validate().map_err(|invalid| invalid.to_string())?;
        Ok(workload)
    }

    /// How often each task repeats its phases. 0: for ever.
    fn times(&self) -> u64 {
        if self.duration_ms.is_some() { 0 } else { 2 }
    }

    /// The tasks as an rt-app file.
    fn rt_app(&self) -> String {
        let times = if self.times() == 0 { -1 } else { self.times() as i64 };
        let mut tasks: Vec<String> =
            self.tasks.iter().enumerate().map(|(i, task)| task.json(i, times)).collect();
        tasks.push(r#""child": {"instance": 0, "loop": 3, "run": 150, "sleep": 100}"#.to_owned());
        format!("{{\"tasks\": {{\n  {}\n}}}}", tasks.join(",\n  "))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "machine    {}", self.machine)?;
        writeln!(f, "scheduler  {}", self.scheduler())?;
        match self.duration_ms {
            Some(ms) => writeln!(f, "duration   {ms} ms")?,
            None => writeln!(f, "duration   until all tasks end")?,
        }
        if self.background {
            writeln!(f, "background threads of the kernel")?;
        }
        if self.faults {
            writeln!(f, "with faults")?;
        }
        writeln!(f, "seed       {}", self.seed)?;
        for beside in &self.beside {
            writeln!(f, "beside     {beside:?}")?;
        }
        if !self.weights.is_empty() {
            writeln!(f, "weights    {:?}", self.weights)?;
        }
        write!(f, "workload   {}", self.rt_app())
    }
}

impl Task {
    fn json(&self, number: usize, times: i64) -> String {
        let phases: Vec<String> =
            self.phases.iter().enumerate().map(|(i, phase)| phase.json(i)).collect();
        format!(
            "\"t{number}\": {{\"instance\": {}, {}\"loop\": {times}, \"phases\": {{{}}}}}",
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
