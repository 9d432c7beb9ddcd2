//! A program as a scheduler of the engine. It schedules, does the same in every run, and ends the run with a reason
//! when it fails.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use roost_engine::{Control, Enqueue, Outcome, Pick, RunError, Scheduler, TaskId, World};
use roost_machine::CpuSet;
use roost_scx::{Instruction, KernelTypes, Object, Program, Scx};
use roost_workload::Group;

const MS: u64 = 1_000_000;

static SMALL: LazyLock<Program> = LazyLock::new(|| {
    let object = Object::parse(include_bytes!("data/small.bpf.o")).unwrap();
    Program::new(object, KernelTypes::shipped().unwrap()).unwrap()
});

/// A program that counts in an arena, and ends itself if the arena does not contain what it has put there.
static ARENA: LazyLock<Program> = LazyLock::new(|| {
    let object = Object::parse(include_bytes!("data/arena.bpf.o")).unwrap();
    Program::new(object, KernelTypes::shipped().unwrap()).unwrap()
});

/// The scheduler of this project.
static ROOST: LazyLock<Object> = LazyLock::new(|| Object::roost().unwrap());

/// The code of a call instruction.
const CALL: u8 = 0x85;

fn small(settings: &[(&str, &str)]) -> Program {
    let mut program = SMALL.clone();
    for (name, value) in settings {
        program.set(name, value).unwrap();
    }
    program
}

fn run(
    machine: &str,
    workload: &str,
    ms: u64,
    settings: &[(&str, &str)],
) -> Result<Outcome, RunError> {
    let machine = Arc::new(roost_machine::resolve(machine).unwrap());
    let workload = roost_workload::resolve(workload, Some(ms * MS)).unwrap();
    let scx = Scx::new(&machine, &small(settings), 4 * MS).unwrap();
    roost_engine::run(&machine, &workload, scx, Control::new(1))
}

#[test]
fn a_program_schedules_a_workload_to_its_end() {
    let outcome = run("2n2l4c", "hackbench:groups=1,loops=20", 60_000, &[]).unwrap();
    assert!(outcome.metrics[0].value.is_some(), "{:?}", outcome.metrics);
    for hook in ["select_cpu", "enqueue", "dispatch", "running", "stopping", "enable"] {
        assert!(outcome.counter(&format!("{hook}_calls")) > 0.0, "{hook}");
    }
    assert_eq!(outcome.counter("init_calls"), 1.0);
}

#[test]
fn the_same_run_is_the_same() {
    let once = || format!("{:?}", run("2n2l2c2t", "hackbench:groups=2", 50, &[]).unwrap());
    assert_eq!(once(), once());
}

/// Decisions, instruction counts, cache lines and waits must match: everything that an outcome contains.
#[test]
fn machine_code_does_what_the_interpreter_does() {
    let once = |machine: &str, program: &Program, instructions| {
        let machine = Arc::new(roost_machine::resolve(machine).unwrap());
        let workload = roost_workload::resolve("hackbench:groups=4", Some(30 * MS)).unwrap();
        let scx = Scx::new(&machine, program, 4 * MS).unwrap().interpreting(instructions);
        format!("{:?}", roost_engine::run(&machine, &workload, scx, Control::new(1)).unwrap())
    };
    let roost = Program::new(ROOST.clone(), KernelTypes::shipped().unwrap()).unwrap();
    let locked = small(&[("locked", "true")]);
    for program in [&*SMALL, &locked, &*ARENA, &roost] {
        for machine in ["2n2l4c", "node:2 l3:4 core:8 pu:2"] {
            assert_eq!(once(machine, program, 1), once(machine, program, u64::MAX), "{machine}");
        }
    }
}

