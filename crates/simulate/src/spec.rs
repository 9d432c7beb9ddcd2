//! The only table of schedulers by name.

use std::path::Path;
use std::sync::Arc;

use roost_fair::{FeatureError, Features};
use roost_layout::{Entry, Layout, Setup};
use roost_machine::Machine;
use roost_rule::{OwnRule, RuleError};
use roost_scx::{KernelTypes, Object, Program, ScxError};
use roost_settings::{Settings, SettingsError, Value};

/// A scheduler, as named on the command line.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a comparison has a handful of them")]
pub enum SchedulerSpec {
    /// The kernel's fair class.
    Fair {
        /// Its version, and the differences from it.
        features: Features,
        /// The user's rule, if it replaces functions of the policy.
        rule: Option<Arc<OwnRule>>,
    },
    /// A sched_ext program.
    Scx(ScxSpec),
}

/// A sched_ext program with settings.
#[derive(Clone, Debug)]
pub struct ScxSpec {
    /// The program, which all runs share.
    program: Arc<Program>,
    /// For roost's own program: the settings from which a loader would set it up for a machine.
    roost: Option<Settings>,
    /// The settings, as written on the command line after `+`.
    pub settings: Vec<String>,
    /// Period of the tick in the kernel that it runs on, in ns.
    pub tick_ns: u64,
}

/// Why a scheduler's name is wrong.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The fair class has no such version, switch or number.
    #[error(transparent)]
    Fair(#[from] FeatureError),
    /// A user's rule is wrong or cannot be compiled.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// There are two rules.
    #[error("{name}: +policy=FILE is given twice; one file may replace several functions")]
    TwoRules {
        /// The scheduler's name.
        name: String,
    },
    /// A rule was given to a program that is compiled already.
    #[error(
        "{name}: the live scheduler takes a rule when it is built: make live POLICY=FILE; in the simulation the fair \
         class takes one: fair@7.2+policy=FILE"
    )]
    LivePolicy {
        /// What was given.
        name: String,
    },
    /// A sched_ext program could not be read, or needs something that the simulation does not have.
    #[error("{file}: {why}")]
    Scx {
        /// The object's file.
        file: String,
        /// The problem.
        why: String,
    },
    /// A settings file could not be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The setting exists only for roost.
    #[error("{name}: only roost has {setting}: roost+{part}")]
    LiveSetting {
        /// The scheduler's name.
        name: String,
        /// The wrong part of the name.
        part: String,
        /// The setting.
        setting: &'static str,
    },
    /// The name is that of the kernel that runs here.
    #[error("{0}; fair alone is the kernel that runs here: add --on host")]
    KernelHere(FeatureError),
    /// The simulation has no scheduler with this name.
    #[error(
        "{0}; a sched_ext program is scx:FILE.bpf.o, or runs on a real kernel: add --on vm or --on host"
    )]
    NoModel(FeatureError),
}

/// Settings whose switch in the fair class has another name. The live scheduler has the rule that was merged, not the
/// one that was published first.
const OTHER_NAMES: [(&str, &str); 1] = [("numa-imbalance", "numa-imbalance-merged")];

impl SchedulerSpec {
    /// The kernel version that it models, such as `5.19`.
    pub fn kernel(&self) -> &'static str {
        match self {
            Self::Fair { features, .. } => features.version(),
            Self::Scx(_) => SCX_KERNEL,
        }
    }

    /// Whether it is a sched_ext program, which the simulation executes.
    pub fn is_program(&self) -> bool {
        matches!(self, Self::Scx(_))
    }

    /// Switches and numbers that differ from the version, as written on the command line after `+`.
    pub fn switches(&self) -> Vec<String> {
        match self {
            Self::Fair { features, rule } => {
                let differences = features.differs_from_version();
                let rule = rule.iter().map(|rule| policy_shown(rule));
                differences.iter().map(ToString::to_string).chain(rule).collect()
            }
            Self::Scx(scx) => scx.settings.clone(),
        }
    }

    /// Parses a name such as `fair@5.19+sis-util+config=roost.toml`.
    ///
    /// # Errors
    /// If the simulation has no such scheduler, or a settings file cannot be read.
    pub fn parse(name: &str) -> Result<Self, SpecError> {
        Ok(Self::parse_noted(name)?.0)
    }

    /// As [`parse`](Self::parse), with notes for the user about the settings files.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_noted(name: &str) -> Result<(Self, Vec<String>), SpecError> {
        if let Some(rest) = name.strip_prefix("scx:") {
            let scx = ScxSpec::parse(rest)?;
            let notes = scx.notes(name);
            return Ok((Self::Scx(scx), notes));
        }
        if name.split('+').next() == Some(ROOST) {
            if name.split('+').any(|part| part.starts_with("policy=")) {
                return Err(SpecError::LivePolicy { name: name.to_owned() });
            }
            let scx = ScxSpec::roost(name)?;
            let notes = scx.notes(name);
            return Ok((Self::Scx(scx), notes));
        }
        let mut features = String::new();
        let mut notes = Vec::new();
        let mut rule = None;
        for (index, part) in name.split('+').enumerate() {
            match part.split_once('=') {
                Some(("config", file)) if index > 0 => {
                    features += &switches(name, file, &mut notes)?;
                }
                Some(("policy", file)) if index > 0 => {
                    let before = rule.replace(Arc::new(roost_rule::load(file)?));
                    if before.is_some() {
                        return Err(SpecError::TwoRules { name: name.to_owned() });
                    }
                }
                _ if index > 0 => {
                    if let Some(setting) = of_live_only(part) {
                        let (name, part) = (name.to_owned(), part.to_owned());
                        return Err(SpecError::LiveSetting { name, part, setting });
                    }
                    features += &format!("+{part}");
                }
                _ => features += part,
            }
        }
        let mut features = Features::parse(&features).map_err(|error| no_model(name, error))?;
        name.clone_into(&mut features.name);
        if let Some(rule) = &rule {
            notes.extend(uncalled(name, rule));
        }
        Ok((Self::Fair { features, rule }, notes))
    }
}

