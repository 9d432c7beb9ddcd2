//! The contents that are read from an object match its source. A damaged object gives an error of one line.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use roost_scx::object::{MapKind, Operations, Target};
use roost_scx::{Description, KernelTypes, Object, POISON, Program, ScxError, describe, relocate};
use sha2::{Digest, Sha256};

const SMALL: &[u8] = include_bytes!("data/small.bpf.o");

static KERNEL: LazyLock<Arc<KernelTypes>> =
    LazyLock::new(|| Arc::new(KernelTypes::shipped().unwrap()));

fn described(object: Object) -> Result<Description, ScxError> {
    Ok(describe(&Program::new(object, KERNEL.clone())?))
}

fn small() -> Object {
    Object::parse(SMALL).unwrap()
}

#[test]
fn hooks_are_those_of_the_source() {
    let object = small();
    assert_eq!(object.operations.name, "small");
    let names: Vec<&str> = object.operations.hooks.iter().map(|(name, _)| &name[..]).collect();
    let of_source =
        ["select_cpu", "enqueue", "dispatch", "running", "stopping", "enable", "init", "exit"];
    assert_eq!(names, of_source);
    for (name, at) in &object.operations.hooks {
        let function = object.function_at(*at).unwrap();
        assert_eq!(function.name, format!("small_{name}"));
        assert_eq!(function.start, *at);
    }
}

#[test]
fn maps_and_variables_are_those_of_the_source() {
    let object = small();
    let [map, sums] = &object.maps[..] else { panic!("{:?}", object.maps) };
    assert_eq!((&sums.name[..], sums.kind, sums.value_size), ("sums", MapKind(2), 16));
    assert_eq!((&map.name[..], map.kind, map.key_size), ("counters", MapKind(6), 4));
    assert_eq!((map.value_size, map.max_entries), (8, 2));
    let (section, slice) = object.variable("slice_ns").unwrap();
    assert!(object.data[section].read_only);
    assert_eq!(object.number(&object.data[section], slice), Some(20_000_000));
    let (section, clock) = object.variable("vtime_now").unwrap();
    assert_eq!((&object.data[section].name[..], clock.size), (".bss", 8));
}

#[test]
fn instructions_know_their_source_line() {
    let object = small();
    let dispatch = object.operations.hook("dispatch").unwrap();
    let source = include_str!("data/small.bpf.c");
    let place = object.line_at(dispatch).unwrap();
    assert!(place.file.ends_with("small.bpf.c"), "{place:?}");
    let text = source.lines().nth(place.number as usize - 1).unwrap();
    assert!(text.contains("scx_bpf_dsq_move_to_local(SHARED_DSQ"), "{text}");
}

#[test]
fn every_call_and_address_has_a_target() {
    let object = small();
    for (at, instruction) in object.code.iter().enumerate() {
        let known = object.references.binary_search_by_key(&at, |reference| reference.at);
        assert!(!instruction.calls_function() || known.is_ok(), "{}", object.place(at));
    }
    let maps = object.references.iter().filter(|r| matches!(r.to, Target::Map(_))).count();
    let lookups = object.code.iter().filter(|i| i.helper() == Some(1)).count();
    assert_eq!(maps, lookups, "each lookup names the map");
}

/// `running` first reads the task's virtual time.
#[test]
fn a_member_is_read_where_the_kernel_has_it() {
    let (object, kernel) = (small(), &*KERNEL);
    let task = kernel.btf.composite("task_struct").unwrap();
    let (scx, scx_at) = kernel.btf.member(task, "scx").unwrap();
    let (_, vtime_at) = kernel.btf.member(scx.of, "dsq_vtime").unwrap();
    let relocated = relocate(&object, kernel).unwrap();
    let running = object.operations.hook("running").unwrap();
    let reads = relocated.asked.iter().find(|asked| asked.at >= running).unwrap();
    assert_eq!(reads.name, "task_struct.scx.dsq_vtime");
    let expected = ((scx_at + vtime_at) / 8) as i16;
    assert_eq!(relocated.code[reads.at].offset, expected);
    assert_ne!(object.code[reads.at].offset, expected, "the object was compiled for other types");
}

