//! Any bytes are either a sched_ext object, which can be described, or a one-line error.
#![no_main]

use std::sync::LazyLock;

use roost_scx::{KernelTypes, Object, describe};

static KERNEL: LazyLock<KernelTypes> = LazyLock::new(|| KernelTypes::shipped().unwrap());

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let described = Object::parse(bytes).and_then(|object| describe(&object, &KERNEL));
    if let Err(error) = described {
        assert_eq!(error.to_string().lines().count(), 1);
    }
});
