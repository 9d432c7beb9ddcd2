//! Checks names that users type.
//!
//! Users type names of machines, workloads, switches and settings. A message that refuses a name suggests similar known
//! names:
//!
//! ```
//! let known = ["zen3-2s", "zen4-2s", "hygon-vm"];
//! assert_eq!(roost_names::did_you_mean("zen5-2s", known), Some("did you mean zen3-2s or zen4-2s?".into()));
//! assert_eq!(roost_names::did_you_mean("power9", known), None);
//! ```

/// Largest number of names in a suggestion.
const MOST: usize = 3;

/// Longest name that is compared, in characters. A user may paste a whole file by mistake.
const LONGEST: usize = 64;

/// The names in `known` that are similar to `wrong`, nearest first.
///
/// A name is similar if it can be changed into the other by at most one edit per three letters. One edit is always
/// allowed for names of at least three letters. An edit adds, removes or replaces a letter, or exchanges two. A name
/// that begins with `wrong` is similar too, if `wrong` has at least two letters. Case does not matter. Only the names
/// with the fewest edits are returned.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wrong: String = wrong.chars().take(LONGEST).flat_map(char::to_lowercase).collect();
    let near: Vec<(usize, &str)> =
        known.into_iter().filter_map(|name| Some((edits(&wrong, name)?, name))).collect();
    let fewest = near.iter().map(|(edits, _)| *edits).min();
    let best = near.into_iter().filter(|(edits, _)| Some(*edits) == fewest);
    best.map(|(_, name)| name).take(MOST).collect()
}

/// A question with the nearest names. `None` if none is similar.
pub fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let names = nearest(wrong, known);
    let (last, others) = names.split_last()?;
    Some(match others {
        [] => format!("did you mean {last}?"),
        others => format!("did you mean {} or {last}?", others.join(", ")),
    })
}

/// A sentence on the first setting that `parts` have twice. Parts are what stands between the `+` of a scheduler's
/// name: `NAME`, `no-NAME` or `NAME=VALUE`. The same switch in the same state may be repeated. `config=FILE` is no
/// setting.
///
/// ```
/// let twice = roost_names::given_twice(["cling", "no-cling"]);
/// assert_eq!(twice.unwrap(), "'cling' is given twice, as +cling and as +no-cling; leave one of them out");
/// ```
pub fn given_twice<'a>(parts: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut given: Vec<(&str, &str)> = Vec::new();
    for part in parts {
        let (bare, value) = part.split_once('=').map_or((part, None), |(a, b)| (a, Some(b)));
        let name = bare.strip_prefix("no-").unwrap_or(bare);
        if name == "config" {
            continue;
        }
        let before = given.iter().find(|(other, _)| *other == name).map(|(_, before)| *before);
        if let Some(before) = before.filter(|before| *before != part || value.is_some()) {
            return Some(format!(
                "'{name}' is given twice, as +{before} and as +{part}; leave one of them out"
            ));
        }
        given.push((name, part));
    }
    None
}

/// Number of edits from `wrong` to `name`. `None` if they are not similar. Missing letters at the end count as one
/// edit.
fn edits(wrong: &str, name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    let allowed = name.chars().count() / 3;
    let edits = strsim::damerau_levenshtein(wrong, &name);
    if edits <= allowed {
        return Some(edits);
    }
    (wrong.chars().count() >= 2 && name.starts_with(wrong)).then_some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINES: [&str; 5] = ["zen3-2s", "zen3-2s-nps4", "zen4-2s", "hygon-vm", "1s2n4l2c"];

    #[test]
    fn a_slip_of_the_finger_finds_its_name() {
        for (wrong, meant) in [
            ("zen3-s2", "zen3-2s"),
            ("zen32s", "zen3-2s"),
            ("Zen4-2S", "zen4-2s"),
            ("hygonvm", "hygon-vm"),
            ("1s2n4l2", "1s2n4l2c"),
        ] {
            assert_eq!(nearest(wrong, MACHINES), [meant], "{wrong}");
        }
    }

    #[test]
    fn the_beginning_of_a_name_finds_all_that_begin_so() {
        assert_eq!(nearest("zen3", MACHINES), ["zen3-2s", "zen3-2s-nps4"]);
        assert_eq!(nearest("z", MACHINES), [""; 0]);
    }

    #[test]
    fn only_the_nearest_are_given_and_never_many() {
        assert_eq!(nearest("zen3-2", MACHINES), ["zen3-2s", "zen3-2s-nps4"]);
        assert_eq!(nearest("zen3-2ss", MACHINES), ["zen3-2s"]);
        let known = ["scan-1", "scan-2", "scan-3", "scan-4"];
        assert_eq!(nearest("scan-9", known), ["scan-1", "scan-2", "scan-3"]);
    }

    #[test]
    fn what_is_near_to_nothing_gets_no_suggestion() {
        for wrong in ["", "xeon", "a-name-that-nothing-has", "pu", "../captured"] {
            assert_eq!(did_you_mean(wrong, MACHINES), None, "{wrong}");
        }
        assert_eq!(did_you_mean("ab", ["xy"]), None, "two letters are too few to be near");
    }

    #[test]
    fn a_switch_both_ways_and_a_number_twice_are_found() {
        let of = |name: &str| given_twice(name.split('+').skip(1));
        for (name, parts) in [
            ("x+cling+no-cling", "'cling' is given twice, as +cling and as +no-cling;"),
            ("x+no-cling+sis-prop+cling", "'cling' is given twice, as +no-cling and as +cling;"),
            ("x+n=3+cling+n=5", "'n' is given twice, as +n=3 and as +n=5;"),
            ("x+n=3+n=3", "'n' is given twice, as +n=3 and as +n=3;"),
            ("x+no-n+n=2", "'n' is given twice, as +no-n and as +n=2;"),
        ] {
            assert!(of(name).is_some_and(|told| told.starts_with(parts)), "{name}");
        }
        for name in ["x", "x+cling+sis-prop+n=3", "x+cling+cling", "x+config=a+config=b"] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn a_file_pasted_as_a_name_costs_nothing() {
        assert_eq!(nearest(&"zen3".repeat(1_000_000), MACHINES), [""; 0]);
    }
}
