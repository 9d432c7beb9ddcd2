//! Reduces a kernel's BTF to what sched_ext schedulers read and call.
//!
//!     cargo run --release -p roost-scx --example reduce_btf -- vmlinux.btf reduced.btf
//!
//! Kept whole are the structs in [`WHOLE`], those whose name begins with `scx_`, the types that these contain by value,
//! kfuncs and the functions of sched_ext with their prototypes, per-CPU variables, and [`TRACEPOINTS`].
//! Other structs and enumerations are kept as declarations, so that a program can still ask whether one exists.

use std::collections::HashMap;
use std::io::Error;

use roost_scx::btf::{Btf, Kind, TypeId};

/// Types whose members schedulers read (docs/scx.md).
const WHOLE: [&str; 26] = [
    "task_struct",
    "rq",
    "cgroup",
    "cgroup_subsys_state",
    "css_set",
    "kernfs_node",
    "task_group",
    "signal_struct",
    "cpumask",
    "mempolicy",
    "cpufreq_policy",
    "cpufreq_cpuinfo",
    "sched_ext_ops",
    // What a loader gives to the kernel: a scheduler's operations, behind the kernel's own members.
    "bpf_struct_ops_sched_ext_ops",
    "sched_ext_entity",
    "bpf_iter_num",
    "bpf_iter_css",
    "bpf_iter_scx_dsq",
    "bpf_perf_event_value",
    "bpf_timer",
    "bpf_spin_lock",
    "mm_struct",
    "pcpu_hot",
    "pid",
    "upid",
    // Guards of scoped code (`include/linux/cleanup.h`).
    "class_rcu_t",
];

/// Tracepoints at which programs beside a scheduler follow tasks.
const TRACEPOINTS: [&str; 3] = ["btf_trace_sched_", "btf_trace_cgroup_", "btf_trace_task_"];

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &arguments[..] else {
        return Err(Error::other("give a BTF file and the file to write"));
    };
    let btf = Btf::parse(&std::fs::read(from)?).map_err(Error::other)?;
    std::fs::write(to, Writer::new(&btf).write())
}

/// Whether a type is kept whole for its own sake.
fn is_root(btf: &Btf, id: TypeId, kfuncs: &[TypeId]) -> bool {
    let name = btf.name(id);
    match btf.kind(id) {
        Kind::Composite { .. } => WHOLE.contains(&name) || name.starts_with("scx_"),
        Kind::Enum { .. } => name.starts_with("scx_"),
        Kind::Function(_) => kfuncs.contains(&id) || is_of_sched_ext(name),
        Kind::Variable { .. } => true,
        Kind::Typedef(_) => {
            WHOLE.contains(&name) || TRACEPOINTS.iter().any(|start| name.starts_with(start))
        }
        _ => false,
    }
}

/// Whether a function is one of sched_ext, which programs beside a scheduler trace (`fentry/bpf_scx_reg`).
fn is_of_sched_ext(function: &str) -> bool {
    ["scx_", "bpf_scx_"].iter().any(|start| function.starts_with(start))
}

/// Writes types with new numbers.
struct Writer<'a> {
    btf: &'a Btf,
    /// New numbers. The key is the old number, and whether the type is kept whole.
    numbers: HashMap<(TypeId, bool), u32>,
    order: Vec<(TypeId, bool)>,
    declarations: HashMap<(bool, String), u32>,
    strings: Vec<u8>,
    offsets: HashMap<String, u32>,
}

impl<'a> Writer<'a> {
    fn new(btf: &'a Btf) -> Self {
        Self {
            btf,
            numbers: HashMap::new(),
            order: Vec::new(),
            declarations: HashMap::new(),
            strings: vec![0],
            offsets: HashMap::new(),
        }
    }

    fn write(mut self) -> Vec<u8> {
        let kfuncs: Vec<TypeId> = (self.btf.types().iter().enumerate())
            .filter(|(id, _)| self.btf.name(*id as TypeId) == "bpf_kfunc")
            .filter_map(|(_, ty)| if let Kind::Tag(of) = ty.kind { Some(of) } else { None })
            .collect();
        let all = 1..self.btf.types().len() as TypeId;
        for id in all.clone() {
            if is_root(self.btf, id, &kfuncs) {
                self.number(id, true);
            }
        }
        for id in all {
            let named = !self.btf.name(id).is_empty();
            if named && matches!(self.btf.kind(id), Kind::Composite { .. } | Kind::Enum { .. }) {
                self.number(id, false);
            }
        }
        let mut types = Vec::new();
        let mut done = 0;
        while done < self.order.len() {
            let (id, whole) = self.order[done];
            done += 1;
            self.write_type(id, whole, &mut types);
        }
        let mut out = Vec::new();
        out.extend(0xeb9f_u16.to_le_bytes());
        out.extend([1, 0]);
        let words = [24, 0, types.len(), types.len(), self.strings.len()];
        out.extend(words.iter().flat_map(|&word| (word as u32).to_le_bytes()));
        out.extend(types);
        out.extend(self.strings);
        out
    }

