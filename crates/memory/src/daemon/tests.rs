//! The daemon on a made-up host: two nodes with two CPUs each, and memory on a third node.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges are meant")]

use super::*;
use crate::parse::Allowed;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const STEP: u64 = 100 * MS;

/// A process with consecutive pages from address 0 on.
#[derive(Clone, Default)]
struct FakeProcess {
    nodes: Vec<u32>,
    details: Details,
    /// Pages from here on have their own policy.
    free_until: usize,
    /// The kernel does not move its pages.
    pinned: bool,
}

#[derive(Default)]
struct Fake {
    processes: BTreeMap<u32, FakeProcess>,
    room: BTreeMap<u32, u64>,
    groups: Vec<Set>,
    sets: Vec<Set>,
    busy: Vec<u32>,
    told: BTreeMap<u32, Vec<(u32, u64)>>,
    told_groups: BTreeMap<u32, Vec<(u32, u64)>>,
    told_moves: Vec<(u32, bool)>,
    excluded: BTreeMap<u32, bool>,
    moved_to: Vec<(u32, u32)>,
    asked: u64,
    looks: u64,
    /// How long a page takes, ns. 0: 50 us, so that 10,000 pages a second take half of the time.
    page_ns: u64,
    moving_ns: u64,
}

impl Host for Fake {
    fn processes(&mut self) -> Vec<(u32, u64)> {
        self.processes.iter().map(|(pid, p)| (*pid, p.nodes.len() as u64)).collect()
    }
    fn details(&mut self, pid: u32) -> Option<Details> {
        Some(self.processes.get(&pid)?.details.clone())
    }
    fn mapped(&mut self, pid: u32) -> Vec<Range<u64>> {
        let pages = self.processes.get(&pid).map_or(0, |p| p.nodes.len() as u64);
        std::iter::once(0..pages * PAGE).collect()
    }
    fn movable(&mut self, pid: u32) -> Vec<Range<u64>> {
        let pages = self.processes.get(&pid).map_or(0, |p| p.free_until as u64);
        std::iter::once(0..pages * PAGE).collect()
    }
    fn present(&mut self, _pid: u32, range: Range<u64>, most: usize) -> (Vec<u64>, u64) {
        self.looks += 1;
        let pages: Vec<u64> = range.clone().step_by(PAGE as usize).take(most).collect();
        let next = pages.last().map_or(range.end, |last| last + PAGE);
        (pages, next)
    }
    fn locate(&mut self, pid: u32, addresses: &[u64]) -> Vec<Option<u32>> {
        self.asked += addresses.len() as u64;
        let process = self.processes.get(&pid);
        let node = |at: &u64| process.and_then(|p| p.nodes.get((at / PAGE) as usize)).copied();
        addresses.iter().map(node).collect()
    }
    fn move_to(&mut self, pid: u32, addresses: &[u64], target: u32) -> u64 {
        let page_ns = if self.page_ns == 0 { 50_000 } else { self.page_ns };
        self.moving_ns += page_ns * addresses.len() as u64;
        let Some(process) = self.processes.get_mut(&pid).filter(|p| !p.pinned) else { return 0 };
        for address in addresses {
            process.nodes[(address / PAGE) as usize] = target;
        }
        let moved = addresses.len() as u64;
        *self.room.entry(target).or_default() -= moved;
        self.moved_to.extend(addresses.iter().map(|_| (pid, target)));
        moved
    }
    fn moving_ns(&mut self) -> u64 {
        self.moving_ns
    }
    fn room(&mut self) -> Vec<(u32, u64)> {
        self.room.iter().map(|(node, room)| (*node, *room)).collect()
    }
    fn group_pages(&mut self, group: u64) -> Option<Vec<(u32, u64)>> {
        (group < 1000).then(|| vec![(1, 77)])
    }
    fn group_path(&mut self, group: u64) -> Option<String> {
        Some(format!("/jobs/group{group}"))
    }
}

/// The scheduler is separate from the host, as in reality.
#[derive(Default)]
struct FakeScheduler(Fake);

