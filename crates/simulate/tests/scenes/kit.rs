//! Builds a scene and shows what happened in it: a machine, tasks with affinities, groups and sleeps, and the scheduler
//! `roost` with settings.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use roost_engine::{CpuId, LeftAs, RunError, TaskId, Time, TraceTask, Tracer, World};
use roost_machine::Machine;
use roost_scx::{Companion, KernelTypes, Program, Scx, UserMaps};
use roost_simulate::{Control, Outcome, SchedulerSpec, ScxSpec};
use roost_workload::{
    Channel, ChannelKind, Cpus, Group, Op, Policy, Process, Template, Workload, weight_of,
};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;

/// The tick of the simulated kernel. A slice ends with a tick.
pub const TICK_NS: u64 = 4 * MS;

/// Two nodes with two LLCs of four CPUs each: CPUs 0 to 3 and 4 to 7 are the LLCs of the first node.
pub const SMALL: &str = "2n2l4c";

/// Machines of 16, 128, 384 and 512 CPUs, each with two nodes.
pub const SIZES: [&str; 4] = [
    "node:2 l3:2 core:4 pu:1",
    "node:2 l3:4 core:16 pu:1",
    "node:2 l3:12 core:16 pu:1",
    "node:2 l3:16 core:16 pu:1",
];

/// Seeds of scenes in which chance decides much.
pub const SEEDS: std::ops::Range<u64> = 1..4;

/// What one task of a scene is and does.
#[derive(Clone, Debug)]
pub struct Task {
    ops: Vec<Op>,
    repeats_from: Option<usize>,
    affinities: Vec<Vec<u32>>,
    allowed: Option<Vec<u32>>,
    first_on: Option<u32>,
    begins_ns: u64,
    group: Option<u32>,
    process: Option<u32>,
    kernel: bool,
    nice: i8,
}

impl Task {
    /// A task that does `once`, and then `forever` again and again.
    pub fn program(once: &[Op], forever: &[Op]) -> Self {
        Self {
            ops: [once, forever].concat(),
            repeats_from: (!forever.is_empty()).then_some(once.len()),
            affinities: Vec::new(),
            allowed: None,
            first_on: None,
            begins_ns: 0,
            group: None,
            process: None,
            kernel: false,
            nice: 0,
        }
    }

    /// A busy loop.
    pub fn spins() -> Self {
        Self::program(&[], &[Op::Run { ns: SECOND }])
    }

    /// A busy loop that ends after `ns` of CPU time.
    pub fn ends_after(ns: u64) -> Self {
        Self::program(&[Op::Run { ns }], &[])
    }

    /// May run only on these CPUs.
    pub fn on(self, cpus: impl IntoIterator<Item = u32>) -> Self {
        Self { allowed: Some(cpus.into_iter().collect()), ..self }
    }

    /// Starts on this CPU.
    pub fn first_on(self, cpu: u32) -> Self {
        Self { first_on: Some(cpu), ..self }
    }

    /// Begins at this time of the run.
    pub fn begins(self, ns: u64) -> Self {
        Self { begins_ns: ns, ..self }
    }

    /// Is in this cgroup.
    pub fn group(self, group: u32) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Is a thread of this process. Otherwise it is a process of its own.
    pub fn thread_of(self, process: u32) -> Self {
        Self { process: Some(process), ..self }
    }

    /// Is a thread of the kernel.
    pub fn kernel(self) -> Self {
        Self { kernel: true, ..self }
    }

    pub fn nice(self, nice: i8) -> Self {
        Self { nice, ..self }
    }

    /// CPU lists for [`Op::SetAffinity`] and [`Op::SetAffinityOf`], numbered from 0.
    pub fn affinities(self, affinities: Vec<Vec<u32>>) -> Self {
        Self { affinities, ..self }
    }

