//! The thread that a scheduler's own program has beside the workload.

#![allow(clippy::unwrap_used)] // what is wrong here is a failed test

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use common::{Fifo, template, workload};
use roost_engine::*;
use roost_workload::Op;

const MS: u64 = 1_000_000;

/// A [`Fifo`] with a thread that has a turn of 0.3 ms after each sleep of 1 ms.
#[derive(Clone, Default)]
struct WithThread {
    fifo: Rc<RefCell<Fifo>>,
    /// Start of each turn, and the thread's run time at the end, ns.
    turns: Rc<RefCell<Vec<(u64, u64)>>>,
}

impl Scheduler for WithThread {
    fn tick_ns(&self) -> u64 {
        MS
    }
    fn select_cpu(&mut self, world: &mut World, task: TaskId, wake: Wake) -> CpuId {
        self.fifo.borrow_mut().select_cpu(world, task, wake)
    }
    fn enqueue(&mut self, w: &mut World, cpu: CpuId, task: TaskId, why: Enqueue, by: CpuId) {
        self.fifo.borrow_mut().enqueue(w, cpu, task, why, by);
    }
    fn dequeue(&mut self, _: &mut World, _: CpuId, _: TaskId, _: Dequeue) {}
    fn pick(&mut self, world: &mut World, cpu: CpuId) -> Pick {
        self.fifo.borrow_mut().pick(world, cpu)
    }
    fn own_thread(&self) -> Option<&str> {
        Some("daemon")
    }
    fn own_turn(&mut self, world: &mut World, cpu: CpuId, task: TaskId) -> u64 {
        assert_eq!((world.current(cpu), world.name(task)), (Some(task), "daemon"));
        assert!(!world.is_kernel_thread(task));
        self.turns.borrow_mut().push((world.now().ns(), 0));
        300_000
    }
    fn own_pause(&mut self, world: &World, task: TaskId) -> Time {
        if let Some((_, ran_ns)) = self.turns.borrow_mut().last_mut() {
            *ran_ns = world.run_ns(task);
        }
        world.now() + MS
    }
}

#[test]
fn it_has_its_turns_beside_the_workload_and_no_run_waits_for_it() {
    let machine = Arc::new(roost_machine::resolve("node:1 l3:1 core:2 pu:1").unwrap());
    let scheduler = WithThread::default();
    let turns = scheduler.turns.clone();
    let one = workload(vec![(template("one", vec![Op::Run { ns: 10 * MS }]), 1)]);
    let outcome = run(&machine, &one, scheduler, Control::new(1)).unwrap();
    assert!(outcome.elapsed_ns < 12 * MS, "{}", outcome.elapsed_ns);
    let turns = turns.borrow();
    // In 10 to 12 ms, a turn each 1.3 ms and what a wakeup takes.
    assert!((7..=9).contains(&turns.len()), "{turns:?}");
    assert!((MS..MS + MS / 10).contains(&turns[0].0), "{turns:?}");
    let ended = &turns[..turns.len() - 1];
    for (number, (_, ran_ns)) in (1..).zip(ended) {
        let least = number * 300_000;
        assert!((least..least + least / 10).contains(ran_ns), "{turns:?}");
    }
}
