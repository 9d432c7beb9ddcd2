//! Rules that work, and rules that are refused.

use std::path::PathBuf;

use roost_policy::sis_util::nr_idle_scan;
use roost_policy::{llc_imbalance, numa_imbalance};
use tempfile::TempDir;

use super::*;

/// A folder that contains a rule.
struct Given {
    folder: TempDir,
}

impl Given {
    fn file(&self) -> PathBuf {
        self.folder.path().join("mine.h")
    }

    fn load(&self) -> Result<OwnRule, RuleError> {
        load(self.file().to_str().unwrap())
    }

    /// The error line, without the folder.
    fn refused(&self) -> String {
        let told = self.load().unwrap_err().to_string();
        assert!(!told.contains('\n'), "{told}");
        told.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

fn rule(text: &str) -> Given {
    let given = Given { folder: tempfile::tempdir().unwrap() };
    std::fs::write(given.file(), text).unwrap();
    given
}

const TWICE: &str = "static __always_inline u32 roost_nr_idle_scan(u64 sum_util, u32 llc_weight, u32 imbalance_pct)\n\
                     {\n\treturn 2 * llc_weight + sum_util % 2 + imbalance_pct % 2;\n}\n";

#[test]
fn a_rule_replaces_its_function_and_no_other_while_it_is_in_force() {
    let own = rule(TWICE).load().unwrap();
    assert_eq!(own.replaces, ["roost_nr_idle_scan"]);
    let usual = (nr_idle_scan(0, 16, 117), llc_imbalance::allowed(16));
    assert_eq!(usual, (16, 4));
    {
        let _in_force = own.rules.enforce();
        assert_eq!((nr_idle_scan(3, 16, 117), llc_imbalance::allowed(16)), (34, 4));
    }
    assert_eq!((nr_idle_scan(0, 16, 117), llc_imbalance::allowed(16)), usual);
}

/// A replaced function that is only called by other functions of its header, which have symbols.
#[test]
fn calls_inside_the_headers_reach_the_rule() {
    let text = "bool roost_numa_over_limit(u32 rule, u32 running, u32 weight, u32 imb_numa_nr)\n{\n\
                \treturn running > 100;\n}\n";
    let own = rule(text).load().unwrap();
    let placed = |running| {
        numa_imbalance::adjust_placement(numa_imbalance::Rule::Merged60, 2, running, 48, 6)
    };
    assert_eq!((placed(50), placed(100)), (2, 2), "6 tasks at most");
    let _in_force = own.rules.enforce();
    assert_eq!((placed(50), placed(100)), (0, 2));
}

/// A rule may use helpers, constants, types and functions of several headers.
#[test]
fn a_rule_may_use_all_headers_and_helpers_of_its_own() {
    let text = "#define FEW 16\nstatic const u32 factor[2] = { 1, 2 };\n\
                static u32 twice(u32 cpus) { return factor[1] * cpus; }\n\
                u32 roost_nr_idle_scan(u64 sum_util, u32 llc_weight, u32 imbalance_pct)\n{\n\
                \tstruct roost_consolidate here = { .weight = 1 };\n\
                \treturn llc_weight <= FEW ? twice(llc_weight) : here.weight;\n}\n\
                u32 roost_llc_imbalance_allowed(u32 child_span)\n{\n\treturn roost_numa_max(child_span, 7);\n}\n";
    let own = rule(text).load().unwrap();
    assert_eq!(own.replaces, ["roost_nr_idle_scan", "roost_llc_imbalance_allowed"]);
    let _in_force = own.rules.enforce();
    assert_eq!((nr_idle_scan(0, 16, 117), nr_idle_scan(0, 17, 117)), (32, 1));
    assert_eq!(llc_imbalance::adjust(7, 16, 4), 0, "up to 7 are left alone");
}

#[test]
fn the_same_text_is_the_same_object_and_another_is_not() {
    let [one, same, other] =
        [TWICE, TWICE, &TWICE.replace("2 *", "3 *")].map(|text| rule(text).load().unwrap().sha256);
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[test]
fn what_is_no_rule_is_told_in_one_line() {
    let body = |body: &str| TWICE.replace("return 2", &format!("{body}\n\treturn 2"));
    let other = |from: &str, to: &str| TWICE.replace(from, to);
    let cases: [(String, &str); 14] = [
        (String::new(), "mine.h: it defines no function of the policy; `roost policy list`"),
        ("u32 mine(void) { return 1; }\n".to_owned(), "defines no function of the policy"),
        (
            other("roost_nr_idle_scan", "roost_nr_idle_scann"),
            "mine.h:1: the policy has no roost_nr_idle_scann; did you mean roost_nr_idle_scan?",
        ),
        (TWICE.repeat(2), "mine.h:5: roost_nr_idle_scan is defined twice"),
        (other("u64 sum_util", "u32 sum_util"), "conflicting types for 'roost_nr_idle_scan'"),
        (other("u32 roost_nr", "u64 roost_nr"), "conflicting types for 'roost_nr_idle_scan'"),
        (other(", u32 imbalance_pct)", ")"), "conflicting types"),
        (other("llc_weight +", "llc_wieght +"), "'llc_wieght' undeclared"),
        (other("% 2;", "% 2"), "mine.h:3:"),
        (other("return", "float x = 0.5; return x +"), "mine.h:3: no floats"),
        (body("static u32 calls;"), "mine.h:3: this variable keeps its value"),
        (format!("u32 calls;\n{TWICE}"), "mine.h:1: this variable keeps its value"),
        (body("helper();"), "implicit declaration of function 'helper'"),
        (format!("#include \"gone.h\"\n{TWICE}"), "mine.h:1:10: gone.h"),
    ];
    for (text, wanted) in cases {
        let told = rule(&text).refused();
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    let gone = load("no/such/rule.h").unwrap_err().to_string();
    assert!(gone.contains("no/such/rule.h: cannot be read") && gone.contains("roost policy new"));
}