    fn template(mut self, name: String, class: &str, process: u32, all: &[u32]) -> Template {
        let mut ops = Vec::new();
        let mut affinity = self.allowed.clone();
        if let Some(cpu) = self.first_on {
            // Runs for a moment where it starts, so that it has run there last.
            let set = self.affinities.len() as u32;
            self.affinities.push(self.allowed.take().unwrap_or_else(|| all.to_vec()));
            affinity = Some(vec![cpu]);
            ops.extend([Op::Run { ns: 1000 }, Op::SetAffinity(set)]);
        }
        if self.begins_ns > 0 {
            ops.push(Op::SleepUntil { ns: self.begins_ns });
        }
        let start = ops.len();
        ops.extend(self.ops);
        if let Some(from) = self.repeats_from {
            ops.push(Op::Loop { depth: 0, times: 0, to: (start + from) as u32 });
        }
        Template {
            name,
            process,
            group: self.group,
            nice: self.nice,
            policy: Policy::Normal,
            affinity,
            delay_ns: 0,
            footprint_bytes: 0,
            program: roost_workload::Program {
                ops,
                loop_depth: 1,
                affinities: self
                    .affinities
                    .into_iter()
                    .map(|cpus| Some(Cpus::List(cpus)))
                    .collect(),
                ..roost_workload::Program::default()
            },
            class: class.to_owned(),
        }
    }
}

/// A scene, before it is played.
#[derive(Clone)]
pub struct Scene {
    machine: Arc<Machine>,
    workload: Workload,
    scheduler: String,
    seed: u64,
    random: u64,
    faults: bool,
    /// Members of kernel structs that the kernel lacks.
    lacks: Vec<&'static str>,
    acts: Vec<(u64, Act)>,
}

/// Something that happens at a time of the scene.
type Act = Rc<dyn Fn(&mut Stage<'_, '_>)>;

impl Scene {
    /// An empty scene on a machine. The seed decides the lengths of sleeps, and what is random in the simulation.
    pub fn new(machine: &str, seed: u64) -> Self {
        Self {
            machine: Arc::new(roost_machine::resolve(machine).unwrap()),
            workload: empty(),
            scheduler: "roost".to_owned(),
            seed,
            random: seed,
            faults: false,
            lacks: Vec::new(),
            acts: Vec::new(),
        }
    }

    /// With faults: what may fail fails one time in eight, and interrupts come late.
    pub fn with_faults(self) -> Self {
        Self { faults: true, ..self }
    }

    /// On a kernel that does not have a member of its structs.
    pub fn without(mut self, member: &'static str) -> Self {
        self.lacks.push(member);
        self
    }

    /// Does something at a time of the run.
    pub fn at(&mut self, ns: u64, act: impl Fn(&mut Stage<'_, '_>) + 'static) {
        self.acts.push((ns, Rc::new(act)));
    }

    /// Does something again and again.
    pub fn every(
        &mut self,
        times_ns: impl Iterator<Item = u64>,
        act: impl Fn(&mut Stage<'_, '_>) + 'static,
    ) {
        let act: Act = Rc::new(act);
        self.acts.extend(times_ns.map(|ns| (ns, Rc::clone(&act))));
    }

    /// Settings, as after the scheduler's name: `+no-cling+slice-us=1000`.
    pub fn with(mut self, settings: &str) -> Self {
        self.scheduler += settings;
        self
    }

    pub fn cpus(&self) -> u32 {
        self.machine.nr_cpus() as u32
    }

    /// A cgroup of this weight, below the root.
    pub fn group(&mut self, weight: u32) -> u32 {
        self.add_group(None, weight)
    }

    /// A cgroup within another one.
    pub fn group_in(&mut self, parent: u32) -> u32 {
        self.add_group(Some(parent), 100)
    }

    fn add_group(&mut self, parent: Option<u32>, weight: u32) -> u32 {
        let number = self.workload.groups.len() as u32;
        let path = format!("/group{number}");
        self.workload.groups.push(Group { path, parent, weight });
        number
    }

    /// A process, for several threads.
    pub fn process(&mut self) -> u32 {
        self.add_process(false)
    }

    fn add_process(&mut self, kernel: bool) -> u32 {
        let number = self.workload.processes.len() as u32;
        let name = format!("process{number}");
        self.workload.processes.push(Process { name, forked: false, kernel });
        number
    }

    /// A pipe for single bytes.
    pub fn channel(&mut self) -> u32 {
        let kind = ChannelKind::Stream;
        let channel = Channel { capacity_bytes: 1, sync_wakeup: false, kind, softirq_ns: 0 };
        self.workload.channels.push(channel);
        self.workload.channels.len() as u32 - 1
    }

