//! The search for an idle CPU near a target: `select_idle_sibling` (sections 7.3 and 7.4).
//!
//! ```text
//! target, prev, recent ─── one of them idle ────────────────────────────────► it
//!        │ none                                     (sis_search, sis_scanned)
//!        ▼ sis_domain_search
//! sibling of prev (no idle core known) ─── idle ────────────────────────────► it
//!        ▼
//! select_idle_cpu: the LLC from target + 1 on, wrapping
//!        ├ an idle core is known: core by core, without a budget
//!        └ else CPU by CPU, within the budget of SIS_UTIL or SIS_PROP
//!        ▼ none                                     (sis_failed)
//! target
//! ```
//!
//! Counters and charges are those of examining CPUs one by one; the code examines 64 CPUs per step.
//! The search pays for the cache lines of every run queue it examines.

use roost_engine::{CpuId, TaskId, World};
use roost_machine::{CpuSet, Machine};
use roost_workload::Policy;

use crate::domain::Topology;
use crate::eras::IdleSearch;
use crate::features::SearchLimit;
use crate::state::{Fair, LINES_PER_QUEUE};
use crate::wakeup::Lines;

/// The least number of steps of a SIS_PROP search, the step that gives up included.
const PROP_MIN_STEPS: u64 = 4;

/// CPUs that a search could use, in words of 64.
#[derive(Clone, Copy)]
pub(crate) struct Candidates<'a> {
    /// Idle CPUs.
    idle: &'a [u64],
    /// CPUs that run only SCHED_IDLE tasks, if there are any and the wakee may preempt them.
    sched_idle: Option<&'a CpuSet>,
    /// CPUs the task may run on.
    allowed: &'a [u64],
    /// CPUs searched.
    span: &'a [u64],
    /// CPUs already searched (the target's cluster).
    without: Option<&'a CpuSet>,
}

impl Candidates<'_> {
    /// CPUs to visit.
    #[inline]
    fn mask(&self, word: usize) -> u64 {
        let without = self.without.map_or(0, |set| set.words()[word]);
        self.span[word] & self.allowed[word] & !without
    }

    /// CPUs that end the search if they are in the mask.
    #[inline]
    fn usable(&self, word: usize) -> u64 {
        self.idle[word] | self.sched_idle.map_or(0, |set| set.words()[word])
    }

    /// The words from the word of `start` on, wrapping back to it. Each comes with the bits that
    /// belong to that part of the round.
    #[inline]
    fn round(&self, start: CpuId) -> impl Iterator<Item = (usize, u64)> + use<> {
        let words = self.span.len();
        let start = if start >= words * 64 { 0 } else { start };
        let (first, above) = (start >> 6, from(start, start >> 6));
        let upper = (first + 1..words).map(|word| (word, !0));
        let lower = (0..first).map(|word| (word, !0));
        std::iter::once((first, above)).chain(upper).chain(lower).chain([(first, !above)])
    }
}

/// The bits of `word` for `cpu` and the CPUs above it.
#[inline]
fn from(cpu: CpuId, word: usize) -> u64 {
    match word.cmp(&(cpu >> 6)) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => !0 << (cpu & 63),
        std::cmp::Ordering::Greater => !0,
    }
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It found this CPU.
    Found(CpuId),
    /// All CPUs were visited.
    Nothing,
    /// The budget ran out.
    GaveUp,
}

/// Number of run queues that a scan examined, by distance. The searching CPU's own queue costs
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Examined {
    /// On other CPUs of the searching CPU's core.
    core: u64,
    /// On CPUs outside that core.
    other: u64,
}

