//! iperf3: one client streams 128 KB blocks to one server over loopback, beside short bursts of
//! other threads that tempt the load balancer to move the two.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{Channel, ChannelKind, Op, Template, TimerRef, Workload, costs, graph};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "iperf3",
    summary: "one client streaming 128 KB writes to one server on loopback; Gbit a second",
    parameters: &[Parameter {
        name: "noise",
        default: "0",
        meaning: "threads that wake every 4 ms for a burst of 30 us, as kernel workers do",
        kind: ParameterKind::Number { min: 0, max: 10_000 },
    }],
    duration_ns: Some(20_000_000_000),
    warms_up: true,
    build,
};

const BLOCK: u32 = costs::IPERF3_BLOCK_BYTES;

/// bytes/s to Gbit/s.
const GIGABITS: f64 = 8e-9;

fn build(values: &Values) -> Workload {
    let mut workload = graph::empty("iperf3");
    let received = workload.add_counter();
    let stream = workload.add_channel(Channel {
        capacity_bytes: costs::IPERF3_CAPACITY_BYTES,
        sync_wakeup: true,
        kind: ChannelKind::Stream,
        softirq_ns: costs::tcp_softirq_ns(BLOCK.into()),
    });
    let server = [
        Op::Receive { channel: stream, bytes: BLOCK },
        Op::Run { ns: costs::tcp_receive_ns(BLOCK.into()) },
        Op::Count { counter: received, by: BLOCK.into() },
    ];
    add_end(&mut workload, "server", &server);
    let client = [
        Op::Run { ns: costs::tcp_send_ns(BLOCK.into()) },
        Op::Send { channel: stream, bytes: BLOCK },
    ];
    add_end(&mut workload, "client", &client);
    add_noise(&mut workload, values.number("noise"));
    workload.metrics.push(graph::rate("Bitrate", "Gbits/sec", received, GIGABITS));
    workload
}

fn add_end(workload: &mut Workload, class: &str, block: &[Op]) {
    let mut program = ProgramBuilder::default();
    program.repeat(Times::Forever, |body| {
        body.extend(block);
    });
    let process = workload.add_process("iperf3");
    let template = graph::template(class, costs::IPERF3_FOOTPRINT_BYTES, program.finish());
    workload.start_one(Template { process, ..template });
}

/// Adds the noise threads, spread evenly over their period.
fn add_noise(workload: &mut Workload, threads: u32) {
    if threads == 0 {
        return;
    }
    let process = workload.add_process("kworker");
    for thread in 0..threads {
        let mut program = ProgramBuilder::default();
        program.program_mut().own_timers = 1;
        program.repeat(Times::Forever, |body| {
            body.extend(&[
                Op::Run { ns: costs::NOISE_RUN_NS },
                Op::Timer {
                    timer: TimerRef::Own(0),
                    period_ns: costs::NOISE_PERIOD_NS,
                    absolute: false,
                },
            ]);
        });
        let delay_ns = costs::NOISE_PERIOD_NS * u64::from(thread) / u64::from(threads);
        let template = graph::template("noise", costs::SPINNER_FOOTPRINT_BYTES, program.finish());
        workload.start_one(Template { process, delay_ns, ..template });
    }
}

#[cfg(test)]
mod tests {
    use crate::Op;
    use crate::benchmark::resolve;

    #[test]
    fn the_client_streams_without_waiting_for_answers() {
        let workload = resolve("iperf3", None).unwrap();
        let client = &workload.templates[1].program.ops;
        assert!(client.iter().any(|op| matches!(op, Op::Send { bytes: 131_072, .. })));
        assert!(!client.iter().any(|op| matches!(op, Op::Receive { .. })));
        assert!(workload.channels[0].capacity_bytes > 131_072);
    }

    #[test]
    fn noise_is_a_burst_of_tens_of_us_spread_over_its_period() {
        let workload = resolve("iperf3:noise=4", None).unwrap();
        let noise: Vec<_> = workload.templates.iter().filter(|t| t.class == "noise").collect();
        let delays: Vec<u64> = noise.iter().map(|t| t.delay_ns).collect();
        assert_eq!(delays, [0, 1_000_000, 2_000_000, 3_000_000]);
        assert!(matches!(noise[0].program.ops[0], Op::Run { ns: 10_000..=99_000 }));
    }
}