impl Scheduler for FakeScheduler {
    fn groups(&mut self) -> Vec<Set> {
        self.0.groups.clone()
    }
    fn processes(&mut self, pids: &[u32]) -> Vec<Set> {
        let asked = |set: &&Set| pids.iter().any(|pid| u64::from(*pid) == set.id);
        self.0.sets.iter().filter(asked).cloned().collect()
    }
    fn busy_nodes(&mut self) -> Vec<u32> {
        self.0.busy.clone()
    }
    fn set_group_memory(&mut self, index: u32, pages: &[(u32, u64)]) {
        self.0.told_groups.insert(index, pages.to_vec());
    }
    fn set_process_memory(&mut self, index: u32, pages: &[(u32, u64)]) {
        self.0.told.insert(index, pages.to_vec());
    }
    fn set_moving(&mut self, index: u32, moving: bool) {
        self.0.told_moves.push((index, moving));
    }
    fn set_excluded(&mut self, index: u32, excluded: bool) {
        self.0.excluded.insert(index, excluded);
    }
}

fn config() -> Config {
    Config {
        least_pages: 1000,
        share_percent: 50,
        interval: 2000 * MS,
        settle: 3000 * MS,
        nodes: BTreeMap::from([(0, vec![0..2]), (1, vec![2..4])]),
        patterns: Vec::new(),
        follows: true,
    }
}

fn process(pages: usize, node: u32) -> FakeProcess {
    let allowed =
        Allowed { cpus: std::iter::once(0..4).collect(), nodes: std::iter::once(0..3).collect() };
    FakeProcess {
        nodes: vec![node; pages],
        details: Details { group: None, allowed, started: 1 },
        free_until: pages,
        pinned: false,
    }
}

fn set(id: u64, preferred: Option<u32>) -> Set {
    Set { index: id as u32 * 10, id, preferred, settled_at: 0, started: 1 }
}

/// A host with room, and a scheduler that knows one process, 7, for which it prefers node 1.
fn host(process: FakeProcess) -> (Fake, FakeScheduler) {
    let mut host = Fake { room: BTreeMap::from([(0, 1 << 20), (1, 1 << 20)]), ..Fake::default() };
    host.processes.insert(7, process);
    let mut scheduler = FakeScheduler::default();
    scheduler.0.sets.push(set(7, Some(1)));
    (host, scheduler)
}

/// Lets the daemon do what is due.
fn step(daemon: &mut Daemon, now: u64, host: &mut Fake, scheduler: &mut FakeScheduler) -> bool {
    let due = now >= daemon.due_at();
    if due {
        daemon.step(now, host, scheduler);
    }
    due
}

/// Runs the daemon for some seconds.
fn run(config: Config, host: &mut Fake, scheduler: &mut FakeScheduler, seconds: u64) -> Daemon {
    let mut daemon = Daemon::new(config, 0);
    for tenth in 0..seconds * 10 {
        step(&mut daemon, tenth * STEP, host, scheduler);
    }
    daemon
}

#[test]
fn nothing_is_done_while_nothing_is_due() {
    let (mut host, mut scheduler) = host(process(4000, 1));
    let mut daemon = Daemon::new(config(), 0);
    let due: Vec<u64> = (0..100)
        .filter(|tenth| step(&mut daemon, tenth * STEP, &mut host, &mut scheduler))
        .collect();
    // A sample every 2 s, one when the process has been settled for 3 s, and a scan for large
    // processes after 5 s.
    assert_eq!(due, [0, 20, 30, 50, 70, 90]);
}

fn on(host: &Fake, node: u32) -> usize {
    host.processes[&7].nodes.iter().filter(|on| **on == node).count()
}

#[test]
fn pages_follow_a_process_that_settled() {
    // 64 MB, the amount in the requirement: 15 s at most.
    let (mut host, mut scheduler) = host(process(16384, 0));
    let daemon = run(config(), &mut host, &mut scheduler, 15);
    assert_eq!(on(&host, 1), 16384);
    assert_eq!(daemon.counters().moved, 16384);
    assert_eq!(scheduler.0.told[&70].first().map(|(node, _)| *node), Some(1));
    assert_eq!(scheduler.0.told_moves, [(70, true), (70, false)]);
}

