//! The cost of memory: pages on nodes, caches that warm up and cool down, and shared bandwidth.
//!
//! A task that executes [`Op::Access`] makes a *sweep*: it touches every byte of some regions once.
//! Its speed follows from four questions. They are asked when the sweep begins, when the task gets
//! a CPU in the middle of it, and whenever an answer changes:
//!
//! 1. **Where are the pages?** Placed at the first touch by the region's policy, later moved
//!    (`pages.rs`).
//! 2. **What do caches still hold?** After the last sweep the L2 and the LLC of the CPU held a share
//!    of the region. A part of it has survived later fills (`cache.rs`). All other data comes from
//!    the nodes that hold the pages.
//! 3. **How fast could the core go alone?** Time per byte is the sum over the levels of share over
//!    bandwidth ([`Pattern::Stream`]) or of share times latency over 64 bytes
//!    ([`Pattern::Chase`]): transfers through the levels do not overlap (ECM model: Treibig and
//!    Hager 2010; on AMD's cores they overlap in part, so this is too slow there). A busy SMT
//!    sibling slows cache hits.
//! 4. **What do other tasks leave of the bandwidth** of the core, the link of the LLC, the nodes and
//!    the links between packages (`routes.rs`)? Shares are max-min fair (`bandwidth.rs`). A chase
//!    waits for each line, so it feels load earlier: at utilisation `u` of the node or link on the
//!    way, a line takes `u / (2 (1 - u))` service times longer (M/D/1: Kleinrock, Queueing Systems
//!    I, 5.6). `u` follows from the resulting rates of chases, because other sweeps use the
//!    bandwidth that chases give up.
//!
//! After the sweep the region is warm where the sweep was made. If it was written, it is warm
//! nowhere else. Refilling after a migration needs no constant of its own: it is a sweep that hits
//! nothing.
//!
//! A written byte counts twice, because it is fetched and written back. `docs/memory-model.md` has
//! the formulas with units and sources. Tasks without sweeps cost nothing here: a workload without
//! regions has no [`Memory`] at all.
//!
//! [`Op::Access`]: roost_workload::Op::Access
//! [`Pattern::Stream`]: roost_workload::Pattern::Stream
//! [`Pattern::Chase`]: roost_workload::Pattern::Chase

mod audit;
mod bandwidth;
mod cache;
mod hints;
mod mappings;
mod pages;
mod routes;
mod sweep;

use std::sync::Arc;

use roost_machine::{Machine, PAGE_BYTES};
use roost_workload::{Access, Placement, Sharing, Workload};

use crate::record::{Accessed, MemoryNow};
use crate::scheduler::{CpuId, LastAccess, TaskId};
use crate::task::Activity;
use crate::world::World;
use bandwidth::{Bandwidth, Use};
use cache::CERTAIN;
pub(crate) use hints::Found;
pub use hints::{Area, Followed, Marked};
use hints::{Marks, Moving, PageMove, Space, Stop};
pub use mappings::Mapping;
pub use pages::GROUP_PAGES;
use pages::{Nodes, Pages, Policy};
use sweep::{OnCpu, Sweep};

/// A cache line, bytes.
const LINE_BYTES: u64 = 64;

/// Groups of pages that a task touches before other tasks have their turn: 4 MiB.
const TOUCHED_AT_ONCE: usize = 16;

