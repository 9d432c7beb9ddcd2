//! Schedulers of a real kernel, as named on the command line.
//!
//! | name | what it is |
//! |---|---|
//! | `fair@7.2` | the fair class of that kernel |
//! | `fair` | the fair class of the kernel that runs |
//! | `fair@7.2+no-sis-util+base_slice_ns=3000000` | with settings of `/sys/kernel/debug/sched` |
//! | `roost`, `roost@7.2+no-sis-util+llc-imbalance=2` | the live scheduler, on that kernel, with its settings |
//! | `roost+config=FILE` | the same with those of a settings file |
//! | `scx_rusty`, `./scx_mine --verbose` | a sched_ext scheduler: a program, with its arguments |

use std::path::{Path, PathBuf};

use roost_settings::Settings;

use crate::error::RealError;
use crate::knobs::Setting;
use crate::live;

/// A scheduler of a real kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealScheduler {
    /// The name that the user gave.
    pub name: String,
    /// The kernel's version. `None`: the kernel that runs.
    pub version: Option<String>,
    /// Settings of the kernel.
    pub settings: Vec<Setting>,
    /// The sched_ext scheduler, if it is one.
    pub program: Option<Program>,
}

/// The program of a sched_ext scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Whether it serves its counters over HTTP while it is measured.
    pub serves_counters: bool,
}

/// Where a live scheduler serves its counters while it is measured: address and port.
pub(crate) const COUNTERS: (&str, u16) = ("127.0.0.1", 9955);

impl Program {
    /// Whether it is the loader of roost's own scheduler.
    fn is_live(&self) -> bool {
        self.path.file_name().is_some_and(|name| name == live::PROGRAM)
    }
}

impl RealScheduler {
    /// Parses a scheduler's name. A program is searched in `$PATH`, unless its name contains a `/`.
    pub fn parse(name: &str) -> Result<Self, RealError> {
        let after = |kind: &str| {
            name.strip_prefix(kind).filter(|rest| rest.is_empty() || rest.starts_with(['@', '+']))
        };
        match (after("fair"), after("roost")) {
            (Some(rest), _) => Self::fair(name, rest),
            (_, Some(rest)) if rest.contains("+policy=") => Err(RealError::Usage(format!(
                "{name}: the live scheduler takes a rule when it is built: make live POLICY=FILE; then ask for roost \
                 without +policy"
            ))),
            (_, Some(rest)) => Self::live(name, rest, live::find()?),
            (None, None) => Self::program(name),
        }
    }

    /// The same scheduler as the simulation of a workload that uses no memory has it: the live scheduler without its
    /// daemon. Its own counters are then read at the beginning and the end of a window. For others this changes
    /// nothing.
    #[must_use]
    pub fn as_simulated(mut self) -> Self {
        if let Some(program) = self.program.as_mut().filter(|program| program.is_live()) {
            let (address, port) = COUNTERS;
            let served = format!("{address}:{port}");
            let further = ["--no-memory", "--metrics", &served].map(str::to_owned);
            program.arguments.extend(further);
            program.serves_counters = true;
        }
        self
    }

    /// The differences from the unchanged kernel: the settings after `+` on the command line, or the arguments of the
    /// program.
    pub fn switches(&self) -> Vec<String> {
        let arguments = self.program.iter().flat_map(|program| program.arguments.clone());
        self.settings.iter().map(ToString::to_string).chain(arguments).collect()
    }

    fn fair(name: &str, rest: &str) -> Result<Self, RealError> {
        let (version, parts) = version_and_parts(name, "fair", rest)?;
        let settings = parts.map(|part| Setting::parse(name, part)).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), version, settings, program: None })
    }

    /// The live scheduler. Settings after `+` become arguments of `scx_roost`.
    fn live(name: &str, rest: &str, path: PathBuf) -> Result<Self, RealError> {
        let (version, parts) = version_and_parts(name, "roost", rest)?;
        let mut settings = Settings::default();
        for part in parts {
            settings.apply(name, part)?;
        }
        let program = Some(Program { path, arguments: settings.options(), serves_counters: false });
        Ok(Self { name: name.to_owned(), version, settings: Vec::new(), program })
    }

    fn program(name: &str) -> Result<Self, RealError> {
        let mut words = name.split_whitespace().map(str::to_owned);
        let first = words.next().unwrap_or_default();
        let path = find(&first).ok_or_else(|| {
            let problem = match first.contains('/') {
                true => format!("the program {first} does not exist"),
                false => format!("it is not fair@VERSION, and $PATH has no program {first}"),
            };
            let remedy = "build the sched_ext scheduler (cargo install) or give its path";
            RealError::Usage(format!("{name}: {problem}; {remedy}"))
        })?;
        let program = Program { path, arguments: words.collect(), serves_counters: false };
        Ok(Self {
            name: name.to_owned(),
            version: None,
            settings: Vec::new(),
            program: Some(program),
        })
    }
}