/// A process changes its group while its pages move. They continue to move, for the new group.
#[test]
fn it_is_told_for_whom_pages_move() {
    let mut moved = process(60_000, 0);
    moved.details.group = Some(5);
    let (mut host, mut scheduler) = host(moved);
    scheduler.0.groups = vec![set(5, Some(1)), set(6, Some(1))];
    let mut daemon = Daemon::new(config(), 0);
    for tenth in 0..120 {
        if tenth == 50 {
            host.processes.get_mut(&7).unwrap().details.group = Some(6);
        }
        step(&mut daemon, tenth * STEP, &mut host, &mut scheduler);
    }
    assert_eq!(on(&host, 1), 60_000);
    assert_eq!(scheduler.0.told_moves, [(50, true), (50, false), (60, true), (60, false)]);
}

/// A set stays for a while after its process has ended.
#[test]
fn who_gets_the_number_of_a_process_is_not_taken_for_it() {
    let (mut host, mut scheduler) = host(process(4000, 0));
    host.processes.get_mut(&7).unwrap().details.started = 2;
    let daemon = run(config(), &mut host, &mut scheduler, 15);
    assert!(scheduler.0.told.is_empty() && daemon.counters().moved == 0);
}

#[test]
fn what_is_not_large_any_more_has_no_memory() {
    let (mut host, mut scheduler) = host(process(4000, 1));
    let mut daemon = Daemon::new(config(), 0);
    for tenth in 0..100 {
        step(&mut daemon, tenth * STEP, &mut host, &mut scheduler);
        host.processes.get_mut(&7).unwrap().nodes.truncate(if tenth < 20 { 4000 } else { 999 });
        assert_eq!(scheduler.0.told[&70].is_empty(), tenth >= 50, "{tenth}");
    }
}

/// In 57 s the time for 1140 pages passes, and a huge page's 512 move at once. The pages that are already there are not
/// examined each time.
#[test]
fn slow_pages_do_not_make_it_look_more_often() {
    let mut moved = process(64_000, 1);
    moved.nodes[60_000..].fill(0);
    let (mut host, mut scheduler) = host(moved);
    host.page_ns = 25 * MS;
    run(config(), &mut host, &mut scheduler, 60);
    let moved = 64_000 - on(&host, 0) - 60_000;
    assert!((1140 - 512..=1140 + 512).contains(&moved), "{moved} in some 57 s");
    assert!(host.looks < 60_000 / 512 + 60 * 10, "{} looks", host.looks);
}

/// A process is sampled as soon as it is seen. Its pages follow as soon as they may.
#[test]
fn nothing_waits_for_the_next_sample() {
    let slow = Config { interval: 4000 * MS, ..config() };
    let (mut host, mut scheduler) = host(process(4000, 0));
    let mut daemon = Daemon::new(slow, 0);
    let moved = host.processes.remove(&7).unwrap();
    for tenth in 0..=80 {
        match tenth {
            // Another process is seen at 5 s, a second after the second sample, and is settled 3 s
            // later.
            10 => drop(host.processes.insert(8, moved.clone())),
            50 => scheduler.0.sets = vec![Set { settled_at: 5000 * MS, ..set(8, Some(1)) }],
            _ => {}
        }
        step(&mut daemon, tenth * STEP, &mut host, &mut scheduler);
        assert_eq!(scheduler.0.told.contains_key(&80), tenth >= 50, "{tenth}");
        assert_eq!(daemon.counters().moved > 0, tenth >= 80, "{tenth}");
    }
}

#[test]
fn a_group_says_where_before_its_process_does() {
    let (mut host, mut scheduler) = host(process(4000, 1));
    host.processes.get_mut(&7).unwrap().details.group = Some(5);
    scheduler.0.groups.push(set(5, Some(0)));
    run(config(), &mut host, &mut scheduler, 15);
    assert_eq!(on(&host, 0), 4000, "the group is on node 0 although the process prefers 1");
    assert_eq!(scheduler.0.told_groups[&50], [(1, 77)]);
}

