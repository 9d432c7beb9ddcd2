//! A BPF object that clang compiled. Things that a loader would combine are referred to by name instead of by number.
//!
//! 1. The ELF file is read by the crate `object`: sections, symbols, relocations.
//! 2. The instructions of all sections go into one list, [`Object::code`], so that a place in the program is a single
//!    number.
//! 3. Relocations become [`Reference`]s: an instruction needs the address of a map, variable or function.
//! 4. Maps, variables and schedulers are read from the sections that BTF describes.

mod code;
mod data;
mod maps;
mod ops;

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::btf::Btf;
use crate::btf_ext::{self, Record};
use crate::error::ScxError;
use crate::instruction::Instruction;

pub use data::{DataSection, Variable};
pub use maps::{MapDefinition, MapKind};
pub use ops::Operations;

pub(crate) type Elf<'a> = ElfFile64<'a, Endianness>;

/// What a loader knows about a BPF object before it is fitted to a kernel.
#[derive(Clone, Debug)]
pub struct Object {
    /// The object's types.
    pub btf: Btf,
    /// The instructions of all sections, one section after the other.
    pub code: Vec<Instruction>,
    /// The functions, in the order of `code`.
    pub functions: Vec<Function>,
    /// What instructions refer to, in the order of `code`.
    pub references: Vec<Reference>,
    /// Source lines of instructions, in the order of `code`.
    pub lines: Vec<Line>,
    /// Instructions that depend on the kernel's types.
    pub relocations: Vec<TypeRelocation>,
    /// Its maps.
    pub maps: Vec<MapDefinition>,
    /// The variables, by section.
    pub data: Vec<DataSection>,
    /// Functions and variables of the kernel that the object uses.
    pub externs: Vec<Extern>,
    /// The scheduler that it defines.
    pub operations: Operations,
}

/// A function of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its section, which determines when the kernel calls it.
    pub section: String,
    /// Its first instruction in the object's code.
    pub start: usize,
    /// The instruction after its last.
    pub end: usize,
}

/// An instruction's reference to a map, variable or function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The instruction.
    pub at: usize,
    /// The target of the reference.
    pub to: Target,
}

/// The target of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A map: its index in [`Object::maps`].
    Map(usize),
    /// A byte in a section of variables.
    Data {
        /// Index of the section in [`Object::data`].
        section: usize,
        /// Offset of the byte.
        offset: u64,
    },
    /// A byte of the arena: its offset.
    Arena(u64),
    /// A function: its first instruction.
    Function(usize),
    /// A function or variable of the kernel: its index in [`Object::externs`].
    Extern(usize),
}

/// A source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The first instruction of the line.
    pub at: usize,
    /// The file's name.
    pub file: String,
    /// The line's number, from 1.
    pub number: u32,
}

/// An instruction that depends on the kernel's types (CO-RE).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeRelocation {
    /// The instruction.
    pub at: usize,
    /// A type of the object.
    pub of: u32,
    /// The member in question: indices, separated by colons.
    pub access: String,
    /// The question's number in the kernel (`enum bpf_core_relo_kind`).
    pub kind: u32,
}

/// A function or variable of the kernel that the object uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extern {
    /// Its name. A suffix after `___` distinguishes variants.
    pub name: String,
    /// Whether the object can do without it.
    pub weak: bool,
    /// Its type in the object.
    pub of: u32,
    /// Whether it belongs to the kernel's configuration (`__kconfig`).
    pub kconfig: bool,
}

/// The compiled `bpf/`, made by `tools/bpf-object`.
const ROOST: &[u8] = include_bytes!("../roost.bpf.o");

impl Object {
    /// The scheduler of this project.
    ///
    /// # Errors
    /// None, unless this program is damaged.
    pub fn roost() -> Result<Self, ScxError> {
        Self::parse(ROOST)
    }

    /// Reads an object.
    ///
    /// # Errors
    /// If the bytes are not a BPF object, contradict themselves, or do not define exactly one sched_ext scheduler.
    pub fn parse(bytes: &[u8]) -> Result<Self, ScxError> {
        let elf = Elf::parse(bytes).map_err(|error| ScxError::NotBpf(error.to_string()))?;
        if elf.architecture() != object::Architecture::Bpf || !elf.is_little_endian() {
            return Err(ScxError::NotBpf(format!("ELF for {:?}", elf.architecture())));
        }
        let btf = Btf::parse(section_bytes(&elf, ".BTF")?)?;
        let extension = match elf.section_by_name(".BTF.ext") {
            Some(_) => btf_ext::parse(section_bytes(&elf, ".BTF.ext")?, &btf)?,
            None => btf_ext::Extension::default(),
        };
        let layout = code::Layout::read(&elf)?;
        let maps = maps::read(&elf, &btf)?;
        let data = data::read(&elf, &btf)?;
        let externs = externs(&elf, &btf);
        let references = code::references(&elf, &layout, &maps, &data, &externs)?;
        let operations = ops::read(&elf, &btf, &layout)?;
        Ok(Self {
            lines: lines(&extension.lines, &layout, &btf),
            relocations: relocations(&extension.relocations, &layout, &btf)?,
            functions: layout.functions,
            code: layout.code,
            references,
            maps: maps.into_iter().map(|(_, map)| map).collect(),
            data: data.into_iter().map(|(_, section)| section).collect(),
            externs,
            operations,
            btf,
        })
    }

