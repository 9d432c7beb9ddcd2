//! Each kind of instruction does what RFC 9669 says. The numbers were worked out by hand from its text.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::LazyLock;

use roost_engine::World;
use roost_machine::Machine;

use super::*;
use crate::arena::{Arena, PAGE, TO_USER};
use crate::helpers::{CLOCKS, MAP_LOOKUP, TASK_STORAGE_GET, THIS_CPU};
use crate::lines::LINE_BYTES;
use crate::maps::BEFORE_VALUE;
use crate::memory::BASE;
use crate::translate::{Array, Given, Runner};

/// Two LLCs of two CPUs.
static MACHINE: LazyLock<Machine> =
    LazyLock::new(|| roost_machine::resolve("node:1 l3:2 core:2 pu:1").unwrap());

/// The CPU that executes programs.
const CPU: usize = 1;

/// The memory of a call, and a kfunc that adds its arguments.
pub(crate) struct TestHost {
    pub memory: Memory,
    pub lines: Lines,
    pub calls: Vec<(Callee, [u64; 5])>,
    /// The array in which a look-up finds values.
    pub array: Option<Array>,
    /// Whether all clocks show [`NOW`].
    pub same_time: bool,
    /// Where tasks and their values are, as in [`Host::task_values`], and the tasks' CPUs.
    pub tasks: (Vec<u32>, Vec<u64>),
    pub cpus: Vec<usize>,
}

impl TestHost {
    /// The number of the task whose struct begins at an address.
    fn task(&self, address: u64) -> Option<usize> {
        let place = address.checked_sub(BASE).filter(|place| place.is_multiple_of(LINE_BYTES))?;
        (*self.tasks.0.get((place / LINE_BYTES) as usize)? as usize).checked_sub(1)
    }

    /// A function for a task. Without such a task, or value, it returns a number of its own.
    fn for_task(&mut self, callee: Callee, arguments: [u64; 5]) -> Result<u64, Stop> {
        let number = self.task(arguments[usize::from(callee == Callee::Helper(TASK_STORAGE_GET))]);
        let Some(number) = number else { return Ok(7) };
        Ok(match callee {
            Callee::Kfunc(TASK_CPU) => {
                let at = number * World::TASK_BYTES / size_of::<usize>();
                self.cpus.get(at).map_or(8, |cpu| *cpu as u64)
            }
            Callee::Kfunc(_) => {
                self.memory.write(arguments[0] + MEMBER, 8, arguments[1])?;
                1
            }
            // The second of two storages.
            Callee::Helper(_) => match self.tasks.1.get(2 * number + 1) {
                None | Some(0) => 9,
                Some(&value) => {
                    self.touch(value - BEFORE_VALUE, false);
                    value
                }
            },
        })
    }
}

/// A kfunc that returns a task's CPU, and one that sets the member of a task at an offset.
pub(crate) const TASK_CPU: u32 = 5;
pub(crate) const SET_MEMBER: u32 = 6;
pub(crate) const MEMBER: u64 = 16;

impl Host for TestHost {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn touch(&mut self, address: u64, write: bool) {
        self.lines.touch(CPU, self.memory.place(address), write);
    }

    fn fetch(&mut self, address: u64, write: bool) {
        self.lines.fetch(CPU, address, write);
    }

    fn lines(&mut self) -> (&mut Lines, usize) {
        (&mut self.lines, CPU)
    }

    fn task_values(&self) -> (&[u32], &[u64]) {
        (&self.tasks.0, &self.tasks.1)
    }

    fn task_cpus(&self) -> (*const usize, usize) {
        (self.cpus.as_ptr(), self.cpus.len() * size_of::<usize>() / World::TASK_BYTES)
    }

    fn now_ns(&self) -> Option<u64> {
        self.same_time.then_some(NOW)
    }

