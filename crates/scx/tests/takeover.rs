//! A program that is taken over from a loader is the one in the object.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use object::{Object as _, ObjectSection as _};
use proptest::prelude::*;
use roost_scx::btf::Kind;
use roost_scx::object::{Function, MapDefinition, MapKind, Target};
use roost_scx::{
    Early, EarlyMasks, Instruction, KernelTypes, Loaded, LoadedMap, LoadedOperations,
    LoadedProgram, Object, Program, Resolved, STRUCT_OPS_VALUE, Scx, ScxError, Sparse, Store,
    relocate, resolve,
};

const SMALL: &[u8] = include_bytes!("data/small.bpf.o");
const ROOST: &[u8] = include_bytes!("../roost.bpf.o");

static KERNEL: LazyLock<Arc<KernelTypes>> =
    LazyLock::new(|| Arc::new(KernelTypes::shipped().unwrap()));

/// The first descriptor of a program.
const FIRST: u64 = 10;

/// What libbpf would give to the kernel: each hook with a copy of the functions that it can reach.
fn loaded(bytes: &[u8]) -> Loaded {
    let object = Object::parse(bytes).unwrap();
    let elf = object::File::parse(bytes).unwrap();
    let btf = elf.section_by_name(".BTF").unwrap().data().unwrap().to_vec();
    let code = relocate(&object, &KERNEL).unwrap().code;
    let starts: Vec<usize> = object.operations.hooks.iter().map(|(_, at)| *at).collect();
    Loaded {
        btfs: vec![btf],
        maps: maps(&object),
        programs: starts.iter().map(|&at| program(&object, &code, at)).collect(),
        operations: operations(&object),
        runs: Vec::new(),
        masks: Vec::new(),
    }
}

