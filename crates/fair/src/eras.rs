//! How each part of the fair class worked, era by era.
//!
//! Each part has a type whose fields say what the kernel does, and a constant for each era. A
//! version ([`crate::features`]) has one era of every part. For a new version whose balancer
//! changed, add a constant here, made from its predecessor, and name it in the version's line in
//! the list. If eras differ in whole algorithms, the field is an enum that selects the algorithm.
//! Section numbers refer to the kernel model.

/// Virtual time: which task runs next, and for how long (sections 4 and 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueEra {
    /// EEVDF rather than CFS.
    pub eevdf: bool,
    /// EEVDF: base slice before it is scaled by the number of CPUs, ns; 0 with CFS.
    pub base_slice_ns: u64,
    /// CFS: a slice is at least the minimum granularity (BASE_SLICE).
    pub slice_at_least_granularity: bool,
    /// EEVDF: RUN_TO_PARITY ends at a protection point (`vprot`), not at the deadline at pick.
    pub protection_point: bool,
    /// EEVDF: the lag limit is the largest slice of the queue plus a tick, not the task's own
    /// slice.
    pub lag_by_queue_slice: bool,
    /// A running task that moves to another cgroup is picked anew (`sched_move_task()`, 5.6).
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
    /// With the protection point.
    pub(crate) const SINCE_7_2: Self =
        Self { protection_point: true, lag_by_queue_slice: true, ..Self::SINCE_6_15 };
}

/// What the load of a CPU and of a task is. Placement and balancing depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// The sum of the weights of the queued tasks, and averages of it that decay with ticks (3.9).
    Weight,
    /// The load average of the queued tasks (`runnable_load_avg`, 5.2).
    QueuedAverage,
    /// The load average of the queue, blocked load included (5.5 and later).
    Average,
}

/// How a task's utilisation is estimated (`util_est`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UtilEst {
    /// The larger of the task's average and its last use.
    Largest,
    /// It rises at once and falls slowly (UTIL_EST_FASTUP, by 5.15).
    FastUp,
    /// As `FastUp`, but small decreases of a starved task are left out (7.2).
    FastUpUnlessStarved,
}

/// How the sums of a queue's averages change when a task leaves it (`detach_entity_load_avg()`). A
/// task's average is as old as the last completed period; its sums also include the current period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeavingSums {
    /// The task's own sums are subtracted (up to 5.13).
    Own,
    /// The sums become what the remaining averages imply. The contributions of all tasks in the
    /// current period are lost (5.14 to 5.16, fcf6631f3736 and 1c35b07e6d39).
    OfAverages,
    /// The task's own sums are subtracted, but the sums never fall below what the remaining
    /// averages imply (5.17 and later, 98b0d890220d, 95246d1ec80b and 2d02fa8cc21a).
    OwnAboveAverages,
}

/// Averages (section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AverageEra {
    /// What the load of a CPU is.
    pub load: Load,
    /// How utilisation is estimated.
    pub util_est: UtilEst,
    /// Utilisation is estimated after the averages are updated, not before.
    pub estimate_after_update: bool,
    /// The averages of a sleeper that wakes elsewhere decay up to the wakeup if its old CPU is
    /// idle, because that CPU's queue may not have been updated for long (`migrate_se_pelt_lag()`).
    pub sleeper_decays_to_wakeup: bool,
    /// How a queue's sums change when a task leaves.
    pub leaving: LeavingSums,
}

impl AverageEra {
    /// Loads are weights.
    pub(crate) const WEIGHTS: Self = Self { load: Load::Weight, ..Self::QUEUED };
    /// Loads are averages of the queued tasks.
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
    /// According to the source of 7.2.13. Some of it is older, but not in the versions of the
    /// kernel model.
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
    /// Every machine has that level, and only that level prefers siblings. There is no level of
    /// whole nodes.
    pub always_package: bool,
    /// Distance beyond which nodes neither wake affine nor get new tasks: specific to the processor
    /// (5.4), or one for all.
    pub reclaim_distance_by_processor: bool,
    /// The groups of an overlapping domain begin with the domain's first CPU, not with the CPU that
    /// owns the domain (up to 4.11).
    pub overlap_from_first: bool,
    /// CPUs that share an L2 or LLC tags are a domain (CLS, since 5.16).
    pub clusters: bool,
    /// That domain counts as sharing a cache, and wakeups search it first (6.8).
    pub cluster_search: bool,
    /// Rule for intervals and imbalance percentages.
    pub pace: Pacing,
    /// Which domains have the flags for CPUs of different capacities.
    pub asymmetry: Asymmetry,
}

