//! What tests of this crate share: a fair class on a small machine ([`Bench`]), and whole runs that are
//! audited after every hook ([`audited_run`]).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use roost_engine::{
    Control, CpuId, Dequeue, Enqueue, Outcome, Pick, Scheduler, TaskId, Wake, Work, World, run,
};
use roost_machine::CpuSet;
use roost_workload::{Workload, rtapp};

use crate::features::Features;
use crate::state::Fair;

/// The task that is placed.
pub(crate) const WAKEE: TaskId = TaskId(0);
/// The task that wakes or forks it.
pub(crate) const WAKER: TaskId = TaskId(1);
/// Some other tasks.
pub(crate) const OTHERS: [TaskId; 2] = [TaskId(2), TaskId(3)];

/// Two LLCs of four cores, two threads each: the LLCs are CPUs 0 to 7 and 8 to 15, siblings are 2n
/// and 2n + 1.
pub(crate) const TWO_LLCS_SMT: &str = "pack:1 node:1 l3:2 core:4 pu:2";
/// Two LLCs of eight CPUs without SMT.
pub(crate) const TWO_LLCS: &str = "pack:1 node:1 l3:2 core:8 pu:1";
/// Two nodes of one LLC with eight CPUs without SMT.
pub(crate) const TWO_NODES: &str = "pack:2 node:1 l3:1 core:8 pu:1";
/// One LLC of four clusters of two cores without SMT.
pub(crate) const CLUSTERS: &str = "pack:1 node:1 l3:1 l2:4 core:2 pu:1";

/// A fair class and its world. CPUs with tasks run one of them.
pub(crate) struct Bench {
    pub fair: Fair,
    pub world: World,
}

impl Bench {
    /// The kernel version `scheduler` on the synthetic machine `machine` at time 0: all CPUs are idle,
    /// all tasks sleep.
    pub fn new(scheduler: &str, machine: &str, nr_tasks: usize) -> Self {
        let machine = Arc::new(roost_machine::resolve(machine).unwrap());
        let mut world = World::for_test(Arc::clone(&machine), nr_tasks);
        let mut fair = Fair::new(&machine, Features::parse(scheduler).unwrap());
        fair.start(&mut world);
        (0..nr_tasks).for_each(|task| fair.task_new(&mut world, TaskId(task as u32), None));
        Self { fair, world }
    }

    /// Queues new tasks on `cpu`. The first one runs if the CPU was idle.
    pub fn queue(&mut self, cpu: CpuId, tasks: impl IntoIterator<Item = u32>) {
        for task in tasks.into_iter().map(TaskId) {
            self.world.set_task_cpu(task, cpu);
            self.world.mark_queued(cpu);
            self.fair.enqueue(&mut self.world, cpu, task, Enqueue::New, cpu);
            if self.world.current(cpu).is_none() {
                self.pick(cpu);
            }
        }
    }

    pub fn pick(&mut self, cpu: CpuId) -> Option<TaskId> {
        // As in the engine, the CPU does not look idle while it picks.
        self.world.mark_queued(cpu);
        let picked = pick(&mut self.fair, &mut self.world, cpu);
        self.world.set_current_for_test(cpu, picked);
        picked
    }

    pub fn tick(&mut self, cpu: CpuId) {
        self.fair.tick(&mut self.world, cpu);
        self.fair.tick_end(&mut self.world, cpu);
    }

    /// Lets time pass and accounts the running tasks at its end.
    pub fn elapse(&mut self, ns: u64) {
        self.world.set_now_for_test(self.world.now() + ns);
        for cpu in 0..self.fair.rqs.len() {
            self.fair.update_rq(&mut self.world, cpu);
        }
    }

    /// Lets a task run only on these CPUs.
    pub fn allow(&mut self, task: TaskId, cpus: impl IntoIterator<Item = CpuId>) {
        let nr_cpus = self.world.machine().nr_cpus();
        self.world.set_allowed_for_test(task, CpuSet::from_cpus(nr_cpus, cpus));
    }
}

/// Placement: CPUs look busy without tasks.
impl Bench {
    /// A bench with [`WAKEE`], [`WAKER`] and [`OTHERS`].
    pub fn placing(scheduler: &str, machine: &str) -> Self {
        Self::new(scheduler, machine, 4)
    }