/// The memory of a machine, and its users.
pub(crate) struct Memory {
    machine: Arc<Machine>,
    tables: Tables,
    nodes: Nodes,
    /// The workload's regions, with dense node numbers.
    specs: Vec<Spec>,
    /// Instances of regions. Those in `free` are not in use.
    regions: Vec<Region>,
    free: Vec<u32>,
    /// For each of the workload's shared regions: its instance.
    shared: Vec<Option<u32>>,
    /// Tasks, by number.
    tasks: Vec<TaskMemory>,
    /// Sweeps under way, by CPU.
    running: Vec<OnCpu>,
    bandwidth: Bandwidth,
    /// CPUs whose sweep began, ended or changed since bandwidth was shared.
    pending: Vec<CpuId>,
    /// Buffer of [`Memory::price`].
    uses: Vec<Use>,
    /// Bytes filled into each LLC and each L2 (by core) so far.
    llc_fills: Vec<u64>,
    l2_fills: Vec<u64>,
    /// Bytes from the CPU's own node, and from other nodes.
    local_bytes: u64,
    remote_bytes: u64,
    /// Whether an observer asks what each task transferred.
    pub(crate) by_task: bool,
    pages_migrated: u64,
    /// Processes, by number.
    spaces: Vec<Space>,
    /// Number of marked groups of pages, of all processes.
    marked: usize,
    /// Moves of huge pages that are under way.
    moves: Vec<PageMove>,
    /// Groups of 4 KiB pages that are moving, and some that have moved.
    moving: Vec<Moving>,
    /// Memory is mapped in huge pages.
    huge: bool,
    /// Number of marked pages, of pages of hinting faults, and of those that were on the CPU's
    /// node.
    pte_updates: u64,
    hint_faults: u64,
    hint_faults_local: u64,
}

/// A region as the workload describes it.
struct Spec {
    bytes: u64,
    own: bool,
    /// Whether tasks of several processes may use it.
    between_processes: bool,
    policy: Policy,
}

/// One piece of memory.
struct Region {
    bytes: u64,
    pages: Pages,
    /// What each LLC holds of it.
    llcs: Vec<Warmth>,
    /// What the L2 of the core that last touched it holds of it.
    core: u32,
    l2: Warmth,
    /// Hinting marks, one set per process that maps it.
    marks: Vec<Marks>,
    /// The task that last touched each group, according to hinting faults; empty before the first
    /// one.
    last: Vec<Option<LastAccess>>,
    /// Pages moved since the sweeps over it were last priced.
    moved: u64,
}

/// What a cache held after a sweep.
#[derive(Clone, Copy, Debug, Default)]
struct Warmth {
    /// Share of the region, in units of [`CERTAIN`].
    share: u32,
    /// Fills of the cache when the sweep began. The next sweep touches a line at the same distance
    /// from its own beginning. So a line has survived the fills between the two beginnings.
    fills: u64,
}

/// The memory model's state of a task.
struct TaskMemory {
    /// The task's own regions: number in the workload, and instance.
    own: Vec<(u32, u32)>,
    /// The current sweep, or the last one.
    sweep: Sweep,
    /// The point at which the sweep reaches the next mark.
    stop: Option<Stop>,
    /// Bytes transferred, by node; empty if no observer asks for them.
    accessed: Vec<Accessed>,
}

impl TaskMemory {
    const NEW: Self =
        Self { own: Vec::new(), sweep: Sweep::none(), stop: None, accessed: Vec::new() };
}

/// Figures of the machine, as tables for quick access.
struct Tables {
    /// Latency and bandwidth of a core from each node (columns) to the CPUs of each (rows).
    latency_ns: Vec<Vec<u64>>,
    core_bytes_per_us: Vec<Vec<u64>>,
    /// The package of each node's memory.
    package: Vec<usize>,
    /// Number of packages; a node without a package counts as one.
    packages: usize,
    /// The links through which each package (rows) reaches the memory of every other one.
    routes: Vec<Vec<Use>>,
}

impl Tables {
    fn new(machine: &Machine) -> Self {
        let nodes = 0..machine.nodes.len();
        let table = |value: &dyn Fn(usize, usize) -> u64| -> Vec<Vec<u64>> {
            nodes.clone().map(|from| nodes.clone().map(|to| value(from, to)).collect()).collect()
        };
        let package: Vec<usize> = nodes.clone().map(|node| machine.node_package(node)).collect();
        let packages = package.iter().max().map_or(0, |&last| last + 1).max(machine.packages);
        let costs = machine.memory_costs();
        Self {
            latency_ns: table(&|from, to| costs.latency_ns(from, to)),
            core_bytes_per_us: table(&|from, to| costs.core_bytes_per_us(from, to)),
            routes: routes::between(machine, &package, packages),
            packages,
            package,
        }
    }
}

