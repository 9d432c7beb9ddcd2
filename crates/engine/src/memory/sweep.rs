//! One sweep over memory: the shares of the levels, its speed, and what it leaves in the caches.

use roost_workload::{Access, Pattern};

use super::bandwidth::{Bandwidth, MOST_FELT, Use, WHOLE};
use super::cache::{both, survival};
use super::{CERTAIN, LINE_BYTES, Memory, Tables, Warmth};
use crate::record::Accessed;
use crate::scheduler::{CpuId, TaskId};

/// A task's sweep from begin to end. Its tables are reused for the next sweep.
pub(super) struct Sweep {
    pattern: Pattern,
    slices: Vec<SliceOf>,
    /// Total bytes to transfer, in thousandths.
    transfer: u64,
    /// The time of its instructions, and whether its task is bound to nodes, from its [`Access`].
    core_ns: u64,
    bound: bool,
    /// The LLCs where it was made, with the share made in each.
    visits: Vec<Visit>,
}

/// A region's part of a sweep.
#[derive(Clone, Copy)]
struct SliceOf {
    region: u32,
    /// Rounded up to whole lines.
    bytes: u64,
    write: bool,
}

/// The part of a sweep that was made in one LLC.
struct Visit {
    llc: u32,
    /// The share of the sweep, in units of [`CERTAIN`], and the fills of the LLC when it began.
    share: u32,
    fills: u64,
    /// The core of the LLC where it was last made, and the same numbers for that core's L2.
    core: u32,
    l2_share: u32,
    l2_fills: u64,
}

impl Sweep {
    /// A sweep over nothing.
    pub(super) const fn none() -> Self {
        Self {
            pattern: Pattern::Stream,
            slices: Vec::new(),
            transfer: 0,
            core_ns: 0,
            bound: false,
            visits: Vec::new(),
        }
    }

    /// Begins a sweep like `access`, without regions yet.
    pub(super) fn begin(&mut self, access: &Access) {
        (self.pattern, self.core_ns, self.bound) = (access.pattern, access.core_ns, access.bound);
        self.slices.clear();
        self.visits.clear();
        self.transfer = 0;
    }

    /// Adds a region of `bytes` to the sweep.
    pub(super) fn add(&mut self, region: u32, bytes: u64, write: bool) {
        let slice = SliceOf { region, bytes: bytes.next_multiple_of(LINE_BYTES), write };
        self.transfer += slice.bytes * slice.moves(self.pattern) * 1000;
        self.slices.push(slice);
    }

    /// The regions of the sweep.
    pub(super) fn regions(&self) -> impl Iterator<Item = u32> {
        self.slices.iter().map(|slice| slice.region)
    }

    /// Total bytes to transfer, in thousandths.
    pub(super) fn transfer(&self) -> u64 {
        self.transfer
    }

    /// Whether it accesses blocks at random places.
    pub(super) fn is_random(&self) -> bool {
        self.pattern == Pattern::RandomBlocks
    }

    /// Whether its task is bound to nodes.
    pub(super) fn is_bound(&self) -> bool {
        self.bound
    }

    /// The time of its instructions for 2^40 bytes, us.
    fn core_time(&self) -> u64 {
        if self.core_ns == 0 {
            return 0;
        }
        ((u128::from(self.core_ns) << 40) / u128::from(self.transfer.max(1))) as u64
    }
}

impl SliceOf {
    /// How often each byte is transferred. Written bytes are fetched first. A chase waits only for
    /// what it fetches.
    fn moves(&self, pattern: Pattern) -> u64 {
        if self.write && pattern != Pattern::Chase { 2 } else { 1 }
    }
}

/// A sweep while its task has a CPU.
#[derive(Default)]
pub(super) struct OnCpu {
    /// `None` if no sweep is under way.
    task: Option<TaskId>,
    /// What was left when it was last accounted.
    left: u64,
    /// For each slice: the share that misses the L2, and the share of all that also misses the LLC.
    misses: Vec<(u32, u32)>,
    /// Shares of the transfer, in units of [`CERTAIN`]: from the L2, the LLC, and the nodes.
    l2: u32,
    llc: u32,
    nodes: Vec<(u16, u32)>,
    /// Bytes per microsecond without competition.
    alone: u64,
}

impl OnCpu {
    /// Whether a sweep is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.task.is_some()
    }

    /// The share from memory, in units of [`CERTAIN`].
    fn memory(&self) -> u32 {
        self.nodes.iter().map(|(_, share)| share).sum()
    }
}

