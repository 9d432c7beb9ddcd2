//! What the kernel lets a program do with a value: the types of its objects, and what its functions take.

use std::ops::Range;

use super::value::{NULL, Value};
use crate::btf::{Btf, Kind, TypeId, essential};
use crate::kernel_names::{Resolved, helper_name};
use crate::object::MapKind;
use crate::program::Program;

use Value::{Arguments, Data, Map, Number, Object, Stack, Unknown};

/// The members of `struct task_struct` that programs may write (`bpf_scx_btf_struct_access()`).
const WRITABLE: [&str; 3] = ["scx.slice", "scx.dsq_vtime", "scx.disallow"];

/// Structs that are part of a program's own values. The kernel gives a pointer to the value that contains one.
const WITHIN_VALUES: [&str; 2] = ["bpf_rb_node", "bpf_list_node"];

/// Ends of parameters' names with which a pointer is taken as one without (`Documentation/bpf/kfuncs.rst`).
const SAME_POINTER: [&str; 3] = ["__nullable", "__iter", "__uninit"];

/// How deep structs may contain each other.
const MOST_DEPTH: usize = 32;

/// What a parameter takes. What is not known to be something else is always taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Anything,
    Number,
    /// A pointer to this struct of the kernel.
    Struct(TypeId),
    /// A pointer to memory of the program, such as its stack or a map's value.
    Memory,
    /// A map of these kinds.
    MapOf(&'static [u32]),
    /// A map of other kinds.
    MapExcept(&'static [u32]),
}

/// A kfunc's parameters and result.
#[derive(Debug)]
struct Kfunc {
    takes: Vec<Takes>,
    result: Value,
}

/// The rules for one program on one kernel.
pub(super) struct KernelRules<'a> {
    program: &'a Program,
    btf: &'a Btf,
    task: TypeId,
    /// The bytes of a task that programs may write.
    writable: Vec<Range<i64>>,
    /// By number of the extern.
    kfuncs: Vec<Option<Kfunc>>,
    /// What the arguments of each hook are.
    hooks: Vec<Vec<Value>>,
}

impl<'a> KernelRules<'a> {
    pub(super) fn new(program: &'a Program) -> Self {
        let btf = &program.kernel.btf;
        let kfunc = |resolved: &Resolved| match resolved {
            Resolved::Function(name) => kfunc(btf, name),
            _ => None,
        };
        let operations = btf.composite("sched_ext_ops");
        let hook =
            |name: &str| operations.and_then(|of| arguments(btf, of, name)).unwrap_or_default();
        let bytes = |path: &&str| {
            let (at, size) = btf.place(btf.composite("task_struct")?, path)?;
            Some(at as i64..(at + size) as i64)
        };
        Self {
            program,
            btf,
            task: btf.composite("task_struct").unwrap_or(0),
            writable: WRITABLE.iter().filter_map(bytes).collect(),
            kfuncs: program.externs.iter().map(kfunc).collect(),
            hooks: program.object.operations.hooks.iter().map(|(name, _)| hook(name)).collect(),
        }
    }

    /// What a kfunc returns, by the number of its extern.
    pub(super) fn kfunc_result(&self, number: usize) -> Value {
        self.kfuncs.get(number).and_then(Option::as_ref).map_or(Unknown, |kfunc| kfunc.result)
    }

    /// What a helper returns.
    pub(super) fn helper_result(&self, number: u32) -> Value {
        match helper_name(number).as_str() {
            "get_current_task_btf" if self.task != 0 => Object { of: self.task, offset: 0 },
            "map_update_elem" | "map_delete_elem" | "task_storage_delete" => Number(None),
            "ktime_get_ns" | "ktime_get_boot_ns" | "jiffies64" | "get_prandom_u32" => Number(None),
            "get_smp_processor_id" | "get_numa_node_id" | "get_current_pid_tgid" => Number(None),
            "probe_read_kernel" | "probe_read_kernel_str" | "snprintf" | "strncmp" => Number(None),
            _ => Unknown,
        }
    }

