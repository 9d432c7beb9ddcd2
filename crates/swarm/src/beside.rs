//! Tasks that run next to those of an rt-app file, with operations that rt-app does not have.

use std::iter;

use roost_workload::{
    Access, Channel, ChannelKind, Cpus, Op, Pattern, Placement, Policy, Process, Program, Region,
    Sharing, Slice, Template, Workload,
};

use crate::random::{Random, random_cpus};

/// Tasks that send messages, that sweep over memory, or that change others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beside {
    /// A sender and a receiver.
    Talk {
        /// The pipe or socket between them.
        channel: Channel,
        /// Size of a message in bytes.
        bytes: u32,
        /// Work of each task per message, in us.
        work_us: u64,
    },
    /// Tasks that alternately pass over memory and sleep.
    Sweep {
        /// Number of tasks.
        instances: u32,
        /// The memory that they pass over. If it belongs to a process, that is process 0, which all of them share.
        region: Region,
        /// Whether the memory is written.
        write: bool,
        /// The order of the accesses.
        pattern: Pattern,
        /// Length of each sleep, in us.
        sleep_us: u64,
    },
    /// Tasks that meet at a barrier, again and again.
    Meet {
        /// Number of tasks.
        instances: u32,
        /// Work of each before it comes to the barrier, in us.
        work_us: u64,
        /// Time for which they spin there before they sleep, in us. `None`: they sleep at once.
        spin_us: Option<u64>,
        /// The time of the run until which they sleep after the first meeting, in us.
        until_us: u64,
    },
    /// A task that changes the affinity of all tasks of a template, as `taskset` does.
    Bind {
        /// Number of the template, counted from 0 again after the last one.
        template: u32,
        /// The CPUs that it allows, in turn, by the operating system's numbers. `None`: all.
        sets: Vec<Option<Vec<u32>>>,
        /// Length of the sleep before each change, in us.
        sleep_us: u64,
    },
    /// A task that moves all tasks of a template to other task groups.
    Regroup {
        /// Number of the template, as in [`Beside::Bind`].
        template: u32,
        /// The groups, in turn. Numbers that are too large, and `None`: the root group.
        groups: Vec<Option<u32>>,
        /// Length of the sleep before each change, in us.
        sleep_us: u64,
    },
}

const KINDS: [ChannelKind; 4] =
    [ChannelKind::Stream, ChannelKind::Messages, ChannelKind::Unix, ChannelKind::Pipe { mutex: 0 }];

impl Beside {
    pub(crate) fn random(random: &mut Random, memory_nodes: &[u32]) -> Self {
        if random.one_in(2) {
            let bytes = random.range(1, 4096) as u32;
            let channel = Channel {
                capacity_bytes: bytes * random.range(1, 20) as u32,
                sync_wakeup: random.one_in(2),
                kind: *random.choose(&KINDS),
                softirq_ns: 0,
            };
            return Self::Talk { channel, bytes, work_us: random.range(1, 300) };
        }
        let node = *random.choose(memory_nodes);
        let placement = match random.range(0, 4) {
            0 => Placement::Bind(vec![node]),
            1 => Placement::Interleave(memory_nodes.to_vec()),
            2 => Placement::Spread(memory_nodes.to_vec()),
            3 => Placement::Preferred(node),
            _ => Placement::FirstTouch,
        };
        let sharing = match random.range(0, 2) {
            0 => Sharing::Process(0),
            1 => Sharing::Processes,
            _ => Sharing::Thread,
        };
        // Sizes from one page up to more than any cache holds.
        let region = Region { bytes: 4096 << random.range(0, 14), sharing, placement };
        Self::Sweep {
            instances: random.range(1, 6) as u32,
            region,
            write: random.one_in(2),
            pattern: *random.choose(&[Pattern::Stream, Pattern::Chase, Pattern::RandomBlocks]),
            sleep_us: random.range(1, 2_000),
        }
    }

    /// A [`Beside::Meet`].
    pub(crate) fn meeting(random: &mut Random) -> Self {
        Self::Meet {
            instances: random.range(1, 6) as u32,
            work_us: random.range(1, 2_000),
            spin_us: random.one_in(2).then(|| random.range(1, 5_000)),
            until_us: random.range(1, 50_000),
        }
    }

    /// A [`Beside::Bind`] for a machine with these CPUs.
    pub(crate) fn binding(random: &mut Random, cpus: &[u64]) -> Self {
        let set = |random: &mut Random| match random.one_in(4) {
            true => None,
            false => Some(random_cpus(random, cpus).into_iter().map(|cpu| cpu as u32).collect()),
        };
        Self::Bind {
            template: random.range(0, 5) as u32,
            sets: (0..random.range(1, 4)).map(|_| set(random)).collect(),
            sleep_us: random.range(1, 20_000),
        }
    }

