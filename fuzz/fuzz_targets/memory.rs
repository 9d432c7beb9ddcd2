//! Any text in the place of the kernel's files that the live scheduler's daemon reads.
#![no_main]

use roost_memory::parse;

libfuzzer_sys::fuzz_target!(|text: &str| {
    for mapping in parse::maps(text) {
        assert!(mapping.range.start < mapping.range.end);
    }
    let _ = (parse::numa_stat(text), parse::zoneinfo(text));
    let _ = (parse::statm(text), parse::started(text), parse::allowed(text), parse::cgroup(text));
    let _ = parse::unified(text);
});
