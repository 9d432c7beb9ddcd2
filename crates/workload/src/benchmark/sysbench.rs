//! sysbench oltp_read_write: database instances, each in a cgroup together with its client.
//!
//! Each client thread has a connection, which one thread of the server serves. They hand over to each other at each
//! statement of a transaction, so only one of them runs at a time. A commit waits for the disk. The cost of a statement
//! is in [`crate::costs`].
//!
//! The server's threads use the instance's hot rows in turn, in pieces of as many cache lines as a transaction needs.
//! Each thread starts at a different piece. Each line depends on the one before, because a B-tree is descended. All
//! lines of a transaction are fetched together, before its commit.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Access, Channel, ChannelKind, GroupId, Op, Pattern, Placement, Program, Region, Sharing, Slice,
    Template, Workload, costs, graph,
};

const LINE_BYTES: u64 = 64;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "sysbench-oltp",
    summary: "oltp_read_write: database instances in cgroups; transactions (events) a second",
    parameters: &[
        Parameter {
            name: "instances",
            default: "4",
            meaning: "servers, each in a cgroup with its client: /oltp/0, /oltp/1, ...",
            kind: ParameterKind::Number { min: 1, max: 100 },
        },
        Parameter {
            name: "threads",
            default: "24",
            meaning: "client threads per instance (--threads)",
            kind: ParameterKind::Number { min: 1, max: 1_000 },
        },
        Parameter {
            name: "weight",
            default: "100",
            meaning: "cpu.weight of the first instance's cgroup; the others have 100",
            kind: ParameterKind::Number { min: 1, max: 10_000 },
        },
    ],
    // The published runs took 20 minutes.
    duration_ns: Some(16_000_000_000),
    warms_up: true,
    build,
};

/// One database instance with its client.
struct Instance {
    group: Option<GroupId>,
    client: u32,
    server: u32,
    /// The regions with hot rows.
    pieces: Vec<u32>,
    events: u32,
}

/// The channels of a connection, one for each direction.
struct Connection {
    request: u32,
    response: u32,
}

fn build(values: &Values) -> Workload {
    let mut workload = graph::empty("sysbench-oltp");
    let (instances, threads) = (values.number("instances"), values.number("threads"));
    let all = workload.add_counter();
    for number in 0..instances {
        let weight = if number == 0 { values.number("weight") } else { 100 };
        let instance = add_instance(&mut workload, number, weight);
        for thread in 0..threads {
            // The threads start as far apart as possible.
            let first = thread * costs::OLTP_HOT_PIECES / threads;
            add_connection(&mut workload, &instance, first as usize, all);
        }
        let name = format!("eps of {number}");
        workload.metrics.push(graph::rate(&name, "events/s", instance.events, 1.0));
    }
    let average = graph::rate("average eps", "events/s", all, 1.0 / f64::from(instances));
    workload.metrics.insert(0, average);
    workload
}

fn add_instance(workload: &mut Workload, number: u32, weight: u32) -> Instance {
    let server = workload.add_process("mysqld");
    let pieces = (0..costs::OLTP_HOT_PIECES).map(|_| {
        workload.add_region(Region {
            bytes: costs::OLTP_LINES * LINE_BYTES,
            sharing: Sharing::Process(server),
            placement: Placement::FirstTouch,
        })
    });
    Instance {
        pieces: pieces.collect(),
        server,
        client: workload.add_process("sysbench"),
        group: workload.add_group(&format!("/oltp/{number}"), weight),
        events: workload.add_counter(),
    }
}

fn add_connection(workload: &mut Workload, instance: &Instance, first: usize, all: u32) {
    let channel = |bytes| Channel {
        capacity_bytes: costs::socket_capacity_bytes(bytes),
        sync_wakeup: true,
        kind: ChannelKind::Stream,
        softirq_ns: 0,
    };
    let connection = Connection {
        request: workload.add_channel(channel(costs::OLTP_REQUEST_BYTES)),
        response: workload.add_channel(channel(costs::OLTP_RESPONSE_BYTES)),
    };
    let mut start = |class, process, program| {
        let template = graph::template(class, costs::TALKER_FOOTPRINT_BYTES, program);
        workload.start_one(Template { process, group: instance.group, ..template });
    };
    start("mysqld", instance.server, server(&connection, instance, first));
    start("sysbench", instance.client, client(&connection, [all, instance.events]));
}

