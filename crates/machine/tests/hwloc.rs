//! XML files of real machines, written by hwloc.

use std::path::PathBuf;

use roost_machine::{DrawOptions, Machine, draw, hwloc, resolve};

fn data(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", file].iter().collect()
}

fn load(file: &str) -> Machine {
    hwloc::load(&data(file)).unwrap_or_else(|error| panic!("{error}"))
}

fn guesses(machine: &Machine) -> Vec<&str> {
    machine.guesses.iter().map(|guess| guess.name).collect()
}

/// (packages, nodes, LLCs, cores, CPUs)
fn shape(m: &Machine) -> (usize, usize, usize, usize, usize) {
    (m.packages, m.nodes.len(), m.llcs.len(), m.cores.len(), m.nr_cpus())
}

#[test]
fn every_file_has_the_shape_its_name_tells() {
    // Counted in the files: objects of type Package, NUMANode, the largest cache, Core, PU.
    let expected = [
        ("16amd64-4distances.xml", (8, 8, 16, 16, 16)),
        ("96em64t-4n4d3ca2co-pci.xml", (16, 4, 16, 96, 96)),
        ("AMD-17h-Zen-2xEpyc-7451.xml", (2, 1, 16, 48, 96)),
        ("AMD-19h-Zen3-2xEpyc-7763.xml", (2, 1, 16, 128, 128)),
        ("Hygon-Dhyana-32cores.xml", (1, 1, 8, 32, 64)),
        ("Intel-CPUID.1F-Qemu-2p3d3c2t.xml", (2, 1, 6, 18, 36)),
        ("Intel-CascadeLake-2xXeon6230.xml", (2, 1, 2, 40, 80)),
    ];
    for (file, expected) in expected {
        assert_eq!(shape(&load(file)), expected, "{file}");
    }
}

#[test]
fn numa_distances_are_taken_in_the_order_of_their_indexes() {
    let m = load("16amd64-4distances.xml");
    // The file lists nodes as 1 0 2 5 4 3 6 7. PUs 0 and 1 are in node 1.
    assert_eq!(m.nodes.iter().map(|n| n.os_index).collect::<Vec<_>>(), [1, 0, 2, 5, 4, 3, 6, 7]);
    assert_eq!(m.distances[0], [10, 20, 20, 20, 20, 20, 20, 20]);
    assert_eq!(m.nodes[0].memory_bytes, Some(8_589_934_592));
    assert!(!guesses(&m).contains(&"no-distances"));
    assert!(guesses(&m).contains(&"no-l3-cache"));
    assert_eq!(load("96em64t-4n4d3ca2co-pci.xml").distances[1], [26, 10, 26, 26]);
}

#[test]
fn pairs_of_cores_that_share_an_l2_are_clusters() {
    let m = load("96em64t-4n4d3ca2co-pci.xml");
    // Dunnington: L2 of PUs 0 and 4, L3 of every fourth PU from 0 to 20.
    assert_eq!(m.cpus[0].cluster, m.cpus[4].cluster);
    assert_ne!(m.cpus[0].cluster, m.cpus[8].cluster);
    assert_eq!(m.llc_cpus(0).to_string(), "0,4,8,12,16,20");
    assert_eq!(m.figures.l2_bytes.value, 3_145_728);
    assert!(load("AMD-19h-Zen3-2xEpyc-7763.xml").cpus.iter().all(|cpu| cpu.cluster.is_none()));
}

#[test]
fn a_file_made_from_cpuid_alone_has_no_numa_information() {
    let m = load("AMD-19h-Zen3-2xEpyc-7763.xml");
    assert!(guesses(&m).contains(&"no-numa-information"));
    assert!(guesses(&m).contains(&"no-memory-size"));
    assert!(!guesses(&load("16amd64-4distances.xml")).contains(&"no-numa-information"));
}

#[test]
fn threads_and_caches_are_found() {
    let m = load("Hygon-Dhyana-32cores.xml");
    assert_eq!(m.siblings(0).to_string(), "0,32");
    assert_eq!(m.llc_cpus(0).to_string(), "0-3,32-35");
    assert_eq!(m.llcs[0].size_bytes, Some(8 << 20));
    let m = load("Intel-CascadeLake-2xXeon6230.xml");
    assert_eq!(m.llcs[0].size_bytes, Some(28_835_840));
    // Even CPUs are in the first package.
    assert_eq!((m.cpus[2].package, m.cpus[1].package), (0, 1));
}

