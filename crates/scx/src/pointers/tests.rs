//! Each rule with code that the kernel takes and code that it refuses.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;

use super::*;
use crate::KernelTypes;
use crate::interpret::tests::op;
use crate::object::{Extern, Function, MapDefinition, MapKind, Object, Reference};

static SMALL: LazyLock<Program> = LazyLock::new(|| {
    let object = Object::parse(include_bytes!("../../tests/data/small.bpf.o")).unwrap();
    Program::new(object, KernelTypes::shipped().unwrap()).unwrap()
});

const STORAGE: usize = 2;
const ARRAY: usize = 1;
const PER_CPU: usize = 0;
const RINGBUF: usize = 3;

/// Code of a scheduler with one or more hooks and functions.
#[derive(Default)]
struct Code {
    code: Vec<Instruction>,
    references: Vec<Reference>,
    functions: Vec<usize>,
    hooks: Vec<(String, usize)>,
    externs: Vec<&'static str>,
    missing: Vec<&'static str>,
    /// The constant at the beginning of `.rodata`.
    constant: u32,
}

/// A hook whose first argument is in r6.
fn hook(name: &str) -> Code {
    Code::default().hook(name)
}

/// A hook that has a task in r6.
fn task() -> Code {
    hook("running")
}

impl Code {
    fn hook(mut self, name: &str) -> Self {
        self.hooks.push((name.to_owned(), self.code.len()));
        self.function().then(&[load(6, 1, 0)])
    }

    /// Begins another function.
    fn function(mut self) -> Self {
        self.functions.push(self.code.len());
        self
    }

    fn then(mut self, code: &[Instruction]) -> Self {
        self.code.extend(code);
        self
    }

    fn refer(mut self, to: Target, code: &[Instruction]) -> Self {
        self.references.push(Reference { at: self.code.len(), to });
        self.then(code)
    }

    fn kfunc(mut self, name: &'static str) -> Self {
        self.externs.push(name);
        let number = self.externs.len() - 1;
        self.refer(Target::Extern(number), &[op(CALL, 0, 1, 0, -1)])
    }

    fn helper(self, number: i32) -> Self {
        self.then(&[op(CALL, 0, 0, 0, number)])
    }

    /// Calls the function that begins at an instruction.
    fn call(self, function: usize) -> Self {
        self.refer(Target::Function(function), &[op(CALL, 0, 1, 0, -1)])
    }

    fn address(self, register: u8, to: Target) -> Self {
        self.refer(to, &[op(LOAD_64, register, 0, 0, 0), Instruction::default()])
    }

    fn map(self, register: u8, map: usize) -> Self {
        self.address(register, Target::Map(map))
    }

    fn exit(self) -> Self {
        self.then(&[op(0x95, 0, 0, 0, 0)])
    }

    fn program(&self) -> Program {
        let small = &*SMALL;
        let mut object = (*small.object).clone();
        let ends = self.functions.iter().copied().skip(1).chain([self.code.len()]);
        let functions = self.functions.iter().zip(ends).map(|(&start, end)| {
            let (name, section) = (format!("f{start}"), String::new());
            Function { name, section, start, end }
        });
        object.functions = functions.collect();
        (object.code, object.references) = (self.code.clone(), self.references.clone());
        (object.lines, object.relocations) = (Vec::new(), Vec::new());
        object.operations.hooks.clone_from(&self.hooks);
        let of_name =
            |name: &&str| Extern { name: (*name).into(), weak: true, of: 0, kconfig: false };
        object.externs = self.externs.iter().map(of_name).collect();
        let resolved = |name: &&str| match self.missing.contains(name) {
            true => Resolved::Missing,
            false => Resolved::Function((*name).to_owned()),
        };
        let mut program = small.clone();
        program.code.clone_from(&object.code);
        program.externs = self.externs.iter().map(resolved).collect();
        let array = program.maps[ARRAY].clone();
        let map = |name: &str, kind| MapDefinition {
            name: name.into(),
            kind: MapKind(kind),
            ..array.clone()
        };
        program.maps.extend([map("tasks", 29), map("events", 27)]);
        let read_only = object.data.iter().position(|section| section.read_only).unwrap();
        program.data[read_only][..4].copy_from_slice(&self.constant.to_le_bytes());
        program.object = Arc::new(object);
        program
    }

