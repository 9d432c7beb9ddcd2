//! How parts of the fair class worked from one version of the kernel on until they changed.
//!
//! Each part has a type whose fields say what is done, and a constant for each era of it. A version
//! ([`crate::features`]) is one era of every part. A new version whose balancer changed is a constant
//! here, made from its predecessor's, and the version's line in the list. Where an era decides between whole
//! algorithms, its field is an enum and the algorithms are chosen by it; section numbers refer to the
//! kernel model.

/// Virtual time: who runs next, and for how long (sections 4 and 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueEra {
    /// EEVDF rather than CFS.
    pub eevdf: bool,
    /// EEVDF: base slice before scaling by the number of CPUs, ns; 0 with CFS.
    pub base_slice_ns: u64,
    /// CFS: a slice is at least the minimum granularity (BASE_SLICE).
    pub slice_at_least_granularity: bool,
    /// EEVDF: RUN_TO_PARITY by a protection point (`vprot`) rather than until the deadline at pick.
    pub protection_point: bool,
    /// EEVDF: lag limit from the largest slice of the queue plus a tick rather than the own slice.
    pub lag_by_queue_slice: bool,
    /// A running task that went to another cgroup is picked anew (`sched_move_task()`, 5.6).
    pub reschedules_moved: bool,
}

impl QueueEra {
    /// CFS.
    pub(crate) const CFS: Self = Self {
        eevdf: false,
        base_slice_ns: 0,
        slice_at_least_granularity: false,
        protection_point: false,
        lag_by_queue_slice: false,
        reschedules_moved: false,
    };
    /// CFS with BASE_SLICE.
    pub(crate) const SINCE_5_15: Self =
        Self { slice_at_least_granularity: true, reschedules_moved: true, ..Self::CFS };
    /// EEVDF. The base slice is 0.70 ms since 6.15 (section 5).
    pub(crate) const SINCE_6_15: Self =
        Self { eevdf: true, base_slice_ns: 700_000, ..Self::SINCE_5_15 };
    /// The protection point.
    pub(crate) const SINCE_7_2: Self =
        Self { protection_point: true, lag_by_queue_slice: true, ..Self::SINCE_6_15 };
}

/// What the load of a CPU and of a task is: it decides how placement and balancing work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// The sum of the weights of what is queued (3.9), and averages of it that decay with ticks.
    Weight,
    /// The load average of what is queued (`runnable_load_avg`, 5.2).
    QueuedAverage,
    /// The load average of the queue, blocked load included (5.5 and later).
    Average,
}

/// How a task's utilisation is estimated (`util_est`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UtilEst {
    /// The larger of its average and of its last use.
    Largest,
    /// It rises at once and falls slowly (UTIL_EST_FASTUP, by 5.15).
    FastUp,
    /// The same, but small decreases of a starved task are left out (7.2).
    FastUpUnlessStarved,
}

/// How the sums of a queue's averages follow when a task leaves it (`detach_entity_load_avg()`). The
/// average of a task is as old as the last period that ended; its sums also hold what it added since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeavingSums {
    /// The task's own sums are subtracted (up to 5.13).
    Own,
    /// They become what the remaining averages stand for: what all tasks added since the period began is
    /// lost (5.14 to 5.16, fcf6631f3736 and 1c35b07e6d39).
    OfAverages,
    /// The task's own sums are subtracted, but what the remaining averages need stays (5.17 and later,
    /// 98b0d890220d, 95246d1ec80b and 2d02fa8cc21a).
    OwnAboveAverages,
}

/// Averages (section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AverageEra {
    /// What the load of a CPU is.
    pub load: Load,
    /// How utilisation is estimated.
    pub util_est: UtilEst,
    /// It is estimated after the averages have been brought up to date rather than before.
    pub estimate_after_update: bool,
    /// The averages of a sleeper that wakes elsewhere decay up to the wakeup if its old CPU is idle, whose
    /// queue may not have been updated for long (`migrate_se_pelt_lag()`).
    pub sleeper_decays_to_wakeup: bool,
    /// What happens to a queue's sums when a task leaves.
    pub leaving: LeavingSums,
}

