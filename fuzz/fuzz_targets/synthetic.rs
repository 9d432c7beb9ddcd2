//! Any text is either a machine or a one-line error.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = roost_machine::synthetic::parse(text) {
        assert_eq!(error.to_string().lines().count(), 1);
    }
});
