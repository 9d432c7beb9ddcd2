//! schbench as of 2021: message threads wake their workers, and the workers record how long that took.
//!
//! A worker spins for `c` us of wall time, adds itself to its message thread's list, posts to the message thread, and
//! waits. After a post, the message thread sleeps for `s` us plus up to a quarter of that. Then it wakes all workers on
//! its list, and waits for the next post. Posts that arrive before it has emptied the list count as answered. It reads
//! the clock once before it wakes the workers (`xlist_wake_all()`), and all latencies count from there. So a worker's
//! latency includes the wakeups of workers before it.
//!
//! In this model the list is a condition variable. A worker holds a mutex of its own from before its post until it
//! waits. The message thread locks and unlocks all these mutexes before it wakes the workers. So every worker that has
//! posted is woken, and returning workers do not contend for a mutex. Posts are bytes in a channel. The message thread
//! also writes a byte itself, so that it can empty the channel without blocking.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Better, Channel, ChannelKind, Metric, MetricKind, Op, Program, Workload, costs, graph,
};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "schbench",
    summary: "message threads wake workers that spin and wait again; wakeup latency percentiles",
    parameters: &[
        Parameter {
            name: "messages",
            default: "2",
            meaning: "message threads (-m)",
            kind: ParameterKind::Number { min: 1, max: 1_000 },
        },
        Parameter {
            name: "workers",
            default: "16",
            meaning: "workers per message thread (-t)",
            kind: ParameterKind::Number { min: 1, max: 1_000 },
        },
        Parameter {
            name: "c",
            default: "30000",
            meaning: "us that a worker spins between wakeups (-c)",
            kind: ParameterKind::Number { min: 1, max: 100_000_000 },
        },
        Parameter {
            name: "s",
            default: "30000",
            meaning: "us that a message thread sleeps before it wakes its workers (-s)",
            kind: ParameterKind::Number { min: 1, max: 100_000_000 },
        },
    ],
    duration_ns: Some(400_000_000_000),
    warms_up: true,
    build,
};

/// The percentiles that schbench prints: name, and thousandths of a percent.
const PERCENTILES: [(&str, u32); 7] = [
    ("50.0th", 50_000),
    ("75.0th", 75_000),
    ("90.0th", 90_000),
    ("95.0th", 95_000),
    ("99.0th", 99_000),
    ("99.5th", 99_500),
    ("99.9th", 99_900),
];

/// schbench adds a random 0 to s/4 to each sleep. Here a run must depend only on its inputs, so the eighths of that
/// range follow in this fixed order. Assumption.
const JITTER_EIGHTHS: [u64; 8] = [0, 5, 2, 7, 4, 1, 6, 3];

const NS_PER_US: u64 = 1_000;

/// Objects that a message thread and its workers share.
struct Circle {
    posts: u32,
    list: u32,
    /// One mutex per worker.
    mutexes: Vec<u32>,
}

fn build(values: &Values) -> Workload {
    let mut workload = graph::empty("schbench");
    workload.add_process("schbench");
    let workers = values.number("workers");
    let spin_ns = u64::from(values.number("c")) * NS_PER_US;
    let sleep_ns = u64::from(values.number("s")) * NS_PER_US;
    for _ in 0..values.number("messages") {
        let circle = add_circle(&mut workload, workers);
        let program = message_thread(&circle, sleep_ns);
        let footprint = costs::SPINNER_FOOTPRINT_BYTES;
        workload.start_one(graph::template("message", footprint, program));
        for mutex in &circle.mutexes {
            let program = worker(&circle, *mutex, spin_ns);
            workload.start_one(graph::template("worker", footprint, program));
        }
    }
    workload.metrics = PERCENTILES.map(|(name, milli)| percentile(name, milli)).to_vec();
    workload
}

fn add_circle(workload: &mut Workload, workers: u32) -> Circle {
    let posts = workload.add_channel(Channel {
        // One unanswered post per worker, and the message thread's own byte.
        capacity_bytes: 2 * workers + 1,
        sync_wakeup: false,
        kind: ChannelKind::Stream,
        softirq_ns: 0,
    });
    Circle {
        posts,
        list: workload.add_condition(),
        mutexes: (0..workers).map(|_| workload.add_mutex()).collect(),
    }
}

