//! Counts for a while what roost could help with, under any scheduler, and changes nothing.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};
use roost_layout::Layout;

use crate::error::LiveError;
use crate::observer::ObserveSkelBuilder;
use crate::verdict::CGROUPS;
use crate::{console, kernel};

/// Number of cgroups in the table. All others share a row.
const MOST_ROWS: usize = 15;

/// How often the progress line changes and signals are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// What tasks of a cgroup did: the members of `struct roost_seen`, in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    run_ns: u64,
    wakeups: u64,
    woken_across_llcs: u64,
    woken_across_nodes: u64,
    moved_between_llcs: u64,
    moved_between_nodes: u64,
}

/// A cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    name: String,
    seen: Seen,
    /// Time on the CPUs of each node of the layout, ns.
    node_ns: Vec<u64>,
    /// Memory on each node, in bytes.
    memory: Vec<u64>,
}

/// Observes for `time`, or until `stop` is set, and prints what would help.
pub fn run(layout: &Layout, time: Duration, stop: &AtomicBool) -> Result<(), LiveError> {
    kernel::check_types()?;
    let mut object = MaybeUninit::uninit();
    let mut open = ObserveSkelBuilder::default().open(&mut object).map_err(refused)?;
    let most = layout.cpus.iter().map(|cpu| cpu.id).max().unwrap_or(0);
    open.maps.places.set_max_entries(most + 1).map_err(refused)?;
    let mut skel = open.load().map_err(refused)?;
    for cpu in &layout.cpus {
        let value = [cpu.llc, cpu.node].map(u32::to_ne_bytes).concat();
        let key = cpu.id.to_ne_bytes();
        skel.maps.places.update(&key, &value, MapFlags::ANY).map_err(refused)?;
    }
    // The entry that all further cgroups share (see the program). An update sets it on all CPUs.
    let cpus = libbpf_rs::num_possible_cpus().map_err(refused)?;
    let none = vec![vec![0; size_of::<Seen>()]; cpus];
    let shared = 0u64.to_ne_bytes();
    skel.maps.groups.update_percpu(&shared, &none, MapFlags::ANY).map_err(refused)?;
    skel.attach().map_err(refused)?;
    let start = Instant::now();
    wait(time, start, stop);
    let observed = start.elapsed();
    let groups = groups(&skel.maps.groups, layout)?;
    console::print(&told(&groups, layout, observed, &kernel::scheduler())).map(drop)
}

/// Waits, with a line of progress on a terminal.
fn wait(time: Duration, start: Instant, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let left = time.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        progress(&format!("observing: {} s left, Ctrl-C ends it now ", left.as_secs() + 1));
        std::thread::sleep(LOOK.min(left));
    }
    progress("");
}

/// Replaces the line of progress. There is none if standard error is not a terminal.
fn progress(line: &str) {
    if std::io::stderr().is_terminal() {
        // Without the line nothing is lost.
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }
}

/// All cgroups that were seen, those that ran longest first.
fn groups(map: &impl MapCore, layout: &Layout) -> Result<Vec<Group>, LiveError> {
    let names = names(Path::new(CGROUPS));
    let mut groups = Vec::new();
    for key in map.keys() {
        let values = map.lookup_percpu(&key, MapFlags::ANY).map_err(refused)?.unwrap_or_default();
        let id = u64::from_ne_bytes(key.try_into().unwrap_or_default());
        let name = match names.get(&id) {
            Some(name) => name.clone(),
            None if id == 0 => "others".to_owned(),
            None => format!("(cgroup {id}, removed)"),
        };
        let mut group = Group { name, node_ns: vec![0; layout.nodes.len()], ..Group::default() };
        for cpu in &layout.cpus {
            let seen = values.get(cpu.id as usize).map(|bytes| seen(bytes)).unwrap_or_default();
            group.seen = group.seen.plus(&seen);
            group.node_ns[cpu.node as usize] += seen.run_ns;
        }
        if group.seen != Seen::default() {
            group.memory = memory(&group.name, layout);
            groups.push(group);
        }
    }
    groups.sort_by_key(|group| (std::cmp::Reverse(group.seen.run_ns), group.name.clone()));
    Ok(groups)
}

/// The value of an entry for one CPU.
fn seen(bytes: &[u8]) -> Seen {
    let mut words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
    let mut next = || words.next().unwrap_or(0);
    Seen {
        run_ns: next(),
        wakeups: next(),
        woken_across_llcs: next(),
        woken_across_nodes: next(),
        moved_between_llcs: next(),
        moved_between_nodes: next(),
    }
}

