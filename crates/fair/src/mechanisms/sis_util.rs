//! `sis-util`: bounds the search for an idle CPU by the utilisation of the LLC (kernel model, section
//! 14.3; the decision is `roost/sis_util.h`).
//!
//! ```text
//! balancing at the LLC's level ► how many CPUs a search may look at
//! search for an idle CPU ──────► not begun, ended early, or unbounded
//! ```

use roost_machine::Machine;
use roost_workload::Workload;

use super::Mechanism;
use crate::switches::Switch;

/// The mechanism.
pub(super) const MECHANISM: Mechanism = Mechanism {
    name: "sis-util",
    switches: &SWITCHES,
    numbers: &[],
    acted: &["sis_util_not_begun", "sis_util_ended"],
    needs: "an LLC of several CPUs",
    is_on: |features| features.sis_util,
    can_act: |machine: &Machine, _: &Workload| machine.llcs.iter().any(|llc| llc.cpus.len() > 1),
};

const SWITCHES: [Switch; 1] = [Switch {
    name: "sis-util",
    about: "bound the idle search by the LLC's utilisation; turns sis-prop off",
    since: "5.2",
    set: |features, on| {
        features.sis_util = on;
        features.sis_prop &= !on;
    },
}];
