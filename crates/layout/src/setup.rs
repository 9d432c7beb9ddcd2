//! Sizes of maps, values of variables and entries of maps, before the program runs.

use roost_settings::Settings;

use crate::layout::{Layout, NUMA_RULE};

/// Means "no such LLC", or "the mechanism's own default" (`NONE` in `bpf/state.h`).
pub const NONE: u32 = u32::MAX;

/// Number of slots in a word.
const WORD: u32 = 64;

/// What a loader has to do, in this order: sizes and variables before the program is loaded, entries after that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Number of entries of each map.
    pub sizes: Vec<(&'static str, u32)>,
    /// Values of the program's constants: numbers, and switches as 0 or 1.
    pub variables: Vec<(String, u64)>,
    /// Entries that describe the machine.
    pub entries: Vec<Entry>,
}

/// An entry of an array map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The map.
    pub map: &'static str,
    /// Index of the entry.
    pub index: u32,
    /// Members that are not 0, and their values. The name is "" if the entry is a number.
    pub members: Vec<(&'static str, u64)>,
}

impl Setup {
    /// The setup for a machine and settings. `possible` has the numbers of all CPUs that the kernel can have.
    pub fn of(layout: &Layout, settings: &Settings, possible: &[u32]) -> Self {
        let cpu_ids = possible.iter().max().map_or(1, |most| most + 1);
        Self {
            sizes: sizes(layout, settings, cpu_ids),
            variables: variables(layout, settings, possible.len() as u32, cpu_ids),
            entries: entries(layout, cpu_ids),
        }
    }
}

/// Settings that say how many groups, processes and cgroups are known at once.
const PLACES: [&str; 3] = ["max-groups", "max-processes", "max-cgroups"];

/// Number of CPUs for which the defaults of [`PLACES`] are made: 16 groups and cgroups a CPU, and 32 processes with
/// several threads (assumption). Larger machines get more in proportion, as the kernel gives them more process numbers
/// (PIDS_PER_CPU_DEFAULT).
const CPUS_OF_DEFAULTS: u32 = 256;

/// A number of the settings. If one of [`PLACES`] was not given, it depends on the number of CPUs.
fn number(settings: &Settings, name: &str, cpu_ids: u32) -> Option<u64> {
    let given = settings.given().any(|(given, _)| given == name);
    let parts = match PLACES.contains(&name) && !given {
        true => cpu_ids.div_ceil(CPUS_OF_DEFAULTS).max(1),
        false => 1,
    };
    settings.number(name).map(|number| number * u64::from(parts))
}

/// The number of entries of each map that the machine needs.
fn sizes(layout: &Layout, settings: &Settings, cpu_ids: u32) -> Vec<(&'static str, u32)> {
    let number = |name| number(settings, name, cpu_ids).unwrap_or(0) as u32;
    let (nodes, words) = (layout.nodes.len() as u32, layout.words.len() as u32);
    // Places for cgroups are needed only if weights or limits of cgroups count.
    let (weights, limited) = (settings.is_on("cgroup-weights"), settings.is_on("cgroup-limits"));
    let shares = if weights || limited { number("max-cgroups") } else { 1 };
    let limits = if limited { number("max-cgroups") } else { 1 };
    let turns = if limited { cpu_ids } else { 1 };
    // Places for groups and processes are needed only if there are several nodes.
    let sets = if nodes > 1 { number("max-groups") + number("max-processes") } else { 1 };
    vec![
        ("cpus", cpu_ids),
        ("words", words),
        ("slots", words * WORD),
        ("places", cpu_ids),
        ("llcs", layout.llcs.len() as u32),
        ("nodes", nodes),
        ("near", nodes * nodes),
        ("futile", nodes * layout.llcs.len() as u32),
        ("homes", nodes),
        ("watches", layout.llcs.len() as u32 + 1),
        ("shares", shares),
        ("share_ids", shares),
        ("limits", limits),
        ("turns", turns),
        ("sets", sets),
        ("set_ids", sets),
        ("set_moves", sets),
        ("set_flags", sets),
        ("set_nodes", sets * nodes),
        ("set_memory", sets * nodes),
    ]
}

