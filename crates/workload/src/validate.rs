//! Checks that every workload must pass before an engine may run it.
//!
//! The engine uses numbers in operations as indices of tables, and runs operations that take no time one after the
//! other. So every index must be in range, loops must nest, a task must not deadlock on its own mutexes, and nothing
//! may go on for ever without time passing.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Access, Channel, ChannelKind, Cpus, GROUP_WEIGHTS, MetricKind, Op, Placement, Program, Region,
    Sharing, Template, TemplateId, TimerRef, Workload,
};

/// Largest number of tasks that a workload may start with. The kernel's default `pid_max` on large machines is a few
/// times this number, and the engine has tables with an entry per task. Assumption.
pub const MAX_TASKS: u64 = 100_000;

/// A loop with this many runs in which no time passes is treated like an endless loop. Assumption: a file has no reason
/// for that many, and a simulation would hang with many more.
const MANY_RUNS: u64 = 1_000_000;

/// Largest region, and largest size of one sweep: 16 TiB, which is more than any node has.
pub const MAX_REGION_BYTES: u64 = 1 << 44;

/// A broken invariant, and where it is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The template and its name, if the fault is in a template.
    pub template: Option<(TemplateId, String)>,
    /// The operation of its program, if the fault is in an operation.
    pub op: Option<u32>,
    /// The fault.
    pub fault: Fault,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((_, name)) = &self.template {
            write!(f, "task '{}'", name.escape_debug())?;
            if let Some(op) = self.op {
                write!(f, ", operation {op}")?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", self.fault)
    }
}

/// The ways in which invariants can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No task starts.
    #[error("no task starts")]
    NothingStarts,
    /// There are more tasks than [`MAX_TASKS`].
    #[error("{0} tasks start, more than {MAX_TASKS}")]
    TooManyTasks(u64),
    /// An operation or template refers to something that the workload does not have.
    #[error("{what} {index} does not exist, there are {count}")]
    OutOfRange {
        /// The kind of thing.
        what: &'static str,
        /// Its number.
        index: u64,
        /// How many of them the workload has.
        count: u64,
    },
    /// A nice value outside -20 to 19.
    #[error("nice value {0} is outside -20 to 19")]
    Nice(i8),
    /// A task may use no CPU.
    #[error("the task may run on no CPU")]
    NoCpu,
    /// Loops overlap, jump forward, or share a counter with an inner loop.
    #[error("the loop does not nest")]
    LoopDoesNotNest,
    /// In an endless loop, or a loop of at least a million runs, no time can pass.
    #[error("the loop runs {} without consuming time or blocking",
        if *.0 == 0 { "for ever".to_string() } else { format!("{} times", .0) })]
    LoopConsumesNoTime(u64),
    /// A task locks a mutex that it holds, and would wait for itself.
    #[error("mutex {0} is locked twice")]
    LockedTwice(u32),
    /// A task unlocks a mutex, or waits with one, that it does not hold.
    #[error("mutex {0} is not held here")]
    NotHeld(u32),
    /// The mutex of a pipe has another use: with a condition, a barrier or a second pipe.
    #[error("mutex {0} belongs to a pipe and has another use")]
    PipeMutex(u32),
    /// A loop body changes whether a mutex is locked.
    #[error("a run of the loop changes whether mutex {0} is locked")]
    LoopChangesMutex(u32),
    /// A program ends while it holds a mutex. A task that wants the mutex would wait for ever.
    #[error("mutex {0} is never unlocked again")]
    ExitsHolding(u32),
    /// A write can never fit into the channel.
    #[error("a message of {bytes} bytes is empty or never fits the channel's {capacity}")]
    MessageTooLarge {
        /// Size of the write.
        bytes: u32,
        /// Size of the channel.
        capacity: u32,
    },
    /// Tasks fork each other, so that their number grows without limit.
    #[error("the task forks itself, directly or through others, faster than tasks can exit")]
    ForkExplodes,
    /// A region has no bytes or too many.
    #[error("a region of {0} bytes; give 1 to {MAX_REGION_BYTES}")]
    RegionSize(u64),
    /// A memory policy names no node.
    #[error("the memory policy names no node")]
    NoNode,
    /// A sweep covers no region, the same region twice, or too many bytes.
    #[error(
        "a sweep over memory names no region, the same region twice, or more than {MAX_REGION_BYTES} bytes"
    )]
    BadAccess,
    /// A task uses memory of another process.
    #[error("region {0} belongs to another process")]
    ForeignRegion(u32),
    /// A group is listed before the group that contains it, or contains itself.
    #[error("group '{}' stands before the group that contains it", .0.escape_debug())]
    GroupBeforeParent(String),
    /// A group's weight is out of range.
    #[error("group '{}' has weight {}; give {} to {}", .0.escape_debug(), .1,
        GROUP_WEIGHTS.start(), GROUP_WEIGHTS.end())]
    GroupWeight(String, u32),
    /// Two groups have the same path.
    #[error("two groups are called '{}'", .0.escape_debug())]
    GroupTwice(String),
    /// A barrier waits for no task.
    #[error("barrier {0} waits for no task")]
    EmptyBarrier(u32),
}

