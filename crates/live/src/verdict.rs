//! What a dry run says about this machine: what roost would do for it, and what speaks against it.

use std::path::Path;

use roost_layout::Layout;
use roost_machine::count;
use roost_settings::Settings;

use crate::kernel;

/// Where cgroups are.
pub const CGROUPS: &str = "/sys/fs/cgroup";

/// A kernel thread (`PF_KTHREAD` in `/proc/PID/stat`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The policies FIFO, RR and DEADLINE, whose tasks run before those of any sched_ext scheduler.
const REALTIME: [u64; 3] = [1, 2, 6];

/// Number of names that a line lists.
const MOST_NAMES: usize = 3;

/// What matters of the running system.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether the kernel gives tasks of a sched_ext scheduler CPU time beside busy tasks of the fair class.
    pub serves: bool,
    /// Cgroups with a limit on CPU time.
    pub limited: Vec<String>,
    /// Realtime and deadline threads that are not the kernel's.
    pub realtime: Vec<String>,
}

impl Facts {
    /// Those of this system.
    pub fn of_this_system() -> Self {
        let mut limited = Vec::new();
        find_limits(Path::new(CGROUPS), "", &mut limited);
        Self { serves: kernel::serves_sched_ext(), limited, realtime: realtime(Path::new("/proc")) }
    }
}

/// The verdict, a claim on each line. Without facts, the layout is that of another machine.
pub fn verdict(layout: &Layout, settings: &Settings, facts: Option<&Facts>) -> Vec<String> {
    let mut lines = gains(layout, settings);
    let mut against = |reason: String| lines.push(format!("against: {reason}"));
    if layout.llcs.len() < 2 {
        against("one LLC: the fair class decides most of it as well".to_owned());
    }
    let Some(Facts { serves, limited, realtime }) = facts else { return lines };
    if !serves {
        against(
            "an old kernel: tasks of the fair class can keep it from running, so a busy machine may stall when it \
             is unloaded"
                .to_owned(),
        );
    }
    if !limited.is_empty() {
        let names = some_of(limited);
        against(format!("limits on CPU time, kept only within slices (cpu.max of {names})"));
    }
    if !realtime.is_empty() {
        against(format!("realtime threads, which take CPUs from it: {}", some_of(realtime)));
    }
    lines
}

/// What each mechanism that is on has to act on here.
fn gains(layout: &Layout, settings: &Settings) -> Vec<String> {
    let mut lines = Vec::new();
    let mut by_node = vec!["numa-imbalance", "cling", "consolidate"];
    by_node.retain(|mechanism| settings.is_on(mechanism));
    if layout.nodes.len() > 1 && !by_node.is_empty() {
        lines.push(format!(
            "gains: on {} nodes threads stay near each other and their memory ({})",
            layout.nodes.len(),
            by_node.join(", ")
        ));
    }
    let llcs = layout.nodes.iter().map(|node| node.nr_llcs).max().unwrap_or(0);
    if llcs > 1 && settings.is_on("llc-imbalance") {
        lines.push(format!(
            "gains: with {llcs} LLCs in a node few tasks do not move between LLCs (llc-imbalance)"
        ));
    }
    if settings.is_on("sis-util") {
        let cpus = layout.llcs.iter().map(|llc| llc.nr_cpus).max().unwrap_or(0);
        lines.push(format!(
            "gains: wakeups search fewer of an LLC's {} when it is busy (sis-util)",
            count(cpus as usize, "CPU")
        ));
    }
    lines
}

/// The first names, and how many more there are.
fn some_of(names: &[String]) -> String {
    let shown = names.len().min(MOST_NAMES);
    let more = names.len() - shown;
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names[..shown].join(", ") + &more
}

/// Adds the cgroups below `folder` that have a limit on CPU time.
fn find_limits(folder: &Path, path: &str, limited: &mut Vec<String>) {
    if std::fs::read_to_string(folder.join("cpu.max")).is_ok_and(|text| !text.starts_with("max")) {
        limited.push(path.to_owned());
    }
    for (name, folder) in folders(folder) {
        find_limits(&folder, &format!("{path}/{name}"), limited);
    }
}