/// The scan of one search: its budget and what it has done so far.
pub(crate) struct Scan<'a> {
    machine: &'a Machine,
    topology: &'a Topology,
    /// The CPU that searches.
    cpu: CpuId,
    /// Steps left, the step that gives up included (`nr`); `u64::MAX` means no budget.
    steps_left: u64,
    /// Steps counted in `sis_scanned`.
    steps: u64,
    examined: Examined,
    /// A usable CPU of a core that is not idle, found while looking for an idle core.
    fallback: Option<CpuId>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(
        machine: &'a Machine,
        topology: &'a Topology,
        cpu: CpuId,
        steps_left: u64,
    ) -> Self {
        let examined = Examined::default();
        Self { machine, topology, cpu, steps_left, steps: 0, examined, fallback: None }
    }

    /// Visits CPUs in order, from `start`, until one is usable.
    fn cpus(&mut self, candidates: Candidates<'_>, start: CpuId) -> End {
        for (word, part) in candidates.round(start) {
            let mask = candidates.mask(word) & part;
            if mask == 0 {
                continue;
            }
            let hit = mask & candidates.usable(word);
            // Up to and including the first hit; all of them if there is no hit.
            let visited = if hit == 0 { mask } else { mask & (hit ^ (hit - 1)) };
            let count = u64::from(visited.count_ones());
            if count >= self.steps_left {
                // The step that uses up the budget counts but examines nothing.
                self.steps += self.steps_left;
                self.examine(word, lowest(visited, self.steps_left - 1));
                self.steps_left = 0;
                return End::GaveUp;
            }
            self.steps_left -= count;
            self.steps += count;
            self.examine(word, visited);
            if hit != 0 {
                return End::Found((word << 6) + hit.trailing_zeros() as usize);
            }
        }
        End::Nothing
    }

    /// Visits cores, beginning with that of `start`, until all CPUs of a core are idle. The first
    /// usable CPU on the way becomes the fallback.
    fn cores(&mut self, candidates: Candidates<'_>, start: CpuId) -> End {
        for (word, part) in candidates.round(start) {
            let mut mask = candidates.mask(word) & part;
            while mask != 0 {
                let cpu = (word << 6) + mask.trailing_zeros() as usize;
                mask &= !self.topology.siblings(cpu).words()[word];
                if self.is_first_of_core(candidates, start, cpu) && self.core(candidates, cpu) {
                    return End::Found(cpu);
                }
            }
        }
        End::Nothing
    }

    /// Whether no sibling of `cpu` comes earlier in the round. The kernel instead takes the CPUs of
    /// a visited core out of the mask.
    fn is_first_of_core(&self, candidates: Candidates<'_>, start: CpuId, cpu: CpuId) -> bool {
        for (word, &siblings) in self.topology.siblings(cpu).words().iter().enumerate() {
            if siblings == 0 {
                continue;
            }
            let (started, passed) = (from(start, word), !from(cpu, word));
            let earlier = if cpu >= start { started & passed } else { started | passed };
            if siblings & candidates.mask(word) & earlier != 0 {
                return false;
            }
        }
        true
    }

    /// `select_idle_core` for the core of `cpu`: whether the whole core is idle. If a fallback is
    /// known, the first busy CPU ends the check.
    fn core(&mut self, candidates: Candidates<'_>, cpu: CpuId) -> bool {
        let topology = self.topology;
        let mut idle = true;
        for (word, &siblings) in topology.siblings(cpu).words().iter().enumerate() {
            if siblings == 0 {
                continue;
            }
            let mut rest = siblings;
            while rest != 0 {
                let sibling = rest & rest.wrapping_neg();
                rest ^= sibling;
                let usable = candidates.allowed[word] & candidates.usable(word) & sibling != 0;
                let busy = candidates.idle[word] & sibling == 0;
                idle &= !busy;
                let known = self.fallback.is_some();
                if !known && usable {
                    self.fallback = Some((word << 6) + sibling.trailing_zeros() as usize);
                }
                if busy && (known || usable) {
                    self.examine_some(word, siblings ^ rest);
                    return false;
                }
            }
            self.examine_some(word, siblings);
        }
        idle
    }

    /// Steps counted in `sis_scanned` so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// A step that examines nothing.
    pub(crate) fn count_step(&mut self) {
        self.steps += 1;
    }

    /// Counts the CPUs of `bits` in `word` as steps and as examined.
    pub(crate) fn examine_some(&mut self, word: usize, bits: u64) {
        self.steps += u64::from(bits.count_ones());
        self.examine(word, bits);
    }

    /// Notes that the CPUs of `bits` in `word` were examined.
    fn examine(&mut self, word: usize, bits: u64) {
        let core = bits & self.topology.siblings(self.cpu).words()[word];
        self.examined.other += u64::from((bits ^ core).count_ones());
        let own = if self.cpu >> 6 == word { 1 << (self.cpu & 63) } else { 0 };
        self.examined.core += u64::from((core & !own).count_ones());
    }

    /// Duration of the scan, ns. `of_llc` is some CPU of the LLC that was scanned.
    pub(crate) fn cost_ns(&self, of_llc: CpuId) -> u64 {
        examine_cost(self.machine, self.topology, self.cpu, of_llc, self.examined)
    }
}