/// What [`Memory::new`] was asked for but the machine does not have.
pub(crate) enum Unavailable {
    /// A node, with the operating system's number.
    Node(u32),
    /// This many bytes in total.
    Bytes { wanted: u64, there: u64 },
}

impl Memory {
    /// The memory of `machine` for this workload; `None` if the workload uses none.
    pub(crate) fn new(
        machine: &Arc<Machine>,
        workload: &Workload,
    ) -> Result<Option<Self>, Unavailable> {
        if workload.regions.is_empty() {
            return Ok(None);
        }
        let specs = (workload.regions.iter())
            .map(|region| {
                Ok(Spec {
                    bytes: region.bytes,
                    own: region.sharing == Sharing::Thread,
                    between_processes: region.sharing == Sharing::Processes,
                    policy: policy(machine, &region.placement)?,
                })
            })
            .collect::<Result<Vec<Spec>, Unavailable>>()?;
        check_size(machine, workload)?;
        let tables = Tables::new(machine);
        Ok(Some(Self {
            bandwidth: Bandwidth::new(limits(machine, tables.packages), machine.nr_cpus()),
            nodes: Nodes::new(machine),
            shared: vec![None; specs.len()],
            specs,
            regions: Vec::new(),
            free: Vec::new(),
            tasks: Vec::new(),
            running: (0..machine.nr_cpus()).map(|_| OnCpu::default()).collect(),
            uses: Vec::new(),
            pending: Vec::new(),
            llc_fills: vec![0; machine.llcs.len()],
            l2_fills: vec![0; machine.cores.len()],
            local_bytes: 0,
            remote_bytes: 0,
            by_task: false,
            pages_migrated: 0,
            spaces: Vec::new(),
            marked: 0,
            moves: Vec::new(),
            moving: Vec::new(),
            huge: false,
            pte_updates: 0,
            hint_faults: 0,
            hint_faults_local: 0,
            tables,
            machine: machine.clone(),
        }))
    }

    /// The instance of a region that `task` of `process` uses.
    fn instance(&mut self, process: u32, task: TaskId, region: u32) -> u32 {
        let spec = &self.specs[region as usize];
        let known = match spec.own {
            true => {
                let own = &self.tasks[task.index()].own;
                own.iter().find(|(number, _)| *number == region).map(|(_, instance)| *instance)
            }
            false => self.shared[region as usize],
        };
        let (own, between) = (spec.own, spec.between_processes);
        if let Some(instance) = known {
            if between && !self.is_mapped(process, instance) {
                self.map(process, instance, own, between);
            }
            return instance;
        }
        let new = Region {
            bytes: spec.bytes,
            pages: Pages::new(spec.bytes, spec.policy.clone(), &self.nodes),
            llcs: vec![Warmth::default(); self.machine.llcs.len()],
            core: 0,
            l2: Warmth::default(),
            marks: Vec::new(),
            last: Vec::new(),
            moved: 0,
        };
        let instance = match self.free.pop() {
            Some(instance) => {
                self.regions[instance as usize] = new;
                instance
            }
            None => {
                self.regions.push(new);
                self.regions.len() as u32 - 1
            }
        };
        match own {
            true => self.tasks[task.index()].own.push((region, instance)),
            false => self.shared[region as usize] = Some(instance),
        }
        self.map(process, instance, own, between);
        instance
    }

    /// `task` of `process` is about to begin a sweep on `cpu`. Touches the next pages that no task
    /// has touched. Returns how many; 0 when none are left.
    pub(crate) fn touch(&mut self, cpu: CpuId, process: u32, task: TaskId, access: &Access) -> u64 {
        if self.tasks.len() <= task.index() {
            self.tasks.resize_with(task.index() + 1, || TaskMemory::NEW);
        }
        let node = self.machine.cpus[cpu].node as usize;
        for slice in &access.slices {
            let instance = self.instance(process, task, slice.region) as usize;
            let pages = &mut self.regions[instance].pages;
            while !pages.is_touched() {
                let placed = pages.touch(node, &mut self.nodes, TOUCHED_AT_ONCE);
                if placed > 0 {
                    return placed;
                }
            }
        }
        0
    }