    /// A number below `limit`, from the seed (a linear congruential generator, Knuth's MMIX).
    pub fn chance(&mut self, limit: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    /// A task that runs for `run_ns` and then sleeps, for half to one and a half of `sleep_ns`.
    pub fn naps(&mut self, run_ns: u64, sleep_ns: u64) -> Task {
        let mut body = Vec::new();
        for _ in 0..16 {
            let ns = sleep_ns / 2 + self.chance(sleep_ns + 1);
            body.extend([Op::Run { ns: run_ns }, Op::Sleep { ns }]);
        }
        let first = Op::Sleep { ns: self.chance(sleep_ns + 1) };
        Task::program(&[first], &body)
    }

    /// Adds a task, by the name under which it is asked for. Returns its template.
    pub fn add(&mut self, name: &str, task: Task) -> u32 {
        let process = match task.process {
            Some(process) => process,
            None => self.add_process(task.kernel),
        };
        let number = self.workload.templates.len() as u32;
        let all: Vec<u32> = (0..self.cpus()).collect();
        self.workload.templates.push(task.template(
            format!("{name}-{number}"),
            name,
            process,
            &all,
        ));
        self.workload.start.push((number, 1));
        number
    }

    /// Adds several tasks.
    pub fn add_all(&mut self, name: &str, tasks: impl IntoIterator<Item = Task>) {
        for task in tasks {
            self.add(name, task);
        }
    }

    /// Counters count from this time on. Otherwise they count from the start.
    pub fn counted_from(mut self, ns: u64) -> Self {
        self.workload.measured_from_ns = ns;
        self
    }

    /// Plays the scene up to `until_ns`. What is seen of tasks is from `from_ns` on.
    pub fn play(&self, from_ns: u64, until_ns: u64) -> Seen {
        self.try_play(from_ns, until_ns).unwrap()
    }

    /// The scheduler ends the run: with what reason.
    pub fn ends(&self, until_ns: u64) -> String {
        match self.try_play(0, until_ns) {
            Err(RunError::Scheduler { reason, .. }) => reason,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it goes on"),
        }
    }

    fn try_play(&self, from_ns: u64, until_ns: u64) -> Result<Seen, RunError> {
        let mut workload = self.workload.clone();
        workload.duration_ns = Some(until_ns);
        let spec = self.spec();
        let program = spec.program(&self.machine, &AtomicBool::new(false)).unwrap();
        let mut scx = Scx::new(&self.machine, &program, spec.tick_ns).unwrap();
        if !self.acts.is_empty() {
            let mut acts = self.acts.clone();
            acts.sort_by_key(|(ns, _)| *ns);
            scx = scx.accompanied(Box::new(Script { acts, next: 0, program }));
        }
        let observer = Observer::new(self.machine.nr_cpus(), from_ns);
        let seen = Rc::clone(&observer.0);
        let tracer: Option<Box<dyn Tracer>> = Some(Box::new(observer));
        let control = Control { tracer, faults: self.faults, ..Control::new(self.seed) };
        let outcome = roost_engine::run(&self.machine, &workload, scx, control)?;
        let tasks = std::mem::take(&mut seen.borrow_mut().tasks).into_values().collect();
        let window_ns = until_ns - from_ns;
        let mut seen = Seen { tasks, outcome, window_ns, machine: Arc::clone(&self.machine) };
        seen.tasks.iter_mut().for_each(|task| task.end(until_ns, from_ns));
        Ok(seen)
    }

    fn spec(&self) -> ScxSpec {
        let SchedulerSpec::Scx(spec) = SchedulerSpec::parse(&self.scheduler).unwrap() else {
            panic!("roost is a program")
        };
        if self.lacks.is_empty() {
            return spec;
        }
        let mut bytes = include_bytes!("../../../scx/kernel/7.2.13.btf").to_vec();
        for member in &self.lacks {
            hide(&mut bytes, member);
        }
        let mut types = KernelTypes::parse("another kernel", &bytes).unwrap();
        types.reduced = true;
        spec.on_kernel(types).unwrap()
    }
}

/// Renames a member wherever it is.
fn hide(bytes: &mut [u8], member: &str) {
    let name = format!("\0{member}\0");
    let found = bytes.windows(name.len()).position(|at| at == name.as_bytes());
    bytes[found.expect("the kernel has it") + 1] = b'_';
}

/// A scene in progress.
pub struct Stage<'a, 'b> {
    pub world: &'a mut World,
    maps: &'a mut UserMaps<'b>,
    program: &'a Program,
    /// The CPU that does this.
    pub cpu: CpuId,
}

impl Stage<'_, '_> {
    /// All tasks of a name.
    pub fn tasks(&self, class: &str) -> Vec<TaskId> {
        let all = (0..self.world.nr_task_ids() as u32).map(TaskId);
        let named = |&task: &TaskId| {
            let name = self.world.name(task);
            name.rsplit_once('-').is_some_and(|(known, _)| known == class)
        };
        all.filter(named).collect()
    }