/// Time to examine run queues from the searching `cpu`, ns. Its own run queue costs nothing. All
/// CPUs of an LLC outside its core are equally far.
///
/// Contention is not modelled: many CPUs that search one LLC at the same time would wait for each
/// other's lines. The published histogram of Patch C (112 CPUs per LLC, 224 netperf tasks, 1 to 2
/// us per run queue) is an upper bound for that. No source says how the time grows with the number
/// of readers.
fn examine_cost(
    machine: &Machine,
    topology: &Topology,
    cpu: CpuId,
    of_llc: CpuId,
    examined: Examined,
) -> u64 {
    let core = topology.siblings(cpu);
    let mut ns = 0;
    if examined.core != 0 {
        let sibling = core.iter().find(|&sibling| sibling != cpu);
        ns += examined.core * sibling.map_or(0, |sibling| machine.line_ns(sibling, cpu));
    }
    if examined.other != 0 {
        let llc = &topology.llc_span[topology.llc_of[of_llc] as usize];
        let outside = llc.iter().find(|&other| !core.contains(other));
        ns += examined.other * outside.map_or(0, |other| machine.line_ns(other, cpu));
    }
    ns * LINES_PER_QUEUE
}

/// The `count` lowest set bits of `word`, which has more.
#[inline]
fn lowest(word: u64, count: u64) -> u64 {
    let mut rest = word;
    for _ in 0..count {
        rest &= rest.wrapping_sub(1);
    }
    word ^ rest
}

/// What bounds a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// This many steps, the step that gives up included.
    Steps(u64),
    /// No limit: every CPU.
    Unlimited,
    /// No scan, not even for an idle core: SIS_UTIL finds the LLC overloaded.
    NoScan,
}

/// On machines with clusters: candidates that the fast checks set aside for the end. They are idle
/// and in the target's LLC, but in another cluster.
#[derive(Clone, Copy, Debug, Default)]
struct SetAside {
    prev: Option<CpuId>,
    recent: Option<CpuId>,
}

impl Fair {
    /// Finds a CPU near `target` for `task`, which last ran on `prev`. Adds the time to `lines`.
    pub(crate) fn select_idle_sibling(
        &mut self,
        world: &World,
        task: TaskId,
        prev: CpuId,
        target: CpuId,
        lines: &mut Lines,
    ) -> CpuId {
        if self.features.placement.idle_search != IdleSearch::OneScan {
            return self.select_idle_sibling_older(world, task, prev, target, lines);
        }
        self.stats.sis_search += 1;
        self.stats.sis_scanned += 1;
        let mut aside = SetAside::default();
        if let Some(cpu) = self.check_known_cpus(world, task, prev, target, lines, &mut aside) {
            return cpu;
        }
        if self.topology.llc_level[target].is_none() {
            return target;
        }
        self.stats.sis_domain_search += 1;
        let mut has_idle_core = false;
        if self.topology.smt_active {
            let llc = self.topology.llc_of[target] as usize;
            lines.fetch_shared(world.machine(), self.llcs[llc].last_writer);
            has_idle_core = self.llcs[llc].has_idle_cores(world.now());
            if !has_idle_core
                && self.topology.share_llc(prev, target)
                && let Some(cpu) = self.select_idle_smt(world, task, prev, lines)
            {
                return cpu;
            }
        }
        let before = lines.ns;
        let found = self.select_idle_cpu(world, task, target, has_idle_core, lines);
        self.stats.select_idle_cpu_us.record(lines.ns - before);
        if let Some(cpu) = found.or(aside.prev).or(aside.recent) {
            return cpu;
        }
        self.stats.sis_failed += 1;
        target
    }