    /// Lets each of these CPUs run a task.
    pub fn busy(&mut self, cpus: impl IntoIterator<Item = CpuId>) {
        for cpu in cpus {
            self.world.mark_queued(cpu);
            self.fair.rqs[cpu].nr_running = 1;
            self.fair.rqs[cpu].nr_runnable = 1;
        }
    }

    /// Lets each CPU but these run a task.
    pub fn busy_except(&mut self, idle: &[CpuId]) {
        let nr_cpus = self.world.machine().nr_cpus();
        self.busy((0..nr_cpus).filter(|cpu| !idle.contains(cpu)));
    }

    /// Lets each of these CPUs run only a SCHED_IDLE task.
    pub fn sched_idle(&mut self, cpus: &[CpuId]) {
        for &cpu in cpus {
            self.busy([cpu]);
            self.fair.rqs[cpu].nr_sched_idle = 1;
            self.fair.sched_idle_cpus.insert(cpu);
        }
    }

    /// WAKER on `cpu` wakes WAKEE, which last ran on `prev`. Returns the CPU chosen.
    pub fn wake(&mut self, cpu: CpuId, prev: CpuId) -> CpuId {
        self.wake_as(wake_on(cpu), prev)
    }

    /// As [`Bench::wake`], with all details.
    pub fn wake_as(&mut self, wake: Wake, prev: CpuId) -> CpuId {
        self.world.set_task_cpu(WAKEE, prev);
        // The recent CPU is prev, unless a test sets another one.
        if self.fair.tasks[WAKEE.index()].recent_used_cpu == 0 {
            self.fair.tasks[WAKEE.index()].recent_used_cpu = prev;
        }
        self.fair.select_task_rq(&mut self.world, WAKEE, wake)
    }

    /// Kernel time that the last placements cost `cpu`, ns.
    pub fn cost(&self, cpu: CpuId) -> u64 {
        self.world.backlog_ns(cpu)
    }
}

/// A wakeup by WAKER on `cpu`, neither synchronous nor from an interrupt.
pub(crate) fn wake_on(cpu: CpuId) -> Wake {
    Wake { cpu, waker: Some(WAKER), sync: false, interrupt: false }
}

/// The task that `cpu` picks. Time passes while the CPU searches.
pub(crate) fn pick(fair: &mut Fair, world: &mut World, cpu: CpuId) -> Option<TaskId> {
    loop {
        match fair.pick(world, cpu) {
            Pick::Run(task) => return Some(task),
            Pick::Idle => return None,
            Pick::Later | Pick::Undecided => {
                world.set_now_for_test(world.now() + world.backlog_ns(cpu))
            }
        }
    }
}

/// A fair class that is audited after every hook, and the ticks of each LLC's CPUs.
struct Audited(Fair, Vec<u64>);

impl Audited {
    fn audit(&self, world: &World) {
        self.0.audit_books(world);
        for (cpu, rq) in self.0.rqs.iter().enumerate() {
            assert!(rq.avg_idle <= 2 * rq.max_idle_balance_cost.max(500_000), "CPU {cpu}");
        }
    }
}