impl Workload {
    /// Checks every invariant that the engine relies on.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.validate_tables()?;
        for (id, template) in self.templates.iter().enumerate() {
            let at = |op: Option<usize>, fault| Invalid {
                template: Some((id as u32, template.name.clone())),
                op: op.map(|op| op as u32),
                fault,
            };
            self.validate_template(template).map_err(|fault| at(None, fault))?;
            for (index, op) in template.program.ops.iter().enumerate() {
                self.validate_op(*op, &template.program).map_err(|f| at(Some(index), f))?;
            }
            self.validate_loops(&template.program).map_err(|(op, fault)| at(Some(op), fault))?;
            self.validate_mutexes(&template.program).map_err(|(op, fault)| at(Some(op), fault))?;
        }
        self.validate_forks()
    }

    /// A template whose tasks never exit, if there is one.
    pub fn endless_template(&self) -> Option<&Template> {
        let endless = |op: &Op| matches!(op, Op::Loop { times: 0, .. });
        self.templates.iter().find(|template| template.program.ops.iter().any(endless))
    }

    fn validate_tables(&self) -> Result<(), Invalid> {
        let nowhere = |fault| Invalid { template: None, op: None, fault };
        let mut of_pipes = BTreeSet::new();
        for mutex in self.channels.iter().filter_map(mutex_of_pipe) {
            in_range("mutex", mutex, self.mutexes as usize).map_err(nowhere)?;
            if !of_pipes.insert(mutex) {
                return Err(nowhere(Fault::PipeMutex(mutex)));
            }
        }
        for (template, _) in &self.start {
            in_range("template", *template, self.templates.len()).map_err(nowhere)?;
        }
        let tasks: u64 = self.start.iter().map(|(_, instances)| u64::from(*instances)).sum();
        if tasks == 0 {
            return Err(nowhere(Fault::NothingStarts));
        }
        if tasks > MAX_TASKS {
            return Err(nowhere(Fault::TooManyTasks(tasks)));
        }
        if let Some(empty) = self.barriers.iter().position(|parties| *parties == 0) {
            return Err(nowhere(Fault::EmptyBarrier(empty as u32)));
        }
        self.validate_groups().map_err(nowhere)?;
        for region in &self.regions {
            self.validate_region(region).map_err(nowhere)?;
        }
        for metric in &self.metrics {
            let found = match &metric.kind {
                MetricKind::Rate { counter, .. } => {
                    in_range("counter", *counter, self.counters as usize)
                }
                MetricKind::BestRate { watch, .. } => {
                    in_range("stopwatch", *watch, self.watches as usize)
                }
                _ => Ok(()),
            };
            found.map_err(nowhere)?;
        }
        Ok(())
    }

    /// Parents come before their children, so the groups form a forest.
    fn validate_groups(&self) -> Result<(), Fault> {
        let mut paths = BTreeSet::new();
        for (group, number) in self.groups.iter().zip(0..) {
            if !GROUP_WEIGHTS.contains(&group.weight) {
                return Err(Fault::GroupWeight(group.path.clone(), group.weight));
            }
            if group.parent.is_some_and(|parent| parent >= number) {
                return Err(Fault::GroupBeforeParent(group.path.clone()));
            }
            if !paths.insert(&group.path) {
                return Err(Fault::GroupTwice(group.path.clone()));
            }
        }
        Ok(())
    }

    fn validate_region(&self, region: &Region) -> Result<(), Fault> {
        if !(1..=MAX_REGION_BYTES).contains(&region.bytes) {
            return Err(Fault::RegionSize(region.bytes));
        }
        match &region.placement {
            Placement::Bind(nodes) | Placement::Interleave(nodes) | Placement::Spread(nodes)
                if nodes.is_empty() =>
            {
                return Err(Fault::NoNode);
            }
            _ => {}
        }
        match region.sharing {
            Sharing::Process(process) => in_range("process", process, self.processes.len()),
            Sharing::Thread | Sharing::Processes => Ok(()),
        }
    }

    fn validate_access(&self, access: &Access, process: u32) -> Result<(), Fault> {
        let mut seen = BTreeSet::new();
        let mut bytes = 0u64;
        for slice in &access.slices {
            in_range("region", slice.region, self.regions.len())?;
            let Some(region) = self.regions.get(slice.region as usize) else { continue };
            if matches!(region.sharing, Sharing::Process(owner) if owner != process) {
                return Err(Fault::ForeignRegion(slice.region));
            }
            if !seen.insert(slice.region) {
                return Err(Fault::BadAccess);
            }
            bytes = bytes.saturating_add(region.bytes);
        }
        if seen.is_empty() || bytes > MAX_REGION_BYTES { Err(Fault::BadAccess) } else { Ok(()) }
    }

    fn validate_template(&self, template: &Template) -> Result<(), Fault> {
        in_range("process", template.process, self.processes.len())?;
        if let Some(group) = template.group {
            in_range("group", group, self.groups.len())?;
        }
        nice_in_range(template.nice)?;
        let lists = template.program.affinities.iter().flatten().filter_map(Cpus::list);
        if lists.chain(&template.affinity).any(Vec::is_empty) {
            return Err(Fault::NoCpu);
        }
        for access in &template.program.accesses {
            self.validate_access(access, template.process)?;
        }
        Ok(())
    }

    /// Checks that everything an operation refers to exists.
    fn validate_op(&self, op: Op, program: &Program) -> Result<(), Fault> {
        let mutexes = self.mutexes as usize;
        let conditions = self.conditions as usize;
        match op {
            Op::Timer { timer: TimerRef::Own(timer), .. } => {
                in_range("own timer", timer, program.own_timers as usize)
            }
            Op::Timer { timer: TimerRef::Shared(timer), .. } => {
                in_range("shared timer", timer, self.shared_timers as usize)
            }
            Op::Fork(template) => in_range("template", template, self.templates.len()),
            Op::Lock(mutex) | Op::Unlock(mutex) => in_range("mutex", mutex, mutexes),
            Op::Wait { condition, mutex } => {
                in_range("condition", condition, conditions)?;
                in_range("mutex", mutex, mutexes)
            }
            Op::Signal(condition) | Op::Broadcast(condition) => {
                in_range("condition", condition, conditions)
            }
            Op::Barrier(barrier) | Op::SpinBarrier { barrier, .. } => {
                in_range("barrier", barrier, self.barriers.len())
            }
            Op::Meet { barrier, mutex } => {
                in_range("barrier", barrier, self.barriers.len())?;
                in_range("mutex", mutex, mutexes)
            }
            Op::Access(access) => in_range("access", access, program.accesses.len()),
            Op::StartWatch(watch) | Op::StopWatch(watch) => {
                in_range("stopwatch", watch, self.watches as usize)
            }
            Op::SetNice(nice) => nice_in_range(nice),
            Op::SetGroup(Some(group)) => in_range("group", group, self.groups.len()),
            Op::SetGroupOf { template, group } => {
                in_range("template", template, self.templates.len())?;
                group.map_or(Ok(()), |group| in_range("group", group, self.groups.len()))
            }
            Op::SetAffinity(set) => in_range("CPU list", set, program.affinities.len()),
            Op::SetAffinityOf { template, set } => {
                in_range("template", template, self.templates.len())?;
                in_range("CPU list", set, program.affinities.len())
            }
            Op::Send { channel, bytes } => self.validate_message(channel, bytes),
            Op::Receive { channel, .. } => in_range("channel", channel, self.channels.len()),
            Op::Count { counter, .. } => in_range("counter", counter, self.counters as usize),
            Op::Loop { depth, .. } => {
                in_range("loop counter", depth, usize::from(program.loop_depth))
            }
            Op::Run { .. }
            | Op::Runtime { .. }
            | Op::Sleep { .. }
            | Op::SleepUntil { .. }
            | Op::Start { .. }
            | Op::Yield
            | Op::AwaitWork
            | Op::OwnTurn
            | Op::SetPolicy(_)
            | Op::SetGroup(None)
            | Op::SetSlice { .. } => Ok(()),
        }
    }

    fn validate_message(&self, channel: u32, bytes: u32) -> Result<(), Fault> {
        in_range("channel", channel, self.channels.len())?;
        let capacity = self.channels.get(channel as usize).map_or(0, |c| c.capacity_bytes);
        if bytes == 0 || bytes > capacity {
            return Err(Fault::MessageTooLarge { bytes, capacity });
        }
        Ok(())
    }

    /// Follows which mutexes the task holds. A loop must not change that, so one pass over the program sees every
    /// state.
    fn validate_mutexes(&self, program: &Program) -> Result<(), (usize, Fault)> {
        let jumps = |op: &Op| if let Op::Loop { to, .. } = op { Some(*to as usize) } else { None };
        let targets: BTreeSet<usize> = program.ops.iter().filter_map(jumps).collect();
        let mut targets = targets.into_iter().peekable();
        let mut at_target: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
        let mut held: BTreeSet<u32> = BTreeSet::new();
        for (index, op) in program.ops.iter().enumerate() {
            if targets.next_if_eq(&index).is_some() {
                at_target.insert(index, held.clone());
            }
            match *op {
                Op::Lock(mutex) if !held.insert(mutex) => {
                    return Err((index, Fault::LockedTwice(mutex)));
                }
                Op::Unlock(mutex) if !held.remove(&mutex) => {
                    return Err((index, Fault::NotHeld(mutex)));
                }
                Op::Wait { mutex, .. } | Op::Meet { mutex, .. } => {
                    if !held.contains(&mutex) {
                        return Err((index, Fault::NotHeld(mutex)));
                    }
                    if self.channels.iter().filter_map(mutex_of_pipe).any(|of| of == mutex) {
                        return Err((index, Fault::PipeMutex(mutex)));
                    }
                }
                Op::Send { channel, .. } | Op::Receive { channel, .. } => {
                    let mutex = self.channels.get(channel as usize).and_then(mutex_of_pipe);
                    if let Some(mutex) = mutex.filter(|mutex| !held.contains(mutex)) {
                        return Err((index, Fault::NotHeld(mutex)));
                    }
                }
                Op::Loop { to, times, .. } if times != 1 => {
                    let found = at_target.get(&(to as usize));
                    let changed = found.and_then(|found| found.symmetric_difference(&held).next());
                    if let Some(mutex) = changed {
                        return Err((index, Fault::LoopChangesMutex(*mutex)));
                    }
                }
                _ => {}
            }
        }
        match held.first() {
            Some(mutex) => Err((program.ops.len().saturating_sub(1), Fault::ExitsHolding(*mutex))),
            None => Ok(()),
        }
    }

    /// Checks that loops nest, that each has a counter of its own, and that time passes in long loops.
    fn validate_loops(&self, program: &Program) -> Result<(), (usize, Fault)> {
        // Finished loops that are not inside another loop so far.
        let mut finished: Vec<FinishedLoop> = Vec::new();
        let mut last_passing = None;
        for (end, op) in program.ops.iter().enumerate() {
            if self.time_can_pass(*op) {
                last_passing = Some(end);
            }
            let Op::Loop { depth, times, to } = *op else { continue };
            let first = to as usize;
            if first > end {
                return Err((end, Fault::LoopDoesNotNest));
            }
            let mut current = FinishedLoop { first, end, counters: [depth].into(), runs: 1 };
            while let Some(inner) = finished.pop_if(|inner| inner.end >= first) {
                if inner.first < first || inner.counters.contains(&depth) {
                    return Err((end, Fault::LoopDoesNotNest));
                }
                current.counters.extend(inner.counters);
                current.runs = current.runs.max(inner.runs);
            }
            current.runs = current.runs.saturating_mul(if times == 0 { u64::MAX } else { times });
            let time_passes = last_passing.is_some_and(|last| last >= first);
            if current.runs >= MANY_RUNS && !time_passes {
                return Err((end, Fault::LoopConsumesNoTime(times)));
            }
            if time_passes {
                current.runs = 1;
            }
            finished.push(current);
        }
        Ok(())
    }

    /// Whether simulated time can pass between the start and the end of an operation.
    fn time_can_pass(&self, op: Op) -> bool {
        match op {
            Op::Run { ns } | Op::Runtime { ns } | Op::Sleep { ns } => ns > 0,
            Op::Timer { period_ns, .. } => period_ns > 0,
            Op::Wait { .. } | Op::Send { .. } | Op::Receive { .. } => true,
            Op::Access(_) => true,
            Op::Barrier(barrier) | Op::Meet { barrier, .. } | Op::SpinBarrier { barrier, .. } => {
                self.barriers.get(barrier as usize).is_some_and(|p| *p > 1)
            }
            _ => false,
        }
    }

    /// Checks that tasks which fork each other in a circle stay few. Each must fork the next one only once, and time
    /// must pass in the circle.
    fn validate_forks(&self) -> Result<(), Invalid> {
        let forks = self.forks();
        let circles = circles(&forks, self.templates.len());
        let circle = |template: TemplateId| circles.get(template as usize);
        let circular = || forks.iter().filter(|fork| circle(fork.parent) == circle(fork.child));
        // If each member forks only once, the circle is simple, and a single member in which time passes is enough.
        let timed: BTreeSet<_> =
            circular().filter(|fork| fork.timed).map(|fork| circle(fork.parent)).collect();
        let mut parents = BTreeSet::new();
        for fork in circular() {
            let second = !parents.insert(fork.parent);
            if fork.repeated || second || !timed.contains(&circle(fork.parent)) {
                let name = self.templates.get(fork.parent as usize).map(|t| t.name.clone());
                return Err(Invalid {
                    template: name.map(|name| (fork.parent, name)),
                    op: Some(fork.op as u32),
                    fault: Fault::ForkExplodes,
                });
            }
        }
        Ok(())
    }

    fn forks(&self) -> Vec<Fork> {
        let mut forks = Vec::new();
        for (parent, template) in self.templates.iter().enumerate() {
            let ops = &template.program.ops;
            let loops: Vec<(usize, usize)> = ops
                .iter()
                .enumerate()
                .filter_map(|(end, op)| match op {
                    Op::Loop { to, times, .. } if *times != 1 => Some((*to as usize, end)),
                    _ => None,
                })
                .collect();
            let mut timed = template.delay_ns > 0;
            for (index, op) in ops.iter().enumerate() {
                timed |= self.time_can_pass(*op);
                let Op::Fork(child) = *op else { continue };
                let repeated = loops.iter().any(|(first, end)| (*first..*end).contains(&index));
                forks.push(Fork { parent: parent as u32, op: index, child, repeated, timed });
            }
        }
        forks
    }
}

