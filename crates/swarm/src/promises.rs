//! What the fair class promises to tasks that wait, as far as an observer can hold it to that.
//!
//! **A share.** While the tasks of a CPU stay the same, none waits for longer than
//!
//! | class | bound |
//! |---|---|
//! | EEVDF | `2 (r + t) W/w + (n - 1) t` |
//! | CFS | `(P + t + g) W/w + c W/1024 + P + n (t + m)` |
//!
//! where `w` is the weight of the task, `W` that of all `n` tasks there, `t` the tick.
//!
//! EEVDF: a task's lag never leaves `-r..r` (Stoica and Abdel-Wahab, "Earliest Eligible Virtual Deadline
//! First", 1995, theorem 1), where `r` is the longest request, that is slice. The end of a request is seen at a tick,
//! up to `t` late. A task may be further ahead by that much when it begins to wait. Each of the others may run that much
//! longer in requests that are due before its own. While it waits its lag grows by `w/W` of the time.
//!
//! CFS (kernel model, section 4): `P` is the period, `m` the minimum and `g` the wakeup granularity, `c` the
//! credit of sleepers. When a task loses its CPU it is ahead of the one furthest behind by no more than its
//! slice, at most `P`, a tick, and `g` because buddies are preferred; that one by no more than `c` behind what it
//! was. All others run until they are ahead of it, each longer than that by a slice and a tick.
//!
//! Nothing is promised where switches set slices or granularities, to tasks of policy SCHED_IDLE, in groups (their weight follows load), and, with EEVDF
//! before 6.18, to those that yield, whose deadline moves off by a request each time.
//!
//! **A CPU.** See [`Promises::longest_idle_ns`].

use std::collections::BTreeMap;

use roost_fair::weight_of;
use roost_machine::{Llc, Machine};
use roost_workload::{Op, Policy, Template, Workload};

const NS_PER_MS: u64 = 1_000_000;

/// Passes over the domain of an LLC that may fail before hot tasks move.
const CACHE_NICE_TRIES: u64 = 1;

/// How long the utilisation of a CPU that was idle takes to exceed 100 of `imbalance_pct`, 117: with a half-life of 32 ms,
/// 32 log2(1 / (1 - 100/117)) = 89 ms.
const OVERLOADED_AFTER_NS: u64 = 89 * NS_PER_MS;

/// Weight of a task of nice 0.
const NICE_0: u64 = 1024;

/// How virtual time is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Cfs,
    Eevdf,
}

/// What is promised in runs of one scheduler on one machine and workload.
#[derive(Clone, Debug)]
pub struct Promises {
    class: Class,
    /// Whether no switch sets slices.
    default_slices: bool,
    tick_ns: u64,
    /// By how much times grow on machines of several CPUs.
    factor: u64,
    /// By template's name.
    claims: BTreeMap<String, Claim>,
    /// The longest that some task asks for, ns.
    longest_slice_ns: u64,
    /// By LLC: for how long a CPU may idle beside a task that it may run; `None`: no limit.
    longest_idle_ns: Vec<Option<u64>>,
}

/// What a task has of the class.
#[derive(Clone, Copy, Debug)]
struct Claim {
    least_weight: u64,
    most_weight: u64,
    /// Whether a bound holds for its waits.
    bounded: bool,
}

/// The root task and threads of the kernel, which have no template: nice 0.
const ROOT: Claim = Claim { least_weight: NICE_0, most_weight: NICE_0, bounded: true };

impl Promises {
    /// Of the fair class of Linux `version`: `5.19`. No promises of a version that is no number. Some
    /// `switches` take back that no CPU idles.
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
            (template.name.clone(), claim(template, may && workload.groups.is_empty()))
        });
        Some(Self {
            class,
            default_slices,
            tick_ns,
            factor: 1 + u64::from(machine.nr_cpus().clamp(1, 8).ilog2()),
            claims: claims.collect(),
            longest_slice_ns: longest_slice_ns(workload),
            longest_idle_ns: match switches
                .iter()
                .any(|switch| keeps_tasks(switch) || sets_balancing(switch))
            {
                true => vec![None; machine.llcs.len()],
                false => longest_idle_ns(version, tick_ns, machine, workload),
            },
        })
    }

    /// The same where threads of the kernel run, which stay on their CPUs.
    #[must_use]
    pub fn beside_kernel_threads(mut self) -> Self {
        self.longest_idle_ns.fill(None);
        self
    }

    fn claim(&self, name: &str) -> Claim {
        let other = Claim { bounded: self.default_slices, ..ROOT };
        self.claims.get(name).copied().unwrap_or(other)
    }

    /// For how long a task may wait on a CPU whose tasks have these names, its own among them.
    pub(crate) fn longest_wait_ns<'a>(
        &self,
        task: &str,
        all: impl Iterator<Item = &'a str>,
    ) -> Option<u64> {
        let own = self.claim(task);
        if !own.bounded {
            return None;
        }
        let (mut number, mut weight) = (0, 0);
        for name in all {
            number += 1;
            weight += self.claim(name).most_weight;
        }
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

    /// For how long a CPU of that LLC may idle while a task waits there.
    pub(crate) fn longest_idle_ns(&self, llc: usize) -> Option<u64> {
        self.longest_idle_ns[llc]
    }
}

