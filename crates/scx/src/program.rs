//! An object prepared for a kernel: relocated, with settings, and checked for features that the simulation lacks.

use std::sync::Arc;

use crate::arena::{Arena, PAGE, TO_USER};
use crate::btf::{Kind, essential};
use crate::class;
use crate::describe::settings;
use crate::early::EarlyMasks;
use crate::error::ScxError;
use crate::groups;
use crate::helpers;
use crate::instruction::{CALL, Instruction, LOAD_64};
use crate::kernel::{self, PER_CPU, PerCpus};
use crate::kernel_names::{Resolved, helper_name, resolve};
use crate::kernel_types::{KernelTypes, SHIPPED_CODE};
use crate::kfuncs;
use crate::maps;
use crate::memory::Memory;
use crate::object::{Function, MapDefinition, Object, Target};
use crate::own_counters::OwnCounter;
use crate::pointers;
use crate::relocate::{Asked, POISON, Relocated, relocate};
use crate::tasks;

/// The longest time that a scheduler may allow tasks to wait until the watchdog ends it, in ms
/// (SCX_WATCHDOG_MAX_TIMEOUT).
pub(crate) const MOST_TIMEOUT_MS: u64 = 30_000;

/// A flag of a scheduler that would change what is simulated (SCX_OPS_SWITCH_PARTIAL).
const SWITCH_PARTIAL: u64 = 8;

/// Hooks that the simulation has no reason to call: for dumps when a scheduler ends, and for events that no simulated
/// workload has (CPUs that come or go, other classes, cgroups that are removed or changed).
const NO_OCCASION: [&str; 13] = [
    "exit",
    "dump",
    "dump_cpu",
    "dump_task",
    "cpu_online",
    "cpu_offline",
    "cpu_acquire",
    "cpu_release",
    "cgroup_exit",
    "cgroup_cancel_move",
    "cgroup_set_weight",
    "cgroup_set_bandwidth",
    "cgroup_set_idle",
];

/// A prepared object, from which schedulers are created.
#[derive(Clone, Debug)]
pub struct Program {
    /// The object.
    pub object: Arc<Object>,
    /// The kernel's types.
    pub kernel: Arc<KernelTypes>,
    /// What the object asked about the kernel's types.
    pub asked: Vec<Asked>,
    /// The code, relocated against these types.
    pub(crate) code: Vec<Instruction>,
    /// What each extern is on this kernel.
    pub(crate) externs: Vec<Resolved>,
    /// Initial values of the variables, by section.
    pub(crate) data: Vec<Vec<u8>>,
    /// The maps, with the sizes that were set.
    pub(crate) maps: Vec<MapDefinition>,
    /// Initial entries of the maps.
    pub(crate) entries: Vec<Entry>,
    /// Pages of the arena that the loader has filled: number and bytes.
    pub(crate) pages: Vec<(u32, Vec<u8>)>,
    /// Masks that the loader's programs have made: values and variables have what stands for them.
    pub(crate) masks: EarlyMasks,
    /// What the loader had run before it attached the scheduler.
    pub(crate) runs: Vec<Run>,
    /// Counters that the program keeps itself.
    pub(crate) counters: Vec<OwnCounter>,
    /// Whether its pointers are checked before it runs.
    pub(crate) checks_pointers: bool,
    /// Whether it comes from a scheduler's own program, not from a file.
    pub(crate) is_taken_over: bool,
}

/// An initial entry of a map.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Number of the map.
    pub map: usize,
    /// For a per-CPU map: the CPU. Otherwise 0.
    pub cpu: usize,
    /// The key's bytes: for an array, its index.
    pub key: Vec<u8>,
    /// The entry's bytes.
    pub value: Vec<u8>,
}