fn client(connection: &Connection, counters: [u32; 2]) -> Program {
    let mut program = ProgramBuilder::default();
    program.repeat(Times::Forever, |transaction| {
        transaction.repeat(Times::Exactly(costs::OLTP_STATEMENTS), |statement| {
            statement.extend(&[
                Op::Run { ns: costs::OLTP_CLIENT_NS },
                Op::Send { channel: connection.request, bytes: costs::OLTP_REQUEST_BYTES },
                Op::Receive { channel: connection.response, bytes: costs::OLTP_RESPONSE_BYTES },
            ]);
        });
        transaction.extend(&counters.map(|counter| Op::Count { counter, by: 1 }));
    });
    program.finish()
}

fn server(connection: &Connection, instance: &Instance, first: usize) -> Program {
    let request = Op::Receive { channel: connection.request, bytes: costs::OLTP_REQUEST_BYTES };
    let execute = Op::Run { ns: costs::OLTP_SERVER_NS };
    let respond = Op::Send { channel: connection.response, bytes: costs::OLTP_RESPONSE_BYTES };
    let pieces = instance.pieces.iter().cycle().skip(first).take(instance.pieces.len());
    let mut program = ProgramBuilder::default();
    program.repeat(Times::Forever, |round| {
        for &region in pieces {
            round.repeat(Times::Exactly(costs::OLTP_STATEMENTS - 1), |statement| {
                statement.extend(&[request, execute, respond]);
            });
            let slices = vec![Slice { region, write: false }];
            round.extend(&[request, execute]);
            round.access(Access::new(slices, Pattern::Chase));
            round.extend(&[Op::Sleep { ns: costs::OLTP_FLUSH_NS }, respond]);
        }
    });
    program.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::resolve;

    #[test]
    fn an_instance_with_its_client_is_in_a_cgroup_of_its_own() {
        let workload = resolve("sysbench-oltp:instances=3,threads=2,weight=500", None).unwrap();
        let groups: Vec<(&str, u32)> =
            workload.groups.iter().map(|group| (group.path.as_str(), group.weight)).collect();
        let expected = [("/oltp", 100), ("/oltp/0", 500), ("/oltp/1", 100), ("/oltp/2", 100)];
        assert_eq!(groups, expected);
        let third: Vec<_> = workload.templates[8..].iter().map(|t| (t.group, t.process)).collect();
        assert_eq!(third, [(Some(3), 4), (Some(3), 5)].repeat(2));
    }

    #[test]
    fn client_and_server_hand_over_at_each_of_20_statements() {
        let workload = resolve("sysbench-oltp:instances=1,threads=1", None).unwrap();
        let ops = |task: usize| &workload.templates[task].program.ops;
        assert!(ops(1).contains(&Op::Loop { depth: 1, times: 20, to: 0 }), "{:?}", ops(1));
        // The first transaction has 19 statements, then the commit.
        assert!(matches!(ops(0)[2], Op::Send { channel: 1, .. }));
        assert!(matches!(ops(0)[3], Op::Loop { times: 19, to: 0, .. }));
        assert!(matches!(ops(0)[6..9], [Op::Access(0), Op::Sleep { .. }, Op::Send { .. }]));
    }

    #[test]
    fn threads_use_all_of_their_instances_hot_rows_from_different_ones_on() {
        let workload = resolve("sysbench-oltp:instances=2,threads=4", None).unwrap();
        let regions = |task: usize| -> Vec<u32> {
            let accesses = &workload.templates[task].program.accesses;
            accesses.iter().map(|access| access.slices[0].region).collect()
        };
        assert_eq!(regions(0), (0..256).collect::<Vec<u32>>());
        assert_eq!(regions(2)[..2], [64, 65]);
        let mut second = regions(8 + 6);
        assert_eq!(second[0], 256 + 192);
        second.sort_unstable();
        assert_eq!(second, (256..512).collect::<Vec<u32>>());
    }
}