#[test]
fn what_the_kernel_lacks_is_named_and_its_instruction_is_made_one_that_fails() {
    let (object, kernel) = (small(), &*KERNEL);
    let relocated = relocate(&object, kernel).unwrap();
    for asked in &relocated.asked {
        let poisoned = relocated.code[asked.at].helper() == Some(POISON as u32);
        assert_eq!(poisoned, !asked.found && !asked.optional, "{asked:?}");
    }
    let about = described(object).unwrap();
    assert!(about.missing.is_empty(), "{:?}", about.missing);
    // The names of Linux 6.12, which the headers use as a fallback.
    assert!(about.optional.contains(&"scx_bpf_dispatch___compat".to_owned()));
}

/// Kernels may offer several prototypes for one name. Only the one that fits is used.
#[test]
fn a_kfunc_with_other_parameters_is_another_one() {
    let about = described(small()).unwrap();
    let calls = |name: &str| about.kfuncs.iter().find(|(kfunc, _)| kfunc == name);
    assert!(calls("scx_bpf_dsq_insert___v2").is_some(), "{:?}", about.kfuncs);
    assert!(calls("scx_bpf_dispatch").is_none());
}

/// The shipped scheduler was compiled from the sources in this repository.
#[test]
fn the_shipped_object_is_of_these_sources() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let mut noted = Vec::new();
    for line in include_str!("../../../bpf/roost.bpf.o.sources").lines() {
        let (digits, path) = line.split_once("  ").unwrap();
        let source = std::fs::read(format!("{root}{path}")).unwrap_or_default();
        let found: String = Sha256::digest(&source).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(found, digits, "{path} has changed: make bpf-object, and commit what it writes");
        noted.push(path.to_owned());
    }
    let mut there = Vec::new();
    for folder in ["bpf/", "policy/include/roost/"] {
        for entry in std::fs::read_dir(format!("{root}{folder}")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            there.extend(name.ends_with(['c', 'h']).then(|| format!("{folder}{name}")));
        }
    }
    there.sort();
    noted.sort();
    assert_eq!(noted, there, "make bpf-object, and commit what it writes");
}

#[test]
fn the_shipped_object_can_run_and_names_its_sources_as_the_repository_does() {
    let object = Object::roost().unwrap();
    assert!(object.lines.iter().any(|line| line.file == "bpf/queue.h"), "{:?}", object.lines[0]);
    assert!(object.lines.iter().all(|line| !line.file.starts_with('/')));
    let program = Program::new(object, KERNEL.clone()).unwrap();
    assert_eq!(program.lacks(), Vec::<String>::new());
    assert_eq!((program.uncalled(), program.unfilled()), (vec![], vec![]));
}

#[test]
fn operations_that_the_kernel_refuses_are_refused_and_a_flag_that_is_not_simulated_is_named() {
    let with = |change: &dyn Fn(&mut Operations)| {
        let mut object = small();
        change(&mut object.operations);
        let program = Program::new(object, KERNEL.clone()).unwrap();
        program.check_operations().and_then(|()| program.check()).map_err(|error| error.to_string())
    };
    let number = |name: &str, value: u64| {
        let number = (name.to_owned(), value);
        with(&move |operations| {
            operations.numbers.retain(|(known, _)| *known != number.0);
            operations.numbers.push(number.clone());
        })
    };
    assert_eq!(number("timeout_ms", 30_000), Ok(()));
    let refused = |why: &str| Err(format!("the kernel refuses this scheduler: {why}"));
    assert_eq!(number("timeout_ms", 30_001), refused("timeout_ms is 30001, but at most 30000"));
    assert_eq!(with(&|operations| operations.name.clear()), refused("it has no name"));
    let unknown = "Linux 7.2.13 does not know its flags 0x10000000000";
    assert_eq!(number("flags", 1 << 40 | 2), refused(unknown));
    let lacks = "the simulation does not have the flag SCX_OPS_SWITCH_PARTIAL of its operations";
    assert_eq!(number("flags", 8), Err(lacks.to_owned()));
}

