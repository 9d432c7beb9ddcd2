//! The one table of schedulers by name.

use std::path::Path;
use std::sync::Arc;

use roost_fair::{FeatureError, Features};
use roost_scx::{KernelTypes, Object, Program, ScxError};
use roost_settings::{Settings, SettingsError, Value};

/// A scheduler as the command line names it.
#[derive(Clone, Debug)]
pub enum SchedulerSpec {
    /// The kernel's fair class.
    Fair {
        /// Its version and what differs from it.
        features: Features,
    },
    /// A sched_ext program.
    Scx(ScxSpec),
}

/// A sched_ext program with settings.
#[derive(Clone, Debug)]
pub struct ScxSpec {
    /// The program, which runs share.
    pub program: Arc<Program>,
    /// What was set, as the command line has it behind `+`.
    pub settings: Vec<String>,
    /// The tick's period of the kernel that it runs on, ns.
    pub tick_ns: u64,
}

/// Why a scheduler's name was not understood.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The fair class has no such version, switch or number.
    #[error(transparent)]
    Fair(#[from] FeatureError),
    /// A sched_ext program could not be read, or needs what the simulation does not have.
    #[error("{file}: {why}")]
    Scx {
        /// The object's file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// A settings file could not be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The live scheduler was named.
    #[error(
        "{name}: the live scheduler needs a real kernel: add --on vm or --on host; in the simulation \
         its mechanisms are switches of the fair class, as in fair@7.2+sis-util"
    )]
    Live {
        /// What was given.
        name: String,
    },
    /// A setting was named that only the live scheduler has.
    #[error(
        "{name}: only the live scheduler has {setting}: roost+{part}, with --on vm or --on host"
    )]
    LiveSetting {
        /// What was given.
        name: String,
        /// The part of it that is not understood.
        part: String,
        /// The setting that the part is about.
        setting: &'static str,
    },
    /// The kernel that runs here was named.
    #[error("{0}; fair alone is the kernel that runs here: add --on host")]
    KernelHere(FeatureError),
    /// Something else was named that the simulation does not have.
    #[error("{0}; a sched_ext program needs a real kernel: add --on vm or --on host")]
    NoModel(FeatureError),
}

/// Settings whose switch of the fair class has another name: the live scheduler has the rule that was
/// merged, not the one first published.
const OTHER_NAMES: [(&str, &str); 1] = [("numa-imbalance", "numa-imbalance-merged")];

impl SchedulerSpec {
    /// The version of the kernel that it models: `5.19`.
    pub fn kernel(&self) -> &'static str {
        match self {
            Self::Fair { features } => features.version(),
            Self::Scx(_) => SCX_KERNEL,
        }
    }

    /// Switches and numbers that differ from that version, as the command line has them behind `+`.
    pub fn switches(&self) -> Vec<String> {
        match self {
            Self::Fair { features } => {
                features.differs_from_version().iter().map(ToString::to_string).collect()
            }
            Self::Scx(scx) => scx.settings.clone(),
        }
    }

    /// Reads a name such as `fair@5.19+sis-util+config=roost.toml`.
    ///
    /// # Errors
    /// If the simulation has no such scheduler, or a settings file cannot be read.
    pub fn parse(name: &str) -> Result<Self, SpecError> {
        Ok(Self::parse_noted(name)?.0)
    }

    /// [`parse`](Self::parse), and what the user should be told of the settings files.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_noted(name: &str) -> Result<(Self, Vec<String>), SpecError> {
        if let Some(rest) = name.strip_prefix("scx:") {
            let scx = ScxSpec::parse(rest)?;
            let notes = scx.notes(name);
            return Ok((Self::Scx(scx), notes));
        }
        if name.split(['@', '+']).next() == Some("roost") {
            return Err(SpecError::Live { name: name.to_owned() });
        }
        let mut features = String::new();
        let mut notes = Vec::new();
        for (index, part) in name.split('+').enumerate() {
            match part.strip_prefix("config=") {
                Some(file) if index > 0 => features += &switches(name, file, &mut notes)?,
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
        Ok((Self::Fair { features }, notes))
    }
}

/// The version of the kernel whose sched_ext is simulated: its types come along.
const SCX_KERNEL: &str = "7.2";

impl ScxSpec {
    /// Reads `FILE.bpf.o+name=value`.
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
        let tick_ns = Features::parse(&format!("fair@{SCX_KERNEL}"))?.tick_ns();
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Ok(Self { program: Arc::new(program), settings, tick_ns })
    }
}

impl ScxSpec {
    /// What the simulation does not do for it.
    fn notes(&self, name: &str) -> Vec<String> {
        let (uncalled, unfilled) = (self.program.uncalled(), self.program.unfilled());
        let mut notes = Vec::new();
        if !uncalled.is_empty() {
            notes.push(format!("{name}: the simulation never calls {}", uncalled.join(", ")));
        }
        if !unfilled.is_empty() {
            notes.push(format!("{name}: it reads {}: 0 in the simulation", unfilled.join(", ")));
        }
        notes
    }
}

/// The file, which may have `+` in its name, and the settings behind it.
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

/// The setting that a part of a scheduler's name is about, if the fair class does not have it.
fn of_live_only(part: &str) -> Option<&'static str> {
    let name = part.split_once('=').map_or(part, |(name, _)| name);
    let setting = roost_settings::find(name.strip_prefix("no-").unwrap_or(name))?;
    let known = roost_fair::switches().into_iter().chain(roost_fair::numbers());
    known.into_iter().all(|(name, _)| name != setting.name).then_some(setting.name)
}

/// Says where a name that is none of the simulation's may have a meaning.
fn no_model(name: &str, error: FeatureError) -> SpecError {
    let FeatureError::Form { .. } = error else { return error.into() };
    match name.split('+').next() {
        Some("fair") => SpecError::KernelHere(error),
        _ => SpecError::NoModel(error),
    }
}

/// What a settings file says, as switches of the fair class; what the fair class does not have is noted
/// and left out.
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
        notes.push(format!("{scheduler}: only the live scheduler has {unknown}; left out here"));
    }
    Ok(switches)
}

/// One setting as a switch of the fair class, if it has it.
fn switch(name: &str, value: &Value) -> Option<String> {
    let other = OTHER_NAMES.iter().find(|(setting, _)| *setting == name);
    let name = other.map_or(name, |(_, switch)| switch);
    let known = match value {
        Value::On | Value::Off => roost_fair::switches().iter().any(|(switch, _)| *switch == name),
        Value::Number(_) => roost_fair::numbers().iter().any(|(number, _)| *number == name),
        Value::Patterns(_) => false,
    };
    known.then(|| match value {
        Value::On => name.to_owned(),
        Value::Off => format!("no-{name}"),
        Value::Number(number) => format!("{name}={number}"),
        Value::Patterns(text) => format!("{name}={text}"),
    })
}