    fn call(&mut self, callee: Callee, arguments: [u64; 5]) -> Result<u64, Stop> {
        self.calls.push((callee, arguments));
        match callee {
            Callee::Kfunc(NOTHING) => Ok(0),
            Callee::Helper(THIS_CPU) => Ok(CPU as u64),
            Callee::Helper(CLOCK) => Ok(NOW),
            Callee::Helper(MAP_LOOKUP) if self.array.is_some() => {
                let Some(array) = self.array else { return Ok(0) };
                let index = self.memory.read(arguments[1], 4)?;
                let place = array.first + array.stride * index + array.of_cpu * CPU as u64;
                Ok(if index < array.entries.into() { place } else { 0 })
            }
            Callee::Helper(TASK_STORAGE_GET) | Callee::Kfunc(TASK_CPU | SET_MEMBER) => {
                self.for_task(callee, arguments)
            }
            Callee::Kfunc(1) => Ok(arguments.into_iter().fold(0, u64::wrapping_add)),
            _ => Err(Stop::Refused("no such function".to_owned())),
        }
    }
}

/// A helper that is a clock, and the time.
pub(crate) const CLOCK: u32 = CLOCKS[0];
const NOW: u64 = 12_345;

/// A kfunc that does nothing.
pub(crate) const NOTHING: u32 = 2;

pub(crate) const fn op(code: u8, dst: u8, src: u8, offset: i16, imm: i32) -> Instruction {
    Instruction { code, dst, src, offset, imm }
}

const EXIT_CODE: Instruction = op(0x95, 0, 0, 0, 0);

/// The arena's first page, which is not there. The next one is.
pub(crate) const ARENA: u64 = 1 << 44;

impl TestHost {
    /// A host whose memory has room for stacks and 64 more bytes, and one page of an arena. Returns the addresses of
    /// stacks and bytes.
    pub(crate) fn new() -> (Self, u64, u64) {
        let mut memory = Memory::default();
        let stack = memory.allocate(MOST_FRAMES * STACK_BYTES as usize).unwrap();
        let piece = memory.allocate(64).unwrap();
        memory.arena = Arena::new(ARENA, 4);
        assert_eq!(memory.allocate_pages(ARENA + PAGE, 1), ARENA + PAGE);
        let mut lines = Lines::new(&MACHINE);
        // Another CPU wrote all lines, and others have copies of every second one.
        for line in 0..memory.bytes_mut().len() as u64 / LINE_BYTES {
            lines.touch(2, BASE + line * LINE_BYTES, true);
            if line % 2 == 0 {
                lines.touch(0, BASE + line * LINE_BYTES, false);
            }
        }
        lines.take_fetched();
        lines.exempt(stack, MOST_FRAMES * STACK_BYTES as usize);
        let calls = Vec::new();
        let (array, same_time, tasks, cpus) = (None, false, Default::default(), Vec::new());
        (Self { memory, lines, calls, array, same_time, tasks, cpus }, stack, piece)
    }
}

/// Runs code with two arguments in r1 and r2, and the address of 64 bytes in r3. Machine code must do the same.
pub(crate) fn run_with(
    code: &[Instruction],
    a: u64,
    b: u64,
) -> (Result<Returned, Fault>, TestHost, u64) {
    let (mut host, stack, piece) = TestHost::new();
    let arguments = [a, b, piece, 0, 0];
    let returned = run(code, &mut host, stack, 0, arguments);
    let given = Given { region: piece..piece + 64, ..Given::default() };
    if let Some(mut runner) = Runner::of(code, given, stack) {
        let (mut other, ..) = TestHost::new();
        let same = runner.run(&mut other, arguments);
        assert_eq!(same, returned, "{code:?}");
        assert_eq!(other.memory.bytes_mut(), host.memory.bytes_mut(), "{code:?}");
        assert_eq!(other.calls, host.calls, "{code:?}");
        assert_eq!(other.lines.fetched(), host.lines.fetched(), "{code:?}");
    }
    (returned, host, piece)
}

fn value(code: &[Instruction], a: u64, b: u64) -> u64 {
    run_with(code, a, b).0.unwrap().value
}

/// The result of `r1 OP= r2`. Checks the same with `b` as immediate, if it fits.
fn arithmetic(code: u8, offset: i16, a: u64, b: u64) -> u64 {
    let by_register = [op(code | REGISTER, 1, 2, offset, 0), op(0xbf, 0, 1, 0, 0), EXIT_CODE];
    let result = value(&by_register, a, b);
    if let Ok(imm) = i32::try_from(b as i64) {
        let by_immediate = [op(code, 1, 0, offset, imm), op(0xbf, 0, 1, 0, 0), EXIT_CODE];
        assert_eq!(value(&by_immediate, a, b), result, "{code:#x} by immediate");
    }
    result
}

const MINUS_1: u64 = u64::MAX;
const LEAST: u64 = i64::MIN as u64;

