//! Random cases.

use roost_fair::Features;

use crate::beside::Beside;
use crate::case::{Case, Draw, Phase, Task};
use crate::random::{Random, random_cpus};
use crate::shape::Shape;

/// The features that the tasks of a case may use.
struct Kind {
    /// CPUs of the machine.
    cpus: Vec<u64>,
    /// Nodes with memory.
    memory_nodes: Vec<u32>,
    /// Whether some tasks may use only certain CPUs.
    pinned: bool,
    /// Whether some tasks are in task groups.
    grouped: bool,
    /// Whether some tasks have the policy SCHED_IDLE.
    idle_policy: bool,
    /// Whether some tasks ask for slices.
    slices: bool,
    /// Whether some tasks wait until others do something.
    waiting: bool,
}

/// Time in which a bound of more than a second on waits can show that it does not hold, in ms.
const LONG_WAIT_MS: u64 = 2_000;

/// Time until NUMA balancing begins in a new process (`sysctl_numa_balancing_scan_delay`), in ms.
const SCAN_DELAY_MS: u64 = 1_000;

pub(crate) fn case(random: &mut Random, seed: u64) -> Case {
    let machine = Shape::random(random);
    let scheduler = random_scheduler(random);
    let case = case_of(random, seed, machine, scheduler, true);
    let scans = case.beside.iter().any(|beside| matches!(beside, Beside::Sweep { .. }));
    let scanned = if scans && random.one_in(4) { SCAN_DELAY_MS } else { 0 };
    let waits = if case.version.is_none() && random.one_in(4) { LONG_WAIT_MS } else { 0 };
    Case { duration_ms: Some(scanned.max(waits) + random.range(20, 400)), ..case }
}

pub(crate) fn case_that_ends(random: &mut Random, seed: u64) -> Case {
    let machine = Shape::random(random);
    let scheduler = random_scheduler(random);
    case_of(random, seed, machine, scheduler, false)
}

/// A run of the shipped program of some tens of ms, on a small machine. Three of four have faults. In half of them
/// affinities are changed from outside, in half of them groups, beside what other cases have. Some last for long enough
/// to show a wait beyond the bound.
pub(crate) fn small_case(random: &mut Random, seed: u64) -> Case {
    let machine = Shape::small(random);
    let scheduler = (None, random_settings(random));
    let mut case = case_of(random, seed, machine, scheduler, true);
    if random.one_in(2) {
        case.beside.push(Beside::binding(random, &case.machine.cpus()));
    }
    if random.one_in(2) {
        case.beside.push(Beside::regrouping(random));
    }
    let waits = if random.one_in(256) { LONG_WAIT_MS } else { 0 };
    Case {
        duration_ms: Some(waits + random.range(10, 50)),
        // Kernel threads keep CPUs from going offline.
        background: random.one_in(4),
        faults: !random.one_in(4),
        ..case
    }
}

fn case_of(
    random: &mut Random,
    seed: u64,
    machine: Shape,
    (version, switches): (Option<String>, Vec<String>),
    waiting: bool,
) -> Case {
    let kind = Kind {
        cpus: machine.cpus(),
        memory_nodes: machine.memory_nodes(),
        pinned: random.one_in(2),
        grouped: random.one_in(3),
        idle_policy: random.one_in(2),
        slices: random.one_in(3),
        waiting,
    };
    let tasks = (0..random.range(1, 5)).map(|_| random_task(random, &kind)).collect();
    let beside = if random.one_in(2) { 0 } else { random.range(1, 3) };
    let mut beside: Vec<Beside> =
        (0..beside).map(|_| Beside::random(random, &kind.memory_nodes)).collect();
    let weights = if kind.grouped { random.range(0, 3) } else { 0 };
    let weights = (0..weights).map(|_| random_weight(random)).collect();
    let background = random.one_in(2);
    let faults = if version.is_none() { random.one_in(2) } else { random.one_in(4) };
    if random.one_in(4) {
        beside.push(Beside::meeting(random));
    }
    if random.one_in(3) {
        let binders = random.range(1, 2);
        beside.extend((0..binders).map(|_| Beside::binding(random, &kind.cpus)));
    }
    if kind.grouped && random.one_in(2) {
        beside.push(Beside::regrouping(random));
    }
    let duration_ms = None;
    Case {
        machine,
        version,
        switches,
        tasks,
        beside,
        weights,
        duration_ms,
        background,
        faults,
        seed,
        draw: Draw::default(),
    }
}