/// An object that does with pointers what its variable `wrong` says.
#[test]
fn what_the_verifier_refuses_for_its_pointers_is_refused_with_its_place() {
    let object = Object::parse(include_bytes!("data/pointers.bpf.o")).unwrap();
    let check = |wrong: u32| {
        let mut program = Program::new(object.clone(), KERNEL.clone()).unwrap();
        program.set("wrong", &wrong.to_string()).unwrap();
        program.check().unwrap();
        describe(&program).refused
    };
    assert_eq!(check(0), None);
    let source = include_str!("data/pointers.bpf.c");
    for (wrong, why, line) in [
        (1, "writes task_struct.pid, which the kernel lets no program write", "p->pid = 5"),
        (
            2,
            "gives a struct task_struct to scx_bpf_put_cpumask, which takes a struct cpumask",
            "scx_bpf_put_cpumask(",
        ),
        (
            3,
            "gives the map totals (array) to bpf_task_storage_get, which takes a map of the kind task_storage",
            "bpf_task_storage_get(&totals",
        ),
        (
            4,
            "gives the map values (task_storage) to bpf_map_lookup_elem, which takes a map with keys and values, \
             such as an array",
            "bpf_map_lookup_elem(&values",
        ),
        (5, "reads beyond the end of a struct task_struct", "(1 << 14)"),
        (
            6,
            "gives a number to scx_bpf_task_cpu, which takes a struct task_struct",
            "scx_bpf_task_cpu(",
        ),
        (7, "writes task_struct.flags, which the kernel lets no program write", "p->flags |= 1"),
    ] {
        let error = check(wrong).unwrap();
        let start = format!("the kernel refuses this scheduler: it {why}, in ");
        let place = error.strip_prefix(&start).unwrap_or_else(|| panic!("{error}"));
        let number = source.lines().position(|text| text.contains(line)).unwrap() + 1;
        assert!(place.ends_with(&format!("pointers.bpf.c:{number}")), "{error}");
    }
}

#[test]
fn the_other_objects_are_not_refused_for_their_pointers() {
    let arena = Object::parse(include_bytes!("data/arena.bpf.o")).unwrap();
    for object in [small(), arena, Object::roost().unwrap()] {
        Program::new(object, KERNEL.clone()).unwrap().check_operations().unwrap();
    }
}

fn error(bytes: &[u8]) -> ScxError {
    Object::parse(bytes).unwrap_err()
}

#[test]
fn what_is_no_object_is_an_error_that_says_so() {
    assert!(matches!(error(b"fn main() {}"), ScxError::NotBpf(_)));
    let this_program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(matches!(error(&this_program), ScxError::NotBpf(_)));
}

#[test]
fn an_object_without_a_scheduler_is_an_error_that_says_so() {
    let mut bytes = SMALL.to_vec();
    let name = b".struct_ops.link\0";
    let at = bytes.windows(name.len()).rposition(|window| window == name).unwrap();
    bytes[at + 1] = b'S';
    assert_eq!(error(&bytes), ScxError::NoScheduler);
}

#[test]
fn broken_types_are_an_error_that_says_so() {
    let magic = [0x9f, 0xeb, 1, 0];
    let mut bytes = SMALL.to_vec();
    let at = bytes.windows(4).position(|window| window == magic).unwrap();
    bytes[at] = 0;
    assert!(matches!(error(&bytes), ScxError::Btf(_)), "{}", error(&bytes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any changed object is either read, or refused in one line.
    #[test]
    fn a_damaged_object_is_read_or_refused(
        changes in prop::collection::vec((0..SMALL.len(), any::<u8>()), 1..8),
        len in SMALL.len() / 2..=SMALL.len(),
    ) {
        let mut bytes = SMALL.to_vec();
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(if len % 4 == 0 { len } else { SMALL.len() });
        if let Err(error) = Object::parse(&bytes) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }

    /// The same when the object is compared with a kernel's types.
    #[test]
    fn a_damaged_object_is_described_or_refused(
        changes in prop::collection::vec((0..SMALL.len(), any::<u8>()), 1..4),
    ) {
        let mut bytes = SMALL.to_vec();
        for (at, value) in changes {
            bytes[at] = value;
        }
        if let Ok(Err(error)) = Object::parse(&bytes).map(described) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}
