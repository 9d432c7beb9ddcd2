//! The scheduler: a variable of the type `struct sched_ext_ops` in a `.struct_ops` section.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};

use super::code::Layout;
use super::{Elf, data, section_name};
use crate::btf::{Btf, Kind};
use crate::bytes::{text_at, u32_at, u64_at};
use crate::error::ScxError;

/// The type of the variables that define schedulers.
const STRUCT: &str = "sched_ext_ops";

/// The hooks and numbers of a scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// The variable's name.
    pub variable: String,
    /// The scheduler's name, as the kernel shows it.
    pub name: String,
    /// Names of the hooks and their first instructions, in the order of the struct.
    pub hooks: Vec<(String, usize)>,
    /// Numbers that are set (not 0), such as `flags` and `timeout_ms`.
    pub numbers: Vec<(String, u64)>,
}

impl Operations {
    /// The first instruction of a hook, if the scheduler has it.
    pub fn hook(&self, name: &str) -> Option<usize> {
        self.hooks.iter().find(|(hook, _)| hook == name).map(|(_, at)| *at)
    }

    /// A number. 0 if the scheduler does not set it.
    pub fn number(&self, name: &str) -> u64 {
        self.numbers.iter().find(|(number, _)| number == name).map_or(0, |(_, value)| *value)
    }
}

/// Reads the scheduler that the object defines.
pub(crate) fn read(elf: &Elf, btf: &Btf, layout: &Layout) -> Result<Operations, ScxError> {
    let mut found = Vec::new();
    for section in elf.sections() {
        let name = section_name(&section);
        if name != ".struct_ops" && name != ".struct_ops.link" {
            continue;
        }
        let bytes =
            section.data().map_err(|error| ScxError::broken(format!("section {name}: {error}")))?;
        let hooks = hooks_at(elf, &section, layout);
        for variable in data::variables_of(btf, &name) {
            let Kind::Variable { of, .. } = *btf.kind(variable.variable) else { continue };
            if btf.name(btf.plain(of)) != STRUCT {
                continue;
            }
            let name = btf.name(variable.variable);
            let symbol = elf.symbols().find(|symbol| {
                symbol.section_index() == Some(section.index()) && symbol.name() == Ok(name)
            });
            let start = symbol.map_or(variable.offset.into(), |symbol| symbol.address());
            found.push(operations(btf, of, name, bytes, start, &hooks)?);
        }
    }
    let names = || found.iter().map(|ops: &Operations| ops.variable.as_str()).collect::<Vec<_>>();
    match found.len() {
        0 => Err(ScxError::NoScheduler),
        1 => Ok(found.remove(0)),
        _ => Err(ScxError::SeveralSchedulers(names().join(", "))),
    }
}

/// The functions whose addresses are put into the section, by offset.
fn hooks_at<'a>(
    elf: &Elf<'a>,
    section: &impl object::ObjectSection<'a>,
    layout: &Layout,
) -> Vec<(u64, usize)> {
    let hook = |(offset, relocation): (u64, object::Relocation)| {
        let RelocationTarget::Symbol(symbol) = relocation.target() else { return None };
        let symbol = elf.symbol_by_index(symbol).ok()?;
        let at = layout.place_by_index(symbol.section_index()?, symbol.address())?;
        Some((offset, at))
    };
    section.relocations().filter_map(hook).collect()
}

fn operations(
    btf: &Btf,
    of: u32,
    variable: &str,
    bytes: &[u8],
    start: u64,
    hooks: &[(u64, usize)],
) -> Result<Operations, ScxError> {
    let mut ops = Operations { variable: variable.to_owned(), ..Operations::default() };
    let Kind::Composite { members, .. } = btf.kind(btf.plain(of)) else { return Ok(ops) };
    for member in members {
        let name = btf.text(member.name).to_owned();
        let Some(at) = start.checked_add(u64::from(member.bit_offset / 8)) else { continue };
        let place = usize::try_from(at).unwrap_or(usize::MAX);
        let cut = || ScxError::broken(format!("{variable}.{name} is outside of its section"));
        match btf.kind(btf.plain(member.of)) {
            Kind::Pointer(_) => {
                let hook = hooks.iter().find(|(offset, _)| *offset == at);
                ops.hooks.extend(hook.map(|(_, function)| (name, *function)));
            }
            Kind::Array { .. } if name == "name" => {
                text_at(bytes, place).ok_or_else(cut)?.clone_into(&mut ops.name);
            }
            Kind::Int { .. } | Kind::Enum { .. } => {
                let value = match btf.size(member.of) {
                    Some(8) => u64_at(bytes, place).ok_or_else(cut)?,
                    _ => u32_at(bytes, place).ok_or_else(cut)?.into(),
                };
                if value != 0 {
                    ops.numbers.push((name, value));
                }
            }
            _ => {}
        }
    }
    Ok(ops)
}