    /// The checks before any scan: target, prev and the recently used CPU, if it shares the
    /// target's LLC. The recent CPU is replaced by prev each time it is read.
    fn check_known_cpus(
        &mut self,
        world: &World,
        task: TaskId,
        prev: CpuId,
        target: CpuId,
        lines: &mut Lines,
        aside: &mut SetAside,
    ) -> Option<CpuId> {
        let machine = world.machine();
        lines.look(machine, target);
        if self.is_usable(world, task, target) {
            return Some(target);
        }
        if prev != target && self.topology.share_llc(prev, target) {
            lines.look(machine, prev);
            if self.is_usable(world, task, prev) {
                if self.is_near(prev, target) {
                    return Some(prev);
                }
                aside.prev = Some(prev);
            }
        }
        let recent = std::mem::replace(&mut self.tasks[task.index()].recent_used_cpu, prev);
        if recent == prev || recent == target || !self.topology.share_llc(recent, target) {
            return None;
        }
        lines.look(machine, recent);
        if self.is_usable(world, task, recent) && world.allowed(task).contains(recent) {
            if self.is_near(recent, target) {
                return Some(recent);
            }
            aside.recent = Some(recent);
        }
        None
    }

    /// Whether a known CPU is as good as any other of the LLC. In versions that know clusters it
    /// must be in the target's cluster.
    fn is_near(&self, cpu: CpuId, target: CpuId) -> bool {
        !self.features.domains.cluster_search || self.topology.share_cluster(cpu, target)
    }

    /// Whether `cpu` is idle, or runs only SCHED_IDLE tasks and `task` is not SCHED_IDLE itself.
    fn is_usable(&self, world: &World, task: TaskId, cpu: CpuId) -> bool {
        world.is_idle(cpu)
            || (self.sched_idle_cpus.contains(cpu) && world.policy(task) != Policy::Idle)
    }

    /// The CPUs of the LLC of `target` that `task` could use.
    fn candidates<'a>(&'a self, world: &'a World, task: TaskId, target: CpuId) -> Candidates<'a> {
        let displaces = !self.sched_idle_cpus.is_empty() && world.policy(task) != Policy::Idle;
        Candidates {
            idle: world.idle_cpus().words(),
            sched_idle: displaces.then_some(&self.sched_idle_cpus),
            allowed: world.allowed(task).words(),
            span: self.topology.llc_span[self.topology.llc_of[target] as usize].words(),
            without: None,
        }
    }

    /// `select_idle_smt`: a usable sibling of prev. Up to 5.19 prev itself is tried once more.
    fn select_idle_smt(
        &mut self,
        world: &World,
        task: TaskId,
        prev: CpuId,
        lines: &mut Lines,
    ) -> Option<CpuId> {
        let with_prev = self.features.placement.smt_search_includes_prev;
        let allowed = world.allowed(task);
        let mut scan = Scan::new(world.machine(), &self.topology, lines.cpu, u64::MAX);
        let mut found = None;
        let mut next = self.topology.siblings(prev).first();
        while let Some(cpu) = next {
            next = self.topology.siblings(prev).next_from(cpu + 1);
            if !allowed.contains(cpu) || (cpu == prev && !with_prev) {
                continue;
            }
            scan.steps += 1;
            // The fast checks have already fetched the line of prev.
            if cpu != prev {
                scan.examine(cpu >> 6, 1 << (cpu & 63));
            }
            if self.is_usable(world, task, cpu) {
                found = Some(cpu);
                break;
            }
        }
        lines.ns += scan.cost_ns(prev);
        self.stats.sis_scanned += scan.steps;
        found
    }

    /// `select_idle_cpu`: scans the LLC of `target`.
    fn select_idle_cpu(
        &mut self,
        world: &World,
        task: TaskId,
        target: CpuId,
        has_idle_core: bool,
        lines: &mut Lines,
    ) -> Option<CpuId> {
        let steps = match self.scan_budget(world, target, has_idle_core, lines) {
            Budget::NoScan => return None,
            Budget::Unlimited => u64::MAX,
            Budget::Steps(steps) => steps,
        };
        let mut scan = Scan::new(world.machine(), &self.topology, lines.cpu, steps);
        let candidates = self.candidates(world, task, target);
        let end = self.scan_clusters(&mut scan, candidates, target, has_idle_core);
        let ns = scan.cost_ns(target);
        let (steps, fallback) = (scan.steps, scan.fallback);
        lines.ns += ns;
        self.stats.sis_scanned += steps;
        if has_idle_core && end == End::Nothing {
            self.clear_idle_cores(world, lines, target);
        }
        if end != End::GaveUp
            && self.features.switches.search_limit == SearchLimit::Proportion
            && !has_idle_core
        {
            self.account_scan_cost(lines.cpu, ns);
        }
        match end {
            End::Found(cpu) => Some(cpu),
            End::Nothing => fallback,
            End::GaveUp => {
                self.mechanisms.on_search_ended();
                None
            }
        }
    }

