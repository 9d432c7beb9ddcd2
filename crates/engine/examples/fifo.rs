//! First come, first served over all CPUs.

use std::collections::VecDeque;
use std::sync::Arc;

use roost_engine::{Control, CpuId, Dequeue, Enqueue, Pick, Scheduler, TaskId, Wake, World};

/// One queue for all CPUs, first come first served. If tasks are waiting, the running task gives
/// way at a tick and queues up again.
#[derive(Default)]
pub struct Fifo {
    queue: VecDeque<TaskId>,
}

impl Scheduler for Fifo {
    fn tick_ns(&self) -> u64 {
        4_000_000
    }

    /// The task's last CPU if that is idle, else an idle CPU, else its last CPU.
    fn select_cpu(&mut self, world: &mut World, task: TaskId, _: Wake) -> CpuId {
        let (allowed, last) = (world.allowed(task), world.task_cpu(task));
        let idle = allowed.iter_wrap(last).find(|&cpu| world.is_idle(cpu));
        idle.or(allowed.iter_wrap(last).next()).unwrap_or(last)
    }

    fn enqueue(&mut self, _: &mut World, _: CpuId, task: TaskId, _: Enqueue, _: CpuId) {
        self.queue.push_back(task);
    }

    /// A running task is not in the queue.
    fn dequeue(&mut self, _: &mut World, _: CpuId, task: TaskId, _: Dequeue) {
        self.queue.retain(|&waiting| waiting != task);
    }

    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        let waiting = self.queue.iter().position(|&task| world.allowed(task).contains(cpu));
        let Some(next) = waiting.and_then(|place| self.queue.remove(place)) else {
            return world.current(cpu).into();
        };
        self.queue.extend(world.current(cpu));
        Pick::Run(next)
    }

    fn tick(&mut self, world: &mut World, cpu: CpuId) {
        world.resched(cpu, cpu);
    }
}

/// Runs hackbench under this scheduler.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Arc::new(roost_machine::resolve("node:2 l3:2 core:4 pu:1")?);
    let workload = roost_workload::resolve("hackbench:groups=1", Some(100_000_000))?;
    let outcome = roost_engine::run(&machine, &workload, Fifo::default(), Control::new(1))?;
    println!("{} simulated ns: {:?}", outcome.elapsed_ns, outcome.metrics);
    Ok(())
}
