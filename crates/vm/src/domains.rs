//! Compares the scheduling domains of a guest with those that the model predicts.

use std::fmt::Write;

use roost_fair::{DomainRow, Features, domain_rows, versions};

use crate::error::VmError;
use crate::survey::{SeenDomain, Survey};

/// One property of one domain of one CPU, according to the guest's kernel and to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The CPU.
    pub cpu: usize,
    /// The domain's number, counted from 0 at the bottom.
    pub domain: usize,
    /// The property: `level`, `span`, `groups`, `flags`, `imbalance_pct`, ...
    pub name: &'static str,
    /// The guest's value. Empty if the guest has no such domain.
    pub guest: String,
    /// The model's value. Empty if the model has no such domain.
    pub model: String,
}

impl Property {
    /// Whether both values are equal.
    pub fn agrees(&self) -> bool {
        self.guest == self.model
    }
}

/// The comparison of all domains of all CPUs.
#[derive(Clone, Debug)]
pub struct DomainComparison {
    /// The guest's kernel.
    pub release: String,
    /// The model's version of the kernel.
    pub version: &'static str,
    /// Every property of every domain.
    pub properties: Vec<Property>,
}

/// Compares the domains of a guest with those that the model of its kernel predicts for its machine.
pub fn compare(survey: &Survey) -> Result<DomainComparison, VmError> {
    let version = model_version(&survey.release);
    let features = Features::parse(&format!("fair@{version}"))
        .map_err(|error| VmError::Usage(error.to_string()))?;
    let mut properties = Vec::new();
    for cpu in 0..survey.machine.nr_cpus() {
        let predicted = domain_rows(&survey.machine, &features, cpu);
        let seen = survey.domains.get(cpu).map(Vec::as_slice).unwrap_or_default();
        for domain in 0..predicted.len().max(seen.len()) {
            let rows = pairs(seen.get(domain), predicted.get(domain));
            properties.extend(rows.into_iter().map(|(name, guest, model)| Property {
                cpu,
                domain,
                name,
                guest,
                model,
            }));
        }
    }
    Ok(DomainComparison { release: survey.release.clone(), version, properties })
}

/// The newest version of the model that is not newer than `release`. If all are newer, the oldest.
fn model_version(release: &str) -> &'static str {
    let key = |version: &str| {
        let mut numbers = crate::kernel::version_key(version);
        numbers.truncate(2);
        numbers
    };
    let known = versions();
    let not_newer = known.iter().rev().find(|version| key(version) <= key(release));
    not_newer.or(known.first()).copied().unwrap_or_default()
}

/// The properties of a domain: name, guest's value, model's value.
fn pairs(
    seen: Option<&SeenDomain>,
    predicted: Option<&DomainRow>,
) -> Vec<(&'static str, String, String)> {
    let guest = |value: fn(&SeenDomain) -> String| seen.map(value).unwrap_or_default();
    let model = |value: fn(&DomainRow) -> String| predicted.map(value).unwrap_or_default();
    let number = |name: &str| {
        seen.and_then(|seen| seen.numbers.get(name)).map(u64::to_string).unwrap_or_default()
    };
    let mut rows = vec![
        ("level", guest(|seen| seen.level.clone()), model(|row| row.level.to_owned())),
        ("span", guest(|seen| seen.span.clone()), model(|row| row.span.clone())),
    ];
    if seen.is_none_or(|seen| !seen.groups.is_empty()) {
        let groups = guest(|seen| seen.groups.join(" | "));
        rows.push(("groups", groups, model(|row| row.groups.join(" | "))));
    }
    let flags = guest(|seen| seen.flags.join(" "));
    rows.push((
        "flags",
        flags,
        model(|row| {
            let mut flags = row.flags.clone();
            flags.sort_unstable();
            flags.join(" ")
        }),
    ));
    rows.extend([
        ("imbalance_pct", number("imbalance_pct"), model(|row| row.imbalance_pct.to_string())),
        ("min_interval", number("min_interval"), model(|row| row.min_interval_ms.to_string())),
        ("max_interval", number("max_interval"), model(|row| row.max_interval_ms.to_string())),
        ("busy_factor", number("busy_factor"), model(|row| row.busy_factor.to_string())),
        (
            "cache_nice_tries",
            number("cache_nice_tries"),
            model(|row| row.cache_nice_tries.to_string()),
        ),
    ]);
    rows
}

