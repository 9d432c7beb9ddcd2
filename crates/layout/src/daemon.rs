//! Settings of the daemon that follows memory, for a machine.

use std::collections::BTreeMap;
use std::ops::Range;

use roost_machine::Machine;
use roost_memory::Config;
use roost_settings::Settings;

/// Shortest time between two steps of the daemon, ns.
pub const STEP: u64 = 100_000_000;

/// The daemon's configuration. `None` if it has nothing to do: it is switched off, no mechanism settles tasks, or there
/// is only one node. `has_memory`: whether processes have memory that it could follow.
pub fn daemon(settings: &Settings, machine: &Machine, has_memory: bool) -> Option<Config> {
    let number = |name: &str| settings.number(name).unwrap_or(0);
    let mut nodes: BTreeMap<u32, Vec<Range<u32>>> = BTreeMap::new();
    for cpu in &machine.cpus {
        let node = machine.nodes.get(cpu.node as usize).map_or(cpu.node, |node| node.os_index);
        nodes.entry(node).or_default().push(cpu.os_index..cpu.os_index + 1);
    }
    let config = Config {
        least_pages: Config::pages(number("memory-min-mib")),
        share_percent: number("memory-share"),
        interval: number("memory-interval-ms") * 1_000_000,
        settle: number("memory-settle-ms") * 1_000_000,
        nodes,
        patterns: settings.patterns("cling-groups"),
        follows: settings.is_on("memory") && has_memory,
    };
    let idle = !config.follows && config.patterns.is_empty();
    let settle = ["cling", "consolidate"].iter().any(|name| settings.is_on(name));
    (!idle && settle && config.nodes.len() > 1).then_some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(parts: &[&str]) -> Settings {
        let mut given = Settings::default();
        parts.iter().for_each(|part| given.apply("roost", part).unwrap());
        given
    }

    #[test]
    fn nodes_have_the_kernels_numbers_and_their_cpus() {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let config = daemon(&Settings::default(), &machine, true).unwrap();
        assert_eq!(config.nodes.len(), 2);
        assert!(config.nodes[&1].contains(&(8..9)) && !config.nodes[&1].contains(&(7..8)));
        assert_eq!(config.least_pages, 16 << 20 >> 12);
    }

    #[test]
    fn it_runs_only_if_it_has_something_to_do() {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let runs =
            |parts: &[&str], has_memory| daemon(&settings(parts), &machine, has_memory).is_some();
        assert!(runs(&[], true) && runs(&["no-cling"], true));
        assert!(!runs(&["no-memory"], true) && !runs(&["no-cling", "no-consolidate"], true));
        assert!(!runs(&[], false), "nothing to follow");
        assert!(
            runs(&["cling-groups=/a/*"], false) && runs(&["cling-groups=/a/*", "no-memory"], true)
        );
        let one = roost_machine::resolve("node:1 l3:2 core:4 pu:1").unwrap();
        assert!(daemon(&Settings::default(), &one, true).is_none());
    }
}
