//! The guest's kernel's view of its machine and its scheduling domains.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use roost_machine::{CpuSet, Machine};
use tempfile::TempDir;

use crate::error::VmError;
use crate::shape;

/// The file in the archive that `init.sh` sends.
const FILE: &str = "survey";

/// Where the kernel shows its domains (`sched_verbose`).
const DOMAINS: &str = "sys/kernel/debug/sched/domains";

/// The folder with the scheduler's settings, which also contains the domains.
const SETTINGS: &str = "sys/kernel/debug/sched/";

/// The guest's own view, read at boot.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The kernel's release (`uname -r`).
    pub release: String,
    /// The machine as `/sys` shows it.
    pub machine: Machine,
    /// The scheduling domains of each CPU, bottom up.
    pub domains: Vec<Vec<SeenDomain>>,
    /// The scheduler's settings: files below `/sys/kernel/debug/sched` with their contents.
    pub settings: BTreeMap<String, String>,
}

/// A scheduling domain, as the kernel shows it in debugfs, in `/proc/schedstat` and in its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenDomain {
    /// `SMT`, `MC`, ...
    pub level: String,
    /// Its CPUs in list format.
    pub span: String,
    /// Flags without `SD_`, sorted.
    pub flags: Vec<String>,
    /// The CPUs of its groups in the kernel's order, the CPU's own group first. Empty if the kernel's log does not show
    /// them.
    pub groups: Vec<String>,
    /// The numbers in debugfs, by name: `imbalance_pct`, `busy_factor`, ...
    pub numbers: BTreeMap<String, u64>,
}

impl Survey {
    /// Reads the files that `init.sh` wrote.
    pub(crate) fn read(folder: &TempDir) -> Result<Self, VmError> {
        let path = folder.path().join(FILE);
        let bytes = std::fs::read(&path).map_err(|error| VmError::file(&path, &error))?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    fn parse(text: &str) -> Result<Self, VmError> {
        let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (path, line) in text.lines().filter_map(|line| line.split_once(':')) {
            files.entry(path).or_default().push(line);
        }
        let machine = machine(&files)?;
        let mut domains = domains(&files, machine.nr_cpus());
        spans(&files, &mut domains);
        groups(&files, &mut domains);
        let release = files.get("release").and_then(|lines| lines.first());
        let release = release.copied().unwrap_or_default().to_owned();
        Ok(Self { release, machine, domains, settings: settings(&files) })
    }

    /// Fails if the guest does not see the requested machine.
    pub(crate) fn check(&self, asked: &Machine) -> Result<(), VmError> {
        match shape::difference(asked, &self.machine) {
            None => Ok(()),
            Some(difference) => Err(VmError::Topology { machine: asked.name.clone(), difference }),
        }
    }
}

/// The machine. A captured `/sys` is read in the same way.
fn machine(files: &BTreeMap<&str, Vec<&str>>) -> Result<Machine, VmError> {
    let folder = tempfile::tempdir().map_err(|error| crate::guest::unnamed_failed(&error))?;
    for (name, lines) in files {
        let path = Path::new(name);
        let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        let wanted = path.starts_with("sys/devices/system") || *name == "proc/cpuinfo";
        if !(inside && wanted) {
            continue;
        }
        let file = folder.path().join(path);
        let parent = file.parent().unwrap_or(folder.path());
        let write = std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&file, lines.join("\n") + "\n"));
        write.map_err(|error| VmError::file(&file, &error))?;
    }
    let mut machine = Machine::from_sysfs(folder.path())?;
    machine.name = "guest".into();
    Ok(machine)
}

/// The scheduler's settings, and the names of the domains.
fn settings(files: &BTreeMap<&str, Vec<&str>>) -> BTreeMap<String, String> {
    let is_wanted = |path: &str| !path.starts_with(DOMAINS) || path.ends_with("/name");
    let settings = files.iter().filter(|(path, _)| is_wanted(path));
    settings
        .filter_map(|(path, lines)| {
            Some((path.strip_prefix(SETTINGS)?.to_owned(), lines.join("\n")))
        })
        .collect()
}

/// Reads the domains from debugfs: `cpu0/domain1/name` and so on.
fn domains(files: &BTreeMap<&str, Vec<&str>>, cpus: usize) -> Vec<Vec<SeenDomain>> {
    let mut domains = vec![Vec::new(); cpus];
    for (path, lines) in files {
        let Some(rest) = path.strip_prefix(DOMAINS) else { continue };
        let mut parts = rest.trim_start_matches('/').split('/');
        let mut number = |prefix| parts.next()?.strip_prefix(prefix)?.parse::<usize>().ok();
        let (Some(cpu), Some(level)) = (number("cpu"), number("domain")) else { continue };
        let (Some(file), Some(line)) = (parts.next(), lines.first()) else { continue };
        let Some(domain) = domains.get_mut(cpu).and_then(|domains| at(domains, level)) else {
            continue;
        };
        match file {
            "name" => domain.level = (*line).to_owned(),
            "flags" => domain.flags = flags(line),
            _ => {
                if let Ok(number) = line.trim().parse() {
                    domain.numbers.insert(file.to_owned(), number);
                }
            }
        }
    }
    domains
}