/// Values of variables: numbers of the machine, mechanisms and tunables.
fn variables(
    layout: &Layout,
    settings: &Settings,
    nr_possible: u32,
    cpu_ids: u32,
) -> Vec<(String, u64)> {
    let llc_imbalance = match settings.is_on("llc-imbalance") {
        true => settings.number("llc-imbalance").unwrap_or(NONE.into()),
        false => 0,
    };
    let on = |name| u64::from(settings.is_on(name));
    let known = [
        ("nr_possible", nr_possible.into()),
        ("nr_cpu_ids", cpu_ids.into()),
        ("nr_llcs", layout.llcs.len() as u64),
        ("nr_nodes", layout.nodes.len() as u64),
        ("nr_words", layout.words.len() as u64),
        ("smt", layout.smt.into()),
        ("numa_rule", NUMA_RULE as u64),
        ("sis_util", on("sis-util")),
        ("numa_imbalance", on("numa-imbalance")),
        ("cling", on("cling")),
        ("consolidate", on("consolidate")),
        ("cgroup_weights", on("cgroup-weights")),
        ("cgroup_limits", on("cgroup-limits")),
        ("llc_imbalance", llc_imbalance),
    ];
    let known = known.map(|(name, value)| (name.to_owned(), value));
    let tunables = roost_settings::tunables().filter_map(|setting| {
        Some((setting.name.replace('-', "_"), number(settings, setting.name, cpu_ids)?))
    });
    known.into_iter().chain(tunables).collect()
}

fn entries(layout: &Layout, cpu_ids: u32) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut put = |map, index, members| entries.push(Entry { map, index, members });
    for id in 0..cpu_ids {
        put("cpus", id, cpu(layout, id));
        put("places", id, vec![("", slot_number(layout, id).unwrap_or(NONE).into())]);
    }
    let mut base = 0;
    for (index, word) in (0..).zip(&layout.words) {
        let members = vec![
            ("present", word.present),
            ("first", word.first),
            ("nr_slots", word.nr_slots.into()),
            ("base", base.into()),
            ("node", word.node.into()),
            ("llc", llc_of(layout, index).into()),
            ("rank", (index - first_word(layout, word.node)).into()),
        ];
        put("words", index, members);
        for (slot, cpu) in (0..).zip(&word.cpus) {
            put("slots", index * WORD + slot, vec![("", cpu.unwrap_or(NONE).into())]);
        }
        base += word.nr_slots;
    }
    for (index, llc) in (0..).zip(&layout.llcs) {
        let members = vec![
            ("node", llc.node.into()),
            ("nr_cpus", llc.nr_cpus.into()),
            ("first_word", llc.first_word.into()),
            ("nr_words", llc.nr_words.into()),
            ("scan_limit", llc.nr_cpus.into()),
        ];
        put("llcs", index, members);
    }
    let nodes = layout.nodes.len() as u32;
    for (index, node) in (0..).zip(&layout.nodes) {
        let members = vec![
            ("first_llc", node.first_llc.into()),
            ("nr_llcs", node.nr_llcs.into()),
            ("first_word", first_word(layout, index).into()),
            ("scan_limit", node.nr_llcs.into()),
            ("nr_cpus", node.nr_cpus.into()),
            ("numa_span", node.numa_span.into()),
            ("imb_numa_nr", node.imb_numa_nr.into()),
        ];
        put("nodes", index, members);
        for (rank, other) in (0..).zip(&node.near) {
            put("near", index * nodes + rank, vec![("", u64::from(*other))]);
        }
    }
    entries
}

/// The first word of a node.
fn first_word(layout: &Layout, node: u32) -> u32 {
    layout.llcs[layout.nodes[node as usize].first_llc as usize].first_word
}

/// The LLC of a word. The words of an LLC are consecutive.
fn llc_of(layout: &Layout, word: u32) -> u32 {
    layout.llcs.partition_point(|llc| llc.first_word <= word) as u32 - 1
}

/// The number of a CPU's slot, if all used slots are numbered consecutively.
fn slot_number(layout: &Layout, id: u32) -> Option<u32> {
    let place = layout.cpus.iter().find(|cpu| cpu.id == id)?;
    let before = layout.words.iter().take(place.word as usize);
    Some(before.map(|word| word.nr_slots).sum::<u32>() + place.bit)
}

