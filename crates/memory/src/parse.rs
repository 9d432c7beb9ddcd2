//! Reads the text of the kernel's files. Unknown parts are ignored, because kernels add fields.

use std::ops::Range;

/// A mapping in `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// Private and writable: only this process writes its pages.
    pub own: bool,
}

/// Mappings that can hold pages of memory: writable or shared mappings, but not devices.
pub fn maps(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    let [_, write, _, shared] = words.next()?.as_bytes() else { return None };
    let device = words.nth(2).is_some_and(|_inode| {
        words.next().is_some_and(|name| {
            name.starts_with("/dev/")
                && !name.starts_with("/dev/shm/")
                && !name.starts_with("/dev/zero")
                || name.starts_with("[v")
        })
    });
    let usable = *write == b'w' && !device && range.start < range.end;
    usable.then_some(Mapping { range, own: *shared == b'p' })
}

/// `N3`, `17`: pages on node 3.
fn node_pages(node: &str, count: &str) -> Option<(u32, u64)> {
    Some((node.strip_prefix('N')?.parse().ok()?, count.parse().ok()?))
}

/// Bytes on each node that tasks of a cgroup use directly (`anon`, `file_mapped` of
/// `memory.numa_stat`), by node.
pub fn numa_stat(text: &str) -> Vec<(u32, u64)> {
    let mut nodes: Vec<(u32, u64)> = Vec::new();
    for line in text.lines() {
        let Some(("anon" | "file_mapped", rest)) = line.split_once(' ') else { continue };
        for (node, bytes) in rest.split_whitespace().filter_map(|word| {
            let (node, bytes) = word.split_once('=')?;
            node_pages(node, bytes)
        }) {
            match nodes.iter_mut().find(|(number, _)| *number == node) {
                Some((_, sum)) => *sum = sum.saturating_add(bytes),
                None => nodes.push((node, bytes)),
            }
        }
    }
    nodes.sort_unstable();
    nodes
}

/// A 64th of a node's memory is left to others (assumption, for pages in transit elsewhere).
const KEPT_FREE: u64 = 64;

/// Pages that each node can take (`/proc/zoneinfo`): the free pages of its zones above their high
/// watermarks, less a 64th of its memory. The kernel demands the same watermarks when it moves
/// pages to a node (`migrate_balanced_pgdat`).
pub fn zoneinfo(text: &str) -> Vec<(u32, u64)> {
    /// A node: its number, free pages above the high watermarks, and all pages.
    type NodeRoom = (u32, u64, u64);
    let mut nodes: Vec<NodeRoom> = Vec::new();
    let mut free = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let words = (words.next(), words.next(), words.next());
        if let (Some("Node"), Some(number), Some("zone")) = words {
            let Ok(number) = number.trim_end_matches(',').parse() else { continue };
            if nodes.last().is_none_or(|(last, ..)| *last != number) {
                nodes.push((number, 0, 0));
            }
            continue;
        }
        let Some((_, room, all)) = nodes.last_mut() else { continue };
        // Lines about single CPUs have a colon after the name.
        match words {
            (Some("pages"), Some("free"), Some(pages)) => free = pages.parse().unwrap_or(0),
            (Some("high"), Some(pages), None) => {
                let above = u64::saturating_sub(free, pages.parse().unwrap_or(u64::MAX));
                *room = room.saturating_add(above);
            }
            (Some("managed"), Some(pages), None) => {
                *all = all.saturating_add(pages.parse().unwrap_or(0));
            }
            _ => {}
        }
    }
    let room = |(number, room, all): NodeRoom| (number, room.saturating_sub(all / KEPT_FREE));
    nodes.into_iter().map(room).collect()
}

/// The mount point of the unified hierarchy of cgroups, from `/proc/PID/mountinfo`.
pub fn unified(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        file_system.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4)).flatten()
    })
}

/// Pages of address space and resident pages, from `/proc/PID/statm`; kernel threads have neither.
pub fn statm(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// When a process started, in the kernel's ticks since boot, from `/proc/PID/stat`.
pub fn started(text: &str) -> Option<u64> {
    // The name, in parentheses, may contain any characters. The state after it is the third field.
    text.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// CPUs and nodes that a process may use, from `/proc/PID/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// CPUs of its first thread.
    pub cpus: Vec<Range<u32>>,
    /// Nodes for memory.
    pub nodes: Vec<Range<u32>>,
}

/// What a process may use; empty if the kernel does not say.
pub fn allowed(status: &str) -> Allowed {
    let list = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(ranges).unwrap_or_default()
    };
    Allowed { cpus: list("Cpus_allowed_list:"), nodes: list("Mems_allowed_list:") }
}