impl AverageEra {
    /// Loads are weights.
    pub(crate) const WEIGHTS: Self = Self { load: Load::Weight, ..Self::QUEUED };
    /// Loads are averages of what is queued.
    pub(crate) const QUEUED: Self = Self {
        load: Load::QueuedAverage,
        util_est: UtilEst::Largest,
        estimate_after_update: false,
        sleeper_decays_to_wakeup: false,
        leaving: LeavingSums::Own,
    };
    /// Loads are averages.
    pub(crate) const SINCE_5_15: Self = Self {
        load: Load::Average,
        util_est: UtilEst::FastUp,
        leaving: LeavingSums::OfAverages,
        ..Self::QUEUED
    };
    /// Leaving tasks take their own sums along again.
    pub(crate) const SINCE_5_17: Self =
        Self { leaving: LeavingSums::OwnAboveAverages, ..Self::SINCE_5_15 };
    /// Sleepers decay up to a wakeup on another CPU (since 6.0, e2f3e35f1f5a).
    pub(crate) const SINCE_6_15: Self = Self { sleeper_decays_to_wakeup: true, ..Self::SINCE_5_17 };
    /// As the source of 7.2.13 has it; some of it is older, and not in the kernel model's versions.
    pub(crate) const SINCE_7_2: Self = Self {
        util_est: UtilEst::FastUpUnlessStarved,
        estimate_after_update: true,
        ..Self::SINCE_6_15
    };
}

/// Scheduling domains (section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DomainEra {
    /// Name of the level of all CPUs of a node.
    pub package_name: &'static str,
    /// Every machine has that level, and only it prefers siblings; there is no level of whole nodes.
    pub always_package: bool,
    /// Distance from which on nodes neither wake affine nor get new tasks: by processor (5.4), or one for all.
    pub reclaim_distance_by_processor: bool,
    /// Groups that overlap begin with the first CPU of the domain, not with the CPU whose domain it is
    /// (up to 4.11).
    pub overlap_from_first: bool,
    /// CPUs that share an L2 or LLC tags are a domain (CLS, since 5.16).
    pub clusters: bool,
    /// That domain counts as sharing a cache, and wakeups search it first (6.8).
    pub cluster_search: bool,
    /// Intervals and imbalance percentages.
    pub pace: Pacing,
    /// Which domains are flagged where CPUs have different capacities.
    pub asymmetry: Asymmetry,
}

/// Which domains of CPUs of different capacities have flags for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asymmetry {
    /// None: capacities are not known (before 4.10).
    Unknown,
    /// Those of the lowest level at which every CPU sees one of the highest capacity (4.20 to 5.9).
    OneLevel,
    /// All that span CPUs of different capacities (5.15).
    BySpan,
}

/// By which rule balancing intervals and percentages follow from a domain's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pacing {
    /// Up to a node in 1 to 4 ms, 64 times as long while busy.
    ByLevel,
    /// By CPUs of the domain, 32 times while busy.
    ByWeightTimes32,
    /// By CPUs of the domain, 16 times while busy (5.10).
    ByWeightTimes16,
}

impl DomainEra {
    /// Levels as of 3.9.
    pub(crate) const BY_PACKAGE: Self = Self {
        package_name: "CPU",
        always_package: true,
        overlap_from_first: true,
        pace: Pacing::ByLevel,
        asymmetry: Asymmetry::Unknown,
        ..Self::BY_NODE
    };
    /// Levels as of 5.2.
    pub(crate) const BY_NODE: Self = Self {
        package_name: "DIE",
        always_package: false,
        reclaim_distance_by_processor: false,
        overlap_from_first: false,
        clusters: false,
        cluster_search: false,
        pace: Pacing::ByWeightTimes32,
        asymmetry: Asymmetry::OneLevel,
    };
    /// With clusters.
    pub(crate) const SINCE_5_16: Self = Self {
        reclaim_distance_by_processor: true,
        clusters: true,
        pace: Pacing::ByWeightTimes16,
        asymmetry: Asymmetry::BySpan,
        ..Self::BY_NODE
    };
    /// Clusters are searched; DIE was renamed to PKG (about 6.7).
    pub(crate) const SINCE_6_8: Self =
        Self { package_name: "PKG", cluster_search: true, ..Self::SINCE_5_16 };
}

