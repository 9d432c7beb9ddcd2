//! kfuncs, which programs call by name. Each does what the function with that name does in the kernel's
//! `kernel/sched/ext/` and `kernel/bpf/`.

use std::collections::{BTreeMap, BTreeSet};

use roost_engine::CpuId;

use crate::arena;
use crate::costs;
use crate::css;
use crate::dispatch::{ENQUEUE_BY_TIME, INTERNAL_FLAGS};
use crate::format;
use crate::helpers::Function;
use crate::idle::{PICK_IN_NODE, Wakeup};
use crate::interpret::Stop;
use crate::iterators;
use crate::kernel::Call;
use crate::masks;
use crate::queues::{Dsq, Queue, id};

/// A kfunc: its name, number of parameters, and function.
type Kfunc = (&'static str, usize, Function);

const SCHEDULING: [Kfunc; 64] = [
    ("scx_bpf_create_dsq", 2, create_dsq),
    ("scx_bpf_destroy_dsq", 1, destroy_dsq),
    ("scx_bpf_dsq_insert", 4, dsq_insert),
    ("scx_bpf_dsq_insert___v2", 4, dsq_insert),
    ("scx_bpf_dsq_insert_vtime", 5, dsq_insert_vtime),
    ("__scx_bpf_dsq_insert_vtime", 2, dsq_insert_vtime_args),
    ("scx_bpf_dsq_move_to_local", 1, dsq_move_to_local),
    ("scx_bpf_dsq_move_to_local___v2", 2, dsq_move_to_local_with),
    ("scx_bpf_dsq_nr_queued", 1, dsq_nr_queued),
    ("scx_bpf_dsq_peek", 1, dsq_peek),
    ("scx_bpf_dsq_move", 4, iterators::move_task),
    ("scx_bpf_dsq_move_vtime", 4, iterators::move_task_by_time),
    ("scx_bpf_dsq_move_set_slice", 2, iterators::set_slice),
    ("scx_bpf_dsq_move_set_vtime", 2, iterators::set_vtime),
    ("bpf_iter_scx_dsq_new", 3, iterators::begin),
    ("bpf_iter_scx_dsq_next", 1, iterators::next),
    ("bpf_iter_scx_dsq_destroy", 1, iterators::end),
    ("scx_bpf_select_cpu_dfl", 4, select_cpu_dfl),
    ("scx_bpf_select_cpu_and", 5, select_cpu_and),
    ("__scx_bpf_select_cpu_and", 3, select_cpu_and_args),
    ("scx_bpf_test_and_clear_cpu_idle", 1, test_and_clear_cpu_idle),
    ("scx_bpf_pick_idle_cpu", 2, pick_idle_cpu),
    ("scx_bpf_pick_any_cpu", 2, pick_any_cpu),
    ("scx_bpf_get_idle_cpumask", 0, |call, _| idle_mask(call, false)),
    ("scx_bpf_get_idle_smtmask", 0, |call, _| idle_mask(call, true)),
    ("scx_bpf_put_idle_cpumask", 1, nothing),
    ("scx_bpf_get_idle_cpumask_node", 1, |call, arguments| {
        idle_mask_of_node(call, arguments, false)
    }),
    ("scx_bpf_get_idle_smtmask_node", 1, |call, arguments| {
        idle_mask_of_node(call, arguments, true)
    }),
    ("scx_bpf_pick_idle_cpu_node", 3, pick_idle_cpu_of_node),
    ("scx_bpf_pick_any_cpu_node", 3, pick_any_cpu_of_node),
    ("scx_bpf_get_possible_cpumask", 0, all_cpus),
    ("scx_bpf_get_online_cpumask", 0, all_cpus),
    ("scx_bpf_put_cpumask", 1, nothing),
    (SET_VTIME, 2, task_set_dsq_vtime),
    (SET_SLICE, 2, task_set_slice),
    (TASK_CPU, 1, task_cpu),
    ("scx_bpf_task_running", 1, task_running),
    ("scx_bpf_task_cgroup", 1, task_cgroup),
    ("bpf_cgroup_release", 1, nothing),
    ("bpf_cgroup_ancestor", 2, cgroup_ancestor),
    ("bpf_iter_css_new", 3, css::begin),
    ("bpf_iter_css_next", 1, css::next),
    ("bpf_iter_css_destroy", 1, nothing),
    ("bpf_task_from_pid", 1, task_from_pid),
    ("bpf_task_release", 1, nothing),
    ("scx_bpf_kick_cpu", 2, kick_cpu),
    ("scx_bpf_cpu_rq", 1, cpu_rq),
    ("scx_bpf_cpu_curr", 1, cpu_curr),
    ("scx_bpf_cpuperf_cap", 1, cpuperf),
    ("scx_bpf_cpuperf_cur", 1, cpuperf),
    ("scx_bpf_cpuperf_set", 2, cpuperf_set),
    (NOW, 0, now),
    ("scx_bpf_nr_cpu_ids", 0, nr_cpu_ids),
    ("scx_bpf_nr_node_ids", 0, nr_node_ids),
    ("scx_bpf_cpu_node", 1, cpu_node),
    ("scx_bpf_error_bstr", 3, error_bstr),
    ("scx_bpf_exit_bstr", 4, exit_bstr),
    ("bpf_rcu_read_lock", 0, nothing),
    ("bpf_rcu_read_unlock", 0, nothing),
    ("bpf_preempt_disable", 0, nothing),
    ("bpf_preempt_enable", 0, nothing),
    ("bpf_iter_num_new", 3, iter_num_new),
    ("bpf_iter_num_next", 1, iter_num_next),
    ("bpf_iter_num_destroy", 1, nothing),
];

/// All kfuncs in the order of their numbers: [`SCHEDULING`], then those of masks and of arenas.
fn table() -> impl Iterator<Item = &'static Kfunc> {
    SCHEDULING.iter().chain(&masks::KFUNCS).chain(&arena::KFUNCS)
}