/// Numbers of the resources that flows share.
struct Resources<'a> {
    memory: &'a Memory,
    cpu: CpuId,
}

impl Resources<'_> {
    fn core(&self) -> u32 {
        self.memory.machine.cpus[self.cpu].core
    }

    fn llc_link(&self) -> u32 {
        self.memory.machine.cores.len() as u32 + self.memory.machine.cpus[self.cpu].llc
    }

    fn node(&self, node: u16) -> u32 {
        let machine = &self.memory.machine;
        (machine.cores.len() + machine.llcs.len()) as u32 + u32::from(node)
    }

    /// The links through which the memory of `node` is reached, if it is in another package, and
    /// the share of the flow that passes each, in units of [`WHOLE`].
    fn links(&self, node: u16) -> impl Iterator<Item = Use> {
        let Tables { package, packages, routes, .. } = &self.memory.tables;
        let (from, to) =
            (self.memory.machine.cpus[self.cpu].package as usize, package[usize::from(node)]);
        let first = self.node(self.memory.machine.nodes.len() as u16);
        let passed = routes[from * packages + to].iter();
        passed.map(move |&Use { resource, weight }| Use { resource: first + resource, weight })
    }
}

impl Resources<'_> {
    /// The uses of a flow that gets the share `nodes` from each node.
    fn add_uses(&self, nodes: &[(u16, u32)], uses: &mut Vec<Use>) {
        let all: u64 = nodes.iter().map(|&(_, share)| u64::from(share)).sum();
        if all > 0 {
            uses.push(Use { resource: self.core(), weight: WHOLE });
            uses.push(Use { resource: self.llc_link(), weight: WHOLE });
        }
        for &(node, share) in nodes {
            let weight = ((u64::from(share) << 16) / all).max(1) as u32;
            uses.push(Use { resource: self.node(node), weight });
            let of = |link: Use| (u64::from(weight) * u64::from(link.weight)) >> 16;
            let links = self.links(node);
            uses.extend(links.map(|link| Use { weight: of(link).max(1) as u32, ..link }));
        }
        // Several nodes may be reached through the same link.
        uses.sort_by_key(|used| used.resource);
        uses.dedup_by(|next, kept| {
            let same = next.resource == kept.resource;
            kept.weight += if same { next.weight } else { 0 };
            same
        });
    }
}

/// Of `transferred` thousandths: the bytes from a place that provides `share` of [`CERTAIN`].
fn bytes_from(share: u32, transferred: u64) -> u64 {
    (u128::from(transferred) * u128::from(share) / u128::from(CERTAIN) / 1000) as u64
}

impl Accessed {
    fn add(&mut self, local: bool, bytes: u64) {
        match local {
            true => self.local_bytes += bytes,
            false => self.remote_bytes += bytes,
        }
    }
}

/// Units of [`Memory::alone`]: microseconds for 2^40 bytes.
const TIME_BITS: u32 = 24;

impl Memory {
    /// `task` continues its sweep on `cpu`, with `left` to transfer.
    pub(super) fn resume(&mut self, cpu: CpuId, task: TaskId, left: u64) {
        let (llc, core) = (self.machine.cpus[cpu].llc, self.machine.cpus[cpu].core);
        let (fills, l2_fills) = (self.llc_fills[llc as usize], self.l2_fills[core as usize]);
        let visits = &mut self.tasks[task.index()].sweep.visits;
        match visits.iter_mut().find(|visit| visit.llc == llc) {
            Some(visit) if visit.core == core => {}
            Some(visit) => (visit.core, visit.l2_share, visit.l2_fills) = (core, 0, l2_fills),
            None => visits.push(Visit { llc, share: 0, fills, core, l2_share: 0, l2_fills }),
        }
        let mut on_cpu = std::mem::take(&mut self.running[cpu]);
        on_cpu.task = Some(task);
        on_cpu.left = left;
        self.look_up(cpu, task, &mut on_cpu);
        self.running[cpu] = on_cpu;
        self.pending.push(cpu);
    }