    /// Why the kernel refuses it.
    fn refused(self) -> Option<String> {
        let error = check(&self.exit().program()).err()?.to_string();
        let why = error.strip_prefix("the kernel refuses this scheduler: it ").unwrap();
        Some(why.rsplit_once(", in f").unwrap().0.to_owned())
    }

    #[track_caller]
    fn taken(self) {
        assert_eq!(self.refused(), None);
    }

    #[track_caller]
    fn refused_for(self, why: &str) {
        assert_eq!(self.refused().as_deref(), Some(why));
    }
}

const fn load(to: u8, from: u8, offset: i16) -> Instruction {
    op(0x79, to, from, offset, 0)
}

const fn load_32(to: u8, from: u8, offset: i16) -> Instruction {
    op(0x61, to, from, offset, 0)
}

const fn store(to: u8, offset: i16, from: u8) -> Instruction {
    op(0x7b, to, from, offset, 0)
}

const fn store_32(to: u8, offset: i16, number: i32) -> Instruction {
    op(0x62, to, 0, offset, number)
}

const fn mov(to: u8, from: u8) -> Instruction {
    op(0xbf, to, from, 0, 0)
}

const fn set(to: u8, number: i32) -> Instruction {
    op(0xb7, to, 0, 0, number)
}

const fn add(to: u8, number: i32) -> Instruction {
    op(0x07, to, 0, 0, number)
}

/// Jumps if a register is 0.
const fn jump_if_0(register: u8, offset: i16) -> Instruction {
    op(0x15, register, 0, offset, 0)
}

/// The offset of a member of a task.
fn of_task(member: &str) -> i16 {
    SMALL.kernel.offset("task_struct", member).unwrap() as i16
}

const WRITES_PID: &str = "writes task_struct.pid, which the kernel lets no program write";

fn write_pid(register: u8) -> Instruction {
    store_32(register, of_task("pid"), 5)
}

#[test]
fn three_members_of_a_task_may_be_written_and_no_others() {
    for member in ["scx.slice", "scx.dsq_vtime"] {
        task().then(&[store(6, of_task(member), 6), store_32(6, of_task(member) + 4, 0)]).taken();
    }
    let disallow = of_task("scx.disallow");
    task().then(&[op(0x72, 6, 0, disallow, 1)]).taken();
    task().then(&[write_pid(6)]).refused_for(WRITES_PID);
    let slice = of_task("scx.slice");
    let too_long = "writes task_struct.scx.slice, which the kernel lets no program write";
    task().then(&[store(6, slice + 4, 6)]).refused_for(too_long);
    let moved = [mov(2, 6), add(2, slice.into()), store(2, 0, 6), add(2, -i32::from(slice))];
    task().then(&moved).taken();
    task().then(&moved).then(&[write_pid(2)]).refused_for(WRITES_PID);
}

#[test]
fn atomic_operations_are_writes_and_reads() {
    let add_to_pid = op(0xc3, 6, 2, of_task("pid"), 0);
    task().then(&[set(2, 1), add_to_pid]).refused_for(WRITES_PID);
    let acquire = |offset| op(0xdb, 2, 6, offset, LOAD_ACQUIRE);
    task().then(&[acquire(of_task("scx.slice"))]).taken();
    task().then(&[acquire(-8)]).refused_for("reads before the beginning of a struct task_struct");
    let release = op(0xdb, 6, 2, of_task("pid"), STORE_RELEASE);
    task().then(&[set(2, 1), release]).refused_for(WRITES_PID);
}