/// The verifier would refuse it.
#[test]
fn a_function_that_changes_the_frame_pointer_returns() {
    // r0 = callee(); exit. callee: r10 = 0; exit
    let code = [op(0x85, 0, 1, 0, 1), EXIT_CODE, op(0xb7, 10, 0, 0, 0), EXIT_CODE];
    assert_eq!(value(&code, 7, 7), 0);
}

#[test]
fn arithmetic_on_64_bits_wraps() {
    let cases: [(u8, u64, u64, u64); 12] = [
        (ADD, MINUS_1, 2, 1),
        (SUB, 1, 2, MINUS_1),
        (MUL, 1 << 63, 2, 0),
        (DIV, 7, 2, 3),
        (DIV, MINUS_1, 16, MINUS_1 >> 4),
        (OR, 0xf0, 0x0f, 0xff),
        (AND, 0xff, MINUS_1 << 4, 0xf0),
        (LSH, 1, 63, 1 << 63),
        (RSH, LEAST, 63, 1),
        (MOD, 7, 4, 3),
        (XOR, 0xff, 0x0f, 0xf0),
        (ARSH, LEAST, 63, MINUS_1),
    ];
    for (operation, a, b, expected) in cases {
        assert_eq!(arithmetic(operation | class::ALU64, 0, a, b), expected, "{operation:#x}");
    }
}

#[test]
fn arithmetic_on_32_bits_clears_the_upper_half() {
    let cases: [(u8, u64, u64, u64); 11] = [
        (ADD, 0xffff_ffff, 1, 0),
        (SUB, 0, 1, 0xffff_ffff),
        (MUL, 0x8000_0000, 2, 0),
        (DIV, 0xdead_0000_0009, 2, 4),
        (OR, 0xdead_0000_00f0, 0x0f, 0xff),
        (LSH, 1, 31, 0x8000_0000),
        (RSH, 0xdead_8000_0000, 31, 1),
        (MOD, 0xdead_0000_0009, 4, 1),
        (XOR, 0xdead_0000_00ff, 0x0f, 0xf0),
        (MOV, 0, MINUS_1, 0xffff_ffff),
        (ARSH, 0x8000_0000, 31, 0xffff_ffff),
    ];
    for (operation, a, b, expected) in cases {
        assert_eq!(arithmetic(operation | class::ALU, 0, a, b), expected, "{operation:#x}");
    }
}

#[test]
fn shifts_use_the_lowest_bits_of_the_distance() {
    assert_eq!(arithmetic(LSH | class::ALU64, 0, 1, 64), 1);
    assert_eq!(arithmetic(RSH | class::ALU, 0, 2, 33), 1);
}

/// RFC 9669, section 4.1: division by zero gives 0, and its remainder is the dividend. The smallest number divided by
/// -1 is itself.
#[test]
fn division_by_zero_and_overflow_are_defined() {
    assert_eq!(arithmetic(DIV | class::ALU64, 0, 7, 0), 0);
    assert_eq!(arithmetic(MOD | class::ALU64, 0, 7, 0), 7);
    assert_eq!(arithmetic(DIV | class::ALU, 0, 7, 0), 0);
    assert_eq!(arithmetic(MOD | class::ALU, 0, 0xdead_0000_0007, 0), 7);
    assert_eq!(arithmetic(DIV | class::ALU64, 1, 7, 0), 0);
    assert_eq!(arithmetic(MOD | class::ALU64, 1, 7, 0), 7);
    assert_eq!(arithmetic(DIV | class::ALU64, 1, LEAST, MINUS_1), LEAST);
    assert_eq!(arithmetic(MOD | class::ALU64, 1, LEAST, MINUS_1), 0);
    assert_eq!(arithmetic(DIV | class::ALU, 1, 0x8000_0000, MINUS_1), 0x8000_0000);
}

/// Section 4.1: -13 % 3 is -1, because the quotient is truncated.
#[test]
fn signed_division_truncates() {
    let minus_13 = -13i64 as u64;
    assert_eq!(arithmetic(DIV | class::ALU64, 1, minus_13, 3), -4i64 as u64);
    assert_eq!(arithmetic(MOD | class::ALU64, 1, minus_13, 3), MINUS_1);
    assert_eq!(arithmetic(DIV | class::ALU, 1, minus_13, 3), u64::from(-4i32 as u32));
    assert_eq!(arithmetic(MOD | class::ALU, 1, minus_13, 3), 0xffff_ffff);
}