/// Numbers that the bounds take as they are by default.
fn sets_slices(switch: &str) -> bool {
    ["base-slice-ns=", "latency-ns=", "min-granularity-ns=", "wakeup-granularity-ns="]
        .iter()
        .any(|name| switch.starts_with(name))
}

/// Numbers of balancing that the bound takes as they are by default.
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

/// Mechanisms that leave a task where it is although another CPU idles.
fn keeps_tasks(switch: &str) -> bool {
    ["cling", "consolidate"].iter().any(|name| switch.starts_with(name))
}

/// What tasks ask for is taken for at most 100 ms (kernel model, section 5).
fn longest_slice_ns(workload: &Workload) -> u64 {
    let ops = workload.templates.iter().flat_map(|template| &template.program.ops);
    let asked = ops.filter_map(|op| match op {
        Op::SetSlice { ns } => Some(*ns),
        _ => None,
    });
    asked.max().unwrap_or(0).min(100 * NS_PER_MS)
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

/// An idle CPU is balanced for when a tick finds two tasks on another CPU (kernel model, 9.3) and the domain of its
/// LLC is due. The domain is due at most its longest interval after the last time (2 and 9.1). That is twice as many
/// ms as the domain has CPUs, and 4 ms in 3.9. A pass that finds only hot tasks fails. Once more passes have failed
/// than `cache_nice_tries`, 1, hot tasks move too (10.9).
///
/// Before 5.5 a pass moves load, and may find no task that is light enough. Once more passes have failed than
/// `cache_nice_tries` + 2, the busy CPU is stopped and gives one (10.10). And a CPU with two tasks beside one that
/// idles counts as balanced there until its utilisation makes it overloaded ([`OVERLOADED_AFTER_NS`]). In 3.9 a core with
/// several CPUs counts as little more than one, so nothing is promised there.
///
/// Nothing is promised if tasks may not run everywhere, because a pass may stop at those that cannot move. From 6.5
/// on nor is it where cores have several CPUs: among cores with two tasks or more (`group_smt_balance`) a pass
/// takes the first, not the one with most tasks, until their utilisation makes one overloaded.
fn longest_idle_ns(
    version: (u32, u32),
    tick_ns: u64,
    machine: &Machine,
    workload: &Workload,
) -> Vec<Option<u64>> {
    let pinned = |template: &Template| {
        let moves = |op: &Op| matches!(op, Op::SetAffinity(_));
        template.affinity.is_some() || template.program.ops.iter().any(moves)
    };
    if workload.templates.iter().any(pinned) {
        return vec![None; machine.llcs.len()];
    }
    let of_llc = |llc: &Llc| {
        let cores_count = !((4, 0)..(6, 5)).contains(&version);
        if cores_count && llc.cpus.iter().any(|cpu| machine.siblings(cpu).len() > 1) {
            return None;
        }
        let interval_ms = if version < (4, 0) { 4 } else { 2 * llc.cpus.len() as u64 };
        let interval_ns = (interval_ms * NS_PER_MS).next_multiple_of(tick_ns);
        let (may_fail, overloaded_after_ns) = match version < (5, 5) {
            true => (CACHE_NICE_TRIES + 3, OVERLOADED_AFTER_NS),
            false => (CACHE_NICE_TRIES + 1, 0),
        };
        Some(overloaded_after_ns + (may_fail + 1) * interval_ns + 2 * tick_ns)
    };
    machine.llcs.iter().map(of_llc).collect()
}