    /// An argument of a hook that is read at an offset.
    pub(super) fn argument(&self, hook: usize, at: i16) -> Value {
        let index = usize::try_from(at / 8).ok().filter(|_| at % 8 == 0);
        let known = self.hooks.get(hook).and_then(|arguments| arguments.get(index?));
        known.copied().unwrap_or(Unknown)
    }

    /// The 8 bytes that are read from an object.
    pub(super) fn member(&self, of: TypeId, at: i64) -> Value {
        let Some((of, within)) = u32::try_from(at).ok().and_then(|at| leaf(self.btf, of, at))
        else {
            return Unknown;
        };
        match self.btf.kind(of) {
            Kind::Pointer(_) if within != 0 => Unknown,
            _ => value_of(self.btf, of),
        }
    }

    /// A pointer to a variable. An address of the arena is a number to the verifier, and may be cast.
    pub(super) fn variable(&self, section: usize, offset: u64) -> Value {
        let found = self.program.object.data.get(section).filter(|found| !found.is_in_arena());
        match (found, i32::try_from(offset)) {
            (Some(_), Ok(offset)) => Data { section, offset },
            _ => Unknown,
        }
    }

    /// A number that is read from a variable which never changes. The verifier knows it too.
    pub(super) fn constant(&self, section: usize, at: i64, bytes: u32) -> Option<u64> {
        self.program.object.data.get(section).filter(|section| section.read_only)?;
        let start = usize::try_from(at).ok()?;
        let read =
            self.program.data.get(section)?.get(start..start.checked_add(bytes as usize)?)?;
        let mut number = [0; 8];
        number.get_mut(..read.len())?.copy_from_slice(read);
        Some(u64::from_le_bytes(number))
    }

    /// Why bytes may not be read from there.
    pub(super) fn refuses_read(&self, from: Value, offset: i16, bytes: u32) -> Option<String> {
        let Object { of, offset: start } = from else { return None };
        let Kind::Composite { size, .. } = self.btf.kind(of) else { return None };
        let at = i64::from(start) + i64::from(offset);
        let name = self.btf.name(of);
        if at < 0 {
            return Some(format!("reads before the beginning of a struct {name}"));
        }
        let beyond = at + i64::from(bytes) > i64::from(*size) && !is_open(self.btf, of, MOST_DEPTH);
        beyond.then(|| format!("reads beyond the end of a struct {name}"))
    }

    /// Why bytes may not be written there.
    pub(super) fn refuses_write(&self, to: Value, offset: i16, bytes: u32) -> Option<String> {
        match to {
            NULL => None,
            Number(Some(number)) => Some(format!(
                "writes to the address {:#x}, which is a number and no pointer",
                number.wrapping_add_signed(offset.into())
            )),
            Number(None) => Some("writes to a number as if it were an address".to_owned()),
            Object { of, offset: start } => {
                let at = i64::from(start) + i64::from(offset);
                (!self.may_write(of, at, bytes)).then(|| {
                    let member = path(self.btf, of, at);
                    format!("writes {member}, which the kernel lets no program write")
                })
            }
            Map(_) => {
                Some(format!("writes to {} itself, not to one of its values", self.named(to)))
            }
            Arguments(_) => Some("writes to the arguments of its hook".to_owned()),
            Data { section, offset: start } => {
                let name = self.constant_at(section, i64::from(start) + i64::from(offset))?;
                Some(format!("writes {name}, which is constant"))
            }
            _ => None,
        }
    }

    /// Whether programs may write these bytes of an object.
    fn may_write(&self, of: TypeId, at: i64, bytes: u32) -> bool {
        let end = at + i64::from(bytes);
        of == self.task && self.writable.iter().any(|range| range.start <= at && end <= range.end)
    }

    /// The name of the constant at a place. `None`: programs may write there.
    fn constant_at(&self, section: usize, at: i64) -> Option<&str> {
        let section = self.program.object.data.get(section).filter(|found| found.read_only)?;
        let variable = section.variables.iter().find(|variable| {
            let end = i64::from(variable.offset) + i64::from(variable.size);
            (i64::from(variable.offset)..end).contains(&at)
        });
        Some(variable.map_or(&section.name, |variable| &variable.name))
    }