    /// A [`Beside::Regroup`].
    pub(crate) fn regrouping(random: &mut Random) -> Self {
        let group = |random: &mut Random| (!random.one_in(4)).then(|| random.range(0, 2) as u32);
        Self::Regroup {
            template: random.range(0, 5) as u32,
            groups: (0..random.range(2, 4)).map(|_| group(random)).collect(),
            sleep_us: random.range(1, 20_000),
        }
    }

    /// Adds these tasks to `workload`. Each repeats its work `times` times, or for ever if 0.
    pub(crate) fn add_to(&self, workload: &mut Workload, times: u64) {
        match self {
            Self::Talk { channel, bytes, work_us } => {
                let number = workload.channels.len() as u32;
                // The receivers must read as much as is written, or some would wait for ever.
                workload.channels.push(channel.clone());
                let send = Op::Send { channel: number, bytes: *bytes };
                let receive = Op::Receive { channel: number, bytes: *bytes };
                let work = Op::Run { ns: work_us * 1_000 };
                if let ChannelKind::Pipe { mutex } = &mut workload.channels[number as usize].kind {
                    *mutex = workload.mutexes;
                    workload.mutexes += 1;
                    let (lock, unlock) = (Op::Lock(*mutex), Op::Unlock(*mutex));
                    // Many of each, so that they spin for the mutex, and sleep for it.
                    add(workload, "sender", 12, vec![lock, send, work, unlock], times);
                    add(workload, "receiver", 12, vec![lock, receive, work, unlock], times);
                    return;
                }
                add(workload, "sender", 1, vec![work, send], times);
                add(workload, "receiver", 1, vec![receive, work], times);
            }
            Self::Sweep { instances, region, write, pattern, sleep_us } => {
                let number = workload.regions.len() as u32;
                let mut region = region.clone();
                if let Sharing::Process(process) = &mut region.sharing {
                    *process = workload.processes.len() as u32;
                }
                workload.regions.push(region);
                let slices = vec![Slice { region: number, write: *write }];
                let sleep = Op::Sleep { ns: sleep_us * 1_000 };
                let sweeper =
                    add(workload, "sweeper", *instances, vec![Op::Access(0), sleep], times);
                sweeper.program.accesses.push(Access::new(slices, *pattern));
            }
            Self::Meet { instances, work_us, spin_us, until_us } => {
                let (barrier, watch) = (workload.barriers.len() as u32, workload.watches);
                let counter = workload.counters;
                workload.barriers.push(*instances);
                workload.watches += 1;
                workload.counters += 1;
                let meet = match spin_us {
                    Some(us) => Op::SpinBarrier { barrier, spin_ns: us * 1_000 },
                    None => Op::Barrier(barrier),
                };
                let work = Op::Run { ns: work_us * 1_000 };
                let (start, stop) = (Op::StartWatch(watch), Op::StopWatch(watch));
                let until = Op::SleepUntil { ns: until_us * 1_000 };
                let ops = vec![start, work, meet, stop, Op::Count { counter, by: 1 }, until];
                add(workload, "meeting", *instances, ops, times);
            }
            Self::Bind { template, sets, sleep_us } => {
                let template = template % workload.templates.len() as u32;
                let sleep = Op::Sleep { ns: sleep_us * 1_000 };
                let change = |set| [sleep, Op::SetAffinityOf { template, set }];
                let ops = (0..sets.len() as u32).flat_map(change).collect();
                let binder = add(workload, "binder", 1, ops, times);
                binder.program.affinities =
                    sets.iter().map(|set| set.clone().map(Cpus::List)).collect();
            }
            Self::Regroup { template, groups, sleep_us } => {
                let template = template % workload.templates.len() as u32;
                let there = workload.groups.len();
                let sleep = Op::Sleep { ns: sleep_us * 1_000 };
                let groups = groups.iter().map(|group| group.filter(|&n| (n as usize) < there));
                let ops = groups.flat_map(|group| [sleep, Op::SetGroupOf { template, group }]);
                add(workload, "mover", 1, ops.collect(), times);
            }
        }
    }
}

/// Adds a template in a process of its own that repeats `ops`.
fn add<'a>(
    workload: &'a mut Workload,
    name: &str,
    instances: u32,
    ops: Vec<Op>,
    times: u64,
) -> &'a mut Template {
    let process = workload.processes.len() as u32;
    let template = workload.templates.len() as u32;
    let name = format!("{name}{template}");
    workload.processes.push(Process { name: name.clone(), forked: false, kernel: false });
    workload.start.push((template, instances));
    let again = Op::Loop { depth: 0, times, to: 0 };
    workload.templates.push(Template {
        name,
        process,
        group: None,
        nice: 0,
        policy: Policy::Normal,
        affinity: None,
        delay_ns: 0,
        footprint_bytes: 0,
        program: Program {
            ops: ops.into_iter().chain(iter::once(again)).collect(),
            loop_depth: 1,
            ..Program::default()
        },
        class: "beside".to_owned(),
    });
    let last = workload.templates.len() - 1;
    &mut workload.templates[last]
}