fn maps(object: &Object) -> Vec<LoadedMap> {
    let of_map = |definition: &MapDefinition| LoadedMap {
        definition: definition.clone(),
        btf: Some(0),
        array: Sparse::default(),
        pages: Vec::new(),
        entries: Vec::new(),
    };
    let mut maps: Vec<LoadedMap> = object.maps.iter().map(of_map).collect();
    for section in &object.data {
        let mut array = section.bytes.clone();
        for variable in section.variables.iter().filter(|v| v.name.starts_with("__SCX_")) {
            let value = KERNEL.enumerator(variable.name.trim_start_matches('_')).unwrap_or(0);
            let (start, len) = (variable.offset as usize, variable.size as usize);
            array[start..start + len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        let value = object.btf.find(&section.name, |kind| matches!(kind, Kind::Section(_)));
        let definition = MapDefinition {
            name: section.name.clone(),
            kind: MapKind(2),
            key_size: 4,
            value_size: array.len() as u32,
            max_entries: 1,
            flags: 0,
            value: value.unwrap_or(0),
            extra: 0,
        };
        maps.push(LoadedMap {
            definition,
            btf: Some(0),
            array: array.into(),
            pages: Vec::new(),
            entries: Vec::new(),
        });
    }
    maps
}

/// A hook and all functions that it can reach, as one program.
fn program(object: &Object, relocated: &[Instruction], hook: usize) -> LoadedProgram {
    let functions = object.reachable(hook);
    let mut starts = HashMap::new();
    let mut code: Vec<Instruction> = Vec::new();
    for function in &functions {
        starts.insert(function.start, code.len());
        code.extend(&relocated[function.start..function.end]);
    }
    for function in &functions {
        for reference in object.references_in(function) {
            let at = starts[&function.start] + reference.at - function.start;
            put(object, &starts, &mut code, at, reference.to);
        }
    }
    let of = |function: &&Function| {
        let of = object.btf.find(&function.name, |kind| matches!(kind, Kind::Function(_)));
        [starts[&function.start] as u32, of.unwrap()]
    };
    LoadedProgram {
        name: functions[0].name.clone(),
        section: "struct_ops".to_owned(),
        btf: Some(0),
        functions: functions.iter().map(of).collect(),
        code,
        lines: Vec::new(),
    }
}

/// Writes a reference into an instruction, as libbpf does.
fn put(
    object: &Object,
    starts: &HashMap<usize, usize>,
    code: &mut [Instruction],
    at: usize,
    to: Target,
) {
    let calls = code[at].calls_function();
    let (src, imm, upper) = match to {
        Target::Map(map) => (1, map as i32, 0),
        Target::Data { section, offset } => {
            (2, (object.maps.len() + section) as i32, offset as i32)
        }
        Target::Arena(_) => panic!("no arena is defined"),
        Target::Function(to) if calls => (1, starts[&to] as i32 - at as i32 - 1, 0),
        Target::Function(to) => (4, starts[&to] as i32 - at as i32 - 1, 0),
        Target::Extern(index) => match resolve(&object.btf, &KERNEL, &object.externs[index]) {
            Resolved::Function(name) => {
                let id = KERNEL.btf.find(&name, |kind| matches!(kind, Kind::Function(_))).unwrap();
                (if calls { 2 } else { 3 }, id as i32, 0)
            }
            Resolved::Variable(id) => (3, id as i32, 0),
            _ if calls => (0, 2_002_000_000 + index as i32, 0),
            _ => (0, 0, 0),
        },
    };
    if code[at].code != 0x18 && !calls {
        // Relocation has replaced it.
        return;
    }
    code[at].src = src;
    code[at].imm = imm;
    if !calls {
        code[at + 1].imm = upper;
    }
}

fn operations(object: &Object) -> LoadedOperations {
    let mut value = vec![0; KERNEL.struct_size(STRUCT_OPS_VALUE).unwrap()];
    let place = |name: &str| KERNEL.offset(STRUCT_OPS_VALUE, &format!("data.{name}")).unwrap();
    let mut set = |name: &str, bytes: &[u8]| {
        let at = place(name) as usize;
        value[at..at + bytes.len()].copy_from_slice(bytes);
    };
    let mut descriptors = HashMap::new();
    for (number, (name, _)) in object.operations.hooks.iter().enumerate() {
        set(name, &(FIRST + number as u64).to_le_bytes());
        descriptors.insert(FIRST + number as u64, number);
    }
    for (name, number) in &object.operations.numbers {
        set(name, &(*number as u32).to_le_bytes());
    }
    set("name", object.operations.name.as_bytes());
    LoadedOperations { name: object.operations.variable.clone(), value, descriptors }
}

fn taken_over(loaded: &Loaded) -> Result<Program, ScxError> {
    Program::taken_over(loaded, KERNEL.clone())
}

/// The functions of hooks, by name, with their instructions but without what these refer to.
fn functions(object: &Object, code: &[Instruction]) -> Vec<(String, Vec<u8>)> {
    let reached = object.operations.hooks.iter().flat_map(|(_, at)| object.reachable(*at));
    let codes = |function: &Function| {
        code[function.start..function.end].iter().map(|instruction| instruction.code).collect()
    };
    let mut functions: Vec<(String, Vec<u8>)> =
        reached.map(|function| (function.name.clone(), codes(function))).collect();
    functions.sort();
    functions.dedup();
    functions
}

#[test]
fn each_function_is_there_once_as_in_the_object() {
    for bytes in [SMALL, ROOST] {
        let object = Object::parse(bytes).unwrap();
        let program = taken_over(&loaded(bytes)).unwrap();
        let code = relocate(&object, &KERNEL).unwrap().code;
        let taken = functions(&program.object, &program.object.code);
        assert_eq!(taken, functions(&object, &code));
        assert_eq!(program.object.functions.len(), taken.len(), "no copies are left");
        let names = |object: &Object| {
            object.operations.hooks.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&program.object), names(&object));
        assert_eq!(program.object.operations.name, object.operations.name);
        assert_eq!(program.object.operations.numbers, object.operations.numbers);
        assert_eq!(program.lacks(), Vec::<String>::new());
    }
}

#[test]
fn a_program_that_is_taken_over_decides_as_the_one_in_the_object() {
    let machine = Arc::new(roost_machine::resolve("2n2l2c2t").unwrap());
    let workload = roost_workload::resolve("hackbench:groups=2", Some(20_000_000)).unwrap();
    let outcome = |program: &Program| {
        let scx = Scx::new(&machine, program, 4_000_000).unwrap();
        let control = roost_engine::Control::new(1);
        format!("{:?}", roost_engine::run(&machine, &workload, scx, control).unwrap())
    };
    let object = Object::parse(SMALL).unwrap();
    let from_object = Program::new(object, KERNEL.clone()).unwrap();
    assert_eq!(outcome(&taken_over(&loaded(SMALL)).unwrap()), outcome(&from_object));
}

#[test]
fn a_variable_that_is_not_there_is_answered_with_the_command_that_lists_them() {
    let error = taken_over(&loaded(SMALL)).unwrap().set("slize_ns", "1").unwrap_err().to_string();
    assert!(error.ends_with("`roost scx PROGRAM` lists them; did you mean slice_ns?"), "{error}");
}

#[test]
fn entries_of_maps_and_runs_of_programs_are_taken_over() {
    let mut loaded = loaded(SMALL);
    let cpus = 16;
    // Entry 1 of CPU 2 of `counters`, which has two.
    let mut array = vec![0; 2 * 8 * cpus];
    array[8 * (2 * 2 + 1)] = 7;
    loaded.maps[0].array = array.into();
    // `init` makes queues: a second time it fails, with -EEXIST.
    let init = loaded.programs.iter().position(|program| program.name == "small_init").unwrap();
    loaded.runs = vec![(init, vec![0; 16])];
    let program = taken_over(&loaded).unwrap();
    let machine = Arc::new(roost_machine::resolve("2n2l2c2t").unwrap());
    let workload = roost_workload::resolve("hackbench:groups=1", Some(1_000_000)).unwrap();
    let scx = Scx::new(&machine, &program, 4_000_000).unwrap();
    let control = roost_engine::Control::new(1);
    let error = roost_engine::run(&machine, &workload, scx, control).unwrap_err();
    assert!(error.to_string().contains("ops.init() failed (-17)"), "{error}");
}

/// Bytes of a page, and the address of the first one of the arena.
const PAGE: u64 = 4096;
const ARENA: u64 = 1 << 44;

/// The files of a loader's maps, and the pages that were written.
struct Files(Vec<RefCell<Vec<u8>>>, RefCell<BTreeSet<(usize, u64)>>);

impl Store for Files {
    fn read(&self, map: usize, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        bytes.copy_from_slice(&self.0[map].borrow()[at as usize..at as usize + bytes.len()]);
        Ok(())
    }

    fn write(&self, map: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0[map].borrow_mut()[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        self.1.borrow_mut().insert((map, at / PAGE));
        Ok(())
    }

    fn data(&self, map: usize) -> Vec<Range<u64>> {
        let written = self.1.borrow();
        let pages = written.iter().filter(|(of, _)| *of == map);
        pages.map(|(_, page)| page * PAGE..(page + 1) * PAGE).collect()
    }
}

/// A program that allocates a page of an arena, puts its argument's number there, and gives the address back in the
/// argument. It returns the number of its runs, which it counts in a map of variables, plus the number that the first
/// page has before.
fn fills_an_arena(count: i32, arena: i32) -> Vec<Instruction> {
    let allocate =
        KERNEL.btf.find("bpf_arena_alloc_pages", |kind| matches!(kind, Kind::Function(_)));
    let of = |code, dst, src, offset, imm| Instruction { code, dst, src, offset, imm };
    let (load, move_register, move_number, store) = (0x79, 0xbf, 0xb7, 0x7b);
    let wide = |dst, src, imm, upper| [of(0x18, dst, src, 0, imm), of(0, 0, 0, 0, upper)];
    let mut code = vec![of(move_register, 6, 1, 0, 0)];
    code.extend(wide(3, 0, ARENA as i32, (ARENA >> 32) as i32));
    code.push(of(load, 8, 3, 8, 0));
    code.extend(wide(1, 1, arena, 0));
    for (register, argument) in [(2, 0), (3, 1), (4, -1), (5, 0)] {
        code.push(of(move_number, register, 0, 0, argument));
    }
    code.extend([
        of(0x85, 0, 2, 0, allocate.unwrap() as i32),
        of(load, 1, 6, 0, 0),
        of(store, 0, 1, 8, 0),
        of(store, 6, 0, 0, 0),
    ]);
    code.extend(wide(1, 2, count, 0));
    code.extend([
        of(load, 0, 1, 0, 0),
        of(0x07, 0, 0, 0, 1),
        of(store, 1, 0, 0, 0),
        of(0x0f, 0, 8, 0, 0),
        of(0x95, 0, 0, 0, 0),
    ]);
    code
}

fn add_program(loaded: &mut Loaded, code: Vec<Instruction>) {
    let function = loaded.programs[0].functions[0][1];
    loaded.programs.push(LoadedProgram {
        name: "early".to_owned(),
        section: "syscall".to_owned(),
        btf: Some(0),
        code,
        functions: vec![[0, function]],
        lines: Vec::new(),
    });
}

/// The map of the variables that may be written: `.bss` or `.data`.
fn variables(loaded: &Loaded) -> usize {
    let section = |map: &LoadedMap| [".bss", ".data"].contains(&map.definition.name.as_str());
    loaded.maps.iter().position(section).unwrap()
}

/// Adds an arena of four pages at an address. Returns the map's number.
fn add_arena(loaded: &mut Loaded, address: u64) -> usize {
    let mut map = loaded.maps[variables(loaded)].clone();
    map.array = Sparse::default();
    let (name, kind) = ("arena".to_owned(), MapKind(33));
    map.definition =
        MapDefinition { name, kind, max_entries: 4, extra: address, value: 0, ..map.definition };
    loaded.maps.push(map);
    loaded.maps.len() - 1
}

fn last_program(loaded: &Loaded) -> Early {
    let machine = Arc::new(roost_machine::resolve("2n2l2c2t").unwrap());
    Early::new(loaded, loaded.programs.len() - 1, KERNEL.clone(), &machine).unwrap()
}

/// The kernel's `bpf_snprintf()` writes what fits, and returns the length of all. Its clock of ticks begins at
/// `(unsigned int)(-300 * HZ)`, with HZ of 250.
#[test]
fn helpers_write_texts_and_count_ticks() {
    let of = |code, dst, src, offset, imm| Instruction { code, dst, src, offset, imm };
    let call = |helper| [of(0x85, 0, 0, 0, helper), of(0x95, 0, 0, 0, 0)];
    let files = Files(Vec::new(), RefCell::default());
    let mut loaded = loaded(SMALL);
    // The text is at the start of the argument, the number 16 bytes behind it, and there are 4 bytes for the result.
    let mut code = vec![of(0xbf, 6, 1, 0, 0)];
    for (register, offset) in [(1, 24), (3, 0), (4, 16)] {
        code.extend([of(0xbf, register, 6, 0, 0), of(0x07, register, 0, 0, offset)]);
    }
    code.extend([of(0xb7, 2, 0, 0, 4), of(0xb7, 5, 0, 0, 8)]);
    code.extend(call(165));
    add_program(&mut loaded, code);
    let mut argument = *b"n=%d \0..........\x39\x30\0\0\0\0\0\0........";
    assert_eq!(
        last_program(&loaded).run(&mut argument, &files, &mut Vec::new()),
        Ok("n=12345 \0".len() as u64)
    );
    assert_eq!(&argument[24..], b"n=1\0....");
    add_program(&mut loaded, call(118).to_vec());
    let ticks = (-300_i32 * 250) as u32;
    assert_eq!(last_program(&loaded).run(&mut [], &files, &mut Vec::new()), Ok(ticks.into()));
}

/// A library may try whether the kernel has arenas. The simulation has one.
#[test]
fn an_arena_that_no_program_uses_is_left_out() {
    let mut loaded = loaded(SMALL);
    let arenas = [(); 2].map(|()| add_arena(&mut loaded, ARENA));
    assert_eq!(taken_over(&loaded).unwrap().lacks(), Vec::<String>::new());
    let mut code = Vec::new();
    for arena in arenas {
        let load =
            Instruction { code: 0x18, dst: 1, src: 1, imm: arena as i32, ..Instruction::default() };
        code.extend([load, Instruction::default()]);
    }
    code.push(Instruction { code: 0x95, ..Instruction::default() });
    add_program(&mut loaded, code);
    assert_eq!(taken_over(&loaded).unwrap().lacks(), ["map arena (a second arena)"]);
}

#[test]
fn a_program_that_fills_an_arena_runs_for_its_loader() {
    let mut loaded = loaded(SMALL);
    let count = variables(&loaded);
    let arena = add_arena(&mut loaded, ARENA);
    add_program(&mut loaded, fills_an_arena(count as i32, arena as i32));
    let empty = |number: usize| match number {
        _ if number == arena => vec![0; 4 * PAGE as usize],
        _ => loaded.maps[number].array.to_vec(),
    };
    let files =
        Files((0..=arena).map(|map| RefCell::new(empty(map))).collect(), RefCell::default());
    let mut early = last_program(&loaded);
    let number = |map: usize, at: usize| {
        u64::from_le_bytes(files.0[map].borrow()[at..at + 8].try_into().unwrap())
    };
    let mut argument = 5_u64.to_le_bytes();
    let mut masks = EarlyMasks::new();
    assert_eq!(
        early.run(&mut argument, &files, &mut masks),
        Ok(1),
        "the first run, and nothing in the page"
    );
    assert_eq!(u64::from_le_bytes(argument), ARENA);
    assert_eq!((number(arena, 8), number(count, 0)), (5, 1));
    // What the loader writes counts in the next run.
    files.0[arena].borrow_mut()[8] = 100;
    files.0[count].borrow_mut()[0] = 10;
    assert_eq!(early.run(&mut argument, &files, &mut masks), Ok(11 + 100));
    assert_eq!(u64::from_le_bytes(argument), ARENA + PAGE, "the first page is taken");
    assert_eq!((number(arena, PAGE as usize + 8), number(count, 0)), (ARENA, 11));
}

/// The instructions of a call of a kfunc.
fn call_of(kfunc: &str) -> Instruction {
    let number = KERNEL.btf.find(kfunc, |kind| matches!(kind, Kind::Function(_))).unwrap();
    Instruction { code: 0x85, dst: 0, src: 2, offset: 0, imm: number as i32 }
}

/// Two programs share a mask by a variable: the first one makes it with the CPU that is its argument, the second one
/// returns the mask's first CPU.
#[test]
fn a_mask_of_a_program_is_that_of_other_programs_and_of_the_scheduler() {
    let mut loaded = loaded(SMALL);
    let variable = variables(&loaded);
    let of = |code, dst, src, offset, imm| Instruction { code, dst, src, offset, imm };
    let (load, move_register, store, leave) = (0x79, 0xbf, 0x7b, of(0x95, 0, 0, 0, 0));
    let at_variable = |dst| [of(0x18, dst, 2, 0, variable as i32), Instruction::default()];
    let mut makes = vec![of(move_register, 6, 1, 0, 0), call_of("bpf_cpumask_create")];
    makes.extend([
        of(move_register, 7, 0, 0, 0),
        of(load, 1, 6, 0, 0),
        of(move_register, 2, 7, 0, 0),
    ]);
    makes.push(call_of("bpf_cpumask_set_cpu"));
    makes.extend(at_variable(1));
    makes.extend([of(store, 1, 7, 0, 0), of(0xb7, 0, 0, 0, 0), leave]);
    let mut asks = at_variable(1).to_vec();
    asks.extend([of(load, 1, 1, 0, 0), call_of("bpf_cpumask_first")]);
    let files = Files(
        loaded.maps.iter().map(|map| RefCell::new(map.array.to_vec())).collect(),
        RefCell::default(),
    );
    let mut masks = EarlyMasks::new();
    // Its memory is another one, so its masks have other addresses.
    add_program(&mut loaded, vec![call_of("bpf_cpumask_create"), of(0xb7, 0, 0, 0, 0), leave]);
    assert_eq!(last_program(&loaded).run(&mut [], &files, &mut masks), Ok(0));
    add_program(&mut loaded, makes);
    assert_eq!(last_program(&loaded).run(&mut 5_u64.to_le_bytes(), &files, &mut masks), Ok(0));
    assert_eq!(masks, [[0], [1 << 5]]);
    add_program(&mut loaded, [asks.clone(), vec![leave]].concat());
    assert_eq!(last_program(&loaded).run(&mut [], &files, &mut masks), Ok(5));
    // When the scheduler starts, a program ends the run unless the first CPU is 5.
    let start = |cpu: i32| {
        let mut loaded = loaded.clone();
        let mut checks = asks.clone();
        checks.extend([of(0x15, 0, 0, 3, cpu), of(0x18, 1, 0, 0, -1), of(0, 0, 0, 0, 0xffff)]);
        checks.extend([of(load, 0, 1, 0, 0), of(0xb7, 0, 0, 0, 0), leave]);
        add_program(&mut loaded, checks);
        loaded.maps[variable].array = files.0[variable].borrow().clone().into();
        loaded.masks.clone_from(&masks);
        loaded.runs = vec![(loaded.programs.len() - 1, Vec::new())];
        let machine = Arc::new(roost_machine::resolve("2n2l2c2t").unwrap());
        let workload = roost_workload::resolve("hackbench:groups=1", Some(1_000_000)).unwrap();
        let scx = Scx::new(&machine, &taken_over(&loaded).unwrap(), 4_000_000).unwrap();
        roost_engine::run(&machine, &workload, scx, roost_engine::Control::new(1)).map(|_| ())
    };
    start(5).unwrap();
    assert!(start(6).unwrap_err().to_string().contains("access to"));
}

/// Changes the size of a map's values or its entries, or removes a map.
fn damage_map(loaded: &mut Loaded, what: usize, value: u32) {
    if what == 8 {
        loaded.maps.pop();
    } else if let Some(map) = loaded.maps.get_mut(value as usize % 3) {
        match what {
            7 => map.definition.value = value % 400,
            _ => map.array = vec![1; value as usize % 4096].into(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What any program could give is taken over, or refused in one line.
    #[test]
    fn damaged_input_is_taken_over_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..20_usize, any::<u32>()), 1..6),
    ) {
        let mut loaded = loaded(SMALL);
        for (index, what, value) in changes {
            let count = loaded.programs.len();
            let program = &mut loaded.programs[value as usize % count];
            match what {
                0 => program.functions.iter_mut().take(1).for_each(|function| *function = [value, value]),
                1 => program.functions.push([value % 64, value % 200]),
                2 => program.functions.clear(),
                3 => program.btf = Some(value as usize % 3),
                4 => program.lines.push([value % 64, value, value, value]),
                5 => loaded.operations.value.truncate(value as usize % 700),
                6 => loaded.runs.push((value as usize % 20, vec![0; value as usize % 200])),
                7..=9 => damage_map(&mut loaded, what, value),
                _ => {
                    let at = index.index(program.code.len());
                    let instruction = &mut program.code[at];
                    match what % 4 {
                        0 => instruction.imm = value as i32,
                        1 => instruction.src = value as u8 & 0xf,
                        2 => instruction.code = value as u8,
                        _ => instruction.imm = (value % 64) as i32,
                    }
                }
            }
        }
        match taken_over(&loaded) {
            Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
            Ok(program) => {
                let _ = roost_scx::describe(&program);
                let machine = Arc::new(roost_machine::resolve("node:1 core:2 pu:1").unwrap());
                let _ = Scx::new(&machine, &program, 4_000_000);
            }
        }
    }
}