    /// Why a kfunc does not take its arguments.
    pub(super) fn refuses_kfunc(&self, number: usize, given: &[Value]) -> Option<String> {
        let kfunc = self.kfuncs.get(number)?.as_ref()?;
        let Resolved::Function(name) = self.program.externs.get(number)? else { return None };
        let name = essential(name);
        given.iter().zip(&kfunc.takes).find_map(|(&given, &takes)| self.refuses(given, takes, name))
    }

    /// Why a helper does not take its arguments.
    pub(super) fn refuses_helper(&self, number: u32, given: &[Value]) -> Option<String> {
        let name = format!("bpf_{}", helper_name(number));
        let takes = self.helper_takes(number);
        given.iter().zip(takes).find_map(|(&given, takes)| self.refuses(given, takes, &name))
    }

    /// What helpers take. Which kinds of maps is as in the kernel's `check_map_func_compatibility()`; an arena has no
    /// keys, so nothing can be looked up in it.
    fn helper_takes(&self, number: u32) -> [Takes; 3] {
        use Takes::{Anything, MapExcept, MapOf, Memory, Struct};
        /// Kinds of maps that only helpers of their own take.
        const SPECIAL: &[u32] = &[3, 4, 7, 8, 19, 21, 22, 23, 24, 27, 28, 29, 30, 31, 32, 33];
        /// These, and maps of maps.
        const UNCHANGED: &[u32] =
            &[3, 4, 7, 8, 12, 13, 19, 21, 22, 23, 24, 27, 28, 29, 30, 31, 32, 33];
        let task = if self.task == 0 { Anything } else { Struct(self.task) };
        match helper_name(number).as_str() {
            "map_lookup_elem" => [MapExcept(SPECIAL), Memory, Anything],
            "map_update_elem" => [MapExcept(UNCHANGED), Memory, Memory],
            "map_delete_elem" => [MapExcept(UNCHANGED), Memory, Anything],
            "perf_event_read_value" => [MapOf(&[4]), Anything, Memory],
            "ringbuf_reserve" => [MapOf(&[27]), Anything, Anything],
            "task_storage_get" => [MapOf(&[29]), task, Memory],
            "task_storage_delete" => [MapOf(&[29]), task, Anything],
            "map_lookup_percpu_elem" => [MapOf(&[5, 6, 10]), Memory, Anything],
            // Locks, timers and pointers are in values.
            "spin_lock" | "spin_unlock" | "kptr_xchg" => [Memory, Anything, Anything],
            "timer_init" | "timer_set_callback" | "timer_start" | "timer_cancel" => {
                [Memory, Anything, Anything]
            }
            // Where they write.
            "probe_read_kernel" | "probe_read_kernel_str" | "snprintf" => {
                [Memory, Anything, Anything]
            }
            _ => [Anything; 3],
        }
    }

    /// Why a function does not take a value.
    fn refuses(&self, given: Value, takes: Takes, name: &str) -> Option<String> {
        let taken = match takes {
            Takes::Anything => true,
            Takes::Number => match given {
                // Of a struct that is only declared, the verifier makes a number if its own types do not have it.
                Object { of, .. } => *self.btf.kind(of) == Kind::Declared,
                other => !matches!(other, Map(_) | Arguments(_) | Stack(_) | Data { .. }),
            },
            Takes::Struct(wanted) => match given {
                Number(_) => given == NULL,
                Map(_) => self.btf.name(wanted) == "bpf_map",
                Object { of, offset } => self.contains(of, offset, wanted),
                other => !matches!(other, Arguments(_)),
            },
            // A number that is not known may be 0, which the verifier may know.
            Takes::Memory => match given {
                Number(number) => number.is_none_or(|number| number == 0),
                other => !matches!(other, Object { .. } | Map(_)),
            },
            Takes::MapOf(kinds) => match given {
                Map(_) => self.kind_of(given).is_none_or(|kind| kinds.contains(&kind.0)),
                other => self.may_be_map(other),
            },
            Takes::MapExcept(kinds) => match given {
                Map(_) => self.kind_of(given).is_none_or(|kind| !kinds.contains(&kind.0)),
                other => self.may_be_map(other),
            },
        };
        (!taken).then(|| {
            format!("gives {} to {name}, which takes {}", self.named(given), self.wanted(takes))
        })
    }