    /// Finds out where, seen from `cpu`, the data of the sweep is.
    fn look_up(&self, cpu: CpuId, task: TaskId, on_cpu: &mut OnCpu) {
        let sweep = &self.tasks[task.index()].sweep;
        let home = self.machine.cpus[cpu].node as usize;
        let total = u128::from(sweep.transfer.max(1));
        (on_cpu.l2, on_cpu.llc) = (0, 0);
        on_cpu.misses.clear();
        on_cpu.nodes.clear();
        for slice in &sweep.slices {
            let moved = u128::from(slice.bytes * slice.moves(sweep.pattern)) * 1000;
            let weight = (moved * u128::from(CERTAIN) / total) as u32;
            let (in_l2, in_llc) = self.hits(cpu, slice.region);
            let past_l2 = CERTAIN - in_l2;
            let past_llc = both(past_l2, CERTAIN - in_llc);
            on_cpu.misses.push((past_l2, past_llc));
            on_cpu.l2 += both(weight, in_l2);
            on_cpu.llc += both(weight, past_l2 - past_llc);
            self.add_nodes(&mut on_cpu.nodes, home, slice.region, both(weight, past_llc));
        }
    }

    /// Shares of a region that `cpu` finds in its L2, and in its LLC.
    fn hits(&self, cpu: CpuId, region: u32) -> (u32, u32) {
        let (llc, core) = (self.machine.cpus[cpu].llc, self.machine.cpus[cpu].core);
        let region = &self.regions[region as usize];
        let kept = |warmth: Warmth, fills: u64, capacity: u64| {
            both(warmth.share, survival(fills - warmth.fills, capacity))
        };
        let l2_bytes = self.machine.figures.l2_bytes.value;
        let in_l2 = match region.core == core {
            true => kept(region.l2, self.l2_fills[core as usize], l2_bytes),
            false => 0,
        };
        let llc_bytes = self.machine.llc_bytes(llc as usize);
        let llc = llc as usize;
        (in_l2, kept(region.llcs[llc], self.llc_fills[llc], llc_bytes))
    }

    /// Spreads a share over the nodes in proportion to the region's pages. Pages that are on no
    /// node count for `home`.
    fn add_nodes(&self, nodes: &mut Vec<(u16, u32)>, home: usize, region: u32, share: u32) {
        let mut add = |node: usize, share: u32| {
            let known = nodes.iter_mut().find(|(known, _)| usize::from(*known) == node);
            if let Some((_, sum)) = known {
                *sum += share;
            } else if share > 0 {
                nodes.push((node as u16, share));
            }
        };
        let on = self.regions[region as usize].pages.on();
        let placed: u64 = on.iter().sum();
        if placed == 0 {
            return add(home, share);
        }
        for (node, &pages) in on.iter().enumerate() {
            add(node, (u64::from(share) * pages / placed) as u32);
        }
    }

    /// Pauses the sweep on `cpu` with `left` to transfer.
    pub(super) fn pause(&mut self, cpu: CpuId, left: u64) {
        self.account(cpu, left);
        self.running[cpu].task = None;
        self.pending.push(cpu);
    }

    /// Accounts the progress of the sweep on `cpu`. `left` is still to be transferred.
    pub(super) fn account(&mut self, cpu: CpuId, left: u64) {
        let on_cpu = &mut self.running[cpu];
        let Some(task) = on_cpu.task else { return };
        let sweep = &mut self.tasks[task.index()].sweep;
        let (llc, core) = (self.machine.cpus[cpu].llc, self.machine.cpus[cpu].core);
        let total = u128::from(sweep.transfer.max(1));
        let undone = u128::from(on_cpu.left.saturating_sub(left));
        let share = (undone * u128::from(CERTAIN) / total) as u32;
        // A remainder smaller than a unit of CERTAIN waits for the next time.
        let done = (u128::from(share) * total / u128::from(CERTAIN)) as u64;
        on_cpu.left -= done;
        if let Some(visit) = sweep.visits.iter_mut().find(|visit| visit.llc == llc) {
            visit.share = (visit.share + share).min(CERTAIN);
            visit.l2_share = (visit.l2_share + share).min(CERTAIN);
        }
        for (slice, &(past_l2, past_llc)) in sweep.slices.iter().zip(&on_cpu.misses) {
            let filled = |missed: u32| (slice.bytes * u64::from(both(share, missed))) >> 16;
            self.l2_fills[core as usize] += filled(past_l2);
            self.llc_fills[llc as usize] += filled(past_llc);
        }
        let home = self.machine.cpus[cpu].node as u16;
        let of_task = &mut self.tasks[task.index()].accessed;
        if self.by_task && of_task.is_empty() {
            of_task.resize(self.machine.nodes.len(), Accessed::default());
        }
        for &(node, from) in &on_cpu.nodes {
            let bytes = bytes_from(from, done);
            match node == home {
                true => self.local_bytes += bytes,
                false => self.remote_bytes += bytes,
            }
            if let Some(accessed) = of_task.get_mut(usize::from(node)) {
                accessed.add(node == home, bytes);
            }
        }
    }