/// Which domains have the flags for CPUs of different capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asymmetry {
    /// None: the kernel does not know capacities (before 4.10).
    Unknown,
    /// The domains of the lowest level at which every CPU has a CPU of the highest capacity in its
    /// domain (4.20 to 5.9).
    OneLevel,
    /// All domains that span CPUs of different capacities (5.15).
    BySpan,
}

/// How balancing intervals and percentages follow from a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pacing {
    /// By level: 1 to 4 ms up to a node, and 64 times that while busy.
    ByLevel,
    /// By number of CPUs, and 32 times that while busy.
    ByWeightTimes32,
    /// By number of CPUs, and 16 times that while busy (5.10).
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
    /// An idle group: all its CPUs are idle. Searched from the LLC downwards (3.9).
    IdleGroup,
    /// An idle core, then CPUs within a budget, then the target's core (5.2).
    CoreThenCpus,
    /// One scan for a core or a CPU (5.10).
    OneScan,
}

/// Where woken and new tasks go (sections 7 and 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacementEra {
    /// How wakeups look for an idle CPU.
    pub idle_search: IdleSearch,
    /// The choice between prev and the waker's CPU compares only their loads. No waker is noted
    /// (3.9).
    pub affine_by_weights: bool,
    /// An idle prev is preferred to the waker's CPU (WA_IDLE; not in 5.2 between LLCs).
    pub affine_to_idle_prev: bool,
    /// A waker sets its own CPU as recently used if its wakee may run there (5.2).
    pub waker_marks_own_cpu: bool,
    /// If a CPU has not yet switched away from the wakee, that CPU enqueues the wakee (5.8). Before
    /// 5.8 the waker waits.
    pub leaves_wakee_on_cpu: bool,
    /// The search knows which CPUs have only SCHED_IDLE tasks.
    pub knows_sched_idle_cpus: bool,
    /// The core of prev is searched for an idle thread, prev included (5.15 to 5.19).
    pub smt_search_includes_prev: bool,
    /// New tasks: groups are compared by their types, not by their loads (5.5).
    pub idlest_by_group_type: bool,
    /// New tasks go to the CPU with the least weight, idle or not (3.9).
    pub idlest_by_weight: bool,
    /// New tasks: only CPUs that their affinity allows count, and SCHED_IDLE tasks do not displace
    /// each other.
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
    /// By averages of the queued tasks.
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
    /// Prev is no longer searched a second time.
    pub(crate) const SINCE_6_15: Self =
        Self { smt_search_includes_prev: false, ..Self::SINCE_5_15 };
    /// According to the source of 7.2.13.
    pub(crate) const SINCE_7_2: Self =
        Self { new_tasks_see_allowed_cpus: true, ..Self::SINCE_6_15 };
}

/// How groups of CPUs are compared (sections 10.3 to 10.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupChoice {
    /// By queued weights (3.9).
    Weights,
    /// By loads of the queued tasks (5.2).
    Loads,
    /// By types of groups (5.5).
    Types,
}

/// How a pass that starts active balance changes its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterActive {
    /// It doubles.
    Longer,
    /// It stays, because the reason for the pass still exists.
    Same,
    /// It becomes the shortest interval.
    Shortest,
}

