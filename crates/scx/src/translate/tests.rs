//! Machine code does the same as the interpreter for any program. `run_with` runs both, and compares results, memory
//! and calls.

use proptest::prelude::*;

use super::{Array, Given, Translated};
use crate::costs;
use crate::helpers::{MAP_LOOKUP, THIS_CPU};
use crate::instruction::{CALL, Instruction};
use crate::interpret::run;
use crate::interpret::tests::{ARENA, NOTHING, TestHost, run_with};

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
    }
}

#[test]
fn a_loop_is_counted_as_the_interpreter_counts() {
    // r1 = 1000; r0 += r1; r1 -= 1; if r1 != 0 goto back
    let op = |code, dst, src, offset, imm| Instruction { code, dst, src, offset, imm };
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
    let op = |code, dst, src, offset, imm| Instruction { code, dst, src, offset, imm };
    let map = 0x7fff_0000;
    for index in [0, 1, 2, -1] {
        // *(u32 *)(r10 - 4) = index; r0 = look_up(map, r10 - 4); r6 = r0
        // nothing(); r0 = this_cpu(); r0 += r6
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
            op(0x0f, 0, 6, 0, 0),
            op(0x95, 0, 0, 0, 0),
        ];
        let (mut interpreted, stack, piece) = TestHost::new();
        let array = Array { first: piece, stride: 8, of_cpu: 16, entries: 2 };
        interpreted.array = Some(array);
        let expected = run(&code, &mut interpreted, stack, 0, [0; 5]);
        assert_eq!(interpreted.calls.len(), 3);

        let arrays = [(map as u64, array)].into();
        let given = Given { arrays, nothing: [(NOTHING, 17)].into(), this_cpu: true };
        // Other processors interpret.
        let Some(translated) = Translated::new(&code, &[0], given) else { return };
        let (mut host, ..) = TestHost::new();
        assert_eq!(translated.run(&mut host, stack, 0, [0; 5]), Some(expected));
        assert_eq!(host.calls, []);
        let helpers = costs::of_helper(MAP_LOOKUP) + costs::of_helper(THIS_CPU);
        assert_eq!(host.counted, (helpers + 17, 1));
    }
}