/// Numbers the circles (strongly connected components) of templates. Two templates have the same number exactly if each
/// forks the other, directly or through others, or if they are the same. Kosaraju's algorithm, with stacks instead of
/// recursion.
fn circles(forks: &[Fork], templates: usize) -> Vec<u32> {
    let mut children: Vec<Vec<TemplateId>> = vec![Vec::new(); templates];
    let mut parents = children.clone();
    for fork in forks {
        if let Some(list) = children.get_mut(fork.parent as usize) {
            list.push(fork.child);
        }
        if let Some(list) = parents.get_mut(fork.child as usize) {
            list.push(fork.parent);
        }
    }
    let mut seen = vec![false; templates];
    let mut finished = Vec::new();
    for root in 0..templates as TemplateId {
        finished.extend(visit(root, &children, &mut seen));
    }
    seen.fill(false);
    let mut circles = vec![0; templates];
    for (number, root) in (0..).zip(finished.into_iter().rev()) {
        for member in visit(root, &parents, &mut seen) {
            if let Some(circle) = circles.get_mut(member as usize) {
                *circle = number;
            }
        }
    }
    circles
}

/// The templates that can be reached from `root` and have not been seen. Each one comes after all that can be reached
/// from it.
fn visit(root: TemplateId, next: &[Vec<TemplateId>], seen: &mut [bool]) -> Vec<TemplateId> {
    let mut finished = Vec::new();
    let mut open = vec![(root, false)];
    while let Some((template, expanded)) = open.pop() {
        if expanded {
            finished.push(template);
            continue;
        }
        match seen.get_mut(template as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => continue,
        }
        open.push((template, true));
        let ahead = next.get(template as usize).into_iter().flatten();
        open.extend(ahead.map(|template| (*template, false)));
    }
    finished
}