    /// `task` of `process` begins a sweep on `cpu`. Returns what is to be transferred, in bytes /
    /// 1000.
    pub(crate) fn begin(&mut self, cpu: CpuId, process: u32, task: TaskId, access: &Access) -> u64 {
        self.tasks[task.index()].sweep.begin(access);
        for slice in &access.slices {
            let instance = self.instance(process, task, slice.region);
            let bytes = self.regions[instance as usize].bytes;
            self.tasks[task.index()].sweep.add(instance, bytes, slice.write);
        }
        let transfer = self.tasks[task.index()].sweep.transfer();
        self.resume(cpu, task, transfer);
        transfer
    }

    /// `task` has exited. Frees its own memory.
    pub(crate) fn task_exit(&mut self, task: TaskId) {
        let Some(gone) = self.tasks.get_mut(task.index()) else { return };
        for (_, instance) in std::mem::replace(gone, TaskMemory::NEW).own {
            self.unmap(instance);
            self.regions[instance as usize].pages.release(&mut self.nodes);
            self.free.push(instance);
        }
    }

    /// What `task` transferred, by node; empty if nothing.
    pub(crate) fn accessed(&self, task: TaskId) -> &[Accessed] {
        self.tasks.get(task.index()).map_or(&[], |task| &task.accessed)
    }

    /// Name and value of every counter, with the kernel's names if it has them (numastat, vmstat).
    pub(crate) fn counters(&self, sink: &mut dyn FnMut(&str, u64)) {
        sink("numa_hit", self.nodes.hit);
        sink("numa_miss", self.nodes.miss);
        sink("numa_pte_updates", self.pte_updates);
        sink("numa_hint_faults", self.hint_faults);
        sink("numa_hint_faults_local", self.hint_faults_local);
        sink("numa_pages_migrated", self.pages_migrated);
        sink("memory_local_bytes", self.local_bytes);
        sink("memory_remote_bytes", self.remote_bytes);
    }
}

impl Memory {
    /// Whether a sweep began, ended or changed since bandwidth was shared.
    #[inline]
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The speed of `cpu`'s core changed: prices its sweep again.
    #[cold]
    pub(crate) fn reprice(&mut self, cpu: CpuId) {
        if self.running[cpu].is_busy() {
            self.pending.push(cpu);
        }
    }

    /// Time for the kernel on `cpu` to move `pages` pages to another node, and to unmap and map
    /// `entries` entries for them, ns.
    fn migrate_ns(&self, cpu: CpuId, pages: u64, entries: u64, from: usize, to: usize) -> u64 {
        let figures = &self.machine.figures;
        let copy_ns = figures.page_copy_ns.value;
        let bytes = pages * PAGE_BYTES;
        let copying = (pages * copy_ns).max(self.copy_ns(cpu, bytes, from, to));
        entries * figures.page_migrate_ns.value.saturating_sub(copy_ns) + copying
    }
}

impl World {
    /// Shares bandwidth again after sweeps began, ended or changed. Settles the tasks whose speed
    /// changes.
    #[cold]
    pub(crate) fn share_bandwidth(&mut self) {
        let Some(mut memory) = self.memory.take() else { return };
        let mut concerned = std::mem::take(&mut memory.pending);
        for &cpu in &concerned {
            memory.price(cpu, self.core_share(cpu));
        }
        memory.share(&mut concerned);
        for &cpu in &concerned {
            if let Some(rate) = memory.rate(cpu) {
                self.set_sweep_rate(cpu, rate);
            }
        }
        concerned.clear();
        memory.pending = concerned;
        self.memory = Some(memory);
    }

    fn set_sweep_rate(&mut self, cpu: CpuId, new: u32) {
        let Some(task) = self.cpus[cpu].current else { return };
        match self.tasks[task.index()].activity {
            Activity::Sweep { rate, .. } if rate != new => self.settle(cpu),
            _ => return,
        }
        if let Activity::Sweep { rate, .. } = &mut self.tasks[task.index()].activity {
            *rate = new;
        }
        self.mark_stale(cpu);
    }

