//! Sums of task time by CPU, and by LLC for tasks that have their name, process or cgroup in common.

use indexmap::IndexSet;
use roost_engine::{CpuId, TraceTask};
use roost_machine::Machine;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::recorder::Kind;
use super::{By, Occupancy, TaskGroup};

/// Number of groups of each kind that are kept apart, in order of appearance. All others share one group.
const MOST_GROUPS: usize = 16;
/// The name of the group or entry that the others share.
pub(super) const OTHERS: &str = "others";

/// The groups of a task, by kind.
type Groups = [Option<u16>; 3];

/// The index of each group by kind and key.
#[derive(Default)]
struct Known {
    names: FxHashMap<String, u16>,
    processes: FxHashMap<u32, u16>,
    cgroups: FxHashMap<u32, u16>,
    /// The group that all others share, by kind.
    others: Groups,
}

/// A set of groups that some task has: the number of its first place in [`Places::by_set`].
#[derive(Clone, Copy, Default)]
pub(super) struct Set(u32);

/// Time that tasks ran and waited, in ns.
type Spent = [u64; 2];

/// Task time by window: of all tasks by CPU, and of groups of tasks by LLC.
pub(super) struct Places {
    nr_llcs: usize,
    cpus: Occupancy,
    groups: Vec<TaskGroup>,
    known: Known,
    /// The sets of groups that some task has.
    sets: IndexSet<Groups, FxBuildHasher>,
    /// The last window that had a task.
    window: usize,
    /// The LLC of each CPU, and the sums of that window. They are added to the grids when the window is over, because
    /// that is cheaper than adding each span of time to several grids.
    by_cpu: Vec<(u32, Spent)>,
    /// The same sums by set and LLC.
    by_set: Vec<Spent>,
}

impl Places {
    pub fn new(machine: &Machine) -> Self {
        let nr_llcs = machine.llcs.len();
        Self {
            nr_llcs,
            cpus: Occupancy::new(machine.nr_cpus()),
            groups: Vec::new(),
            known: Known::default(),
            sets: IndexSet::default(),
            window: 0,
            by_cpu: machine.cpus.iter().map(|cpu| (cpu.llc, [0; 2])).collect(),
            by_set: Vec::new(),
        }
    }

    /// The LLC of a CPU, if there is such a CPU.
    #[inline]
    pub fn llc_of(&self, cpu: CpuId) -> Option<usize> {
        self.by_cpu.get(cpu).map(|&(llc, _)| llc as usize)
    }

    /// The set of groups that a task belongs to.
    #[cold]
    pub fn set_of(&mut self, task: TraceTask<'_>) -> Set {
        let set = self.groups_of(task);
        let (number, is_new) = self.sets.insert_full(set);
        if is_new {
            self.by_set.resize(self.sets.len() * self.nr_llcs, [0; 2]);
        }
        Set((number * self.nr_llcs) as u32)
    }

    fn groups_of(&mut self, task: TraceTask<'_>) -> Groups {
        let Known { names, processes, cgroups, .. } = &self.known;
        let name = names.get(task.class()).copied();
        let process = processes.get(&task.process).copied();
        let cgroup =
            task.group().map(|(number, path)| (cgroups.get(&number).copied(), number, path));
        let name = name.unwrap_or_else(|| {
            let group = self.new_group(By::Name, task.class());
            self.known.names.insert(task.class().to_owned(), group);
            group
        });
        let process = process.unwrap_or_else(|| {
            let group = self.new_group(By::Process, &format!("{} {}", task.process, task.name()));
            self.known.processes.insert(task.process, group);
            group
        });
        let cgroup = cgroup.map(|(known, number, path)| {
            known.unwrap_or_else(|| {
                let group = self.new_group(By::Cgroup, path);
                self.known.cgroups.insert(number, group);
                group
            })
        });
        [Some(name), Some(process), cgroup]
    }

    /// A new group, or the common one if there are too many.
    fn new_group(&mut self, by: By, name: &str) -> u16 {
        let others = self.known.others[by as usize];
        if let Some(others) = others {
            return others;
        }
        let number = self.groups.len() as u16;
        let full = self.groups.iter().filter(|group| group.by == by).count() >= MOST_GROUPS;
        let name = if full { OTHERS } else { name };
        self.known.others[by as usize] = full.then_some(number);
        let llcs = Occupancy::new(self.nr_llcs);
        self.groups.push(TaskGroup { by, name: name.to_owned(), llcs });
        number
    }

    /// The last window that had a task.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Adds time in the last window that a task with the groups of `set` ran or waited.
    #[inline]
    pub fn add_now(&mut self, kind: Kind, cpu: CpuId, set: Set, ns: u64) {
        if let Some((llc, spent)) = self.by_cpu.get_mut(cpu) {
            spent[kind as usize] += ns;
            self.by_set[(set.0 + *llc) as usize][kind as usize] += ns;
        }
    }

    /// The same for any window. It is the last one from now on if it is later.
    pub fn add(&mut self, kind: Kind, cpu: CpuId, set: Set, window: usize, ns: u64) {
        if window > self.window {
            self.next_window(window);
        }
        if window == self.window {
            return self.add_now(kind, cpu, set, ns);
        }
        if let Some(llc) = self.llc_of(cpu) {
            kind.of(&mut self.cpus).add(cpu, window, ns);
            self.add_to_groups(kind, llc, set.0 as usize / self.nr_llcs, window, ns);
        }
    }

    fn add_to_groups(&mut self, kind: Kind, llc: usize, set: usize, window: usize, ns: u64) {
        for group in self.sets[set].into_iter().flatten() {
            kind.of(&mut self.groups[usize::from(group)].llcs).add(llc, window, ns);
        }
    }

    /// Adds the last window's sums to the grids. `window` is the last one from now on.
    fn next_window(&mut self, window: usize) {
        let last = std::mem::replace(&mut self.window, window);
        for (cpu, (_, spent)) in self.by_cpu.iter_mut().enumerate() {
            for kind in [Kind::Running, Kind::Waiting] {
                kind.of(&mut self.cpus).add(cpu, last, std::mem::take(&mut spent[kind as usize]));
            }
        }
        for place in 0..self.by_set.len() {
            let (set, llc) = (place / self.nr_llcs, place % self.nr_llcs);
            for kind in [Kind::Running, Kind::Waiting] {
                let ns = std::mem::take(&mut self.by_set[place][kind as usize]);
                if ns > 0 {
                    self.add_to_groups(kind, llc, set, last, ns);
                }
            }
        }
    }

    /// Merges neighbouring windows.
    pub fn fold(&mut self) {
        self.next_window(self.window / 2);
        self.cpus.fold();
        self.groups.iter_mut().for_each(|group| group.llcs.fold());
    }

    /// All sums, by CPU and by group.
    pub fn finish(&mut self) -> (Occupancy, Vec<TaskGroup>) {
        self.next_window(0);
        let cpus = std::mem::replace(&mut self.cpus, Occupancy::new(0));
        (cpus, std::mem::take(&mut self.groups))
    }
}
