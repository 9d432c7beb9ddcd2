//! tbench: clients and servers on loopback. They replay the load of a file server as remote calls.
//!
//! All calls are equal to the mean call of the load file. Each client still waits for its server's reply before it
//! sends again.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{Channel, ChannelKind, Op, Template, Workload, costs, graph};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "tbench",
    summary: "pairs on loopback replaying a file server's load as remote calls; MB a second",
    parameters: &[Parameter {
        name: "clients",
        default: "1",
        meaning: "pairs of client and server",
        kind: ParameterKind::Number { min: 1, max: 10_000 },
    }],
    duration_ns: Some(800_000_000),
    warms_up: true,
    build,
};

const REQUEST: u32 = costs::TBENCH_REQUEST_BYTES;
const RESPONSE: u32 = costs::TBENCH_RESPONSE_BYTES;

/// bytes/s to MB/s (tbench's MB is 10^6 bytes; recalled).
const MEGABYTES: f64 = 1e-6;

fn build(values: &Values) -> Workload {
    let mut workload = graph::empty("tbench");
    let moved = workload.add_counter();
    for _ in 0..values.number("clients") {
        let [request, response] = [REQUEST, RESPONSE].map(|bytes| {
            let capacity_bytes = costs::socket_capacity_bytes(bytes);
            workload.add_channel(Channel {
                capacity_bytes,
                sync_wakeup: true,
                kind: ChannelKind::Stream,
                softirq_ns: costs::tcp_softirq_ns(bytes.into()),
            })
        });
        let server = [
            Op::Receive { channel: request, bytes: REQUEST },
            run(costs::tcp_receive_ns(REQUEST.into()) + costs::TBENCH_USER_NS),
            run(costs::tcp_send_ns(RESPONSE.into())),
            Op::Send { channel: response, bytes: RESPONSE },
        ];
        add_task(&mut workload, "server", "tbench_srv", &server);
        let client = [
            run(costs::tcp_send_ns(REQUEST.into()) + costs::TBENCH_USER_NS),
            Op::Send { channel: request, bytes: REQUEST },
            Op::Receive { channel: response, bytes: RESPONSE },
            run(costs::tcp_receive_ns(RESPONSE.into())),
            Op::Count { counter: moved, by: costs::TBENCH_BYTES },
        ];
        add_task(&mut workload, "client", "tbench", &client);
    }
    workload.metrics.push(graph::rate("Throughput", "MB/sec", moved, MEGABYTES));
    workload
}

fn run(ns: u64) -> Op {
    Op::Run { ns }
}

fn add_task(workload: &mut Workload, class: &str, process: &str, call: &[Op]) {
    let mut program = ProgramBuilder::default();
    program.repeat(Times::Forever, |body| {
        body.extend(call);
    });
    let process = workload.add_process(process);
    let template = graph::template(class, costs::TBENCH_FOOTPRINT_BYTES, program.finish());
    workload.start_one(Template { process, ..template });
}

#[cfg(test)]
mod tests {
    use crate::benchmark::resolve;
    use crate::{Op, Workload};

    fn cpu_ns(workload: &Workload) -> u64 {
        let ops = workload.templates.iter().flat_map(|template| &template.program.ops);
        ops.map(|op| if let Op::Run { ns } = op { *ns } else { 0 }).sum()
    }

    #[test]
    fn a_call_is_heavier_than_a_netperf_transaction() {
        let tbench = resolve("tbench", None).unwrap();
        let netperf = resolve("netperf-tcp-rr", None).unwrap();
        assert!(cpu_ns(&tbench) > 2 * cpu_ns(&netperf));
    }

    #[test]
    fn a_client_waits_for_each_response() {
        let workload = resolve("tbench:clients=2", None).unwrap();
        assert_eq!(workload.templates.len(), 4);
        let client = &workload.templates[1].program.ops;
        assert!(matches!(client[1..3], [Op::Send { .. }, Op::Receive { .. }]));
    }
}
