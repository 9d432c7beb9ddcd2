//! Loads the scheduler, watches it and unloads it.

use std::mem::{MaybeUninit, offset_of, size_of};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, PrintLevel};
use roost_layout::{Entry, Layout, Setup};

use crate::console::{say, tell};
use crate::error::LiveError;
use crate::kernel;
use crate::memory::Follower;
use crate::options::Options;
use crate::sets::Handles;
use crate::skeleton::{OpenRoostSkel, RoostSkel, RoostSkelBuilder, types};
use crate::stats::{Lines, Service};
use crate::tables::{self, Counters, Report};

/// How often the loader checks for signals, and whether the kernel ended the scheduler.
const LOOK: Duration = Duration::from_millis(100);

/// `SCX_ECODE_ACT_RESTART`: this bit of the exit code asks for a restart, for example after a new CPU came.
const ACT_RESTART: i64 = 1 << 48;

/// `SCX_OPS_ALLOW_QUEUED_WAKEUP`, a flag of a scheduler.
const ALLOW_QUEUED_WAKEUP: u64 = 1 << 5;

/// The first exit kind that is an error (`SCX_EXIT_ERROR`).
const EXIT_ERROR: u64 = 1024;

/// How a scheduler ended.
#[derive(Debug)]
pub enum Ending {
    /// A signal asked for it.
    Asked,
    /// The kernel ended the scheduler, and a restart solves the problem.
    Restart(String),
}

/// Loads a scheduler and watches it until `stop` is set or the kernel ends it.
pub fn run(options: &Options, service: &Service, stop: &AtomicBool) -> Result<Ending, LiveError> {
    let start = Instant::now();
    hurry();
    // This is read before the machine. If CPUs come or go in between, the kernel notices and refuses the scheduler.
    let hotplug_seq = kernel::hotplug_seq()?;
    let machine = options.machine()?;
    let layout = Layout::of(&machine);
    let follower = Follower::start(&options.settings, &machine, &layout)?;
    let mut object = MaybeUninit::uninit();
    let skel = load(options, &layout, hotplug_seq, &mut object);
    let Some(skel) = unless_asked(stop, skel)? else { return Ok(Ending::Asked) };
    let loaded = Loaded::attach(skel, options, &layout)?;
    let took = start.elapsed().as_millis();
    say(format_args!(
        "roost schedules {}: {} (loaded in {took} ms)",
        layout.summary(),
        options.settings.summary()
    ));
    if let Some(follower) = &follower {
        follower.begin(Handles::of(&loaded.skel)?);
    }
    loaded.watch(options, service, follower.as_ref(), stop)
}

/// The nice value of this process. Its weight is 9.3 times that of nice 0: two thirds of a CPU that five other tasks
/// want too. With nice -20, a task of nice 19 that is bound to the same CPU would get only 3 ms in 17 s, the time that
/// loading takes. Linux 7.2 ends a scheduler if such a task delays RCU (docs/live-results.md, mixed load).
const NICE: i32 = -10;

/// Gives this process more weight. Without that, loading would take tens of seconds on a fully busy machine.
fn hurry() {
    // SAFETY: no pointers. If it fails, loading takes longer.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Returns the result of a part of the start. If a signal came meanwhile, a failure is ignored, because the signal may
/// have caused it.
fn unless_asked<T>(
    stop: &AtomicBool,
    result: Result<T, LiveError>,
) -> Result<Option<T>, LiveError> {
    match stop.load(Ordering::Relaxed) {
        true => Ok(None),
        false => result.map(Some),
    }
}

/// Loads the programs and tables into the kernel. They do not schedule anything yet.
fn load<'obj>(
    options: &Options,
    layout: &Layout,
    hotplug_seq: u64,
    object: &'obj mut MaybeUninit<OpenObject>,
) -> Result<RoostSkel<'obj>, LiveError> {
    hear_libbpf(options.verbose);
    let mut open = RoostSkelBuilder::default().open(object).map_err(refused)?;
    let ops = open.struct_ops.roost_ops_mut();
    ops.hotplug_seq = hotplug_seq;
    if !kernel::has_limits() {
        ops.cgroup_set_bandwidth = std::ptr::null_mut();
    }
    if !kernel::queues_wakeups() {
        ops.flags &= !ALLOW_QUEUED_WAKEUP;
    }
    let dump_len = dump_len(layout.cpus.len());
    ops.exit_dump_len = dump_len;
    let setup = Setup::of(layout, &options.settings, &kernel::possible_cpus()?);
    make_room_for_dump(&mut open, dump_len).map_err(refused)?;
    size_maps(&mut open, &setup).map_err(refused)?;
    configure(&mut open, &setup);
    let skel = open.load().map_err(refused)?;
    fill_maps(&skel, &setup).map_err(refused)?;
    Ok(skel)
}

