//! An emulated bpf(2): maps, programs and type information are kept here. The program holds a file in memory for each
//! of them, which is recognised by its inode, because libraries duplicate descriptors.
//!
//! An array's values are in its file, so that the program can map them. Nothing is verified. Programs that the loader
//! wants to run are noted, and run in the simulation before the scheduler starts. But if they use an arena, they run at
//! once ([`Early`]), because the loader reads what they leave there.
//!
//! Places in `union bpf_attr` are those of `include/uapi/linux/bpf.h`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use roost_machine::Machine;
use roost_scx::object::{MapDefinition, MapKind};
use roost_scx::{
    Early, EarlyMasks, Instruction, KernelTypes, Loaded, LoadedMap, LoadedOperations,
    LoadedProgram, STRUCT_OPS_VALUE, ScxError, Sparse, Store,
};

use super::memory::Memory;
use super::notify::{Answer, Call};

/// Names of commands, by number.
const COMMANDS: [&str; 39] = [
    "MAP_CREATE",
    "MAP_LOOKUP_ELEM",
    "MAP_UPDATE_ELEM",
    "MAP_DELETE_ELEM",
    "MAP_GET_NEXT_KEY",
    "PROG_LOAD",
    "OBJ_PIN",
    "OBJ_GET",
    "PROG_ATTACH",
    "PROG_DETACH",
    "PROG_TEST_RUN",
    "PROG_GET_NEXT_ID",
    "MAP_GET_NEXT_ID",
    "PROG_GET_FD_BY_ID",
    "MAP_GET_FD_BY_ID",
    "OBJ_GET_INFO_BY_FD",
    "PROG_QUERY",
    "RAW_TRACEPOINT_OPEN",
    "BTF_LOAD",
    "BTF_GET_FD_BY_ID",
    "TASK_FD_QUERY",
    "MAP_LOOKUP_AND_DELETE_ELEM",
    "MAP_FREEZE",
    "BTF_GET_NEXT_ID",
    "MAP_LOOKUP_BATCH",
    "MAP_LOOKUP_AND_DELETE_BATCH",
    "MAP_UPDATE_BATCH",
    "MAP_DELETE_BATCH",
    "LINK_CREATE",
    "LINK_UPDATE",
    "LINK_GET_FD_BY_ID",
    "LINK_GET_NEXT_ID",
    "ENABLE_STATS",
    "ITER_CREATE",
    "LINK_DETACH",
    "PROG_BIND_MAP",
    "TOKEN_CREATE",
    "PROG_STREAM_READ_BY_FD",
    "PROG_ASSOC_STRUCT_OPS",
];

/// Kinds of maps (`enum bpf_map_type`).
const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;
const STRUCT_OPS: u32 = 26;
const RINGBUF: u32 = 27;
const TASK_STORAGE: u32 = 29;
const USER_RINGBUF: u32 = 31;
const ARENA: u32 = 33;
/// Maps of the storage of something, whose keys are descriptors: of sockets, inodes, tasks, cgroups.
const STORAGES: [u32; 4] = [24, 28, TASK_STORAGE, 32];

/// A load of 64 bits, such as the address of a map.
const LOAD_64: u8 = 0x18;

/// BPF_F_LINK: the scheduler is attached by a link, not by its map's first value.
const BY_LINK: u32 = 1 << 13;
/// BPF_STRUCT_OPS, a type of attachment.
const ATTACH_STRUCT_OPS: u32 = 44;
/// The kind of programs that are hooks (BPF_PROG_TYPE_STRUCT_OPS), and of those that run on request.
const HOOK: u32 = 27;
const SYSCALL: u32 = 31;
/// The kind of programs at places in the kernel, and its types of attachment.
const TRACING: u32 = 26;

/// Bytes of a page of an arena.
const PAGE: u64 = 4096;

