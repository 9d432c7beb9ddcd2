//! Groups of busy threads whose memory is spread over two nodes. This is the situation that NUMA groups and cling
//! address, as described in cling's text (2019): four groups of ten threads on two nodes of 20 CPUs.
//!
//! Each group is a process in a cgroup of its own. Its threads read memory again and again, and never wait. At first,
//! half of each thread's memory is on node 0 and half on node 1. By default each thread has its own memory: a cgroup
//! becomes a NUMA group because its tasks belong together *without* sharing pages. If threads share pages, NUMA faults
//! already tell the kernel which threads belong together, without a cgroup. Also, only with separate memory does the
//! memory of a split group lie where its threads are, as in the text's first picture (CPU time 600% and 400%, memory
//! 60% and 40%).

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Access, DEFAULT_GROUP_WEIGHT, Op, Pattern, Placement, Region, Sharing, Slice, Template,
    Workload, costs, graph,
};

const MIB: u64 = 1 << 20;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "settle",
    summary: "groups of busy threads, with half of their memory on each of two nodes; MB/sec read",
    parameters: &[
        Parameter {
            name: "groups",
            default: "4",
            meaning: "groups, each a process in a cgroup: /ng_A, /ng_B, ...",
            kind: ParameterKind::Number { min: 1, max: 26 },
        },
        Parameter {
            name: "threads",
            default: "10",
            meaning: "threads per group",
            kind: ParameterKind::Number { min: 1, max: 1_000 },
        },
        Parameter {
            name: "mb",
            default: "256",
            meaning: "MiB of memory per group",
            kind: ParameterKind::Number { min: 1, max: 1_000_000 },
        },
        Parameter {
            name: "shared",
            default: "0",
            meaning: "percent of the memory that all threads share; each thread owns an equal part of the rest",
            kind: ParameterKind::Number { min: 0, max: 100 },
        },
    ],
    // The stages in the text take several of cling's timer periods of 6 s.
    duration_ns: Some(60_000_000_000),
    warms_up: false,
    build,
};

fn build(values: &Values) -> Workload {
    let mut workload = graph::empty("settle");
    let read = workload.add_counter();
    let all = u64::from(values.number("mb")) * MIB;
    let shared = all * u64::from(values.number("shared")) / 100;
    let own = (all - shared) / u64::from(values.number("threads"));
    for letter in ('A'..='Z').take(values.number("groups") as usize) {
        let name = format!("ng_{letter}");
        let process = workload.add_process(&name);
        let placement = Placement::Spread(vec![0, 1]);
        let mut program = ProgramBuilder::default();
        let parts = [(own, Sharing::Thread), (shared, Sharing::Process(process))];
        program.repeat(Times::Forever, |sweep| {
            for (bytes, sharing) in parts.into_iter().filter(|&(bytes, _)| bytes > 0) {
                let region =
                    workload.add_region(Region { bytes, sharing, placement: placement.clone() });
                let slices = vec![Slice { region, write: false }];
                sweep.access(Access::new(slices, Pattern::Stream));
                sweep.push(Op::Count { counter: read, by: bytes });
            }
        });
        let group = workload.add_group(&format!("/{name}"), DEFAULT_GROUP_WEIGHT);
        let template = graph::template(&name, costs::SPINNER_FOOTPRINT_BYTES, program.finish());
        let template = Template { process, group, ..template };
        workload.start.push((workload.templates.len() as u32, values.number("threads")));
        workload.templates.push(template);
    }
    workload.metrics.push(graph::rate("read", "MB/sec", read, 1e-6));
    workload
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::resolve;

    #[test]
    fn four_groups_of_ten_have_their_memory_on_both_nodes() {
        let workload = resolve("settle", None).unwrap();
        assert_eq!(workload.start, [(0, 10), (1, 10), (2, 10), (3, 10)]);
        let groups: Vec<&str> = workload.groups.iter().map(|group| group.path.as_str()).collect();
        assert_eq!(groups, ["/ng_A", "/ng_B", "/ng_C", "/ng_D"]);
        for (number, template) in (0..).zip(&workload.templates) {
            assert_eq!((template.process, template.group), (number, Some(number)));
            let Op::Access(access) = template.program.ops[0] else { panic!("a sweep") };
            assert_eq!(template.program.accesses[access as usize].slices[0].region, number);
        }
        for region in &workload.regions {
            assert_eq!((region.bytes, region.sharing), (256 * MIB / 10, Sharing::Thread));
            assert_eq!(region.placement, Placement::Spread(vec![0, 1]));
        }
    }

    #[test]
    fn a_part_of_the_memory_may_be_shared() {
        let regions = |spec| resolve(spec, None).unwrap().regions;
        let all = regions("settle:groups=1,shared=100");
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].bytes, all[0].sharing), (256 * MIB, Sharing::Process(0)));
        let part = regions("settle:groups=1,shared=25,threads=4");
        let sizes: Vec<u64> = part.iter().map(|region| region.bytes / MIB).collect();
        assert_eq!(sizes, [48, 64], "of each thread, of all");
    }
}