/// The tasks belong to no node while the node pauses.
#[test]
fn nothing_moves_to_a_node_that_pauses() {
    for (group, process) in [(Some(1), Some(1)), (Some(1), Some(0)), (None, Some(1))] {
        let (mut host, mut scheduler) = host(self::process(4000, 0));
        let known = host.processes.get_mut(&7).unwrap();
        known.nodes = [0, 1].repeat(2000);
        known.details.group = Some(5);
        scheduler.0.groups.push(set(5, group));
        scheduler.0.sets = vec![set(7, process)];
        scheduler.0.busy = vec![1];
        run(config(), &mut host, &mut scheduler, 15);
        assert!(host.moved_to.is_empty(), "{group:?} {process:?}");
        scheduler.0.busy.clear();
        run(config(), &mut host, &mut scheduler, 15);
        assert_eq!(on(&host, 1), 4000, "{group:?} {process:?}");
    }
}

/// A move of ten seconds is one second old when the reason for it disappears. It ends by the next
/// sample. Anything sampled or moved afterwards is not part of it.
#[test]
fn a_move_that_is_no_longer_wanted_ends() {
    type Change = fn(&mut Fake, &mut FakeScheduler);
    let leaves: Change = |_, scheduler| scheduler.0.sets = vec![set(7, None)];
    let forgotten: Change = |_, scheduler| scheduler.0.sets.clear();
    let resettles: Change = |_, scheduler| {
        scheduler.0.sets = vec![Set { settled_at: 60_000 * MS, ..set(7, Some(0)) }];
    };
    let pauses: Change = |_, scheduler| scheduler.0.busy = vec![1];
    let affinity: Change =
        |host, _| host.processes.get_mut(&7).unwrap().details.allowed.cpus = vec![0..2];
    let cpuset: Change =
        |host, _| host.processes.get_mut(&7).unwrap().details.allowed.nodes = vec![0..1];
    let ends: Change = |host, _| drop(host.processes.remove(&7));
    // The other process, which comes next, has nothing to move.
    let another: Change = |host, _| {
        let process = host.processes.get_mut(&7).unwrap();
        (process.free_until, process.details.started) = (0, 2);
    };
    let changes = [
        ("leaves", leaves, 2),
        ("forgotten", forgotten, 2),
        ("resettles", resettles, 2),
        ("pauses", pauses, 2),
        ("affinity", affinity, 0),
        ("cpuset", cpuset, 0),
        ("ends", ends, 0),
        ("another", another, 0),
    ];
    for (what, change, seconds) in changes {
        let (mut host, mut scheduler) = host(process(100_000, 0));
        let mut daemon = Daemon::new(config(), 0);
        let mut moved = [0; 2];
        for tenth in 0..200 {
            if tenth == 40 {
                moved[0] = daemon.counters().moved;
                change(&mut host, &mut scheduler);
            }
            if tenth == 40 + seconds * 10 {
                moved[1] = daemon.counters().moved;
            }
            step(&mut daemon, tenth * STEP, &mut host, &mut scheduler);
        }
        assert!(moved[0] > 0, "{what}");
        assert!(daemon.moving.is_none(), "{what}");
        let all = daemon.counters().moved;
        assert!(all == moved[1] && all <= moved[0] + 20_000, "{what}: {moved:?}, {all} in the end");
    }
}

/// A move of ten minutes. After it has begun, half of the pages get a policy.
#[test]
fn pages_that_are_given_a_policy_meanwhile_stay_soon() {
    let (mut host, mut scheduler) = host(process(60_000, 0));
    host.page_ns = 5 * MS;
    let mut daemon = Daemon::new(config(), 0);
    for tenth in 0..7000 {
        if tenth == 100 {
            host.processes.get_mut(&7).unwrap().free_until = 30_000;
        }
        step(&mut daemon, tenth * STEP, &mut host, &mut scheduler);
    }
    let late = host.processes[&7].nodes[30_000..].iter().filter(|node| **node == 1).count();
    assert!(late == 0 && on(&host, 1) == 30_000, "{late} of {}", on(&host, 1));
    assert_eq!(overlaps(&[20..30, 8..12, 0..4], &[2..9, 11..22]), [20..22, 11..12, 8..9, 2..4]);
}

/// The share is for all processes together: forty processes of 4,000 pages take sixteen seconds, not
/// forty samples.
#[test]
fn small_processes_are_moved_one_after_the_other() {
    let (mut host, mut scheduler) = host(process(4000, 0));
    for pid in 8..47 {
        host.processes.insert(pid, process(4000, 0));
        scheduler.0.sets.push(set(u64::from(pid), Some(1)));
    }
    let daemon = run(config(), &mut host, &mut scheduler, 3 + 20);
    assert_eq!(daemon.counters().moved, 160_000);
}