/// Number of digits that are shown of a rule's hash.
const RULE_DIGITS: usize = 12;

/// A rule as shown in outputs. The hash is included because files change.
fn policy_shown(rule: &OwnRule) -> String {
    format!("policy={}@{}", rule.file, rule.sha256.get(..RULE_DIGITS).unwrap_or_default())
}

/// A note about functions of a rule that the simulation never calls.
fn uncalled(name: &str, rule: &OwnRule) -> Option<String> {
    let all = roost_rule::functions();
    let live = all.iter().filter(|function| function.only_live).map(|function| &function.name);
    let uncalled: Vec<&str> =
        live.filter(|live| rule.replaces.contains(live)).map(String::as_str).collect();
    let told = || format!("{name}: only the live scheduler calls {}", uncalled.join(", "));
    (!uncalled.is_empty()).then(told)
}

/// The kernel version whose sched_ext is simulated. Its types are shipped with this program.
const SCX_KERNEL: &str = "7.2";

/// The name of this project's own scheduler.
const ROOST: &str = "roost";

/// Settings of the daemon, which is not simulated.
const OF_DAEMON: [&str; 6] = [
    "memory",
    "memory-min-mib",
    "memory-rate-mib",
    "memory-interval-ms",
    "memory-settle-ms",
    "cling-groups",
];

impl ScxSpec {
    /// Parses `FILE.bpf.o+name=value`.
    fn parse(name: &str) -> Result<Self, SpecError> {
        let (file, settings) = split_settings(name);
        let failed = |why: String| SpecError::Scx { file: file.to_owned(), why };
        let bytes = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
        let program = || {
            let mut program = Program::new(Object::parse(&bytes)?, KernelTypes::shipped()?)?;
            for (name, value) in &settings {
                program.set(name, value)?;
            }
            program.check()?;
            Ok(program)
        };
        let program = program().map_err(|error: ScxError| failed(error.to_string()))?;
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self::new(program, None, settings)
    }

    /// Parses `roost+no-cling+slice-us=3000`.
    fn roost(name: &str) -> Result<Self, SpecError> {
        let mut settings = Settings::default();
        let parts: Vec<String> = name.split('+').skip(1).map(str::to_owned).collect();
        for part in &parts {
            settings.apply(name, part)?;
        }
        let program = || {
            let program = Program::new(Object::roost()?, KernelTypes::shipped()?)?;
            program.check()?;
            Ok(program)
        };
        let failed =
            |error: ScxError| SpecError::Scx { file: ROOST.to_owned(), why: error.to_string() };
        Self::new(program().map_err(failed)?, Some(settings), parts)
    }

    fn new(
        program: Program,
        roost: Option<Settings>,
        settings: Vec<String>,
    ) -> Result<Self, SpecError> {
        let tick_ns = Features::parse(&format!("fair@{SCX_KERNEL}"))?.tick_ns();
        Ok(Self { program: Arc::new(program), roost, settings, tick_ns })
    }