/// Largest sizes that are believed: of values of maps together, of a key or value, of a program, of types.
const MOST_VALUES: u64 = 1 << 30;
const MOST_ENTRY: usize = 1 << 28;
const MOST_INSTRUCTIONS: usize = 1 << 20;
const MOST_TYPES: usize = 1 << 26;

type Result<T> = std::result::Result<T, i32>;

/// What a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Types(usize),
    Map(usize),
    Program(usize),
    Link,
}

struct Map {
    definition: MapDefinition,
    btf: Option<usize>,
    /// Bytes of one value in an array's file.
    stride: usize,
    file: File,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Map {
    /// The map with its contents.
    fn loaded(&self) -> LoadedMap {
        let kind = self.definition.kind.0;
        let is_array = [ARRAY, PERCPU_ARRAY].contains(&kind);
        let len = if is_array { self.file.metadata().map_or(0, |about| about.len()) } else { 0 };
        LoadedMap {
            definition: self.definition.clone(),
            btf: self.btf,
            array: array(&self.file, len),
            pages: if kind == ARENA { pages(&self.file) } else { Vec::new() },
            entries: self.entries.clone().into_iter().collect(),
        }
    }
}

/// The files of all maps.
struct Files<'a>(&'a [Map]);

impl Store for Files<'_> {
    fn read(&self, map: usize, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        match self.0[map].file.read_exact_at(bytes, at) {
            // The program has cut the file off.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(()),
            result => result,
        }
    }

    fn write(&self, map: usize, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0[map].file.write_all_at(bytes, at)
    }

    fn data(&self, map: usize) -> Vec<Range<u64>> {
        data(&self.0[map].file)
    }
}

/// The objects that the program has made.
pub struct Bpf {
    machine: Arc<Machine>,
    possible: usize,
    kernel: Option<Arc<KernelTypes>>,
    kinds: HashMap<(u64, u64), Kind>,
    /// Files are kept open, so that their inodes are not used again.
    files: Vec<File>,
    btfs: Vec<Vec<u8>>,
    maps: Vec<Map>,
    programs: Vec<LoadedProgram>,
    /// Kind of each program.
    kinds_of_programs: Vec<u32>,
    runs: Vec<(usize, Vec<u8>)>,
    /// Programs that have been run at once.
    early: HashMap<usize, Early>,
    /// The masks that these have made.
    masks: EarlyMasks,
    operations: LoadedOperations,
    /// Bytes of all maps' values so far.
    bytes: u64,
    /// Whether the scheduler is attached.
    pub attached: bool,
    /// What was asked for and is not emulated, in order.
    pub lacks: Vec<String>,
    /// What was asked for, is not emulated, and cannot be done without.
    pub needs: Option<String>,
}

/// The arguments of a command: `union bpf_attr`.
struct Attributes {
    at: u64,
    len: usize,
    bytes: [u8; 256],
}

impl Attributes {
    fn read(memory: Memory, at: u64, len: usize) -> Result<Self> {
        let mut bytes = [0; 256];
        let known = len.min(bytes.len());
        bytes[..known].copy_from_slice(&memory.read(at, known)?);
        Ok(Self { at, len: known, bytes })
    }

    fn word(&self, at: usize) -> u32 {
        self.bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    fn long(&self, at: usize) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    fn name(&self, at: usize) -> String {
        let bytes = self.bytes[at..at + 16].iter().copied().take_while(|&byte| byte != 0);
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    }

    /// Writes a word back, if the program's attributes have it.
    fn set(&self, memory: Memory, at: usize, value: u32) -> Result<()> {
        if at + 4 > self.len {
            return Ok(());
        }
        memory.write(self.at + at as u64, &value.to_le_bytes())
    }
}

impl Bpf {
    pub fn new(machine: &Machine) -> Self {
        Self {
            machine: Arc::new(machine.clone()),
            possible: machine.cpus.iter().map(|cpu| cpu.os_index as usize + 1).max().unwrap_or(1),
            kernel: KernelTypes::shipped().ok().map(Arc::new),
            kinds: HashMap::new(),
            files: Vec::new(),
            btfs: Vec::new(),
            maps: Vec::new(),
            programs: Vec::new(),
            kinds_of_programs: Vec::new(),
            runs: Vec::new(),
            early: HashMap::new(),
            masks: EarlyMasks::new(),
            operations: LoadedOperations::default(),
            bytes: 0,
            attached: false,
            lacks: Vec::new(),
            needs: None,
        }
    }