fn message_thread(circle: &Circle, sleep_ns: u64) -> Program {
    let all_posts =
        Op::Receive { channel: circle.posts, bytes: 2 * circle.mutexes.len() as u32 + 1 };
    let mut program = ProgramBuilder::default();
    program.repeat(Times::Forever, |rounds| {
        for eighths in JITTER_EIGHTHS {
            rounds.extend(&[Op::Send { channel: circle.posts, bytes: 1 }, all_posts]);
            for mutex in &circle.mutexes {
                rounds.extend(&[Op::Lock(*mutex), Op::Unlock(*mutex)]);
            }
            let ns = sleep_ns + sleep_ns / 4 * eighths / 8;
            rounds.extend(&[Op::Broadcast(circle.list), all_posts, Op::Sleep { ns }]);
        }
    });
    program.finish()
}

fn worker(circle: &Circle, mutex: u32, spin_ns: u64) -> Program {
    let mut program = ProgramBuilder::default();
    program.repeat(Times::Forever, |request| {
        request.extend(&[
            Op::Runtime { ns: spin_ns },
            Op::Lock(mutex),
            Op::Send { channel: circle.posts, bytes: 1 },
            Op::Wait { condition: circle.list, mutex },
            Op::Unlock(mutex),
        ]);
    });
    program.finish()
}

fn percentile(name: &str, percentile_milli: u32) -> Metric {
    Metric {
        name: name.to_string(),
        unit: "usec",
        better: Better::Lower,
        kind: MetricKind::WakeupLatencyUs { class: "worker".to_string(), percentile_milli },
    }
}

#[cfg(test)]
mod tests {
    use crate::benchmark::resolve;
    use crate::{MetricKind, Op};

    #[test]
    fn a_message_thread_empties_its_posts_wakes_all_waits_for_a_post_and_sleeps() {
        let workload = resolve("schbench:messages=1,workers=1", None).unwrap();
        let ops = &workload.templates[0].program.ops;
        assert!(matches!(
            ops[..7],
            [
                Op::Send { .. },
                Op::Receive { .. },
                Op::Lock(0),
                Op::Unlock(0),
                Op::Broadcast(0),
                Op::Receive { .. },
                Op::Sleep { ns: 30_000_000 }
            ]
        ));
    }

    #[test]
    fn a_worker_posts_and_waits_under_a_mutex_of_its_own() {
        let workload = resolve("schbench:messages=2,workers=3", None).unwrap();
        assert_eq!((workload.mutexes, workload.conditions), (6, 2));
        let worker = &workload.templates[1].program.ops;
        assert_eq!(worker[0], Op::Runtime { ns: 30_000_000 });
        assert!(matches!(
            worker[1..5],
            [Op::Lock(0), Op::Send { .. }, Op::Wait { mutex: 0, .. }, Op::Unlock(0)]
        ));
    }

    #[test]
    fn sleeps_vary_by_up_to_a_quarter() {
        let workload = resolve("schbench:messages=1,workers=1,s=8000", None).unwrap();
        let mut sleeps: Vec<u64> = workload.templates[0]
            .program
            .ops
            .iter()
            .filter_map(|op| if let Op::Sleep { ns } = op { Some(*ns) } else { None })
            .collect();
        sleeps.sort_unstable();
        assert_eq!(sleeps.first(), Some(&8_000_000));
        assert_eq!(sleeps.last(), Some(&9_750_000));
        assert_eq!(sleeps.len(), 8);
    }

    #[test]
    fn the_seven_percentiles_are_of_workers() {
        let workload = resolve("schbench", None).unwrap();
        assert_eq!(workload.metrics.len(), 7);
        assert!(workload.metrics.iter().all(|metric| matches!(
            &metric.kind,
            MetricKind::WakeupLatencyUs { class, .. } if class == "worker"
        )));
    }
}
