//! Each process on few nodes: `roost/consolidate.h`.

use crate::rules::functions;

/// `migrate_seq` of a task that was pulled on purpose.
pub const SEQ: u32 = 3;

/// Whether a move is good for a task (`enum roost_benefit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benefit {
    /// The rule does not apply: the task has no process, or is its only task.
    None,
    /// It is not good.
    No,
    /// It is good, or makes no difference.
    Yes,
}

/// One side of a move.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Runnable tasks of this side's queue.
    pub nr: u32,
    /// Runnable tasks of the process on this side's node.
    pub weight: u32,
}

/// A process and a node, as an idle CPU of the node sees them (`struct roost_consolidate`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Here {
    /// Runnable tasks of the process on the node.
    pub weight: u32,
    /// Runnable tasks of the process on all nodes.
    pub total: u32,
    /// Runnable tasks of the node.
    pub nr: u32,
    /// Nodes of the machine.
    pub nodes: u32,
}

/// Another node (`struct roost_consolidate_node`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Other {
    /// Runnable tasks of the process there.
    pub weight: u32,
    /// Runnable tasks of the node.
    pub nr: u32,
}

functions! {
    consolidate
    safe {
        fn policy_consolidate_local(weight: u32, nodes: u32, total: u32) -> bool;
        fn policy_consolidate_benefit(
            total: u32,
            dst_nr: u32,
            dst_weight: u32,
            src_nr: u32,
            src_weight: u32,
        ) -> i32;
        fn policy_consolidate_may_wake(benefit: i32) -> bool;
        fn policy_consolidate_ignores_heat(
            across: bool,
            benefit: i32,
            failed: u32,
            tries: u32,
        ) -> bool;
        fn policy_consolidate_two_passes(posted: bool, dst: u32, src: u32, first: u32) -> bool;
        fn policy_consolidate_first_pass(posted: bool, across: bool, benefit: i32) -> bool;
    }
    pointers {
        fn policy_consolidate_second_pass(posted: bool, across: bool, migrate_seq: *mut u32) -> bool;
        fn policy_consolidate_worth(here: *const Here) -> bool;
        fn policy_consolidate_from(here: *const Here, other: *const Other, least: u32) -> bool;
        fn policy_consolidate_take(limit: *mut u32, weight: u32) -> bool;
    }
}

impl Benefit {
    fn number(self) -> i32 {
        match self {
            Self::None => -1,
            Self::No => 0,
            Self::Yes => 1,
        }
    }

    /// A wakeup may go to the waker's CPU (destination) from the previous one (source).
    #[inline]
    pub fn may_wake(self) -> bool {
        policy_consolidate_may_wake(self.number())
    }

    /// Whether a cache-hot task is moved all the same: between nodes, if the move is good or enough attempts failed.
    #[inline]
    pub fn ignores_heat(self, across_nodes: bool, failed: u32, tries: u32) -> bool {
        policy_consolidate_ignores_heat(across_nodes, self.number(), failed, tries)
    }

    /// Whether a task may be pulled in the first pass.
    #[inline]
    pub fn first_pass(self, posted: bool, across_nodes: bool) -> bool {
        policy_consolidate_first_pass(posted, across_nodes, self.number())
    }
}

/// Whether enough of the task's process runs on the task's node.
#[inline]
pub fn local(weight: u32, nodes: u32, total: u32) -> bool {
    policy_consolidate_local(weight, nodes, total)
}

/// Whether a move from `src` to `dst` is good for a task whose process has `total` runnable tasks.
#[inline]
pub fn benefit(total: u32, dst: Side, src: Side) -> Benefit {
    match policy_consolidate_benefit(total, dst.nr, dst.weight, src.nr, src.weight) {
        1 => Benefit::Yes,
        0 => Benefit::No,
        _ => Benefit::None,
    }
}

/// Whether a pull between nodes begins with a pass for tasks that gain. `posted`: as the patches do it, which look at
/// the node of CPU 0 instead of the source's node.
#[inline]
pub fn two_passes(posted: bool, dst_node: u32, src_node: u32, first_cpu_node: u32) -> bool {
    policy_consolidate_two_passes(posted, dst_node, src_node, first_cpu_node)
}

/// Whether a task may be pulled in the second pass. If not, counts its `migrate_seq` down. `posted`: as the patches do
/// it, which never pull such a task within a node.
#[inline]
pub fn second_pass(posted: bool, across_nodes: bool, migrate_seq: &mut u32) -> bool {
    // SAFETY: it points to a live integer.
    unsafe { policy_consolidate_second_pass(posted, across_nodes, migrate_seq) }
}

/// Takes a token for a pull from a node on which the process has `weight` tasks. To return a token, the caller
/// subtracts 1 from `limit`.
#[inline]
pub fn take(limit: &mut u32, weight: u32) -> bool {
    // SAFETY: it points to a live integer.
    unsafe { policy_consolidate_take(limit, weight) }
}

impl Here {
    /// Whether the process is worth gathering on this node.
    #[inline]
    pub fn worth(&self) -> bool {
        // SAFETY: it points to a live struct of the same layout.
        unsafe { policy_consolidate_worth(self) }
    }

