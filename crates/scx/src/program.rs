//! An object made ready for a kernel: relocated, with settings, checked for what the simulation has.

use std::sync::Arc;

use crate::btf::{Kind, essential};
use crate::class;
use crate::error::ScxError;
use crate::helpers;
use crate::instruction::{CALL, Instruction, LOAD_64};
use crate::kernel_names::{Resolved, helper_name, resolve};
use crate::kernel_types::{KernelTypes, SHIPPED_CODE};
use crate::kfuncs;
use crate::maps;
use crate::memory::Memory;
use crate::object::{Function, Object, Target};
use crate::relocate::{Asked, POISON, Relocated, relocate};
use crate::tasks;

/// Hooks that schedule nothing: they are called when a scheduler ends, to report.
const REPORTS: [&str; 4] = ["exit", "dump", "dump_cpu", "dump_task"];

/// A scheduler that runs can be made of.
#[derive(Clone, Debug)]
pub struct Program {
    /// What it was made of.
    pub object: Arc<Object>,
    /// The kernel's types.
    pub kernel: Arc<KernelTypes>,
    /// What the object asked about these.
    pub asked: Vec<Asked>,
    /// Relocated against these.
    code: Vec<Instruction>,
    /// What each extern is on this kernel.
    externs: Vec<Resolved>,
    /// Variables at the start, by section.
    data: Vec<Vec<u8>>,
}

impl Program {
    /// Relocates an object against a kernel's types.
    ///
    /// # Errors
    /// If the object does not fit the kernel.
    pub fn new(object: Object, kernel: impl Into<Arc<KernelTypes>>) -> Result<Self, ScxError> {
        let kernel = kernel.into();
        let Relocated { code, asked } = relocate(&object, &kernel)?;
        let externs =
            object.externs.iter().map(|name| resolve(&object.btf, &kernel, name)).collect();
        let data = object.data.iter().map(|section| section.bytes.clone()).collect();
        let object = Arc::new(object);
        let mut program = Self { object, kernel, asked, code, externs, data };
        program.set_kernel_constants();
        Ok(program)
    }

    /// Variables `__SCX_NAME` are the kernel's constants `SCX_NAME`, which loaders look up in its types
    /// (SCX_ENUM_INIT in the headers of sched_ext schedulers).
    fn set_kernel_constants(&mut self) {
        let names = self.object.data.iter().flat_map(|section| &section.variables);
        let names: Vec<String> = names
            .filter(|variable| variable.name.starts_with("__SCX_"))
            .map(|variable| variable.name.clone())
            .collect();
        for name in names {
            let constant = self.kernel.enumerator(name.trim_start_matches('_'));
            self.write_variable(&name, constant.unwrap_or(0));
        }
    }

    fn write_variable(&mut self, name: &str, value: i64) {
        let Some((section, variable)) = self.object.variable(name) else { return };
        let (start, len) = (variable.offset as usize, (variable.size as usize).min(8));
        if let Some(place) = self.data[section].get_mut(start..start + len) {
            place.copy_from_slice(&value.to_le_bytes()[..len]);
        }
    }

