//! Translates a program to machine code with Cranelift. Results, memory accesses and counts are the same as those of
//! the interpreter ([`crate::interpret`]), which is the reference.
//!
//! ```text
//! code ──► functions (an entry, and what jumps reach from it) ──► blocks ──► Cranelift ──► machine code
//! ```
//!
//! BPF registers become variables. Instructions are counted per block. An access is checked against the memory region
//! and against the cache lines that the CPU has. All but the common case calls back ([`Calls`]). If a callback panics,
//! the panic is stored until machine code has returned, and is then resumed.
//!
//! All `unsafe` code of the crate is in this module. Machine code is called with a [`Frame`] that outlives the call.
//! The frame's pointers are set before the call and after each callback, because memory may have moved.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use roost_engine::World;
use roost_kept::{Kept, Key};
use serde::Serialize;

use crate::instruction::Instruction;
use crate::interpret::{Callee, Fault, Host, MOST_FRAMES, MOST_LOOPS, STACK_BYTES, Stop, exchange};
use crate::lines::{LINE_BYTES, Owners};
use crate::memory::BASE;
use text::Made;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod emit;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod facts;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod text;

/// Cranelift is not used for other processors.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod text {
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Made;
    pub(super) struct Text;

    pub(super) fn make(
        _: &[super::Instruction],
        _: &[usize],
        _: &super::Given,
        _: &[bool],
    ) -> Option<Made> {
        None
    }

    pub(super) fn place(_: &Made) -> Option<(Text, Vec<(usize, *const u8)>)> {
        None
    }

    pub(super) fn target() -> Option<String> {
        None
    }
}

/// An array map: the address of the first value, and the distances to the next value and to the next CPU's values in
/// bytes. The latter is 0 if CPUs share the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Array {
    pub first: u64,
    pub stride: u64,
    pub of_cpu: u64,
    pub entries: u32,
}

/// A task storage: its number ([`Host::task_values`]), and the size of its values in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Storage {
    pub number: usize,
    pub bytes: u32,
}

/// What translation may rely on: what stays the same in all runs that use the machine code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Given {
    /// Arrays, by the addresses of their maps.
    pub arrays: BTreeMap<u64, Array>,
    /// All task storages, by the addresses of their maps. The helper returns a piece of memory of that size, or NULL.
    pub storages: BTreeMap<u64, Storage>,
    /// Functions that are called with the address of their arguments, and whether the first argument is a task.
    pub hooks: BTreeMap<usize, bool>,
    /// The addresses of these arguments. No other CPU uses them.
    pub context: Range<u64>,
    /// Size of a task's struct, whose lines are not counted.
    pub task_bytes: u32,
    /// What programs cannot write, by its address.
    pub constants: Vec<(u64, Vec<u8>)>,
    /// Addresses of the arguments of hooks, of maps and of variables. None of them is ever taken away.
    pub region: Range<u64>,
    /// kfuncs that do nothing and return 0, with the instructions that they cost.
    pub nothing: BTreeMap<u32, u64>,
    /// kfuncs that do not write to memory to which a program passes pointers.
    pub keeping: BTreeSet<u32>,
    /// Whether the helper that names the CPU does just that.
    pub this_cpu: bool,
    /// The kfunc that returns a task's CPU, and the instructions that it costs.
    pub task_cpu: Option<(u32, u64)>,
    /// kfuncs that set a member of 8 bytes in a task's struct and return 1: the offset of the member, and the
    /// instructions that they cost.
    pub members: BTreeMap<u32, (u64, u64)>,
    /// The kfunc that returns [`Host::now_ns`], as clocks do that are helpers, and the instructions that it costs.
    pub now: Option<(u32, u64)>,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Given {
    /// Whether an access is to maps and variables.
    fn has(&self, address: u64, bytes: u32) -> bool {
        let end = address.checked_add(bytes.into());
        self.region.start <= address && end.is_some_and(|end| end <= self.region.end)
    }

    /// A number that programs cannot write.
    fn constant(&self, address: u64, bytes: u32) -> Option<u64> {
        self.constants.iter().find_map(|(start, constants)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            let number = constants.get(at..at.checked_add(bytes as usize)?)?;
            Some(number.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        })
    }
}

