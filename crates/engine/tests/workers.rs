//! Threads of the kernel that wait for deferrable timers.

#![allow(clippy::unwrap_used)] // what is wrong here is a failed test

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use common::{Fifo, template, workload};
use roost_engine::*;
use roost_workload::{Op, Program};

/// A [`Fifo`] that counts how often each task is queued.
#[derive(Default)]
struct Counting {
    fifo: Fifo,
    queued: Rc<RefCell<BTreeMap<String, u32>>>,
}

impl Scheduler for Counting {
    fn tick_ns(&self) -> u64 {
        4_000_000
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.fifo.select_cpu(world, task, wake)
    }
    fn enqueue(&mut self, world: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId) {
        *self.queued.borrow_mut().entry(world.name(task).to_owned()).or_default() += 1;
        self.fifo.enqueue(world, cpu, task, why, by);
    }
    fn dequeue(&mut self, _: &mut World, _: CpuId, _: TaskId, _: Dequeue) {}
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        self.fifo.pick(world, cpu)
    }
}

#[test]
fn a_busy_cpu_updates_its_statistics_once_a_second_and_an_idle_one_never() {
    let machine = Arc::new(roost_machine::resolve("node:1 l3:1 core:3 pu:1").unwrap());
    let mut busy = template("busy", Vec::new());
    busy.affinity = Some(vec![0]);
    busy.program = Program {
        // Longer than a tick, because the worker waits for one; this scheduler does not preempt.
        ops: vec![
            Op::Run { ns: 5_000_000 },
            Op::Sleep { ns: 100_000 },
            Op::Loop { depth: 0, times: 0, to: 0 },
        ],
        loop_depth: 1,
        ..busy.program
    };
    let mut load = workload(vec![(busy, 1)]);
    load.duration_ns = Some(10_000_000_000);
    let scheduler = Counting::default();
    let queued = scheduler.queued.clone();
    run(&machine, &load, scheduler, Control { background: true, ..Control::new(1) }).unwrap();
    let of = |name| queued.borrow().get(name).copied();
    // CPU 1 is idle too, but woken by the timers of the other threads, and then has a tick.
    assert_eq!((of("kworker/0"), of("kworker/2")), (Some(10), None), "{:?}", queued.borrow());
    // A node's thread has its timer every 512 ms, whether CPUs are idle or not.
    assert!((19..=20).contains(&of("kcompactd").unwrap()), "{:?}", queued.borrow());
}
