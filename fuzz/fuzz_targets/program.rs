//! The live scheduler's program with changed instructions and maps runs, or ends the run in one line, although no
//! verifier has checked it. Machine code does what the interpreter does.
#![no_main]

use std::sync::{Arc, LazyLock};

use roost_engine::Control;
use roost_machine::Machine;
use roost_scx::{KernelTypes, Object, Program, Scx};
use roost_workload::Workload;

static OBJECT: LazyLock<Object> = LazyLock::new(|| Object::roost().unwrap());
static KERNEL: LazyLock<Arc<KernelTypes>> =
    LazyLock::new(|| Arc::new(KernelTypes::shipped().unwrap()));
static MACHINE: LazyLock<Arc<Machine>> =
    LazyLock::new(|| Arc::new(roost_machine::resolve("2n2l4c").unwrap()));
static WORKLOAD: LazyLock<Workload> =
    LazyLock::new(|| roost_workload::resolve("hackbench:groups=1", Some(3_000_000)).unwrap());

/// Changes an instruction or a map.
fn change(object: &mut Object, [what, at, more, a, b, c]: [u8; 6]) {
    let at = usize::from(u16::from_le_bytes([at, more]));
    if what % 8 == 7 {
        let at = at % object.maps.len();
        let map = &mut object.maps[at];
        let place = [&mut map.key_size, &mut map.value_size, &mut map.max_entries];
        *place.into_iter().nth(usize::from(a % 3)).unwrap() = u32::from_le_bytes([b, c, 0, 0]);
        return;
    }
    let at = at % object.code.len();
    let changed = &mut object.code[at];
    match what % 8 {
        0 => changed.dst = a % 11,
        1 => changed.src = a % 11,
        2 | 3 => changed.offset = i16::from_le_bytes([a, b]),
        4 | 5 => changed.imm = i32::from_le_bytes([a, b, c, 0]),
        _ => changed.code = a,
    }
}

/// How a run ends in which so many instructions are interpreted before machine code is made.
fn end(object: &Object, interpreted: u64) -> Result<String, String> {
    let made = Program::new(object.clone(), KERNEL.clone());
    if let Ok(program) = &made {
        // Most changed programs would be refused for their pointers.
        let _ = program.check_operations();
    }
    let made = made.map(Program::without_check_of_pointers);
    let scx = made.and_then(|program| Scx::new(&MACHINE, &program, 4_000_000));
    let scx = scx.map_err(|error| error.to_string())?.interpreting(interpreted);
    let run = roost_engine::run(&MACHINE, &WORKLOAD, scx, Control::new(1));
    run.map(|outcome| format!("{outcome:?}")).map_err(|error| error.to_string())
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut object = OBJECT.clone();
    for six in bytes.as_chunks::<6>().0.iter().take(8) {
        change(&mut object, *six);
    }
    let interpreted = end(&object, u64::MAX);
    if let Err(error) = &interpreted {
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert_eq!(end(&object, 1), interpreted);
});