/// The data that machine code needs while it runs. [`emit`] uses the offsets of the members. Instructions that access
/// the first 128 bytes are shorter, so the members that are used most come first.
#[repr(C)]
struct Frame {
    /// Address of the memory region, less the region's own address ([`BASE`]).
    memory: *mut u8,
    /// [`BASE`].
    base: u64,
    /// Accesses at offsets below this one are within the region, whatever their size.
    limit: u64,
    /// Owners and copies of the line with number 0. The region's first line is the one with the number of [`BASE`].
    owners: *const Owners,
    copies: *const u64,
    /// The bit of this CPU's LLC in the copies of a line.
    bit: u64,
    /// [`Owners::bits`] of a line that this CPU wrote last and of which no other CPU has a copy.
    alone: u64,
    /// Whether the program cannot continue.
    stopped: u64,
    /// Instructions of the kernel in functions that machine code did not call.
    executed: u64,
    /// Instructions that were executed.
    instructions: u64,
    /// The number of kfuncs that machine code did not call. It is not beside `executed`, because the compiler would
    /// read both at once, for which a processor waits that has just written each.
    kfuncs: u64,
    /// How many more times `may_goto` may continue.
    loops_left: u64,
    /// For each line of the memory, the number plus one of the task whose struct begins there, and the number of lines.
    tasks: *const u32,
    task_lines: u64,
    /// By task, the addresses of its values in all storages, and the number of these.
    values: *const u64,
    values_len: u64,
    /// The CPU of the first task ([`Host::task_cpus`]), and the number of tasks.
    cpus: *const usize,
    cpus_len: u64,
    /// The CPU.
    cpu: u64,
    /// The time in ns, and whether it is what clocks show.
    now: u64,
    knows_now: u64,
    /// The address after the last function's stack.
    stack_end: u64,
    calls: *const Calls,
    /// The [`Side`].
    side: *mut c_void,
}

impl Frame {
    const NEW: Self = Self {
        memory: std::ptr::null_mut(),
        base: BASE,
        limit: 0,
        owners: std::ptr::null(),
        copies: std::ptr::null(),
        bit: 0,
        alone: 0,
        stopped: 0,
        executed: 0,
        instructions: 0,
        kfuncs: 0,
        loops_left: 0,
        tasks: std::ptr::null(),
        task_lines: 0,
        values: std::ptr::null(),
        values_len: 0,
        cpus: std::ptr::null(),
        cpus_len: 0,
        cpu: 0,
        now: 0,
        knows_now: 0,
        stack_end: 0,
        calls: std::ptr::null(),
        side: std::ptr::null_mut(),
    };
}

/// The functions that machine code calls back. Those that can end the program get the instruction that they are called
/// for.
#[repr(C)]
struct Calls {
    /// Calls a helper or kfunc ([`what`]) with five arguments.
    call: extern "C" fn(*mut Frame, u64, u64, u64, u64, u64, u64) -> u64,
    /// Reads bytes at an address.
    read: extern "C" fn(*mut Frame, u64, u64, u64) -> u64,
    /// Writes bytes at an address.
    write: extern "C" fn(*mut Frame, u64, u64, u64, u64),
    /// Records a read of the line at an address, which is in the region.
    touch_read: extern "C" fn(*mut Frame, u64),
    /// Records a write.
    touch_write: extern "C" fn(*mut Frame, u64),
    /// Does an atomic operation on bytes at an address, with an operand and register 0. Returns the previous value.
    exchange: extern "C" fn(*mut Frame, u64, u64, u64, u64, u64, u64) -> u64,
    /// Stops the program for one of [`Reason`].
    stop: extern "C" fn(*mut Frame, u64, u64),
}

/// Why machine code stops the program itself.
#[derive(Clone, Copy)]
enum Reason {
    Unknown,
    Left,
    TooDeep,
    Endless,
}

/// State of a call that machine code does not use.
struct Side<'a, H> {
    host: &'a mut H,
    code: &'a [Instruction],
    /// Why the program cannot continue.
    end: Option<End>,
}

enum End {
    Fault(Fault),
    Panic(Box<dyn Any + Send>),
}

