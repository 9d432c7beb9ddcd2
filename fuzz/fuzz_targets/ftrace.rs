//! Any bytes for the raw trace buffers of two CPUs: they are told to an observer, or refused.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use roost_machine::Machine;
use roost_measure::ftrace::{CpuBuffer, EVENTS, Formats};
use roost_measure::{Audience, Capture, Observed, Replay};

/// A task whose descendants are the workload, as in the recorded buffers that fuzzing starts from.
const ROOT_PID: u32 = 290;

macro_rules! data {
    ($name:literal) => {
        include_str!(concat!("../../crates/measure/tests/data/trace/", $name))
    };
}

static FORMATS: LazyLock<Formats> = LazyLock::new(|| {
    let texts = [
        data!("format/sched_switch"),
        data!("format/sched_waking"),
        data!("format/sched_wakeup"),
        data!("format/sched_wakeup_new"),
        data!("format/sched_migrate_task"),
        data!("format/sched_process_fork"),
        data!("format/sched_process_exit"),
        data!("format/sched_process_exec"),
    ];
    let mut texts = texts.into_iter();
    let events = EVENTS.map(|name| (name.to_owned(), texts.next().unwrap_or_default().to_owned()));
    let headers = (data!("header_page"), data!("header_event"));
    Formats::parse(("page", headers.0), ("event", headers.1), &events).expect("recorded formats")
});

static MACHINE: LazyLock<Machine> =
    LazyLock::new(|| roost_machine::resolve("node:2 core:8 pu:1").expect("a valid shape"));

fuzz_target!(|bytes: &[u8]| {
    // Whole pages for the first CPU, the rest for the second.
    let (first, second) = bytes.split_at(bytes.len() / 2 / 4096 * 4096);
    let buffer = |cpu: u32, pages: &[u8]| CpuBuffer {
        cpu,
        file: format!("cpu{cpu}"),
        pages: pages.to_vec(),
        lost: 0,
    };
    let buffers = vec![buffer(0, first), buffer(1, second)];
    let Ok(capture) = Capture::new(FORMATS.clone(), buffers, ("tgids", ""), ROOT_PID) else {
        return;
    };
    let replay = match Replay::new(&capture, &MACHINE) {
        Ok(replay) => replay,
        Err(error) => return assert_eq!(error.to_string().lines().count(), 1),
    };
    for audience in [Audience::Everything, Audience::Workload] {
        let mut observed = Observed::new(&MACHINE);
        replay.run(audience, &mut observed).expect("what was read once can be read again");
        observed.finish(replay.end());
    }
});