    fn may_be_map(&self, given: Value) -> bool {
        !matches!(given, Number(_) | Object { .. } | Arguments(_) | Stack(_) | Data { .. })
    }

    fn kind_of(&self, map: Value) -> Option<MapKind> {
        let Map(map) = map else { return None };
        self.program.maps.get(map).map(|map| map.kind)
    }

    /// Whether an object has a struct at an offset: the object itself, or one of which it consists
    /// (`btf_struct_ids_match()`). True if its members are not known.
    fn contains(&self, of: TypeId, offset: i32, wanted: TypeId) -> bool {
        let name = |id| essential(self.btf.name(id));
        let (mut of, Ok(mut at)) = (of, u32::try_from(offset)) else { return false };
        for _ in 0..MOST_DEPTH {
            if at == 0 && name(of) == name(wanted) && !name(of).is_empty() {
                return true;
            }
            match self.btf.kind(of) {
                Kind::Declared if name(of) == "bpf_cpumask" => return name(wanted) == "cpumask",
                Kind::Declared => return true,
                Kind::Composite { union: true, .. } => return true,
                _ => match inner(self.btf, of, at) {
                    Some(next) => (of, at) = next,
                    None => return false,
                },
            }
        }
        true
    }

    /// A value in words.
    fn named(&self, value: Value) -> String {
        match value {
            Object { of, offset: 0 } => format!("a struct {}", self.btf.name(of)),
            Object { of, offset } => format!("a pointer to {}", path(self.btf, of, offset.into())),
            Map(map) => match self.program.maps.get(map) {
                Some(map) => format!("the map {} ({})", map.name, map.kind),
                None => "a map".to_owned(),
            },
            Number(_) => "a number".to_owned(),
            Arguments(_) => "the arguments of its hook".to_owned(),
            Stack(_) => "a pointer to its stack".to_owned(),
            Data { .. } => "a pointer to a variable".to_owned(),
            _ => "something".to_owned(),
        }
    }

    /// What a parameter takes, in words.
    fn wanted(&self, takes: Takes) -> String {
        match takes {
            Takes::Anything => "anything".to_owned(),
            Takes::Number => "a number".to_owned(),
            Takes::Struct(of) => format!("a struct {}", self.btf.name(of)),
            Takes::Memory => "memory of the program".to_owned(),
            Takes::MapOf(kinds) => {
                let kinds: Vec<String> =
                    kinds.iter().map(|&kind| MapKind(kind).to_string()).collect();
                format!("a map of the kind {}", kinds.join(" or "))
            }
            Takes::MapExcept(_) => "a map with keys and values, such as an array".to_owned(),
        }
    }
}

/// What a kfunc takes and returns.
fn kfunc(btf: &Btf, name: &str) -> Option<Kfunc> {
    let (result, parameters) = btf.prototype(name)?;
    let takes = parameters.iter().map(|&(name, of)| parameter(btf, btf.text(name), of)).collect();
    let result = match value_of(btf, result) {
        Object { of, .. } if WITHIN_VALUES.contains(&btf.name(of)) => Unknown,
        value => value,
    };
    Some(Kfunc { takes, result })
}

/// What a parameter of a kfunc takes.
fn parameter(btf: &Btf, name: &str, of: TypeId) -> Takes {
    let end = name.rfind("__").map(|at| &name[at..]);
    match btf.kind(btf.plain(of)) {
        Kind::Int { .. } | Kind::Enum { .. } if end != Some("__ign") => Takes::Number,
        Kind::Pointer(to) if end.is_none_or(|end| SAME_POINTER.contains(&end)) => {
            let to = btf.plain(*to);
            match btf.kind(to) {
                Kind::Composite { union: false, .. } | Kind::Declared
                    if !btf.name(to).is_empty() =>
                {
                    Takes::Struct(to)
                }
                Kind::Int { .. } | Kind::Enum { .. } => Takes::Memory,
                _ => Takes::Anything,
            }
        }
        _ => Takes::Anything,
    }
}