impl DomainComparison {
    /// Whether everything agrees, and there was something to compare.
    pub fn agrees(&self) -> bool {
        !self.properties.is_empty() && self.differences().next().is_none()
    }

    /// The properties that differ.
    pub fn differences(&self) -> impl Iterator<Item = &Property> {
        self.properties.iter().filter(|property| !property.agrees())
    }

    /// The domains of one CPU as a table, and a summary of all CPUs.
    pub fn text(&self, cpu: usize) -> String {
        let own: Vec<&Property> =
            self.properties.iter().filter(|property| property.cpu == cpu).collect();
        let mut out = format!("Scheduling domains of CPU {cpu}\n");
        let (guest, model) = (format!("Linux {}", self.release), format!("fair@{}", self.version));
        let width = own.iter().map(|row| row.guest.len()).chain([guest.len()]).max().unwrap_or(0);
        let _ = writeln!(out, "   {:<17} {guest:<width$}    {model}", "");
        for row in own {
            if row.name == "level" {
                let _ = writeln!(out, "domain {}", row.domain);
            }
            let sign = if row.agrees() { "=" } else { "!=" };
            let _ =
                writeln!(out, "   {:<17} {:<width$} {sign:>2} {}", row.name, row.guest, row.model);
        }
        out += &self.summary();
        out
    }

    /// One line about all CPUs, and the first differences.
    pub fn summary(&self) -> String {
        let differences = self.differences().count();
        if self.agrees() {
            let domains = self.properties.iter().filter(|row| row.name == "level").count();
            return format!(
                "The guest's kernel and the model agree on all {domains} domains of all CPUs.\n"
            );
        }
        let mut out =
            format!("The guest's kernel and the model disagree in {differences} places:\n");
        for row in self.differences().take(20) {
            let Property { cpu, domain, name, guest, model } = row;
            let _ = writeln!(
                out,
                "  CPU {cpu} domain {domain} {name}: guest \"{guest}\", model \"{model}\""
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_compared_with_the_model_of_its_version() {
        assert_eq!(model_version("7.2.13+deb14-cloud-amd64"), "7.2");
        assert_eq!(model_version("7.3.4"), "7.2");
        assert_eq!(model_version("6.19.14"), "6.15");
        assert_eq!(model_version("3.2"), versions()[0]);
    }

    /// A survey in which the guest agrees with the model.
    fn survey() -> Survey {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let features = Features::parse("fair@7.2").unwrap();
        let seen = |row: DomainRow| {
            let mut flags: Vec<String> = row.flags.iter().map(|&flag| flag.to_owned()).collect();
            flags.sort();
            let numbers = [
                ("imbalance_pct", row.imbalance_pct),
                ("min_interval", row.min_interval_ms),
                ("max_interval", row.max_interval_ms),
                ("busy_factor", row.busy_factor),
                ("cache_nice_tries", row.cache_nice_tries),
            ];
            SeenDomain {
                level: row.level.to_owned(),
                span: row.span,
                flags,
                groups: row.groups,
                numbers: numbers.map(|(name, n)| (name.to_owned(), u64::from(n))).into(),
            }
        };
        let domains = (0..machine.nr_cpus())
            .map(|cpu| domain_rows(&machine, &features, cpu).into_iter().map(seen).collect());
        Survey {
            release: "7.2.13".into(),
            domains: domains.collect(),
            machine,
            settings: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn a_difference_is_found_wherever_it_is() {
        let mut survey = survey();
        assert!(compare(&survey).unwrap().agrees());
        survey.domains[7][1].flags.pop();
        let comparison = compare(&survey).unwrap();
        let places: Vec<_> =
            comparison.differences().map(|row| (row.cpu, row.domain, row.name)).collect();
        assert_eq!(places, [(7, 1, "flags")]);
        assert!(comparison.text(0).contains("disagree in 1 places"));
    }

    #[test]
    fn a_missing_domain_is_a_difference() {
        let mut survey = survey();
        survey.domains[0].pop();
        assert!(!compare(&survey).unwrap().agrees());
        survey.domains.clear();
        assert!(!compare(&survey).unwrap().agrees());
    }
}