    /// Updates sweeps because a task leaves or gets `cpu`, maybe in the middle of a sweep.
    #[cold]
    pub(crate) fn switch_memory(&mut self, cpu: CpuId, previous: Option<TaskId>) {
        let before = previous.and_then(|task| self.left_of_sweep(task));
        if let (Some(left), Some(memory)) = (before, &mut self.memory) {
            memory.pause(cpu, left);
        }
        let Some(task) = self.cpus[cpu].current else { return };
        let Some(left) = self.left_of_sweep(task) else { return };
        self.account_llc(cpu);
        if let Some(memory) = &mut self.memory {
            memory.resume(cpu, task, left);
        }
        self.find_stop(cpu, task);
    }

    /// What is left to transfer in a task's sweep, if it makes one.
    fn left_of_sweep(&self, task: TaskId) -> Option<u64> {
        match self.tasks[task.index()].activity {
            Activity::Sweep { left, .. } => Some(left),
            _ => None,
        }
    }

    /// Where memory is now. Changes nothing.
    pub(crate) fn memory_now(&self) -> Option<MemoryNow> {
        let memory = self.memory.as_deref()?;
        let mut accessed =
            Accessed { local_bytes: memory.local_bytes, remote_bytes: memory.remote_bytes };
        for cpu in 0..self.nr_cpus() {
            if let Some(left) = self.left_of_sweep_now(cpu) {
                memory.add_undone(cpu, left, &mut accessed);
            }
        }
        let mut node_pages = vec![0; self.machine.nodes.len()];
        for region in &memory.regions {
            node_pages.iter_mut().zip(region.pages.on()).for_each(|(sum, on)| *sum += on);
        }
        Some(MemoryNow { node_pages, accessed })
    }

    /// As [`World::left_of_sweep`] for `cpu`'s task, as if the task were settled.
    fn left_of_sweep_now(&self, cpu: CpuId) -> Option<u64> {
        let state = &self.cpus[cpu];
        let task = &self.tasks[state.current?.index()];
        let Activity::Sweep { rate, left, .. } = task.activity else { return None };
        let elapsed = self.now.since(state.progress_from);
        let swept = (elapsed - elapsed.min(task.refill_ns)).saturating_mul(u64::from(rate));
        Some(left.saturating_sub(swept))
    }

    /// Accounts the sweeps under way in `cpu`'s LLC, before the contents of the LLC are read.
    pub(crate) fn account_llc(&mut self, cpu: CpuId) {
        let machine = self.machine.clone();
        for other in machine.llc_cpus(cpu).iter().filter(|&other| other != cpu) {
            let busy = |memory: &Memory| memory.running[other].is_busy();
            if !self.memory.as_deref().is_some_and(busy) {
                continue;
            }
            self.settle(other);
            let left = self.cpus[other].current.and_then(|task| self.left_of_sweep(task));
            if let (Some(left), Some(memory)) = (left, &mut self.memory) {
                memory.account(other, left);
            }
        }
    }

    /// `cpu` moves groups of 64 pages of a region (numbered in the order of first use) to `node`,
    /// while that node has room. Its kernel works for the machine's `page_migrate_ns` per page, or
    /// longer if the copy shares bandwidth. It works on behalf of the current task, which may be
    /// preempted between two pages. Returns how many pages moved.
    pub fn move_pages(
        &mut self,
        cpu: CpuId,
        region: u32,
        groups: std::ops::Range<usize>,
        node: usize,
    ) -> u64 {
        let Some(memory) = &mut self.memory else { return 0 };
        let (mut moved, mut cost) = (0, 0);
        for group in groups {
            let pages = &mut memory.regions[region as usize].pages;
            let Some(from) = pages.node(group) else { continue };
            let pages = pages.relocate(group..group + 1, node, &mut memory.nodes);
            moved += pages;
            cost += match pages {
                0 => 0,
                _ => memory.migrate_ns(cpu, pages, pages, from, node),
            };
        }
        memory.pages_migrated += moved;
        self.reprice_region(region);
        self.charge_copying(cpu, cost);
        moved
    }