#[test]
fn an_object_is_read_between_its_ends() {
    let size = SMALL.kernel.struct_size("task_struct").unwrap() as i16;
    task().then(&[load(2, 6, size - 8), load(2, 6, 0)]).taken();
    let beyond = "reads beyond the end of a struct task_struct";
    task().then(&[load(2, 6, size - 4)]).refused_for(beyond);
    let before = "reads before the beginning of a struct task_struct";
    task().then(&[mov(2, 6), add(2, -8), load(2, 2, 0)]).refused_for(before);
    // The masks of a task's memory are of no known length.
    let mm = SMALL.kernel.struct_size("mm_struct").unwrap() as i16;
    task().then(&[load(2, 6, of_task("mm")), load(3, 2, mm)]).taken();
}

#[test]
fn numbers_maps_variables_and_arguments_are_not_written_through() {
    let number = "writes to a number as if it were an address";
    task().then(&[load_32(2, 6, of_task("pid")), store(2, 0, 6)]).refused_for(number);
    let address = "writes to the address 0x1008, which is a number and no pointer";
    task().then(&[set(2, 0x1000), store(2, 8, 6)]).refused_for(address);
    task().then(&[set(2, 0), store(2, 8, 6)]).taken();
    let map = "writes to the map sums (array) itself, not to one of its values";
    task().map(2, ARRAY).then(&[store(2, 0, 6)]).refused_for(map);
    task().then(&[store(1, 0, 6)]).refused_for("writes to the arguments of its hook");
    let variable = |read_only| {
        let data = &SMALL.object.data;
        let section = data.iter().position(|section| section.read_only == read_only).unwrap();
        task().address(2, Target::Data { section, offset: 0 }).then(&[store_32(2, 0, 1)])
    };
    variable(false).taken();
    assert!(variable(true).refused().unwrap().ends_with(", which is constant"));
}

#[test]
fn kfuncs_get_the_structs_that_they_take() {
    let give = |kfunc| task().then(&[mov(1, 6)]).kfunc(kfunc);
    give("scx_bpf_task_cpu").taken();
    give("scx_bpf_put_cpumask").refused_for(
        "gives a struct task_struct to scx_bpf_put_cpumask, which takes a struct cpumask",
    );
    give("bpf_cpumask_release").refused_for(
        "gives a struct task_struct to bpf_cpumask_release, which takes a struct bpf_cpumask",
    );
    give("bpf_task_release").taken();
    let member = |member| task().then(&[load(1, 6, of_task(member))]);
    member("cpus_ptr").kfunc("bpf_cpumask_empty").taken();
    member("cpus_ptr").kfunc("bpf_cpumask_clear").refused_for(
        "gives a struct cpumask to bpf_cpumask_clear, which takes a struct bpf_cpumask",
    );
    let inner = task().then(&[mov(1, 6), add(1, of_task("cpus_mask").into())]);
    inner.kfunc("bpf_cpumask_empty").taken();
    let inner = task().then(&[mov(1, 6), add(1, of_task("scx.slice").into())]);
    inner.kfunc("scx_bpf_task_cpu").refused_for(
        "gives a pointer to task_struct.scx.slice to scx_bpf_task_cpu, which takes a struct task_struct",
    );
    let number = task().then(&[load_32(1, 6, of_task("pid"))]).kfunc("scx_bpf_task_cpu");
    number.refused_for("gives a number to scx_bpf_task_cpu, which takes a struct task_struct");
    task().then(&[set(1, 0)]).kfunc("scx_bpf_task_cpu").taken();
    task().map(1, ARRAY).kfunc("scx_bpf_task_cpu").refused_for(
        "gives the map sums (array) to scx_bpf_task_cpu, which takes a struct task_struct",
    );
    task().map(1, ARRAY).kfunc("bpf_map_sum_elem_count").taken();
}

#[test]
fn kfuncs_get_numbers_and_memory() {
    let select = |code: &[Instruction]| {
        let arguments = task().then(&[mov(1, 6), set(2, 0), set(3, 0)]);
        arguments.then(code).kfunc("scx_bpf_select_cpu_dfl")
    };
    select(&[mov(4, 10), add(4, -8)]).taken();
    select(&[mov(4, 6)]).refused_for(
        "gives a struct task_struct to scx_bpf_select_cpu_dfl, which takes memory of the program",
    );
    let insert = |queue| task().then(&[mov(1, 6), queue, set(3, 0), set(4, 0)]);
    insert(set(2, 7)).kfunc("scx_bpf_dsq_insert___v2").taken();
    insert(mov(2, 6))
        .kfunc("scx_bpf_dsq_insert___v2")
        .refused_for("gives a struct task_struct to scx_bpf_dsq_insert, which takes a number");
}