/// The number of a kfunc, if the simulation has it.
pub(crate) fn find(name: &str) -> Option<u32> {
    table().position(|kfunc| kfunc.0 == name).map(|number| number as u32)
}

/// The kfunc with this number.
fn get(number: u32) -> Option<&'static Kfunc> {
    let number = number as usize;
    let after = |before: usize| number.checked_sub(before);
    let of_masks = || masks::KFUNCS.get(after(SCHEDULING.len())?);
    let of_arenas = || arena::KFUNCS.get(after(SCHEDULING.len() + masks::KFUNCS.len())?);
    SCHEDULING.get(number).or_else(of_masks).or_else(of_arenas)
}

/// The number of parameters of the kfunc with this number.
pub(crate) fn parameters(number: u32) -> Option<usize> {
    get(number).map(|kfunc| kfunc.1)
}

/// Instructions that the kernel executes in each kfunc, by number.
pub(crate) fn costs() -> Vec<u64> {
    table().map(|kfunc| costs::of_kfunc(kfunc.0)).collect()
}

/// kfuncs that machine code can do itself: a clock, a task's CPU, and setting members of a task.
pub(crate) const NOW: &str = "scx_bpf_now";
pub(crate) const TASK_CPU: &str = "scx_bpf_task_cpu";
pub(crate) const SET_VTIME: &str = "scx_bpf_task_set_dsq_vtime";
pub(crate) const SET_SLICE: &str = "scx_bpf_task_set_slice";

/// The kfuncs that do nothing, with the instructions that the kernel executes in them.
pub(crate) fn nothings() -> BTreeMap<u32, u64> {
    let numbered = (0..).zip(table());
    let idle = numbered.filter(|(_, kfunc)| std::ptr::fn_addr_eq(kfunc.2, nothing as Function));
    idle.map(|(number, kfunc)| (number, costs::of_kfunc(kfunc.0))).collect()
}

/// kfuncs that do not write to memory to which a program passes pointers, except to tasks.
const KEEPING: [&str; 14] = [
    "scx_bpf_dsq_insert",
    "scx_bpf_dsq_insert___v2",
    "scx_bpf_dsq_insert_vtime",
    "__scx_bpf_dsq_insert_vtime",
    "scx_bpf_dsq_move_to_local",
    "scx_bpf_dsq_move_to_local___v2",
    "scx_bpf_dsq_nr_queued",
    "scx_bpf_test_and_clear_cpu_idle",
    SET_VTIME,
    SET_SLICE,
    TASK_CPU,
    "scx_bpf_kick_cpu",
    NOW,
    "bpf_cpumask_test_cpu",
];