/// Other processes are not held up either until it is known to have ended.
#[test]
fn another_move_begins_when_a_process_has_gone() {
    let (mut host, mut scheduler) = host(process(100_000, 0));
    host.processes.insert(8, process(4000, 0));
    scheduler.0.sets.push(set(8, Some(1)));
    let mut daemon = Daemon::new(config(), 0);
    for tenth in 0..=54 {
        // The last scan of all processes was at second 5.
        if tenth == 51 {
            host.processes.remove(&7);
        }
        step(&mut daemon, tenth * STEP, &mut host, &mut scheduler);
    }
    assert!(host.moved_to.iter().any(|(pid, _)| *pid == 8));
}

/// Knowledge about a process is not used for another process with the same number.
#[test]
fn a_number_that_is_used_again_begins_anew() {
    let (mut host, mut scheduler) = host(FakeProcess { pinned: true, ..process(4000, 0) });
    let mut daemon = Daemon::new(config(), 0);
    for tenth in 0..300 {
        if tenth == 150 {
            let other = process(4000, 0);
            let details = Details { started: 2, ..other.details.clone() };
            host.processes.insert(7, FakeProcess { details, ..other });
            scheduler.0.sets = vec![Set { started: 2, ..set(7, Some(1)) }];
        }
        step(&mut daemon, tenth * STEP, &mut host, &mut scheduler);
    }
    assert_eq!(on(&host, 1), 4000, "the pages of the one before would rest until second 34");
}

#[test]
fn a_group_without_accounting_has_its_processes_pages() {
    let (mut host, mut scheduler) = host(process(4000, 1));
    host.processes.get_mut(&7).unwrap().details.group = Some(5000);
    scheduler.0.groups.push(set(5000, None));
    run(config(), &mut host, &mut scheduler, 3);
    assert_eq!(scheduler.0.told_groups[&50_000], [(1, 4000)]);
}

#[test]
fn nothing_moves_before_it_has_settled_or_without_a_preference() {
    for preferred in [None, Some(1)] {
        let (mut host, mut scheduler) = host(process(4000, 0));
        scheduler.0.sets = vec![Set { settled_at: 60_000 * MS, ..set(7, preferred) }];
        run(config(), &mut host, &mut scheduler, 60);
        assert!(host.moved_to.is_empty(), "{preferred:?}");
    }
}

#[test]
fn what_is_bound_elsewhere_stays() {
    type Bind = fn(&mut FakeProcess);
    let by_cpuset: Bind = |p| p.details.allowed.nodes = std::iter::once(0..1).collect();
    let by_affinity: Bind = |p| p.details.allowed.cpus = std::iter::once(0..2).collect();
    let by_policy: Bind = |p| p.free_until = 0;
    let kinds = [("cpuset", by_cpuset), ("affinity", by_affinity), ("policy", by_policy)];
    for (what, bind) in kinds {
        let mut bound = process(4000, 0);
        bind(&mut bound);
        let (mut host, mut scheduler) = host(bound);
        let daemon = run(config(), &mut host, &mut scheduler, 30);
        assert!(host.moved_to.is_empty(), "{what}");
        assert!(what == "policy" || daemon.counters().bound > 0, "{what} is counted");
    }
}

#[test]
fn memory_where_a_process_must_not_run_does_not_hold_it() {
    let mut bound = process(4000, 0);
    bound.details.allowed.cpus = vec![2..4];
    let (mut host, mut scheduler) = host(bound);
    scheduler.0.sets = vec![set(7, None)];
    run(config(), &mut host, &mut scheduler, 3);
    assert_eq!(scheduler.0.told[&70], []);
}

#[test]
fn memory_on_nodes_without_cpus_is_left_there() {
    let (mut host, mut scheduler) = host(process(4000, 2));
    run(config(), &mut host, &mut scheduler, 30);
    assert!(host.moved_to.is_empty());
}