#[test]
fn results_of_functions_have_their_types() {
    let mask = || task().kfunc("bpf_cpumask_create").then(&[mov(1, 0)]);
    mask().kfunc("bpf_cpumask_empty").taken();
    mask().kfunc("bpf_cpumask_clear").taken();
    mask().kfunc("scx_bpf_task_cpu").refused_for(
        "gives a struct bpf_cpumask to scx_bpf_task_cpu, which takes a struct task_struct",
    );
    task().helper(158).then(&[write_pid(0)]).refused_for(WRITES_PID);
    // It returns the address as a number, which only helpers use.
    task().helper(35).then(&[mov(1, 0)]).kfunc("scx_bpf_task_cpu").taken();
    // The pointer is to the value around the node.
    let node =
        task().then(&[mov(1, 10)]).kfunc("bpf_rbtree_first").then(&[add(0, -16), store(0, 0, 6)]);
    node.taken();
    task().kfunc("bpf_rdonly_cast").then(&[store(0, 0, 6)]).taken();
}

#[test]
fn helpers_get_maps_of_their_kinds() {
    let storage_get = |map| task().map(1, map).then(&[mov(2, 6), set(3, 0), set(4, 1)]).helper(156);
    storage_get(STORAGE).taken();
    storage_get(ARRAY).refused_for(
        "gives the map sums (array) to bpf_task_storage_get, which takes a map of the kind task_storage",
    );
    let lookup = |map, helper| task().then(&[mov(2, 10), add(2, -8)]).map(1, map).helper(helper);
    lookup(ARRAY, 1).taken();
    lookup(PER_CPU, 1).taken();
    for helper in 1..=3 {
        let why = lookup(STORAGE, helper).then(&[]).refused().unwrap();
        assert!(why.starts_with("gives the map tasks (task_storage) to bpf_map_"), "{why}");
    }
    lookup(PER_CPU, 195).taken();
    lookup(ARRAY, 195).refused_for(
        "gives the map sums (array) to bpf_map_lookup_percpu_elem, which takes a map of the kind \
         percpu_hash or percpu_array or map type 10",
    );
    let reserve = |map| task().map(1, map).then(&[set(2, 8), set(3, 0)]).helper(131);
    reserve(RINGBUF).taken();
    assert!(reserve(ARRAY).refused().is_some());
    let no_map = task().then(&[mov(1, 6), mov(2, 10), add(2, -8)]).helper(1);
    no_map.refused_for(
        "gives a struct task_struct to bpf_map_lookup_elem, which takes a map with keys and values, such as an array",
    );
}

#[test]
fn helpers_get_tasks_and_memory() {
    let get =
        |of: Instruction| task().map(1, STORAGE).then(&[of, set(3, 0), set(4, 1)]).helper(156);
    get(load(2, 6, of_task("parent"))).taken();
    get(load(2, 6, of_task("cpus_ptr"))).refused_for(
        "gives a struct cpumask to bpf_task_storage_get, which takes a struct task_struct",
    );
    let read = |to: Instruction| task().then(&[to, set(2, 8), mov(3, 6)]).helper(113);
    read(mov(1, 10)).taken();
    read(mov(1, 6)).refused_for(
        "gives a struct task_struct to bpf_probe_read_kernel, which takes memory of the program",
    );
    let lookup = task().map(1, ARRAY).then(&[mov(2, 6)]).helper(1);
    assert!(lookup.refused().is_some());
}