    /// Answers bpf(2).
    pub fn call(&mut self, call: &Call, memory: Memory) -> Result<Answer> {
        let [command, at, len, ..] = call.arguments;
        let attributes = Attributes::read(memory, at, len as usize)?;
        let caller = Caller { thread: call.thread, memory };
        match command {
            0 => self.create_map(&attributes, caller),
            1 | 21 => self.look_up(&attributes, caller, command == 21),
            2 => self.update(&attributes, caller),
            3 => self.delete(&attributes, caller),
            4 => self.next_key(&attributes, caller),
            5 => self.load_program(&attributes, caller),
            10 => self.run(&attributes, caller),
            15 => self.inform(&attributes, caller),
            18 => self.load_types(&attributes, caller),
            17 => self.link(caller, attributes.word(8)),
            28 => self.create_link(&attributes, caller),
            // Nothing else is loaded, pinned or attached.
            7 | 11 | 12 | 23 | 31 => Err(libc::ENOENT),
            // Freezing a map, and binding one to a program, change nothing here.
            22 | 35 => Ok(Answer::Value(0)),
            _ => {
                let name = COMMANDS.get(command as usize);
                let name = name.map_or_else(|| command.to_string(), |name| (*name).to_owned());
                self.lack(format!("bpf command {name}"));
                Err(libc::EINVAL)
            }
        }
    }

    fn lack(&mut self, what: String) {
        if !self.lacks.contains(&what) {
            self.lacks.push(what);
        }
    }

    /// What the program has loaded.
    pub fn loaded(&self) -> Loaded {
        Loaded {
            btfs: self.btfs.clone(),
            maps: self.maps.iter().map(Map::loaded).collect(),
            programs: self.programs.clone(),
            operations: self.operations.clone(),
            runs: self.runs.clone(),
            masks: self.masks.clone(),
        }
    }

    /// A new object's descriptor, for the program.
    fn give(&mut self, kind: Kind, file: File) -> Result<Answer> {
        let about = file.metadata().map_err(|_| libc::EIO)?;
        self.kinds.insert((about.dev(), about.ino()), kind);
        let copy = file.try_clone().map_err(|_| libc::EMFILE)?;
        self.files.push(file);
        Ok(Answer::Descriptor(OwnedFd::from(copy), true))
    }

    /// What one of the program's descriptors stands for.
    fn kind(&self, caller: Caller, descriptor: u32) -> Option<Kind> {
        let link = format!("/proc/{}/fd/{}", caller.thread, descriptor as i32);
        let about = std::fs::metadata(link).ok()?;
        self.kinds.get(&(about.dev(), about.ino())).copied()
    }

    fn map(&self, caller: Caller, descriptor: u32) -> Result<usize> {
        match self.kind(caller, descriptor) {
            Some(Kind::Map(map)) => Ok(map),
            _ => Err(libc::EBADF),
        }
    }

    fn program(&self, caller: Caller, descriptor: u32) -> Result<usize> {
        match self.kind(caller, descriptor) {
            Some(Kind::Program(program)) => Ok(program),
            _ => Err(libc::EBADF),
        }
    }

    fn types(&self, caller: Caller, descriptor: u32) -> Option<usize> {
        match self.kind(caller, descriptor) {
            Some(Kind::Types(types)) if descriptor != 0 => Some(types),
            _ => None,
        }
    }

