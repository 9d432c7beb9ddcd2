//! Makes a program from what a loader gave to the kernel until it attached its scheduler.
//!
//! The loader's library (libbpf) has answered all questions about the kernel's types already. It loaded each hook as a
//! program of its own, with a copy of every function that the hook can reach. Here
//!
//! 1. programs are cut into functions, by their information about functions;
//! 2. copies of the same function become one;
//! 3. numbers of maps, kfuncs and functions become references, as the object's relocations are ([`Reference`]);
//! 4. maps of variables become sections of variables, and the contents of all others become initial entries.
//!
//! The input comes from a program that nobody trusts. The result is a program, or an error of one line.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::btf::{Btf, Kind, TypeId};
use crate::bytes::{text_at, u32_at, u64_at};
use crate::early::EarlyMasks;
use crate::error::ScxError;
use crate::instruction::{CALL, Instruction, LOAD_64};
use crate::kernel_names::Resolved;
use crate::kernel_types::KernelTypes;
use crate::maps::ARENA;
use crate::object::{
    DataSection, Extern, Function, Line, MapDefinition, Object, Operations, Reference, Target,
    Variable,
};
use crate::program::{Entry, Program, Run};
use crate::relocate::POISON;
use crate::sparse::Sparse;

/// The type by which a loader gives a scheduler to the kernel: `struct sched_ext_ops` behind the kernel's own members.
pub const STRUCT_OPS_VALUE: &str = "bpf_struct_ops_sched_ext_ops";

/// What a loader gave to the kernel until it attached its scheduler. Maps and programs are numbered in the order in
/// which they were created.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Loaded {
    /// Type information (`BPF_BTF_LOAD`).
    pub btfs: Vec<Vec<u8>>,
    /// Maps (`BPF_MAP_CREATE`).
    pub maps: Vec<LoadedMap>,
    /// Programs (`BPF_PROG_LOAD`).
    pub programs: Vec<LoadedProgram>,
    /// The scheduler's operations.
    pub operations: LoadedOperations,
    /// Programs that the loader had run (`BPF_PROG_TEST_RUN`), with the bytes of their argument.
    pub runs: Vec<(usize, Vec<u8>)>,
    /// Masks that programs have made which were run at once. Values of arrays have what stands for them.
    pub masks: EarlyMasks,
}

/// A map with its contents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadedMap {
    /// How it was created. The name is cut off after 15 bytes. The value's type is a number in `btf`.
    pub definition: MapDefinition,
    /// Its type information, if it has any.
    pub btf: Option<usize>,
    /// The entries of an array, one after the other; of a per-CPU array for each CPU and, within, for each entry.
    pub array: Sparse,
    /// Pages of an arena that are not empty: number and bytes.
    pub pages: Vec<(u32, Vec<u8>)>,
    /// Keys and values of a map of another kind.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadedProgram {
    /// Its name.
    pub name: String,
    /// When the kernel calls it, as an object's section names it.
    pub section: String,
    /// Its type information, if it has any.
    pub btf: Option<usize>,
    /// Its instructions. Numbers of maps replace descriptors.
    pub code: Vec<Instruction>,
    /// The first instruction and the type of each function.
    pub functions: Vec<[u32; 2]>,
    /// The first instruction of each source line, the file, the text and the line's number (`struct bpf_line_info`).
    pub lines: Vec<[u32; 4]>,
}

impl LoadedProgram {
    /// Whether it can reach the arena, which is one of these maps.
    pub fn reaches_arena(&self, maps: &[MapDefinition]) -> bool {
        let is_arena = |map: i32| maps.get(map as usize).is_some_and(|map| map.kind == ARENA);
        self.code.iter().any(|instruction| {
            let names_map = matches!(instruction.src, OF_MAP | OF_MAP_VALUE);
            let loads = instruction.code == LOAD_64 && names_map && is_arena(instruction.imm);
            loads || instruction.casts()
        })
    }
}

/// A value of the map that describes the scheduler.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoadedOperations {
    /// The map's name.
    pub name: String,
    /// The bytes of the kernel's type [`STRUCT_OPS_VALUE`]. Hooks are descriptors.
    pub value: Vec<u8>,
    /// Descriptors of programs.
    pub descriptors: HashMap<u64, usize>,
}

/// Values of `src` in a load of 64 bits (`BPF_PSEUDO_*` in `include/uapi/linux/bpf.h`), and of a call.
const OF_MAP: u8 = 1;
const OF_MAP_VALUE: u8 = 2;
const OF_KERNEL: u8 = 3;
const OF_FUNCTION: u8 = 4;
const CALL_KFUNC: u8 = 2;

