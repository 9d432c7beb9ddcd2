//! hackbench: groups of senders and receivers. Every sender writes to every receiver of its group.
//!
//! A group has `fds` receivers, each with its own pipe or socket, and `fds` senders that use all of these. A sender
//! writes to the receivers in turn, `loops` times. A receiver reads `fds x loops` messages and exits. All tasks wait at
//! a gate until every task exists. In hackbench, main opens the gate when all have reported; here the gate is a barrier
//! that the last task opens.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Better, Channel, ChannelKind, Metric, MetricKind, Op, Program, Workload, costs, graph,
};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "hackbench",
    summary: "groups of senders that each write to every receiver of their group; seconds for all",
    parameters: &[
        Parameter {
            name: "groups",
            default: "10",
            meaning: "groups of fds senders and fds receivers (-g)",
            kind: ParameterKind::Number { min: 1, max: 1_000 },
        },
        Parameter {
            name: "loops",
            default: "100",
            meaning: "messages from each sender to each of its receivers (-l)",
            kind: ParameterKind::Number { min: 1, max: 100_000_000 },
        },
        Parameter {
            name: "mode",
            default: "socket",
            meaning: "what carries the messages (-p: pipe)",
            kind: ParameterKind::Choice(&["socket", "pipe"]),
        },
        Parameter {
            name: "tasks",
            default: "processes",
            meaning: "whether tasks share an address space (-T: threads)",
            kind: ParameterKind::Choice(&["processes", "threads"]),
        },
        Parameter {
            name: "size",
            default: "100",
            meaning: "bytes per message (-s)",
            kind: ParameterKind::Number { min: 1, max: 65_536 },
        },
        Parameter {
            name: "fds",
            default: "20",
            meaning: "senders per group, and receivers per group (-f)",
            kind: ParameterKind::Number { min: 1, max: 50 },
        },
    ],
    duration_ns: None,
    warms_up: false,
    build,
};

/// The pipe or socket of one receiver.
#[derive(Clone, Copy)]
struct Line {
    channel: u32,
    /// The pipe's mutex. Sockets have no mutex that matters.
    mutex: Option<u32>,
}

/// The settings that programs depend on.
struct Settings {
    loops: u64,
    size: u32,
    /// CPU time of each end beyond that of the measured size.
    extra_ns: u64,
    fds: u32,
    gate: u32,
}

fn build(values: &Values) -> Workload {
    let groups = values.number("groups");
    let fds = values.number("fds");
    let threads = values.choice("tasks") == "threads";
    let mut workload = graph::empty("hackbench");
    let settings = Settings {
        loops: u64::from(values.number("loops")),
        size: values.number("size"),
        extra_ns: costs::hackbench_extra_copy_ns(values.number("size").into()),
        fds,
        gate: workload.add_barrier(groups * fds * 2),
    };
    if threads {
        workload.add_process("hackbench");
    }
    for group in 0..groups {
        let lines: Vec<Line> = (0..fds).map(|_| add_line(&mut workload, values)).collect();
        for line in &lines {
            let program = receiver(&settings, *line);
            add_task(&mut workload, "receiver", group, program, threads);
        }
        for _ in 0..fds {
            add_task(&mut workload, "sender", group, sender(&settings, &lines), threads);
        }
    }
    workload.metrics.push(Metric {
        name: "Time".to_string(),
        unit: "s",
        better: Better::Lower,
        // rt-tests' hackbench.c reads its clock when all tasks have reported that they are ready, and again when all
        // have exited. The time to create them is not included.
        kind: MetricKind::SecondsSince { barrier: settings.gate },
    });
    workload
}

fn add_line(workload: &mut Workload, values: &Values) -> Line {
    let mutex = (values.choice("mode") == "pipe").then(|| workload.add_mutex());
    let (capacity_bytes, kind) = match mutex {
        Some(mutex) => (costs::PIPE_CAPACITY_BYTES, ChannelKind::Pipe { mutex }),
        None => (costs::SOCKET_BUFFER_BYTES, ChannelKind::Unix),
    };
    let channel =
        workload.add_channel(Channel { capacity_bytes, sync_wakeup: true, kind, softirq_ns: 0 });
    Line { channel, mutex }
}

/// The name lets traces show the group.
fn add_task(workload: &mut Workload, class: &str, group: u32, program: Program, threads: bool) {
    let process = if threads { 0 } else { workload.fork_process("hackbench") };
    let template = graph::template(class, costs::TALKER_FOOTPRINT_BYTES, program);
    workload.start_one(crate::Template { name: format!("{class}-g{group}"), process, ..template });
}

