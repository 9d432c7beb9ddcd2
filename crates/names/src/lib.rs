//! Names that are nearly right: what was probably meant.
//!
//! Machines, workloads, switches and settings have names that people type. A message that
//! refuses one says which known names are near:
//!
//! ```
//! let known = ["zen3-2s", "zen4-2s", "hygon-vm"];
//! assert_eq!(roost_names::did_you_mean("zen5-2s", known), Some("did you mean zen3-2s or zen4-2s?".into()));
//! assert_eq!(roost_names::did_you_mean("power9", known), None);
//! ```

/// The most names that one message suggests.
const MOST: usize = 3;

/// The longest name that is compared, characters: what is pasted by mistake can be a whole file.
const LONGEST: usize = 64;

/// The names among `known` that `wrong` was probably meant to be, nearest first.
///
/// A name is near if one edit (a letter more, less, another, or two exchanged) for every three of its letters makes one
/// from the other, and at least one edit counts as near from three letters on. A name that continues `wrong` (two letters
/// or more) is near too. Case does not matter. Of the near ones only those with the fewest edits are given.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wrong: String = wrong.chars().take(LONGEST).flat_map(char::to_lowercase).collect();
    let near: Vec<(usize, &str)> =
        known.into_iter().filter_map(|name| Some((edits(&wrong, name)?, name))).collect();
    let fewest = near.iter().map(|(edits, _)| *edits).min();
    let best = near.into_iter().filter(|(edits, _)| Some(*edits) == fewest);
    best.map(|(_, name)| name).take(MOST).collect()
}

/// A question that names the nearest names; `None` if none is near.
pub fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let names = nearest(wrong, known);
    let (last, others) = names.split_last()?;
    Some(match others {
        [] => format!("did you mean {last}?"),
        others => format!("did you mean {} or {last}?", others.join(", ")),
    })
}

/// How many edits make `name` from `wrong`; `None` if it is not near. Letters that are still to be typed are one edit.
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
    fn a_file_pasted_as_a_name_costs_nothing() {
        assert_eq!(nearest(&"zen3".repeat(1_000_000), MACHINES), [""; 0]);
    }
}