/// A scheduler in the kernel. It is unloaded when this is dropped.
struct Loaded<'obj> {
    skel: RoostSkel<'obj>,
    cpus: Vec<u32>,
    _links: Vec<Link>,
}

impl<'obj> Loaded<'obj> {
    /// Makes the loaded programs the kernel's scheduler.
    fn attach(
        mut skel: RoostSkel<'obj>,
        options: &Options,
        layout: &Layout,
    ) -> Result<Self, LiveError> {
        let attached = skel.maps.roost_ops.attach_struct_ops();
        let link = attached.map_err(|error| kernel::taken().unwrap_or_else(|| refused(error)))?;
        let mut links = vec![link];
        if layout.nodes.len() > 1 && options.settings.is_on("numa-imbalance") {
            links.push(skel.progs.roost_exec.attach().map_err(refused)?);
        }
        let cpus = layout.cpus.iter().map(|cpu| cpu.id).collect();
        Ok(Self { skel, cpus, _links: links })
    }

    /// Answers questions and prints statistics until the scheduler ends.
    fn watch(
        self,
        options: &Options,
        service: &Service,
        follower: Option<&Follower>,
        stop: &AtomicBool,
    ) -> Result<Ending, LiveError> {
        let report = || self.report(follower);
        let mut lines = options.stats.map(|interval| Lines::every(interval, Instant::now()));
        let mut told = 0;
        loop {
            let full = self.full();
            complaints(full & !told).for_each(|line| say(format_args!("{line}")));
            told |= full;
            let asked = stop.load(Ordering::Relaxed).then_some(Ok(Ending::Asked));
            let ending = asked.or_else(|| self.ended());
            let mut wait = LOOK;
            if let Some(lines) = &mut lines {
                let left = lines.left(Instant::now());
                if left.is_zero() || ending.is_some() {
                    lines.show(report(), Instant::now());
                }
                wait = wait.min(left);
            }
            if let Some(ending) = ending {
                if options.verbose && ending.is_err() {
                    say(format_args!("{}", self.dump()));
                }
                return ending;
            }
            service.answer(wait, report);
        }
    }

    /// The tables that have been full, as bits in the order of [`TABLES`].
    fn full(&self) -> u32 {
        // SAFETY: this is a field of a live, aligned struct, which the kernel writes.
        let read = |data: &types::bss| unsafe { std::ptr::read_volatile(&data.full) };
        self.skel.maps.bss_data.as_ref().map_or(0, |data| read(data))
    }

    /// All counters so far.
    fn report(&self, follower: Option<&Follower>) -> Report {
        let mut report = Report::from(&self.counters());
        if let Some(follower) = follower {
            follower.add_to(&mut report);
        }
        report
    }

    /// The sum of all CPUs' counters.
    fn counters(&self) -> Counters {
        let of_cpu = |id: &u32| {
            let value = self.skel.maps.cpus.lookup(&id.to_ne_bytes(), MapFlags::ANY);
            value.ok().flatten().and_then(|bytes| counters_in(&bytes)).unwrap_or_default()
        };
        self.cpus.iter().map(of_cpu).fold(Counters::default(), |sum, one| sum.plus(&one))
    }

    /// The kernel's dump about CPUs and waiting tasks, from when it ended the scheduler.
    fn dump(&self) -> String {
        let dump = self.skel.maps.data_dump.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let bytes = dump.ok().flatten().unwrap_or_default();
        text(&bytes.iter().map(|&byte| byte as i8).collect::<Vec<_>>())
    }

    /// How the kernel ended the scheduler. `None` if it has not.
    fn ended(&self) -> Option<Result<Ending, LiveError>> {
        let ended = &self.skel.maps.bss_data.as_ref()?.ended;
        // SAFETY: this is a field of a live, aligned struct, which the kernel writes.
        let kind = unsafe { std::ptr::read_volatile(&ended.kind) };
        if kind == 0 {
            return None;
        }
        let (reason, message) = (text(&ended.reason), text(&ended.message));
        let what = match message.is_empty() {
            true => reason,
            false => format!("{reason}: {message}"),
        };
        Some(match kind < EXIT_ERROR && ended.code & ACT_RESTART != 0 {
            true => Ok(Ending::Restart(what)),
            false => Err(LiveError::Ended(what)),
        })
    }
}