/// How wakeups look for an idle CPU (section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleSearch {
    /// A group all of whose CPUs are idle, from the LLC downwards (3.9).
    IdleGroup,
    /// An idle core, then CPUs within a budget, then the own core (5.2).
    CoreThenCpus,
    /// One scan that looks for a core or a CPU (5.10).
    OneScan,
}

/// Where woken and new tasks go (sections 7 and 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacementEra {
    /// How wakeups look for an idle CPU.
    pub idle_search: IdleSearch,
    /// The choice between prev and the waker's CPU weighs their loads alone; no waker is noted (3.9).
    pub affine_by_weights: bool,
    /// An idle prev is preferred to a waker's CPU (WA_IDLE; not in 5.2 between LLCs).
    pub affine_to_idle_prev: bool,
    /// A waker takes its own CPU as recently used when its wakee may come there (5.2).
    pub waker_marks_own_cpu: bool,
    /// A task whose CPU has not switched from it yet is left to that CPU (5.8); before, the waker waits.
    pub leaves_wakee_on_cpu: bool,
    /// The search knows which CPUs have only SCHED_IDLE tasks.
    pub knows_sched_idle_cpus: bool,
    /// The core of prev is searched for an idle thread, prev included (5.15 to 5.19).
    pub smt_search_includes_prev: bool,
    /// New tasks: groups are compared by types rather than by loads (5.5).
    pub idlest_by_group_type: bool,
    /// New tasks: the CPU with the least weight, without a look at who is idle (3.9).
    pub idlest_by_weight: bool,
    /// New tasks: only CPUs on which they may run count, and SCHED_IDLE tasks do not displace each other.
    pub new_tasks_see_allowed_cpus: bool,
}

impl PlacementEra {
    /// By weights.
    pub(crate) const WEIGHTS: Self = Self {
        idle_search: IdleSearch::IdleGroup,
        affine_by_weights: true,
        affine_to_idle_prev: true,
        waker_marks_own_cpu: false,
        idlest_by_weight: true,
        ..Self::QUEUED
    };
    /// By averages of what is queued.
    pub(crate) const QUEUED: Self = Self {
        idle_search: IdleSearch::CoreThenCpus,
        affine_by_weights: false,
        affine_to_idle_prev: false,
        waker_marks_own_cpu: true,
        leaves_wakee_on_cpu: false,
        knows_sched_idle_cpus: false,
        smt_search_includes_prev: false,
        idlest_by_group_type: false,
        idlest_by_weight: false,
        new_tasks_see_allowed_cpus: false,
    };
    /// By types of groups.
    pub(crate) const SINCE_5_15: Self = Self {
        idle_search: IdleSearch::OneScan,
        affine_to_idle_prev: true,
        waker_marks_own_cpu: false,
        leaves_wakee_on_cpu: true,
        knows_sched_idle_cpus: true,
        smt_search_includes_prev: true,
        idlest_by_group_type: true,
        ..Self::QUEUED
    };
    /// Prev is no longer searched again.
    pub(crate) const SINCE_6_15: Self =
        Self { smt_search_includes_prev: false, ..Self::SINCE_5_15 };
    /// As the source of 7.2.13 has it.
    pub(crate) const SINCE_7_2: Self =
        Self { new_tasks_see_allowed_cpus: true, ..Self::SINCE_6_15 };
}

/// By what groups of CPUs are compared (sections 10.3 to 10.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupChoice {
    /// By weights queued (3.9).
    Weights,
    /// By loads of what is queued (5.2).
    Loads,
    /// By types of groups (5.5).
    Types,
}

