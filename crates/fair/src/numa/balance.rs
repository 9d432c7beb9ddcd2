//! What the balancer knows of preferred nodes: which tasks it leaves where they are, and which
//! queues it takes from (`migrate_degrades_locality`, `fbq_classify_group`, `fbq_classify_rq`).

use roost_engine::TaskId;

use super::NodeId;
use crate::state::{Fair, Rq};

/// Which tasks a queue or a group holds (`enum fbq_type`): a pass takes from queues of the busiest
/// group's type or a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Placed {
    /// Some without a preferred node.
    Regular,
    /// Some that are not on theirs.
    Remote,
    /// All where they want to be.
    All,
}

impl Placed {
    /// Of tasks that run, of which so many prefer a node, and so many this one.
    pub(crate) fn of(running: u32, preferring: u32, at_home: u32) -> Self {
        if running > preferring {
            Self::Regular
        } else if running > at_home {
            Self::Remote
        } else {
            Self::All
        }
    }

    /// Of a queue.
    pub(crate) fn of_queue(rq: &Rq) -> Self {
        Self::of(rq.nr_running, rq.nr_numa_running, rq.nr_preferred_running)
    }
}

/// What a move means for a task's locality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locality {
    /// Nothing: the caches decide.
    Unaffected,
    Degrades,
    Improves,
}

impl Fair {
    /// What moving `task` between nodes by balancing means; `idle`: the destination CPU is (not only
    /// newly). `src_extra`: the source queue has tasks that do not prefer to be there.
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
            // 7.2 lets the caches decide where nothing is lost or gained.
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
