//! Pipes and Unix sockets between running tasks: who spins, who sleeps, and who is woken.

mod common;

use std::sync::Arc;

use common::{Fifo, counter, template, workload};
use roost_engine::{Control, Outcome, run};
use roost_machine::Machine;
use roost_workload::{Channel, ChannelKind, Op, Workload, costs};

const WORK: Op = Op::Run { ns: 10_000 };

fn machine(shape: &str) -> Arc<Machine> {
    Arc::new(roost_machine::resolve(shape).expect("a valid shape"))
}

fn repeat(mut ops: Vec<Op>, times: u64) -> Vec<Op> {
    ops.push(Op::Loop { depth: 0, times, to: 0 });
    ops
}

fn on(shape: &str, workload: &Workload) -> Outcome {
    run(&machine(shape), workload, Fifo::default(), Control::new(1)).expect("the run ends")
}

/// Wakeups, without those of the root task, which waits for the two tasks to exit.
fn wakeups(outcome: &Outcome) -> u64 {
    counter(outcome, "wakeups") - 2
}

/// Two tasks that hold mutex 0 most of the time.
fn contenders(kind: ChannelKind) -> Workload {
    let ops = repeat(vec![Op::Lock(0), WORK, Op::Unlock(0), Op::Run { ns: 100 }], 100);
    let mut tasks = workload(vec![(template("task", ops), 2)]);
    tasks.channels[0].kind = kind;
    tasks
}

#[test]
fn a_task_spins_for_a_pipes_mutex_while_the_owner_runs_and_sleeps_for_a_programs() {
    // The tasks begin at different times. Each has a CPU of its own.
    let spinning = on("core:4 pu:1", &contenders(ChannelKind::Pipe { mutex: 0 }));
    assert_eq!(wakeups(&spinning), 0);
    let sleeping = on("core:4 pu:1", &contenders(ChannelKind::Stream));
    assert!(wakeups(&sleeping) > 50, "{}", wakeups(&sleeping));
    // Only one of them works at a time.
    assert!(spinning.elapsed_ns >= 2 * 100 * 10_000, "{}", spinning.elapsed_ns);
}

/// A sender that never works and a receiver that works between its reads, through a channel of 960 bytes a message.
fn slow_reader(channel: Channel, mutex: Option<u32>, messages: u64) -> Outcome {
    let through = |op| match mutex {
        Some(mutex) => vec![Op::Lock(mutex), op, Op::Unlock(mutex)],
        None => vec![op],
    };
    let send = through(Op::Send { channel: 0, bytes: 100 });
    let mut receive = through(Op::Receive { channel: 0, bytes: 100 });
    receive.push(WORK);
    let mut tasks = workload(vec![
        (template("sender", repeat(send, messages)), 1),
        (template("receiver", repeat(receive, messages)), 1),
    ]);
    tasks.channels[0] = channel;
    on("core:4 pu:1", &tasks)
}

#[test]
fn the_writer_of_a_full_unix_socket_sleeps_until_three_quarters_are_read() {
    let capacity_bytes = costs::SOCKET_BUFFER_BYTES;
    let channel =
        Channel { capacity_bytes, sync_wakeup: true, kind: ChannelKind::Unix, softirq_ns: 0 };
    // 222 messages of 960 bytes fill it. 55 are a quarter, so each sleep of the writer lasts for 167 reads.
    let outcome = slow_reader(channel, None, 222 + 4 * 167);
    // Nobody wakes the reader, which has always something to read, but perhaps for the first message.
    let wakeups = wakeups(&outcome);
    assert!((4..=5).contains(&wakeups), "{wakeups}");
}

#[test]
fn the_writer_of_a_full_pipe_sleeps_until_a_page_is_read() {
    let (capacity_bytes, kind) = (costs::PIPE_CAPACITY_BYTES, ChannelKind::Pipe { mutex: 0 });
    let channel = Channel { capacity_bytes, sync_wakeup: true, kind, softirq_ns: 0 };
    // 16 pages with 40 messages each fill it. Each sleep of the writer ends when the oldest page is empty.
    let outcome = slow_reader(channel, Some(0), 16 * 40 + 10 * 40);
    let wakeups = wakeups(&outcome);
    assert!((9..=10).contains(&wakeups), "{wakeups}");
}

#[test]
fn a_message_larger_than_a_pipe_goes_through_in_parts() {
    let send = vec![Op::Lock(0), Op::Send { channel: 0, bytes: 65_536 }, Op::Unlock(0)];
    let receive = vec![Op::Lock(0), Op::Receive { channel: 0, bytes: 65_536 }, Op::Unlock(0)];
    let mut tasks = workload(vec![
        (template("sender", repeat(send, 20)), 3),
        (template("receiver", repeat(receive, 20)), 3),
    ]);
    let kind = ChannelKind::Pipe { mutex: 0 };
    tasks.channels[0] = Channel { capacity_bytes: 65_536, sync_wakeup: true, kind, softirq_ns: 0 };
    // The run ends, so nobody waits for ever.
    assert!(on("core:2 pu:1", &tasks).elapsed_ns > 0);
}
