//! Strings exported by lstopo give the machines that were exported.

use std::path::PathBuf;

use roost_machine::{Machine, hwloc, resolve, synthetic};

fn data(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", file].iter().collect()
}

/// What a string can express about a machine. It gives all nodes of a level the memory of the
/// first.
fn told(machine: &Machine) -> String {
    let cpu = |cpu: &roost_machine::Cpu| {
        let (node, llc) = (&machine.nodes[cpu.node as usize], &machine.llcs[cpu.llc as usize]);
        format!(
            "CPU {} core {} cluster {:?} LLC {} of {:?} node {} package {}\n",
            cpu.os_index,
            cpu.core,
            cpu.cluster,
            cpu.llc,
            llc.size_bytes,
            node.os_index,
            cpu.package
        )
    };
    machine.cpus.iter().map(cpu).collect()
}

#[test]
fn an_exported_string_is_the_machine_of_its_file() {
    let table = std::fs::read_to_string(data("synthetic.txt")).unwrap();
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter(|row| !row.starts_with('#'))
        .filter_map(|row| row.split_once('|'))
        .collect();
    assert_eq!(rows.len(), 7);
    for (file, text) in rows {
        let from_string = synthetic::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let from_file = hwloc::load(&data(file)).unwrap();
        assert_eq!(told(&from_string), told(&from_file), "{file}");
        assert_eq!(from_string.nodes.len(), from_file.nodes.len(), "{file}");
    }
}

#[test]
fn a_file_may_hold_a_string() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.synthetic");
    std::fs::write(&path, "Package:2 [NUMANode] L3Cache:2 Core:4 PU:2\n").unwrap();
    let machine = resolve(path.to_str().unwrap()).unwrap();
    assert_eq!((machine.nr_cpus(), machine.llcs.len()), (32, 4));
    assert!(machine.name.ends_with("server.synthetic"));
    std::fs::write(&path, "Package:2 Core:4\n").unwrap();
    let error = resolve(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("server.synthetic") && error.contains("column 11"), "{error}");
}