fn sender(settings: &Settings, lines: &[Line]) -> Program {
    let mut program = ProgramBuilder::default();
    program.push(Op::Barrier(settings.gate));
    program.repeat(Times::Exactly(settings.loops), |round| {
        for line in lines {
            let send = Op::Send { channel: line.channel, bytes: settings.size };
            match line.mutex {
                Some(mutex) => through_pipe(
                    round,
                    mutex,
                    send,
                    costs::HACKBENCH_PIPE_WRITE_NS + settings.extra_ns,
                ),
                None => {
                    let ns = costs::HACKBENCH_SOCKET_SEND_NS + settings.extra_ns;
                    round.push(Op::Run { ns }).push(send)
                }
            };
        }
    });
    program.finish()
}

fn receiver(settings: &Settings, line: Line) -> Program {
    let mut program = ProgramBuilder::default();
    program.push(Op::Barrier(settings.gate));
    let messages = u64::from(settings.fds) * settings.loops;
    program.repeat(Times::Exactly(messages), |message| {
        let receive = Op::Receive { channel: line.channel, bytes: settings.size };
        match line.mutex {
            Some(mutex) => through_pipe(
                message,
                mutex,
                receive,
                costs::HACKBENCH_PIPE_READ_NS + settings.extra_ns,
            ),
            None => {
                let ns = costs::HACKBENCH_SOCKET_RECEIVE_NS + settings.extra_ns;
                message.push(receive).push(Op::Run { ns })
            }
        };
    });
    program.finish()
}

/// One end of a message through a pipe: `transfer`, whose copy holds the pipe's mutex. Both ends release the mutex
/// before they wake anybody.
fn through_pipe(
    program: &mut ProgramBuilder,
    mutex: u32,
    transfer: Op,
    copy_ns: u64,
) -> &mut ProgramBuilder {
    program.extend(&[
        Op::Run { ns: costs::HACKBENCH_PIPE_OUTSIDE_NS },
        Op::Lock(mutex),
        transfer,
        Op::Run { ns: copy_ns },
        Op::Unlock(mutex),
    ])
}

#[cfg(test)]
mod tests {
    use crate::benchmark::resolve;
    use crate::{Op, Workload};

    fn total(workload: &Workload, matches: impl Fn(&Op) -> bool) -> u64 {
        workload
            .templates
            .iter()
            .map(|template| {
                let ops = &template.program.ops;
                let times = ops.iter().find_map(|op| match op {
                    Op::Loop { times, .. } => Some(*times),
                    _ => None,
                });
                ops.iter().filter(|op| matches(op)).count() as u64 * times.unwrap_or(1)
            })
            .sum()
    }

    #[test]
    fn a_default_group_passes_40_000_messages_and_all_are_read() {
        let workload = resolve("hackbench:groups=3", None).unwrap();
        assert_eq!(workload.templates.len(), 3 * 40);
        assert_eq!(total(&workload, |op| matches!(op, Op::Send { .. })), 3 * 40_000);
        assert_eq!(total(&workload, |op| matches!(op, Op::Receive { .. })), 3 * 40_000);
    }

    #[test]
    fn every_task_waits_at_the_gate_first() {
        let workload = resolve("hackbench:groups=2", None).unwrap();
        assert_eq!(workload.barriers, [80]);
        assert!(workload.templates.iter().all(|t| t.program.ops.first() == Some(&Op::Barrier(0))));
    }

    #[test]
    fn a_receiver_has_one_line_that_all_senders_of_its_group_and_no_others_share() {
        let workload = resolve("hackbench:groups=2,fds=3", None).unwrap();
        assert_eq!(workload.channels.len(), 6);
        for (index, template) in workload.templates.iter().enumerate() {
            let group = index as u32 / 6;
            for op in &template.program.ops {
                if let Op::Send { channel, .. } | Op::Receive { channel, .. } = op {
                    assert_eq!(channel / 3, group);
                }
            }
        }
    }

    #[test]
    fn only_pipes_have_a_mutex_which_reads_and_writes_hold() {
        let sockets = resolve("hackbench:groups=1,mode=socket", None).unwrap();
        assert_eq!(sockets.mutexes, 0);
        let pipes = resolve("hackbench:groups=1,mode=pipe", None).unwrap();
        assert_eq!(pipes.mutexes, 20);
        for template in &pipes.templates {
            let mut held = false;
            for op in &template.program.ops {
                match op {
                    Op::Lock(_) => held = true,
                    Op::Unlock(_) => held = false,
                    Op::Send { .. } | Op::Receive { .. } => assert!(held),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn processes_have_an_address_space_each_and_threads_share_one() {
        assert_eq!(resolve("hackbench:groups=2", None).unwrap().processes.len(), 80);
        assert_eq!(resolve("hackbench:groups=2,threads", None).unwrap().processes.len(), 1);
    }

    #[test]
    fn one_loop_of_one_message_needs_no_loop_operation() {
        let workload = resolve("hackbench:groups=1,loops=1,fds=1", None).unwrap();
        assert_eq!(total(&workload, |op| matches!(op, Op::Send { .. })), 1);
        assert_eq!(total(&workload, |op| matches!(op, Op::Loop { .. })), 0);
    }
}
