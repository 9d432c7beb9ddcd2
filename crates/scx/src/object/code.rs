//! Instructions, functions, and the targets that instructions refer to.

use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex,
    SectionKind, SymbolKind,
};

use super::{DataSection, Elf, Extern, Function, MapDefinition, Reference, Target, section_name};
use crate::error::ScxError;
use crate::instruction::{Instruction, LOAD_64};

/// The sections with instructions, one after the other.
pub(crate) struct Layout {
    pub code: Vec<Instruction>,
    pub functions: Vec<Function>,
    /// Number and name of each section, its first instruction, and its number of instructions.
    sections: Vec<(SectionIndex, String, usize, usize)>,
}

impl Layout {
    pub(crate) fn read(elf: &Elf) -> Result<Self, ScxError> {
        let mut layout = Self { code: Vec::new(), functions: Vec::new(), sections: Vec::new() };
        for section in elf.sections().filter(|section| section.kind() == SectionKind::Text) {
            let name = section_name(&section);
            let bytes = section
                .data()
                .map_err(|error| ScxError::broken(format!("section {name}: {error}")))?;
            let (instructions, rest) = bytes.as_chunks::<8>();
            if !rest.is_empty() {
                return Err(ScxError::broken(format!("section {name}: half an instruction")));
            }
            let first = layout.code.len();
            layout.sections.push((section.index(), name, first, instructions.len()));
            layout.code.extend(instructions.iter().map(|&bytes| Instruction::decode(bytes)));
        }
        layout.read_functions(elf);
        Ok(layout)
    }

    fn read_functions(&mut self, elf: &Elf) {
        for symbol in elf.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
            let section = symbol.section_index().and_then(|index| self.by_index(index));
            let Some((_, section, first, count)) = section else { continue };
            let (start, len) = ((symbol.address() / 8) as usize, (symbol.size() / 8) as usize);
            let end = start.saturating_add(len).min(*count);
            if start < end {
                let name = symbol.name().unwrap_or("").to_owned();
                let section = section.clone();
                let (start, end) = (first + start, first + end);
                self.functions.push(Function { name, section, start, end });
            }
        }
        self.functions.sort_by_key(|function| function.start);
    }

    fn by_index(&self, index: SectionIndex) -> Option<&(SectionIndex, String, usize, usize)> {
        self.sections.iter().find(|section| section.0 == index)
    }

    /// The index of the instruction at a byte of a section.
    pub(crate) fn place(&self, section: &str, offset: u64) -> Option<usize> {
        let (_, _, first, count) = self.sections.iter().find(|(_, name, ..)| name == section)?;
        let index = usize::try_from(offset / 8).ok()?;
        (offset.is_multiple_of(8) && index < *count).then_some(first + index)
    }

    /// The index of the instruction at a symbol's place in a section.
    pub(crate) fn place_by_index(&self, section: SectionIndex, offset: u64) -> Option<usize> {
        let name = &self.by_index(section)?.1;
        self.place(name, offset)
    }
}

/// The references that relocations create, sorted by instruction. Calls without a relocation are included.
pub(crate) fn references(
    elf: &Elf,
    layout: &Layout,
    maps: &[(u64, MapDefinition)],
    data: &[(SectionIndex, DataSection)],
    externs: &[Extern],
) -> Result<Vec<Reference>, ScxError> {
    let mut references = Vec::new();
    let resolver = Resolver { elf, layout, maps, data, externs };
    for section in elf.sections().filter(|section| section.kind() == SectionKind::Text) {
        let name = section_name(&section);
        for (offset, relocation) in section.relocations() {
            let at = layout.place(&name, offset).ok_or_else(|| {
                ScxError::broken(format!("section {name}: a relocation is outside of the code"))
            })?;
            let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
            let to = resolver.target(at, symbol).ok_or_else(|| {
                let place = at - layout.place(&name, 0).unwrap_or(0);
                ScxError::broken(format!(
                    "section {name}: instruction {place} refers to something that is not there"
                ))
            })?;
            references.push(Reference { at, to });
        }
    }
    references.sort_by_key(|reference| reference.at);
    references.dedup_by_key(|reference| reference.at);
    local_calls(layout, &mut references)?;
    Ok(references)
}

/// Adds calls within a section. clang writes no relocation for them.
fn local_calls(layout: &Layout, references: &mut Vec<Reference>) -> Result<(), ScxError> {
    let mut missing = Vec::new();
    for (at, instruction) in layout.code.iter().enumerate() {
        let known = references.binary_search_by_key(&at, |reference| reference.at).is_ok();
        if instruction.calls_function() && !known {
            let to = at as i64 + 1 + i64::from(instruction.imm);
            let target = usize::try_from(to).ok().filter(|&to| to < layout.code.len());
            let target = target.ok_or_else(|| ScxError::broken("a call leaves the code"))?;
            missing.push(Reference { at, to: Target::Function(target) });
        }
    }
    references.extend(missing);
    references.sort_by_key(|reference| reference.at);
    Ok(())
}

struct Resolver<'a> {
    elf: &'a Elf<'a>,
    layout: &'a Layout,
    maps: &'a [(u64, MapDefinition)],
    data: &'a [(SectionIndex, DataSection)],
    externs: &'a [Extern],
}

impl Resolver<'_> {
    fn target(&self, at: usize, symbol: object::SymbolIndex) -> Option<Target> {
        let symbol = self.elf.symbol_by_index(symbol).ok()?;
        if symbol.is_undefined() {
            let name = symbol.name().ok()?;
            let index = self.externs.iter().position(|known| known.name == name)?;
            return Some(Target::Extern(index));
        }
        let section = symbol.section_index()?;
        let instruction = self.layout.code[at];
        if self.layout.by_index(section).is_some() {
            // The operand of a call counts instructions from the next one. The operand of a load is in bytes.
            let more = match instruction.code {
                LOAD_64 => i64::from(instruction.imm) / 8,
                _ => i64::from(instruction.imm) + 1,
            };
            let offset = symbol.address().checked_add_signed(more.checked_mul(8)?)?;
            return Some(Target::Function(self.layout.place_by_index(section, offset)?));
        }
        let offset = symbol.address();
        if self.elf.section_by_index(section).ok()?.name() == Ok(".maps") {
            let index = self.maps.iter().position(|(at, _)| *at == offset)?;
            return Some(Target::Map(index));
        }
        let index = self.data.iter().position(|(known, _)| *known == section)?;
        let offset = offset.checked_add_signed(instruction.imm.into())?;
        // The end of the last variable is a valid address too.
        (offset <= self.data[index].1.bytes.len() as u64)
            .then_some(Target::Data { section: index, offset })
    }
}