#[test]
fn where_ways_meet_a_register_keeps_what_holds_for_all() {
    let either = |other: Instruction| {
        task().then(&[mov(2, 6), load(3, 6, 0), jump_if_0(3, 1), other, write_pid(2)])
    };
    either(mov(2, 6)).refused_for(WRITES_PID);
    either(set(2, 0)).refused_for(WRITES_PID);
    either(set(2, 5)).taken();
    either(load(2, 6, of_task("cpus_ptr"))).taken();
    either(add(2, 8)).taken();
    // A loop that moves the pointer.
    task().then(&[mov(2, 6), add(2, 8), op(0xe5, 0, 0, -2, 0), write_pid(2)]).taken();
    // A loop that leaves it alone.
    task()
        .then(&[mov(2, 6), add(3, 8), op(0xe5, 0, 0, -2, 0), write_pid(2)])
        .refused_for(WRITES_PID);
}

#[test]
fn a_pointer_that_is_null_is_a_number() {
    // r2 equals 0 where it is given.
    let code = [load(2, 6, of_task("cpus_ptr")), op(0x55, 2, 0, 2, 0), mov(1, 2)];
    let taken = task().then(&code).kfunc("scx_bpf_task_cpu");
    taken.taken();
    let code = [load(2, 6, of_task("cpus_ptr")), jump_if_0(2, 2), mov(1, 2)];
    assert!(task().then(&code).kfunc("scx_bpf_task_cpu").refused().is_some());
}

#[test]
fn what_is_not_reached_is_not_checked() {
    let section = SMALL.object.data.iter().position(|section| section.read_only).unwrap();
    let depending = |constant| {
        let code = task().address(2, Target::Data { section, offset: 0 });
        let code = code.then(&[load_32(2, 2, 0), op(0x16, 2, 0, 1, 0), write_pid(6)]);
        Code { constant, ..code }
    };
    depending(1).refused_for(WRITES_PID);
    depending(0).taken();
    task().then(&[set(2, 4), op(0x67, 2, 0, 0, 1), op(0x15, 2, 0, 1, 8), write_pid(6)]).taken();
    // The kernel has no such function.
    let code = task().kfunc("scx_bpf_dispatch").then(&[write_pid(6)]);
    Code { missing: vec!["scx_bpf_dispatch"], ..code }.taken();
    let exists = |missing: Vec<&'static str>| {
        let code = Code { externs: vec!["scx_bpf_now"], missing, ..task() };
        code.address(2, Target::Extern(0)).then(&[jump_if_0(2, 1), write_pid(6)])
    };
    exists(vec!["scx_bpf_now"]).taken();
    exists(vec![]).refused_for(WRITES_PID);
    task().helper(POISON).then(&[write_pid(6)]).taken();
    task().exit().then(&[write_pid(6)]).taken();
    // Nothing is said of a program with a jump to a place in a register.
    task().then(&[write_pid(6), jump_if_0(6, 1), op(0x0d, 3, 0, 0, 0)]).taken();
}

#[test]
fn functions_get_what_all_calls_give_them() {
    // Hooks of 4 instructions, and a function that writes to its first argument.
    let calls = |second: Instruction| {
        let code = task().then(&[mov(1, 6)]).call(8).exit();
        let code = code.hook("stopping").then(&[second]).call(8).exit();
        code.function().then(&[write_pid(1)])
    };
    calls(mov(1, 6)).refused_for(WRITES_PID);
    calls(set(1, 0)).refused_for(WRITES_PID);
    calls(mov(1, 10)).taken();
    calls(load(1, 6, of_task("cpus_ptr"))).taken();
    // A function that is called back may get anything.
    let called_back = task().address(2, Target::Function(4)).exit().function();
    called_back.then(&[write_pid(1)]).taken();
    let called_back = task().address(2, Target::Function(4)).exit().function();
    called_back.helper(158).then(&[write_pid(0)]).refused_for(WRITES_PID);
    // A hook that is never called.
    hook("exit").then(&[write_pid(6)]).taken();
}