/// The numbers of kfuncs that leave memory as it is, except for tasks.
pub(crate) fn keeping() -> BTreeSet<u32> {
    KEEPING.iter().filter_map(|name| find(name)).chain(nothings().into_keys()).collect()
}

/// Calls a kfunc by its number.
pub(crate) fn call(number: u32, call: &mut Call, arguments: [u64; 5]) -> Result<u64, Stop> {
    match get(number) {
        Some(kfunc) => (kfunc.2)(call, arguments),
        None => Err(Stop::Refused(
            "it calls a kfunc that the simulation does not have; `roost scx FILE` lists it".into(),
        )),
    }
}

/// SCX_CPUPERF_ONE.
const PERFORMANCE_ONE: u64 = 1024;

/// No node in particular.
const NUMA_NO_NODE: i32 = -1;

const EINVAL: u64 = -22i64 as u64;
const EBUSY: u64 = -16i64 as u64;
const EOPNOTSUPP: u64 = -95i64 as u64;
const ENOENT: u64 = -2i64 as u64;
const ENOMEM: u64 = -12i64 as u64;
const EEXIST: u64 = -17i64 as u64;

fn create_dsq(call: &mut Call, [number, ..]: [u64; 5]) -> Result<u64, Stop> {
    if number & id::BUILTIN != 0 {
        return Ok(EINVAL);
    }
    if call.kernel.queues.made.contains(number) {
        return Ok(EEXIST);
    }
    let Some(queue) = Queue::new(&mut call.kernel.memory) else { return Ok(ENOMEM) };
    call.kernel.queues.made.insert(number, queue);
    Ok(0)
}

fn destroy_dsq(call: &mut Call, [number, ..]: [u64; 5]) -> Result<u64, Stop> {
    match call.kernel.queues.made.get(number) {
        Some(queue) if queue.len() > 0 => {
            call.kernel.end(format!("attempting to destroy in-use dsq {number:#x}"));
        }
        Some(queue) => {
            call.kernel.memory.release(queue.address, Queue::BYTES);
            call.kernel.queues.made.remove(number);
        }
        None => {}
    }
    Ok(0)
}

/// Puts a task into a queue, now or after `dispatch`. A slice of 0 keeps the task's slice.
fn insert(
    call: &mut Call,
    task: u64,
    queue: u64,
    slice: u64,
    vtime: Option<u64>,
    flags: u64,
) -> Result<u64, Stop> {
    if task == 0 {
        call.kernel.end("called with NULL task");
        return Ok(0);
    }
    if flags & INTERNAL_FLAGS != 0 {
        call.kernel.end(format!("invalid enq_flags {flags:#x}"));
        return Ok(0);
    }
    let task = call.kernel.task_at(task)?;
    let kernel = &mut *call.kernel;
    let slice = match slice {
        0 => kernel.tasks.slice(&kernel.memory, task).max(1),
        slice => slice,
    };
    kernel.tasks.set_slice(&mut kernel.memory, task, slice);
    let mut flags = flags;
    if let Some(vtime) = vtime {
        kernel.tasks.set_vtime(&mut kernel.memory, task, vtime);
        flags |= ENQUEUE_BY_TIME;
    }
    call.ask_for(task, queue, flags);
    Ok(1)
}

fn dsq_insert(call: &mut Call, [task, queue, slice, flags, _]: [u64; 5]) -> Result<u64, Stop> {
    insert(call, task, queue, slice, None, flags)
}

fn dsq_insert_vtime(call: &mut Call, arguments: [u64; 5]) -> Result<u64, Stop> {
    let [task, queue, slice, vtime, flags] = arguments;
    insert(call, task, queue, slice, Some(vtime), flags)
}

/// The arguments that do not fit into registers are in a struct of four numbers.
fn dsq_insert_vtime_args(call: &mut Call, [task, args, ..]: [u64; 5]) -> Result<u64, Stop> {
    let number = |at: u64| call.kernel.memory.read(args.wrapping_add(8 * at), 8);
    let [queue, slice, vtime, flags] = [number(0)?, number(1)?, number(2)?, number(3)?];
    insert(call, task, queue, slice, Some(vtime), flags)
}

fn dsq_move_to_local(call: &mut Call, [queue, ..]: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.move_to_local(queue, 0).into())
}