#[test]
fn a_machine_without_published_latencies_says_so() {
    let m = load("Intel-CascadeLake-2xXeon6230.xml");
    let guess = m.guesses.iter().find(|guess| guess.name == "no-latency-data").unwrap();
    assert!(guess.assumed.contains("Cascade Lake"));
    let amd = load("AMD-17h-Zen-2xEpyc-7451.xml");
    assert_eq!(amd.figures.line_cross_package_ns.value, 197, "Milan's");
}

#[test]
fn every_file_can_be_drawn() {
    for entry in std::fs::read_dir(data("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "xml") {
            let machine = resolve(path.to_str().unwrap()).unwrap();
            let text = draw(&machine, DrawOptions { figures: true });
            assert!(text.lines().count() < 100, "{}\n{text}", path.display());
        }
    }
}

/// A small file of hwloc 2 with `inner` inside its machine and `after` behind it.
fn small(attributes: &str, inner: &str, after: &str) -> String {
    format!(
        "<topology version=\"2.0\">\n<object type=\"Machine\" {attributes}>\n{inner}\n</object>\n\
         {after}\n</topology>\n"
    )
}

fn pu(number: u32) -> String {
    let mask = 1 << number;
    format!("<object type=\"PU\" os_index=\"{number}\" cpuset=\"0x{mask:x}\"/>")
}

#[test]
fn offline_and_disallowed_cpus_are_reported() {
    let text = small(
        "cpuset=\"0x3\" complete_cpuset=\"0xb\" allowed_cpuset=\"0x1\"",
        &(pu(0) + &pu(1)),
        "",
    );
    let m = hwloc::parse(&text, "small.xml").unwrap();
    let assumed = |name: &str| {
        m.guesses.iter().find(|guess| guess.name == name).map(|guess| guess.assumed.clone())
    };
    assert_eq!(m.nr_cpus(), 2);
    assert_eq!(assumed("offline-cpus").as_deref(), Some("CPUs 3 are left out"));
    assert!(assumed("disallowed-cpus").unwrap().starts_with("CPUs 1,"));
    for name in ["no-core-data", "no-cache-data", "no-package-data", "no-numa-information"] {
        assert!(assumed(name).is_some(), "{name}");
    }
}

#[test]
fn memory_without_cpus_of_its_own_is_a_node_without_cpus() {
    let node = |number: u32, mask: &str| {
        format!(
            "<object type=\"NUMANode\" os_index=\"{number}\" cpuset=\"{mask}\" gp_index=\"{}\"/>",
            number + 70
        )
    };
    let side = format!("<object type=\"MemCache\" cpuset=\"0x3\">{}</object>", node(0, "0x3"));
    let inner = node(4, "0x3") + &side + &pu(0) + &pu(1);
    let table = "<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\" indexing=\"gp\">\
                 <indexes length=\"5\">74 70 </indexes>\
                 <u64values length=\"11\">10 14 17 10 </u64values></distances2>";
    let m = hwloc::parse(&small("cpuset=\"0x3\"", &inner, table), "hbm.xml").unwrap();
    assert_eq!((m.nodes[0].os_index, m.nodes[0].cpus.len()), (0, 2));
    assert_eq!((m.nodes[1].os_index, m.nodes[1].cpus.len()), (4, 0));
    assert_eq!(m.distances, [[10, 17], [14, 10]], "by gp_index, not symmetric");
    for name in ["node-without-cpus", "several-nodes-per-cpu"] {
        assert!(guesses(&m).contains(&name), "{name}");
    }
}

#[test]
fn an_llc_across_nodes_is_parted_by_node() {
    let node = |number: u32| {
        let mask = 1 << number;
        format!("<object type=\"NUMANode\" os_index=\"{number}\" cpuset=\"0x{mask:x}\"/>")
    };
    let group = |number: u32| {
        let mask = 1 << number;
        format!(
            "<object type=\"Group\" cpuset=\"0x{mask:x}\">{}{}</object>",
            node(number),
            pu(number)
        )
    };
    let l3 = format!(
        "<object type=\"L3Cache\" cpuset=\"0x3\" cache_size=\"4096\">{}{}</object>",
        group(0),
        group(1)
    );
    let m = hwloc::parse(&small("cpuset=\"0x3\"", &l3, ""), "across.xml").unwrap();
    assert_eq!((m.llcs.len(), m.llcs[1].size_bytes), (2, Some(2048)));
    assert!(guesses(&m).contains(&"llc-across-nodes"));
}