/// Balancing (sections 9 and 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BalanceEra {
    /// How groups are compared.
    pub groups: GroupChoice,
    /// The threads of a core share the power of one CPU (3.9).
    pub threads_share_power: bool,
    /// Sources are examined in the order in which tasks were queued (before 4.15), not beginning
    /// with the task that ran least recently.
    pub in_queued_order: bool,
    /// An idle CPU may take the last task of a queue.
    pub takes_last_task: bool,
    /// A task too large for the imbalance is skipped before its affinity is checked. So the pass
    /// considers it pinned (3.9).
    pub amount_before_may_move: bool,
    /// Threads of a core share its caches: no task is cache-hot between them (5.10).
    pub core_shares_caches: bool,
    /// The stopper ignores cache heat and locality. Before, the failure count is raised until they
    /// do not matter.
    pub stopper_ignores_heat: bool,
    /// All groups that contain the CPU elect the CPU that balances, not only the local group (3.9).
    pub every_group_elects: bool,
    /// CPUs of the own group count among the sources still to be tried (3.9).
    pub own_group_is_source: bool,
    /// Newly-idle passes lengthen intervals too (3.9).
    pub newidle_lengthens_interval: bool,
    /// Newly-idle balancing sets when the next periodic pass is due, instead of only bringing it
    /// forward (3.9).
    pub newidle_sets_due: bool,
    /// The interval that counts is the one after the pass (not 3.9: the one before the pass).
    pub interval_after_pass: bool,
    /// A busy CPU's interval is one jiffy shorter, so that levels are not due at the same time.
    pub busy_interval_less_one: bool,
    /// How a pass that starts active balance changes its interval.
    pub interval_after_active: AfterActive,
    /// Idle CPUs are balanced one after the other, without blocked load, and timers of the timer
    /// wheel cause ticks (3.9).
    pub idle_without_blocked_load: bool,
    /// `nohz.next_balance` alone is a reason for a kick.
    pub kicks_for_next_balance: bool,
    /// Newly-idle balancing compares its cost with the idle time, and checks whether any CPU is
    /// overloaded (3.16).
    pub newidle_costs: bool,
    /// The gate of newly-idle balancing is the first domain's cost (5.17), not migration_cost.
    pub newidle_gate_by_domain: bool,
    /// The costs of newly-idle balancing also decay in newly-idle passes.
    pub newidle_costs_decay_there: bool,
    /// The NUMA filter sees the imbalance before it is halved (6.1) rather than after.
    pub filter_before_halving: bool,
    /// sibling_imbalance with core counts; SMT groups (after 6.5).
    pub smt_groups: bool,
    /// should_we_balance prefers CPUs of fully idle cores above SMT (after 6.5).
    pub prefers_idle_core: bool,
    /// prefer_sibling is read from the busiest group's flags (6.x) rather than the child domain.
    pub prefer_sibling_of_group: bool,
    /// The local group is checked against the domain average in calculate_imbalance (6.1).
    pub local_above_average_check: bool,
    /// The busiest queue is chosen by "boosted" utilisation, util over runnable (6.x).
    pub boosted_util: bool,
    /// migrate_util compares after a shift by the number of failures (6.x).
    pub util_shift: bool,
    /// An ineligible task stays if the destination is not empty and no pass has failed yet. Delayed
    /// tasks move only as load (6.13).
    pub detach_eligible_only: bool,
    /// A group with a CPU of reduced capacity that runs one task needs help (`sched_reduced_capacity()`, since 5.19).
    pub reduced_capacity_is_misfit: bool,
    /// SERIALIZE is taken inside, after should_we_balance (7.2).
    pub serialize_inside: bool,
    /// A hot task too large for the imbalance counts as a failed migration.
    pub counts_hot_too_much: bool,
    /// If a move neither loses nor gains locality, cache heat decides.
    pub caches_decide_between_nodes: bool,
    /// A CPU that goes idle keeps its tick once more, balances in that tick and only then stops it.
    /// This is the idle loop of 7.2 without a cpuidle driver, as in guests. With a driver, the
    /// cpuidle governor decides. If false, the tick stops at once.
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
        reduced_capacity_is_misfit: false,
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
    /// With the new gate of newly-idle balancing, and with misfit groups of reduced capacity.
    pub(crate) const SINCE_5_17: Self =
        Self { newidle_gate_by_domain: true, reduced_capacity_is_misfit: true, ..Self::SINCE_5_15 };
    /// With SMT groups.
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
    /// According to the source of 7.2.13. Some of it is older, but not in the versions of the
    /// kernel model.
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
    /// It places tasks: faults of tasks and groups, preferred nodes, swaps (3.13). If false, pages
    /// follow tasks and that is all.
    pub places_tasks: bool,
    /// Its search classifies nodes by load and takes an idle CPU at once. Swaps prefer tasks that
    /// move to their preferred node (5.7).
    pub node_types: bool,
    /// Tasks of one group are not swapped if the destination node has room (6.0).
    pub no_swap_with_spare: bool,
    /// Scans skip areas that the task does not use (6.4).
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