/// A weight. Small and large values are as likely as values around the default of 100.
fn random_weight(random: &mut Random) -> u32 {
    let most = *random.choose(&[9, 200, 10_000]);
    random.range(1, most) as u32
}

/// Settings of the shipped program. Other settings only affect the daemon, or take values that are long to write.
const SETTINGS: [&str; 7] = [
    "no-cling",
    "no-sis-util",
    "no-numa-imbalance",
    "no-llc-imbalance",
    "no-consolidate",
    "slice-us=1000",
    "slice-us=100000",
];

/// Settings of the shipped program.
fn random_settings(random: &mut Random) -> Vec<String> {
    let settings = SETTINGS.into_iter().filter(|_| random.one_in(4));
    // A number must not be set twice.
    let slices = |setting: &&str| !setting.starts_with("slice-us");
    let (mut settings, slices): (Vec<&str>, Vec<&str>) = settings.partition(slices);
    settings.extend(slices.first());
    settings.into_iter().map(str::to_owned).collect()
}

/// A version with up to three of its switches or numbers, or the shipped program with settings.
fn random_scheduler(random: &mut Random) -> (Option<String>, Vec<String>) {
    if random.one_in(4) {
        return (None, random_settings(random));
    }
    let versions = roost_fair::versions();
    let version = random.choose(&versions).to_string();
    let mut switches = Vec::new();
    let mut text = format!("fair@{version}");
    for _ in 0..random.range(0, 3) {
        let switch = match random.range(0, 3) {
            0 => random.choose(&roost_fair::switches()).0.to_owned(),
            1 => format!("no-{}", random.choose(&roost_fair::switches()).0),
            2 => random.choose(&roost_fair::switches()).0.to_owned(),
            _ => {
                let numbers: Vec<_> = roost_fair::numbers().collect();
                let number = random.choose(&numbers);
                let most = *random.choose(&[100, 10_000, 1_000_000, u64::from(number.most)]);
                format!("{}={}", number.name, random.range(0, most))
            }
        };
        let longer = format!("{text}+{switch}");
        // Not every version has every switch, or accepts the same range of a number.
        if Features::parse(&longer).is_ok() {
            text = longer;
            switches.push(switch);
        }
    }
    (Some(version), switches)
}

fn random_task(random: &mut Random, kind: &Kind) -> Task {
    let mut settings = Vec::new();
    if random.one_in(2) {
        settings.push(format!("\"priority\": {}, ", random.range(0, 39) as i64 - 20));
    }
    if kind.pinned && random.one_in(3) {
        settings.push(cpus_setting(random, &kind.cpus));
    }
    if kind.grouped && random.one_in(2) {
        settings.push(format!("\"taskgroup\": \"/g{}\", ", random.range(0, 1)));
    }
    if random.one_in(6) {
        settings.push(format!("\"delay\": {}, ", random.range(0, 20_000)));
    }
    if random.one_in(6) {
        settings.push(format!("\"membind_nodes\": [{}], ", random.choose(&kind.memory_nodes)));
    }
    let count = random.range(1, 3);
    let mut phases: Vec<Phase> = (0..count).map(|_| random_phase(random, kind)).collect();
    keep_one_barrier(&mut phases);
    Task { instances: random.range(1, 6), settings, phases }
}

/// A task may wait at a barrier only at one place.
fn keep_one_barrier(phases: &mut [Phase]) {
    let mut found = false;
    for phase in phases {
        phase.events.retain(|event| {
            let barrier = event.starts_with("\"barrier");
            let second = barrier && found;
            found |= barrier;
            !second
        });
    }
}

