//! Describes an object's contents, and what it needs of a kernel.

use std::collections::BTreeMap;

use crate::btf::{Kind, TypeId};
use crate::kernel_names::{Resolved, helper_name};
use crate::object::{DataSection, Function, MapDefinition, Object, Target, Variable};
use crate::program::Program;
use crate::relocate::{Asked, POISON};

/// An object compared with a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The scheduler's name, as the kernel shows it.
    pub scheduler: String,
    /// The kernel that it is compared with.
    pub kernel: String,
    /// Its hooks, in the order of `struct sched_ext_ops`.
    pub hooks: Vec<HookSize>,
    /// The numbers in its `struct sched_ext_ops`, such as flags.
    pub numbers: Vec<(String, u64)>,
    /// Other programs, which the kernel calls outside of scheduling: their sections and number of instructions.
    pub programs: Vec<(String, usize)>,
    /// Its maps.
    pub maps: Vec<MapDefinition>,
    /// kfuncs that it calls on this kernel: name, and number of calls in the code.
    pub kfuncs: Vec<(String, usize)>,
    /// Helpers that it calls: name, and number of calls in the code.
    pub helpers: Vec<(String, usize)>,
    /// Its settings: global variables whose type is a single number.
    pub settings: Vec<Setting>,
    /// What it asks for but can do without, and this kernel does not have.
    pub optional: Vec<String>,
    /// What the object needs and this kernel does not have. The object would not load on this kernel, or would stop.
    pub missing: Vec<String>,
    /// What its hooks can reach and the simulation does not have. The object cannot run in the simulation.
    pub lacks: Vec<String>,
    /// Why the kernel would refuse it, as far as the simulation checks that. It cannot run in the simulation either.
    pub refused: Option<String>,
    /// Hooks that the simulation never calls.
    pub uncalled: Vec<String>,
    /// Members of the kernel's structs that hooks read, and that are always 0 in the simulation.
    pub unfilled: Vec<String>,
}

/// A hook and the size of its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSize {
    /// The hook's name, such as `select_cpu`.
    pub name: String,
    /// The function's name.
    pub function: String,
    /// Instructions of the function itself.
    pub own: usize,
    /// Instructions of the function and of all functions that it can call.
    pub all: usize,
}

/// A global variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its type, as written in C.
    pub of: String,
    /// Its value at the start.
    pub value: i128,
    /// Whether only a loader can set it (`const volatile`).
    pub constant: bool,
}

/// Describes a program, its kernel, and what the simulation lacks for it.
pub fn describe(program: &Program) -> Description {
    let Program { object, kernel, .. } = program;
    let size = |function: &Function| function.end - function.start;
    let hooks = object.operations.hooks.iter().filter_map(|(name, at)| {
        let function = object.function_at(*at)?;
        let all = object.reachable(*at).into_iter().map(size).sum();
        let (name, own) = (name.clone(), size(function));
        Some(HookSize { name, function: function.name.clone(), own, all })
    });
    let is_hook = |function: &&Function| {
        let Function { section, .. } = function;
        section != ".text" && !section.starts_with("struct_ops")
    };
    let programs = object.functions.iter().filter(is_hook);
    let mut description = Description {
        scheduler: object.operations.name.clone(),
        kernel: kernel.source.clone(),
        hooks: hooks.collect(),
        numbers: object.operations.numbers.clone(),
        programs: programs.map(|function| (function.section.clone(), size(function))).collect(),
        maps: object.maps.clone(),
        kfuncs: Vec::new(),
        helpers: helpers(object),
        settings: settings(object),
        optional: Vec::new(),
        missing: Vec::new(),
        lacks: program.lacks(),
        refused: program.check_operations().err().map(|error| error.to_string()),
        uncalled: program.uncalled(),
        unfilled: program.unfilled(),
    };
    add_externs(program, &mut description);
    add_types(&program.asked, &mut description);
    description
}

/// The helpers that the code calls. Instructions that libbpf made unusable call none.
fn helpers(object: &Object) -> Vec<(String, usize)> {
    let mut helpers = BTreeMap::new();
    let numbers = object.code.iter().filter_map(|instruction| instruction.helper());
    for number in numbers.filter(|&number| number != POISON as u32) {
        *helpers.entry(helper_name(number)).or_insert(0) += 1;
    }
    helpers.into_iter().collect()
}

fn add_externs(program: &Program, description: &mut Description) {
    let object = &program.object;
    let mut kfuncs = BTreeMap::new();
    for (index, (wanted, resolved)) in object.externs.iter().zip(&program.externs).enumerate() {
        match resolved {
            Resolved::Function(name) => {
                let calls = object.references.iter().filter(|reference| {
                    reference.to == Target::Extern(index)
                        && object.code[reference.at].calls_function()
                });
                *kfuncs.entry(name.clone()).or_insert(0) += calls.count();
            }
            Resolved::Missing | Resolved::Differs if wanted.weak => {
                description.optional.push(wanted.name.clone())
            }
            Resolved::Missing => description.missing.push(wanted.name.clone()),
            Resolved::Differs => {
                description.missing.push(format!("{} (with these parameters)", wanted.name));
            }
            Resolved::Variable(_) | Resolved::Config => {}
        }
    }
    description.kfuncs = kfuncs.into_iter().collect();
}

fn add_types(asked: &[Asked], description: &mut Description) {
    let (mut optional, mut missing) = (Vec::new(), Vec::new());
    for asked in asked.iter().filter(|asked| !asked.found) {
        let list = if asked.optional { &mut optional } else { &mut missing };
        list.push(asked.name.clone());
    }
    // Members that are read only after a check that they exist are not needed.
    missing.retain(|name| !optional.contains(name));
    for (all, list) in [(&mut description.optional, optional), (&mut description.missing, missing)]
    {
        all.extend(list);
        all.sort();
        all.dedup();
    }
}

/// The variables that users can set.
pub(crate) fn settings(object: &Object) -> Vec<Setting> {
    let of = |section: &DataSection, variable: &Variable| {
        let value = object.number(section, variable)?;
        let (name, of) = (variable.name.clone(), object.btf.written(variable.of));
        Some(Setting { name, of, value, constant: section.read_only })
    };
    let mut settings = Vec::new();
    for section in &object.data {
        // A name that begins with underscores is not for users.
        let meant = |v: &&Variable| v.global && !v.name.starts_with("__");
        let variables = section.variables.iter().filter(meant);
        settings.extend(variables.filter_map(|variable| of(section, variable)));
    }
    settings
}

impl Object {
    /// The value of a variable whose type is a single number.
    pub fn number(&self, section: &DataSection, variable: &Variable) -> Option<i128> {
        let signed = self.is_signed_number(variable.of)?;
        let start = variable.offset as usize;
        let bytes = section.bytes.get(start..start + variable.size as usize)?;
        let mut padded = [0; 8];
        padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let unused = 64 - 8 * bytes.len() as u32;
        let value = u64::from_le_bytes(padded);
        Some(match signed {
            true => i128::from(((value << unused) as i64) >> unused),
            false => i128::from(value),
        })
    }

    /// Whether a type that is a single number is signed. `None` for other types.
    pub fn is_signed_number(&self, of: TypeId) -> Option<bool> {
        match self.btf.kind(self.btf.plain(of)) {
            Kind::Int { size: 1..=8, signed, .. } | Kind::Enum { size: 1..=8, signed, .. } => {
                Some(*signed)
            }
            _ => None,
        }
    }
}