    /// Runs a function of the program, as the kernel does at an event.
    pub fn run_on(&mut self, cpu: CpuId, function: &str, arguments: &[u64]) {
        let done = self.maps.run(self.world, cpu, function, arguments);
        assert!(done.is_some(), "{function} did not run");
    }

    pub fn run(&mut self, function: &str, arguments: &[u64]) {
        self.run_on(self.cpu, function, arguments);
    }

    /// A number in an entry of an array.
    pub fn read(&self, map: &str, index: u32, member: &str) -> u64 {
        self.maps.read(map, &index.to_le_bytes(), member).unwrap()
    }

    pub fn write(&mut self, map: &str, index: u32, member: &str, value: u64) {
        self.maps.write(map, &index.to_le_bytes(), member, value);
    }

    pub fn variable(&self, name: &str) -> u64 {
        self.maps.variable(name).unwrap()
    }

    /// The index of a group or process in the tables of the scheduler.
    pub fn set_of(&self, id: u64) -> Option<u32> {
        self.maps.read("set_ids", &id.to_le_bytes(), "").map(|index| index as u32)
    }

    /// As `set_of`, for a cgroup.
    pub fn set_of_group(&self, group: u32) -> Option<u32> {
        self.set_of(self.maps.directory(Some(group)).unwrap())
    }

    /// The node where a group or process has settled.
    pub fn settled_on(&self, set: u32) -> Option<u32> {
        let node = self.read("sets", set, "preferred") as u32;
        (node != u32::MAX).then_some(node)
    }

    pub fn cgroup(&self, group: u32) -> u64 {
        self.maps.cgroup(group)
    }

    pub fn task_struct(&self, task: TaskId) -> u64 {
        self.maps.task_struct(task)
    }

    /// Sets a member of a task's `struct task_struct`, of four bytes.
    pub fn set_task(&mut self, task: TaskId, member: &str, value: u64) {
        let at =
            self.task_struct(task) + self.program.kernel.offset("task_struct", member).unwrap();
        self.maps.write_kernel(at, 4, value);
    }

    /// Sets a member of a CPU's `struct rq`.
    pub fn set_cpu(&mut self, cpu: CpuId, member: &str, bytes: u32, value: u64) {
        let at = self.maps.run_queue(cpu) + self.program.kernel.offset("rq", member).unwrap();
        self.maps.write_kernel(at, bytes, value);
    }

    /// Whether the kernel asks the scheduler for a CPU.
    pub fn set_offline(&mut self, cpu: CpuId, offline: bool) {
        self.maps.set_offline(cpu, offline);
    }

    /// A CPU begins to go offline.
    pub fn leave(&mut self, cpu: CpuId) {
        self.maps.leave(self.world, cpu);
    }

    /// A CPU that began to go offline is offline.
    pub fn left(&mut self, cpu: CpuId) {
        self.maps.left(self.world, cpu);
    }

    /// A CPU that was offline is back.
    pub fn come_back(&mut self, cpu: CpuId) {
        self.maps.come_back(self.world, cpu);
    }

    /// Compares what the scheduler counts in several places: nodes know their words with idle CPUs and their LLCs with
    /// waiting tasks, and an LLC counts its waiting tasks.
    pub fn check_counts(&self) {
        let llcs = self.world.machine().llcs.len() as u32;
        for llc in 0..llcs {
            let [node, rank] = ["node", "rank"].map(|member| self.read("words", llc, member));
            let bit = |member: &str| self.read("nodes", node as u32, member) >> rank & 1 == 1;
            let idle = self.read("words", llc, "idle") != 0;
            assert_eq!(idle, bit("idle_words"), "LLC {llc}");
            let waiting = self.read("llcs", llc, "waiting") as u32 as i32;
            assert!((0..1 << 20).contains(&waiting), "LLC {llc}: {waiting}");
            assert!(waiting == 0 || bit("waiting_llcs"), "LLC {llc}");
        }
    }