    /// Adds what the sweep on `cpu` has transferred but not accounted. `left` is still to be
    /// transferred.
    pub(super) fn add_undone(&self, cpu: CpuId, left: u64, accessed: &mut Accessed) {
        let on_cpu = &self.running[cpu];
        if !on_cpu.is_busy() {
            return;
        }
        let done = on_cpu.left.saturating_sub(left);
        let home = self.machine.cpus[cpu].node as u16;
        for &(node, from) in &on_cpu.nodes {
            accessed.add(node == home, bytes_from(from, done));
        }
    }

    /// The sweep of `task` on `cpu` is complete. Its regions are now warm where it was made.
    pub(crate) fn finish(&mut self, cpu: CpuId, task: TaskId) {
        self.pause(cpu, 0);
        let mut sweep = std::mem::replace(&mut self.tasks[task.index()].sweep, Sweep::none());
        if let [only] = &mut sweep.visits[..] {
            // Corrects the rounding error of the total.
            only.share = CERTAIN;
        }
        sweep.bound = false;
        let llc = self.machine.cpus[cpu].llc;
        for slice in &sweep.slices {
            self.leave_warm(llc, &sweep.visits, slice);
        }
        self.tasks[task.index()].sweep = sweep;
    }

    /// A sweep over `slice` ended in `llc`, after these visits.
    fn leave_warm(&mut self, llc: u32, visits: &[Visit], slice: &SliceOf) {
        let region = &mut self.regions[slice.region as usize];
        if slice.write {
            for warmth in &mut region.llcs {
                warmth.share = 0;
            }
        }
        for visit in visits {
            let capacity = self.machine.llc_bytes(visit.llc as usize);
            let warmth = &mut region.llcs[visit.llc as usize];
            let since = visit.fills.saturating_sub(warmth.fills);
            let kept = both(warmth.share, survival(since, capacity));
            let share = visit.share + both(CERTAIN - visit.share, kept);
            *warmth = Warmth { share, fills: visit.fills };
            if visit.llc == llc {
                region.core = visit.core;
                region.l2 = Warmth { share: visit.l2_share, fills: visit.l2_fills };
            }
        }
    }

    /// Sets the bandwidth that the sweep on `cpu` wants. The CPU gets `speed_1024` of its core,
    /// which is 1024 without busy siblings.
    pub(super) fn price(&mut self, cpu: CpuId, speed_1024: u16) {
        if !self.running[cpu].is_busy() {
            return self.bandwidth.set(cpu, 0, false, &[]);
        }
        let alone = self.alone(cpu, speed_1024, |_| 0);
        self.running[cpu].alone = alone;
        let mut uses = std::mem::take(&mut self.uses);
        uses.clear();
        Resources { memory: self, cpu }.add_uses(&self.running[cpu].nodes, &mut uses);
        let waits = self.pattern(cpu) == Some(Pattern::Chase);
        self.bandwidth.set(cpu, self.memory_part(cpu, alone), waits, &uses);
        self.uses = uses;
    }

    /// The part of a sweep's `speed` on `cpu` that comes from memory.
    fn memory_part(&self, cpu: CpuId, speed: u64) -> u64 {
        let memory = u128::from(self.running[cpu].memory());
        let part = (u128::from(speed) * memory).div_ceil(u128::from(CERTAIN));
        (part as u64).max(1)
    }

    /// Shares bandwidth again among the sweeps that compete with `concerned`, and adds them to it.
    pub(super) fn share(&mut self, concerned: &mut Vec<CpuId>) {
        let mut bandwidth = std::mem::take(&mut self.bandwidth);
        bandwidth.solve(concerned, |felt, cpu| self.memory_part(cpu, self.chase_alone(felt, cpu)));
        self.bandwidth = bandwidth;
    }

    /// Speed of the chase on `cpu` at the loads that it feels.
    fn chase_alone(&self, felt: &Bandwidth, cpu: CpuId) -> u64 {
        self.alone(cpu, 1024, |node| self.wait_ns(felt, cpu, node))
    }

