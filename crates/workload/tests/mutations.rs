//! Any text gives either a workload that keeps the invariants, or an error of one line.

use proptest::prelude::*;
use roost_workload::rtapp;

const EXAMPLES: [&str; 6] = [
    include_str!("data/rtapp/tutorial/example3.json"),
    include_str!("data/rtapp/tutorial/example5.json"),
    include_str!("data/rtapp/tutorial/example7.json"),
    include_str!("data/rtapp/tutorial/example8.json"),
    include_str!("data/rtapp/mp3-short.json"),
    include_str!("data/rtapp/browser-short.json"),
];

const WORDS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "-1",
    "0",
    "99999999999",
    "1.5",
    "null",
    "\"run\" : 5,",
    "\"fork\" : \"thread0\",",
    "\"lock\" : \"m\",",
    "\"unlock\" : \"m\",",
    "\"suspend\",",
    "\"barrier\" : \"b\",",
    "\"loop\" : -1,",
    "\"cpus\" : [],",
    "/*",
    "//",
    "\u{0}",
    "\u{fe}é",
];

fn check(text: &str) {
    match rtapp::parse(text, "f.json") {
        Ok(workload) => assert_eq!(workload.validate(), Ok(())),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_is_read_or_refused(text in ".*") {
        check(&text);
    }

    #[test]
    fn mutated_examples_are_read_or_refused(
        example in 0..EXAMPLES.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..WORDS.len(), 0..40_usize), 1..6),
    ) {
        let mut text: Vec<char> = EXAMPLES[example].chars().collect();
        for (at, word, removed) in edits {
            let from = at.index(text.len().max(1)).min(text.len());
            let to = (from + removed).min(text.len());
            text.splice(from..to, WORDS[word].chars());
        }
        check(&text.into_iter().collect::<String>());
    }
}