/// A run of a function before the scheduler starts.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The function's first instruction.
    pub at: usize,
    /// The bytes that its argument points to.
    pub argument: Vec<u8>,
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
        let (maps, entries) = (object.maps.clone(), Vec::new());
        let (pages, masks) = (Vec::new(), EarlyMasks::new());
        let (runs, counters) = (Vec::new(), Vec::new());
        let object = Arc::new(object);
        let mut program = Self {
            object,
            kernel,
            asked,
            code,
            externs,
            data,
            maps,
            entries,
            pages,
            masks,
            runs,
            counters,
            checks_pointers: true,
            is_taken_over: false,
        };
        program.set_kernel_constants();
        Ok(program)
    }

    /// Sets variables `__SCX_NAME` to the kernel's constants `SCX_NAME`. Loaders look these up in the kernel's types
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
    /// If there is no such variable, its type is not a single number, or the value does not fit.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ScxError> {
        let bad = |why: String| Err(ScxError::Setting(format!("{name}={value}: {why}")));
        let Some((_, variable)) = self.object.variable(name).filter(|(_, found)| found.global)
        else {
            return bad(self.no_variable(name));
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

    /// Why a global variable cannot be set that the object does not have.
    fn no_variable(&self, wrong: &str) -> String {
        let settings = settings(&self.object);
        let names = settings.iter().map(|setting| setting.name.as_str());
        let near = roost_names::did_you_mean(wrong, names);
        let near = near.map_or_else(String::new, |question| format!("; {question}"));
        let given = if self.is_taken_over { "PROGRAM" } else { "FILE" };
        format!("the object has no such global variable; `roost scx {given}` lists them{near}")
    }

    /// Sets a variable, as a loader does before it loads the object.
    ///
    /// # Errors
    /// If there is no such variable with a single number.
    pub fn set_number(&mut self, name: &str, value: u64) -> Result<(), ScxError> {
        let variable = self.object.variable(name).map(|(_, variable)| variable.of);
        match variable.and_then(|of| self.object.is_signed_number(of)) {
            Some(_) => {
                self.write_variable(name, value as i64);
                Ok(())
            }
            None => Err(ScxError::Setting(format!("the object has no variable {name}"))),
        }
    }

    pub(crate) fn map(&self, name: &str) -> Result<usize, ScxError> {
        let found = self.maps.iter().position(|map| map.name == name);
        found.ok_or_else(|| ScxError::Setting(format!("the object has no map {name}")))
    }

    /// Sets the number of entries of a map.
    ///
    /// # Errors
    /// If there is no such map.
    pub fn resize(&mut self, map: &str, entries: u32) -> Result<(), ScxError> {
        let map = self.map(map)?;
        self.maps[map].max_entries = entries;
        Ok(())
    }

    /// Sets an initial entry of an array map. The named members are set, all others are 0. For a value that is a single
    /// number, the member's name is "".
    ///
    /// # Errors
    /// If there is no such map, or its values have no such member.
    pub fn put(&mut self, map: &str, index: u32, members: &[(&str, u64)]) -> Result<(), ScxError> {
        let number = self.map(map)?;
        let MapDefinition { value: of, value_size, .. } = self.maps[number];
        let mut value = vec![0; value_size as usize];
        for (name, member) in members {
            let place =
                self.object.btf.place(of, name).and_then(|(at, size)| value.get_mut(at..at + size));
            let unknown = || ScxError::Setting(format!("values of the map {map} have no {name}"));
            let place = place.ok_or_else(unknown)?;
            place.copy_from_slice(&member.to_le_bytes()[..place.len()]);
        }
        let key = index.to_le_bytes().to_vec();
        self.entries.push(Entry { map: number, cpu: 0, key, value });
        Ok(())
    }

    /// Names counters that the program keeps in `member` of an array map's values, a struct of numbers: all of them but
    /// `except`. A run's counters then include them, summed over the entries of the map, with names that begin with
    /// `prefix`.
    ///
    /// # Errors
    /// If there is no such map, or its values have no such struct.
    pub fn count(
        &mut self,
        map: &str,
        member: &str,
        prefix: &str,
        except: &[&str],
    ) -> Result<(), ScxError> {
        self.counters = OwnCounter::all(self, map, member, prefix, except)?;
        Ok(())
    }

    /// The functions that hooks can reach, for hooks that the simulation calls, and what is run before.
    fn called(&self) -> Vec<&Function> {
        let hooks = self.object.operations.hooks.iter();
        let called = hooks.filter(|(name, _)| class::HOOKS.contains(&name.as_str()));
        let starts = called.map(|(_, at)| *at).chain(self.runs.iter().map(|run| run.at));
        starts.flat_map(|at| self.object.reachable(at)).collect()
    }

    /// Hooks that the simulation never calls, although it has the events for them.
    pub fn uncalled(&self) -> Vec<String> {
        let hooks = self.object.operations.hooks.iter().map(|(name, _)| name.clone());
        let known = |name: &str| class::HOOKS.contains(&name) || NO_OCCASION.contains(&name);
        hooks.filter(|name| !known(name)).collect()
    }

    /// Members of the kernel's structs that hooks read, and that are always 0 in the simulation.
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

    /// What hooks can reach and the simulation does not have: kfuncs, helpers, kinds of maps, variables of the kernel.
    /// And a flag that would change what is simulated.
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
        lacks.extend(self.lacks_for_arenas());
        if self.object.operations.number("flags") & SWITCH_PARTIAL != 0 {
            lacks.push("the flag SCX_OPS_SWITCH_PARTIAL of its operations".to_owned());
        }
        lacks.sort();
        lacks.dedup();
        lacks
    }

    /// Arenas that the simulation does not have: without a fixed address, or more than one.
    fn lacks_for_arenas(&self) -> Vec<String> {
        let mut arenas = self.maps.iter().filter(|map| map.kind == maps::ARENA);
        let mut lacks = Vec::new();
        if let Some(map) =
            arenas.next().filter(|map| Arena::new(map.extra, map.max_entries).is_none())
        {
            lacks.push(format!("map {} (arena at {:#x})", map.name, map.extra));
        }
        lacks.extend(arenas.map(|map| format!("map {} (a second arena)", map.name)));
        lacks
    }

    /// Checks whether the program can run in the simulation.
    ///
    /// # Errors
    /// If it needs something that the simulation does not have. The error names everything that is missing.
    pub fn check(&self) -> Result<(), ScxError> {
        match self.lacks().as_slice() {
            [] => Ok(()),
            lacks => Err(ScxError::Lacks(lacks.join(", "))),
        }
    }

    /// Checks the operations of a scheduler as the kernel does when it starts (`bpf_scx_init_member()`), and what its
    /// hooks do with pointers as the kernel's verifier does.
    ///
    /// # Errors
    /// If the kernel would refuse them.
    pub fn check_operations(&self) -> Result<(), ScxError> {
        let operations = &self.object.operations;
        let refused = |why: String| Err(ScxError::Refused(why));
        if operations.name.is_empty() {
            return refused("it has no name".to_owned());
        }
        let timeout = operations.number("timeout_ms");
        if timeout > MOST_TIMEOUT_MS {
            return refused(format!("timeout_ms is {timeout}, but at most {MOST_TIMEOUT_MS}"));
        }
        let flags = operations.number("flags");
        let known = self.kernel.enumerator("SCX_OPS_ALL_FLAGS").map_or(u64::MAX, |all| all as u64);
        if flags & !known != 0 {
            return refused(format!(
                "{} does not know its flags {:#x}",
                self.kernel.source,
                flags & !known
            ));
        }
        if self.checks_pointers { pointers::check(self) } else { Ok(()) }
    }

    /// Leaves out what the kernel's verifier would refuse for its pointers: for tests of what programs do that no
    /// verifier has checked.
    pub fn without_check_of_pointers(self) -> Self {
        Self { checks_pointers: false, ..self }
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
                Resolved::Variable(_)
                    if PER_CPU.contains(&essential(&self.object.externs[index].name)) =>
                {
                    None
                }
                Resolved::Variable(_) => {
                    Some(format!("variable {}", self.object.externs[index].name))
                }
                Resolved::Missing if !self.object.externs[index].weak => Some(format!(
                    "{} (nor does {})",
                    self.object.externs[index].name, self.kernel.source
                )),
                Resolved::Differs if !self.object.externs[index].weak => Some(format!(
                    "{} with the parameters that the object declares, nor does {}",
                    self.object.externs[index].name, self.kernel.source
                )),
                _ => None,
            },
            Target::Data { .. } | Target::Arena(_) | Target::Function(_) => None,
        }
    }

    fn lacks_kfunc(&self, name: &str) -> Option<String> {
        let there = self.kernel.btf.prototype(name).map(|(_, parameters)| parameters.len());
        match kfuncs::find(name) {
            None => Some(format!("kfunc {name}")),
            Some(number) if kfuncs::parameters(number) != there => {
                Some(format!("kfunc {name} with the parameters that {} has", self.kernel.source))
            }
            Some(_) => None,
        }
    }

    /// Puts variables into memory, and their addresses into the code. Returns the code, and the address of each section
    /// of variables.
    pub(crate) fn link(
        &self,
        memory: &mut Memory,
        maps: &[u64],
        per_cpu: &PerCpus,
    ) -> Option<(Vec<Instruction>, Vec<u64>)> {
        let mut code = self.code.clone();
        let mut sections = Vec::new();
        for (section, bytes) in self.object.data.iter().zip(&self.data) {
            if section.is_in_arena() {
                sections.push(self.fill_end_of_arena(memory, bytes)?);
                continue;
            }
            let address = memory.allocate(bytes.len())?;
            memory.slice_mut(address, bytes.len()).ok()?.copy_from_slice(bytes);
            sections.push(address);
        }
        let mut externs = Vec::new();
        for (index, resolved) in self.externs.iter().enumerate() {
            externs.push(self.extern_address(index, resolved, memory, per_cpu)?);
        }
        for reference in &self.object.references {
            let instruction = code[reference.at];
            // Relocation may have changed the instruction.
            if instruction.code == CALL && instruction.src == 1 {
                code[reference.at] = self.linked_call(instruction, reference.at, reference.to)?;
            } else if instruction.code == LOAD_64 {
                let address = match reference.to {
                    Target::Map(index) => maps[index],
                    Target::Data { section, offset } => sections[section] + offset,
                    Target::Arena(offset) => self.arena_start() + offset,
                    // A function is identified by its first instruction.
                    Target::Function(at) => at as u64,
                    Target::Extern(index) => externs[index],
                };
                code[reference.at].src = 0;
                code[reference.at].imm = address as i32;
                code.get_mut(reference.at + 1)?.imm = (address >> 32) as i32;
            }
        }
        self.link_casts(&mut code);
        Some((code, sections))
    }

    /// The address of the arena's first page.
    fn arena_start(&self) -> u64 {
        self.maps.iter().find(|map| map.kind == maps::ARENA).map_or(0, |map| map.extra)
    }

    /// Puts variables into the last pages of the arena, as libbpf does. Returns their address.
    fn fill_end_of_arena(&self, memory: &mut Memory, bytes: &[u8]) -> Option<u64> {
        let pages = u32::try_from(bytes.len().div_ceil(PAGE as usize)).ok()?;
        let arena = self.maps.iter().find(|map| map.kind == maps::ARENA)?;
        let first = arena.max_entries.checked_sub(pages)?;
        for (page, bytes) in (first..).zip(bytes.chunks(PAGE as usize)) {
            memory.fill_page(page, bytes)?;
        }
        Some(arena.extra + PAGE * u64::from(first))
    }

    /// Puts the upper half of the arena's addresses into casts.
    fn link_casts(&self, code: &mut [Instruction]) {
        let upper = (self.arena_start() >> 32) as i32;
        for cast in code.iter_mut().filter(|instruction| instruction.casts()) {
            cast.imm = cast.imm & TO_USER | upper & !TO_USER;
        }
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
            Target::Map(_) | Target::Data { .. } | Target::Arena(_) => return None,
        })
    }

    /// The address of an extern. 0 if the kernel does not have it.
    fn extern_address(
        &self,
        index: usize,
        resolved: &Resolved,
        memory: &mut Memory,
        per_cpu: &PerCpus,
    ) -> Option<u64> {
        Some(match resolved {
            Resolved::Missing | Resolved::Differs => 0,
            // Hooks that are called reach no other variable ([`Program::check`]).
            Resolved::Variable(_) => {
                let known = per_cpu.named(essential(&self.object.externs[index].name));
                known.map_or(0, |variable| variable.first)
            }
            // Only whether the function exists matters.
            Resolved::Function(_) => 1,
            Resolved::Config => {
                let address = memory.allocate(8)?;
                memory.write(address, 8, self.configured(index)).ok()?;
                address
            }
        })
    }

    /// The value of an extern that belongs to the kernel's configuration.
    pub(crate) fn configured(&self, index: usize) -> u64 {
        let version = self.object.externs.get(index).map(|known| &known.name[..]);
        if version == Some("LINUX_KERNEL_VERSION") { SHIPPED_CODE } else { 0 }
    }
}

/// Whether the simulation fills a member. True also for structs that the program itself fills, such as structs of
/// arguments.
fn is_filled(name: &str) -> bool {
    let (of, member) = name.split_once('.').unwrap_or((name, ""));
    match essential(of) {
        "task_struct" => tasks::FILLED.contains(&member),
        "rq" => kernel::FILLED.contains(&member),
        "signal_struct" => ["nr_threads", "live.counter"].contains(&member),
        // Of the deadline servers of a CPU. 0 is right, because no task is of another class.
        "sched_dl_entity" => ["rb_node", "rb_node.__rb_parent_color"].contains(&member),
        // Is never reached, because no CPU has a frequency driver.
        "cpufreq_policy" => true,
        "cgroup" => groups::FILLED.contains(&member),
        "cgroup_subsys_state" => ["cgroup", "parent"].contains(&member),
        "css_set" => member == "dfl_cgrp",
        "kernfs_node" => ["id", "name"].contains(&member),
        "task_group" => groups::FILLED_TASK_GROUP.contains(&member),
        "cpumask" => member == "bits",
        of => of.ends_with("_args"),
    }
}

/// Parses a decimal or hexadecimal number.
fn number(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