    fn load_types(&mut self, attributes: &Attributes, caller: Caller) -> Result<Answer> {
        let len = attributes.word(16) as usize;
        if len > MOST_TYPES {
            return Err(libc::E2BIG);
        }
        self.btfs.push(caller.memory.read(attributes.long(0), len)?);
        self.give(Kind::Types(self.btfs.len() - 1), file("types")?)
    }

    fn create_map(&mut self, attributes: &Attributes, caller: Caller) -> Result<Answer> {
        let kind = MapKind(attributes.word(0));
        let btf = self.types(caller, attributes.word(48));
        let definition = MapDefinition {
            name: attributes.name(28),
            kind,
            key_size: attributes.word(4),
            value_size: attributes.word(8),
            max_entries: attributes.word(12),
            flags: attributes.word(16),
            value: if btf.is_some() { attributes.word(56) } else { 0 },
            extra: attributes.long(64),
        };
        if kind.0 == STRUCT_OPS && !self.is_scheduler(attributes.word(60)) {
            self.lack(format!("a struct_ops other than sched_ext_ops ({})", definition.name));
            return Err(libc::EINVAL);
        }
        let value = (definition.value_size as usize).next_multiple_of(8);
        let cpus = if definition.kind.0 == PERCPU_ARRAY { self.possible } else { 1 };
        let entries = definition.max_entries as usize;
        let size = match kind.0 {
            ARRAY | PERCPU_ARRAY => {
                value.checked_mul(entries).and_then(|all| all.checked_mul(cpus))
            }
            // A page for each position, and the data twice.
            // The program maps all pages, and fills some.
            ARENA => u64::from(definition.max_entries).checked_mul(PAGE).map(|size| size as usize),
            RINGBUF | USER_RINGBUF => entries.checked_mul(2).and_then(|all| all.checked_add(8192)),
            _ => Some(0),
        };
        let size = size.ok_or(libc::E2BIG)? as u64;
        if definition.value_size as usize > MOST_ENTRY {
            return Err(libc::E2BIG);
        }
        if kind.0 != ARENA {
            self.count(size)?;
        }
        let file = file("map")?;
        // Mapped files end at a page.
        file.set_len(size.next_multiple_of(4096)).map_err(|_| libc::ENOMEM)?;
        let copy = file.try_clone().map_err(|_| libc::EMFILE)?;
        self.maps.push(Map { definition, btf, stride: value, file, entries: BTreeMap::new() });
        self.give(Kind::Map(self.maps.len() - 1), copy)
    }

    /// Counts bytes of values.
    fn count(&mut self, bytes: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST_VALUES {
            self.needs = Some(format!("maps with more than {} MiB of values", MOST_VALUES >> 20));
            return Err(libc::ENOMEM);
        }
        Ok(())
    }

