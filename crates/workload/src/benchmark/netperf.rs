//! netperf TCP_RR and UDP_RR: pairs of a client and a server on loopback. They send one byte back and forth as fast as
//! they can.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{Channel, ChannelKind, Op, Template, Workload, costs, graph};

const PARAMETERS: &[Parameter] = &[Parameter {
    name: "clients",
    default: "1",
    meaning: "pairs of client and server",
    kind: ParameterKind::Number { min: 1, max: 10_000 },
}];

/// Default simulated time: some 100,000 transactions a pair. Longer runs cost minutes of a core
/// (docs/notes/2026-11-27-durations.md, as for the other benchmarks).
const DURATION_NS: u64 = 1_600_000_000;

pub(super) const TCP_RR: Benchmark = Benchmark {
    name: "netperf-tcp-rr",
    summary: "pairs on loopback sending one byte back and forth over TCP; transactions a second",
    parameters: PARAMETERS,
    duration_ns: Some(DURATION_NS),
    warms_up: true,
    build: build_tcp,
};

pub(super) const UDP_RR: Benchmark = Benchmark {
    name: "netperf-udp-rr",
    summary: "pairs on loopback sending one byte back and forth over UDP; transactions a second",
    parameters: PARAMETERS,
    duration_ns: Some(DURATION_NS),
    warms_up: true,
    build: build_udp,
};

/// The channels of one connection, one for each direction.
struct Pair {
    request: u32,
    response: u32,
}

/// The cost of a message at each end.
struct MessageCost {
    send: Op,
    receive: Op,
    /// The receiving half of the protocol, the end of `send`.
    softirq_ns: u64,
}

fn build_tcp(values: &Values) -> Workload {
    let cost = MessageCost {
        send: Op::Run { ns: costs::TCP_SEND_NS },
        receive: Op::Run { ns: costs::TCP_RECEIVE_NS },
        softirq_ns: costs::TCP_SOFTIRQ_NS,
    };
    build(values.number("clients"), &cost, ChannelKind::Stream)
}

fn build_udp(values: &Values) -> Workload {
    let cost = MessageCost {
        send: Op::Run { ns: costs::UDP_SEND_NS },
        receive: Op::Run { ns: costs::UDP_RECEIVE_NS },
        softirq_ns: costs::UDP_SOFTIRQ_NS,
    };
    build(values.number("clients"), &cost, ChannelKind::Messages)
}

fn build(clients: u32, cost: &MessageCost, kind: ChannelKind) -> Workload {
    let mut workload = graph::empty("netperf");
    let transactions = workload.add_counter();
    for _ in 0..clients {
        let capacity_bytes = costs::socket_capacity_bytes(1);
        let socket =
            Channel { capacity_bytes, sync_wakeup: true, kind, softirq_ns: cost.softirq_ns };
        let pair = Pair {
            request: workload.add_channel(socket.clone()),
            response: workload.add_channel(socket),
        };
        add_server(&mut workload, &pair, cost);
        add_client(&mut workload, &pair, cost, transactions);
    }
    workload.metrics.push(graph::rate("Trans. Rate", "per sec", transactions, 1.0));
    workload
}

fn add_server(workload: &mut Workload, pair: &Pair, cost: &MessageCost) {
    let mut program = ProgramBuilder::default();
    program.repeat(Times::Forever, |transaction| {
        transaction.extend(&[
            Op::Receive { channel: pair.request, bytes: 1 },
            cost.receive,
            cost.send,
            Op::Send { channel: pair.response, bytes: 1 },
        ]);
    });
    let process = workload.add_process("netserver");
    let template = graph::template("server", costs::TALKER_FOOTPRINT_BYTES, program.finish());
    workload.start_one(Template { process, ..template });
}

fn add_client(workload: &mut Workload, pair: &Pair, cost: &MessageCost, transactions: u32) {
    let mut program = ProgramBuilder::default();
    program.repeat(Times::Forever, |transaction| {
        transaction.extend(&[
            cost.send,
            Op::Send { channel: pair.request, bytes: 1 },
            Op::Receive { channel: pair.response, bytes: 1 },
            cost.receive,
            Op::Count { counter: transactions, by: 1 },
        ]);
    });
    let process = workload.add_process("netperf");
    let template = graph::template("client", costs::TALKER_FOOTPRINT_BYTES, program.finish());
    workload.start_one(Template { process, ..template });
}

#[cfg(test)]
mod tests {
    use crate::benchmark::resolve;
    use crate::{ChannelKind, MetricKind, Op};

    #[test]
    fn a_pair_shares_two_directions_with_nobody() {
        let workload = resolve("netperf-tcp-rr:clients=3", None).unwrap();
        assert_eq!((workload.templates.len(), workload.channels.len()), (6, 6));
        for (pair, tasks) in workload.templates.chunks(2).enumerate() {
            for op in tasks.iter().flat_map(|task| &task.program.ops) {
                if let Op::Send { channel, .. } | Op::Receive { channel, .. } = op {
                    assert_eq!(*channel as usize / 2, pair);
                }
            }
        }
    }

    #[test]
    fn a_client_counts_a_transaction_when_the_response_has_come() {
        let workload = resolve("netperf-udp-rr", None).unwrap();
        let ops = &workload.templates[1].program.ops;
        let place = |wanted: fn(&Op) -> bool| ops.iter().position(wanted).unwrap();
        let sent = place(|op| matches!(op, Op::Send { .. }));
        let received = place(|op| matches!(op, Op::Receive { .. }));
        let counted = place(|op| matches!(op, Op::Count { by: 1, .. }));
        assert!(sent < received && received < counted);
        assert_eq!(
            workload.metrics[0].kind,
            MetricKind::Rate { counter: 0, since: None, scale: 1.0 }
        );
    }

    #[test]
    fn loopback_wakes_with_the_sync_hint_and_only_udp_keeps_messages_apart() {
        let tcp = resolve("netperf-tcp-rr", None).unwrap();
        let udp = resolve("netperf-udp-rr", None).unwrap();
        assert!(tcp.channels.iter().all(|c| c.sync_wakeup && c.kind == ChannelKind::Stream));
        assert!(udp.channels.iter().all(|c| c.sync_wakeup && c.kind == ChannelKind::Messages));
    }
}