    /// Whether a task may be pulled from another node. `least`: tasks of the process on the best node so far; at first,
    /// on this node.
    #[inline]
    pub fn may_pull(&self, other: &Other, least: u32) -> bool {
        // SAFETY: they point to live structs of the same layout.
        unsafe { policy_consolidate_from(self, other, least) }
    }

    /// The node to pull from. Takes a token of that node (`limits`). `own` is this node.
    pub fn select(&self, own: usize, others: &[Other], limits: &mut [u32]) -> Option<usize> {
        let mut least = self.weight;
        let mut chosen: Option<usize> = None;
        for (node, other) in others.iter().enumerate() {
            if node == own || !self.may_pull(other, least) || !take(&mut limits[node], other.weight)
            {
                continue;
            }
            if let Some(previous) = chosen.replace(node) {
                limits[previous] -= 1;
            }
            least = other.weight;
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Here = Here { weight: 6, total: 8, nr: 8, nodes: 2 };

    fn select(weight: u32, nr: u32) -> Option<usize> {
        let here = Here { total: 6 + weight, ..HERE };
        assert!(here.worth());
        let others = [Other { weight: 6, nr: 8 }, Other { weight, nr }];
        here.select(0, &others, &mut [0, 0])
    }

    /// Section 14.5 of the kernel model.
    #[test]
    fn nodes_to_pull_from() {
        assert_eq!(select(2, 10), Some(1));
        assert_eq!(select(2, 7), None);
        assert_eq!(select(5, 10), Some(1));
        assert_eq!(select(6, 10), None);
    }

    fn sides(dst: (u32, u32), src: (u32, u32)) -> Benefit {
        let side = |(nr, weight)| Side { nr, weight };
        benefit(dst.1 + src.1, side(dst), side(src))
    }

    /// Section 14.5 of the kernel model.
    #[test]
    fn benefit_of_a_move() {
        assert_eq!(sides((1, 3), (2, 5)), Benefit::Yes);
        assert_eq!(sides((1, 2), (2, 5)), Benefit::No);
        assert_eq!(sides((0, 2), (2, 5)), Benefit::Yes);
        assert_eq!(sides((3, 8), (2, 1)), Benefit::No, "the destination has more to do");
        assert_eq!(sides((0, 0), (1, 1)), Benefit::None, "a single task");
    }

    #[test]
    fn processes_not_worth_gathering() {
        let worth = |weight, total, nr| Here { weight, total, nr, nodes: 2 }.worth();
        assert!(worth(2, 3, 8));
        assert!(!worth(1, 3, 8), "one task here");
        assert!(!worth(3, 3, 8), "all here");
        assert!(worth(2, 7, 4), "two of seven run here, but they are half of the four tasks here");
        assert!(!worth(2, 7, 5));
        assert!(worth(2, 6, 5));
    }

    #[test]
    fn the_node_with_fewest_tasks_and_a_token() {
        let here = Here { weight: 6, total: 13, nr: 8, nodes: 4 };
        let others = [(6, 8), (4, 10), (1, 10), (2, 10)].map(|(weight, nr)| Other { weight, nr });
        let mut limits = [0; 4];
        assert_eq!(here.select(0, &others, &mut limits), Some(2));
        assert_eq!(limits, [0, 0, 1, 0], "the token of node 1 was returned");
        assert_eq!(
            here.select(0, &others, &mut limits),
            Some(3),
            "one pull for each task of the process"
        );
        assert_eq!(limits, [0, 0, 1, 1]);
    }

    #[test]
    fn passes_of_a_pull() {
        assert!(two_passes(false, 1, 0, 0) && !two_passes(false, 1, 1, 0));
        assert!(
            two_passes(true, 1, 1, 0) && !two_passes(true, 0, 1, 0),
            "as posted: by the node of CPU 0"
        );
        assert!(Benefit::Yes.first_pass(false, true) && !Benefit::None.first_pass(false, true));
        assert!(Benefit::No.first_pass(false, false), "within a node nothing changes");
        assert!(!Benefit::Yes.first_pass(true, false), "as posted: never");

        let mut migrate_seq = SEQ;
        let taken = [(); 4].map(|()| second_pass(false, true, &mut migrate_seq));
        assert_eq!(taken, [false, false, false, true]);
        assert!(second_pass(false, false, &mut 0) && second_pass(true, true, &mut 0));
        assert!(!second_pass(true, false, &mut 0), "as posted: never within a node");
    }

    #[test]
    fn wakeups_and_cache_heat() {
        assert!(Benefit::Yes.may_wake() && Benefit::None.may_wake() && !Benefit::No.may_wake());
        assert!(Benefit::Yes.ignores_heat(true, 0, 1) && !Benefit::Yes.ignores_heat(false, 9, 1));
        assert!(Benefit::No.ignores_heat(true, 2, 1) && !Benefit::No.ignores_heat(true, 1, 1));
    }

    #[test]
    fn local_is_more_than_an_even_share() {
        assert!(local(3, 2, 5) && !local(2, 2, 4) && local(2, 4, 7));
    }
}
