//! Descriptions of impossible machines. Each gets one line with the place and the remedy, and
//! nothing panics.

use std::path::PathBuf;

use proptest::prelude::*;
use roost_machine::{MachineError, hwloc, resolve, synthetic};

fn data(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", file].iter().collect()
}

/// Whether it is one line, with a remedy after the problem.
fn is_one_line(message: &str) -> bool {
    let remedy = message.rsplit_once("; ").map_or("", |parts| parts.1);
    !message.contains(['\n', '\r']) && message.len() < 1000 && remedy.len() > 5
}

/// File, line and column of the fault, part of the message.
const BAD_XML: &[(&str, u32, u32, &str)] = &[
    ("cache-size-huge.xml", 4, 37, "cache_size=\"99999999999999999999999\""),
    ("cache-size-negative.xml", 4, 37, "cache_size=\"-33554432\""),
    ("core-across-nodes.xml", 3, 1, "CPUs 0 and 1 share a core but not"),
    ("cpuset-garbage.xml", 3, 24, "cpuset=\"everything\""),
    ("cpuset-infinite.xml", 3, 24, "cpuset=\"0xf...f\""),
    ("cpuset-without-pu.xml", 3, 1, "CPU 2 is in the cpuset"),
    ("cyclic-nesting.xml", 4, 1324, "nested more than 64 deep"),
    ("distances-absurd-count.xml", 9, 1, "2 indexes for 18446744073709551615 nodes"),
    ("distances-huge.xml", 9, 1, "the distance from node 0 to node 1 is 18446744073709551615"),
    ("distances-indexes-short.xml", 9, 1, "1 indexes for 2 nodes"),
    ("distances-node-twice.xml", 9, 1, "index 0 names no NUMA node, or one named before"),
    ("distances-remote-nearer.xml", 9, 1, "node 0 is at distance 5 of node 1, itself 10"),
    ("distances-short.xml", 9, 1, "3 distances for 2 nodes"),
    ("distances-text.xml", 11, 1, "\"far\" is no distance or index"),
    ("distances-unknown-node.xml", 9, 1, "index 5 names no NUMA node"),
    ("distances-zero.xml", 9, 1, "the distance from node 0 to node 1 is 0"),
    ("duplicate-node.xml", 5, 1, "NUMA node 0 is there twice"),
    ("duplicate-pu.xml", 5, 1, "PU 0 is there twice"),
    ("empty.xml", 1, 1, "not well-formed XML"),
    ("entity-cycle.xml", 2, 53, "not well-formed XML"),
    ("huge-pu.xml", 4, 1, "os_index 4294967295"),
    ("memory-garbage.xml", 4, 51, "local_memory=\"64GB\""),
    ("negative-pu.xml", 4, 19, "os_index=\"-1\""),
    ("no-object.xml", 1, 1, "no object in the topology"),
    ("no-pu.xml", 3, 1, "no PU in the topology"),
    ("no-type.xml", 4, 1, "object without type"),
    ("no-version.xml", 2, 1, "topology without version"),
    ("node-without-cpuset.xml", 4, 1, "NUMA node without cpuset"),
    ("nodes-overlap.xml", 3, 1, "NUMA nodes 0 and 1 overlap in CPU 1"),
    ("not-xml.xml", 1, 1, "not well-formed XML"),
    ("other-root.xml", 2, 1, "<domain> instead of <topology>"),
    ("pu-outside-cpuset.xml", 4, 1, "PU 0 is inside, but not in the cpuset"),
    ("pu-without-number.xml", 4, 1, "object without os_index"),
    ("too-many-nodes.xml", 1030, 1, "more than 1024 NUMA nodes"),
    ("too-many-pus.xml", 4100, 1, "more than 4096 PUs"),
    ("truncated.xml", 18, 6, "not well-formed XML"),
    ("unknown-version.xml", 2, 11, "version=\"7.0\""),
];

#[test]
fn every_bad_file_is_refused_at_its_place() {
    for &(file, line, column, part) in BAD_XML {
        let path = data("bad").join(file);
        let path = path.to_str().unwrap();
        let message = resolve(path).expect_err(file).to_string();
        let place = format!("{file}:{line}:{column}: ");
        assert!(message.contains(&place) && message.contains(part), "{place}{part}\n{message}");
        assert!(is_one_line(&message), "{message}");
    }
}

#[test]
fn every_bad_file_is_in_the_table() {
    let mut files: Vec<String> = std::fs::read_dir(data("bad"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|file| file.ends_with(".xml"))
        .collect();
    files.sort();
    assert_eq!(files, BAD_XML.iter().map(|row| row.0).collect::<Vec<_>>());
}

#[test]
fn every_bad_string_is_refused_at_its_column() {
    let table = std::fs::read_to_string(data("bad/synthetic.txt")).unwrap();
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let fields: Vec<&str> = row.splitn(3, '|').collect();
        let message = synthetic::parse(fields[2]).expect_err(row).to_string();
        let place = format!("column {}: ", fields[0]);
        assert!(message.contains(&place) && message.contains(fields[1]), "{row}\n{message}");
        assert!(is_one_line(&message), "{message}");
    }
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("binary.xml");
    std::fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
    let error = resolve(binary.to_str().unwrap()).unwrap_err();
    assert!(matches!(error, MachineError::Read { .. }));
    assert!(is_one_line(&error.to_string()), "{error}");
    let missing = dir.path().join("missing\n.xml");
    let error = resolve(missing.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("no such machine; give a file that exists"), "{error}");
    assert!(is_one_line(&error), "{error}");
    assert!(is_one_line(&resolve(dir.path().to_str().unwrap()).unwrap_err().to_string()));
}