    /// Pages of a region have moved: prices the sweeps over it again.
    fn reprice_region(&mut self, region: u32) {
        let Some(memory) = &self.memory else { return };
        for user in memory.users(region) {
            self.settle(user);
            let current = self.cpus[user].current;
            self.switch_memory(user, current);
        }
    }
}

/// Limits of all resources, in the order of `sweep::Resources`.
fn limits(machine: &Machine, packages: usize) -> Vec<u64> {
    let figures = &machine.figures;
    let cores = machine.cores.iter().map(|_| figures.refill_local_bytes_per_us.value);
    let links = machine.llcs.iter().map(|_| figures.llc_link_bytes_per_us.value);
    let nodes = (0..machine.nodes.len()).map(|node| machine.node_bytes_per_us(node));
    let between = (0..packages * packages).map(|_| figures.package_link_bytes_per_us.value);
    cores.chain(links).chain(nodes).chain(between).collect()
}

/// A placement, with dense node numbers.
fn policy(machine: &Machine, placement: &Placement) -> Result<Policy, Unavailable> {
    let node = |wanted: &u32| {
        let found = machine.nodes.iter().position(|node| node.os_index == *wanted);
        found.map(|node| node as u16).ok_or(Unavailable::Node(*wanted))
    };
    let all = |list: &[u32]| list.iter().map(node).collect::<Result<Vec<u16>, Unavailable>>();
    Ok(match placement {
        Placement::FirstTouch => Policy::FirstTouch,
        Placement::Preferred(wanted) => Policy::Preferred(node(wanted)?),
        Placement::Bind(list) => Policy::Bind(all(list)?),
        Placement::Interleave(list) => Policy::Interleave(all(list)?),
        Placement::Spread(list) => Policy::Spread(all(list)?),
    })
}