    /// Whether a type of the kernel is that of a scheduler's operations.
    fn is_scheduler(&self, id: u32) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.btf.name(id) == STRUCT_OPS_VALUE)
    }

    /// Places of an array's value for each CPU in its file, and bytes of each.
    fn places(&self, map: usize, key: &[u8]) -> Result<(Vec<u64>, usize)> {
        let Map { definition, stride, .. } = &self.maps[map];
        let index = key.try_into().map(u32::from_le_bytes).map_err(|_| libc::EINVAL)?;
        if index >= definition.max_entries {
            return Err(libc::E2BIG);
        }
        let at = *stride as u64 * u64::from(index);
        if definition.kind.0 == ARRAY {
            return Ok((vec![at], definition.value_size as usize));
        }
        let of_cpu = *stride as u64 * u64::from(definition.max_entries);
        Ok(((0..self.possible as u64).map(|cpu| cpu * of_cpu + at).collect(), *stride))
    }

    fn is_array(&self, map: usize) -> bool {
        [ARRAY, PERCPU_ARRAY].contains(&self.maps[map].definition.kind.0)
    }

    fn key(&self, map: usize, attributes: &Attributes, caller: Caller) -> Result<Vec<u8>> {
        let size = (self.maps[map].definition.key_size as usize).min(MOST_ENTRY);
        caller.memory.read(attributes.long(8), size)
    }

    /// Bytes of a value as the program passes it: a per-CPU map has one for each CPU.
    fn value_size(&self, map: usize) -> usize {
        const PERCPU_HASH: u32 = 5;
        const LRU_PERCPU_HASH: u32 = 10;
        let Map { definition, stride, .. } = &self.maps[map];
        match definition.kind.0 {
            PERCPU_HASH | LRU_PERCPU_HASH => *stride * self.possible,
            _ => definition.value_size as usize,
        }
    }

    fn look_up(&mut self, attributes: &Attributes, caller: Caller, take: bool) -> Result<Answer> {
        let map = self.map(caller, attributes.word(0))?;
        let key = self.key(map, attributes, caller)?;
        let value = if self.is_array(map) {
            let (places, len) = self.places(map, &key).map_err(|_| libc::ENOENT)?;
            let mut value = vec![0; len * places.len()];
            for (place, part) in places.iter().zip(value.chunks_mut(len.max(1))) {
                self.maps[map].file.read_exact_at(part, *place).map_err(|_| libc::EIO)?;
            }
            value
        } else if take {
            self.maps[map].entries.remove(&key).ok_or(libc::ENOENT)?
        } else {
            self.maps[map].entries.get(&key).cloned().ok_or(libc::ENOENT)?
        };
        caller.memory.write(attributes.long(16), &value)?;
        Ok(Answer::Value(0))
    }

    fn update(&mut self, attributes: &Attributes, caller: Caller) -> Result<Answer> {
        const NOEXIST: u64 = 1;
        const EXIST: u64 = 2;
        let map = self.map(caller, attributes.word(0))?;
        let (key, flags) = (self.key(map, attributes, caller)?, attributes.long(24));
        let value_at = attributes.long(16);
        let definition = &self.maps[map].definition;
        if STORAGES.contains(&definition.kind.0) {
            let what = format!("values of the map {} ({})", definition.name, definition.kind);
            self.lack(what);
            return Err(libc::EOPNOTSUPP);
        }
        if definition.kind.0 == STRUCT_OPS {
            return self.set_operations(map, value_at, caller);
        }
        if self.is_array(map) {
            let (places, len) = self.places(map, &key)?;
            let value = caller.memory.read(value_at, len * places.len())?;
            for (place, part) in places.iter().zip(value.chunks(len.max(1))) {
                self.maps[map].file.write_all_at(part, *place).map_err(|_| libc::EIO)?;
            }
            return Ok(Answer::Value(0));
        }
        let value = caller.memory.read(value_at, self.value_size(map))?;
        self.count(value.len() as u64)?;
        let Map { definition, entries, .. } = &mut self.maps[map];
        match (flags & 3, entries.contains_key(&key)) {
            (NOEXIST, true) => return Err(libc::EEXIST),
            (EXIST, false) => return Err(libc::ENOENT),
            (_, false) if entries.len() >= definition.max_entries as usize => {
                return Err(libc::E2BIG);
            }
            _ => {}
        }
        entries.insert(key, value);
        Ok(Answer::Value(0))
    }

    /// Takes the scheduler's operations.
    fn set_operations(&mut self, map: usize, at: u64, caller: Caller) -> Result<Answer> {
        let definition = &self.maps[map].definition;
        let value = caller.memory.read(at, definition.value_size as usize)?;
        let (name, by_link) = (definition.name.clone(), definition.flags & BY_LINK != 0);
        let mut descriptors = HashMap::new();
        for bytes in value.chunks_exact(8) {
            let number = bytes.try_into().map_or(0, u64::from_le_bytes);
            let program = u32::try_from(number).ok().filter(|&number| number > 0);
            if let Some(Kind::Program(program)) = program.and_then(|fd| self.kind(caller, fd)) {
                descriptors.insert(number, program);
            }
        }
        self.operations = LoadedOperations { name, value, descriptors };
        self.attached = !by_link;
        Ok(Answer::Value(0))
    }

    fn delete(&mut self, attributes: &Attributes, caller: Caller) -> Result<Answer> {
        let map = self.map(caller, attributes.word(0))?;
        let key = self.key(map, attributes, caller)?;
        if self.is_array(map) {
            return Err(libc::EINVAL);
        }
        self.maps[map].entries.remove(&key).ok_or(libc::ENOENT)?;
        Ok(Answer::Value(0))
    }

    fn next_key(&mut self, attributes: &Attributes, caller: Caller) -> Result<Answer> {
        let map = self.map(caller, attributes.word(0))?;
        let is_first = attributes.long(8) == 0;
        let key = if is_first { None } else { Some(self.key(map, attributes, caller)?) };
        let next = if self.is_array(map) {
            let index = key
                .and_then(|key| key.try_into().ok())
                .map_or(0, |key| u32::from_le_bytes(key).checked_add(1).unwrap_or(0));
            let exists = index < self.maps[map].definition.max_entries;
            exists.then(|| index.to_le_bytes().to_vec())
        } else {
            let mut keys = self.maps[map].entries.keys();
            match key {
                Some(key) => keys.find(|known| **known > key).cloned(),
                None => keys.next().cloned(),
            }
        };
        caller.memory.write(attributes.long(16), &next.ok_or(libc::ENOENT)?)?;
        Ok(Answer::Value(0))
    }

    fn load_program(&mut self, attributes: &Attributes, caller: Caller) -> Result<Answer> {
        let memory = caller.memory;
        let count = attributes.word(4) as usize;
        if count > MOST_INSTRUCTIONS {
            return Err(libc::E2BIG);
        }
        if attributes.word(24) > 0 && attributes.word(28) > 0 {
            // The verifier has nothing to say.
            memory.write(attributes.long(32), &[0])?;
        }
        let code = memory.read(attributes.long(8), 8 * count)?;
        let (code, _) = code.as_chunks::<8>();
        let mut code: Vec<Instruction> = code.iter().map(|&b| Instruction::decode(b)).collect();
        self.number_maps(&mut code, caller)?;
        let functions = records(memory, attributes, 76, 80, 88)?;
        let lines = records(memory, attributes, 92, 96, 104)?;
        let kind = attributes.word(0);
        self.programs.push(LoadedProgram {
            name: attributes.name(48),
            section: self.section(kind, attributes.word(68), attributes.word(108)),
            btf: self.types(caller, attributes.word(72)),
            code,
            functions,
            lines,
        });
        self.kinds_of_programs.push(kind);
        self.give(Kind::Program(self.programs.len() - 1), file("program")?)
    }

    /// Replaces descriptors of maps in code by their numbers.
    fn number_maps(&self, code: &mut [Instruction], caller: Caller) -> Result<()> {
        const OF_MAP_VALUE: u8 = 2;
        let mut at = 0;
        while at < code.len() {
            let instruction = code[at];
            if instruction.code == LOAD_64 && [1, OF_MAP_VALUE].contains(&instruction.src) {
                let map = self.map(caller, instruction.imm as u32)?;
                let offset = code.get(at + 1).map_or(0, |upper| upper.imm as u32 as usize);
                let size = self.maps[map].file.metadata().map_or(0, |about| about.len());
                // Libraries try which offsets the kernel takes.
                if instruction.src == OF_MAP_VALUE && offset as u64 > size {
                    return Err(libc::EINVAL);
                }
                code[at].imm = map as i32;
            }
            at += if instruction.code == LOAD_64 { 2 } else { 1 };
        }
        Ok(())
    }

    /// When the kernel calls a program, as an object's section names it.
    fn section(&self, kind: u32, attach: u32, of: u32) -> String {
        let name = self.kernel.as_ref().map_or("", |kernel| kernel.btf.name(of));
        match (kind, attach) {
            (HOOK, _) => "struct_ops".to_owned(),
            (SYSCALL, _) => "syscall".to_owned(),
            (TRACING, 23) => format!("tp_btf/{}", name.trim_start_matches("btf_trace_")),
            (TRACING, 24) => format!("fentry/{name}"),
            (TRACING, 25) => format!("fexit/{name}"),
            _ => format!("program of kind {kind}"),
        }
    }

    /// Runs a program, if one of the loader's programs can reach an arena. Otherwise notes it, and returns 0.
    fn run(&mut self, attributes: &Attributes, caller: Caller) -> Result<Answer> {
        let program = self.program(caller, attributes.word(0))?;
        if self.kinds_of_programs[program] != SYSCALL {
            self.lack(format!("running the program {}", self.programs[program].name));
            return Err(libc::EOPNOTSUPP);
        }
        let (at, len) = (attributes.long(48), attributes.word(40) as usize);
        let mut argument = caller.memory.read(at, len.min(MOST_ENTRY))?;
        let mut result = 0;
        if self.has_arena(program) {
            result = self.run_at_once(program, &mut argument).map_err(|error| {
                let name = &self.programs[program].name;
                self.needs = Some(format!("what {name} needs, which the loader runs: {error}"));
                libc::EOPNOTSUPP
            })?;
            caller.memory.write(at, &argument)?;
        } else {
            self.runs.push((program, argument));
        }
        attributes.set(caller.memory, 4, result)?;
        Ok(Answer::Value(0))
    }

    /// Whether a program, or one that was loaded with it, can reach an arena. Libraries try whether the kernel has
    /// arenas, so nearly every loader has made one.
    fn has_arena(&self, program: usize) -> bool {
        let maps: Vec<_> = self.maps.iter().map(|map| map.definition.clone()).collect();
        let of = self.programs[program].btf;
        let mut all = self.programs.iter().filter(|program| program.btf == of);
        all.any(|program| program.reaches_arena(&maps))
    }

    /// Runs a program. Returns its result.
    fn run_at_once(
        &mut self,
        program: usize,
        argument: &mut [u8],
    ) -> std::result::Result<u32, ScxError> {
        if !self.early.contains_key(&program) {
            let kernel =
                self.kernel.clone().map_or_else(|| KernelTypes::shipped().map(Arc::new), Ok)?;
            let early = Early::new(&self.loaded(), program, kernel, &self.machine)?;
            self.early.insert(program, early);
        }
        let early = self.early.get_mut(&program);
        let (files, masks) = (Files(&self.maps), &mut self.masks);
        early.map_or(Ok(0), |early| Ok(early.run(argument, &files, masks)? as u32))
    }

    fn link(&mut self, caller: Caller, program: u32) -> Result<Answer> {
        self.program(caller, program)?;
        self.give(Kind::Link, file("link")?)
    }

    fn create_link(&mut self, attributes: &Attributes, caller: Caller) -> Result<Answer> {
        if attributes.word(8) != ATTACH_STRUCT_OPS {
            // Libraries try links with a target that does not exist.
            if attributes.word(4) as i32 == -1 {
                return Err(libc::EBADF);
            }
            return self.link(caller, attributes.word(0));
        }
        let map = self.map(caller, attributes.word(0))?;
        if self.maps[map].definition.kind.0 != STRUCT_OPS || self.operations.value.is_empty() {
            return Err(libc::EINVAL);
        }
        self.attached = true;
        self.give(Kind::Link, file("link")?)
    }

    /// What is known about an object: `struct bpf_map_info`, `bpf_prog_info`, `bpf_btf_info`.
    fn inform(&mut self, attributes: &Attributes, caller: Caller) -> Result<Answer> {
        let kind = self.kind(caller, attributes.word(0)).ok_or(libc::EBADF)?;
        let (room, at) = (attributes.word(4) as usize, attributes.long(8));
        let mut info = caller.memory.read(at, room.min(4096))?;
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = info.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        match kind {
            Kind::Map(number) => {
                let MapDefinition { name, kind, key_size, value_size, max_entries, flags, .. } =
                    &self.maps[number].definition;
                let words =
                    [kind.0, number as u32 + 1, *key_size, *value_size, *max_entries, *flags];
                for (at, word) in words.iter().enumerate() {
                    put(4 * at, &word.to_le_bytes());
                }
                put(24, name.as_bytes());
            }
            Kind::Program(number) => {
                put(0, &self.kinds_of_programs[number].to_le_bytes());
                put(4, &(number as u32 + 1).to_le_bytes());
                put(64, self.programs[number].name.as_bytes());
            }
            Kind::Types(number) => {
                put(8, &(self.btfs[number].len() as u32).to_le_bytes());
                put(12, &(number as u32 + 1).to_le_bytes());
            }
            Kind::Link => {}
        }
        caller.memory.write(at, &info)?;
        Ok(Answer::Value(0))
    }
}