    /// Speed of a sweep without competition, bytes per microsecond. A line from a node takes
    /// `wait_ns(node)` longer than on an idle machine.
    fn alone(&self, cpu: CpuId, speed: u16, wait_ns: impl Fn(u16) -> u64) -> u64 {
        let (figures, on_cpu) = (&self.machine.figures, &self.running[cpu]);
        let home = self.machine.cpus[cpu].node as usize;
        // Time for a share of 2^40 bytes.
        let streamed =
            |share: u32, bytes_per_us: u64| (u64::from(share) << TIME_BITS) / bytes_per_us.max(1);
        let chased =
            |share: u32, ns: u64| ((u64::from(share) * ns) << TIME_BITS) / (LINE_BYTES * 1000);
        let time = match self.pattern(cpu) {
            Some(Pattern::Chase) => {
                let memory = on_cpu.nodes.iter().map(|&(node, share)| {
                    let idle = self.tables.latency_ns[home][usize::from(node)];
                    chased(share, idle + wait_ns(node))
                });
                chased(on_cpu.l2, figures.l2_latency_ns.value)
                    + chased(on_cpu.llc, figures.llc_latency_ns.value)
                    + memory.sum::<u64>()
            }
            _ => {
                let memory = on_cpu.nodes.iter().map(|&(node, share)| {
                    streamed(share, self.tables.core_bytes_per_us[home][usize::from(node)])
                });
                let caches = streamed(on_cpu.l2, figures.l2_bytes_per_us.value)
                    + streamed(on_cpu.llc, figures.refill_llc_bytes_per_us.value);
                let beside_sibling = |time: u64| time * 1024 / u64::from(speed.max(1));
                let transfers = beside_sibling(caches) + memory.sum::<u64>();
                transfers.max(beside_sibling(self.core_time(cpu)))
            }
        };
        ((1 << 40) / time.max(1)).max(1)
    }

    /// The time of the instructions of the sweep on `cpu` for 2^40 bytes, us.
    fn core_time(&self, cpu: CpuId) -> u64 {
        self.running[cpu].task.map_or(0, |task| self.tasks[task.index()].sweep.core_time())
    }

    /// The pattern of the sweep on `cpu`.
    fn pattern(&self, cpu: CpuId) -> Option<Pattern> {
        self.running[cpu].task.map(|task| self.tasks[task.index()].sweep.pattern)
    }

    /// The present speed of the sweep on `cpu`, bytes per microsecond.
    pub(super) fn rate(&self, cpu: CpuId) -> Option<u32> {
        let on_cpu = &self.running[cpu];
        let pattern = self.pattern(cpu)?;
        // The share from memory arrives at the flow's rate, all other data in proportion.
        let whole = self.bandwidth.rate(cpu) << 16;
        let held_back = whole.checked_div(u64::from(on_cpu.memory()));
        let mut rate = on_cpu.alone.min(held_back.unwrap_or(u64::MAX));
        if pattern == Pattern::Chase {
            rate = rate.min(self.chase_alone(&self.bandwidth, cpu));
        }
        Some(rate.clamp(1, u32::MAX.into()) as u32)
    }

    /// How long a line from `node` waits for others: M/D/1 with the load of the busiest of the node
    /// and the links to it. The load counts as at most 31/32.
    fn wait_ns(&self, felt: &Bandwidth, cpu: CpuId, node: u16) -> u64 {
        let resources = Resources { memory: self, cpu };
        let links = resources.links(node).map(|link| felt.felt_1024(link.resource));
        let load = links.fold(felt.felt_1024(resources.node(node)), u64::max).min(MOST_FELT);
        self.machine.figures.memory_service_ns.value * load / (2 * (1024 - load))
    }

    /// Time for the kernel on `cpu` to copy `bytes` from one node to another, ns. The rate is at
    /// most the bandwidth share that one more stream would get now. Written data is fetched first.
    pub(super) fn copy_ns(&self, cpu: CpuId, bytes: u64, from: usize, to: usize) -> u64 {
        let home = self.machine.cpus[cpu].node as usize;
        let speed = |node: usize| self.tables.core_bytes_per_us[home][node].max(1);
        let alone_ns = bytes * 1000 / speed(from) + 2 * bytes * 1000 / speed(to);
        let mut uses = Vec::new();
        Resources { memory: self, cpu }.add_uses(&[(from as u16, 1), (to as u16, 2)], &mut uses);
        let share = self.bandwidth.share_of_another(&uses, cpu).max(1);
        alone_ns.max(3 * bytes * 1000 / share)
    }

    /// CPUs with a sweep over `region`.
    pub(super) fn users(&self, region: u32) -> Vec<CpuId> {
        let uses = |cpu: &CpuId| {
            self.running[*cpu].task.is_some_and(|task| {
                let slices = &self.tasks[task.index()].sweep.slices;
                slices.iter().any(|slice| slice.region == region)
            })
        };
        (0..self.running.len()).filter(uses).collect()
    }
}
