//! The simplest scheduler: one queue, first come first served.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use roost_engine::*;

/// First come first served over all CPUs.
#[derive(Default)]
pub struct Fifo {
    queue: VecDeque<TaskId>,
    /// The group of each task that was created, in order, the root task first.
    pub groups: Arc<Mutex<Vec<Option<u32>>>>,
}

impl Scheduler for Fifo {
    fn tick_ns(&self) -> u64 {
        1_000_000
    }
    fn start(&mut self, _: &mut World) {}
    fn task_new(&mut self, world: &mut World, task: TaskId, _: Option<TaskId>) {
        self.groups.lock().expect("one thread").push(world.group(task));
    }
    fn task_exit(&mut self, _: &mut World, _: TaskId) {}
    fn wake_queued(&mut self, _: &mut World, _: TaskId, _: Wake) -> Option<CpuId> {
        None
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, _: Wake) -> CpuId {
        let allowed = world.allowed(task);
        let idle = allowed.iter().find(|&cpu| world.is_idle(cpu));
        idle.or(allowed.first()).expect("a task may run somewhere")
    }
    fn select_cpu_fork(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.select_cpu(world, task, wake)
    }
    fn enqueue(&mut self, _: &mut World, _: CpuId, task: TaskId, _: Enqueue, _: CpuId) {
        self.queue.push_back(task);
    }
    fn dequeue(&mut self, _: &mut World, _: CpuId, _: TaskId, _: Dequeue) {}
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Option<TaskId> {
        if let Some(current) = world.current(cpu) {
            return Some(current);
        }
        let place = self.queue.iter().position(|&task| world.allowed(task).contains(cpu))?;
        self.queue.remove(place)
    }
    fn put_current(&mut self, _: &mut World, _: CpuId) {}
    fn tick(&mut self, _: &mut World, _: CpuId) {}
    fn yield_current(&mut self, _: &mut World, _: CpuId) {}
    fn reweight(&mut self, _: &mut World, _: CpuId, _: TaskId) {}
    fn work(&mut self, _: &mut World, _: CpuId, _: Work) {}
    fn counters(&self, _: &mut dyn FnMut(&str, u64)) {}
    fn histograms(&self, _: &mut dyn FnMut(&str, &[u64])) {}
}