    /// Writes a limit as the fair class keeps it.
    pub fn fair_limit(&mut self, group: u32, percent: u64) {
        let at = self.maps.task_group(group);
        let offset = |member| self.program.kernel.offset("task_group", member).unwrap();
        let members = [("cfs_bandwidth.period", 100), ("cfs_bandwidth.quota", percent)];
        for (place, ms) in members.map(|(member, ms)| (offset(member), ms)) {
            self.maps.write_kernel(at + place, 8, ms * MS);
        }
    }

    /// Announces a cgroup without a limit to the scheduler.
    pub fn init_cgroup(&mut self, group: u32) {
        // struct scx_cgroup_init_args, where the kernel puts it.
        let at = self.maps.arguments();
        let offset = |member| self.program.kernel.offset("scx_cgroup_init_args", member).unwrap();
        let members =
            [("weight", 4, 100), ("bw_period_us", 8, 100_000), ("bw_quota_us", 8, u64::MAX)];
        for (place, bytes, value) in
            members.map(|(member, bytes, value)| (offset(member), bytes, value))
        {
            self.maps.write_kernel(at + place, bytes, value);
        }
        self.run("roost_cgroup_init", &[self.cgroup(group), at]);
    }

    /// Sets `cpu.max` of a cgroup, in percent of a CPU; `None`: no limit.
    pub fn limit(&mut self, group: u32, percent: Option<u64>) {
        let period_us = 100_000;
        let quota_us = percent.map_or(u64::MAX, |percent| period_us * percent / 100);
        self.run("roost_cgroup_set_bandwidth", &[self.cgroup(group), period_us, quota_us, 0]);
    }
}

/// A thread that does what the scene wants at its times.
struct Script {
    acts: Vec<(u64, Act)>,
    next: usize,
    program: Arc<Program>,
}

impl Companion for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn turn(&mut self, world: &mut World, cpu: CpuId, maps: &mut UserMaps<'_>) -> u64 {
        let mut stage = Stage { world, maps, program: &self.program, cpu };
        while let Some((_, act)) =
            self.acts.get(self.next).filter(|(ns, _)| *ns <= stage.world.now().ns())
        {
            act(&mut stage);
            self.next += 1;
        }
        0
    }

    /// A turn can end after the time of the next act.
    fn pause(&mut self, world: &World, _: TaskId) -> Time {
        self.acts.get(self.next).map_or(Time::NEVER, |(ns, _)| Time(*ns).max(world.now()))
    }

    fn counters(&self, _: &mut dyn FnMut(&str, u64)) {}
}

fn empty() -> Workload {
    Workload {
        name: "scene".to_owned(),
        templates: Vec::new(),
        start: Vec::new(),
        processes: Vec::new(),
        root_process: None,
        groups: Vec::new(),
        regions: Vec::new(),
        mutexes: 0,
        conditions: 0,
        barriers: Vec::new(),
        channels: Vec::new(),
        shared_timers: 0,
        counters: 0,
        watches: 0,
        duration_ns: None,
        measured_from_ns: 0,
        rates_of_tasks: false,
        metrics: Vec::new(),
    }
}

/// What a task did in the time that is seen.
#[derive(Clone, Debug, Default)]
pub struct Life {
    pub class: String,
    /// Time that it ran, by CPU.
    pub ran_ns: Vec<u64>,
    /// Since when it waits for a CPU.
    waits_from: Option<u64>,
    /// All its waits, and the longest one.
    pub waited_ns: u64,
    pub longest_ns: u64,
    /// Times that it began to run.
    pub turns: u64,
}

impl Life {
    /// A wait ends.
    fn end(&mut self, now: u64, from: u64) {
        let Some(since) = self.waits_from.take() else { return };
        if now > from {
            self.waited_ns += now - since.max(from);
            self.longest_ns = self.longest_ns.max(now - since);
        }
    }

    pub fn ran(&self) -> u64 {
        self.ran_ns.iter().sum()
    }
}

/// What happened in a scene.
pub struct Seen {
    pub tasks: Vec<Life>,
    pub outcome: Outcome,
    pub window_ns: u64,
    machine: Arc<Machine>,
}

