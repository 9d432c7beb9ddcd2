//! Any bytes are either types, of which everything can be asked, or a one-line error.
#![no_main]

use roost_scx::KernelTypes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match KernelTypes::parse("fuzzed", bytes) {
        Ok(kernel) => {
            for id in 0..kernel.btf.types().len() as u32 {
                let _ = (kernel.btf.size(id), kernel.btf.written(id), kernel.btf.member(id, "x"));
            }
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
});
