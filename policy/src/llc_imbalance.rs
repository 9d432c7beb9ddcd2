//! Tolerated imbalance between the LLCs of a node: `roost/llc_imbalance.h`.

use crate::rules::functions;

functions! {
    llc_imbalance
    safe {
        fn policy_llc_imbalance_allowed(child_span: u32) -> u32;
        fn policy_llc_imbalance_adjust(amount: u64, span: u32, child_span: u32) -> u64;
    }
    pointers {
    }
}

/// Tasks that one of several LLCs, each of `child_span` CPUs, may have more than another.
#[inline]
pub fn allowed(child_span: u32) -> u32 {
    policy_llc_imbalance_allowed(child_span)
}

/// The imbalance that is left to balance, in tasks and before halving. The domain has `span` CPUs, its child
/// `child_span`. The rule applies where the child shares an LLC and the parent is a NUMA domain.
#[inline]
pub fn adjust(amount: u64, span: u32, child_span: u32) -> u64 {
    policy_llc_imbalance_adjust(amount, span, child_span)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The amounts 1 to 10 after the filter and the halving that follows.
    fn halved(child_span: u32) -> Vec<u64> {
        (1..=10).map(|amount| adjust(amount, 2 * child_span, child_span) / 2).collect()
    }

    /// Section 14.4 of the kernel model.
    #[test]
    fn amounts_after_halving() {
        assert_eq!(halved(2), [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]);
        for c in [4, 6, 8] {
            assert_eq!(halved(c), [0, 0, 1, 2, 2, 3, 3, 4, 4, 5], "c = {c}");
        }
        assert_eq!(halved(12), [0, 0, 0, 2, 2, 3, 3, 4, 4, 5]);
        assert_eq!(halved(16), [0, 0, 0, 0, 2, 3, 3, 4, 4, 5]);
        assert_eq!(halved(32), [0, 0, 0, 0, 0, 0, 0, 0, 4, 5]);
    }

    #[test]
    fn a_quarter_and_at_least_a_pair() {
        assert_eq!([1, 2, 3, 4, 7, 8, 11, 12, 32].map(allowed), [1, 1, 1, 2, 2, 2, 2, 3, 8]);
    }

    #[test]
    fn a_single_llc_is_balanced_as_before() {
        assert_eq!(adjust(1, 16, 16), 1);
        assert_eq!(adjust(1, 16, 0), 1);
    }
}