impl<H: Host> Side<'_, H> {
    /// Sets the current addresses if something has moved since [`Side::refresh`]: memory, lines, and the list of
    /// tasks' values grow. Tasks do not come during a call.
    #[inline]
    fn refresh_if_moved(&mut self, frame: &mut Frame) {
        let bytes = self.host.memory().bytes_mut();
        let memory = (bytes.as_ptr().wrapping_sub(BASE as usize), limit(bytes.len()));
        let (owners, copies) = self.host.lines().0.all();
        let lines = (before_first(owners), before_first(copies));
        let (_, values) = self.host.task_values();
        if memory != (frame.memory.cast_const(), frame.limit)
            || lines != (frame.owners, frame.copies)
            || (values.as_ptr(), values.len() as u64) != (frame.values, frame.values_len)
        {
            self.refresh(frame);
        }
    }

    /// Sets the current addresses of memory, lines and tasks.
    #[inline]
    fn refresh(&mut self, frame: &mut Frame) {
        let bytes = self.host.memory().bytes_mut();
        let (memory, len) = (bytes.as_mut_ptr(), bytes.len());
        let (lines, _) = self.host.lines();
        frame.memory = memory.wrapping_sub(BASE as usize);
        frame.limit = limit(len);
        let (owners, copies) = lines.covering(len);
        (frame.owners, frame.copies) = (before_first(owners), before_first(copies));
        let (tasks, values) = self.host.task_values();
        (frame.tasks, frame.task_lines) = (tasks.as_ptr(), tasks.len() as u64);
        (frame.values, frame.values_len) = (values.as_ptr(), values.len() as u64);
        let (cpus, tasks) = self.host.task_cpus();
        (frame.cpus, frame.cpus_len) = (cpus, tasks as u64);
    }
}

/// [`Frame::limit`] of a memory of so many bytes.
fn limit(bytes: usize) -> u64 {
    (bytes as u64).saturating_sub(7)
}

/// Where the line with number 0 would be. The region's first line is the one with the number of [`BASE`].
fn before_first<T>(lines: &[T]) -> *const T {
    lines.as_ptr().wrapping_sub((BASE / LINE_BYTES) as usize)
}

