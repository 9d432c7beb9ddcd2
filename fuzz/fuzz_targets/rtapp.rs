//! Any text is either a workload or a one-line error.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = roost_workload::rtapp::parse(text, "fuzz.json") {
        assert_eq!(error.to_string().lines().count(), 1);
    }
});