/// The version after `@`, if there is one, and the parts between the following `+`.
fn version_and_parts<'a>(
    name: &str,
    kind: &str,
    rest: &'a str,
) -> Result<(Option<String>, std::str::Split<'a, char>), RealError> {
    let mut parts = rest.split('+');
    if let Some(twice) = roost_names::given_twice(parts.clone().skip(1)) {
        return Err(RealError::Usage(format!("{name}: {twice}")));
    }
    match parts.next().unwrap_or_default().strip_prefix('@') {
        Some("") => {
            Err(RealError::Usage(format!("{name}: a version belongs after @, as in {kind}@7.2")))
        }
        version => Ok((version.map(str::to_owned), parts)),
    }
}

/// The path of the program `name`: in `$PATH`, or itself if it contains a `/`.
fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| Path::is_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fair_class_has_a_version_and_settings() {
        let scheduler = RealScheduler::parse("fair@7.2+no-sis-util+base_slice_ns=3000000").unwrap();
        assert_eq!(scheduler.version.as_deref(), Some("7.2"));
        assert_eq!(scheduler.switches(), ["no-sis-util", "base_slice_ns=3000000"]);
        assert_eq!(scheduler.program, None);
        assert_eq!(RealScheduler::parse("fair").unwrap().version, None);
    }

    #[test]
    fn the_live_scheduler_has_a_version_and_settings() {
        let parse = |name: &str| {
            RealScheduler::live(name, name.strip_prefix("roost").unwrap(), "/bin/scx_roost".into())
        };
        let scheduler = parse("roost@7.2+no-sis-util+llc-imbalance=2").unwrap();
        assert_eq!(scheduler.version.as_deref(), Some("7.2"));
        assert_eq!(scheduler.switches(), ["--llc-imbalance", "2", "--no-sis-util"]);
        assert!(parse("roost").unwrap().program.unwrap().arguments.is_empty());
        let simulated =
            RealScheduler::live("roost", "", "/bin/scx_roost".into()).unwrap().as_simulated();
        let words = simulated.switches().join(" ");
        assert_eq!(words, "--no-memory --metrics 127.0.0.1:9955");
        let other = RealScheduler::parse("/bin/sh -c true").unwrap();
        assert_eq!(other.clone().as_simulated(), other, "only the live scheduler has a daemon");
        let error = parse("roost+no-such-thing").unwrap_err().to_string();
        assert!(error.contains("no-such-thing") && error.contains("sis-util"), "{error}");
        let twice = parse("roost+slice-us=1000+slice-us=2000").unwrap_err().to_string();
        assert!(twice.contains("'slice-us' is given twice"), "{twice}");
        assert!(parse("roost@").unwrap_err().to_string().contains("roost@7.2"));
    }

    #[test]
    fn anything_else_is_a_program_with_arguments() {
        let scheduler = RealScheduler::parse("/bin/sh -c true").unwrap();
        let program = scheduler.program.unwrap();
        assert_eq!(program.path, Path::new("/bin/sh"));
        assert_eq!(program.arguments, ["-c", "true"]);
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        let error = |name| RealScheduler::parse(name).unwrap_err().to_string();
        assert!(error("scx_nobody_has_this").contains("no program scx_nobody_has_this"));
        assert!(error("fair@").contains("fair@7.2"));
        assert!(error("fairy").contains("no program fairy"));
        assert!(error("fair@7.2+").contains("fair@7.2+"));
        assert!(error("").contains("$PATH"));
        assert!(error("fair@7.2+no-sis-util+sis-util").contains("'sis-util' is given twice"));
    }
}