#[test]
fn a_full_node_gets_nothing() {
    let (mut host, mut scheduler) = host(process(4000, 0));
    host.room.insert(1, 100);
    let daemon = run(config(), &mut host, &mut scheduler, 30);
    assert!(host.moved_to.is_empty());
    assert!(daemon.counters().no_room > 0);
}

#[test]
fn what_will_not_move_is_tried_more_and_more_rarely() {
    let (mut host, mut scheduler) = host(FakeProcess { pinned: true, ..process(4000, 0) });
    let minute = run(config(), &mut host, &mut scheduler, 60).counters().stuck;
    let (mut host, mut scheduler) = self::host(FakeProcess { pinned: true, ..process(4000, 0) });
    let hour = run(config(), &mut host, &mut scheduler, 3600).counters().stuck;
    assert!(minute >= 4000 && hour < 4 * minute, "{minute} in a minute, {hour} in an hour");
}

#[test]
fn groups_that_no_pattern_matches_do_not_cling() {
    let (mut host, mut scheduler) = host(process(4000, 0));
    scheduler.0.groups = vec![set(5, None), set(6, None)];
    let patterns = vec!["/jobs/*5".to_owned()];
    for follows in [true, false] {
        let patterns = patterns.clone();
        scheduler.0.excluded.clear();
        run(Config { patterns, follows, ..config() }, &mut host, &mut scheduler, 3);
        assert_eq!(scheduler.0.excluded, BTreeMap::from([(50, false), (60, true)]), "{follows}");
    }
    assert!(host.moved_to.is_empty(), "in 3 s nothing is ripe, and without memory nothing moves");
    let (mut host, mut scheduler) = self::host(process(4000, 0));
    run(Config { follows: false, ..config() }, &mut host, &mut scheduler, 30);
    assert!(host.moved_to.is_empty() && host.asked == 0);
}

#[test]
fn many_processes_take_turns() {
    let (mut host, mut scheduler) = host(process(2000, 0));
    for pid in 100..1100 {
        host.processes.insert(pid, process(2000, 0));
    }
    let most = (SAMPLED_AT_ONCE * (128 + 64)) as u64;
    scheduler.0.sets = (100..1100).map(|pid| set(pid, None)).collect();
    let rounds = 1001_usize.div_ceil(SAMPLED_AT_ONCE) as u64;
    run(config(), &mut host, &mut scheduler, 2 * rounds);
    assert!(host.asked <= most * rounds, "{} asked in {rounds} rounds", host.asked);
    assert_eq!(scheduler.0.told.len(), 1000, "each had its turn");
}

proptest! {
    /// On any machine: never more than the share of time and one move, never to a node without room, never pages that
    /// are bound elsewhere, and only to preferred nodes.
    #[test]
    fn what_is_promised_holds(
        processes in prop::collection::vec(
            (500_usize..3000, 0_u32..3, prop::option::of(0_u32..2), 0_u32..2, any::<bool>()), 1..6),
        room in 0_u64..6000,
        rate in 100_u64..5000,
    ) {
        let mut host = Fake {
            room: BTreeMap::from([(0, room), (1, room)]),
            page_ns: 1000 * MS / 2 / rate,
            ..Fake::default()
        };
        let mut scheduler = FakeScheduler::default();
        for (pid, (pages, node, preferred, only, bound)) in (1_u32..).zip(&processes) {
            let mut one = process(*pages, *node);
            if *bound {
                one.details.allowed.nodes = std::iter::once(*only..*only + 1).collect();
            }
            host.processes.insert(pid, one);
            scheduler.0.sets.push(set(u64::from(pid), *preferred));
        }
        let mut daemon = Daemon::new(config(), 0);
        for tenth in 0..200_u64 {
            step(&mut daemon, tenth * STEP, &mut host, &mut scheduler);
            prop_assert!(host.moving_ns <= tenth * STEP / 2 + host.page_ns * 512);
        }
        for (pid, target) in &host.moved_to {
            let (.., preferred, only, bound) = processes[*pid as usize - 1];
            prop_assert_eq!(preferred, Some(*target));
            prop_assert!(!bound || only == *target);
        }
        for node in 0..2 {
            let moved = host.moved_to.iter().filter(|(_, target)| *target == node).count();
            prop_assert!(moved as u64 <= room);
        }
    }
}