    /// Scans the target's cluster, if there are clusters, and then the rest of the LLC.
    fn scan_clusters(
        &self,
        scan: &mut Scan<'_>,
        candidates: Candidates<'_>,
        target: CpuId,
        has_idle_core: bool,
    ) -> End {
        let mut pass = |candidates: Candidates<'_>| match has_idle_core {
            true => scan.cores(candidates, target + 1),
            false => scan.cpus(candidates, target + 1),
        };
        let cluster =
            self.features.domains.cluster_search.then(|| self.topology.cluster_level[target]);
        let Some(level) = cluster.flatten() else { return pass(candidates) };
        let cluster = &self.topology.domain(self.topology.domains_of(target)[level]).span;
        match pass(Candidates { span: cluster.words(), ..candidates }) {
            End::Nothing => pass(Candidates { without: Some(cluster), ..candidates }),
            end => end,
        }
    }

    /// How many CPUs `select_idle_cpu` may scan (section 7.4).
    fn scan_budget(
        &mut self,
        world: &World,
        target: CpuId,
        has_idle_core: bool,
        lines: &mut Lines,
    ) -> Budget {
        let mut budget = Budget::Unlimited;
        if self.features.switches.search_limit == SearchLimit::Proportion && !has_idle_core {
            let Some(level) = self.topology.llc_level[lines.cpu] else { return Budget::NoScan };
            let avg_idle = self.age_wake_avg_idle(world, lines.cpu);
            let cost = self.rqs[lines.cpu].domains[level].avg_scan_cost + 1;
            budget = Budget::Steps(prop_steps(self.topology.llc_size(target), avg_idle, cost));
        }
        if let Some(bound) = self.search_budget(world, target, lines) {
            budget = bound;
        }
        if has_idle_core && budget != Budget::NoScan { Budget::Unlimited } else { budget }
    }

    /// Halves the idle time left for scans once per jiffy since the CPU was last idle.
    fn age_wake_avg_idle(&mut self, world: &World, cpu: CpuId) -> u64 {
        let jiffies = self.jiffies(world.now());
        let rq = &mut self.rqs[cpu];
        while rq.wake_stamp < jiffies && rq.wake_avg_idle != 0 {
            rq.wake_stamp += 1;
            rq.wake_avg_idle >>= 1;
        }
        rq.wake_avg_idle
    }

    /// SIS_PROP: a scan of `ns` by `cpu` enters the average and reduces the idle time left.
    pub(crate) fn account_scan_cost(&mut self, cpu: CpuId, ns: u64) {
        let Some(level) = self.topology.llc_level[cpu] else { return };
        let rq = &mut self.rqs[cpu];
        rq.wake_avg_idle = rq.wake_avg_idle.saturating_sub(ns);
        let average = &mut rq.domains[level].avg_scan_cost;
        // update_avg(): an eighth of the difference, rounded toward the old value.
        *average = if ns >= *average {
            *average + (ns - *average) / 8
        } else {
            *average - (*average - ns) / 8
        };
    }

    /// The LLC of `target` has no idle core. Its CPUs see that when this search ends
    /// (`set_idle_cores`).
    pub(crate) fn clear_idle_cores(&mut self, world: &World, lines: &mut Lines, target: CpuId) {
        let shared = &mut self.llcs[self.topology.llc_of[target] as usize];
        lines.fetch_shared(world.machine(), shared.last_writer);
        shared.last_writer = lines.cpu;
        shared.clear_idle_cores(world.now() + world.backlog_ns(lines.cpu) + lines.ns);
    }
}

/// SIS_PROP: number of CPUs in the span, times average idle time, divided by average scan cost; at
/// least four.
pub(crate) fn prop_steps(span: u32, avg_idle_ns: u64, cost_ns: u64) -> u64 {
    let idle = u64::from(span) * avg_idle_ns;
    if idle > PROP_MIN_STEPS * cost_ns { idle / cost_ns } else { PROP_MIN_STEPS }
}

#[cfg(test)]
mod tests;