#[test]
fn a_name_that_is_nearly_right_is_answered_with_the_right_one() {
    for (wrong, meant) in [
        ("zen3-s2", "did you mean zen3-2s?"),
        ("zen4-2s.xml", "did you mean zen4-2s?"),
        ("captured/Zen3-2S-nps4", "did you mean zen3-2s-nps4?"),
    ] {
        let error = resolve(wrong).unwrap_err().to_string();
        assert!(error.contains(meant) && is_one_line(&error), "{error}");
    }
    let error = resolve("my-server").unwrap_err().to_string();
    assert!(!error.contains("did you mean") && error.contains("or one of "), "{error}");
}

#[test]
fn a_long_string_is_refused_before_it_costs_anything() {
    let message = synthetic::parse(&"group:1 ".repeat(100_000)).unwrap_err().to_string();
    assert!(is_one_line(&message), "{message}");
}

/// A change to a text: the position (in thousandths of its length), the number of characters
/// removed there, and the inserted text.
type Mutation = (usize, usize, String);

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let piece = prop_oneof![
        "[ -~]{0,4}",
        Just("</object>".to_owned()),
        Just("<object type=\"PU\" os_index=\"3\"/>".to_owned()),
        Just("<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x3\"/>".to_owned()),
        Just("\u{0}\u{2028}é".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("-1".to_owned()),
        Just(":0".to_owned()),
        Just("(".to_owned()),
        Just("]".to_owned()),
    ];
    prop::collection::vec((0..1000_usize, 0..6_usize, piece), 1..6)
}

fn mutated(text: &str, mutations: &[Mutation]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (place, taken, piece) in mutations {
        let start = chars.len() * place / 1000;
        let end = (start + taken).min(chars.len());
        chars.splice(start..end, piece.chars());
    }
    chars.into_iter().collect()
}

/// Checks that the result is a machine, or a correct message.
fn holds(result: Result<roost_machine::Machine, MachineError>) -> Result<(), TestCaseError> {
    match result {
        Ok(machine) => {
            prop_assert!(machine.nr_cpus() > 0);
            let cpus: usize = machine.llcs.iter().map(|llc| llc.cpus.len()).sum();
            prop_assert_eq!(cpus, machine.nr_cpus());
            let text = roost_machine::draw(&machine, Default::default());
            prop_assert!(!text.is_empty());
        }
        Err(error) => prop_assert!(is_one_line(&error.to_string()), "{error}"),
    }
    Ok(())
}

/// Two nodes of two cores: small, so that a mutation hits something.
const SMALL_XML: &str = r#"<?xml version="1.0"?>
<topology version="2.0"><object type="Machine" cpuset="0xf" complete_cpuset="0x1f">
<object type="Package" cpuset="0x3"><info name="CPUVendor" value="GenuineIntel"/>
<object type="NUMANode" os_index="0" cpuset="0x3" local_memory="1024" gp_index="9"/>
<object type="L3Cache" cpuset="0x3" cache_size="4096"><object type="Core" cpuset="0x3">
<object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/>
</object></object></object><object type="Group" cpuset="0xc">
<object type="NUMANode" os_index="1" cpuset="0xc"/><object type="L2Cache" cpuset="0xc">
<object type="PU" os_index="2"/><object type="PU" os_index="3"/></object></object></object>
<distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
<indexes length="4">0 1 </indexes><u64values length="12">10 20 20 10 </u64values></distances2>
</topology>"#;

#[test]
fn what_is_mutated_is_valid_to_begin_with() {
    assert_eq!(hwloc::parse(SMALL_XML, "small.xml").unwrap().nr_cpus(), 4);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn mutated_xml_never_panics(mutations in mutations()) {
        holds(hwloc::parse(&mutated(SMALL_XML, &mutations), "mutated.xml"))?;
    }

    #[test]
    fn mutated_strings_never_panic(mutations in mutations()) {
        let text = "pack:2 [node(memory=4GB)] l3:2(size=32MB) l2:2 core:2 pu:2";
        holds(synthetic::parse(&mutated(text, &mutations)))?;
    }

    #[test]
    fn any_text_never_panics(text in "\\PC{0,60}") {
        holds(synthetic::parse(&text))?;
        holds(hwloc::parse(&text, &text))?;
    }

    #[test]
    fn any_regular_machine_is_built(
        packages in 1..4_usize, nodes in 1..4_usize, llcs in 1..4_usize,
        l2s in 1..3_usize, cores in 1..4_usize, threads in 1..3_usize,
    ) {
        let text = format!("pack:{packages} node:{nodes} l3:{llcs} l2:{l2s} core:{cores} pu:{threads}");
        let m = synthetic::parse(&text).unwrap();
        prop_assert_eq!(m.packages, packages);
        prop_assert_eq!(m.nodes.len(), packages * nodes);
        prop_assert_eq!(m.llcs.len(), packages * nodes * llcs);
        prop_assert_eq!(m.cores.len(), m.llcs.len() * l2s * cores);
        prop_assert_eq!(m.nr_cpus(), m.cores.len() * threads);
        for cpu in 0..m.nr_cpus() {
            prop_assert!(m.siblings(cpu).contains(cpu));
            prop_assert!(m.siblings(cpu).is_subset(m.llc_cpus(cpu)));
            prop_assert_eq!(m.line_ns(0, cpu), m.line_ns(cpu, 0));
        }
    }
}