#[test]
fn calls_leave_four_registers_and_the_stack() {
    task().helper(5).then(&[write_pid(6)]).refused_for(WRITES_PID);
    let spilled = |call: &[Instruction]| {
        task()
            .then(&[store(10, -8, 6), set(6, 0)])
            .then(call)
            .then(&[load(2, 10, -8), write_pid(2)])
    };
    spilled(&[]).refused_for(WRITES_PID);
    spilled(&[op(CALL, 0, 0, 0, 5)]).refused_for(WRITES_PID);
    spilled(&[mov(3, 10), add(3, -64), op(CALL, 0, 0, 0, 5)]).taken();
    spilled(&[op(0x62, 10, 0, -12, 0)]).refused_for(WRITES_PID);
    spilled(&[op(0x62, 10, 0, -4, 0)]).taken();
    spilled(&[mov(3, 10), load(4, 10, -16), op(0x0f, 3, 4, 0, 0), store(3, 0, 4)]).taken();
}

#[test]
fn what_is_not_followed_may_be_anything() {
    // A cast to an address of the arena, a move of 32 bits, a value of a map, a pointer that moves by a number.
    task().then(&[op(0xbf, 2, 6, 1, 1), write_pid(2)]).taken();
    task().then(&[set(2, 64), op(0xbf, 2, 2, 1, 1), write_pid(2)]).taken();
    task().then(&[op(0xbc, 2, 6, 0, 0), write_pid(2)]).taken();
    let looked_up = task().then(&[mov(2, 10), add(2, -8)]).map(1, ARRAY).helper(1);
    looked_up.then(&[write_pid(0), load(1, 0, 0)]).kfunc("scx_bpf_task_cpu").taken();
    let moved = [load_32(2, 6, 0), op(0x0f, 2, 6, 0, 0), write_pid(2)];
    task().then(&moved).taken();
    // The last member of a cgroup is a union.
    let size = SMALL.kernel.struct_size("cgroup").unwrap() as i16;
    let ancestor = hook("cgroup_init").then(&[load(2, 6, size), store(2, 0, 6)]);
    ancestor.taken();
}

#[test]
fn the_error_says_where() {
    let program = task().then(&[write_pid(6)]).exit().program();
    let error = program.check_operations().unwrap_err().to_string();
    let expected =
        format!("the kernel refuses this scheduler: it {WRITES_PID}, in f0 instruction 1");
    assert_eq!(error, expected);
}

/// Any value, from a few of each kind.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..3u64).prop_map(|number| Value::Number(Some(number))),
        Just(Value::Number(None)),
        (1..3u32, 0..2i32).prop_map(|(of, offset)| Value::Object { of, offset }),
        (0..2usize).prop_map(Value::Map),
        (0..2usize).prop_map(Value::Arguments),
        (0..2i32).prop_map(|offset| Value::Data { section: 0, offset }),
        (0..2i32).prop_map(Value::Stack),
        Just(Value::Unknown),
        Just(Value::Any),
        Just(Value::Unset),
    ]
}

/// Instructions that are often valid: of 16 registers, and jumps that mostly stay inside.
fn any_instruction() -> impl Strategy<Value = Instruction> {
    let codes = vec![
        0x79, 0x61, 0x7b, 0x62, 0xbf, 0xb7, 0x07, 0x0f, 0x15, 0x1d, 0x55, 0x05, 0x85, 0x18, 0xdb,
        0xe5, 0x06, 0x95,
    ];
    let code = prop_oneof![4 => prop::sample::select(codes), 1 => any::<u8>()];
    (code, 0..16u8, 0..16u8, -12..12i16, -12..200i32)
        .prop_map(|(code, dst, src, offset, imm)| op(code, dst, src, offset, imm))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Ways may meet in any order.
    #[test]
    fn a_join_is_the_least_that_holds_for_all(a in any_value(), b in any_value(), c in any_value()) {
        prop_assert_eq!(a.join(a), a);
        prop_assert_eq!(a.join(b), b.join(a));
        prop_assert_eq!(a.join(b).join(c), a.join(b.join(c)));
        prop_assert_eq!(a.join(b).join(b), a.join(b));
    }

    #[test]
    fn any_code_is_taken_or_refused(code in prop::collection::vec(any_instruction(), 1..40)) {
        let mut of = task().map(1, 99).kfunc("scx_bpf_task_cpu").call(0).then(&code);
        of.hooks.push(("enqueue".to_owned(), 1000));
        let _ = check(&of.program());
    }
}