/// The path of each cgroup by its number, which is the inode of its folder.
fn names(root: &Path) -> BTreeMap<u64, String> {
    let mut names = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        // A cgroup can go away at any time.
        let Ok(metadata) = folder.metadata() else { continue };
        let path = folder.strip_prefix(root).unwrap_or(Path::new(""));
        names.insert(metadata.ino(), format!("/{}", path.display()));
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    names
}

/// Bytes that the tasks of a cgroup use, by node of the layout. Empty if the kernel does not tell.
fn memory(cgroup: &str, layout: &Layout) -> Vec<u64> {
    let path = format!("{CGROUPS}{cgroup}/memory.numa_stat");
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    let by_number = roost_memory::parse::numa_stat(&text);
    let on = |numbers: &[u32]| {
        by_number
            .iter()
            .filter(|(number, _)| numbers.contains(number))
            .map(|(_, bytes)| bytes)
            .sum()
    };
    layout.nodes.iter().map(|node| on(&node.memory_of)).collect()
}

impl Seen {
    fn plus(&self, other: &Self) -> Self {
        Self {
            run_ns: self.run_ns + other.run_ns,
            wakeups: self.wakeups + other.wakeups,
            woken_across_llcs: self.woken_across_llcs + other.woken_across_llcs,
            woken_across_nodes: self.woken_across_nodes + other.woken_across_nodes,
            moved_between_llcs: self.moved_between_llcs + other.moved_between_llcs,
            moved_between_nodes: self.moved_between_nodes + other.moved_between_nodes,
        }
    }
}

impl Group {
    /// The share of the memory that is on other nodes than the CPU, in the mean over the run time. `None` if the memory
    /// is not known.
    fn remote(&self) -> Option<f64> {
        let (memory, run) = (sum(&self.memory), sum(&self.node_ns));
        if memory == 0.0 || run == 0.0 {
            return None;
        }
        let local = |(&ns, &bytes): (&u64, &u64)| ns as f64 * bytes as f64;
        Some(1.0 - self.node_ns.iter().zip(&self.memory).map(local).sum::<f64>() / run / memory)
    }
}

fn sum(values: &[u64]) -> f64 {
    values.iter().map(|&value| value as f64).sum()
}

/// The table and what would help.
fn told(groups: &[Group], layout: &Layout, observed: Duration, scheduler: &str) -> String {
    let seconds = observed.as_secs_f64();
    format!(
        "{seconds:.0} s under {scheduler}, {}\n\n{}\n\n{}",
        layout.summary(),
        table(groups, seconds),
        help(groups, layout, seconds)
    )
}