fn dsq_move_to_local_with(call: &mut Call, [queue, flags, ..]: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.move_to_local(queue, flags).into())
}

fn dsq_nr_queued(call: &mut Call, [number, ..]: [u64; 5]) -> Result<u64, Stop> {
    let dsq = match number {
        id::LOCAL => Dsq::Local(call.cpu),
        _ if number & id::LOCAL_ON == id::LOCAL_ON => Dsq::Local((number & id::CPU_MASK) as usize),
        _ => Dsq::Made(number),
    };
    call.touch_queue(dsq, false);
    Ok(call.kernel.queues.get(dsq).map_or(ENOENT, |queue| queue.len() as u64))
}

/// The first task of a queue that the scheduler created. 0 if it is empty.
fn dsq_peek(call: &mut Call, [number, ..]: [u64; 5]) -> Result<u64, Stop> {
    if number & id::BUILTIN != 0 {
        call.kernel.end(format!("peek disallowed on builtin DSQ {number:#x}"));
        return Ok(0);
    }
    let Some(queue) = call.kernel.queues.made.get(number) else {
        call.kernel.end(format!("peek on non-existent DSQ {number:#x}"));
        return Ok(0);
    };
    let first = queue.tasks().next();
    call.touch_queue(Dsq::Made(number), false);
    Ok(first.map_or(0, |task| call.kernel.tasks.get(task).address))
}

fn select_cpu_dfl(
    call: &mut Call,
    [task, previous, flags, is_idle, _]: [u64; 5],
) -> Result<u64, Stop> {
    let found = select_cpu(call, task, previous, flags, None, 0)?;
    call.kernel.memory.write(is_idle, 1, found.is_ok().into())?;
    Ok(found.unwrap_or(previous))
}

fn select_cpu_and(call: &mut Call, arguments: [u64; 5]) -> Result<u64, Stop> {
    let [task, previous, flags, allowed, pick] = arguments;
    Ok(select_cpu(call, task, previous, flags, Some(allowed), pick)?.unwrap_or_else(|error| error))
}

/// The arguments that do not fit into registers are in a struct: `prev_cpu`, `wake_flags`, `flags`.
fn select_cpu_and_args(call: &mut Call, [task, allowed, args, ..]: [u64; 5]) -> Result<u64, Stop> {
    let number = |at, bytes| call.kernel.memory.read(args.wrapping_add(at), bytes);
    let (previous, flags, pick) = (number(0, 4)?, number(8, 8)?, number(16, 8)?);
    Ok(select_cpu(call, task, previous, flags, Some(allowed), pick)?.unwrap_or_else(|error| error))
}

/// An idle CPU for a task, among those that the task and a mask allow. Otherwise the error code
/// (`select_cpu_from_kfunc()`).
fn select_cpu(
    call: &mut Call,
    task: u64,
    previous: u64,
    flags: u64,
    mask: Option<u64>,
    pick: u64,
) -> Result<Result<u64, u64>, Stop> {
    let task = call.kernel.task_at(task)?;
    let Some(previous) = valid_cpu(call, previous) else { return Ok(Err(EINVAL)) };
    if !tracks_idle(call) {
        return Ok(Err(EBUSY));
    }
    let mut allowed = call.world.allowed(task).clone();
    if let Some(mask) = mask {
        allowed.intersect_with(&call.cpus_of(mask)?);
    }
    let (machine, searcher) = (call.kernel.machine.clone(), call.cpu);
    let kernel = &mut *call.kernel;
    if call.world.nr_allowed(task) == 1 {
        let stays = allowed.contains(previous) && kernel.idle.take(&machine, previous);
        call.touch_idle(stays.then_some(previous));
        return Ok(if stays { Ok(previous as u64) } else { Err(EBUSY) });
    }
    let searcher_queued = kernel.queues.local[searcher].len() > 0;
    let wakeup = Wakeup { allowed: &allowed, previous, searcher, flags, searcher_queued, pick };
    let found = kernel.idle.select(&machine, &wakeup);
    call.touch_idle(found);
    Ok(found.map_or(Err(EBUSY), |cpu| Ok(cpu as u64)))
}

/// Whether the kernel tracks idle CPUs. If not, the scheduler is ended (`check_builtin_idle_enabled()`).
fn tracks_idle(call: &mut Call) -> bool {
    if !call.kernel.builtin_idle {
        call.kernel.end("built-in idle tracking is disabled");
    }
    call.kernel.builtin_idle
}