/// Runs a callback. Returns 0 if the program cannot continue.
fn serve<H: Host>(
    frame: *mut Frame,
    at: u64,
    serve: impl FnOnce(&mut H) -> Result<u64, Stop>,
) -> u64 {
    // SAFETY: machine code has the frame of `Runner::call`, which nothing else uses at this time. Its side belongs
    // to the host for which the functions were instantiated.
    let (frame, side) = unsafe { (&mut *frame, &mut *(*frame).side.cast::<Side<'_, H>>()) };
    let served = catch_unwind(AssertUnwindSafe(|| {
        let served = serve(side.host);
        side.refresh_if_moved(frame);
        served
    }));
    side.end = Some(match served {
        Ok(Ok(value)) => return value,
        Ok(Err(why)) => End::Fault(Fault { at: at as usize, why }),
        Err(panic) => End::Panic(panic),
    });
    frame.stopped = 1;
    0
}

/// Encodes in one number the instruction and the helper or kfunc that it calls. That way, all arguments except the last
/// are passed in registers.
const fn what(at: usize, callee: Callee) -> u64 {
    let (kfunc, number) = match callee {
        Callee::Helper(number) => (0, number),
        Callee::Kfunc(number) => (1, number),
    };
    (at as u64) << 33 | kfunc << 32 | number as u64
}

extern "C" fn call<H: Host>(
    frame: *mut Frame,
    what: u64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
) -> u64 {
    let number = what as u32;
    let callee = if what >> 32 & 1 == 0 { Callee::Helper(number) } else { Callee::Kfunc(number) };
    serve(frame, what >> 33, |host: &mut H| host.call(callee, [a, b, c, d, e]))
}

extern "C" fn read<H: Host>(frame: *mut Frame, at: u64, address: u64, bytes: u64) -> u64 {
    serve(frame, at, |host: &mut H| host.load(address, bytes as u32))
}

extern "C" fn write<H: Host>(frame: *mut Frame, at: u64, address: u64, bytes: u64, value: u64) {
    serve(frame, at, |host: &mut H| host.store(address, bytes as u32, value).map(|()| 0));
}

/// The address is in the region, so lines and memory stay where they are.
extern "C" fn touch<H: Host, const WRITE: bool>(frame: *mut Frame, address: u64) {
    // SAFETY: as in `serve`. Nothing here panics.
    let host = unsafe { &mut *(*(*frame).side.cast::<Side<'_, H>>()).host };
    host.fetch(address, WRITE);
}

extern "C" fn exchange_at<H: Host>(
    frame: *mut Frame,
    at: u64,
    operation: u64,
    bytes: u64,
    address: u64,
    operand: u64,
    register_0: u64,
) -> u64 {
    let operation = operation as i32;
    serve(frame, at, |host: &mut H| {
        exchange(host, operation, bytes as u32, address, operand, register_0)
    })
}

extern "C" fn stop<H: Host>(frame: *mut Frame, at: u64, reason: u64) {
    // SAFETY: as in `serve`; the code lives as long as the side.
    let code = unsafe { (*(*frame).side.cast::<Side<'_, H>>()).code };
    serve(frame, at, |_: &mut H| {
        Err(match reason {
            reason if reason == Reason::Left as u64 => Stop::Left,
            reason if reason == Reason::TooDeep as u64 => Stop::TooDeep,
            reason if reason == Reason::Endless as u64 => Stop::Endless,
            _ => Stop::Unknown(code.get(at as usize).copied().unwrap_or_default()),
        })
    });
}

impl Calls {
    const fn of<H: Host>() -> Self {
        Self {
            call: call::<H>,
            read: read::<H>,
            write: write::<H>,
            touch_read: touch::<H, false>,
            touch_write: touch::<H, true>,
            exchange: exchange_at::<H>,
            stop: stop::<H>,
        }
    }
}

/// A translated function takes the frame, five arguments, and the end of its stack.
type Function = unsafe extern "C" fn(*mut Frame, u64, u64, u64, u64, u64, u64) -> u64;

/// A translated function.
#[derive(Clone, Copy)]
pub(crate) struct Entry(Function);

/// The machine code of a program.
pub(crate) struct Translated {
    code: Vec<Instruction>,
    given: Given,
    /// For each instruction, the function that begins there.
    entries: Vec<Option<Entry>>,
    _text: text::Text,
}

impl Translated {
    /// Puts machine code into memory. `None` if there is no room.
    fn of(code: &[Instruction], given: Given, made: &Made) -> Option<Self> {
        let (text, entries) = text::place(made)?;
        // SAFETY: the functions have this signature, and their memory is kept as long as they are.
        let entry = |pointer: *const u8| {
            Entry(unsafe { std::mem::transmute::<*const u8, Function>(pointer) })
        };
        let mut all = vec![None; code.len()];
        for (at, pointer) in entries {
            *all.get_mut(at)? = Some(entry(pointer));
        }
        Some(Self { code: code.to_vec(), given, entries: all, _text: text })
    }

    /// The function that begins at an instruction, to be called as a hook or not. A function of a hook relies on being
    /// called as one.
    pub(crate) fn entry(&self, at: usize, as_hook: bool) -> Option<Entry> {
        self.entries.get(at)?.filter(|_| as_hook || !self.given.hooks.contains_key(&at))
    }
}

/// Runs machine code. Between runs it keeps the frame, most of which stays the same.
pub(crate) struct Runner {
    code: Arc<Translated>,
    frame: Frame,
}

impl Runner {
    /// Functions use the memory from `stack` on as their stacks.
    pub(crate) fn new(code: Arc<Translated>, stack: u64) -> Self {
        let stack_end = stack + MOST_FRAMES as u64 * STACK_BYTES;
        Self { code, frame: Frame { stack_end, ..Frame::NEW } }
    }

    /// For a function that begins with the code, with machine code as it is kept. `None` as in [`translated`].
    #[cfg(test)]
    pub(crate) fn of(code: &[Instruction], given: Given, stack: u64) -> Option<Self> {
        let made = text::make(code, &[0], &given, &[])?;
        let bytes = postcard::to_stdvec(&made).ok()?;
        let made = postcard::from_bytes(&bytes).ok()?;
        Translated::of(code, given, &made).map(|code| Self::new(code.into(), stack))
    }

    /// Runs that function, as [`crate::interpret::run`].
    #[cfg(test)]
    pub(crate) fn run<H: Host>(
        &mut self,
        host: &mut H,
        arguments: [u64; 5],
    ) -> Result<crate::interpret::Returned, Fault> {
        let mut fault = None;
        let entry = self.entry(0, false).expect("the code begins with a function");
        let (value, instructions) = self.call(host, entry, arguments, &mut fault);
        fault.map_or(Ok(crate::interpret::Returned { value, instructions }), Err)
    }

    /// The function that begins at an instruction: as [`Translated::entry`].
    pub(crate) fn entry(&self, at: usize, as_hook: bool) -> Option<Entry> {
        self.code.entry(at, as_hook)
    }

    /// Calls a function of the same code. Returns its result and the number of instructions that were executed: a pair
    /// is returned in registers. A fault is stored in `fault`.
    pub(crate) fn call<H: Host>(
        &mut self,
        host: &mut H,
        entry: Entry,
        arguments: [u64; 5],
        fault: &mut Option<Fault>,
    ) -> (u64, u64) {
        let Self { code, frame } = self;
        let now = host.now_ns();
        let (lines, cpu) = host.lines();
        (frame.bit, frame.alone) = (lines.bit(cpu), Owners::alone(cpu).bits().into());
        (frame.executed, frame.kfuncs, frame.instructions) = (0, 0, 0);
        (frame.stopped, frame.loops_left) = (0, MOST_LOOPS);
        (frame.now, frame.knows_now) = (now.unwrap_or(0), now.is_some().into());
        (frame.cpu, frame.calls) = (cpu as u64, const { &Calls::of::<H>() });
        let mut side = Side { host, code: &code.code, end: None };
        side.refresh(frame);
        frame.side = (&raw mut side).cast();
        let [a, b, c, d, e] = arguments;
        let stack = frame.stack_end - (MOST_FRAMES as u64 - 1) * STACK_BYTES;
        // SAFETY: the frame and its side live until the call returns, and are not used here before that.
        let value = unsafe { entry.0(&raw mut *frame, a, b, c, d, e, stack) };
        match side.end {
            None => {}
            Some(End::Fault(why)) => *fault = Some(why),
            Some(End::Panic(panic)) => resume_unwind(panic),
        }
        (value, frame.instructions)
    }

    /// Instructions of functions of the kernel that the last call did not call, but whose work it did, and the number
    /// of kfuncs among these functions.
    pub(crate) fn counted(&self) -> (u64, u64) {
        (self.frame.executed, self.frame.kfuncs)
    }
}

/// A program that is to be translated.
pub(crate) struct Wanted<'a> {
    pub code: &'a [Instruction],
    /// Where its functions begin.
    pub starts: &'a [usize],
    pub given: Given,
}

/// Number of programs whose machine code this process remembers.
const REMEMBERED: usize = 8;

static TRANSLATED: Mutex<Vec<Arc<Translated>>> = Mutex::new(Vec::new());

/// The machine code that was made for a program before, by this process or by an earlier one.
pub(crate) fn known(wanted: &Wanted<'_>, kept: &Kept) -> Option<Arc<Translated>> {
    remembered(wanted, || postcard::from_bytes(&kept.get(&key(wanted)?)?).ok())
}

/// The machine code of a program, which is created once for all runs. `None` if the program does something that the
/// kernel's verifier refuses, or if this processor is not supported. What machine code does is the same whichever
/// instructions are `seldom` executed.
pub(crate) fn translated(
    wanted: &Wanted<'_>,
    seldom: &[bool],
    kept: Option<&Kept>,
) -> Option<Arc<Translated>> {
    remembered(wanted, || {
        let made = text::make(wanted.code, wanted.starts, &wanted.given, seldom)?;
        if let Some((kept, key)) = kept.zip(key(wanted))
            && let Ok(bytes) = postcard::to_stdvec(&made)
        {
            kept.keep(&key, &bytes);
        }
        Some(made)
    })
}

/// The machine code that this process remembers. If there is none, it is `made`, while runs in parallel wait for it.
fn remembered(wanted: &Wanted<'_>, made: impl FnOnce() -> Option<Made>) -> Option<Arc<Translated>> {
    let mut translated = TRANSLATED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_wanted =
        |known: &&Arc<Translated>| known.code == wanted.code && known.given == wanted.given;
    if let Some(known) = translated.iter().find(is_wanted) {
        return Some(known.clone());
    }
    let new = Arc::new(Translated::of(wanted.code, wanted.given.clone(), &made()?)?);
    if translated.len() == REMEMBERED {
        translated.remove(0);
    }
    translated.push(new.clone());
    Some(new)
}

/// The key of a program's machine code: all that it is made of, except which instructions are seldom executed.
fn key(wanted: &Wanted<'_>) -> Option<Key> {
    let wanted = (wanted.code, wanted.starts, &wanted.given, World::TASK_BYTES);
    let program = postcard::to_stdvec(&wanted).ok()?;
    Some(Key::of(&[text::target()?.as_bytes(), &program]))
}

#[cfg(test)]
mod tests;
