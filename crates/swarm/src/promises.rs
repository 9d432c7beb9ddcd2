//! The promises of the fair class to waiting tasks, as far as an observer can check them.
//!
//! **A share.** While the tasks of a CPU stay the same, no task waits for longer than
//!
//! | class | bound |
//! |---|---|
//! | EEVDF | `2 (r + t) W/w + (n - 1) t` |
//! | CFS | `(P + t + g) W/w + c W/1024 + P + n (t + m)` |
//!
//! where `w` is the weight of the task, `W` the weight of all `n` tasks of the CPU, and `t` the length of a tick. With
//! CFS a new task begins where the task is that forked it (`task_fork_fair()`), so there `w` is the least weight of the
//! task and of those that forked it.
//!
//! EEVDF: a task's lag always stays within `-r..r`, where `r` is the longest request, which is the slice (Stoica and
//! Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995, theorem 1). The end of a request is noticed at a
//! tick, up to `t` late. A task that begins to wait may be ahead by that much more. Each of the other tasks may run
//! that much longer in requests that are due before the task's own. While a task waits, its lag grows by `w/W` of the
//! time.
//!
//! CFS (kernel model, section 4): `P` is the period, `m` the minimum granularity, `g` the wakeup granularity, and `c`
//! the credit of sleepers. A task that loses its CPU is ahead of the task furthest behind by at most its slice (at most
//! `P`), a tick, and `g`, because buddies are preferred. The task furthest behind may fall back by at most `c`. All
//! other tasks run until they are ahead of the waiting task, and each runs longer than that by a slice and a tick.
//!
//! These tasks have no promise:
//!
//! - tasks in cases whose switches set slices or granularities
//! - tasks of the policy SCHED_IDLE, and with CFS those that they fork
//! - tasks in groups, because their weight follows the load
//! - with EEVDF before 6.18, tasks that yield, because each yield postpones their deadline by a request
//!
//! **A CPU.** See [`longest_idle_ns`]: within an LLC.
//!
//! **An LLC or a node.** See [`longest_spare_ns`]: beside another one.

use std::collections::BTreeMap;

use roost_fair::weight_of;
use roost_machine::{Llc, Machine};
use roost_workload::{Op, Policy, Template, Workload};

const NS_PER_MS: u64 = 1_000_000;

/// Number of passes over the domain of an LLC that may fail before cache-hot tasks move.
const CACHE_NICE_TRIES: u64 = 1;

/// How long it takes until the utilisation of a CPU that was idle exceeds 100 of `imbalance_pct` (117). With a
/// half-life of 32 ms this is 32 log2(1 / (1 - 100/117)) = 89 ms.
const OVERLOADED_AFTER_NS: u64 = 89 * NS_PER_MS;

/// How long it takes until the runnable average of a CPU that gets two tasks exceeds `imbalance_pct` (117) of 100. With
/// a half-life of 32 ms this is 32 log2(1 / (1 - 117/200)) = 41 ms.
const TWO_OVERLOAD_AFTER_NS: u64 = 41 * NS_PER_MS;

/// Weight of a task with nice 0.
const NICE_0: u64 = 1024;

/// How virtual time is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Cfs,
    Eevdf,
}

/// The promises for runs of one scheduler on one machine and workload.
#[derive(Clone, Debug)]
pub struct Promises {
    class: Class,
    /// Whether no switch sets slices.
    default_slices: bool,
    tick_ns: u64,
    /// Factor by which times grow on machines with several CPUs.
    factor: u64,
    /// Claims by the template's name.
    claims: BTreeMap<String, Claim>,
    /// The weights of all task groups. On a CPU, a group competes with at most its weight.
    weight_of_groups: u64,
    /// The longest slice that any task asks for, in ns.
    longest_slice_ns: u64,
    /// For each LLC, how long a CPU may be idle while a task that it may run waits. `None`: no limit.
    longest_idle_ns: Vec<Option<u64>>,
    /// How long CPUs of an LLC may be idle while another LLC of this node is full. `None` as a node: how long CPUs of
    /// a node may be idle while another node is full. Without limit if missing.
    longest_spare_ns: BTreeMap<Option<usize>, u64>,
}

/// A task's weights, and whether its waits are bounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    least_weight: u64,
    most_weight: u64,
    /// Whether a bound on its waits is promised.
    bounded: bool,
}

/// The tasks of a CPU together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    number: u64,
    weight: u64,
}

/// The claim of the root task and of kernel threads, which have no template: nice 0.
const ROOT: Claim = Claim { least_weight: NICE_0, most_weight: NICE_0, bounded: true };