/// All realtime and deadline threads that are not the kernel's, as `name (PID)`.
fn realtime(proc: &Path) -> Vec<String> {
    let processes = folders(proc).into_iter().filter(|(name, _)| name.parse::<u32>().is_ok());
    let threads = processes.flat_map(|(_, folder)| folders(&folder.join("task")));
    threads
        .filter_map(|(pid, folder)| {
            let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
            is_realtime(&stat).map(|name| format!("{name} ({pid})"))
        })
        .collect()
}

/// The name of a realtime or deadline thread, from `/proc/PID/stat`. `None` if it is another thread or the kernel's.
fn is_realtime(stat: &str) -> Option<&str> {
    // The name is in parentheses and may contain any character.
    let (before, rest) = stat.rsplit_once(") ")?;
    let (_, name) = before.split_once('(')?;
    // `rest` begins with the third field: flags are the 9th field, the policy is the 41st.
    let field = |number: usize| rest.split(' ').nth(number - 3)?.parse::<u64>().ok();
    let (flags, policy) = (field(9)?, field(41)?);
    (flags & KERNEL_THREAD == 0 && REALTIME.contains(&policy)).then_some(name)
}

/// The folders in `folder`, by name.
fn folders(folder: &Path) -> Vec<(String, std::path::PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(machine: &str, facts: Option<&Facts>) -> Vec<String> {
        with(&Settings::default(), machine, facts)
    }

    fn with(settings: &Settings, machine: &str, facts: Option<&Facts>) -> Vec<String> {
        verdict(&Layout::of(&roost_machine::resolve(machine).unwrap()), settings, facts)
    }

    #[test]
    fn a_mechanism_that_is_off_brings_no_gain() {
        let mut settings = Settings::default();
        for part in ["no-cling", "no-consolidate", "no-sis-util"] {
            settings.apply("roost", part).unwrap();
        }
        let lines = with(&settings, "2n2l4c", None);
        assert!(lines[0].ends_with("(numa-imbalance)") && lines.len() == 2, "{lines:?}");
    }

    #[test]
    fn a_machine_gains_by_what_it_has() {
        let two = lines("2n2l4c", None);
        assert!(two[0].contains("2 nodes") && two[1].contains("2 LLCs"), "{two:?}");
        assert_eq!(two.len(), 3, "nothing speaks against it: {two:?}");
        let one = lines("node:1 l3:1 core:4 pu:1", None);
        assert!(one[0].contains("sis-util") && one[1].starts_with("against: one LLC"), "{one:?}");
    }

    #[test]
    fn what_runs_there_speaks_against_it() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let facts = Facts {
            serves: false,
            limited: names(&["/a", "/b", "/c", "/d", "/e"]),
            realtime: names(&["jackd (7)"]),
        };
        let against = lines("2n2l4c", Some(&facts)).split_off(3).join("\n");
        for said in ["an old kernel", "/a, /b, /c and 2 more", "realtime threads", "jackd (7)"] {
            assert!(against.contains(said), "{said}: {against}");
        }
        let calm = Facts { serves: true, ..Facts::default() };
        assert_eq!(lines("2n2l4c", Some(&calm)).len(), 3);
    }

    /// Fields as in proc_pid_stat(5). The name contains what ends a name.
    #[test]
    fn realtime_threads_are_told_by_policy_and_the_kernels_are_not() {
        let stat = |flags: u64, policy: u64| {
            let zeros = |count: usize| vec!["0"; count].join(" ");
            format!("7 (a) b) S {} {flags} {} {policy} 0", zeros(5), zeros(31))
        };
        assert_eq!(is_realtime(&stat(0, 1)), Some("a) b"));
        assert_eq!(is_realtime(&stat(0, 6)), Some("a) b"));
        assert_eq!(is_realtime(&stat(0, 0)), None);
        assert_eq!(is_realtime(&stat(KERNEL_THREAD, 1)), None);
        assert_eq!(is_realtime("7 (a) S 1"), None);
    }

    #[test]
    fn limits_of_nested_cgroups_are_found() {
        let root = tempfile::tempdir().unwrap();
        let nested = root.path().join("a/b");
        std::fs::create_dir_all(&nested).unwrap();
        std::fs::write(root.path().join("a/cpu.max"), "max 100000\n").unwrap();
        std::fs::write(nested.join("cpu.max"), "20000 100000\n").unwrap();
        let mut limited = Vec::new();
        find_limits(root.path(), "", &mut limited);
        assert_eq!(limited, ["/a/b"]);
    }
}