/// Whether idle CPUs are tracked for the whole machine. If they are tracked by node, the scheduler is ended.
fn tracks_all(call: &mut Call) -> bool {
    let per_node = call.kernel.idle.is_per_node();
    if per_node {
        call.kernel.end("per-node idle tracking is enabled");
    }
    !per_node
}

/// A node by its number. Otherwise the error code; if idle CPUs are not tracked by node, or there is no such node, the
/// scheduler is ended (`validate_node()`).
fn valid_node(call: &mut Call, number: u64) -> Result<usize, u64> {
    let number = number as u32 as i32;
    if !call.kernel.idle.is_per_node() {
        call.kernel.end("per-node idle tracking is disabled");
        return Err(EOPNOTSUPP);
    }
    if number == NUMA_NO_NODE {
        return Err(ENOENT);
    }
    let node = usize::try_from(number).ok().filter(|&node| node < call.kernel.machine.nodes.len());
    node.ok_or_else(|| {
        call.kernel.end(format!("invalid node {number}"));
        EINVAL
    })
}

fn pick_idle_cpu(call: &mut Call, [mask, flags, ..]: [u64; 5]) -> Result<u64, Stop> {
    if !tracks_all(call) {
        return Ok(EBUSY);
    }
    pick_idle(call, mask, None, flags)
}

fn pick_idle_cpu_of_node(call: &mut Call, [mask, node, flags, ..]: [u64; 5]) -> Result<u64, Stop> {
    match valid_node(call, node) {
        Ok(node) => pick_idle(call, mask, Some(node), flags),
        Err(error) => Ok(error),
    }
}

fn pick_idle(call: &mut Call, mask: u64, node: Option<usize>, flags: u64) -> Result<u64, Stop> {
    if !tracks_idle(call) {
        return Ok(EBUSY);
    }
    let among = call.cpus_of(mask)?;
    let kernel = &mut *call.kernel;
    let found = kernel.idle.pick(&kernel.machine, call.cpu, &among, node, flags);
    call.touch_idle(found);
    Ok(found.map_or(EBUSY, |cpu| cpu as u64))
}

fn pick_any_cpu(call: &mut Call, [mask, flags, ..]: [u64; 5]) -> Result<u64, Stop> {
    if !tracks_all(call) {
        return Ok(EBUSY);
    }
    pick_any(call, mask, None, flags)
}

fn pick_any_cpu_of_node(call: &mut Call, [mask, node, flags, ..]: [u64; 5]) -> Result<u64, Stop> {
    match valid_node(call, node) {
        Ok(node) => pick_any(call, mask, Some(node), flags),
        Err(error) => Ok(error),
    }
}

/// An idle CPU of a mask. If there is none, any CPU of the mask, and of the node if the search is limited to it.
fn pick_any(call: &mut Call, mask: u64, node: Option<usize>, flags: u64) -> Result<u64, Stop> {
    let mut among = call.cpus_of(mask)?;
    if call.kernel.builtin_idle {
        let kernel = &mut *call.kernel;
        let idle = kernel.idle.pick(&kernel.machine, call.cpu, &among, node, flags);
        call.touch_idle(idle);
        if let Some(cpu) = idle {
            return Ok(cpu as u64);
        }
    }
    if let Some(node) = node.filter(|_| flags & PICK_IN_NODE != 0) {
        among.intersect_with(&call.kernel.machine.nodes[node].cpus);
    }
    Ok(call.kernel.idle.any(call.cpu, &among).map_or(EBUSY, |cpu| cpu as u64))
}

fn idle_mask(call: &mut Call, cores: bool) -> Result<u64, Stop> {
    if call.kernel.idle.is_per_node() {
        call.kernel.end("SCX_OPS_BUILTIN_IDLE_PER_NODE enabled");
        return Ok(call.kernel.masks.none);
    }
    tracks_idle(call);
    call.publish_idle(None, cores)
}

fn idle_mask_of_node(call: &mut Call, [node, ..]: [u64; 5], cores: bool) -> Result<u64, Stop> {
    match valid_node(call, node) {
        Ok(node) => call.publish_idle(Some(node), cores),
        Err(_) => Ok(call.kernel.masks.none),
    }
}