#[test]
fn moves_extend_the_sign_from_8_16_and_32_bits() {
    let moved = |code, bits| value(&[op(code, 0, 1, bits, 0), EXIT_CODE], 0x8000_8080, 0);
    let wide = MOV | REGISTER | class::ALU64;
    assert_eq!(moved(wide, 8), 0xffff_ffff_ffff_ff80);
    assert_eq!(moved(wide, 16), 0xffff_ffff_ffff_8080);
    assert_eq!(moved(wide, 32), 0xffff_ffff_8000_8080);
    assert_eq!(moved(MOV | REGISTER | class::ALU, 8), 0xffff_ff80);
    assert_eq!(moved(MOV | REGISTER | class::ALU, 16), 0xffff_8080);
}

#[test]
fn negation_and_byte_order() {
    let one =
        |code, imm, a| value(&[op(code, 1, 0, 0, imm), op(0xbf, 0, 1, 0, 0), EXIT_CODE], a, 0);
    assert_eq!(one(NEG | class::ALU64, 0, 1), MINUS_1);
    assert_eq!(one(NEG | class::ALU, 0, 1), 0xffff_ffff);
    let number = 0x0102_0304_0506_0708;
    for code in [END | REGISTER | class::ALU, END | class::ALU64] {
        assert_eq!(one(code, 16, number), 0x0807);
        assert_eq!(one(code, 32, number), 0x0807_0605);
        assert_eq!(one(code, 64, number), 0x0807_0605_0403_0201);
    }
    assert_eq!(one(END | class::ALU, 16, number), 0x0708);
    assert_eq!(one(END | class::ALU, 32, number), 0x0506_0708);
}

#[test]
fn a_load_of_64_bits_takes_two_instructions() {
    let code = [op(LOAD_64, 0, 0, 0, -1), op(0, 0, 0, 0, 1), EXIT_CODE];
    let returned = run_with(&code, 0, 0).0.unwrap();
    assert_eq!(returned, Returned { value: 0x1_ffff_ffff, instructions: 2 });
}

/// Stores and loads of each size, signed and unsigned, at an offset.
#[test]
fn memory_is_accessed_by_size() {
    let sizes = [(0x10, 0xef, (MINUS_1 << 8) | 0xef), (0x08, 0xcdef, (MINUS_1 << 16) | 0xcdef)];
    let sizes = sizes.into_iter().chain([(0x00, 0x89ab_cdef, 0xffff_ffff_89ab_cdef)]);
    for (size, unsigned, signed) in sizes {
        let stored = op(MEM | size | class::STX, 3, 1, 8, 0);
        let load = |mode: u8| [stored, op(mode | size | class::LDX, 0, 3, 8, 0), EXIT_CODE];
        assert_eq!(value(&load(MEM), 0x0123_4567_89ab_cdef, 0), unsigned);
        assert_eq!(value(&load(MEMSX), 0x0123_4567_89ab_cdef, 0), signed);
    }
    let whole = [op(0x7b, 3, 1, 0, 0), op(0x79, 0, 3, 0, 0), EXIT_CODE];
    assert_eq!(value(&whole, 0x0123_4567_89ab_cdef, 0), 0x0123_4567_89ab_cdef);
    // A store of an immediate extends its sign.
    let immediate = [op(0x7a, 3, 0, 0, -2), op(0x79, 0, 3, 0, 0), EXIT_CODE];
    assert_eq!(value(&immediate, 0, 0), MINUS_1 - 1);
}

/// Runs an atomic operation with the operand r1 on memory that contains 5. Returns memory, r1 and r0 afterwards.
fn atomically(imm: i32, size: u8, operand: u64, r0: u64) -> (u64, u64, u64) {
    let begin = [
        op(0x7a, 3, 0, 0, 5),
        op(0xbf, 0, 2, 0, 0),
        op(ATOMIC | size | class::STX, 3, 1, 0, imm),
        op(0x7b, 3, 1, 8, 0),
        EXIT_CODE,
    ];
    let (returned, host, piece) = run_with(&begin, operand, r0);
    let (memory, register) = (host.memory.read(piece, 8), host.memory.read(piece + 8, 8));
    (memory.unwrap(), register.unwrap(), returned.unwrap().value)
}