fn cpus_setting(random: &mut Random, cpus: &[u64]) -> String {
    format!("\"cpus\": {:?}, ", random_cpus(random, cpus))
}

fn random_phase(random: &mut Random, kind: &Kind) -> Phase {
    let mut settings = Vec::new();
    if kind.pinned && random.one_in(5) {
        settings.push(cpus_setting(random, &kind.cpus));
    }
    if random.one_in(5) {
        let last = if kind.idle_policy { 3 } else { 2 };
        let policy = *random.choose(&["SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE"][..last]);
        settings.push(format!("\"policy\": \"{policy}\", "));
        if kind.slices && policy != "SCHED_IDLE" {
            settings.push(format!("\"dl-runtime\": {}, ", random.range(50, 20_000)));
        }
    }
    if kind.grouped && random.one_in(4) {
        let group = random.choose(&["/", "/g0", "/g1", "/g1/h"]);
        settings.push(format!("\"taskgroup\": \"{group}\", "));
    }
    // The first event takes time, so that a loop cannot stand still.
    let mut events = vec![format!("\"run\": {}", random.range(1, 2_000))];
    events.extend((0..random.range(0, 3)).map(|i| random_event(random, i, kind.waiting)));
    Phase { times: random.range(1, 8), settings, events }
}

/// One event. `i` makes the keys of a phase different. Events from number 11 on wait for other tasks, or are waited
/// for. A mutex is locked and unlocked within one event, and never nested.
fn random_event(random: &mut Random, i: u64, waiting: bool) -> String {
    let us = random.range(1, 2_000);
    let shared = random.range(0, 1);
    match random.range(0, if waiting { 17 } else { 10 }) {
        0 | 1 => format!("\"run{i}\": {us}"),
        2 => format!("\"runtime{i}\": {us}"),
        3 | 4 => format!("\"sleep{i}\": {us}"),
        5 => format!("\"timer{i}\": {{\"ref\": \"unique{i}\", \"period\": {us}}}"),
        6 => format!("\"lock{i}\": \"m{shared}\", \"run{i}\": {us}, \"unlock{i}\": \"m{shared}\""),
        7 => format!("\"yield{i}\": \"\""),
        8 => format!("\"fork{i}\": \"child\""),
        9 => format!("\"mem{i}\": {}", us * 64),
        10 => {
            // Timers whose names do not begin with "unique" are shared by all tasks.
            let name = random.choose(&["unique", "shared"]);
            let mode = random.choose(&["relative", "absolute"]);
            format!(
                "\"timer{i}\": {{\"ref\": \"{name}{i}\", \"period\": {us}, \"mode\": \"{mode}\"}}"
            )
        }
        11 => format!("\"resume{i}\": \"t{shared}\""),
        12 => format!("\"suspend{i}\": \"t{shared}\", \"sleep{i}\": {us}"),
        13 => format!("\"barrier{i}\": \"b{shared}\""),
        14 => format!(
            "\"lock{i}\": \"m{shared}\", \"signal{i}\": \"c{shared}\", \"unlock{i}\": \"m{shared}\""
        ),
        15 => format!(
            "\"lock{i}\": \"m{shared}\", \"sync{i}\": {{\"ref\": \"c{shared}\", \
             \"mutex\": \"m{shared}\"}}, \"unlock{i}\": \"m{shared}\""
        ),
        16 => format!(
            "\"lock{i}\": \"m{shared}\", \"broad{i}\": \"c{shared}\", \"unlock{i}\": \"m{shared}\", \
             \"sleep{i}\": {us}"
        ),
        _ => format!(
            "\"lock{i}\": \"m{shared}\", \"wait{i}\": {{\"ref\": \"c{shared}\", \
             \"mutex\": \"m{shared}\"}}, \"unlock{i}\": \"m{shared}\""
        ),
    }
}