#[test]
fn an_arena_keeps_what_a_program_puts_there() {
    let machine = Arc::new(roost_machine::resolve("2n2l4c").unwrap());
    let workload =
        roost_workload::resolve("hackbench:groups=1,loops=20", Some(60_000 * MS)).unwrap();
    let scx = Scx::new(&machine, &ARENA, 4 * MS).unwrap();
    let outcome = roost_engine::run(&machine, &workload, scx, Control::new(1)).unwrap();
    assert!(outcome.counter("enqueue_calls") > 100.0, "{:?}", outcome.counters);
    assert!(outcome.counter("enqueue_lines") > 100.0, "CPUs share the lines of the arena");
}

#[test]
fn a_setting_changes_what_the_program_does() {
    let calls = |fifo| {
        let outcome = run("2n2l4c", "hackbench:groups=2", 50, &[("fifo", fifo)]).unwrap();
        outcome.counter("enqueue_instructions") / outcome.counter("enqueue_calls")
    };
    assert!(calls("true") < calls("false"), "fifo skips the virtual time");
}

#[test]
fn cpus_wait_for_lines_and_locks_that_others_have() {
    let costs = |machine| {
        let outcome = run(machine, "hackbench:groups=4", 20, &[]).unwrap();
        let sum = |of: &str| {
            let counters = outcome.counters.iter().filter(|(name, _)| name.ends_with(of));
            counters.map(|(_, value)| value).sum::<f64>()
        };
        ["_lines", "_waited_ns"].map(sum)
    };
    assert_eq!(costs("node:1 core:1 pu:1"), [0.0, 0.0], "one CPU has all that it wants");
    let [lines, waited_ns] = costs("node:2 l3:4 core:4 pu:1");
    assert!(lines > 1000.0 && waited_ns > 1000.0, "{lines} lines, {waited_ns} ns");
}

#[test]
fn cpus_wait_for_a_spin_lock_that_others_hold() {
    let waited_ns = |machine, locked| {
        let outcome = run(machine, "hackbench:groups=4", 20, &[("locked", locked)]).unwrap();
        outcome.counter("running_waited_ns")
    };
    assert_eq!(waited_ns("node:2 l3:4 core:4 pu:1", "false"), 0.0, "the hook takes no other lock");
    assert_eq!(waited_ns("node:1 core:1 pu:1", "true"), 0.0, "there is no other CPU");
    let waited_ns = waited_ns("node:2 l3:4 core:4 pu:1", "true");
    assert!(waited_ns > 1000.0, "{waited_ns} ns");
}

#[test]
fn machines_of_512_cpus_run_it() {
    let outcome = run("node:4 l3:8 core:8 pu:2", "hackbench:groups=16", 20, &[]).unwrap();
    assert!(outcome.counter("select_cpu_calls") > 1000.0, "{:?}", outcome.counters);
}

fn ends(ms: u64, fault: &str) -> String {
    let settings = [("fault", fault), ("slice_ns", "1000000")];
    let error = run("2n2l4c", "hackbench:groups=1", ms, &settings).unwrap_err();
    assert_eq!(error.to_string().lines().count(), 1);
    error.to_string()
}

#[test]
fn a_wild_access_ends_the_run_with_function_and_source_line() {
    let error = ends(1000, "1");
    assert!(
        error.contains("small: access to 0xdeadbeef000 in small_select_cpu instruction "),
        "{error}"
    );
    let (_, line) = error.split_once("small.bpf.c:").unwrap();
    let line: usize = line.split(' ').next().unwrap().parse().unwrap();
    let source = include_str!("data/small.bpf.c").lines().nth(line - 1).unwrap();
    assert!(source.contains("0xdeadbeef000"), "{source}");
}