/// Numbers of helpers from here to [`POISON_END`] stand for things that the kernel does not have, in code that libbpf
/// has prepared (`POISON_*_BASE` in its libbpf.c).
const POISON_BASE: u32 = 2_000_000_000;
const POISON_END: u32 = 2_100_000_000;

/// BPF_F_RDONLY_PROG: programs may only read the map.
const READ_ONLY: u32 = 1 << 7;

impl Program {
    /// Takes a scheduler over from its loader, which believed to run on a kernel with these types.
    ///
    /// # Errors
    /// If what the loader gave contradicts itself.
    pub fn taken_over(
        loaded: &Loaded,
        kernel: impl Into<Arc<KernelTypes>>,
    ) -> Result<Self, ScxError> {
        let kernel = kernel.into();
        let hooks = loaded.operations.descriptors.values();
        // The programs of a scheduler have the same types, which are loaded before all of them.
        let of = hooks.filter_map(|&program| loaded.programs.get(program)?.btf).max();
        let of = of.ok_or_else(|| ScxError::broken("its hooks were loaded without types"))?;
        let mut takeover = Takeover::new(loaded, &kernel, of)?;
        let operations = takeover.operations()?;
        let mut runs = Vec::new();
        for (program, argument) in &loaded.runs {
            runs.push(Run { at: takeover.program(*program)?, argument: argument.clone() });
        }
        for program in 0..loaded.programs.len() {
            // Programs without its types are no part of the scheduler: libraries try what the kernel can do.
            if loaded.programs[program].btf == Some(takeover.of) {
                takeover.program(program)?;
            }
        }
        takeover.finish(operations, runs)
    }

    /// Takes over one program that a loader wants to run before it attaches its scheduler. Also returns what each map
    /// of the loader is.
    pub(crate) fn taken_over_alone(
        loaded: &Loaded,
        kernel: impl Into<Arc<KernelTypes>>,
        number: usize,
    ) -> Result<(Self, Vec<Became>), ScxError> {
        let kernel = kernel.into();
        let of = loaded.programs.get(number).and_then(|program| program.btf);
        let of = of.ok_or_else(|| ScxError::broken("a program was loaded without types"))?;
        let mut takeover = Takeover::new(loaded, &kernel, of)?;
        let run = Run { at: takeover.program(number)?, argument: Vec::new() };
        let places = takeover.places.clone();
        Ok((takeover.finish(Operations::default(), vec![run])?, places))
    }
}

/// What a map of the loader becomes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Became {
    /// A map, by number.
    Map(usize),
    /// A section of variables, by number.
    Data(usize),
    /// It is no part of the scheduler.
    Nothing,
}

/// Numbers of the maps to which programs with these types refer.
fn used_maps(loaded: &Loaded, of: usize) -> HashSet<usize> {
    let programs = loaded.programs.iter().filter(|program| program.btf == Some(of));
    let loads = programs.flat_map(|program| &program.code).filter(|load| load.code == LOAD_64);
    let maps = loads.filter(|load| matches!(load.src, OF_MAP | OF_MAP_VALUE));
    maps.map(|load| load.imm as usize).collect()
}

struct Takeover<'a> {
    loaded: &'a Loaded,
    kernel: &'a Arc<KernelTypes>,
    /// Number of the type information of the scheduler's programs.
    of: usize,
    btf: Btf,
    places: Vec<Became>,
    maps: Vec<MapDefinition>,
    entries: Vec<Entry>,
    pages: Vec<(u32, Vec<u8>)>,
    data: Vec<DataSection>,
    externs: Vec<Extern>,
    resolved: Vec<Resolved>,
    code: Vec<Instruction>,
    functions: Vec<Function>,
    references: Vec<Reference>,
    lines: Vec<Line>,
    /// First instruction of each function, by its type and its own code.
    known: HashMap<(TypeId, Vec<Instruction>), usize>,
    /// First instruction of each program that was taken over.
    programs: HashMap<usize, usize>,
}

/// A part of a program: a function.
struct Piece {
    start: usize,
    end: usize,
    of: TypeId,
}