/// The domain at `level`, created if it does not exist. The kernel has fewer than 32.
fn at(domains: &mut Vec<SeenDomain>, level: usize) -> Option<&mut SeenDomain> {
    if level < 32 && domains.len() <= level {
        domains.resize(level + 1, SeenDomain::default());
    }
    domains.get_mut(level)
}

fn flags(line: &str) -> Vec<String> {
    let names = line.split_whitespace().map(|flag| flag.strip_prefix("SD_").unwrap_or(flag));
    let mut flags: Vec<String> = names.map(str::to_owned).collect();
    flags.sort();
    flags
}

/// Adds spans from `/proc/schedstat`: `domain1 PKG 00ff ...`. Before version 17, the name is missing.
fn spans(files: &BTreeMap<&str, Vec<&str>>, domains: &mut [Vec<SeenDomain>]) {
    let mut cpu = None;
    for line in files.get("proc/schedstat").into_iter().flatten() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some(number) = first.strip_prefix("cpu") {
            cpu = number.parse::<usize>().ok();
        } else if let Some(level) = first.strip_prefix("domain") {
            let mask = words.take(2).find(|word| is_mask(word));
            let domain = cpu
                .and_then(|cpu| domains.get_mut(cpu))
                .zip(level.parse::<usize>().ok())
                .and_then(|(domains, level)| domains.get_mut(level));
            if let (Some(domain), Some(mask)) = (domain, mask) {
                domain.span = list(mask);
            }
        }
    }
}

/// Whether a word is a mask of CPUs. Names of levels contain letters beyond f, such as the M in `MC`.
fn is_mask(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_hexdigit() || c == ',')
}

/// Converts a mask such as `0000,0000ff00` to a list of CPUs: `8-15`.
fn list(mask: &str) -> String {
    let digits: Vec<u32> = mask.chars().rev().filter_map(|digit| digit.to_digit(16)).collect();
    let bits = digits.iter().enumerate().flat_map(|(place, &digit)| {
        (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| place * 4 + bit)
    });
    CpuSet::from_cpus(digits.len() * 4, bits).to_string()
}

/// Adds groups from the kernel's log, where `sched_verbose` writes them when it attaches domains:
///
/// ```text
/// CPU0 attaching sched-domain(s):
///  domain-0: span=0-3 level=MC
///   groups: 0:{ span=0 }, 1:{ span=1 cap=1023 }
/// ```
///
/// Domains may be attached several times. The last time counts.
fn groups(files: &BTreeMap<&str, Vec<&str>>, domains: &mut [Vec<SeenDomain>]) {
    let (mut cpu, mut level) = (None, None);
    for line in files.get("kernel-log").into_iter().flatten() {
        let line = line.trim();
        if let Some((number, _)) = line.split_once(" attaching sched-domain") {
            cpu = number.strip_prefix("CPU").and_then(|number| number.parse::<usize>().ok());
        } else if let Some(rest) = line.strip_prefix("domain-") {
            level = rest.split(':').next().and_then(|number| number.parse::<usize>().ok());
        } else if let Some(rest) = line.strip_prefix("groups:") {
            let domain = cpu
                .and_then(|cpu| domains.get_mut(cpu))
                .zip(level)
                .and_then(|(domains, level)| domains.get_mut(level));
            if let Some(domain) = domain {
                domain.groups = group_spans(rest);
            }
        }
    }
}

/// The spans in a line of groups.
fn group_spans(line: &str) -> Vec<String> {
    let parts = line.split("span=").skip(1);
    parts.filter_map(|part| part.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBUGFS: &str = "\
sys/kernel/debug/sched/domains/cpu0/domain0/name:MC
sys/kernel/debug/sched/domains/cpu0/domain0/flags:SD_SHARE_LLC SD_BALANCE_FORK 
sys/kernel/debug/sched/domains/cpu0/domain0/imbalance_pct:117
sys/devices/system/cpu/online:0-1
proc/schedstat:version 17
proc/schedstat:cpu0 0 0 0
proc/schedstat:domain0 MC 3 0 0
kernel-log: CPU0 attaching sched-domain(s):
kernel-log:  domain-0: span=0-1 level=MC
kernel-log:   groups: 0:{ span=0 }, 1:{ span=1 cap=1020 }
release:7.2.13
";

    #[test]
    fn domains_are_put_together_from_three_places() {
        let survey = Survey::parse(DEBUGFS).unwrap();
        assert_eq!((survey.release.as_str(), survey.machine.nr_cpus()), ("7.2.13", 2));
        let domain = &survey.domains[0][0];
        assert_eq!((domain.level.as_str(), domain.span.as_str()), ("MC", "0-1"));
        assert_eq!(domain.flags, ["BALANCE_FORK", "SHARE_LLC"]);
        assert_eq!(domain.groups, ["0", "1"]);
        assert_eq!(domain.numbers["imbalance_pct"], 117);
        assert!(survey.domains[1].is_empty());
    }

    #[test]
    fn masks_are_lists() {
        assert_eq!(list("ff00"), "8-15");
        assert_eq!(list("00000001,80000000"), "31-32");
        assert!(is_mask("00ff") && !is_mask("MC") && !is_mask("CLS"));
    }

    #[test]
    fn paths_of_a_guest_cannot_leave_the_folder() {
        let text =
            format!("{DEBUGFS}sys/devices/system/../../../../x:1\n/sys/devices/system/y:1\n");
        assert!(Survey::parse(&text).is_ok());
    }
}