/// The read at the wild address becomes `bpf_spin_lock()` (helper 93) of one beyond the program's memory, and the end.
#[test]
fn a_lock_that_is_nowhere_ends_the_run() {
    let mut object = Object::clone(&SMALL.object);
    let wild = |known: &Instruction| known.imm as u32 == 0xdbee_f000;
    let at = object.code.iter().position(wild).unwrap();
    let beyond = 0x7000_4000_0000_u64;
    object.code[at] = Instruction { dst: 1, imm: beyond as u32 as i32, ..object.code[at] };
    object.code[at + 1].imm = (beyond >> 32) as i32;
    object.code[at + 2] = Instruction { code: CALL, imm: 93, ..Instruction::default() };
    object.code[at + 3] = Instruction { code: 0x95, ..Instruction::default() };
    let mut program = Program::new(object, SMALL.kernel.clone()).unwrap();
    program.set("fault", "1").unwrap();
    let machine = Arc::new(roost_machine::resolve("2n2l4c").unwrap());
    let workload = roost_workload::resolve("hackbench:groups=1", Some(1000 * MS)).unwrap();
    let refused = Scx::new(&machine, &program, 4 * MS).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("it gives a number to bpf_spin_lock"), "{refused}");
    let scx = Scx::new(&machine, &program.without_check_of_pointers(), 4 * MS).unwrap();
    let error = roost_engine::run(&machine, &workload, scx, Control::new(1)).unwrap_err();
    let expected = format!("access to {beyond:#x} in small_select_cpu");
    assert!(error.to_string().contains(&expected), "{error}");
}

#[test]
fn an_error_of_the_program_ends_the_run_with_its_message() {
    let error = ends(1000, "2");
    assert!(
        error.contains("small: scx_bpf_error: ") && error.contains("has had enough"),
        "{error}"
    );
}

#[test]
fn a_task_that_is_never_run_is_a_stall() {
    let error = ends(100_000, "3");
    assert!(error.contains("small: runnable task stall: "), "{error}");
    let (_, seconds) = error.split_once("failed to run for ").unwrap();
    let seconds: f64 = seconds.split('s').next().unwrap().parse().unwrap();
    // The watchdog checks every 15 s whether a task has waited for 30 s.
    assert!((30.0..=45.1).contains(&seconds), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any changed program runs, or ends the run in one line, although no verifier has checked it. Machine code does
    /// what the interpreter does.
    #[test]
    fn a_program_whose_code_was_changed_runs_or_is_refused(
        ours in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<[u8; 4]>()), 1..6),
    ) {
        let mut object = if ours { ROOST.clone() } else { Object::clone(&SMALL.object) };
        for (at, [what, a, b, c]) in changes {
            let at = at.index(object.code.len());
            let instruction = object.code[at];
            // Jumps are not changed: most changes would create endless loops, which take long to detect.
            if matches!(instruction.code & 7, 5 | 6) && instruction.code != CALL {
                continue;
            }
            let changed = &mut object.code[at];
            match what % 4 {
                0 => changed.dst = a % 11,
                1 => changed.src = a % 11,
                2 => changed.offset = i16::from_le_bytes([a, b]),
                _ => changed.imm = i32::from_le_bytes([a, b, c, 0]),
            }
        }
        let machine = Arc::new(roost_machine::resolve("2n2l4c").unwrap());
        let workload = roost_workload::resolve("hackbench:groups=1", Some(3 * MS)).unwrap();
        let end = |instructions| {
            let made = Program::new(object.clone(), SMALL.kernel.clone());
            let made = made.map(Program::without_check_of_pointers);
            let scx = made.and_then(|program| Scx::new(&machine, &program, 4 * MS));
            let scx = scx.map_err(|error| error.to_string())?.interpreting(instructions);
            let run = roost_engine::run(&machine, &workload, scx, Control::new(1));
            run.map(|outcome| format!("{outcome:?}")).map_err(|error| error.to_string())
        };
        let interpreted = end(u64::MAX);
        prop_assert!(interpreted.as_ref().err().is_none_or(|error| error.lines().count() == 1));
        prop_assert_eq!(end(1), interpreted, "machine code differs");
    }
}