impl<'a> Takeover<'a> {
    fn new(loaded: &'a Loaded, kernel: &'a Arc<KernelTypes>, of: usize) -> Result<Self, ScxError> {
        let btf = loaded.btfs.get(of).ok_or_else(|| ScxError::broken("its types are missing"))?;
        let mut takeover = Self {
            loaded,
            kernel,
            of,
            btf: Btf::parse(btf)?,
            places: Vec::new(),
            maps: Vec::new(),
            entries: Vec::new(),
            pages: Vec::new(),
            data: Vec::new(),
            externs: Vec::new(),
            resolved: Vec::new(),
            code: Vec::new(),
            functions: Vec::new(),
            references: Vec::new(),
            lines: Vec::new(),
            known: HashMap::new(),
            programs: HashMap::new(),
        };
        let used = used_maps(loaded, of);
        for (number, map) in loaded.maps.iter().enumerate() {
            // Libraries try whether the kernel has arenas.
            let tried = map.definition.kind == ARENA && !used.contains(&number);
            let place = if tried { Became::Nothing } else { takeover.map(map) };
            takeover.places.push(place);
        }
        Ok(takeover)
    }

    /// Takes a map over.
    fn map(&mut self, map: &LoadedMap) -> Became {
        if map.btf.is_some_and(|btf| btf != self.of) {
            return Became::Nothing;
        }
        let of = map.definition.value;
        let described = match self.btf.kind(of) {
            Kind::Section(variables) => Some(variables.as_slice()),
            // A section of constants that nothing describes, such as `.rodata.str1.1`: no map of C has such a name.
            _ => map.definition.name.contains('.').then_some([].as_slice()),
        };
        if let Some(variables) = described {
            let variables = variables.iter().filter_map(|variable| {
                let Kind::Variable { of, global } = *self.btf.kind(variable.variable) else {
                    return None;
                };
                let name = self.btf.name(variable.variable).to_owned();
                let (offset, size) = (variable.offset, variable.size);
                let fits = u64::from(offset.checked_add(size)?) <= map.array.len();
                fits.then_some(Variable { name, of, offset, size, global })
            });
            self.data.push(DataSection {
                name: if of == 0 { &map.definition.name } else { self.btf.name(of) }.to_owned(),
                bytes: map.array.to_vec(),
                read_only: map.definition.flags & READ_ONLY != 0,
                variables: variables.collect(),
            });
            return Became::Data(self.data.len() - 1);
        }
        let number = self.maps.len();
        self.maps.push(MapDefinition { name: self.full_name(map), ..map.definition.clone() });
        self.add_entries(number, map);
        self.pages.extend(map.pages.clone());
        Became::Map(number)
    }

    /// The name of a map, which the kernel cuts off after 15 bytes. The types have it whole.
    fn full_name(&self, map: &LoadedMap) -> String {
        let short = &map.definition.name;
        let section = self.btf.find(".maps", |kind| matches!(kind, Kind::Section(_)));
        let Some(Kind::Section(variables)) = section.map(|id| self.btf.kind(id)) else {
            return short.clone();
        };
        let names = variables.iter().map(|variable| self.btf.name(variable.variable));
        let taken = |name: &&str| !self.maps.iter().any(|map| map.name == *name);
        let mut fitting = names.filter(|name| short.len() == 15 && name.starts_with(short));
        fitting.find(taken).unwrap_or(short).to_owned()
    }

    fn add_entries(&mut self, map: usize, loaded: &LoadedMap) {
        let stride = (loaded.definition.value_size as usize).next_multiple_of(8).max(8);
        let of_cpu = loaded.definition.max_entries as usize;
        for (number, mut value) in loaded.array.values(stride) {
            let (cpu, index) = (number / of_cpu.max(1), number % of_cpu.max(1));
            let key = (index as u32).to_le_bytes().to_vec();
            value.truncate(loaded.definition.value_size as usize);
            self.entries.push(Entry { map, cpu, key, value });
        }
        for (key, value) in &loaded.entries {
            self.entries.push(Entry { map, cpu: 0, key: key.clone(), value: value.clone() });
        }
    }

