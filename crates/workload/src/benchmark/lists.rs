//! Lists of values: `hackbench:groups=1,4,16` names three workloads.

use crate::WorkloadError;

/// The most workloads that one argument may name.
const MOST: usize = 1_000;

/// A parameter with its value, or a word that stands alone.
struct Piece<'a> {
    /// The text before `=`. `None`: the word is a choice.
    key: Option<&'a str>,
    values: Vec<&'a str>,
}

/// The workloads that `arg` names: one for each combination of the values in its lists. The last list varies fastest.
/// Commas separate both parameters and values: a number without `=` continues the previous list, and any other word
/// without `=` is a choice. The path of a file stands for itself.
///
/// ```
/// let all = roost_workload::expand("hackbench:groups=1,4,pipe,loops=50")?;
/// assert_eq!(all, ["hackbench:groups=1,pipe,loops=50", "hackbench:groups=4,pipe,loops=50"]);
/// # Ok::<(), roost_workload::WorkloadError>(())
/// ```
///
/// # Errors
/// If a list has a value twice, a number follows no list, or there are more than 1,000 combinations.
pub fn expand(arg: &str) -> Result<Vec<String>, WorkloadError> {
    let Some((name, settings)) = arg.rsplit_once(':').filter(|_| !arg.ends_with(".json")) else {
        return Ok(vec![arg.to_owned()]);
    };
    let pieces = pieces(arg, settings)?;
    let mut all = vec![String::new()];
    for piece in &pieces {
        if all.len() * piece.values.len() > MOST {
            let problem = format!("its lists make more than {MOST} workloads");
            return Err(bad(arg, settings, &problem, "shorten a list, or use several commands"));
        }
        let longer = |before: &String| {
            let separator = if before.is_empty() { "" } else { "," };
            piece.texts().map(move |text| format!("{before}{separator}{text}")).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    Ok(all.into_iter().map(|settings| format!("{name}:{settings}")).collect())
}

impl Piece<'_> {
    /// The parameter with each of its values, as text.
    fn texts(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(|value| match self.key {
            Some(key) => format!("{key}={value}"),
            None => (*value).to_owned(),
        })
    }
}

fn pieces<'a>(arg: &str, settings: &'a str) -> Result<Vec<Piece<'a>>, WorkloadError> {
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let mut pieces: Vec<Piece<'a>> = Vec::new();
    for text in settings.split(',').filter(|text| !text.is_empty()) {
        match (text.split_once('='), pieces.last_mut()) {
            (Some((key, value)), _) => pieces.push(Piece { key: Some(key), values: vec![value] }),
            (None, Some(Piece { key: Some(key), values })) if is_number(text) => {
                if values.contains(&text) {
                    let problem = format!("{text} is in its list twice");
                    return Err(bad(arg, key, &problem, "give it once"));
                }
                values.push(text);
            }
            (None, _) if is_number(text) => {
                let problem = "a number that follows no list";
                return Err(bad(arg, text, problem, "write parameter=number first"));
            }
            (None, _) => pieces.push(Piece { key: None, values: vec![text] }),
        }
    }
    Ok(pieces)
}

fn bad(arg: &str, parameter: &str, problem: &str, remedy: &str) -> WorkloadError {
    super::bad_value(arg, parameter, problem, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(arg: &str) -> Vec<String> {
        expand(arg).unwrap()
    }

    #[test]
    fn what_has_no_list_names_itself() {
        for arg in [
            "hackbench",
            "hackbench:groups=4,loops=50",
            "hackbench:pipe,threads,groups=2",
            "hackbench:mode=pipe",
            "a,1/load:1,2.json",
            "rt-app:schbench:workers=4",
            "no-such-thing:x",
            "hackbench:groups=1,groups=2",
        ] {
            assert_eq!(all(arg), [arg], "what is wrong with it, reading it tells");
        }
    }

    #[test]
    fn numbers_continue_the_list_before_them() {
        assert_eq!(
            all("hackbench:groups=1,4,16"),
            ["hackbench:groups=1", "hackbench:groups=4", "hackbench:groups=16"]
        );
        assert_eq!(
            all("hackbench:groups=1,4,16,loops=50"),
            [1, 4, 16].map(|groups| format!("hackbench:groups={groups},loops=50"))
        );
        assert_eq!(
            all("rt-app:schbench:workers=4,8"),
            ["rt-app:schbench:workers=4", "rt-app:schbench:workers=8"]
        );
    }

    #[test]
    fn the_last_list_counts_fastest() {
        let pairs = [(1, 5), (1, 6), (2, 5), (2, 6)];
        assert_eq!(
            all("hackbench:groups=1,2,pipe,loops=5,6"),
            pairs.map(|(groups, loops)| format!("hackbench:groups={groups},pipe,loops={loops}"))
        );
    }

    #[test]
    fn a_number_without_a_list_and_a_value_twice_are_refused() {
        let error = |arg| expand(arg).unwrap_err().to_string();
        assert!(error("hackbench:4").contains("4: a number that follows no list"));
        assert!(error("hackbench:pipe,4").contains("write parameter=number first"));
        assert!(error("hackbench:groups=4,8,4").contains("groups: 4 is in its list twice"));
        let values = |name: &str| {
            let numbers = (1..=40).map(|number: u32| number.to_string()).collect::<Vec<_>>();
            format!("{name}={}", numbers.join(","))
        };
        let many = format!("hackbench:{},{}", values("groups"), values("loops"));
        assert!(error(&many).contains("more than 1000 workloads"));
    }
}
