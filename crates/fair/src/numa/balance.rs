//! How the balancer uses preferred nodes: which tasks it leaves where they are, and which queues it
//! pulls from (`migrate_degrades_locality`, `fbq_classify_group`, `fbq_classify_rq`).

use roost_engine::TaskId;

use super::NodeId;
use crate::state::{Fair, Rq};

/// Classifies the tasks of a queue or a group (`enum fbq_type`). A pass pulls from queues of the
/// busiest group's class or a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Placed {
    /// Some tasks have no preferred node.
    Regular,
    /// Some tasks are not on their preferred node.
    Remote,
    /// All tasks are on their preferred node.
    All,
}

impl Placed {
    /// The class for `running` tasks, of which `preferring` prefer a node and `at_home` prefer this
    /// one.
    pub(crate) fn of(running: u32, preferring: u32, at_home: u32) -> Self {
        if running > preferring {
            Self::Regular
        } else if running > at_home {
            Self::Remote
        } else {
            Self::All
        }
    }

    /// The class of a queue.
    pub(crate) fn of_queue(rq: &Rq) -> Self {
        Self::of(rq.nr_running, rq.nr_numa_running, rq.nr_preferred_running)
    }
}

/// How a move changes a task's locality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locality {
    /// Not at all: cache heat decides.
    Unaffected,
    Degrades,
    Improves,
}

impl Fair {
    /// How balancing `task` between nodes changes its locality. `idle`: the destination CPU is idle
    /// (not newly idle). `src_extra`: the source queue has tasks that do not prefer its node.
    pub(crate) fn locality_of_move(
        &self,
        task: TaskId,
        src: NodeId,
        dst: NodeId,
        idle: bool,
        src_extra: bool,
    ) -> Locality {
        if !self.numa.active || src == dst || !self.numa.tasks[task.index()].has_faults() {
            return Locality::Unaffected;
        }
        let preferred = self.preferred(task);
        if preferred == Some(src) {
            let stays = src_extra || self.stays_on_node(task, src, dst);
            return if stays { Locality::Degrades } else { Locality::Unaffected };
        }
        if preferred == Some(dst) {
            return Locality::Improves;
        }
        if idle {
            return Locality::Unaffected;
        }
        match self.locality_lost(task, src, dst) {
            lost if lost > 0 => Locality::Degrades,
            // In 7.2 cache heat decides if no locality is lost or gained.
            0 if self.features.balance.caches_decide_between_nodes => Locality::Unaffected,
            _ => Locality::Improves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_with_misplaced_tasks_are_taken_from_first() {
        assert_eq!(Placed::of(3, 2, 2), Placed::Regular);
        assert_eq!(Placed::of(3, 3, 2), Placed::Remote);
        assert_eq!(Placed::of(3, 3, 3), Placed::All);
        assert!(Placed::Regular < Placed::Remote && Placed::Remote < Placed::All);
    }
}