/// CPUs never come or go, so all masks of CPUs are the same.
fn all_cpus(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.kernel.masks.all)
}

/// The CPU with this number. If there is none, the scheduler is ended, as in the kernel.
fn valid_cpu(call: &mut Call, number: u64) -> Option<CpuId> {
    let number = number as u32 as i32;
    let cpu = usize::try_from(number).ok().filter(|&cpu| cpu < call.world.nr_cpus());
    if cpu.is_none() {
        call.kernel.end(format!("invalid CPU {number}"));
    }
    cpu
}

fn test_and_clear_cpu_idle(call: &mut Call, [cpu, ..]: [u64; 5]) -> Result<u64, Stop> {
    if !tracks_idle(call) {
        return Ok(0);
    }
    let Some(cpu) = valid_cpu(call, cpu) else { return Ok(0) };
    let took = call.kernel.idle.take(&call.kernel.machine, cpu);
    call.touch_idle(took.then_some(cpu));
    Ok(took.into())
}

fn task_set_dsq_vtime(call: &mut Call, [task, vtime, ..]: [u64; 5]) -> Result<u64, Stop> {
    let task = call.kernel.task_at(task)?;
    let kernel = &mut *call.kernel;
    kernel.tasks.set_vtime(&mut kernel.memory, task, vtime);
    Ok(1)
}

fn task_set_slice(call: &mut Call, [task, slice, ..]: [u64; 5]) -> Result<u64, Stop> {
    let task = call.kernel.task_at(task)?;
    call.kernel.tasks.set_slice(&mut call.kernel.memory, task, slice);
    Ok(1)
}

fn task_cpu(call: &mut Call, [task, ..]: [u64; 5]) -> Result<u64, Stop> {
    if task == call.kernel.tasks.swapper {
        return Ok(call.cpu as u64);
    }
    let task = call.kernel.task_at(task)?;
    Ok(call.world.task_cpu(task) as u64)
}

fn task_running(call: &mut Call, [task, ..]: [u64; 5]) -> Result<u64, Stop> {
    let task = call.kernel.task_at(task)?;
    let cpu = call.world.task_cpu(task);
    call.touch_queue(Dsq::Local(cpu), false);
    Ok((call.kernel.current[cpu] == Some(task)).into())
}

fn task_cgroup(call: &mut Call, [task, ..]: [u64; 5]) -> Result<u64, Stop> {
    let task = call.kernel.task_at(task)?;
    Ok(call.kernel.groups.get(call.world.group(task)).cgroup)
}

/// The cgroup above a cgroup that has this level. 0 if there is none.
fn cgroup_ancestor(call: &mut Call, [cgroup, level, ..]: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.kernel.groups.ancestor(&call.kernel.memory, cgroup, level as u32)?)
}

/// The task with this number. 0 if there is none.
fn task_from_pid(call: &mut Call, [pid, ..]: [u64; 5]) -> Result<u64, Stop> {
    let task = call.world.task_of_pid(pid as u32);
    Ok(task.map_or(0, |task| call.kernel.tasks.get(task).address))
}

fn cpu_rq(call: &mut Call, [cpu, ..]: [u64; 5]) -> Result<u64, Stop> {
    let valid = valid_cpu(call, cpu).is_some();
    Ok(if valid { call.kernel.per_cpu.runqueues.of(cpu) } else { 0 })
}

fn cpu_curr(call: &mut Call, [cpu, ..]: [u64; 5]) -> Result<u64, Stop> {
    let Some(cpu) = valid_cpu(call, cpu) else { return Ok(0) };
    call.touch_queue(Dsq::Local(cpu), false);
    let kernel = &call.kernel;
    Ok(kernel.current[cpu].map_or(kernel.tasks.swapper, |task| kernel.tasks.get(task).address))
}

/// All CPUs have the highest performance (SCX_CPUPERF_ONE).
fn cpuperf(call: &mut Call, [cpu, ..]: [u64; 5]) -> Result<u64, Stop> {
    valid_cpu(call, cpu);
    Ok(PERFORMANCE_ONE)
}

/// Frequencies are not simulated, so a request is only checked.
fn cpuperf_set(call: &mut Call, [cpu, performance, ..]: [u64; 5]) -> Result<u64, Stop> {
    let performance = u64::from(performance as u32);
    if performance > PERFORMANCE_ONE {
        call.kernel.end(format!("Invalid cpuperf target {performance} for CPU {cpu}"));
    }
    valid_cpu(call, cpu);
    Ok(0)
}