/// The thread that made a call, and its process's memory.
#[derive(Clone, Copy)]
struct Caller {
    thread: libc::pid_t,
    memory: Memory,
}

/// Records about a program's code: places of their size, address and number in the attributes.
fn records<const WORDS: usize>(
    memory: Memory,
    attributes: &Attributes,
    size: usize,
    address: usize,
    count: usize,
) -> Result<Vec<[u32; WORDS]>> {
    let (size, count) = (attributes.word(size) as usize, attributes.word(count) as usize);
    if count == 0 {
        return Ok(Vec::new());
    }
    if size < 4 * WORDS || size > 256 || count > MOST_INSTRUCTIONS {
        return Err(libc::EINVAL);
    }
    let bytes = memory.read(attributes.long(address), size * count)?;
    let word = |record: &[u8], at: usize| {
        record.get(4 * at..4 * at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    };
    Ok(bytes.chunks(size).map(|record| std::array::from_fn(|at| word(record, at))).collect())
}

/// The values of an array, whose file has this length.
fn array(file: &File, len: u64) -> Sparse {
    let mut array = Sparse::zeros(len);
    for range in data(file) {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        // If the program cut the file off, the rest is 0.
        let _ = file.read_exact_at(&mut bytes, range.start);
        array.set(range.start, &bytes);
    }
    array
}

/// The pages of an arena's file that the program has touched, as far as they are believed: number and bytes.
fn pages(file: &File) -> Vec<(u32, Vec<u8>)> {
    let pages = data(file).into_iter().flat_map(|range| {
        let first = range.start / PAGE;
        first..range.end.div_ceil(PAGE)
    });
    let filled = |page: u64| {
        let mut bytes = vec![0; PAGE as usize];
        // If the program cut the file off, the rest is 0.
        let _ = file.read_exact_at(&mut bytes, page * PAGE);
        (page as u32, bytes)
    };
    pages.take((MOST_VALUES / PAGE) as usize).map(filled).collect()
}

/// The ranges of a file that are not holes.
fn data(file: &File) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    let seek = |from: u64, what| {
        // SAFETY: no pointers.
        let found = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, what) };
        u64::try_from(found).ok()
    };
    let mut from = 0;
    while let Some(start) = seek(from, libc::SEEK_DATA) {
        let Some(end) = seek(start, libc::SEEK_HOLE) else { break };
        ranges.push(start..end);
        from = end;
    }
    ranges
}

/// A new file in memory.
fn file(name: &str) -> Result<File> {
    let name = std::ffi::CString::new(format!("bpf-{name}")).map_err(|_| libc::EINVAL)?;
    // SAFETY: the name is a live string. A descriptor that the kernel returns is owned by who asked for it.
    unsafe {
        match libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) {
            descriptor @ 0.. => Ok(File::from_raw_fd(descriptor)),
            _ => Err(libc::EMFILE),
        }
    }
}