/// What a pass that starts active balance makes of its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterActive {
    /// It doubles.
    Longer,
    /// It stays: what made the pass start is still so.
    Same,
    /// The shortest.
    Shortest,
}

/// Balancing (sections 9 and 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BalanceEra {
    /// By what groups are compared.
    pub groups: GroupChoice,
    /// The threads of a core share the power of one CPU (3.9).
    pub threads_share_power: bool,
    /// Sources are gone through in the order in which tasks were queued (before 4.15), not from the task
    /// that ran least recently.
    pub in_queued_order: bool,
    /// An idle CPU takes the last task of a queue too.
    pub takes_last_task: bool,
    /// A task that is too much is not asked whether it may move: it then seems pinned (3.9).
    pub amount_before_may_move: bool,
    /// Threads of a core share its caches: nothing is hot between them (5.10).
    pub core_shares_caches: bool,
    /// A stopper minds neither heat nor locality; before, the failures counted are raised until it does not.
    pub stopper_ignores_heat: bool,
    /// All groups that hold the CPU elect who balances, not the local one alone (3.9).
    pub every_group_elects: bool,
    /// Sources are left while CPUs of the own group are (3.9).
    pub own_group_is_source: bool,
    /// Newly idle passes lengthen intervals too (3.9).
    pub newidle_lengthens_interval: bool,
    /// Newly idle balancing sets when the next periodic one is due, rather than bring it forward (3.9).
    pub newidle_sets_due: bool,
    /// An interval holds as it is after the pass (not 3.9: as it was before).
    pub interval_after_pass: bool,
    /// A busy CPU's interval is a jiffy shorter, so that levels do not fall together.
    pub busy_interval_less_one: bool,
    /// What a pass that starts active balance makes of its interval.
    pub interval_after_active: AfterActive,
    /// Idle CPUs are balanced for one after the other without blocked load, and timers of the wheel bring
    /// ticks (3.9).
    pub idle_without_blocked_load: bool,
    /// A kick for `nohz.next_balance` alone.
    pub kicks_for_next_balance: bool,
    /// Newly idle balancing minds what it costs, and whether any CPU has tasks to give (3.16).
    pub newidle_costs: bool,
    /// Its gate is the first domain's cost (5.17) rather than migration_cost.
    pub newidle_gate_by_domain: bool,
    /// Its costs decay in newly idle passes too.
    pub newidle_costs_decay_there: bool,
    /// The NUMA filter sees the imbalance before it is halved (6.1) rather than after.
    pub filter_before_halving: bool,
    /// sibling_imbalance with core counts, SMT groups (after 6.5).
    pub smt_groups: bool,
    /// should_we_balance prefers fully idle cores above SMT (after 6.5).
    pub prefers_idle_core: bool,
    /// prefer_sibling is read from the busiest group's flags (6.x) rather than the child domain.
    pub prefer_sibling_of_group: bool,
    /// The local group is checked against the domain average in calculate_imbalance (6.1).
    pub local_above_average_check: bool,
    /// A busiest queue is chosen by "boosted" utilisation, util over runnable (6.x).
    pub boosted_util: bool,
    /// migrate_util compares after a shift by failures (6.x).
    pub util_shift: bool,
    /// An ineligible task stays when the destination is not empty and nothing failed yet, delayed tasks move
    /// only as load (6.13).
    pub detach_eligible_only: bool,
    /// SERIALIZE is taken inside, after should_we_balance (7.2).
    pub serialize_inside: bool,
    /// A hot task that is too much counts as a failed migration.
    pub counts_hot_too_much: bool,
    /// Where a move loses no locality and gains none, the caches decide.
    pub caches_decide_between_nodes: bool,
    /// A CPU that goes idle keeps its tick for one more, balances in it and only then stops it: the idle
    /// loop of 7.2 without a cpuidle driver, which is how guests run. With one, its governor decides.
    /// Without this the tick stops at once.
    pub idle_tick: bool,
}