/// The entry of a CPU by the kernel's number. The CPU may have no place.
fn cpu(layout: &Layout, id: u32) -> Vec<(&'static str, u64)> {
    let place = layout.cpus.iter().find(|cpu| cpu.id == id);
    let number = |member: Option<u32>| u64::from(member.unwrap_or(NONE));
    vec![
        ("llc", number(place.map(|cpu| cpu.llc))),
        ("node", number(place.map(|cpu| cpu.node))),
        ("word", number(place.map(|cpu| cpu.word))),
        ("bit", place.map_or(0, |cpu| cpu.bit).into()),
        ("online", place.is_some().into()),
        ("process", NONE.into()),
        ("pull_to", NONE.into()),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn setup(machine: &str, settings: &[&str]) -> Setup {
        let mut given = Settings::default();
        settings.iter().for_each(|part| given.apply("roost", part).unwrap());
        let machine = roost_machine::resolve(machine).unwrap();
        let possible: Vec<u32> = machine.cpus.iter().map(|cpu| cpu.os_index).collect();
        Setup::of(&Layout::of(&machine), &given, &possible)
    }

    fn variable(setup: &Setup, wanted: &str) -> u64 {
        setup.variables.iter().find(|(name, _)| name == wanted).unwrap().1
    }

    #[test]
    fn every_entry_fits_its_map() {
        for machine in ["2n2l4c", "1s2n4l2c", "node:1 l3:1 core:100 pu:2", "zen4-2s"] {
            let setup = setup(machine, &[]);
            for Entry { map, index, .. } in &setup.entries {
                let (_, size) = setup.sizes.iter().find(|(name, _)| name == map).unwrap();
                assert!(index < size, "{machine}: {map}[{index}]");
            }
        }
    }

    /// Two nodes of three LLCs of 100 CPUs, which take two words each.
    #[test]
    fn a_word_knows_its_llc_and_its_place_in_its_node() {
        let setup = setup("node:2 l3:3 core:50 pu:2", &[]);
        let of = |map: &str, member: &str| -> Vec<u64> {
            let entries = setup.entries.iter().filter(|entry| entry.map == map);
            let member = |entry: &Entry| {
                entry.members.iter().find(|(name, _)| *name == member).map(|(_, value)| *value)
            };
            entries.filter_map(member).collect()
        };
        assert_eq!(of("words", "llc"), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        assert_eq!(of("words", "rank"), [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]);
        assert_eq!(of("nodes", "first_word"), [0, 6]);
    }

    #[test]
    fn settings_become_variables() {
        let setup = setup("2n2l4c", &["no-cling", "llc-imbalance=2", "slice-us=700"]);
        let values =
            ["cling", "consolidate", "llc_imbalance", "slice_us", "nr_llcs", "nr_possible"];
        assert_eq!(values.map(|name| variable(&setup, name)), [0, 1, 2, 700, 4, 16]);
    }

    #[test]
    fn an_imbalance_is_off_given_or_the_policys() {
        let of = |part: &[&str]| variable(&setup("2n2l4c", part), "llc_imbalance");
        assert_eq!([of(&["no-llc-imbalance"]), of(&[])], [0, NONE.into()]);
    }

    #[test]
    fn tables_grow_with_the_machine_unless_their_size_is_given() {
        let of = |machine: &str, part: &[&str]| {
            let setup = setup(machine, part);
            let size =
                |wanted: &str| setup.sizes.iter().find(|(name, _)| *name == wanted).unwrap().1;
            (
                variable(&setup, "max_groups"),
                variable(&setup, "max_cgroups"),
                size("sets"),
                size("shares"),
            )
        };
        let of_256 = (4096, 4096, 4096 + 8192, 4096);
        assert_eq!(of("2n2l4c", &[]), of_256);
        assert_eq!(of("zen3-2s", &[]), of_256);
        assert_eq!(of("node:2 l3:3 core:50 pu:1", &[]), (8192, 8192, 8192 + 16384, 8192));
        let given = of("node:2 l3:3 core:50 pu:1", &["max-groups=4096"]);
        assert_eq!(given, (4096, 8192, 4096 + 16384, 8192));
    }

    #[test]
    fn tables_of_what_cannot_act_are_small() {
        let size = |machine: &str, part: &[&str], map: &str| {
            let setup = setup(machine, part);
            setup.sizes.iter().find(|(name, _)| *name == map).unwrap().1
        };
        assert_eq!(size("node:1 l3:2 core:4 pu:1", &[], "sets"), 1, "there is one node only");
        assert!(size("2n2l4c", &[], "sets") > 1);
        assert!(size("2n2l4c", &["no-cgroup-weights"], "shares") > 1, "limits need them too");
        let neither = ["no-cgroup-weights", "no-cgroup-limits"];
        assert_eq!(["shares", "limits"].map(|map| size("2n2l4c", &neither, map)), [1, 1]);
    }
}