#[test]
fn atomic_operations_change_memory_and_fetch_what_it_was() {
    assert_eq!(atomically(0x00, 0x18, 3, 0), (8, 3, 0));
    assert_eq!(atomically(0x40, 0x18, 2, 0), (7, 2, 0));
    assert_eq!(atomically(0x50, 0x18, 4, 0), (4, 4, 0));
    assert_eq!(atomically(0xa0, 0x18, 1, 0), (4, 1, 0));
    assert_eq!(atomically(FETCH, 0x18, 3, 0), (8, 5, 0));
    assert_eq!(atomically(0xe0 | FETCH, 0x18, 3, 0), (3, 5, 0));
    assert_eq!(atomically(FETCH, 0x00, MINUS_1, 0), (4, 5, 0), "32 bits wrap alone");
}

#[test]
fn compare_and_exchange_tells_in_r0_what_there_was() {
    assert_eq!(atomically(COMPARE_AND_EXCHANGE, 0x18, 9, 5), (9, 9, 5));
    assert_eq!(atomically(COMPARE_AND_EXCHANGE, 0x18, 9, 4), (5, 9, 5));
    let upper_ignored = 0xdead_0000_0005;
    assert_eq!(atomically(COMPARE_AND_EXCHANGE, 0x00, 9, upper_ignored), (9, 9, 5));
}

#[test]
fn acquire_and_release_load_and_store() {
    let code = [
        op(ATOMIC | 0x18 | class::STX, 3, 1, 0, STORE_RELEASE),
        op(ATOMIC | 0x18 | class::STX, 0, 3, 0, LOAD_ACQUIRE),
        EXIT_CODE,
    ];
    assert_eq!(value(&code, 42, 0), 42);
}

/// A program that casts addresses of an arena (r1) before it uses them. Its arena has one page.
#[test]
fn an_arena_is_accessed_through_casts() {
    let upper = (ARENA >> 32) as i32;
    let cast = |imm| op(MOV | REGISTER | class::ALU64, 1, 1, CAST, imm | upper);
    let begin = [
        cast(0),
        op(0x7b, 1, 2, 8, 0),                           // [r1 + 8] = r2
        op(0xb7, 0, 0, 0, 5),                           // r0 = 5
        op(ATOMIC | 0x18 | class::STX, 1, 0, 8, FETCH), // r0 = [r1 + 8], += 5
        op(0x79, 0, 1, 8, 0),                           // r0 = [r1 + 8]
        EXIT_CODE,
    ];
    let lower = PAGE + 16;
    assert_eq!(value(&begin, ARENA + lower, 7), 12);
    assert_eq!(value(&begin, lower, 7), 12, "only the lower half counts");
    assert_eq!(value(&begin, ARENA + 16, 7), 0, "this page is not there");
    assert_eq!(value(&begin, 0, 7), 0, "NULL");
    let stored = [cast(TO_USER), op(0xbf, 0, 1, 0, 0), EXIT_CODE];
    assert_eq!(value(&stored, lower, 0), ARENA + lower);
    assert_eq!(value(&stored, ARENA, 0), 0);
}

/// Every comparison, in 64 and 32 bits, with operands for which it holds and for which it does not.
#[test]
fn jumps_compare_with_and_without_sign() {
    let cases: [(u8, u64, u64, bool); 20] = [
        (0x10, 5, 5, true),
        (0x10, 5, 6, false),
        (0x20, MINUS_1, 1, true),
        (0x20, 1, 1, false),
        (0x30, 1, 1, true),
        (0x30, 1, MINUS_1, false),
        (0x40, 6, 2, true),
        (0x40, 6, 1, false),
        (0x50, 5, 6, true),
        (0x50, 5, 5, false),
        (0x60, 1, MINUS_1, true),
        (0x60, MINUS_1, 1, false),
        (0x70, 1, 1, true),
        (0x70, MINUS_1, 1, false),
        (0xa0, 1, MINUS_1, true),
        (0xa0, 1, 1, false),
        (0xb0, 1, 1, true),
        (0xb0, MINUS_1, 1, false),
        (0xc0, MINUS_1, 1, true),
        (0xd0, 2, 1, false),
    ];
    for (operation, a, b, expected) in cases {
        for class in [class_of_jumps(true), class_of_jumps(false)] {
            let code = [
                op(0xb7, 0, 0, 0, 1),
                op(operation | REGISTER | class, 1, 2, 1, 0),
                op(0xb7, 0, 0, 0, 0),
                EXIT_CODE,
            ];
            assert_eq!(value(&code, a, b) == 1, expected, "{operation:#x} class {class}");
        }
    }
}

