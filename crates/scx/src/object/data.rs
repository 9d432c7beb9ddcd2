//! Variables: the sections `.data`, `.rodata` and `.bss`, and sections whose names begin with these.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionIndex, SectionKind};

use super::{Elf, section_name};
use crate::btf::{Btf, Kind, SectionVariable, TypeId};
use crate::error::ScxError;

/// Largest size of an object's variables, in bytes. The kernel allocates them in one piece.
const MOST_BYTES: u64 = 1 << 28;

/// A section of variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSection {
    /// Its name.
    pub name: String,
    /// Initial values of the variables.
    pub bytes: Vec<u8>,
    /// Whether programs may only read them.
    pub read_only: bool,
    /// The variables that BTF describes.
    pub variables: Vec<Variable>,
}

impl DataSection {
    /// Whether its variables are in the program's arena (`__arena`).
    pub(crate) fn is_in_arena(&self) -> bool {
        self.name.starts_with(".addr_space")
    }
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its type, in the object.
    pub of: TypeId,
    /// Offset in its section, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Whether it is global, so that a loader may set it.
    pub global: bool,
}

/// The variables of a section, as BTF describes them.
pub(crate) fn variables_of<'a>(btf: &'a Btf, section: &str) -> &'a [SectionVariable] {
    let id = btf.find(section, |kind| matches!(kind, Kind::Section(_)));
    match id.map(|id| btf.kind(id)) {
        Some(Kind::Section(variables)) => variables,
        _ => &[],
    }
}

/// Reads all sections of variables.
pub(crate) fn read(elf: &Elf, btf: &Btf) -> Result<Vec<(SectionIndex, DataSection)>, ScxError> {
    let mut sections = Vec::new();
    for section in elf.sections() {
        let name = section_name(&section);
        let mine = |prefix: &str| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let read_only = mine(".rodata");
        if !read_only && !mine(".data") && !mine(".bss") && !mine(".addr_space") {
            continue;
        }
        let bytes = match section.kind() {
            SectionKind::UninitializedData if section.size() <= MOST_BYTES => {
                vec![0; section.size() as usize]
            }
            SectionKind::UninitializedData => {
                return Err(ScxError::broken(format!("section {name}: too large")));
            }
            _ => section
                .data()
                .map_err(|error| ScxError::broken(format!("section {name}: {error}")))?
                .to_vec(),
        };
        let variables = variables(elf, btf, section.index(), &name, bytes.len())?;
        sections.push((section.index(), DataSection { name, bytes, read_only, variables }));
    }
    Ok(sections)
}

fn variables(
    elf: &Elf,
    btf: &Btf,
    section: SectionIndex,
    name: &str,
    len: usize,
) -> Result<Vec<Variable>, ScxError> {
    let mut variables = Vec::new();
    for described in variables_of(btf, name) {
        let Kind::Variable { of, global } = *btf.kind(described.variable) else { continue };
        let name = btf.name(described.variable).to_owned();
        // clang puts the place of a global variable only into the symbol table.
        let symbol = elf
            .symbols()
            .filter(|symbol| symbol.section_index() == Some(section) && symbol.name() == Ok(&name))
            .map(|symbol| symbol.address() as u32)
            .next();
        let offset = symbol.filter(|_| global).unwrap_or(described.offset);
        let size = btf.size(of).unwrap_or(described.size);
        if offset.checked_add(size).is_none_or(|end| end as usize > len) {
            return Err(ScxError::broken(format!("variable {name} leaves its section")));
        }
        variables.push(Variable { name, of, offset, size, global });
    }
    variables.sort_by_key(|variable| variable.offset);
    Ok(variables)
}
