//! Groups of busy threads whose memory is spread over two nodes: what NUMA groups and cling are
//! about, as their text pictures it (2019): four groups of ten threads on two nodes of 20 CPUs.
//!
//! Each group is a process in a cgroup of its own. Its threads read the group's memory over and over
//! and never wait; half of it is on each of nodes 0 and 1 at first. Whoever brings a group's
//! threads and memory to one node makes it faster.

use super::{Benchmark, Parameter, ParameterKind, Values};
use crate::program::{ProgramBuilder, Times};
use crate::{
    Access, DEFAULT_GROUP_WEIGHT, Op, Pattern, Placement, Region, Sharing, Slice, Template,
    Workload, costs, graph,
};

const MIB: u64 = 1 << 20;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "settle",
    summary: "groups of busy threads, their memory half on each of two nodes; MB/sec read",
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
            meaning: "threads a group",
            kind: ParameterKind::Number { min: 1, max: 1_000 },
        },
        Parameter {
            name: "mb",
            default: "256",
            meaning: "MiB of memory a group, which its threads share",
            kind: ParameterKind::Number { min: 1, max: 1_000_000 },
        },
    ],
    // The text's stages take several of cling's timer periods of 6 s.
    duration_ns: Some(60_000_000_000),
    build,
};

fn build(values: &Values) -> Workload {
    let mut workload = graph::empty("settle");
    let read = workload.add_counter();
    let bytes = u64::from(values.number("mb")) * MIB;
    for letter in ('A'..='Z').take(values.number("groups") as usize) {
        let name = format!("ng_{letter}");
        let process = workload.add_process(&name);
        let region = workload.add_region(Region {
            bytes,
            sharing: Sharing::Process(process),
            placement: Placement::Spread(vec![0, 1]),
        });
        let slices = vec![Slice { region, write: false }];
        let mut program = ProgramBuilder::default();
        program.repeat(Times::Forever, |pass| {
            pass.access(Access { slices, pattern: Pattern::Stream });
            pass.push(Op::Count { counter: read, by: bytes });
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
            let Op::Access(access) = template.program.ops[0] else { panic!("a pass") };
            assert_eq!(template.program.accesses[access as usize].slices[0].region, number);
        }
        for region in &workload.regions {
            assert_eq!(region.placement, Placement::Spread(vec![0, 1]));
        }
    }
}