impl BalanceEra {
    /// By weights.
    pub(crate) const WEIGHTS: Self = Self {
        groups: GroupChoice::Weights,
        threads_share_power: true,
        in_queued_order: true,
        takes_last_task: true,
        amount_before_may_move: true,
        every_group_elects: true,
        own_group_is_source: true,
        newidle_lengthens_interval: true,
        newidle_sets_due: true,
        interval_after_pass: false,
        idle_without_blocked_load: true,
        newidle_costs: false,
        ..Self::LOADS
    };
    /// By loads.
    pub(crate) const LOADS: Self = Self {
        groups: GroupChoice::Loads,
        threads_share_power: false,
        in_queued_order: false,
        takes_last_task: false,
        amount_before_may_move: false,
        core_shares_caches: false,
        stopper_ignores_heat: false,
        every_group_elects: false,
        own_group_is_source: false,
        newidle_lengthens_interval: false,
        newidle_sets_due: false,
        interval_after_pass: true,
        busy_interval_less_one: false,
        interval_after_active: AfterActive::Longer,
        idle_without_blocked_load: false,
        kicks_for_next_balance: false,
        newidle_costs: true,
        newidle_gate_by_domain: false,
        newidle_costs_decay_there: false,
        filter_before_halving: false,
        smt_groups: false,
        prefers_idle_core: false,
        prefer_sibling_of_group: false,
        local_above_average_check: false,
        boosted_util: false,
        util_shift: false,
        detach_eligible_only: false,
        serialize_inside: false,
        counts_hot_too_much: false,
        caches_decide_between_nodes: false,
        idle_tick: false,
    };
    /// By types of groups.
    pub(crate) const SINCE_5_15: Self = Self {
        groups: GroupChoice::Types,
        core_shares_caches: true,
        stopper_ignores_heat: true,
        busy_interval_less_one: true,
        interval_after_active: AfterActive::Same,
        ..Self::LOADS
    };
    /// The new gate of newly idle balancing.
    pub(crate) const SINCE_5_17: Self = Self { newidle_gate_by_domain: true, ..Self::SINCE_5_15 };
    /// SMT groups.
    pub(crate) const SINCE_6_15: Self = Self {
        filter_before_halving: true,
        smt_groups: true,
        prefers_idle_core: true,
        prefer_sibling_of_group: true,
        local_above_average_check: true,
        boosted_util: true,
        util_shift: true,
        detach_eligible_only: true,
        ..Self::SINCE_5_17
    };
    /// As the source of 7.2.13 has it; some of it is older, and not in the kernel model's versions.
    pub(crate) const SINCE_7_2: Self = Self {
        interval_after_active: AfterActive::Shortest,
        kicks_for_next_balance: true,
        newidle_costs_decay_there: true,
        serialize_inside: true,
        counts_hot_too_much: true,
        caches_decide_between_nodes: true,
        idle_tick: true,
        ..Self::SINCE_6_15
    };
}

/// Automatic NUMA balancing (section 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumaEra {
    /// It places tasks: faults of tasks and groups, preferred nodes, swaps (3.13). Without, pages follow
    /// tasks and nothing else happens.
    pub places_tasks: bool,
    /// Its search classes nodes by their load and takes idle CPUs at once; tasks on their way to their
    /// preferred node go first in swaps (5.7).
    pub node_types: bool,
    /// No swap inside a group on a node with room (6.0).
    pub no_swap_with_spare: bool,
    /// Scans leave out areas that the task does not use (6.4).
    pub area_skip: bool,
}

impl NumaEra {
    /// Pages follow tasks.
    pub(crate) const PAGES: Self = Self { places_tasks: false, ..Self::SINCE_3_13 };
    /// Tasks are placed.
    pub(crate) const SINCE_3_13: Self =
        Self { places_tasks: true, node_types: false, no_swap_with_spare: false, area_skip: false };
    /// Nodes have types.
    pub(crate) const SINCE_5_7: Self = Self { node_types: true, ..Self::SINCE_3_13 };
    /// Fewer swaps, fewer scans.
    pub(crate) const SINCE_6_4: Self =
        Self { no_swap_with_spare: true, area_skip: true, ..Self::SINCE_5_7 };
}