/// What the arguments of a hook are.
fn arguments(btf: &Btf, operations: TypeId, hook: &str) -> Option<Vec<Value>> {
    let (member, _) = btf.member(operations, hook)?;
    let Kind::Pointer(to) = btf.kind(btf.plain(member.of)) else { return None };
    let Kind::Prototype { parameters, .. } = btf.kind(btf.plain(*to)) else { return None };
    Some(parameters.iter().map(|&(_, of)| value_of(btf, of)).collect())
}

/// What is known of a value from its type.
fn value_of(btf: &Btf, of: TypeId) -> Value {
    match btf.kind(btf.plain(of)) {
        Kind::Int { .. } | Kind::Enum { .. } => Number(None),
        Kind::Pointer(to) => match untagged(btf, *to) {
            Some(of) => Object { of, offset: 0 },
            None => Unknown,
        },
        _ => Unknown,
    }
}

/// The named struct behind qualifiers and typedefs. `None` if there is none, or if a tag says that it is not ordinary
/// memory: a variable of each CPU, or of user space.
fn untagged(btf: &Btf, mut id: TypeId) -> Option<TypeId> {
    for _ in 0..MOST_DEPTH {
        match btf.kind(id) {
            Kind::Qualifier(_) if !["", "rcu"].contains(&btf.name(id)) => return None,
            Kind::Qualifier(next) | Kind::Typedef(next) => id = *next,
            Kind::Composite { union: false, .. } | Kind::Declared => {
                return (!btf.name(id).is_empty()).then_some(id);
            }
            _ => return None,
        }
    }
    None
}

/// The part of a struct or an array that contains a byte: its type, without qualifiers, and the offset within it.
fn inner(btf: &Btf, of: TypeId, at: u32) -> Option<(TypeId, u32)> {
    match btf.kind(of) {
        Kind::Composite { members, .. } => {
            let start = |bits: u32| bits / 8;
            let to = members.partition_point(|member| start(member.bit_offset) <= at);
            members[..to].iter().rev().find_map(|member| {
                let within = at.checked_sub(start(member.bit_offset))?;
                (within < btf.size(member.of)?).then_some((btf.plain(member.of), within))
            })
        }
        Kind::Array { element, .. } => {
            Some((btf.plain(*element), at.checked_rem(btf.size(*element)?)?))
        }
        _ => None,
    }
}

/// The number or pointer at an offset of a struct, and the offset within it. Not through unions.
fn leaf(btf: &Btf, of: TypeId, at: u32) -> Option<(TypeId, u32)> {
    let mut place = (of, at);
    for _ in 0..MOST_DEPTH {
        match btf.kind(place.0) {
            Kind::Composite { union: true, .. } => return None,
            Kind::Composite { .. } | Kind::Array { .. } => place = inner(btf, place.0, place.1)?,
            _ => return Some(place),
        }
    }
    None
}

/// Whether the last member is an array without a length, perhaps within another struct.
fn is_open(btf: &Btf, of: TypeId, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return true };
    match btf.kind(btf.plain(of)) {
        Kind::Array { count: 0, .. } => true,
        Kind::Composite { union: true, members, .. } => {
            members.iter().any(|member| is_open(btf, member.of, depth))
        }
        Kind::Composite { members, .. } => {
            members.last().is_some_and(|member| is_open(btf, member.of, depth))
        }
        _ => false,
    }
}

/// A byte of a struct in words: `task_struct.scx.slice`.
fn path(btf: &Btf, of: TypeId, at: i64) -> String {
    let mut path = btf.name(of).to_owned();
    let Ok(at) = u32::try_from(at) else { return format!("before a {path}") };
    let mut place = (of, at);
    for _ in 0..MOST_DEPTH {
        if let Kind::Composite { members, .. } = btf.kind(place.0) {
            let Some(next) = inner(btf, place.0, place.1) else { break };
            let start = place.1 - next.1;
            let member = members
                .iter()
                .find(|member| member.bit_offset / 8 == start && btf.plain(member.of) == next.0);
            match member.map_or("", |member| btf.text(member.name)) {
                "" => {}
                name => path = format!("{path}.{name}"),
            }
            place = next;
        } else {
            break;
        }
    }
    path
}