    /// Reads the scheduler's operations. Takes its hooks over.
    fn operations(&mut self) -> Result<Operations, ScxError> {
        let LoadedOperations { name, value, descriptors } = &self.loaded.operations;
        let kernel = self.kernel.clone();
        let start = kernel.offset(STRUCT_OPS_VALUE, "data")? as usize;
        let of = kernel.btf.composite("sched_ext_ops");
        let of = of.ok_or_else(|| ScxError::btf("the kernel has no sched_ext_ops"))?;
        let mut operations = Operations { variable: name.clone(), ..Operations::default() };
        let Kind::Composite { members, .. } = kernel.btf.kind(of) else { return Ok(operations) };
        for member in members {
            let name = kernel.btf.text(member.name).to_owned();
            let at = start + member.bit_offset as usize / 8;
            let cut = || ScxError::broken(format!("{name} is missing in its operations"));
            match kernel.btf.kind(kernel.btf.plain(member.of)) {
                Kind::Pointer(_) => {
                    let program = descriptors.get(&u64_at(value, at).ok_or_else(cut)?);
                    if let Some(&program) = program {
                        let hook = self.program(program)?;
                        operations.hooks.push((name, hook));
                    }
                }
                Kind::Array { .. } if name == "name" => {
                    text_at(value, at).ok_or_else(cut)?.clone_into(&mut operations.name);
                }
                Kind::Int { .. } | Kind::Enum { .. } => {
                    let number = match kernel.btf.size(member.of) {
                        Some(8) => u64_at(value, at).ok_or_else(cut)?,
                        _ => u32_at(value, at).ok_or_else(cut)?.into(),
                    };
                    if number != 0 {
                        operations.numbers.push((name, number));
                    }
                }
                _ => {}
            }
        }
        Ok(operations)
    }

    /// Takes a program over. Returns its first instruction.
    fn program(&mut self, number: usize) -> Result<usize, ScxError> {
        if let Some(&at) = self.programs.get(&number) {
            return Ok(at);
        }
        let programs = &self.loaded.programs;
        let program = programs.get(number).ok_or_else(|| ScxError::broken("a lost program"))?;
        let pieces = pieces(program)?;
        let mut starts = Vec::new();
        let mut new = Vec::new();
        for piece in &pieces {
            let code = &program.code[piece.start..piece.end];
            let key = (piece.of, comparable(code, piece.start, &pieces));
            let start = *self.known.entry(key).or_insert(self.code.len());
            if start == self.code.len() {
                self.code.extend(code);
                let is_first = piece.start == 0;
                self.name_function(program, piece, start, is_first);
                new.push((piece, start));
            }
            starts.push(start);
        }
        for (piece, start) in new {
            self.refer(program, piece, start, &pieces, &starts)?;
        }
        let at = starts[0];
        self.programs.insert(number, at);
        Ok(at)
    }

    /// Adds a function that is new, with its source lines.
    fn name_function(&mut self, program: &LoadedProgram, piece: &Piece, start: usize, first: bool) {
        let name = match self.btf.name(piece.of) {
            "" if first => program.name.clone(),
            "" => format!("{}+{}", program.name, piece.start),
            name => name.to_owned(),
        };
        let section = if first { program.section.clone() } else { ".text".to_owned() };
        let end = start + piece.end - piece.start;
        self.functions.push(Function { name, section, start, end });
        for [at, file, _, number] in &program.lines {
            let at = *at as usize;
            if (piece.start..piece.end).contains(&at) {
                let file = self.btf.text(*file).to_owned();
                self.lines.push(Line { at: start + at - piece.start, file, number: number >> 10 });
            }
        }
    }

    /// Replaces numbers in a function's code by references.
    fn refer(
        &mut self,
        program: &LoadedProgram,
        piece: &Piece,
        start: usize,
        pieces: &[Piece],
        starts: &[usize],
    ) -> Result<(), ScxError> {
        let mut own = piece.start;
        while own < piece.end {
            let at = start + own - piece.start;
            let instruction = program.code[own];
            if is_poison(instruction) {
                self.code[at].imm = POISON;
            }
            if let Some(to) = callee(own, instruction) {
                let function = pieces.iter().position(|piece| piece.start as i64 == to);
                let function =
                    function.ok_or_else(|| ScxError::broken("a call leaves the code"))?;
                self.references.push(Reference { at, to: Target::Function(starts[function]) });
            } else if instruction.code == CALL && instruction.src == CALL_KFUNC {
                let to = self.of_kernel(instruction.imm as u32)?;
                self.code[at] = Instruction { src: 1, imm: -1, offset: 0, ..instruction };
                self.references.push(Reference { at, to });
            } else if instruction.code == LOAD_64 && instruction.src != 0 {
                let upper = program.code.get(own + 1).map_or(0, |upper| upper.imm as u32);
                let to = self.loads(instruction, upper)?;
                self.code[at].src = 0;
                self.references.push(Reference { at, to });
            }
            own += if instruction.code == LOAD_64 { 2 } else { 1 };
        }
        Ok(())
    }

