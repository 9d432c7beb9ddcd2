//! What the kernel offers to programs besides types: helpers by number, kfuncs and variables by name.

use crate::btf::{Btf, Kind, TypeId, essential};
use crate::kernel_types::KernelTypes;
use crate::object::Extern;

/// Helpers that schedulers use, by number (`include/uapi/linux/bpf.h`).
const HELPERS: [(u32, &str); 48] = [
    (1, "map_lookup_elem"),
    (2, "map_update_elem"),
    (3, "map_delete_elem"),
    (4, "probe_read"),
    (5, "ktime_get_ns"),
    (6, "trace_printk"),
    (7, "get_prandom_u32"),
    (8, "get_smp_processor_id"),
    (12, "tail_call"),
    (14, "get_current_pid_tgid"),
    (16, "get_current_comm"),
    (25, "perf_event_output"),
    (35, "get_current_task"),
    (42, "get_numa_node_id"),
    (45, "probe_read_str"),
    (55, "perf_event_read_value"),
    (87, "map_push_elem"),
    (88, "map_pop_elem"),
    (89, "map_peek_elem"),
    (93, "spin_lock"),
    (94, "spin_unlock"),
    (112, "probe_read_user"),
    (113, "probe_read_kernel"),
    (114, "probe_read_user_str"),
    (115, "probe_read_kernel_str"),
    (118, "jiffies64"),
    (125, "ktime_get_boot_ns"),
    (130, "ringbuf_output"),
    (131, "ringbuf_reserve"),
    (132, "ringbuf_submit"),
    (133, "ringbuf_discard"),
    (153, "per_cpu_ptr"),
    (154, "this_cpu_ptr"),
    (156, "task_storage_get"),
    (157, "task_storage_delete"),
    (158, "get_current_task_btf"),
    (164, "for_each_map_elem"),
    (165, "snprintf"),
    (169, "timer_init"),
    (170, "timer_set_callback"),
    (171, "timer_start"),
    (172, "timer_cancel"),
    (177, "trace_vprintk"),
    (181, "loop"),
    (182, "strncmp"),
    (194, "kptr_xchg"),
    (195, "map_lookup_percpu_elem"),
    (210, "cgrp_storage_get"),
];

/// A helper's name, such as `map_lookup_elem`.
pub(crate) fn helper_name(number: u32) -> String {
    match HELPERS.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("helper {number}"),
    }
}

/// What an extern of an object is on a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// A function, with the kernel's name for it.
    Function(String),
    /// A variable. The type has the kernel's number.
    Variable(TypeId),
    /// A line of the kernel's configuration, or the kernel's version.
    Config,
    /// The kernel has nothing with this name.
    Missing,
    /// The kernel has a function with this name, but with other parameters.
    Differs,
}

/// Finds an extern as libbpf does. The suffix after the last `___` is ignored. A function must have compatible
/// parameters and a compatible result (`bpf_core_types_are_compat()`).
pub fn resolve(local: &Btf, kernel: &KernelTypes, wanted: &Extern) -> Resolved {
    if wanted.kconfig {
        return Resolved::Config;
    }
    let name = essential(&wanted.name);
    if let Kind::Function(here) = local.kind(wanted.of) {
        let function = kernel.btf.find(name, |kind| matches!(kind, Kind::Function(_)));
        return match function.map(|id| kernel.btf.kind(id)) {
            Some(Kind::Function(there)) if compatible(local, *here, kernel, *there, 0) => {
                Resolved::Function(name.to_owned())
            }
            Some(_) => Resolved::Differs,
            None => Resolved::Missing,
        };
    }
    match kernel.btf.find(name, |kind| matches!(kind, Kind::Variable { .. })) {
        Some(id) => Resolved::Variable(id),
        None => Resolved::Missing,
    }
}

/// How deep prototypes are compared, as in the kernel.
const MOST_DEPTH: u32 = 32;

fn compatible(local: &Btf, here: TypeId, kernel: &KernelTypes, there: TypeId, depth: u32) -> bool {
    if depth >= MOST_DEPTH {
        return false;
    }
    let (here, there) = (local.plain(here), kernel.btf.plain(there));
    let inner = |a: TypeId, b: TypeId| compatible(local, a, kernel, b, depth + 1);
    match (local.kind(here), kernel.btf.kind(there)) {
        (Kind::Pointer(a), Kind::Pointer(b)) => inner(*a, *b),
        (Kind::Array { element: a, .. }, Kind::Array { element: b, .. }) => inner(*a, *b),
        (
            Kind::Prototype { result: a, parameters: these },
            Kind::Prototype { result: b, parameters: those },
        ) => {
            these.len() == those.len()
                && these.iter().zip(those).all(|(a, b)| inner(a.1, b.1))
                && inner(*a, *b)
        }
        (Kind::Composite { .. }, Kind::Declared) => kernel.reduced,
        (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}
