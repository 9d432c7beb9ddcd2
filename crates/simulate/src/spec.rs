//! The only table of schedulers by name.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use roost_capture::{CaptureError, Command, capture};
use roost_fair::{FeatureError, Features};
use roost_kept::Kept;
use roost_layout::{Entry, Layout, Setup};
use roost_machine::Machine;
use roost_rule::{OwnRule, RuleError};
use roost_scx::{KernelTypes, Object, Program, ScxError};
use roost_settings::{Settings, SettingsError, Value};

use crate::daemon::Follower;

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
    source: Source,
    /// The settings, as written on the command line after `+`.
    pub settings: Vec<String>,
    /// Period of the tick in the kernel that it runs on, in ns.
    pub tick_ns: u64,
}

/// Where a sched_ext program comes from.
#[derive(Clone, Debug)]
enum Source {
    /// An object, and the SHA-256 of its file. All runs share the program.
    Object(Arc<Program>, String),
    /// roost's own object, and the settings from which a loader would set it up for a machine.
    Roost(Arc<Program>, Box<Settings>),
    /// The scheduler's own loader, which is started once for each machine.
    Loader(Arc<Loader>),
}

/// A scheduler's own loader.
#[derive(Debug)]
struct Loader {
    command: Command,
    /// Variables that are set after the loader has set them.
    settings: Vec<(String, String)>,
    /// What it loaded on each machine so far, by the machine's shape.
    loaded: Mutex<Vec<(String, Arc<Program>)>>,
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
    /// A setting is given twice.
    #[error("{name}: {twice}")]
    Twice {
        /// The scheduler's name.
        name: String,
        /// A sentence that says what is given twice.
        twice: String,
    },
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
    /// The file of a sched_ext program could not be read.
    #[error("{file}: {why}")]
    Unread {
        /// The file's name.
        file: String,
        /// The problem.
        why: String,
    },
    /// A sched_ext program is broken, needs something that the simulation does not have, or lacks what was to be set.
    #[error("{file}: {why}")]
    Scx {
        /// The object's file, or the loader's command line.
        file: String,
        /// The problem.
        why: ScxError,
    },
    /// A scheduler's own loader could not be started, or did not attach its scheduler.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A settings file could not be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A kernel's version was given to roost, which has none in the simulation.
    #[error(
        "{name}: in the simulation roost is one program without versions, on Linux {kernel}: write roost{settings}, or \
         fair@{kernel}+cling for the fair class with one of roost's mechanisms; with --on vm {name} runs on that \
         kernel",
        kernel = SCX_KERNEL
    )]
    RoostVersion {
        /// The scheduler's name.
        name: String,
        /// Its settings, with the `+` before them.
        settings: String,
    },
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
        "{0}; a sched_ext program is scx:FILE.bpf.o, a scheduler's own program in PATH or with its path, or runs on a \
         real kernel: add --on vm or --on host"
    )]
    NoModel(FeatureError),
}