fn kick_cpu(call: &mut Call, [cpu, flags, ..]: [u64; 5]) -> Result<u64, Stop> {
    if let Some(cpu) = valid_cpu(call, cpu) {
        call.kick(cpu, flags);
    }
    Ok(0)
}

/// How old a stale clock is at most, in ns. (It has no bound: it is as old as the CPU's last switch.)
const STALE_NS: u64 = 3_000_000_000;

/// The clock of the CPU's run queue. With faults, an interrupt on an idle CPU may get an old one: another CPU that took
/// a task which last ran there has left it marked as valid (`move_remote_task_to_local_dsq()`).
fn now(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    let now = call.world.now().ns();
    let may_be_stale = call.kernel.in_interrupt && call.world.is_idle(call.cpu);
    let stale = may_be_stale && call.world.fault();
    Ok(if stale { now.saturating_sub(call.world.random_below(STALE_NS)) } else { now })
}

fn nr_cpu_ids(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.world.nr_cpus() as u64)
}

fn nr_node_ids(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.kernel.machine.nodes.len() as u64)
}

fn cpu_node(call: &mut Call, [cpu, ..]: [u64; 5]) -> Result<u64, Stop> {
    let Some(cpu) = valid_cpu(call, cpu) else { return Ok(EINVAL) };
    Ok(call.kernel.machine.cpus[cpu].node.into())
}

fn error_bstr(call: &mut Call, [text, data, size, ..]: [u64; 5]) -> Result<u64, Stop> {
    let message = format::message(&call.kernel.memory, text, data, size)?;
    call.kernel.end(format!("scx_bpf_error: {}", message.trim_end()));
    Ok(0)
}

fn exit_bstr(call: &mut Call, [code, text, data, size, _]: [u64; 5]) -> Result<u64, Stop> {
    let message = format::message(&call.kernel.memory, text, data, size)?;
    let message = message.trim_end();
    call.kernel.end(format!("it unregistered itself with exit code {code:#x}: {message}"));
    Ok(0)
}

/// An iterator over numbers stores the last number that it returned, and the end.
fn iter_num_new(call: &mut Call, [iterator, start, end, ..]: [u64; 5]) -> Result<u64, Stop> {
    let (start, end) = (start as u32, end as u32);
    let memory = &mut call.kernel.memory;
    let valid = start as i32 <= end as i32;
    let (before, end) = if valid { (start.wrapping_sub(1), end) } else { (0, 0) };
    memory.write(iterator, 4, before.into())?;
    memory.write(iterator.wrapping_add(4), 4, end.into())?;
    Ok(if valid { 0 } else { EINVAL })
}

/// The address of the next number. 0 at the end.
fn iter_num_next(call: &mut Call, [iterator, ..]: [u64; 5]) -> Result<u64, Stop> {
    let memory = &mut call.kernel.memory;
    let (last, end) = (memory.read(iterator, 4)?, memory.read(iterator.wrapping_add(4), 4)?);
    let next = i64::from(last as u32 as i32) + 1;
    if next >= i64::from(end as u32 as i32) {
        memory.write(iterator, 8, 0)?;
        return Ok(0);
    }
    memory.write(iterator, 4, next as u64)?;
    Ok(iterator)
}

/// Does nothing: functions that order memory, keep objects alive or the CPU. Only one hook runs at a time here.
fn nothing(_: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    Ok(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::kernel_types::KernelTypes;

    #[test]
    fn every_kfunc_has_the_kernels_number_of_parameters() {
        let kernel = KernelTypes::shipped().unwrap();
        for (name, parameters, _) in table() {
            let (_, expected) = kernel.btf.prototype(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(*parameters, expected.len(), "{name}");
        }
    }

    #[test]
    fn arguments_in_a_struct_are_where_the_kernel_has_them() {
        let kernel = KernelTypes::shipped().unwrap();
        let members = ["dsq_id", "slice", "vtime", "enq_flags"];
        let at = |member| kernel.offset("scx_bpf_dsq_insert_vtime_args", member).unwrap();
        assert_eq!(members.map(at), [0, 8, 16, 24]);
    }
}
