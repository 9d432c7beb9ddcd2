//! `cling`: groups (cgroups) settle on a node and stay there (kernel model, section 14.2; the decisions
//! are `roost/cling.h`).

use roost_machine::Machine;
use roost_workload::Workload;

use super::Mechanism;
use crate::switches::{Number, Switch};

/// The mechanism.
pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "cling",
    switches: &SWITCHES,
    numbers: &NUMBERS,
    acted: &["cling_kept_tasks", "cling_kept_pages"],
    needs: "a machine of several NUMA nodes and a workload of task groups that use memory",
    is_on: |features| features.cling,
    can_act: |machine: &Machine, workload: &Workload| {
        machine.nodes.len() > 1 && !workload.groups.is_empty() && !workload.regions.is_empty()
    },
};

const SWITCHES: [Switch; 2] = [
    Switch {
        name: "cling",
        about: "groups (cgroups) settle on a node and stay there; turns numa-groups on",
        since: "5.2",
        set: |features, on| {
            features.cling = on;
            features.numa_groups |= on;
        },
    },
    Switch {
        name: "numa-groups",
        about: "every cgroup is one NUMA group (cpu.numa_group)",
        since: "5.2",
        set: |features, on| features.numa_groups = on,
    },
];

const NUMBERS: [Number; 1] = [Number {
    name: "cling-degree",
    about: "cling: percent of failed attempts that pause it, 0 to 100 (20); 100: never",
    most: 100,
    set: |features, percent| features.cling_degree = percent,
    get: |features| Some(features.cling_degree),
}];
