//! Any bytes are either a sched_ext object, which can be described, or a one-line error.
#![no_main]

use std::sync::{Arc, LazyLock};

use roost_scx::{KernelTypes, Object, Program, describe};

static KERNEL: LazyLock<Arc<KernelTypes>> =
    LazyLock::new(|| Arc::new(KernelTypes::shipped().unwrap()));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match Object::parse(bytes).and_then(|object| Program::new(object, KERNEL.clone())) {
        Ok(program) => _ = describe(&program),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
});