    /// The new number of a type. A struct or enumeration behind a pointer is only declared, unless it is kept for its
    /// own sake.
    fn number(&mut self, id: TypeId, whole: bool) -> u32 {
        if id == 0 {
            return 0;
        }
        let (kind, name) = (self.btf.kind(id), self.btf.name(id));
        let declarable =
            matches!(kind, Kind::Composite { .. } | Kind::Enum { .. } | Kind::Declared);
        // The type behind a typedef or qualifier decides.
        let passes = matches!(kind, Kind::Typedef(_) | Kind::Qualifier(_));
        let whole = whole
            || !(declarable || passes)
            || (declarable && name.is_empty())
            || (!passes && is_root(self.btf, id, &[]));
        if let Some(&number) = self.numbers.get(&(id, true)).or(self.numbers.get(&(id, whole))) {
            return number;
        }
        let next = self.order.len() as u32 + 1;
        if !whole && declarable {
            let key = (matches!(kind, Kind::Enum { .. }), name.to_owned());
            if let Some(&number) = self.declarations.get(&key) {
                return number;
            }
            self.declarations.insert(key, next);
        }
        self.numbers.insert((id, whole), next);
        self.order.push((id, whole));
        next
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&offset) = self.offsets.get(text) {
            return offset;
        }
        let offset = self.strings.len() as u32;
        self.strings.extend(text.bytes().chain([0]));
        self.offsets.insert(text.to_owned(), offset);
        offset
    }

    fn write_type(&mut self, id: TypeId, whole: bool, out: &mut Vec<u8>) {
        let btf = self.btf;
        let name = self.string(btf.name(id));
        let mut put = |kind: u32, count: usize, flag: bool, value: u32, body: Vec<u32>| {
            let info = (kind << 24) | count as u32 | (u32::from(flag) << 31);
            let words = [name, info, value].into_iter().chain(body);
            out.extend(words.flat_map(u32::to_le_bytes));
        };
        match btf.kind(id) {
            Kind::Composite { union, .. } if !whole => put(7, 0, *union, 0, vec![]),
            Kind::Enum { size, .. } if !whole => put(6, 0, false, *size, vec![]),
            Kind::Declared => put(7, 0, false, 0, vec![]),
            Kind::Void | Kind::Section(_) | Kind::Tag(_) => put(7, 0, false, 0, vec![]),
            Kind::Int { size, signed, boolean } => {
                let encoding = u32::from(*signed) | (u32::from(*boolean) << 2);
                put(1, 0, false, *size, vec![(encoding << 24) | (size * 8)]);
            }
            Kind::Float { size } => put(16, 0, false, *size, vec![]),
            Kind::Pointer(to) => put(2, 0, false, self.number(*to, false), vec![]),
            Kind::Typedef(to) => put(8, 0, false, self.number(*to, whole), vec![]),
            Kind::Qualifier(to) => {
                // Which qualifier it was does not matter here. It becomes `const`, without a name.
                let words = [0, 10 << 24, self.number(*to, whole)];
                out.extend(words.into_iter().flat_map(u32::to_le_bytes));
            }
            Kind::Function(of) => put(12, 1, false, self.number(*of, false), vec![]),
            Kind::Variable { of, global } => {
                put(14, 0, false, self.number(*of, false), vec![u32::from(*global)]);
            }
            Kind::Array { element, count } => {
                let element = self.number(*element, true);
                put(3, 0, false, 0, vec![element, 0, *count]);
            }
            Kind::Composite { union, size, members } => {
                let mut body = Vec::new();
                for member in members {
                    let name = self.string(btf.text(member.name));
                    let place = member.bit_offset | (u32::from(member.bits) << 24);
                    body.extend([name, self.number(member.of, true), place]);
                }
                put(4 + u32::from(*union), members.len(), true, *size, body);
            }
            Kind::Enum { size, signed, values } => {
                let mut body = Vec::new();
                for (name, value) in values {
                    let low = *value as u32;
                    body.extend([self.string(btf.text(*name)), low, (*value >> 32) as u32]);
                }
                put(19, values.len(), *signed, *size, body);
            }
            Kind::Prototype { result, parameters } => {
                let mut body = Vec::new();
                for (name, of) in parameters {
                    body.extend([self.string(btf.text(*name)), self.number(*of, false)]);
                }
                let result = self.number(*result, false);
                put(13, parameters.len(), false, result, body);
            }
        }
    }
}