    /// What a load of 64 bits refers to.
    fn loads(&mut self, instruction: Instruction, upper: u32) -> Result<Target, ScxError> {
        let unknown = || ScxError::Lacks(format!("an address of kind {} in code", instruction.src));
        let place = self.places.get(instruction.imm as usize).copied().unwrap_or(Became::Nothing);
        match (instruction.src, place) {
            (OF_MAP, Became::Map(map)) => Ok(Target::Map(map)),
            (OF_MAP_VALUE, Became::Data(section)) => {
                let offset = u64::from(upper);
                let inside = offset <= self.data[section].bytes.len() as u64;
                let outside = || ScxError::broken("an address is outside of its variables");
                inside.then_some(Target::Data { section, offset }).ok_or_else(outside)
            }
            (OF_MAP_VALUE, Became::Map(map)) if self.maps[map].kind == ARENA => {
                Ok(Target::Arena(upper.into()))
            }
            (OF_MAP | OF_MAP_VALUE, _) => Err(ScxError::broken("code refers to a lost map")),
            (OF_KERNEL, _) => self.of_kernel(instruction.imm as u32),
            _ => Err(unknown()),
        }
    }

    /// A function or variable of the kernel, by its number in the kernel's types.
    fn of_kernel(&mut self, id: TypeId) -> Result<Target, ScxError> {
        let btf = &self.kernel.btf;
        let name = btf.name(id).to_owned();
        let resolved = match btf.kind(id) {
            Kind::Function(_) => Resolved::Function(name.clone()),
            Kind::Variable { .. } => Resolved::Variable(id),
            _ => return Err(ScxError::broken("code refers to an unknown name of the kernel")),
        };
        let known = self.externs.iter().position(|known| known.name == name);
        Ok(Target::Extern(known.unwrap_or_else(|| {
            self.externs.push(Extern { name, weak: false, of: 0, kconfig: false });
            self.resolved.push(resolved);
            self.externs.len() - 1
        })))
    }

    fn finish(self, operations: Operations, runs: Vec<Run>) -> Result<Program, ScxError> {
        let (mut references, mut lines) = (self.references, self.lines);
        references.sort_by_key(|reference| reference.at);
        lines.sort_by_key(|line| line.at);
        let data = self.data.iter().map(|section| section.bytes.clone()).collect();
        let object = Object {
            btf: self.btf,
            code: self.code.clone(),
            functions: self.functions,
            references,
            lines,
            relocations: Vec::new(),
            maps: self.maps.clone(),
            data: self.data,
            externs: self.externs,
            operations,
        };
        Ok(Program {
            object: Arc::new(object),
            kernel: self.kernel.clone(),
            asked: Vec::new(),
            code: self.code,
            externs: self.resolved,
            data,
            maps: self.maps,
            entries: self.entries,
            pages: self.pages,
            masks: self.loaded.masks.clone(),
            runs,
            counters: Vec::new(),
            checks_pointers: true,
            is_taken_over: true,
        })
    }
}

/// Cuts a program into its functions.
fn pieces(program: &LoadedProgram) -> Result<Vec<Piece>, ScxError> {
    let len = program.code.len();
    let mut starts: Vec<(usize, TypeId)> =
        program.functions.iter().map(|&[at, of]| (at as usize, of)).collect();
    starts.sort_unstable();
    starts.dedup_by_key(|(at, _)| *at);
    let in_order = starts.first().is_some_and(|(at, _)| *at == 0);
    if !in_order || starts.last().is_some_and(|(at, _)| *at >= len) {
        return Err(ScxError::broken(format!(
            "program {}: where are its functions?",
            program.name
        )));
    }
    let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([len]);
    let piece = |(&(start, of), end)| Piece { start, end, of };
    Ok(starts.iter().zip(ends).map(piece).collect())
}

/// The place that an instruction calls, or whose address it loads, if that is a function of the program.
fn callee(at: usize, instruction: Instruction) -> Option<i64> {
    let loads = instruction.code == LOAD_64 && instruction.src == OF_FUNCTION;
    (instruction.calls_function() || loads).then(|| at as i64 + 1 + i64::from(instruction.imm))
}

/// Whether an instruction stands for something that the kernel does not have.
fn is_poison(instruction: Instruction) -> bool {
    instruction.helper().is_some_and(|number| (POISON_BASE..POISON_END).contains(&number))
}

/// A function's code in a form that is the same in all programs that have a copy of it: distances to other functions
/// become the types of these functions.
fn comparable(code: &[Instruction], start: usize, pieces: &[Piece]) -> Vec<Instruction> {
    let own = |(at, &instruction): (usize, &Instruction)| match callee(start + at, instruction) {
        Some(to) => {
            let of = pieces.iter().find(|piece| piece.start as i64 == to).map_or(0, |p| p.of);
            Instruction { imm: of as i32, ..instruction }
        }
        None => instruction,
    };
    code.iter().enumerate().map(own).collect()
}