impl SpecError {
    /// Whether what the user wrote is wrong. Otherwise a program failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Scx { why, .. } => why.is_usage(),
            Self::Capture(error) => error.is_usage(),
            _ => true,
        }
    }
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

    /// The SHA-256 of the file with its sched_ext program: an object, or the scheduler's own loader. `None` if it has
    /// no such file. Reads the loader's file.
    pub fn program_sha256(&self) -> Option<String> {
        match self {
            Self::Fair { .. } => None,
            Self::Scx(scx) => scx.sha256(),
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
            return Ok((Self::Scx(ScxSpec::parse(rest)?), Vec::new()));
        }
        if is_command(name) {
            return Ok((Self::Scx(ScxSpec::loader(name)?), Vec::new()));
        }
        if name.split('+').next() == Some(ROOST) {
            if name.split('+').any(|part| part.starts_with("policy=")) {
                return Err(SpecError::LivePolicy { name: name.to_owned() });
            }
            return Ok((Self::Scx(ScxSpec::roost(name)?), Vec::new()));
        }
        if name.strip_prefix(ROOST).is_some_and(|rest| rest.starts_with('@')) {
            let settings = name.find('+').map_or("", |at| &name[at..]).to_owned();
            return Err(SpecError::RoostVersion { name: name.to_owned(), settings });
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

/// Where roost's program keeps its counters (`bpf/state.h`): a map, and a member of its values.
const COUNTERS: (&str, &str) = ("cpus", "n");

/// The beginning of the names of roost's own counters. The live scheduler serves them to Prometheus with the same
/// names.
const COUNTERS_PREFIX: &str = "roost_";

/// Values among roost's counters that are not counts: a sum over CPUs would mean nothing.
const LEVELS: [&str; 1] = ["run_delay_max_ns"];

impl ScxSpec {
    /// Parses `FILE.bpf.o+name=value`.
    fn parse(name: &str) -> Result<Self, SpecError> {
        let (file, settings) = split_settings(name)?;
        let unread = |error| {
            let (file, why) = (file.to_owned(), why_unread(file, &error));
            SpecError::Unread { file, why }
        };
        let bytes = std::fs::read(file).map_err(unread)?;
        let program = || {
            let mut program = Program::new(Object::parse(&bytes)?, KernelTypes::shipped()?)?;
            for (name, value) in &settings {
                program.set(name, value)?;
            }
            program.check()?;
            Ok(program)
        };
        let failed = |why: ScxError| SpecError::Scx { file: file.to_owned(), why };
        let program = program().map_err(failed)?;
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Self::new(Source::Object(Arc::new(program), roost_kept::sha256(&bytes)), settings)
    }

    /// Parses `./scx_cosmos -s 1000+slice_ns=5000000`: a command line, and variables.
    fn loader(name: &str) -> Result<Self, SpecError> {
        let (command, settings) = split_settings(name)?;
        let command = Command::parse(command)?;
        let shown = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let settings = settings.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let loader = Loader { command, settings, loaded: Mutex::default() };
        Self::new(Source::Loader(Arc::new(loader)), shown)
    }

    /// Parses `roost+no-cling+slice-us=3000`.
    fn roost(name: &str) -> Result<Self, SpecError> {
        let mut settings = Settings::default();
        let parts: Vec<String> = name.split('+').skip(1).map(str::to_owned).collect();
        for part in &parts {
            settings.apply(name, part)?;
        }
        refuse_twice(name, parts.iter().map(String::as_str))?;
        let failed = |why: ScxError| SpecError::Scx { file: ROOST.to_owned(), why };
        let program = shipped_program().map_err(failed)?;
        Self::new(Source::Roost(program, Box::new(settings)), parts)
    }

    fn new(source: Source, settings: Vec<String>) -> Result<Self, SpecError> {
        let tick_ns = Features::parse(&format!("fair@{SCX_KERNEL}"))?.tick_ns();
        Ok(Self { source, settings, tick_ns })
    }

    /// roost's own program on a kernel with other types. Other programs stay as they are.
    ///
    /// # Errors
    /// If the program needs something that this kernel or the simulation does not have.
    pub fn on_kernel(mut self, types: KernelTypes) -> Result<Self, ScxError> {
        if let Source::Roost(program, _) = &mut self.source {
            *program = Arc::new(Program::new(Object::roost()?, types)?);
            program.check()?;
        }
        Ok(self)
    }

    /// Whether it is roost's own program, set up without its loader.
    pub fn is_roost(&self) -> bool {
        self.roost_settings().is_some()
    }

    /// The settings of roost's own program.
    pub(crate) fn roost_settings(&self) -> Option<&Settings> {
        match &self.source {
            Source::Roost(_, settings) => Some(settings),
            Source::Object(..) | Source::Loader(_) => None,
        }
    }

    /// The SHA-256 of the file that was named: an object, or a scheduler's own loader. `None` for roost's own program,
    /// which belongs to this version, and for a loader that cannot be read.
    fn sha256(&self) -> Option<String> {
        match &self.source {
            Source::Object(_, sha256) => Some(sha256.clone()),
            Source::Roost(..) => None,
            Source::Loader(loader) => {
                std::fs::read(&loader.command.program).ok().map(|bytes| roost_kept::sha256(&bytes))
            }
        }
    }

    /// The program, set up for a machine as a loader would do, or as its own loader does. `stop` ends the loader.
    ///
    /// # Errors
    /// If its own loader does not attach it, or it needs something that the simulation does not have.
    pub fn program(&self, machine: &Machine, stop: &AtomicBool) -> Result<Arc<Program>, SpecError> {
        let failed = |why: ScxError| SpecError::Scx { file: ROOST.to_owned(), why };
        match &self.source {
            Source::Object(program, _) => Ok(program.clone()),
            Source::Roost(program, settings) => {
                set_up(program, machine, settings).map(Arc::new).map_err(failed)
            }
            Source::Loader(loader) => loader.program(machine, stop),
        }
    }

    /// The daemon that follows memory, if the scheduler has one and it has something to do. `has_memory`: whether the
    /// workload uses memory.
    pub(crate) fn follower(&self, machine: &Machine, has_memory: bool) -> Option<Follower> {
        let settings = self.roost_settings()?;
        Follower::new(settings, &numbered(machine), has_memory)
    }

    /// Starts the scheduler's own loader for a machine, if that is where the program comes from. Returns notes about
    /// what the simulation does not do for it.
    ///
    /// # Errors
    /// As [`ScxSpec::program`].
    pub fn prepare(&self, machine: &Machine, stop: &AtomicBool) -> Result<Vec<String>, SpecError> {
        match &self.source {
            Source::Object(program, _) | Source::Roost(program, _) => Ok(notes_on(program)),
            Source::Loader(loader) => {
                let program = loader.program(machine, stop)?;
                let mut notes = notes_on(&program);
                notes.push(
                    "what it does in user space after it attached its scheduler is missing".into(),
                );
                Ok(notes)
            }
        }
    }
}

impl Loader {
    /// What it loads on a machine. It is started if that is not known yet.
    fn program(&self, machine: &Machine, stop: &AtomicBool) -> Result<Arc<Program>, SpecError> {
        let machine = &numbered(machine);
        let shape =
            format!("{:?}", (&machine.cpus, &machine.llcs, &machine.nodes, &machine.distances));
        // Runs in parallel wait here for the first one. A panic there leaves the list as it is.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, program)) = loaded.iter().find(|(known, _)| *known == shape) {
            return Ok(program.clone());
        }
        let kept = Kept::captures();
        let limit = roost_capture::LIMIT;
        let taken = capture(&self.command, machine, limit, stop, kept.as_ref())?;
        let program = || {
            let mut program = Program::taken_over(&taken, KernelTypes::shipped()?)?;
            for (name, value) in &self.settings {
                program.set(name, value)?;
            }
            program.check()?;
            Ok(Arc::new(program))
        };
        let failed = |why: ScxError| SpecError::Scx { file: self.command.text.clone(), why };
        let program = program().map_err(failed)?;
        loaded.push((shape, program.clone()));
        Ok(program)
    }
}

/// Whether a scheduler's name is a command line: it has a slash or a blank, or is a scheduler in PATH.
fn is_command(name: &str) -> bool {
    let program = name.split('+').next().unwrap_or(name);
    program.contains(|c: char| c == '/' || c.is_whitespace())
        || (program.starts_with("scx_") && Command::parse(program).is_ok())
}

/// Notes about what the simulation does not do for a program.
fn notes_on(program: &Program) -> Vec<String> {
    let (uncalled, unfilled) = (program.uncalled(), program.unfilled());
    let mut notes = Vec::new();
    if !uncalled.is_empty() {
        notes.push(format!("the simulation never calls {}", uncalled.join(", ")));
    }
    if !unfilled.is_empty() {
        notes.push(format!("it reads {}: 0 in the simulation", unfilled.join(", ")));
    }
    notes
}

/// A machine whose CPUs and nodes have the numbers of the simulation.
fn numbered(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    for (number, cpu) in (0..).zip(&mut machine.cpus) {
        cpu.os_index = number;
    }
    for (number, node) in (0..).zip(&mut machine.nodes) {
        node.os_index = number;
    }
    machine
}

/// roost's own program. Its object is read once: that takes as long as a short run.
fn shipped_program() -> Result<Arc<Program>, ScxError> {
    static SHIPPED: OnceLock<Arc<Program>> = OnceLock::new();
    if let Some(program) = SHIPPED.get() {
        return Ok(program.clone());
    }
    let program = Program::new(Object::roost()?, KernelTypes::shipped()?)?;
    program.check()?;
    Ok(SHIPPED.get_or_init(|| Arc::new(program)).clone())
}

/// roost's program, set up for a machine.
fn set_up(program: &Program, machine: &Machine, settings: &Settings) -> Result<Program, ScxError> {
    let mut program = program.clone();
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
    let (map, member) = COUNTERS;
    program.count(map, member, COUNTERS_PREFIX, &LEVELS)?;
    Ok(program)
}

/// What a loader passes to roost's program.
fn setup(machine: &Machine, settings: &Settings) -> Setup {
    let machine = numbered(machine);
    let possible: Vec<u32> = (0..machine.nr_cpus() as u32).collect();
    Setup::of(&Layout::of(&machine), settings, &possible)
}

/// The file, whose name may contain `+`, and the settings that follow it.
#[allow(clippy::type_complexity, reason = "a name and pairs")]
fn split_settings(name: &str) -> Result<(&str, Vec<(&str, &str)>), SpecError> {
    let mut file = name;
    let mut settings = Vec::new();
    while let Some((before, part)) = file.rsplit_once('+') {
        let Some(setting) = part.split_once('=') else { break };
        settings.insert(0, setting);
        file = before;
    }
    refuse_twice(name, name[file.len()..].split('+').skip(1))?;
    Ok((file, settings))
}

/// Why an object cannot be read. A setting without its value counts as a part of the file's name.
fn why_unread(file: &str, error: &std::io::Error) -> String {
    match file.rsplit_once('+') {
        _ if file.is_empty() => "no file: write scx:FILE.bpf.o".to_owned(),
        Some((before, part)) if Path::new(before).is_file() => {
            format!("{error}; a variable of {before} needs a value: +{part}=VALUE")
        }
        _ => error.to_string(),
    }
}

/// An error if a switch is given both ways, or a number twice.
fn refuse_twice<'a>(name: &str, parts: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
    let error = |twice| SpecError::Twice { name: name.to_owned(), twice };
    roost_names::given_twice(parts).map(error).map_or(Ok(()), Err)
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