/// The BPF program's tables: what they contain, the option that sets their size, and what happens to an entry that does
/// not fit. They are in the order of their bits in `bpf/state.h`.
const TABLES: [(&str, &str, &str); 3] = [
    ("groups", "--max-groups", "does not cling"),
    ("processes", "--max-processes", "is not consolidated"),
    ("cgroups", "--max-cgroups", "has no weight and no limit"),
];

/// The warnings about full tables.
fn complaints(full: u32) -> impl Iterator<Item = String> {
    let of = move |(bit, (what, option, without)): (usize, (&str, &str, &str))| {
        let line = format!(
            "more {what} than {option}: each further one {without}; give a larger {option}"
        );
        (full >> bit & 1 != 0).then_some(line)
    };
    TABLES.into_iter().enumerate().filter_map(of)
}

/// The counters in one CPU's value of the map.
fn counters_in(value: &[u8]) -> Option<Counters> {
    const { assert!(size_of::<Counters>() == size_of::<types::roost_counters>()) };
    let start = offset_of!(types::roost_cpu, n);
    let bytes = value.get(start..start + size_of::<Counters>())?;
    // SAFETY: there are enough bytes, and any bytes are valid for a struct of u64. Both structs have the fields of
    // `bpf/counters.h` in the same order.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

/// Converts a text of the BPF program.
fn text(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|&&b| b != 0).map(|&b| b as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Size of the kernel's dump of waiting tasks, in bytes: the kernel's default (`SCX_EXIT_DUMP_DFL_LEN`), or a page per
/// CPU if that is more. Assumption: a page is enough for a CPU with three tasks and their stacks.
fn dump_len(cpus: usize) -> u32 {
    (cpus as u32 * 4096).max(32768)
}

/// Reserves memory for the kernel's dump in the BPF program.
fn make_room_for_dump(open: &mut OpenRoostSkel, dump_len: u32) -> libbpf_rs::Result<()> {
    open.maps.data_dump.set_value_size(dump_len)?;
    if let Some(rodata) = open.maps.rodata_data.as_mut() {
        rodata.dump_len = dump_len;
    }
    Ok(())
}

/// Gives the maps as many entries as the machine needs.
fn size_maps(open: &mut OpenRoostSkel, setup: &Setup) -> libbpf_rs::Result<()> {
    for mut map in open.open_object_mut().maps_mut() {
        let size = setup.sizes.iter().find(|(name, _)| map.name() == *name);
        if let Some((_, entries)) = size {
            map.set_max_entries(*entries)?;
        }
    }
    Ok(())
}

/// Writes numbers of the machine, mechanisms and tunables into the BPF program's constants.
fn configure(open: &mut OpenRoostSkel, setup: &Setup) {
    // The program always has constants. This only satisfies the type.
    let Some(rodata) = open.maps.rodata_data.as_mut() else { return };
    for (name, value) in &setup.variables {
        set_variable(rodata, name, *value);
    }
}

fn set_variable(rodata: &mut types::rodata, name: &str, value: u64) {
    let (number, switch) = (value as u32, value != 0);
    match name {
        "nr_possible" => rodata.nr_possible = number,
        "nr_cpu_ids" => rodata.nr_cpu_ids = number,
        "nr_llcs" => rodata.nr_llcs = number,
        "nr_words" => rodata.nr_words = number,
        "nr_nodes" => rodata.nr_nodes = number,
        "smt" => rodata.smt = number,
        "numa_rule" => rodata.numa_rule = number,
        "llc_imbalance" => rodata.llc_imbalance = number,
        "sis_util" => rodata.sis_util = switch,
        "numa_imbalance" => rodata.numa_imbalance = switch,
        "cling" => rodata.cling = switch,
        "consolidate" => rodata.consolidate = switch,
        "cgroup_weights" => rodata.cgroup_weights = switch,
        "cgroup_limits" => rodata.cgroup_limits = switch,
        _ => tables::set_tunable(rodata, name, value),
    }
}

/// Fills the maps that describe the machine, entry by entry.
fn fill_maps(skel: &RoostSkel, setup: &Setup) -> libbpf_rs::Result<()> {
    let maps = &skel.maps;
    for Entry { map, index, members } in &setup.entries {
        let index = *index;
        match *map {
            "cpus" => put(&maps.cpus, index, &cpu(members))?,
            "words" => put(&maps.words, index, &word(members))?,
            "slots" => put(&maps.slots, index, &number(members))?,
            "places" => put(&maps.places, index, &number(members))?,
            "llcs" => put(&maps.llcs, index, &llc(members))?,
            "nodes" => put(&maps.nodes, index, &node(members))?,
            "near" => put(&maps.near, index, &number(members))?,
            unknown => debug_assert!(false, "no map {unknown}"),
        }
    }
    Ok(())
}

type Members = [(&'static str, u64)];

/// Sets the named members of a struct.
macro_rules! set_members {
    ($value:ident, $members:ident, $($field:ident),+) => {
        for (name, number) in $members {
            match *name {
                $(stringify!($field) => $value.$field = *number as _,)+
                unknown => debug_assert!(false, "no member {unknown}"),
            }
        }
    };
}

fn cpu(members: &Members) -> types::roost_cpu {
    let is_online = |(name, _): &&(&str, u64)| *name == "online";
    let online = members.iter().find(is_online).is_some_and(|(_, value)| *value != 0);
    let rest: Vec<_> = members.iter().filter(|member| !is_online(member)).copied().collect();
    let rest = &rest[..];
    let mut value = types::roost_cpu { online: MaybeUninit::new(online), ..Default::default() };
    set_members!(value, rest, llc, node, word, bit, process, pull_to);
    value
}

fn word(members: &Members) -> types::roost_word {
    let mut value = types::roost_word::default();
    set_members!(value, members, present, first, nr_slots, base, node, llc, rank);
    value
}

fn llc(members: &Members) -> types::roost_llc {
    let mut value = types::roost_llc::default();
    set_members!(value, members, node, nr_cpus, first_word, nr_words, scan_limit);
    value
}

fn node(members: &Members) -> types::roost_node {
    let mut value = types::roost_node::default();
    set_members!(
        value,
        members,
        first_llc,
        nr_llcs,
        nr_cpus,
        numa_span,
        imb_numa_nr,
        first_word,
        scan_limit
    );
    value
}

/// The value of an entry that is a single number.
fn number(members: &Members) -> u32 {
    members.first().map_or(0, |(_, value)| *value as u32)
}

/// Writes an entry of an array map.
fn put<T: Copy>(map: &impl MapCore, index: u32, value: &T) -> libbpf_rs::Result<()> {
    // SAFETY: all values are structs of integers, and the skeleton names their padding and fills it.
    let bytes =
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) };
    map.update(&index.to_ne_bytes(), bytes, MapFlags::ANY)
}

/// Complaints of libbpf since [`hear_libbpf`] was called.
static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps the complaints of libbpf from now on. With `verbose`, prints all of its messages.
fn hear_libbpf(verbose: bool) {
    fn keep(level: PrintLevel, message: String) {
        if let (PrintLevel::Warn, Ok(mut complaints)) = (level, COMPLAINTS.lock()) {
            complaints.extend(message.lines().map(str::to_owned));
        }
    }
    fn show(level: PrintLevel, message: String) {
        tell(message.clone());
        keep(level, message);
    }
    if let Ok(mut complaints) = COMPLAINTS.lock() {
        complaints.clear();
    }
    let hear = if verbose { show } else { keep };
    let level = if verbose { PrintLevel::Debug } else { PrintLevel::Warn };
    libbpf_rs::set_print(Some((level, hear)));
}

/// The error of a refusal, with the line from the verifier's log or from libbpf that tells most.
fn refused(error: libbpf_rs::Error) -> LiveError {
    let complaints = COMPLAINTS.lock().map(|lines| lines.clone()).unwrap_or_default();
    let reason = telling(&complaints).unwrap_or_else(|| error.to_string());
    LiveError::Refused { release: kernel::release(), reason }
}

/// The line before the verifier's totals, which names the problem. If there is none, the first line.
fn telling(lines: &[String]) -> Option<String> {
    let end = lines.iter().position(|line| line.starts_with("processed "));
    let line = match end {
        Some(end) => lines.get(..end)?.last()?,
        None => lines.first()?,
    };
    Some(line.trim().trim_start_matches("libbpf: ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Debug assertions fail here on an unknown name.
    #[test]
    fn all_that_the_program_is_told_is_known_to_the_loader() {
        let machine = roost_machine::resolve("2n2l4c").unwrap();
        let setup = Setup::of(&Layout::of(&machine), &Default::default(), &[0, 15]);
        // SAFETY: the struct has only numbers and switches, for which zero is valid.
        let mut rodata: types::rodata = unsafe { std::mem::zeroed() };
        for (name, value) in &setup.variables {
            set_variable(&mut rodata, name, *value);
        }
        assert_eq!((rodata.nr_cpu_ids, rodata.nr_llcs, rodata.cling), (16, 4, true));
        assert_eq!(rodata.slice_us, 3000);
        let of = |map| setup.entries.iter().filter(move |entry| entry.map == map);
        let cpus: Vec<_> = of("cpus").map(|entry| cpu(&entry.members)).collect();
        assert_eq!((cpus[15].llc, cpus[15].node), (3, 1));
        assert_eq!(of("words").map(|entry| word(&entry.members).present).sum::<u64>(), 4 * 15);
        assert_eq!(of("llcs").map(|entry| llc(&entry.members).nr_cpus).sum::<u32>(), 16);
        assert_eq!(of("nodes").map(|entry| node(&entry.members).nr_llcs).sum::<u32>(), 4);
        assert_eq!(of("near").map(|entry| number(&entry.members)).sum::<u32>(), 2);
    }

    #[test]
    fn a_full_table_is_told_with_the_option_that_sizes_it() {
        let lines: Vec<String> = complaints(0b101).collect();
        assert!(lines[0].contains("groups than --max-groups"), "{lines:?}");
        assert!(lines[1].contains("cgroups than --max-cgroups"), "{lines:?}");
        assert_eq!((lines.len(), complaints(0).count()), (2, 0));
    }

    #[test]
    fn the_dump_has_room_for_all_cpus() {
        assert_eq!((dump_len(4), dump_len(384)), (32768, 384 * 4096));
    }

    #[test]
    fn the_line_that_tells_most_is_found() {
        let log = "libbpf: prog 'x': BPF program load failed\n-- BEGIN PROG LOAD LOG --\n\
                   1: (85) call foo\nR1 type=scalar expected=ptr_\nprocessed 2 insns\n-- END --";
        let lines: Vec<String> = log.lines().map(str::to_owned).collect();
        assert_eq!(telling(&lines).unwrap(), "R1 type=scalar expected=ptr_");
        assert_eq!(telling(&lines[..1]).unwrap(), "prog 'x': BPF program load failed");
        assert!(telling(&[]).is_none());
    }

    #[test]
    fn a_refusal_tells_what_to_report() {
        let log = "0: (85) call x\nR2 min value is negative\nprocessed 9 insns (limit 1000000)";
        let reason = telling(&log.lines().map(str::to_owned).collect::<Vec<_>>()).unwrap();
        let text = LiveError::Refused { release: "6.12.3".to_owned(), reason }.to_string();
        for part in ["kernel 6.12.3", "(R2 min value is negative)", "report", "scx_roost -v"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(!text.contains('\n'));
    }

    #[test]
    fn a_signal_while_it_loads_is_seen_before_it_schedules() {
        let refusal = || Err(LiveError::Ended("interrupted".to_owned()));
        let stop = AtomicBool::new(false);
        assert_eq!(unless_asked(&stop, Ok(1)).unwrap(), Some(1));
        assert!(unless_asked::<u32>(&stop, refusal()).is_err());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(unless_asked(&stop, Ok(1)).unwrap(), None);
        assert_eq!(unless_asked::<u32>(&stop, refusal()).unwrap(), None);
    }

    #[test]
    fn a_refusal_tells_nothing_of_an_earlier_start() {
        COMPLAINTS.lock().unwrap().push("libbpf: of the first start".to_owned());
        let refusal = || refused(libbpf_rs::Error::from_raw_os_error(libc::ENOMEM)).to_string();
        assert!(refusal().contains("of the first start"));
        hear_libbpf(false);
        assert!(!refusal().contains("of the first start"), "{}", refusal());
    }

    #[test]
    fn counters_are_found_in_a_cpu() {
        let mut value = vec![0_u8; size_of::<types::roost_cpu>()];
        let start = offset_of!(types::roost_cpu, n);
        value[start..start + 8].copy_from_slice(&5_u64.to_ne_bytes());
        assert_eq!(counters_in(&value).unwrap().ttwu_count, 5);
        assert!(counters_in(&value[..start + 8]).is_none());
    }
}