/// A loop of a program.
struct FinishedLoop {
    /// First operation of its body.
    first: usize,
    /// Its loop operation.
    end: usize,
    /// The counters that are used by the loop and inside it.
    counters: BTreeSet<u8>,
    /// How often its innermost body runs without time passing. 1 if time passes.
    runs: u64,
}

/// A fork operation.
struct Fork {
    parent: TemplateId,
    op: usize,
    child: TemplateId,
    /// Whether it is in a loop.
    repeated: bool,
    /// Whether time can pass between the parent's creation and the fork.
    timed: bool,
}

/// The mutex of a channel that is a pipe.
fn mutex_of_pipe(channel: &Channel) -> Option<u32> {
    if let ChannelKind::Pipe { mutex } = channel.kind { Some(mutex) } else { None }
}

fn in_range(what: &'static str, index: impl Into<u64>, count: usize) -> Result<(), Fault> {
    let (index, count) = (index.into(), count as u64);
    if index < count { Ok(()) } else { Err(Fault::OutOfRange { what, index, count }) }
}

fn nice_in_range(nice: i8) -> Result<(), Fault> {
    if (-20..=19).contains(&nice) { Ok(()) } else { Err(Fault::Nice(nice)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, graph};

    const RUN: Op = Op::Run { ns: 1 };
    const FOREVER: Op = Op::Loop { depth: 0, times: 0, to: 0 };

    /// A workload with a template for each of these programs. Each has one task, and there are two objects of every
    /// kind.
    fn workload(programs: &[&[Op]]) -> Workload {
        let mut workload = graph::empty("test");
        workload.add_process("test");
        workload.mutexes = 2;
        workload.conditions = 2;
        workload.counters = 2;
        workload.shared_timers = 2;
        workload.barriers = vec![1, 2];
        let channel = Channel {
            capacity_bytes: 10,
            sync_wakeup: false,
            kind: ChannelKind::Stream,
            softirq_ns: 0,
        };
        workload.channels = vec![channel.clone(), channel];
        for ops in programs {
            let program = Program { ops: ops.to_vec(), loop_depth: 2, ..Program::default() };
            workload.start_one(graph::template("task", 0, program));
        }
        workload
    }

    fn fault(ops: &[Op]) -> Option<Fault> {
        workload(&[ops]).validate().err().map(|invalid| invalid.fault)
    }

    #[test]
    fn a_task_that_computes_for_ever_is_fine() {
        assert_eq!(fault(&[RUN, FOREVER]), None);
    }

    #[test]
    fn nothing_may_refer_to_what_does_not_exist() {
        let timer = TimerRef::Own(0);
        for op in [
            Op::Lock(2),
            Op::Unlock(2),
            Op::Wait { condition: 2, mutex: 0 },
            Op::Wait { condition: 0, mutex: 2 },
            Op::Signal(2),
            Op::Broadcast(2),
            Op::Barrier(2),
            Op::Fork(1),
            Op::SetAffinity(0),
            Op::SetAffinityOf { template: 0, set: 0 },
            Op::SetGroupOf { template: 0, group: Some(0) },
            Op::SetGroupOf { template: 1, group: None },
            Op::SetAffinityOf { template: 1, set: 0 },
            Op::Send { channel: 2, bytes: 1 },
            Op::Receive { channel: 2, bytes: 1 },
            Op::Count { counter: 2, by: 1 },
            Op::Timer { timer, period_ns: 1, absolute: false },
            Op::Timer { timer: TimerRef::Shared(2), period_ns: 1, absolute: false },
            Op::Loop { depth: 2, times: 2, to: 0 },
        ] {
            assert!(matches!(fault(&[op]), Some(Fault::OutOfRange { .. })), "{op:?}");
        }
    }

    #[test]
    fn groups_are_a_forest_with_weights_in_range() {
        let fault = |groups: &[(&str, Option<u32>, u32)], member| {
            let mut workload = workload(&[&[RUN]]);
            workload.groups = groups
                .iter()
                .map(|&(path, parent, weight)| Group { path: path.into(), parent, weight })
                .collect();
            workload.templates[0].group = Some(member);
            workload.validate().err().map(|invalid| invalid.fault)
        };
        assert_eq!(fault(&[("/a", None, 1), ("/a/b", Some(0), 10_000)], 1), None);
        for weight in [0, 10_001] {
            let wrong = Fault::GroupWeight("/a".into(), weight);
            assert_eq!(fault(&[("/a", None, weight)], 0), Some(wrong));
        }
        let circle = fault(&[("/a", Some(1), 100), ("/b", Some(0), 100)], 0);
        assert_eq!(circle, Some(Fault::GroupBeforeParent("/a".into())));
        assert_eq!(fault(&[("/a", Some(0), 100)], 0), Some(Fault::GroupBeforeParent("/a".into())));
        assert!(matches!(fault(&[("/a", Some(7), 100)], 0), Some(Fault::GroupBeforeParent(_))));
        let twice = fault(&[("/a", None, 100), ("/a", None, 100)], 0);
        assert_eq!(twice, Some(Fault::GroupTwice("/a".into())));
        assert!(matches!(fault(&[], 0), Some(Fault::OutOfRange { what: "group", .. })));
    }

    #[test]
    fn time_must_pass_in_an_endless_loop() {
        assert_eq!(fault(&[Op::Yield, FOREVER]), Some(Fault::LoopConsumesNoTime(0)));
        assert_eq!(fault(&[Op::Run { ns: 0 }, FOREVER]), Some(Fault::LoopConsumesNoTime(0)));
        assert_eq!(fault(&[Op::Barrier(0), FOREVER]), Some(Fault::LoopConsumesNoTime(0)));
        assert_eq!(fault(&[Op::Barrier(1), FOREVER]), None);
        let receive = Op::Receive { channel: 0, bytes: 1 };
        assert_eq!(fault(&[receive, FOREVER]), None);
    }

    #[test]
    fn time_before_a_loop_does_not_count_for_it() {
        let later = Op::Loop { depth: 0, times: 0, to: 1 };
        assert_eq!(fault(&[RUN, Op::Yield, later]), Some(Fault::LoopConsumesNoTime(0)));
    }

    #[test]
    fn a_thousand_times_a_thousand_idle_runs_are_too_many() {
        let inner = Op::Loop { depth: 1, times: 1_000, to: 0 };
        let outer = Op::Loop { depth: 0, times: 1_000, to: 0 };
        assert_eq!(fault(&[Op::Yield, inner]), None);
        assert_eq!(fault(&[Op::Yield, inner, outer]), Some(Fault::LoopConsumesNoTime(1_000)));
        assert_eq!(fault(&[Op::Yield, inner, RUN, outer]), None);
    }

    #[test]
    fn loops_nest_with_a_counter_each() {
        let inner = Op::Loop { depth: 0, times: 2, to: 1 };
        let same = Op::Loop { depth: 0, times: 2, to: 0 };
        let crossing = Op::Loop { depth: 1, times: 2, to: 2 };
        let forward = Op::Loop { depth: 1, times: 2, to: 9 };
        assert_eq!(fault(&[RUN, RUN, inner, same]), Some(Fault::LoopDoesNotNest));
        assert_eq!(fault(&[RUN, RUN, RUN, inner, crossing]), Some(Fault::LoopDoesNotNest));
        assert_eq!(fault(&[RUN, forward]), Some(Fault::LoopDoesNotNest));
        assert_eq!(
            fault(&[RUN, Op::Loop { depth: 0, times: 2, to: 0 }, RUN, inner]),
            Some(Fault::LoopDoesNotNest)
        );
    }

    #[test]
    fn mutexes_are_taken_once_held_where_used_and_given_back() {
        let wait = Op::Wait { condition: 0, mutex: 1 };
        assert_eq!(fault(&[Op::Lock(0), Op::Lock(0)]), Some(Fault::LockedTwice(0)));
        assert_eq!(fault(&[Op::Unlock(1)]), Some(Fault::NotHeld(1)));
        assert_eq!(fault(&[Op::Lock(0), wait, Op::Unlock(0)]), Some(Fault::NotHeld(1)));
        assert_eq!(fault(&[Op::Lock(0)]), Some(Fault::ExitsHolding(0)));
        assert_eq!(fault(&[RUN, Op::Lock(0), FOREVER]), Some(Fault::LoopChangesMutex(0)));
        assert_eq!(fault(&[Op::Lock(1), wait, Op::Unlock(1), FOREVER]), None);
    }

    #[test]
    fn the_mutex_of_a_pipe_is_held_where_the_pipe_is_used_and_serves_nothing_else() {
        let fault = |ops: &[Op], kinds: [ChannelKind; 2]| {
            let mut workload = workload(&[ops]);
            for (channel, kind) in workload.channels.iter_mut().zip(kinds) {
                channel.kind = kind;
            }
            workload.validate().err().map(|invalid| invalid.fault)
        };
        let pipe = |mutex| ChannelKind::Pipe { mutex };
        let send = Op::Send { channel: 0, bytes: 1 };
        let one = [pipe(0), ChannelKind::Unix];
        assert_eq!(fault(&[Op::Lock(0), send, Op::Unlock(0)], one), None);
        assert_eq!(fault(&[send], one), Some(Fault::NotHeld(0)));
        let wait = Op::Wait { condition: 0, mutex: 0 };
        assert_eq!(fault(&[Op::Lock(0), wait, Op::Unlock(0)], one), Some(Fault::PipeMutex(0)));
        assert_eq!(fault(&[RUN], [pipe(1), pipe(1)]), Some(Fault::PipeMutex(1)));
        let nowhere = fault(&[RUN], [pipe(2), ChannelKind::Unix]);
        assert!(matches!(nowhere, Some(Fault::OutOfRange { .. })));
    }

    #[test]
    fn a_message_fits_its_channel() {
        let send = |bytes| Op::Send { channel: 0, bytes };
        assert_eq!(fault(&[send(10)]), None);
        assert_eq!(fault(&[send(11)]), Some(Fault::MessageTooLarge { bytes: 11, capacity: 10 }));
        assert_eq!(fault(&[send(0)]), Some(Fault::MessageTooLarge { bytes: 0, capacity: 10 }));
    }

    #[test]
    fn a_chain_of_forks_through_time_is_fine_and_a_bomb_is_not() {
        assert_eq!(fault(&[RUN, Op::Fork(0)]), None, "one successor each, 1 ns later");
        assert_eq!(fault(&[Op::Fork(0), RUN]), Some(Fault::ForkExplodes), "no time passes");
        assert_eq!(fault(&[RUN, Op::Fork(0), FOREVER]), Some(Fault::ForkExplodes), "in a loop");
        assert_eq!(fault(&[RUN, Op::Fork(0), Op::Fork(0)]), Some(Fault::ForkExplodes), "doubles");
    }

    #[test]
    fn a_circle_of_two_forks_needs_time_in_one_of_them() {
        assert_eq!(workload(&[&[Op::Fork(1)], &[RUN, Op::Fork(0)]]).validate(), Ok(()));
        let bomb = workload(&[&[Op::Fork(1)], &[Op::Fork(0)]]).validate();
        assert_eq!(bomb.map_err(|invalid| invalid.fault), Err(Fault::ForkExplodes));
    }

    #[test]
    fn forking_into_a_circle_from_outside_is_fine_and_two_circles_through_one_task_are_not() {
        let outside = workload(&[&[Op::Fork(1), Op::Fork(1)], &[RUN, Op::Fork(2)], &[Op::Fork(1)]]);
        assert_eq!(outside.validate(), Ok(()));
        let two = workload(&[&[RUN, Op::Fork(1), Op::Fork(2)], &[Op::Fork(0)], &[Op::Fork(0)]]);
        assert_eq!(two.validate().map_err(|i| i.fault), Err(Fault::ForkExplodes));
    }

    #[test]
    fn somebody_starts_but_not_everybody() {
        let mut nobody = workload(&[&[RUN]]);
        nobody.start = vec![(0, 0)];
        assert_eq!(nobody.validate().unwrap_err().fault, Fault::NothingStarts);
        nobody.start = vec![(0, u32::MAX), (0, u32::MAX)];
        assert!(matches!(nobody.validate().unwrap_err().fault, Fault::TooManyTasks(_)));
    }

    #[test]
    fn the_message_names_task_and_operation() {
        let invalid = workload(&[&[RUN, Op::Unlock(1)]]).validate().unwrap_err();
        assert_eq!(invalid.to_string(), "task 'task', operation 1: mutex 1 is not held here");
    }
}