    /// The program, set up for a machine as a loader would do.
    ///
    /// # Errors
    /// None, unless this program is damaged.
    pub fn program(&self, machine: &Machine) -> Result<Arc<Program>, ScxError> {
        let Some(settings) = &self.roost else { return Ok(self.program.clone()) };
        let mut program = Program::clone(&self.program);
        let setup = setup(machine, settings);
        for (map, entries) in setup.sizes {
            program.resize(map, entries)?;
        }
        for (name, value) in &setup.variables {
            program.set_number(name, *value)?;
        }
        for Entry { map, index, members } in setup.entries {
            program.put(map, index, &members)?;
        }
        Ok(Arc::new(program))
    }

    /// Notes about what the simulation does not do for the program.
    fn notes(&self, name: &str) -> Vec<String> {
        let (uncalled, unfilled) = (self.program.uncalled(), self.program.unfilled());
        let mut notes = Vec::new();
        if !uncalled.is_empty() {
            notes.push(format!("{name}: the simulation never calls {}", uncalled.join(", ")));
        }
        if !unfilled.is_empty() {
            notes.push(format!("{name}: it reads {}: 0 in the simulation", unfilled.join(", ")));
        }
        let given = self.roost.iter().flat_map(Settings::given).map(|(setting, _)| setting);
        let idle: Vec<&str> = given.filter(|setting| OF_DAEMON.contains(setting)).collect();
        if !idle.is_empty() {
            let idle = idle.join(", ");
            notes.push(format!("{name}: {idle}: without effect, the daemon is not simulated"));
        }
        notes
    }
}

/// What a loader passes to roost's program. CPUs and nodes are numbered as in the simulation.
fn setup(machine: &Machine, settings: &Settings) -> Setup {
    let mut machine = machine.clone();
    for (number, cpu) in (0..).zip(&mut machine.cpus) {
        cpu.os_index = number;
    }
    for (number, node) in (0..).zip(&mut machine.nodes) {
        node.os_index = number;
    }
    let possible: Vec<u32> = (0..machine.nr_cpus() as u32).collect();
    Setup::of(&Layout::of(&machine), settings, &possible)
}

/// The file, whose name may contain `+`, and the settings that follow it.
fn split_settings(name: &str) -> (&str, Vec<(&str, &str)>) {
    let mut file = name;
    let mut settings = Vec::new();
    while let Some((before, part)) = file.rsplit_once('+') {
        let Some(setting) = part.split_once('=') else { break };
        settings.insert(0, setting);
        file = before;
    }
    (file, settings)
}

/// The setting that a part of a scheduler's name means, if the fair class does not have it.
fn of_live_only(part: &str) -> Option<&'static str> {
    let name = part.split_once('=').map_or(part, |(name, _)| name);
    let setting = roost_settings::find(name.strip_prefix("no-").unwrap_or(name))?;
    let switches = roost_fair::switches().into_iter().map(|(name, _)| name);
    let mut known = switches.chain(roost_fair::numbers().map(|number| number.name));
    known.all(|name| name != setting.name).then_some(setting.name)
}

/// The error for a name that the simulation does not have. It says where the name would be valid.
fn no_model(name: &str, error: FeatureError) -> SpecError {
    let FeatureError::Form { .. } = error else { return error.into() };
    match name.split('+').next() {
        Some("fair") => SpecError::KernelHere(error),
        _ => SpecError::NoModel(error),
    }
}

/// The settings in a file as switches of the fair class. Settings that the fair class does not have are left out, with
/// a note.
fn switches(scheduler: &str, file: &str, notes: &mut Vec<String>) -> Result<String, SpecError> {
    let settings = Settings::read(Path::new(file))?;
    let mut switches = String::new();
    let mut unknown = Vec::new();
    for (name, value) in settings.given() {
        match switch(name, &value) {
            Some(switch) => switches += &format!("+{switch}"),
            None => unknown.push(name),
        }
    }
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        notes.push(format!("{scheduler}: only roost has {unknown}; left out here"));
    }
    Ok(switches)
}

/// A setting as a switch of the fair class, if there is one.
fn switch(name: &str, value: &Value) -> Option<String> {
    let other = OTHER_NAMES.iter().find(|(setting, _)| *setting == name);
    let name = other.map_or(name, |(_, switch)| switch);
    let known = match value {
        Value::On | Value::Off => roost_fair::switches().iter().any(|(switch, _)| *switch == name),
        Value::Number(_) => roost_fair::numbers().any(|number| number.name == name),
        Value::Patterns(_) => false,
    };
    known.then(|| match value {
        Value::On => name.to_owned(),
        Value::Off => format!("no-{name}"),
        Value::Number(number) => format!("{name}={number}"),
        Value::Patterns(text) => format!("{name}={text}"),
    })
}