    /// The function that contains an instruction.
    pub fn function_at(&self, at: usize) -> Option<&Function> {
        self.functions.iter().find(|function| (function.start..function.end).contains(&at))
    }

    /// The source line of an instruction.
    pub fn line_at(&self, at: usize) -> Option<&Line> {
        let function = self.function_at(at)?;
        let after = self.lines.partition_point(|line| line.at <= at);
        self.lines[..after].last().filter(|line| line.at >= function.start)
    }

    /// An instruction as text for messages: function, number within the function, file and line.
    pub fn place(&self, at: usize) -> String {
        let Some(function) = self.function_at(at) else { return format!("instruction {at}") };
        let place = format!("{} instruction {}", function.name, at - function.start);
        match self.line_at(at) {
            Some(line) => format!("{place}, {}:{}", line.file, line.number),
            None => place,
        }
    }

    /// The variable with this name, and the index of its section in [`Object::data`].
    pub fn variable(&self, name: &str) -> Option<(usize, &Variable)> {
        self.data.iter().enumerate().find_map(|(index, section)| {
            let variable = section.variables.iter().find(|variable| variable.name == name)?;
            Some((index, variable))
        })
    }

    /// The functions that `start` can reach by calls and callbacks. The first one is `start` itself.
    pub fn reachable(&self, start: usize) -> Vec<&Function> {
        let mut found: Vec<&Function> = self.function_at(start).into_iter().collect();
        let mut done = 0;
        while let Some(&function) = found.get(done) {
            done += 1;
            for reference in self.references_in(function) {
                let Target::Function(at) = reference.to else { continue };
                let callee = self.function_at(at);
                found.extend(callee.filter(|callee| !found.contains(callee)));
            }
        }
        found
    }

    /// The references of a function's instructions.
    pub fn references_in(&self, function: &Function) -> &[Reference] {
        let from = self.references.partition_point(|reference| reference.at < function.start);
        let to = self.references.partition_point(|reference| reference.at < function.end);
        &self.references[from..to]
    }
}

/// The bytes of a section of the file.
pub(crate) fn section_bytes<'a>(elf: &Elf<'a>, name: &'static str) -> Result<&'a [u8], ScxError> {
    let section = elf.section_by_name(name).ok_or(ScxError::NoSection(name))?;
    section.data().map_err(|error| ScxError::broken(format!("section {name}: {error}")))
}

/// A section's name. Empty if it is not valid text.
pub(crate) fn section_name<'a>(section: &impl object::ObjectSection<'a>) -> String {
    section.name().unwrap_or("").to_owned()
}

/// Symbols that the file does not define: functions and variables of the kernel.
fn externs(elf: &Elf, btf: &Btf) -> Vec<Extern> {
    let of_kconfig = data::variables_of(btf, ".kconfig");
    let undefined = elf.symbols().filter(|symbol| symbol.is_undefined() && symbol.is_global());
    let extern_of = |symbol: object::read::elf::ElfSymbol64<'_, '_>| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        let of = btf.find(name, |kind| {
            matches!(kind, crate::btf::Kind::Function(_) | crate::btf::Kind::Variable { .. })
        });
        let kconfig = of_kconfig.iter().any(|variable| Some(variable.variable) == of);
        Some(Extern { name: name.to_owned(), weak: symbol.is_weak(), of: of.unwrap_or(0), kconfig })
    };
    undefined.filter_map(extern_of).collect()
}

fn lines(records: &[Record], layout: &code::Layout, btf: &Btf) -> Vec<Line> {
    let line = |record: &Record| {
        let at = layout.place(&record.section, record.offset.into())?;
        let [file, _, number] = record.words;
        Some(Line { at, file: btf.text(file).to_owned(), number: number >> 10 })
    };
    let mut lines: Vec<Line> = records.iter().filter_map(line).collect();
    lines.sort_by_key(|line| line.at);
    lines
}

fn relocations(
    records: &[Record],
    layout: &code::Layout,
    btf: &Btf,
) -> Result<Vec<TypeRelocation>, ScxError> {
    let relocation = |record: &Record| {
        let at = layout.place(&record.section, record.offset.into()).ok_or_else(|| {
            ScxError::btf(format!("a relocation in {} is outside of its code", record.section))
        })?;
        let [of, access, kind] = record.words;
        Ok(TypeRelocation { at, of, access: btf.text(access).to_owned(), kind })
    };
    records.iter().map(relocation).collect()
}