/// A row for each cgroup.
fn table(groups: &[Group], seconds: f64) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "cgroup",
        "CPUs",
        "wakeups/s",
        "across LLCs",
        "across nodes",
        "LLC moves/s",
        "node moves/s",
        "remote memory",
    ]);
    let (first, rest) = groups.split_at(groups.len().min(MOST_ROWS));
    let rest = (!rest.is_empty()).then(|| Group {
        name: format!("{} more", rest.len()),
        seen: rest.iter().fold(Seen::default(), |sum, group| sum.plus(&group.seen)),
        ..Group::default()
    });
    for Group { name, seen, .. } in first.iter().chain(&rest) {
        let group = first.iter().find(|group| group.name == *name);
        let share = |part: u64| match seen.wakeups {
            0 => "-".to_owned(),
            all => format!("{:.1}%", part as f64 / all as f64 * 100.0),
        };
        let rate = |count: u64| format!("{:.1}", count as f64 / seconds);
        let remote = group.and_then(Group::remote);
        table.add_row([
            name.clone(),
            format!("{:.2}", seen.run_ns as f64 / 1e9 / seconds),
            rate(seen.wakeups),
            share(seen.woken_across_llcs),
            share(seen.woken_across_nodes),
            rate(seen.moved_between_llcs),
            rate(seen.moved_between_nodes),
            remote.map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// For each thing that a mechanism acts on: how much of it there was, and in which cgroup most of it.
fn help(groups: &[Group], layout: &Layout, seconds: f64) -> String {
    if layout.llcs.len() < 2 {
        return "This machine has one LLC: roost has nothing to keep near.\n".to_owned();
    }
    let mut text = String::new();
    let mut line = |what: &str, of: &dyn Fn(&Group) -> f64, acting: &str| {
        let all: f64 = groups.iter().map(of).sum();
        let most = groups.iter().max_by(|a, b| of(a).total_cmp(&of(b)));
        text += &match most.filter(|_| all > 0.0) {
            Some(most) => {
                let share = of(most) / all * 100.0;
                format!("{what}: {all:.1}, {share:.0}% of it in {}. {acting} it.\n", most.name)
            }
            None => format!("{what}: none.\n"),
        };
    };
    let rate = |count: u64| count as f64 / seconds;
    let llcs = |group: &Group| rate(group.seen.moved_between_llcs);
    line("Moves between LLCs of a node, a second", &llcs, "llc-imbalance acts on");
    if layout.nodes.len() > 1 {
        let nodes = |group: &Group| rate(group.seen.moved_between_nodes);
        line("Moves between nodes, a second", &nodes, "cling and numa-imbalance act on");
        let woken = |group: &Group| rate(group.seen.woken_across_nodes);
        line("Wakeups across nodes, a second", &woken, "consolidate and numa-imbalance act on");
        let far = |group: &Group| {
            group.remote().unwrap_or(0.0) * group.seen.run_ns as f64 / 1e9 / seconds
        };
        line("CPUs whose tasks' memory is on other nodes", &far, "consolidate and cling act on");
    }
    text
}

fn refused(error: libbpf_rs::Error) -> LiveError {
    let reason = format!("{error:#}");
    LiveError::NotObserved { release: kernel::release(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(machine: &str) -> Layout {
        Layout::of(&roost_machine::resolve(machine).unwrap())
    }

    fn group(name: &str, seen: Seen, node_ns: [u64; 2], memory: [u64; 2]) -> Group {
        Group { name: name.into(), seen, node_ns: node_ns.into(), memory: memory.into() }
    }

    /// 3 s of 4 s of run time are on node 0, where a quarter of the memory is.
    #[test]
    fn memory_is_remote_where_the_cpus_are_not() {
        let at = |node_ns, memory| group("a", Seen::default(), node_ns, memory).remote();
        assert_eq!(at([3, 1], [25, 75]), Some(1.0 - (0.75 * 0.25 + 0.25 * 0.75)));
        assert_eq!(at([3, 0], [100, 0]), Some(0.0));
        assert_eq!(at([3, 1], [0, 0]), None);
    }

    #[test]
    fn bytes_of_the_program_are_read_in_its_order() {
        let bytes: Vec<u8> = (1u64..=6).flat_map(u64::to_ne_bytes).collect();
        let read = seen(&bytes);
        assert_eq!((read.run_ns, read.wakeups, read.moved_between_nodes), (1, 2, 6));
        assert_eq!(seen(&[]), Seen::default());
    }

    #[test]
    fn the_cgroup_with_most_of_it_is_named_and_nothing_is_none() {
        let seen = Seen { run_ns: 8_000_000_000, moved_between_nodes: 30, ..Seen::default() };
        let few = Seen { moved_between_nodes: 10, ..Seen::default() };
        let groups = [group("/db", seen, [8, 0], [50, 50]), group("/web", few, [0, 0], [0, 0])];
        let text = told(&groups, &layout("2n2l4c"), Duration::from_secs(4), "the fair class");
        for said in [
            "4 s under the fair class, 16 CPUs in 4 LLCs on 2 nodes",
            "Moves between nodes, a second: 10.0, 75% of it in /db. cling and numa-imbalance act on it.",
            "Moves between LLCs of a node, a second: none.\n",
            "CPUs whose tasks' memory is on other nodes: 1.0, 100% of it in /db.",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let row = text.lines().find(|line| line.contains("/db")).unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["/db", "2.00", "0.0", "-", "-", "0.0", "7.5", "50%"]
        );
        let one =
            told(&groups[..1], &layout("node:1 l3:1 core:4 pu:1"), Duration::from_secs(4), "roost");
        assert!(one.contains("one LLC"), "{one}");
    }

    #[test]
    fn cgroups_are_found_by_their_inode() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a.slice/b")).unwrap();
        let names = names(root.path());
        let inode = root.path().join("a.slice/b").metadata().unwrap().ino();
        assert_eq!((names.len(), names[&inode].as_str()), (3, "/a.slice/b"));
    }
}