impl Scheduler for Audited {
    fn tick_ns(&self) -> u64 {
        self.0.tick_ns()
    }
    fn takes_out_interrupts(&self) -> bool {
        self.0.takes_out_interrupts()
    }
    fn start(&mut self, world: &mut World) {
        self.0.start(world);
        self.audit(world);
    }
    fn task_new(&mut self, world: &mut World, task: TaskId, parent: Option<TaskId>) {
        self.0.task_new(world, task, parent);
        self.audit(world);
    }
    fn task_exit(&mut self, world: &mut World, task: TaskId) {
        self.0.task_exit(world, task);
        self.audit(world);
    }
    fn wake_queued(&mut self, world: &mut World, task: TaskId, wake: Wake) -> Option<CpuId> {
        let cpu = self.0.wake_queued(world, task, wake);
        self.audit(world);
        cpu
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        let cpu = self.0.select_cpu(world, task, wake);
        self.audit(world);
        cpu
    }
    fn select_cpu_fork(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.0.select_cpu_fork(world, task, wake)
    }
    fn enqueue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId) {
        self.0.enqueue(world, cpu, task, why, by);
        self.audit(world);
    }
    fn dequeue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Dequeue) {
        self.0.dequeue(world, cpu, task, why);
        self.audit(world);
    }
    fn dequeue_waiting(&mut self, world: &mut World, cpu: CpuId, task: TaskId, by: CpuId) {
        self.0.dequeue_waiting(world, cpu, task, by);
        self.audit(world);
    }
    fn allowed_changed(&mut self, world: &mut World, task: TaskId, by: CpuId) {
        self.0.allowed_changed(world, task, by);
        self.audit(world);
    }
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        let pick = self.0.pick(world, cpu);
        let rq = &self.0.rqs[cpu];
        let next = if let Pick::Run(task) = pick { Some(task) } else { None };
        assert_eq!(next, rq.current);
        assert!(pick != Pick::Idle || rq.nr_running == 0, "CPU is idle although tasks are queued");
        assert_eq!(pick == Pick::Later, rq.search.is_some());
        let idle = rq.idle_since.is_some();
        assert!(next.is_none() == idle || (next.is_none() && world.wakeup_pending(cpu)));
        self.audit(world);
        pick
    }
    fn put_current(&mut self, world: &mut World, cpu: CpuId) {
        self.0.put_current(world, cpu);
        self.audit(world);
    }
    fn tick(&mut self, world: &mut World, cpu: CpuId) {
        self.1[self.0.topology.llc_of[cpu] as usize] += 1;
        self.0.tick(world, cpu);
        self.audit(world);
    }
    fn tick_end(&mut self, world: &mut World, cpu: CpuId) {
        self.0.tick_end(world, cpu);
        self.audit(world);
    }
    fn timer(&mut self, world: &mut World, cpu: CpuId) {
        self.0.timer(world, cpu);
        self.audit(world);
    }
    fn idle_tick(&mut self, world: &mut World, cpu: CpuId) {
        self.0.idle_tick(world, cpu);
        self.audit(world);
    }
    fn yield_current(&mut self, world: &mut World, cpu: CpuId) {
        self.0.yield_current(world, cpu);
        self.audit(world);
    }
    fn set_slice(&mut self, world: &mut World, cpu: CpuId, task: TaskId, ns: u64) {
        self.0.set_slice(world, cpu, task, ns);
        self.audit(world);
    }
    fn reweight(&mut self, world: &mut World, cpu: CpuId, task: TaskId) {
        self.0.reweight(world, cpu, task);
        self.audit(world);
    }
    fn group_changed(&mut self, world: &mut World, cpu: CpuId, task: TaskId, by: CpuId) {
        self.0.group_changed(world, cpu, task, by);
        self.audit(world);
    }
    fn work(&mut self, world: &mut World, cpu: CpuId, work: Work) {
        self.0.work(world, cpu, work);
        self.audit(world);
    }
    fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        self.0.counters(sink);
        sink("util_of_cpu_0", self.0.rqs[0].avg.util_avg);
        sink("irq_of_cpu_0", self.0.rqs[0].clock.irq.util());
        for (llc, &ticks) in self.1.iter().enumerate() {
            sink(&format!("ticks_of_llc_{llc}"), ticks);
        }
    }
    fn histograms(&self, sink: &mut dyn FnMut(&str, &[u64])) {
        self.0.histograms(sink);
    }
}

pub(crate) fn audited_run(machine: &str, version: &str, workload: &str) -> Outcome {
    audited_run_of(machine, version, &rtapp::parse(workload, "test.json").unwrap())
}

pub(crate) fn audited_run_of(machine: &str, version: &str, workload: &Workload) -> Outcome {
    let machine = Arc::new(roost_machine::resolve(machine).unwrap());
    let fair = Fair::new(&machine, Features::parse(&format!("fair@{version}")).unwrap());
    let nr_llcs = fair.topology.llc_span.len();
    let scheduler = Audited(fair, vec![0; nr_llcs]);
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, ..Control::new(7) };
    run(&machine, workload, scheduler, control).unwrap()
}