impl Promises {
    /// The promises of the fair class of Linux `version`, such as `5.19`. There are none if `version` is not a number.
    /// With some `switches`, idle CPUs are allowed.
    pub fn of(
        version: &str,
        switches: &[String],
        tick_ns: u64,
        machine: &Machine,
        workload: &Workload,
    ) -> Option<Self> {
        let (major, minor) = version.split_once('.')?;
        let version: (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
        let class = if version < (6, 6) { Class::Cfs } else { Class::Eevdf };
        let forfeits = version >= (6, 18);
        let default_slices = !switches.iter().any(|switch| sets_slices(switch));
        let claims = workload.templates.iter().map(|template| {
            let yields = template.program.ops.contains(&Op::Yield);
            let may = (class == Class::Cfs || forfeits || !yields) && default_slices;
            claim(template, may && workload.groups.is_empty())
        });
        let mut claims: Vec<Claim> = claims.collect();
        if class == Class::Cfs {
            begin_where_parents_are(workload, &mut claims);
        }
        let names = workload.templates.iter().map(|template| template.name.clone());
        let stay = workload.templates.iter().any(is_pinned)
            || switches.iter().any(|switch| keeps_tasks(switch) || sets_balancing(switch));
        Some(Self {
            class,
            default_slices,
            tick_ns,
            factor: 1 + u64::from(machine.nr_cpus().clamp(1, 8).ilog2()),
            claims: names.zip(claims).collect(),
            weight_of_groups: workload
                .groups
                .iter()
                .map(|group| u64::from(group.weight) * NICE_0 / 100)
                .sum(),
            longest_slice_ns: longest_slice_ns(workload),
            longest_idle_ns: match stay {
                true => vec![None; machine.llcs.len()],
                false => longest_idle_ns(version, tick_ns, machine),
            },
            longest_spare_ns: match stay || gathers(version, switches) {
                true => BTreeMap::new(),
                false => longest_spare_ns(version, tick_ns, machine, workload),
            },
        })
    }

    /// The promises if kernel threads run as well. These stay on their CPUs.
    #[must_use]
    pub fn beside_kernel_threads(mut self) -> Self {
        self.longest_idle_ns.fill(None);
        self.longest_spare_ns.clear();
        self
    }

    /// The claim of a task with this name.
    pub(crate) fn claim(&self, name: &str) -> Claim {
        let other = Claim { bounded: self.default_slices, ..ROOT };
        self.claims.get(name).copied().unwrap_or(other)
    }

    /// All tasks of a CPU.
    pub(crate) fn crowd(&self, tasks: impl Iterator<Item = Claim>) -> Crowd {
        let none = Crowd { number: 0, weight: self.weight_of_groups };
        tasks.fold(none, |Crowd { number, weight }, task| Crowd {
            number: number + 1,
            weight: weight + task.most_weight,
        })
    }

    /// How long a task may wait on a CPU that has `crowd`, which includes the task. `None`: no limit.
    pub(crate) fn longest_wait_ns(&self, own: Claim, crowd: Crowd) -> Option<u64> {
        if !own.bounded {
            return None;
        }
        let Crowd { number, weight } = crowd;
        let shares = |ns: u64| ns * weight / own.least_weight;
        let (tick, factor) = (self.tick_ns, self.factor);
        Some(match self.class {
            Class::Eevdf => {
                let request = (NS_PER_MS * 3 / 4 * factor).max(self.longest_slice_ns);
                2 * shares(request + tick) + (number - 1) * tick
            }
            Class::Cfs => {
                let least = NS_PER_MS * 3 / 4 * factor;
                let period = (6 * NS_PER_MS * factor).max(number * least);
                let credit = 3 * NS_PER_MS * factor * weight / NICE_0;
                shares(period + tick + NS_PER_MS * factor)
                    + credit
                    + period
                    + number * (tick + least)
            }
        })
    }

    /// How long a CPU of this LLC may be idle while a task waits in the LLC.
    pub(crate) fn longest_idle_ns(&self, llc: usize) -> Option<u64> {
        self.longest_idle_ns[llc]
    }

    /// How long CPUs of an LLC of this node may be idle while another LLC of the node is full. `None` as a node: how
    /// long CPUs of a node may be idle while another node is full.
    pub(crate) fn longest_spare_ns(&self, node: Option<usize>) -> Option<u64> {
        self.longest_spare_ns.get(&node).copied()
    }
}

/// Whether a switch sets a number that the bounds on waits assume to have its default.
fn sets_slices(switch: &str) -> bool {
    ["base-slice-ns=", "latency-ns=", "min-granularity-ns=", "wakeup-granularity-ns="]
        .iter()
        .any(|name| switch.starts_with(name))
}

/// Whether a switch sets a number of balancing that the bound on idle CPUs assumes to have its default.
fn sets_balancing(switch: &str) -> bool {
    [
        "min-interval-ms-",
        "busy-factor-",
        "cache-nice-tries-",
        "imbalance-pct-",
        "migration-cost-ns=",
        "nr-migrate=",
    ]
    .iter()
    .any(|name| switch.starts_with(name))
}

/// Whether a switch turns on a mechanism that leaves a task where it is although another CPU is idle.
fn keeps_tasks(switch: &str) -> bool {
    let mut keeping = roost_fair::mechanisms().iter().filter(|mechanism| mechanism.keeps_tasks);
    keeping.any(|mechanism| switch.starts_with(mechanism.name))
}

/// The longest slice that tasks ask for. The kernel limits it to 100 ms (kernel model, section 5).
fn longest_slice_ns(workload: &Workload) -> u64 {
    let ops = workload.templates.iter().flat_map(|template| &template.program.ops);
    let asked = ops.filter_map(|op| match op {
        Op::SetSlice { ns } => Some(*ns),
        _ => None,
    });
    asked.max().unwrap_or(0).min(100 * NS_PER_MS)
}

/// Whether some tasks may not use all CPUs, or change what others may use. A pass may stop at tasks that cannot move.
fn is_pinned(template: &Template) -> bool {
    let moves = |op: &Op| matches!(op, Op::SetAffinity(_) | Op::SetAffinityOf { .. });
    template.affinity.is_some() || template.program.ops.iter().any(moves)
}

/// Whether cache-aware scheduling is on. It may leave the threads of a process where their process is, although other
/// LLCs have idle CPUs (kernel model, section 13, "forbid").
fn gathers(version: (u32, u32), switches: &[String]) -> bool {
    let is = |name: &str| switches.iter().any(|switch| switch == name);
    is("sched-cache") || version >= (7, 2) && !is("no-sched-cache")
}

fn claim(template: &Template, bounded: bool) -> Claim {
    let ops = &template.program.ops;
    let nices = ops.iter().filter_map(|op| match op {
        Op::SetNice(nice) => Some(*nice),
        _ => None,
    });
    let weights = nices.chain([template.nice]).map(weight_of);
    let (least_weight, most_weight) =
        weights.fold((u64::MAX, 0), |(least, most), w| (least.min(w), most.max(w)));
    let idle = template.policy == Policy::Idle || ops.contains(&Op::SetPolicy(Policy::Idle));
    Claim { least_weight, most_weight, bounded: bounded && !idle }
}

/// A task has no more of a claim than those that fork it, whatever these were forked by.
fn begin_where_parents_are(workload: &Workload, claims: &mut [Claim]) {
    // No chain of forks is longer than there are templates.
    for _ in &workload.templates {
        for (parent, template) in workload.templates.iter().enumerate() {
            let Claim { least_weight, bounded, .. } = claims[parent];
            for op in &template.program.ops {
                let Op::Fork(child) = *op else { continue };
                let child = &mut claims[child as usize];
                child.least_weight = child.least_weight.min(least_weight);
                child.bounded &= bounded;
            }
        }
    }
}

/// An idle CPU is balanced for when a tick finds two tasks on another CPU (kernel model, 9.3) and the domain of its LLC
/// is due. The domain is due at most its longest interval after the previous pass (2 and 9.1): twice as many ms as the
/// domain has CPUs, and 4 ms in 3.9. A pass that finds only cache-hot tasks fails. After more failed passes than
/// `cache_nice_tries` (1), cache-hot tasks move too (10.9).
///
/// Before 5.5, a pass moves load, and may find no task that is light enough. After more failed passes than
/// `cache_nice_tries` + 2, the busy CPU is stopped and gives up a task (10.10). In these versions a CPU with two tasks
/// next to an idle CPU counts as balanced until its utilisation makes it overloaded ([`OVERLOADED_AFTER_NS`]). In 3.9 a
/// core with several CPUs counts as little more than one CPU, so nothing is promised there.
///
/// From 5.5 on, a CPU with two tasks is passed over for one with a single task, as long as only the other's utilisation
/// makes it fully busy (10.2, 10.3). It counts as overloaded once its own runnable average is high enough
/// ([`TWO_OVERLOAD_AFTER_NS`]). A core with several CPUs and one task more than these counts as overloaded no later
/// than its utilisation makes it so.
///
/// Nothing is promised if some tasks may not use all CPUs ([`is_pinned`]). From 6.5 on, nothing is promised if cores
/// have several CPUs: among cores with two or more tasks (`group_smt_balance`), a pass takes the first core, not the
/// one with most tasks, until utilisation makes one of them overloaded.
fn longest_idle_ns(version: (u32, u32), tick_ns: u64, machine: &Machine) -> Vec<Option<u64>> {
    let of_llc = |llc: &Llc| {
        let cores_count = !((4, 0)..(6, 5)).contains(&version);
        let smt = llc.cpus.iter().any(|cpu| machine.siblings(cpu).len() > 1);
        if cores_count && smt {
            return None;
        }
        let interval_ms = if version < (4, 0) { 4 } else { 2 * llc.cpus.len() as u64 };
        let interval_ns = (interval_ms * NS_PER_MS).next_multiple_of(tick_ns);
        let (may_fail, overloaded_after_ns) = match version < (5, 5) {
            true => (CACHE_NICE_TRIES + 3, OVERLOADED_AFTER_NS),
            false if smt => (CACHE_NICE_TRIES + 1, OVERLOADED_AFTER_NS),
            false => (CACHE_NICE_TRIES + 1, TWO_OVERLOAD_AFTER_NS),
        };
        Some(overloaded_after_ns + (may_fail + 1) * interval_ns + 2 * tick_ns)
    };
    machine.llcs.iter().map(of_llc).collect()
}

/// How long it takes until the utilisation that a CPU keeps from when it was busy is less than 1 of 1024. With a
/// half-life of 32 ms this is 32 log2(1024) = 320 ms.
const FADED_AFTER_NS: u64 = 320 * NS_PER_MS;

/// Number of passes over a domain that may fail before cache-hot tasks move (kernel model, section 2): between LLCs of
/// a node, and between nodes.
const NICE_TRIES_OF_LLCS: u64 = 1;
const NICE_TRIES_OF_NODES: u64 = 2;

/// Two groups of a domain: in one, the same CPUs idle, no task waits, and no task comes. In the other one no CPU idles,
/// a task waits, and no task leaves. This cannot last:
///
/// - The full group has more tasks than CPUs. It counts as overloaded no later than when all its CPUs have been busy
///   for [`OVERLOADED_AFTER_NS`] (10.2). An overloaded group is the busiest one, and a group with idle CPUs pulls from
///   it, whatever else it tolerates (10.3, 10.4, 10.5 2a). If another group is overloaded too and is preferred, a task
///   comes from there.
/// - The same idle CPU balances in each pass, because the same CPUs idle (`should_we_balance`, 9.1). It has its turn
///   when a busy CPU of the full group has a tick (9.3) after the domain is due: at most twice as many ms as the domain
///   has CPUs after the previous pass (2).
/// - A pass moves utilisation: what the idle group has left. At least one CPU idles, so after [`OVERLOADED_AFTER_NS`]
///   that is more than half of a CPU, or a whole task once a pass has failed (10.8: the task counts half then). Before
///   6.0 it does not count half, so what the idle CPU was used for has to fade ([`FADED_AFTER_NS`]).
/// - Passes that find only cache-hot tasks fail. After more than `cache_nice_tries` of them these move too (10.9).
///
/// Nothing is promised
///
/// - before 5.5, where groups are compared by averages of load, within `imbalance_pct` (11)
/// - with cache-aware scheduling ([`gathers`]), and if some tasks may not use all CPUs ([`is_pinned`])
/// - between nodes, if tasks use memory: CPUs with tasks on their preferred nodes are passed over (10.7); and if nodes
///   are at several distances, because then groups of nodes overlap (2)
fn longest_spare_ns(
    version: (u32, u32),
    tick_ns: u64,
    machine: &Machine,
    workload: &Workload,
) -> BTreeMap<Option<usize>, u64> {
    let mut longest = BTreeMap::new();
    if version < (5, 5) {
        return longest;
    }
    let bound = |cpus: usize, nice_tries: u64| {
        let interval_ns = (2 * cpus as u64 * NS_PER_MS).next_multiple_of(tick_ns) + tick_ns;
        let faded_after_ns = if version < (6, 0) { FADED_AFTER_NS } else { 0 };
        // One more may fail because the task is too large, and the one after all these moves a task.
        OVERLOADED_AFTER_NS + faded_after_ns + (nice_tries + 1 + 2) * interval_ns + 2 * tick_ns
    };
    for (number, node) in machine.nodes.iter().enumerate() {
        longest.insert(Some(number), bound(node.cpus.len(), NICE_TRIES_OF_LLCS));
    }
    let rows = machine.distances.iter().enumerate();
    let others = rows.flat_map(|(own, row)| {
        row.iter().enumerate().filter(move |(other, _)| *other != own).map(|(_, far)| *far)
    });
    let mut others: Vec<u32> = others.collect();
    others.sort_unstable();
    others.dedup();
    if others.len() == 1 && workload.regions.is_empty() {
        longest.insert(None, bound(machine.nr_cpus(), NICE_TRIES_OF_NODES));
    }
    longest
}
