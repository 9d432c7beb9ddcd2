//! The simplest scheduler: one queue, first come first served.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use roost_engine::*;
use roost_workload::{
    Better, Channel, ChannelKind, Cpus, Metric, MetricKind, Op, Policy, Process, Program, Template,
    Workload,
};

/// First come first served over all CPUs.
#[derive(Default)]
pub struct Fifo {
    queue: VecDeque<TaskId>,
    /// The group of each task created, in order; the root task is the first.
    pub groups: Arc<Mutex<Vec<Option<u32>>>>,
}

impl Scheduler for Fifo {
    fn tick_ns(&self) -> u64 {
        1_000_000
    }
    fn task_new(&mut self, world: &mut World, task: TaskId, _: Option<TaskId>) {
        self.groups.lock().expect("one thread").push(world.group(task));
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, _: Wake) -> CpuId {
        let allowed = world.allowed(task);
        let idle = allowed.iter().find(|&cpu| world.is_idle(cpu));
        idle.or(allowed.first()).expect("a task may run somewhere")
    }
    fn enqueue(&mut self, _: &mut World, _: CpuId, task: TaskId, _: Enqueue, _: CpuId) {
        self.queue.push_back(task);
    }
    fn dequeue(&mut self, _: &mut World, _: CpuId, _: TaskId, _: Dequeue) {}
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        if let Some(current) = world.current(cpu) {
            return Pick::Run(current);
        }
        let place = self.queue.iter().position(|&task| world.allowed(task).contains(cpu));
        place.and_then(|place| self.queue.remove(place)).into()
    }
}

/// A counter of whole numbers.
#[allow(dead_code)]
pub fn counter(outcome: &Outcome, name: &str) -> u64 {
    outcome.counter(name) as u64
}

/// The faults: when, by which task, and the fault.
#[allow(dead_code)]
pub type Faults = std::rc::Rc<std::cell::RefCell<Vec<(u64, u32, HintingFault)>>>;

/// A [`Fifo`] that marks all memory of the processes it has seen, at its first tick after `at_ns`.
/// It moves touched pages to `to`, if set.
#[allow(dead_code)]
#[derive(Default)]
pub struct Marker {
    pub fifo: Fifo,
    pub at_ns: u64,
    pub to: Option<usize>,
    /// Whether tasks wait for moving pages; `None` if pages do not move as huge pages.
    pub huge: Option<bool>,
    /// Number of pages that each huge move moved.
    pub moved: std::rc::Rc<std::cell::RefCell<Vec<u64>>>,
    pub faults: Faults,
    pub processes: Vec<u32>,
    /// The only CPU whose tick marks; `None` for any CPU.
    pub by: Option<CpuId>,
    /// When it marked.
    pub marked_at: std::rc::Rc<std::cell::Cell<Option<u64>>>,
}

impl Scheduler for Marker {
    fn tick_ns(&self) -> u64 {
        self.fifo.tick_ns()
    }
    fn huge_pages(&self) -> bool {
        self.huge.is_some()
    }
    fn task_new(&mut self, world: &mut World, task: TaskId, _: Option<TaskId>) {
        let process = world.process(task);
        if !self.processes.contains(&process) {
            self.processes.push(process);
        }
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.fifo.select_cpu(world, task, wake)
    }
    fn enqueue(&mut self, w: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId) {
        self.fifo.enqueue(w, cpu, task, why, by);
    }
    fn dequeue(&mut self, _: &mut World, _: CpuId, _: TaskId, _: Dequeue) {}
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        self.fifo.pick(world, cpu)
    }
    fn tick(&mut self, world: &mut World, cpu: CpuId) {
        let now = world.now().ns();
        let early = now < self.at_ns || self.by.is_some_and(|by| by != cpu);
        if early || self.marked_at.get().is_some() {
            return;
        }
        self.marked_at.set(Some(now));
        for &process in &self.processes {
            for area in 0.. {
                let Some(Area { pages, .. }) = world.area(process, area) else { break };
                world.mark_pages(cpu, process, area, 0..pages, None);
            }
        }
    }
    fn hinting_fault(&mut self, w: &mut World, cpu: CpuId, task: TaskId, fault: &HintingFault) {
        self.faults.borrow_mut().push((w.now().ns(), w.pid(task), *fault));
        match (self.to, self.huge) {
            (Some(_), Some(true)) if fault.moving => w.await_move(task, fault),
            (Some(node), Some(_)) if !fault.moving => w.begin_move(cpu, task, fault, node),
            (Some(node), None) => {
                w.move_faulting(cpu, fault, node);
            }
            _ => {}
        }
    }
    fn page_moved(&mut self, _: &mut World, _: CpuId, _: TaskId, _: &HintingFault, pages: u64) {
        self.moved.borrow_mut().push(pages);
    }
}

/// A task with these operations, in the one process of [`workload`]. `Op::SetAffinity(0)` binds it
/// to CPU 0.
#[allow(dead_code)]
pub fn template(name: &str, ops: Vec<Op>) -> Template {
    Template {
        name: name.into(),
        process: 0,
        group: None,
        nice: 0,
        policy: Policy::Normal,
        affinity: None,
        delay_ns: 0,
        footprint_bytes: 0,
        program: Program {
            ops,
            loop_depth: 2,
            own_timers: 1,
            affinities: vec![Some(Cpus::List(vec![0]))],
            accesses: Vec::new(),
        },
        class: name.into(),
    }
}

/// Tasks, this many of each, with a few of each thing that tasks can share.
#[allow(dead_code)]
pub fn workload(templates: Vec<(Template, u32)>) -> Workload {
    let start = templates.iter().enumerate().map(|(i, (_, count))| (i as u32, *count)).collect();
    Workload {
        name: "test".into(),
        templates: templates.into_iter().map(|(template, _)| template).collect(),
        start,
        root_process: None,
        processes: vec![Process { name: "test".into(), forked: false, kernel: false }],
        groups: Vec::new(),
        mutexes: 2,
        conditions: 1,
        barriers: vec![2],
        channels: vec![Channel {
            capacity_bytes: 200,
            sync_wakeup: true,
            kind: ChannelKind::Stream,
            softirq_ns: 0,
        }],
        shared_timers: 1,
        regions: Vec::new(),
        watches: 0,
        counters: 1,
        duration_ns: None,
        measured_from_ns: 0,
        rates_of_tasks: false,
        metrics: vec![Metric {
            name: "time".into(),
            unit: "s",
            better: Better::Lower,
            kind: MetricKind::WallSeconds,
        }],
    }
}
