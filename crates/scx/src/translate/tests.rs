//! Machine code does the same as the interpreter for any program. `run_with` runs both, and compares results, memory
//! and calls.

use proptest::prelude::*;
use roost_engine::World;

use super::{Array, Given, Runner, Storage};
use crate::costs;
use crate::helpers::{MAP_LOOKUP, TASK_STORAGE_GET, THIS_CPU};
use crate::instruction::{CALL, Instruction};
use crate::interpret::tests::{
    ARENA, CLOCK, MEMBER, NOTHING, SET_MEMBER, TASK_CPU, TestHost, op, run_with,
};
use crate::interpret::{Stop, run};
use crate::lines::LINE_BYTES;
use crate::maps::BEFORE_VALUE;
use crate::memory::BASE;

/// Codes of all operations, and some codes that do not exist.
fn instruction() -> impl Strategy<Value = Instruction> {
    let code = prop_oneof![
        8 => any::<u8>(),
        // Loads and stores, atomic operations, arithmetic on registers.
        2 => prop::sample::select(vec![0x61, 0x71, 0x79, 0x62, 0x7a, 0x63, 0x7b, 0x91]),
        1 => prop::sample::select(vec![0xc3, 0xdb]),
        // Moves with offset 1 are casts.
        2 => prop::sample::select(vec![0x0f, 0x1f, 0x3f, 0x9f, 0xbf, 0x0c, 0x3c, 0x9c]),
        1 => Just(CALL),
    ];
    // r1 may have an address of the arena, r3 has the address of memory, r10 the address of the stack.
    let register = || prop::sample::select(vec![0u8, 1, 2, 3, 3, 3, 6, 9, 10]);
    let offset = prop_oneof![3 => -16i16..64, 1 => Just(1), 1 => Just(8), 1 => any::<i16>()];
    let imm = prop_oneof![
        3 => -4i32..8,
        2 => prop::sample::select(vec![0x01, 0x41, 0x51, 0xa1, 0xe1, 0xf1, 0x100, 0x110, 16, 32, 64]),
        1 => any::<i32>(),
    ];
    (code, register(), register(), offset, imm).prop_map(|(code, dst, src, offset, imm)| {
        // Instructions that write the frame pointer are not translated.
        let reads = matches!(code & 7, 2 | 3 | 5 | 6);
        let dst = if dst == 10 && !reads { 0 } else { dst };
        // Endless loops take a second each, so all jumps go forward.
        let (offset, imm) = match code & 7 {
            5 | 6 => (offset & i16::MAX, imm & i32::MAX),
            _ => (offset, imm),
        };
        Instruction { code, dst, src, offset, imm }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_programs_do_the_same(
        code in prop::collection::vec(instruction(), 1..12),
        // The second is an address of an arena's page.
        a in prop_oneof![3 => any::<u64>(), 1 => Just(ARENA + 0x1ff8)],
        b in prop_oneof![Just(0), Just(1), Just(u64::MAX), any::<u64>()],
    ) {
        let exit = Instruction { code: 0x95, ..Instruction::default() };
        let _ = run_with(&[&code[..], &[exit]].concat(), a, b);
        // With r3 as a number, machine code knows that accesses are to memory.
        let (.., piece) = TestHost::new();
        let known = [op(0x18, 3, 0, 0, piece as i32), op(0, 0, 0, 0, (piece >> 32) as i32)];
        let _ = run_with(&[&known, &code[..], &[exit]].concat(), a, b);
    }
}

#[test]
fn a_jump_far_beyond_the_program_ends_it() {
    // start: if r0 == 0 skip the jump to 2^27 instructions on; r8 -= 1; if r8 != 0 goto start; exit
    let code = [
        op(0x15, 0, 0, 1, 0),
        op(0x06, 0, 0, 0, (1 << 27) - 3),
        op(0x17, 8, 0, 0, 1),
        op(0x55, 8, 0, -3, 0),
        op(0x95, 0, 0, 0, 0),
    ];
    let _ = run_with(&[&[op(0xb7, 8, 0, 0, 3)], &code[..]].concat(), 0, 0);
    assert!(run_with(&[&[op(0xb7, 0, 0, 0, 1)], &code[..]].concat(), 0, 0).0.is_err());
}

#[test]
fn what_an_atomic_operation_returns_is_not_what_it_stores() {
    // *(u64 *)(r10 - 8) = r1; r4 = 1; r4 = fetch_add(r10 - 8, r4); r0 = *(u64 *)(r10 - 8); if r4 == 5 then r0 += 0
    let code = [
        op(0x7b, 10, 1, -8, 0),
        op(0xb7, 4, 0, 0, 1),
        op(0xdb, 10, 4, -8, 1),
        op(0x79, 0, 10, -8, 0),
        op(0x55, 4, 0, 1, 5),
        op(0x07, 0, 0, 0, 0),
        op(0x95, 0, 0, 0, 0),
    ];
    let returned = run_with(&code, 5, 0).0.unwrap_or_else(|fault| panic!("{fault:?}"));
    assert_eq!(returned.value, 6);
}

#[test]
fn the_second_half_of_a_load_can_be_jumped_to() {
    // r9 = 0; 1: r8 = a number, whose second half is r8 = 0; 3: r4 = *(u64 *)(r3 + 0); if r9 != 0 goto 9
    // r6 = r4; *(u64 *)(r3 + 0) = 7; r9 = 1; goto 2; 9: if r4 == 7 then r6 += 0; r0 = r6
    let code = [
        op(0xb7, 9, 0, 0, 0),
        op(0x18, 8, 0, 0, 0),
        op(0xb7, 8, 0, 0, 0),
        op(0x79, 4, 3, 0, 0),
        op(0x55, 9, 0, 4, 0),
        op(0xbf, 6, 4, 0, 0),
        op(0x7a, 3, 0, 0, 7),
        op(0xb7, 9, 0, 0, 1),
        op(0x05, 0, 0, -7, 0),
        op(0x55, 4, 0, 1, 7),
        op(0x07, 6, 0, 0, 0),
        op(0xbf, 0, 6, 0, 0),
        op(0x95, 0, 0, 0, 0),
    ];
    let returned = run_with(&code, 0, 0).0.unwrap_or_else(|fault| panic!("{fault:?}"));
    assert_ne!(returned.value, 7, "the memory was not 7 at first");
}

#[test]
fn loops_of_several_functions_count_together() {
    // r6 = 4096; 1: loop(); r6 -= 1; if r6 != 0 goto 1; exit; loop: r1 = 2^19; do r1 -= 1 while r1 != 0; exit
    let code = [
        op(0xb7, 6, 0, 0, 4096),
        op(CALL, 0, 1, 0, 3),
        op(0x17, 6, 0, 0, 1),
        op(0x55, 6, 0, -3, 0),
        op(0x95, 0, 0, 0, 0),
        op(0xb7, 1, 0, 0, 1 << 19),
        op(0x17, 1, 0, 0, 1),
        op(0x55, 1, 0, -2, 0),
        op(0x95, 0, 0, 0, 0),
    ];
    let (mut host, stack, _) = TestHost::new();
    let Some(mut runner) = Runner::of(&code, Given::default(), stack) else { return };
    let result = runner.run(&mut host, [0; 5]);
    assert_eq!(result.unwrap_err().why, Stop::Endless);
}

#[test]
fn a_loop_is_counted_as_the_interpreter_counts() {
    // r1 = 1000; r0 += r1; r1 -= 1; if r1 != 0 goto back
    let code = [
        op(0xb7, 1, 0, 0, 1000),
        op(0x0f, 0, 1, 0, 0),
        op(0x17, 1, 0, 0, 1),
        op(0x55, 1, 0, -3, 0),
        op(0x95, 0, 0, 0, 0),
    ];
    let returned = run_with(&code, 0, 0).0.unwrap_or_else(|fault| panic!("{fault:?}"));
    assert_eq!((returned.value, returned.instructions), (500_500, 3002));
}

#[test]
fn functions_that_are_not_called_have_the_same_results_and_costs() {
    let map = 0x7fff_0000;
    for (index, same_time) in [(0, true), (1, false), (2, true), (-1, true)] {
        // *(u32 *)(r10 - 4) = index; r0 = look_up(map, r10 - 4); r6 = r0
        // nothing(); r0 = this_cpu(); r6 += r0; r0 = clock(); r0 += r6
        let code = [
            op(0x62, 10, 0, -4, index),
            op(0x18, 1, 0, 0, map),
            op(0, 0, 0, 0, 0),
            op(0xbf, 2, 10, 0, 0),
            op(0x07, 2, 0, 0, -4),
            op(CALL, 0, 0, 0, MAP_LOOKUP as i32),
            op(0xbf, 6, 0, 0, 0),
            op(CALL, 0, 2, 0, NOTHING as i32),
            op(CALL, 0, 0, 0, THIS_CPU as i32),
            op(0x0f, 6, 0, 0, 0),
            op(CALL, 0, 0, 0, CLOCK as i32),
            op(0x0f, 0, 6, 0, 0),
            op(0x95, 0, 0, 0, 0),
        ];
        let (mut interpreted, stack, piece) = TestHost::new();
        let array = Array { first: piece, stride: 8, of_cpu: 16, entries: 2 };
        interpreted.array = Some(array);
        let expected = run(&code, &mut interpreted, stack, 0, [0; 5]);
        assert_eq!(interpreted.calls.len(), 4);

        let arrays = [(map as u64, array)].into();
        let nothing = [(NOTHING, 17)].into();
        let now = Some((NOTHING + 1, 0));
        let given = Given { arrays, nothing, this_cpu: true, now, ..Given::default() };
        // Other processors interpret.
        let Some(mut runner) = Runner::of(&code, given, stack) else { return };
        let (mut host, ..) = TestHost::new();
        host.same_time = same_time;
        assert_eq!(runner.run(&mut host, [0; 5]), expected);
        // Clocks that may differ are asked.
        assert_eq!(host.calls.len(), usize::from(!same_time));
        let clock = if same_time { costs::of_helper(CLOCK) } else { 0 };
        let helpers = costs::of_helper(MAP_LOOKUP) + costs::of_helper(THIS_CPU) + clock;
        assert_eq!(runner.counted(), (helpers + 17, 1));
    }
}

/// Memory in which tasks 0 and 1 begin at the first two lines of the stacks, and task 2 at the fourth. Of two storages,
/// only task 0 has a value in the second one. Task 2 has neither a place for values nor a CPU.
fn with_tasks() -> (TestHost, u64) {
    let (mut host, stack, piece) = TestHost::new();
    let before = vec![0; ((stack - BASE) / LINE_BYTES) as usize];
    host.tasks =
        ([&before[..], &[1, 2, 0, 3]].concat(), vec![piece, piece + BEFORE_VALUE, piece + 16, 0]);
    // A CPU of another LLC wrote what stands before the value.
    host.lines.touch(2, piece, true);
    host.lines.take_fetched();
    let numbers = World::TASK_BYTES / size_of::<usize>();
    host.cpus = vec![0; 2 * numbers];
    (host.cpus[0], host.cpus[numbers]) = (3, 2);
    (host, stack)
}

#[test]
fn functions_for_tasks_do_the_same_and_are_called_only_if_something_is_missing() {
    let map = 0x7fff_0000;
    let storages = [map - 1, map].into_iter().enumerate();
    let given = Given {
        storages: storages.map(|(number, at)| (at, Storage { number, bytes: 8 })).collect(),
        task_cpu: Some((TASK_CPU, 3)),
        members: [(SET_MEMBER, (MEMBER, 4))].into(),
        ..Given::default()
    };
    // The function, the register with its task, and another argument.
    let functions = [
        (op(CALL, 0, 0, 0, TASK_STORAGE_GET as i32), [2, 1], map as i32),
        (op(CALL, 0, 2, 0, TASK_CPU as i32), [1, 2], 0),
        (op(CALL, 0, 2, 0, SET_MEMBER as i32), [1, 2], 1234),
    ];
    // Addresses from that of the stacks on, and whether each function has to be called.
    let tasks = [
        (0, [false, false, false]),
        (64, [true, false, false]),
        (192, [true, true, false]),
        // Nothing begins there, it is no start of a line, it is behind all tasks, before memory.
        (128, [true; 3]),
        (8, [true; 3]),
        (256, [true; 3]),
        (-1 << 40, [true; 3]),
    ];
    for (number, (function, [task, other], argument)) in functions.into_iter().enumerate() {
        let code = [
            op(0xbf, 6, 1, 0, 0),
            op(0xb7, other, 0, 0, argument),
            op(0xbf, task, 6, 0, 0),
            function,
            op(0x95, 0, 0, 0, 0),
        ];
        for (offset, called) in tasks {
            let (mut interpreted, stack) = with_tasks();
            let Some(mut runner) = Runner::of(&code, given.clone(), stack) else { return };
            let arguments = [stack.wrapping_add_signed(offset), 0, 0, 0, 0];
            let expected = run(&code, &mut interpreted, stack, 0, arguments);
            let (mut host, _) = with_tasks();
            assert_eq!(runner.run(&mut host, arguments), expected);
            assert_eq!(host.memory.bytes_mut(), interpreted.memory.bytes_mut());
            assert_eq!(host.calls.len(), usize::from(called[number]), "{function:?} at {offset}");
            assert_eq!(host.lines.fetched(), interpreted.lines.fetched());
            let reads_line = (number, offset) == (0, 0);
            assert_eq!(host.lines.fetched().lines, u64::from(reads_line));
            let counted = [(costs::of_helper(TASK_STORAGE_GET), 0), (3, 1), (4, 1)][number];
            assert_eq!(runner.counted(), if called[number] { (0, 0) } else { counted });
        }
    }
}

#[test]
fn a_value_that_is_looked_up_is_accessed_as_by_the_interpreter() {
    let map = 0x7fff_0000;
    for index in [0, 1, 2] {
        let (mut interpreted, stack, piece) = TestHost::new();
        let constants = piece + 48;
        // r8 = constants; r9 = *(u64 *)(r8 + 8); *(u32 *)(r10 - 4) = index; r0 = look_up(map, r10 - 4)
        // if r0 == 0 goto the end; *(u64 *)(r10 - 16) = r0
        // do { r6 = *(u64 *)(r10 - 16); r6 += 8; *(u64 *)(r6 + 0) += r9; r9 -= 1 } while r9 != 0
        // if *(u64 *)(r8 + 0) != 3 goto the end; r0 = *(u64 *)(r6 + 0)
        let code = [
            op(0x18, 8, 0, 0, constants as i32),
            op(0, 0, 0, 0, (constants >> 32) as i32),
            op(0x79, 9, 8, 8, 0),
            op(0x62, 10, 0, -4, index),
            op(0x18, 1, 0, 0, map),
            op(0, 0, 0, 0, 0),
            op(0xbf, 2, 10, 0, 0),
            op(0x07, 2, 0, 0, -4),
            op(CALL, 0, 0, 0, MAP_LOOKUP as i32),
            op(0x15, 0, 0, 11, 0),
            op(0x7b, 10, 0, -16, 0),
            op(0x79, 6, 10, -16, 0),
            op(0x07, 6, 0, 0, 8),
            op(0x79, 7, 6, 0, 0),
            op(0x0f, 7, 9, 0, 0),
            op(0x7b, 6, 7, 0, 0),
            op(0x17, 9, 0, 0, 1),
            op(0x55, 9, 0, -7, 0),
            op(0x79, 7, 8, 0, 0),
            op(0x55, 7, 0, 1, 3),
            op(0x79, 0, 6, 0, 0),
            op(0x95, 0, 0, 0, 0),
        ];
        let array = Array { first: piece, stride: 16, of_cpu: 0, entries: 2 };
        let with_constants = |host: &mut TestHost| {
            host.array = Some(array);
            let written = [(constants, 3), (constants + 8, 4)];
            let memory = &mut host.memory;
            written.map(|(at, number)| memory.write(at, 8, number)).iter().all(Result::is_ok)
        };
        assert!(with_constants(&mut interpreted));
        let expected = run(&code, &mut interpreted, stack, 0, [0; 5]);
        let value = expected.as_ref().map(|returned| returned.value);
        assert_eq!(value, Ok(if index < 2 { 4 + 3 + 2 + 1 } else { 0 }));

        let bytes: Vec<u8> = [3u64, 4].into_iter().flat_map(u64::to_le_bytes).collect();
        let given = Given {
            arrays: [(map as u64, array)].into(),
            constants: vec![(constants, bytes)],
            region: piece..piece + 64,
            ..Given::default()
        };
        let Some(mut runner) = Runner::of(&code, given, stack) else { return };
        let (mut host, ..) = TestHost::new();
        assert!(with_constants(&mut host));
        assert_eq!(runner.run(&mut host, [0; 5]), expected);
        assert_eq!(host.memory.bytes_mut(), interpreted.memory.bytes_mut());
        assert_eq!(host.lines.fetched(), interpreted.lines.fetched());
    }
}

#[test]
fn a_line_that_is_read_and_then_written_is_fetched_as_by_the_interpreter() {
    // The second access writes to the line of the first, or to another line; between them is nothing, arithmetic, a
    // call, or what ends the program.
    let between = [
        vec![],
        vec![op(0x07, 1, 0, 0, 1)],
        vec![op(CALL, 0, 2, 0, NOTHING as i32)],
        vec![op(0x79, 1, 6, 0, 0)],
        vec![op(0xff, 1, 1, 0, 0)],
    ];
    for (to, between) in [8, 64].into_iter().flat_map(|to| between.iter().map(move |b| (to, b))) {
        let (mut interpreted, stack, _) = TestHost::new();
        let piece = interpreted.memory.allocate(256).unwrap();
        // r7 = piece; r6 = 1 << 40; r1 = *(u64 *)(r7 + 0); ...; *(u64 *)(r7 + to) = r1; r0 = 0
        let mut code = vec![
            op(0x18, 7, 0, 0, piece as i32),
            op(0, 0, 0, 0, (piece >> 32) as i32),
            op(0x18, 6, 0, 0, 0),
            op(0, 0, 0, 0, 1 << 8),
            op(0x79, 1, 7, 0, 0),
        ];
        code.extend(between);
        code.extend([op(0x7b, 7, 1, to, 0), op(0xb7, 0, 0, 0, 0), op(0x95, 0, 0, 0, 0)]);
        // Lines of which another CPU has a copy, that it has written, or that this one has.
        for (cpu, write) in [(0, false), (2, true), (1, false), (1, true)] {
            let host = || {
                let (mut host, ..) = TestHost::new();
                host.memory.allocate(256).unwrap();
                for line in [piece, piece + 64] {
                    host.lines.touch(2, line, true);
                    host.lines.touch(cpu, line, write);
                }
                host.lines.take_fetched();
                host
            };
            let (mut interpreted, mut translated) = (host(), host());
            let expected = run(&code, &mut interpreted, stack, 0, [0; 5]);
            let given = Given { region: piece..piece + 256, ..Given::default() };
            let Some(mut runner) = Runner::of(&code, given, stack) else { return };
            assert_eq!(runner.run(&mut translated, [0; 5]), expected, "{code:?}");
            let fetched = [&interpreted, &translated].map(|host| host.lines.fetched());
            assert_eq!(fetched[0], fetched[1], "{code:?}");
        }
    }
}