#[test]
fn a_setting_that_there_is_not_or_does_not_fit_is_refused() {
    let refused = |name: &str, value: &str| small(&[]).set(name, value).unwrap_err().to_string();
    assert!(refused("slize_ns", "1").contains("no such global variable"));
    assert!(refused("fifo", "2").contains("that is no bool"));
    assert!(refused("fault", "4294967296").contains("that is no u32"));
    assert!(refused("slice_ns", "-1").contains("that is no u64"));
    assert!(small(&[]).set("slice_ns", "0x10").is_ok());
}

/// How often hooks were called.
fn calls<const N: usize>(scx: &Scx, hooks: [&str; N]) -> [u64; N] {
    hooks.map(|hook| {
        let (name, mut calls) = (format!("{hook}_calls"), 0);
        scx.counters(&mut |known, value| calls += if known == name { value } else { 0 });
        calls
    })
}

/// `do_set_cpus_allowed()` dequeues a task, tells its new affinity, and enqueues it, on the same CPU. Then
/// `move_queued_task()` dequeues it again, and enqueues it on another CPU.
#[test]
fn a_task_that_waits_is_enqueued_anew_when_affinity_or_group_change() {
    let machine = Arc::new(roost_machine::resolve("2n2l4c").unwrap());
    let program = Program::new(ROOST.clone(), KernelTypes::shipped().unwrap()).unwrap();
    let mut scx = Scx::new(&machine, &program, 4 * MS).unwrap();
    let mut world = World::for_test(Arc::clone(&machine), 2);
    world.set_groups_for_test(vec![Group { path: "/a".into(), parent: None, weight: 100 }]);
    scx.start(&mut world);
    for task in [TaskId(0), TaskId(1)] {
        scx.task_new(&mut world, task, None);
        world.set_task_cpu(task, 2);
        world.mark_queued(2);
        scx.enqueue(&mut world, 2, task, Enqueue::New, 2);
    }
    let Pick::Run(running) = scx.pick(&mut world, 2) else { panic!("two tasks wait") };
    world.set_current_for_test(2, Some(running));
    let waiting = TaskId(1 - running.0);
    let mut counted = |change: &dyn Fn(&mut Scx, &mut World)| {
        let hooks = ["enqueue", "set_cpumask", "stopping", "running", "cgroup_move"];
        let before = calls(&scx, hooks);
        change(&mut scx, &mut world);
        let after = calls(&scx, hooks);
        scx.audit(&world);
        [0, 1, 2, 3, 4].map(|hook| after[hook] - before[hook])
    };
    let in_place = counted(&|scx, world| {
        world.set_allowed_for_test(waiting, CpuSet::from_cpus(16, [2, 3]));
        scx.allowed_changed(world, waiting, 7);
    });
    assert_eq!(in_place, [1, 1, 0, 0, 0]);
    let moved = counted(&|scx, world| {
        world.set_allowed_for_test(waiting, CpuSet::from_cpus(16, [3]));
        scx.allowed_changed(world, waiting, 7);
        scx.dequeue_waiting(world, 2, waiting, 7);
        world.set_task_cpu(waiting, 3);
        world.mark_queued(3);
        scx.enqueue(world, 3, waiting, Enqueue::Relocated, 7);
    });
    assert_eq!(moved, [2, 1, 0, 0, 0], "it is told once where the task may run");
    let runs = counted(&|scx, world| {
        world.set_allowed_for_test(running, CpuSet::from_cpus(16, [3]));
        scx.allowed_changed(world, running, 7);
    });
    assert_eq!(runs, [0, 1, 1, 1, 0], "it stops and runs again");
    let joins = |task: TaskId, cpu| {
        move |scx: &mut Scx, world: &mut World| {
            world.set_group_for_test(task, Some(0));
            scx.group_changed(world, cpu, task, 7);
        }
    };
    assert_eq!(counted(&joins(waiting, 3)), [1, 0, 0, 0, 1]);
    assert_eq!(counted(&joins(running, 2)), [0, 0, 1, 1, 1]);
    assert_eq!(scx.pick(&mut world, 3), Pick::Run(waiting));
}
