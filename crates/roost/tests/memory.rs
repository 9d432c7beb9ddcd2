//! Memory does not grow with simulated time. This test has a file of its own because it counts the memory of the whole
//! process.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use roost_simulate::{Control, SchedulerSpec, Simulation, Start};
use roost_workload::rtapp;

/// The system's allocator, which also counts allocated bytes: the current number and the peak. (Resident memory would
/// include pages of the program that are touched for the first time.)
struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Tasks sleep, wake each other, are created and exit during the whole run. If the simulator kept a record of each such
/// event, 20 times the time would need 20 times the records.
#[test]
fn twenty_times_the_time_takes_no_more_memory() {
    let text = r#"{"tasks": {
        "periodic": {"instance": 20, "loop": -1, "run": 300, "timer": {"ref": "unique", "period": 1000}},
        "locked": {"instance": 8, "loop": -1, "lock": "m", "run": 50, "unlock": "m", "sleep": 200},
        "parent": {"instance": 2, "loop": -1, "run": 100, "fork": "child", "sleep": 900},
        "child": {"instance": 0, "loop": 1, "run": 200}
    }, "global": {"duration": 1}}"#;
    let mut workload = rtapp::parse(text, "endless.json").unwrap();
    let machine = Arc::new(roost_machine::resolve("node:2 l3:2 core:4 pu:2").unwrap());
    let mut run = |scheduler: &str, ns| {
        workload.duration_ns = Some(ns);
        let simulation = Simulation {
            machine: Arc::clone(&machine),
            workload: Arc::new(workload.clone()),
            scheduler: SchedulerSpec::parse(scheduler).unwrap(),
            start: Start::Boot,
            quiet: true,
        };
        let outcome = simulation.run(Control::new(1)).unwrap();
        outcome.counter("forks")
    };
    for scheduler in ["fair@5.16", "fair@7.2"] {
        let few = run(scheduler, 500_000_000);
        let before = MOST.load(Ordering::Relaxed);
        let many = run(scheduler, 10_000_000_000);
        assert!(many > 15.0 * few && many > 10_000.0, "{scheduler}: {few}, {many} tasks");
        let grown = MOST.load(Ordering::Relaxed) - before;
        // Queues may grow to a new peak. One byte for each of 20,000 tasks would exceed this limit.
        assert!(grown <= 16 << 10, "{scheduler}: {grown} bytes more");
    }
}