/// A list such as `0-3,8`.
pub fn ranges(text: &str) -> Vec<Range<u32>> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..u32::checked_add(last.trim().parse().ok()?, 1)?)
    };
    text.trim().split(',').filter_map(part).collect()
}

/// The path of a process's cgroup in the unified hierarchy, from `/proc/PID/cgroup`.
pub fn cgroup(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges are meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mappings_that_hold_memory() {
        let text = "\
55d0c0000000-55d0c0010000 r-xp 00000000 fe:00 12 /usr/bin/cat
55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0004000000 rw-p 00000000 00:00 0 
7f0010000000-7f0010001000 rw-s 00000000 00:01 77 /dev/shm/x (deleted)
7f0020000000-7f0020001000 rw-s 00000000 00:01 77 /dev/dri/card0
7ffd0000-7ffd1000 r--p 00000000 00:00 0 [vvar]
nonsense
";
        let found = maps(text);
        let starts: Vec<(u64, bool)> = found.iter().map(|m| (m.range.start, m.own)).collect();
        assert_eq!(
            starts,
            [(0x55d0_c0a0_0000, true), (0x7f00_0000_0000, true), (0x7f00_1000_0000, false)]
        );
        assert_eq!(found[1].range.end - found[1].range.start, 64 << 20);
    }

    #[test]
    fn memory_of_a_group() {
        let text = "anon N0=8192 N1=4096\nfile N0=1000000 N1=0\nkernel_stack N0=1 N1=1\n\
                    file_mapped N0=0 N1=4096\nfile_mapped_x N0=7\n";
        assert_eq!(numa_stat(text), [(0, 8192), (1, 8192)]);
        assert_eq!(numa_stat(""), []);
    }

    #[test]
    fn room_is_what_is_free_above_the_high_watermarks() {
        let text = "\
Node 0, zone      DMA
  per-node stats
      nr_free_cma  0
  pages free     100
        boost    0
        min      10
        low      20
        high     30
        spanned  4095
        managed  640
    cpu: 0
              count:    0
              high:     378
Node 0, zone   Normal
  pages free     20
        min      40
        low      50
        high     60
Node 2, zone   Normal
  pages free     1000
        high     400
";
        assert_eq!(zoneinfo(text), [(0, 60), (2, 600)]);
    }

    #[test]
    fn what_a_process_is_and_may() {
        assert_eq!(statm("2000 1500 300 1 0 200 0\n"), Some((2000, 1500)));
        assert_eq!(statm("0 0 0 0 0 0 0\n"), Some((0, 0)));
        assert_eq!(statm(""), None);
        let stat = "42 (a) S 1) R 1 42 42 0 -1 4194304 100 0 0 0 5 2 0 0 20 0 1 0 123456 9 7\n";
        assert_eq!(started(stat), Some(123_456));
        assert_eq!((started("42 (a) R 1"), started("")), (None, None));
        let status = "Name:\tx\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t1\n";
        assert_eq!(allowed(status), Allowed { cpus: vec![0..4, 8..9], nodes: vec![1..2] });
        assert_eq!(cgroup("1:cpu:/a\n0::/user.slice/x\n"), Some("/user.slice/x"));
    }

    #[test]
    fn the_unified_hierarchy_is_where_it_is_mounted() {
        let hybrid = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate
33 31 0:30 / /sys/fs/cgroup/cpu rw,relatime shared:5 - cgroup cgroup rw,cpu
";
        assert_eq!(unified(hybrid), Some("/sys/fs/cgroup/unified"));
        assert_eq!(
            unified("31 23 0:28 / /sys/fs/cgroup rw - tmpfs cgroup2 rw\nx - cgroup2 y\n"),
            None
        );
    }

    proptest! {
        #[test]
        fn any_text_is_borne(text in "\\PC{0,200}", words in "([NA-z0-9=:, -]{0,20}\n){0,8}") {
            for text in [&text, &words] {
                let _ = (maps(text), numa_stat(text), zoneinfo(text));
                let _ = (statm(text), started(text), allowed(text), ranges(text), cgroup(text));
                let _ = unified(text);
            }
        }
    }
}