/// Two packages of two CPUs. `nodes` are the file's node objects, `more` follows the objects.
fn two_packages(nodes: [&str; 2], more: &str) -> Machine {
    let pu = |number: u32, node: &str| {
        format!(
            "<object type=\"Core\"><object type=\"PU\" os_index=\"{number}\" cpuset=\"{:#x}\" \
             complete_nodeset=\"{node}\"/></object>",
            1 << number
        )
    };
    let package = |first: u32, node: &str, own: &str| {
        let (a, b) = (pu(first, node), pu(first + 1, node));
        format!("<object type=\"Package\" cpuset=\"{:#x}\">{own}{a}{b}</object>", 3 << first)
    };
    let packages = package(0, "0x1", nodes[0]) + &package(2, "0x2", nodes[1]);
    let text = format!(
        "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0xf\">{packages}</object>{more}</topology>"
    );
    hwloc::parse(&text, "two packages").unwrap_or_else(|error| panic!("{error}"))
}

const NODE_0: &str = "<object type=\"NUMANode\" os_index=\"0\" local_memory=\"1073741824\"/>";

#[test]
fn cpus_of_a_node_without_memory_stay_on_it() {
    // hwloc writes no local_memory if it is 0, and no object at all if the node is not to be used.
    for (node, named) in [("<object type=\"NUMANode\" os_index=\"1\"/>", false), ("", true)] {
        let m = two_packages([NODE_0, node], "");
        let nodes: Vec<_> = m.nodes.iter().map(|node| (node.os_index, node.memory_bytes)).collect();
        assert_eq!(nodes, [(0, Some(1 << 30)), (1, Some(0))]);
        assert_eq!(m.nodes[1].cpus.to_string(), "2-3");
        assert_eq!(guesses(&m).contains(&"node-without-memory"), named, "{:?}", m.guesses);
        assert!(!guesses(&m).contains(&"cpu-without-node"));
        assert!(!guesses(&m).contains(&"no-memory-size"));
    }
}

#[test]
fn without_any_size_of_memory_none_is_known() {
    let node = |number: u32| format!("<object type=\"NUMANode\" os_index=\"{number}\"/>");
    let m = two_packages([&node(0), &node(1)], "");
    assert!(m.nodes.iter().all(|node| node.memory_bytes.is_none()));
    assert!(guesses(&m).contains(&"no-memory-size"));
}

#[test]
fn kinds_of_cpus_are_read_and_told() {
    let kind = |cpuset: &str, name: &str, value: &str| {
        format!("<cpukind cpuset=\"{cpuset}\"><info name=\"{name}\" value=\"{value}\"/></cpukind>")
    };
    let node_1 = "<object type=\"NUMANode\" os_index=\"1\" local_memory=\"1073741824\"/>";
    let assumed = |name: &str, values: [&str; 2]| {
        let kinds = kind("0x3", name, values[0]) + &kind("0xc", name, values[1]);
        let m = two_packages([NODE_0, node_1], &kinds);
        let guess = m.guesses.iter().find(|guess| guess.name == "unequal-cpus");
        (m.cpus[0].capacity, guess.map_or(String::new(), |guess| guess.assumed.clone()))
    };
    let (capacity, text) = assumed("LinuxCapacity", ["446", "1024"]);
    assert_eq!(
        (capacity, &text[..]),
        (446, "CPUs with capacities of 446 to 1024 are simulated as equal")
    );
    let (capacity, text) = assumed("FrequencyMaxMHz", ["3900", "5200"]);
    assert_eq!(
        (capacity, &text[..]),
        (1024, "CPUs of at most 3900 to 5200 MHz are simulated as equal")
    );
    let (_, text) = assumed("CoreType", ["IntelAtom", "IntelCore"]);
    assert_eq!(text, "CPUs of the kinds IntelAtom, IntelCore are simulated as equal");
    assert_eq!(assumed("FrequencyMaxMHz", ["3900", "3900"]).1, "");
    assert_eq!(assumed("LinuxCapacity", ["?", "1024"]).1, "");
}