fn class_of_jumps(wide: bool) -> u8 {
    if wide { JMP } else { 6 }
}

#[test]
fn a_comparison_of_32_bits_ignores_the_upper_half() {
    let code = |class| {
        [op(0xb7, 0, 0, 0, 1), op(0x18 | class, 1, 2, 1, 0), op(0xb7, 0, 0, 0, 0), EXIT_CODE]
    };
    assert_eq!(value(&code(6), (1 << 32) | 7, 7), 1);
    assert_eq!(value(&code(JMP), (1 << 32) | 7, 7), 0);
}

#[test]
fn a_long_jump_counts_by_its_immediate() {
    let code = [op(0x06, 0, 0, 0, 1), EXIT_CODE, op(0xb7, 0, 0, 0, 3), EXIT_CODE];
    assert_eq!(value(&code, 0, 0), 3);
}

#[test]
fn a_loop_with_may_goto_ends() {
    // r0 += 1; may_goto out; goto back
    let code = [op(0x07, 0, 0, 0, 1), op(0xe5, 0, 0, 1, 0), op(0x05, 0, 0, -3, 0), EXIT_CODE];
    assert_eq!(value(&code, 0, 0), MOST_LOOPS + 1);
}

/// A function has its own registers 6 to 9 and its own stack.
#[test]
fn a_call_keeps_registers_and_stack_of_its_caller() {
    let code = [
        op(0xb7, 6, 0, 0, 7),   // r6 = 7
        op(0x7b, 10, 6, -8, 0), // [r10 - 8] = r6
        op(CALL, 0, 1, 0, 4),   // r0 = the function below
        op(0x79, 1, 10, -8, 0), // r1 = [r10 - 8]
        op(0x0f, 0, 1, 0, 0),   // r0 += r1
        op(0x0f, 0, 6, 0, 0),   // r0 += r6
        EXIT_CODE,
        op(0xb7, 6, 0, 0, 100), // r6 = 100
        op(0x7b, 10, 6, -8, 0), // [r10 - 8] = r6, on its own stack
        op(0xb7, 0, 0, 0, 1),   // r0 = 1
        EXIT_CODE,
    ];
    assert_eq!(value(&code, 0, 0), 1 + 7 + 7);
}

#[test]
fn a_kfunc_gets_five_arguments() {
    let code = [op(CALL, 0, 2, 0, 1), EXIT_CODE];
    let (returned, host, piece) = run_with(&code, 1, 2);
    assert_eq!(returned.unwrap().value, 3 + piece);
    assert_eq!(host.calls, [(Callee::Kfunc(1), [1, 2, piece, 0, 0])]);
}

fn stopped(code: &[Instruction], a: u64) -> Fault {
    run_with(code, a, 0).0.unwrap_err()
}

#[test]
fn what_a_program_does_wrong_ends_it_at_the_instruction() {
    let wild = stopped(&[op(0xbf, 0, 1, 0, 0), op(0x79, 0, 1, 0, 0), EXIT_CODE], 0xdea_dbee_f000);
    let address = Wild { address: 0xdea_dbee_f000, write: false };
    assert_eq!(wild, Fault { at: 1, why: Stop::Wild(address) });
    assert_eq!(wild.why.to_string(), "access to 0xdeadbeef000");
    assert_eq!(stopped(&[op(0x05, 0, 0, 7, 0)], 0), Fault { at: 8, why: Stop::Left });
    assert_eq!(stopped(&[op(0x05, 0, 0, -9, 0)], 0).why, Stop::Left);
    assert_eq!(stopped(&[op(CALL, 0, 1, 0, -1)], 0).why, Stop::TooDeep);
    let unknown = op(0xff, 0, 0, 0, 0);
    assert_eq!(stopped(&[unknown], 0).why, Stop::Unknown(unknown));
    let refused = Stop::Refused("no such function".to_owned());
    assert_eq!(stopped(&[op(CALL, 0, 0, 0, 999)], 0).why, refused);
}