    /// Sets a global variable.
    ///
    /// # Errors
    /// If there is none of that name, it is not one number, or the value does not fit it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ScxError> {
        let bad = |why: String| Err(ScxError::Setting(format!("{name}={value}: {why}")));
        let Some((_, variable)) = self.object.variable(name).filter(|(_, found)| found.global)
        else {
            return bad(
                "the object has no such global variable; `roost scx FILE` lists them".into()
            );
        };
        let written = self.object.btf.written(variable.of);
        let Some(signed) = self.object.is_signed_number(variable.of) else {
            return bad(format!("it is a {written}, which is not one number"));
        };
        let boolean = matches!(
            self.object.btf.kind(self.object.btf.plain(variable.of)),
            Kind::Int { boolean: true, .. }
        );
        let number = match value {
            "true" if boolean => Some(1),
            "false" if boolean => Some(0),
            _ => number(value),
        };
        let bits = if boolean { 1 } else { 8 * variable.size };
        let range = match signed {
            true => -(1i128 << (bits - 1))..1i128 << (bits - 1),
            false => 0..1i128 << bits,
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => self.write_variable(name, number as i64),
            None => return bad(format!("that is no {written}")),
        }
        Ok(())
    }

    /// Functions that hooks which are called can reach.
    fn called(&self) -> Vec<&Function> {
        let hooks = self.object.operations.hooks.iter();
        let called = hooks.filter(|(name, _)| class::HOOKS.contains(&name.as_str()));
        called.flat_map(|(_, at)| self.object.reachable(*at)).collect()
    }

    /// Hooks that the simulation never calls, other than those that only report.
    pub fn uncalled(&self) -> Vec<String> {
        let hooks = self.object.operations.hooks.iter().map(|(name, _)| name.clone());
        let known = |name: &str| class::HOOKS.contains(&name) || REPORTS.contains(&name);
        hooks.filter(|name| !known(name)).collect()
    }

    /// Members of the kernel's structs that hooks read and the simulation leaves 0.
    pub fn unfilled(&self) -> Vec<String> {
        let called = self.called();
        let is_called = |at| called.iter().any(|f| (f.start..f.end).contains(&at));
        let mut names: Vec<String> = self
            .asked
            .iter()
            .filter(|asked| asked.found && asked.member && asked.name.contains('.'))
            .filter(|asked| !is_filled(&asked.name) && is_called(asked.at))
            .map(|asked| asked.name.clone())
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// What hooks can reach and the simulation does not have: kfuncs, helpers, kinds of maps, variables of
    /// the kernel.
    pub fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        for function in self.called() {
            let helpers = self.code[function.start..function.end].iter();
            let helpers = helpers.filter_map(|instruction| instruction.helper());
            let unknown = helpers
                .filter(|&number| number != POISON as u32 && helpers::find(number).is_none());
            lacks.extend(unknown.map(|number| format!("helper {}", helper_name(number))));
            for reference in self.object.references_in(function) {
                lacks.extend(self.lacks_for(reference.to));
            }
        }
        lacks.sort();
        lacks.dedup();
        lacks
    }

    /// Whether it can run here.
    ///
    /// # Errors
    /// If it needs what the simulation does not have: the error names all of it.
    pub fn check(&self) -> Result<(), ScxError> {
        match self.lacks().as_slice() {
            [] => Ok(()),
            lacks => Err(ScxError::Lacks(lacks.join(", "))),
        }
    }

    fn lacks_for(&self, target: Target) -> Option<String> {
        match target {
            Target::Map(index) => {
                let map = &self.object.maps[index];
                let known = maps::is_known(map.kind);
                (!known).then(|| format!("map {} ({})", map.name, map.kind))
            }
            Target::Extern(index) => match &self.externs[index] {
                Resolved::Function(name) => self.lacks_kfunc(name),
                Resolved::Variable(_) => {
                    Some(format!("variable {}", self.object.externs[index].name))
                }
                Resolved::Missing if !self.object.externs[index].weak => Some(format!(
                    "{}, which {} does not have",
                    self.object.externs[index].name, self.kernel.source
                )),
                _ => None,
            },
            Target::Data { .. } | Target::Function(_) => None,
        }
    }

    fn lacks_kfunc(&self, name: &str) -> Option<String> {
        let there = self.kernel.btf.prototype(name).map(|(_, parameters)| parameters.len());
        match kfuncs::find(name) {
            None => Some(format!("kfunc {name}")),
            Some(number) if Some(kfuncs::parameters(number)) != there => {
                Some(format!("kfunc {name} with the parameters that {} has", self.kernel.source))
            }
            Some(_) => None,
        }
    }

    /// Puts variables into memory, and their addresses into the code.
    pub(crate) fn link(&self, memory: &mut Memory, maps: &[u64]) -> Option<Vec<Instruction>> {
        let mut code = self.code.clone();
        let mut sections = Vec::new();
        for bytes in &self.data {
            let address = memory.allocate(bytes.len())?;
            memory.slice_mut(address, bytes.len()).ok()?.copy_from_slice(bytes);
            sections.push(address);
        }
        let mut externs = Vec::new();
        for (index, resolved) in self.externs.iter().enumerate() {
            externs.push(self.extern_address(index, resolved, memory)?);
        }
        for reference in &self.object.references {
            let instruction = code[reference.at];
            // Relocation may have made it another instruction.
            if instruction.code == CALL && instruction.src == 1 {
                code[reference.at] = self.linked_call(instruction, reference.at, reference.to)?;
            } else if instruction.code == LOAD_64 {
                let address = match reference.to {
                    Target::Map(index) => maps[index],
                    Target::Data { section, offset } => sections[section] + offset,
                    // A function is known by its first instruction.
                    Target::Function(at) => at as u64,
                    Target::Extern(index) => externs[index],
                };
                code[reference.at].src = 0;
                code[reference.at].imm = address as i32;
                code.get_mut(reference.at + 1)?.imm = (address >> 32) as i32;
            }
        }
        Some(code)
    }

    fn linked_call(&self, call: Instruction, at: usize, to: Target) -> Option<Instruction> {
        Some(match to {
            Target::Function(target) => {
                Instruction { imm: i32::try_from(target as i64 - at as i64 - 1).ok()?, ..call }
            }
            Target::Extern(index) => match &self.externs[index] {
                Resolved::Function(name) => {
                    let number = kfuncs::find(name).map_or(i32::MAX, |number| number as i32);
                    Instruction { src: 2, imm: number, ..call }
                }
                _ => Instruction { src: 0, imm: POISON, ..call },
            },
            Target::Map(_) | Target::Data { .. } => return None,
        })
    }

    /// What the address of an extern is: 0 where the kernel has none.
    fn extern_address(
        &self,
        index: usize,
        resolved: &Resolved,
        memory: &mut Memory,
    ) -> Option<u64> {
        Some(match resolved {
            Resolved::Missing | Resolved::Variable(_) => 0,
            // Only whether there is one matters.
            Resolved::Function(_) => 1,
            Resolved::Config => {
                let address = memory.allocate(8)?;
                let version = self.object.externs[index].name == "LINUX_KERNEL_VERSION";
                memory.write(address, 8, if version { SHIPPED_CODE } else { 0 }).ok()?;
                address
            }
        })
    }
}

/// Whether the simulation fills a member, or the program itself does, as in structs of arguments.
fn is_filled(name: &str) -> bool {
    let (of, member) = name.split_once('.').unwrap_or((name, ""));
    match essential(of) {
        "task_struct" => tasks::FILLED.contains(&member),
        of => of.ends_with("_args"),
    }
}

/// A number as people write it: decimal or hexadecimal.
fn number(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