impl Seen {
    /// All tasks of a name.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Life> + Clone {
        self.tasks.iter().filter(move |task| task.class == name)
    }

    /// Seconds that all tasks of a name ran.
    pub fn ran(&self, name: &str) -> f64 {
        self.of(name).map(Life::ran).sum::<u64>() as f64 / 1e9
    }

    /// Seconds that all tasks of a name ran, by node.
    pub fn by_node(&self, name: &str) -> Vec<f64> {
        let mut nodes = vec![0.0; self.machine.nodes.len()];
        for task in self.of(name) {
            for (cpu, ns) in task.ran_ns.iter().enumerate() {
                nodes[self.machine.cpus[cpu].node as usize] += *ns as f64 / 1e9;
            }
        }
        nodes
    }

    /// The part of the time of all tasks of a name on their main node.
    pub fn gathered(&self, name: &str) -> f64 {
        let nodes = self.by_node(name);
        nodes.iter().fold(0.0_f64, |most, &node| most.max(node)) / nodes.iter().sum::<f64>()
    }

    /// The longest wait of any task of a name.
    pub fn longest_ns(&self, name: &str) -> u64 {
        self.of(name).map(|task| task.longest_ns).max().unwrap_or(0)
    }

    /// The LLC where the tasks of a name ran most.
    pub fn llc_of(&self, name: &str) -> u32 {
        let ran = |llc: u32| {
            let cpus = self.machine.llcs[llc as usize].cpus.iter();
            cpus.map(|cpu| self.of(name).map(|task| task.ran_ns[cpu]).sum::<u64>()).sum::<u64>()
        };
        (0..self.machine.llcs.len() as u32).max_by_key(|&llc| ran(llc)).unwrap()
    }

    /// Waits of all tasks of a name, added up.
    pub fn waited_ns(&self, name: &str) -> u64 {
        self.of(name).map(|task| task.waited_ns).sum()
    }

    /// The largest part of the time for which a CPU was idle.
    pub fn idle(&self) -> f64 {
        let busy = |cpu: usize| self.tasks.iter().map(|task| task.ran_ns[cpu]).sum::<u64>();
        let least = (0..self.machine.nr_cpus()).map(busy).min().unwrap_or(0);
        1.0 - least as f64 / self.window_ns as f64
    }

    /// A counter of the scheduler.
    pub fn counter(&self, name: &str) -> u64 {
        self.outcome.counter(&format!("roost_{name}")) as u64
    }

    /// A count of the simulation, such as `dispatch_calls`.
    pub fn count(&self, name: &str) -> u64 {
        self.outcome.counter(name) as u64
    }
}

/// The weight that sched_ext tells of a nice value (`sched_weight_to_cgroup()`).
pub fn weight(nice: i8) -> f64 {
    (weight_of(nice) as f64 * 100.0 / 1024.0).round()
}

/// Whether a value is within 5% of the expected one.
pub fn about(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() <= 0.05
}

#[derive(Default)]
struct Notes {
    from_ns: u64,
    tasks: BTreeMap<u32, Life>,
    /// By CPU: since when its task runs.
    since: Vec<u64>,
}

impl Notes {
    fn life(&mut self, task: &TraceTask<'_>) -> &mut Life {
        let cpus = self.since.len();
        self.tasks.entry(task.pid).or_insert_with(|| Life {
            class: task.class().to_owned(),
            ran_ns: vec![0; cpus],
            ..Life::default()
        })
    }
}

/// Observes when and where tasks run and wait.
struct Observer(Rc<RefCell<Notes>>);

impl Observer {
    fn new(cpus: usize, from_ns: u64) -> Self {
        let notes = Notes { from_ns, since: vec![0; cpus], ..Notes::default() };
        Self(Rc::new(RefCell::new(notes)))
    }
}

impl Tracer for Observer {
    fn switch(
        &mut self,
        now: Time,
        cpu: CpuId,
        previous: Option<(TraceTask<'_>, LeftAs)>,
        next: Option<TraceTask<'_>>,
    ) {
        let (mut notes, now) = (self.0.borrow_mut(), now.ns());
        let from = notes.from_ns;
        let since = std::mem::replace(&mut notes.since[cpu], now).max(from);
        if let Some((task, left)) = previous {
            let life = notes.life(&task);
            life.ran_ns[cpu] += now.saturating_sub(since);
            life.waits_from = (left == LeftAs::Preempted).then_some(now);
        }
        if let Some(task) = next {
            let life = notes.life(&task);
            life.end(now, from);
            life.turns += u64::from(now > from);
        }
    }

    fn wakeup(&mut self, now: Time, _: CpuId, task: TraceTask<'_>, _: CpuId) {
        self.0.borrow_mut().life(&task).waits_from = Some(now.ns());
    }
}