/// Rejects a workload that needs more memory than the machine has. Regions of a thread count once
/// for each task that starts; the regions of tasks forked later are not known here.
fn check_size(machine: &Machine, workload: &Workload) -> Result<(), Unavailable> {
    let sizes: Option<Vec<u64>> = machine.nodes.iter().map(|node| node.memory_bytes).collect();
    let Some(sizes) = sizes else { return Ok(()) };
    let there: u64 = sizes.iter().sum();
    let pages = |bytes: u64| u128::from(bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES);
    let mut wanted = 0;
    for (number, region) in (0u32..).zip(&workload.regions) {
        let uses = |(template, _): &&(u32, u32)| {
            let accesses = &workload.templates[*template as usize].program.accesses;
            accesses.iter().flat_map(|access| &access.slices).any(|slice| slice.region == number)
        };
        let users: u128 = workload.start.iter().filter(uses).map(|(_, n)| u128::from(*n)).sum();
        wanted += match region.sharing {
            Sharing::Thread => pages(region.bytes) * users,
            Sharing::Process(_) | Sharing::Processes => pages(region.bytes) * users.min(1),
        };
    }
    match wanted > u128::from(there) {
        true => Err(Unavailable::Bytes { wanted: wanted.try_into().unwrap_or(u64::MAX), there }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use roost_workload::{Op, Pattern, Region as RegionSpec, Slice};

    use super::*;
    use crate::events::Event;
    use crate::time::Time;

    const MIB: u64 = 1 << 20;

    /// A world in which task 0 streams over 64 MiB on CPU 0 of Genoa. The memory is on that node.
    fn streaming() -> World {
        let machine = Arc::new(roost_machine::resolve("zen4-2s").unwrap());
        let text = r#"{ "tasks": { "t": { "loop": 1, "mem": 1 } } }"#;
        let mut workload = roost_workload::rtapp::parse(text, "f").unwrap();
        assert!(workload.templates[0].program.ops.contains(&Op::Access(0)));
        workload.regions[0] = RegionSpec { bytes: 64 * MIB, ..workload.regions[0].clone() };
        let access = Access::new(vec![Slice { region: 0, write: false }], Pattern::Stream);
        let mut memory = Memory::new(&machine, &workload).ok().flatten().unwrap();
        let mut world = World::for_test(machine, 1);
        let task = TaskId(0);
        world.set_current_for_test(0, Some(task));
        let touched = std::iter::repeat_with(|| memory.touch(0, 0, task, &access));
        assert_eq!(touched.take_while(|&pages| pages > 0).sum::<u64>(), 64 * MIB / PAGE_BYTES);
        let left = memory.begin(0, 0, task, &access);
        world.tasks[0].activity = Activity::Sweep { rate: 0, left, until: 0 };
        world.memory = Some(Box::new(memory));
        world.rearm_stale();
        world
    }

    fn rate(world: &World) -> u32 {
        match world.tasks[0].activity {
            Activity::Sweep { rate, .. } => rate,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pages_that_move_under_a_sweep_change_its_speed_and_cost_their_mover() {
        let mut world = streaming();
        // Published: 37.5 GB/s local, 30.4 GB/s remote.
        assert!(rate(&world).abs_diff(37_500) < 40, "{}", rate(&world));
        world.set_now_for_test(Time(1_000_000));
        let moved = world.move_pages(40, 0, 0..128, 1);
        assert_eq!(moved, 128 * 64);
        assert_eq!(world.backlog_ns(40), moved * world.machine().figures.page_migrate_ns.value);
        world.rearm_stale();
        // Half of the lines at 37.5 GB/s, half at 30.4 GB/s.
        let half = 2.0 / (1.0 / 37_500.0 + 1.0 / 30_400.0);
        assert!(rate(&world).abs_diff(half as u32) < 40, "{} for {half}", rate(&world));
        assert!(world.events.is_pending(Event::RunEnd(0)));
        let before = |world: &World| world.left_of_sweep(TaskId(0)).unwrap();
        let expected = 64 * MIB * 1000 - 1_000_000 * 37_500;
        assert!(before(&world).abs_diff(expected) < 64 * MIB, "settled before the change");
        assert_eq!(world.move_pages(5, 0, 0..256, 1), 128 * 64, "the others");
        assert_eq!(world.move_pages(5, 0, 0..256, 1), 0, "none is left");
        world.rearm_stale();
        assert!(rate(&world).abs_diff(30_400) < 40, "{}", rate(&world));
    }

    #[test]
    fn a_program_sees_where_the_pages_of_a_process_are() {
        let mut world = streaming();
        let pages = 64 * MIB / PAGE_BYTES;
        assert_eq!(world.mappings(0), [Mapping { region: 0, pages, own: true }]);
        assert_eq!(world.mappings(1), []);
        let free = [0, 1].map(|node| world.free_pages(node));
        world.move_pages(40, 0, 0..1, 1);
        let last = GROUP_PAGES - 1;
        let nodes = [0, last, last + 1, pages - 1, pages].map(|page| world.page_node(0, page));
        assert_eq!(nodes, [Some(1), Some(1), Some(0), Some(0), None]);
        assert_eq!(world.region_by_node(0)[..2], [pages - GROUP_PAGES, GROUP_PAGES]);
        let now_free = [0, 1].map(|node| world.free_pages(node));
        assert_eq!(now_free, [free[0] + GROUP_PAGES, free[1] - GROUP_PAGES]);
    }

    #[test]
    #[should_panic = "pages used of each node, and of regions there"]
    fn pages_of_a_node_are_those_of_regions() {
        let mut world = streaming();
        let memory = world.memory.as_mut().unwrap();
        memory.audit(Time(0));
        let mut of_nobody = pages::Pages::new(MIB, pages::Policy::FirstTouch, &memory.nodes);
        of_nobody.touch(0, &mut memory.nodes, 1);
        memory.audit(Time(0));
    }

    #[test]
    fn a_task_gives_its_own_memory_back() {
        let mut world = streaming();
        let memory = world.memory.as_mut().unwrap();
        let on = |memory: &Memory| memory.regions[0].pages.on().iter().sum::<u64>();
        assert_eq!(on(memory), 64 * MIB / PAGE_BYTES);
        memory.finish(0, TaskId(0));
        memory.task_exit(TaskId(0));
        assert_eq!((on(memory), memory.free.len()), (0, 1));
    }
}
