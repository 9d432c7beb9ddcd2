//! The reference interpreter: executes each instruction as RFC 9669 says, and counts it.
//!
//! Beyond the RFC it has sign-extending loads and moves, `may_goto`, calls of kfuncs, load-acquire and store-release,
//! as clang and the kernel do. The kernel verifies its programs. Here they are not verified, so anything that a program
//! does wrong ends the call with a [`Fault`].

use crate::arena::cast;
use crate::instruction::{CALL, Instruction, LOAD_64, class};
use crate::lines::Lines;
use crate::memory::{Memory, Wild};

use operation::*;

/// Bytes of stack per function (the kernel's MAX_BPF_STACK).
pub const STACK_BYTES: u64 = 512;

/// How deep functions may call each other (MAX_CALL_FRAMES).
pub const MOST_FRAMES: usize = 8;

/// How often all `may_goto` of one call continue, in total (BPF_MAX_LOOPS).
pub(crate) const MOST_LOOPS: u64 = 8 << 20;

/// A call that executes more instructions counts as endless. The kernel's verifier refuses such programs. Fuzzing makes
/// many of them, and each would take seconds.
pub(crate) const MOST_INSTRUCTIONS: u64 = if cfg!(fuzzing) { 1 << 18 } else { 1 << 30 };

/// A function outside of the program that it can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A helper, by the kernel's number.
    Helper(u32),
    /// A kfunc, by the number that it got when the program was linked.
    Kfunc(u32),
}

/// What a program runs on: memory and functions of the kernel.
pub trait Host {
    /// The program's memory.
    fn memory(&mut self) -> &mut Memory;

    /// Called when the program accesses memory at an address.
    fn touch(&mut self, address: u64, write: bool);

    /// As [`Host::touch`], for an address in the region whose line the CPU probably does not have as it needs it. Must
    /// not panic.
    fn fetch(&mut self, address: u64, write: bool);

    /// The cache lines that are counted, and the CPU that executes the program.
    fn lines(&mut self) -> (&mut Lines, usize);

    /// Where the values of task storages are: for each line of the memory, the number plus one of the task whose struct
    /// begins there, or 0; and by task, for each storage, the address of the value, or 0.
    fn task_values(&self) -> (&[u32], &[u64]) {
        (&[], &[])
    }

    /// Where the CPU of each task is: as [`World::task_cpus`](roost_engine::World::task_cpus).
    fn task_cpus(&self) -> (*const usize, usize) {
        (std::ptr::null(), 0)
    }

    /// The time that all clocks show while the program runs, in ns. `None`: clocks may differ.
    fn now_ns(&self) -> Option<u64> {
        None
    }

    /// Called before the program accesses bytes at an address.
    ///
    /// # Errors
    /// If the bytes cannot be had.
    fn prepare(&mut self, _address: u64, _bytes: u32) -> Result<(), Stop> {
        Ok(())
    }

    /// Reads 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// If the bytes are not the program's own.
    fn load(&mut self, address: u64, bytes: u32) -> Result<u64, Stop> {
        self.prepare(address, bytes)?;
        let value = self.memory().read(address, bytes)?;
        self.touch(address, false);
        Ok(value)
    }

    /// Writes 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// If the bytes are not the program's own.
    fn store(&mut self, address: u64, bytes: u32, value: u64) -> Result<(), Stop> {
        self.prepare(address, bytes)?;
        self.memory().write(address, bytes, value)?;
        self.touch(address, true);
        Ok(())
    }

    /// Called when an instruction is interpreted.
    #[inline]
    fn executes(&mut self, _at: usize) {}

    /// Calls a function of the kernel.
    ///
    /// # Errors
    /// If the program cannot continue.
    fn call(&mut self, callee: Callee, arguments: [u64; 5]) -> Result<u64, Stop>;
}

/// Why a program cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It accessed memory that it does not have.
    Wild(Wild),
    /// It has an instruction that does not exist.
    Unknown(Instruction),
    /// It jumped or called out of its code.
    Left,
    /// More than [`MOST_FRAMES`] functions called each other.
    TooDeep,
    /// It does not end.
    Endless,
    /// The kernel ended it, for this reason.
    Refused(String),
}

impl From<Wild> for Stop {
    fn from(wild: Wild) -> Self {
        Self::Wild(wild)
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wild(Wild { address, write: false }) => write!(f, "access to {address:#x}"),
            Self::Wild(Wild { address, .. }) => write!(f, "write to {address:#x}"),
            Self::Unknown(instruction) => write!(f, "unknown operation {:#04x}", instruction.code),
            Self::Left => f.write_str("jump out of the code"),
            Self::TooDeep => write!(f, "more than {MOST_FRAMES} functions call each other"),
            Self::Endless => write!(f, "no end after {MOST_INSTRUCTIONS} instructions"),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

/// Where and why a program could not continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The instruction.
    pub at: usize,
    /// Why.
    pub why: Stop,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The value of register 0.
    pub value: u64,
    /// Number of instructions that were executed.
    pub instructions: u64,
}

/// Registers, and where to continue after the current function.
struct State {
    registers: [u64; 11],
    /// For each calling function, its next instruction and its registers 6 to 9.
    frames: Vec<(usize, [u64; 4])>,
    loops_left: u64,
}

/// What follows: an instruction, or the end of the call.
enum Next {
    At(usize),
    Returned,
}

/// Runs the function that begins at `entry`. Its stacks begin at `stack`: [`MOST_FRAMES`] of [`STACK_BYTES`] each.
///
/// # Errors
/// If the program cannot continue.
pub fn run(
    code: &[Instruction],
    host: &mut impl Host,
    stack: u64,
    entry: usize,
    arguments: [u64; 5],
) -> Result<Returned, Fault> {
    let mut state = State { registers: [0; 11], frames: Vec::new(), loops_left: MOST_LOOPS };
    state.registers[1..6].copy_from_slice(&arguments);
    state.registers[10] = stack + STACK_BYTES;
    let (mut at, mut instructions) = (entry, 0);
    loop {
        let instruction = *code.get(at).ok_or(Fault { at, why: Stop::Left })?;
        instructions += 1;
        if instructions > MOST_INSTRUCTIONS {
            return Err(Fault { at, why: Stop::Endless });
        }
        host.executes(at);
        let upper = code.get(at + 1).map_or(0, |next| next.imm);
        match state.step(instruction, upper, at, host) {
            Ok(Next::At(next)) => at = next,
            Ok(Next::Returned) => {
                return Ok(Returned { value: state.registers[0], instructions });
            }
            Err(why) => return Err(Fault { at, why }),
        }
    }
}

impl State {
    fn step(
        &mut self,
        instruction: Instruction,
        upper: i32,
        at: usize,
        host: &mut impl Host,
    ) -> Result<Next, Stop> {
        if instruction.dst > 10 || instruction.src > 10 {
            return Err(Stop::Unknown(instruction));
        }
        match instruction.class() {
            class::ALU64 => self.arithmetic_64(instruction)?,
            class::ALU => self.arithmetic_32(instruction)?,
            class::LDX => self.load(instruction, host)?,
            class::ST => self.store(instruction, instruction.imm as i64 as u64, host)?,
            class::STX if instruction.code & MODE == MEM => {
                self.store(instruction, self.registers[instruction.src as usize], host)?;
            }
            class::STX => self.atomic(instruction, host)?,
            class::LD if instruction.code == LOAD_64 => {
                let value = u64::from(instruction.imm as u32) | (u64::from(upper as u32) << 32);
                self.registers[instruction.dst as usize] = value;
                return Ok(Next::At(at + 2));
            }
            class::LD => return Err(Stop::Unknown(instruction)),
            _ => return self.jump(instruction, at, host),
        }
        Ok(Next::At(at + 1))
    }

    /// The second operand: a register, or the sign-extended immediate.
    fn operand(&self, instruction: Instruction) -> u64 {
        match instruction.code & REGISTER {
            0 => i64::from(instruction.imm) as u64,
            _ => self.registers[instruction.src as usize],
        }
    }

    fn arithmetic_64(&mut self, instruction: Instruction) -> Result<(), Stop> {
        let (a, b) = (self.registers[instruction.dst as usize], self.operand(instruction));
        let value = match (instruction.code & OPERATION, instruction.offset) {
            (MOV, CAST) => Some(cast(b, instruction.imm)),
            (MOV, 32) => Some(b as i32 as u64),
            // Reverses the bytes, whatever the machine's byte order.
            (END, 0) if instruction.code & REGISTER == 0 => swap(a, instruction.imm),
            (operation, offset) => of_64_bits(operation, offset, a, b),
        };
        self.registers[instruction.dst as usize] = value.ok_or(Stop::Unknown(instruction))?;
        Ok(())
    }

    fn arithmetic_32(&mut self, instruction: Instruction) -> Result<(), Stop> {
        let wide = self.registers[instruction.dst as usize];
        let (a, b) = (wide as u32, self.operand(instruction) as u32);
        let value = match (instruction.code & OPERATION, instruction.offset) {
            // To big-endian (register bit set) or little-endian. The simulated machine is little-endian.
            (END, 0) => match (instruction.code & REGISTER != 0, instruction.imm) {
                (true, bits) => swap(wide, bits),
                (false, 16) => Some(wide & 0xffff),
                (false, 32) => Some(wide & 0xffff_ffff),
                (false, 64) => Some(wide),
                _ => None,
            },
            (operation, offset) => of_32_bits(operation, offset, a, b).map(u64::from),
        };
        self.registers[instruction.dst as usize] = value.ok_or(Stop::Unknown(instruction))?;
        Ok(())
    }

    fn load(&mut self, instruction: Instruction, host: &mut impl Host) -> Result<(), Stop> {
        let address = displaced(self.registers[instruction.src as usize], instruction);
        let bytes = access_bytes(instruction.code);
        let extend: fn(u64) -> u64 = match (instruction.code & MODE, bytes) {
            (MEM, _) => |value| value,
            (MEMSX, 1) => |value| value as i8 as u64,
            (MEMSX, 2) => |value| value as i16 as u64,
            (MEMSX, 4) => |value| value as i32 as u64,
            _ => return Err(Stop::Unknown(instruction)),
        };
        self.registers[instruction.dst as usize] = extend(host.load(address, bytes)?);
        Ok(())
    }

    fn store(
        &self,
        instruction: Instruction,
        value: u64,
        host: &mut impl Host,
    ) -> Result<(), Stop> {
        if instruction.code & MODE != MEM {
            return Err(Stop::Unknown(instruction));
        }
        let address = displaced(self.registers[instruction.dst as usize], instruction);
        host.store(address, access_bytes(instruction.code), value)
    }

    fn atomic(&mut self, instruction: Instruction, host: &mut impl Host) -> Result<(), Stop> {
        let bytes = access_bytes(instruction.code);
        let (dst, src) = (instruction.dst as usize, instruction.src as usize);
        if instruction.code & MODE != ATOMIC {
            return Err(Stop::Unknown(instruction));
        }
        if instruction.imm == LOAD_ACQUIRE {
            let address = displaced(self.registers[src], instruction);
            self.registers[dst] = host.load(address, bytes)?;
            return Ok(());
        }
        let address = displaced(self.registers[dst], instruction);
        let operand = self.registers[src];
        if instruction.imm == STORE_RELEASE {
            return host.store(address, bytes, operand);
        }
        if bytes < 4 || !is_exchange(instruction.imm) {
            return Err(Stop::Unknown(instruction));
        }
        let old = exchange(host, instruction.imm, bytes, address, operand, self.registers[0])?;
        match instruction.imm {
            COMPARE_AND_EXCHANGE => self.registers[0] = old,
            operation if operation & FETCH != 0 => self.registers[src] = old,
            _ => {}
        }
        Ok(())
    }

    fn jump(
        &mut self,
        instruction: Instruction,
        at: usize,
        host: &mut impl Host,
    ) -> Result<Next, Stop> {
        let wide = instruction.class() == JMP;
        let to = |distance: i64| {
            let target = (at as i64 + 1).checked_add(distance);
            target.and_then(|at| usize::try_from(at).ok()).map(Next::At).ok_or(Stop::Left)
        };
        let operation = instruction.code & OPERATION;
        match (operation, wide) {
            (ALWAYS, true) => return to(instruction.offset.into()),
            (ALWAYS, false) => return to(instruction.imm.into()),
            (EXIT, true) => return Ok(self.leave()),
            (CALL_OPERATION, true) => return self.call(instruction, at, host),
            (MAY_GOTO, true) => {
                let Some(left) = self.loops_left.checked_sub(1) else {
                    return to(instruction.offset.into());
                };
                self.loops_left = left;
                return Ok(Next::At(at + 1));
            }
            _ => {}
        }
        let (a, b) = (self.registers[instruction.dst as usize], self.operand(instruction));
        let taken = compares(operation, wide, a, b).ok_or(Stop::Unknown(instruction))?;
        if taken { to(instruction.offset.into()) } else { Ok(Next::At(at + 1)) }
    }

    fn call(
        &mut self,
        instruction: Instruction,
        at: usize,
        host: &mut impl Host,
    ) -> Result<Next, Stop> {
        let [_, a, b, c, d, e, ..] = self.registers;
        let callee = match (instruction.code, instruction.src) {
            (CALL, 0) => Callee::Helper(instruction.imm as u32),
            (CALL, 2) => Callee::Kfunc(instruction.imm as u32),
            (CALL, 1) => return self.enter(instruction, at),
            _ => return Err(Stop::Unknown(instruction)),
        };
        self.registers[0] = host.call(callee, [a, b, c, d, e])?;
        self.registers[1..6].fill(0);
        Ok(Next::At(at + 1))
    }

    /// Calls a function of the program. The immediate is the distance from the next instruction.
    fn enter(&mut self, instruction: Instruction, at: usize) -> Result<Next, Stop> {
        if self.frames.len() + 1 >= MOST_FRAMES {
            return Err(Stop::TooDeep);
        }
        let [.., s6, s7, s8, s9, _] = self.registers;
        self.frames.push((at + 1, [s6, s7, s8, s9]));
        // The verifier refuses programs that read a register which the function has not written.
        self.registers[0] = 0;
        self.registers[6..10].fill(0);
        // A program that no verifier has checked may have changed it.
        self.registers[10] = self.registers[10].wrapping_add(STACK_BYTES);
        let target = at as i64 + 1 + i64::from(instruction.imm);
        usize::try_from(target).map(Next::At).map_err(|_| Stop::Left)
    }

    /// Returns from a function.
    fn leave(&mut self) -> Next {
        let Some((at, saved)) = self.frames.pop() else { return Next::Returned };
        self.registers[6..10].copy_from_slice(&saved);
        self.registers[1..6].fill(0);
        self.registers[10] = self.registers[10].wrapping_sub(STACK_BYTES);
        Next::At(at)
    }
}

/// Parts of operation codes (RFC 9669, sections 3 to 5).
pub(crate) mod operation {
    /// The class of jumps that compare 64 bits, and the class of those that compare 32.
    pub const JMP: u8 = 5;
    pub const JMP_32: u8 = 6;
    pub const OPERATION: u8 = 0xf0;
    pub const REGISTER: u8 = 0x08;
    pub const MODE: u8 = 0xe0;
    pub const MEM: u8 = 0x60;
    pub const MEMSX: u8 = 0x80;
    pub const ATOMIC: u8 = 0xc0;

    pub const ADD: u8 = 0x00;
    pub const SUB: u8 = 0x10;
    pub const MUL: u8 = 0x20;
    pub const DIV: u8 = 0x30;
    pub const OR: u8 = 0x40;
    pub const AND: u8 = 0x50;
    pub const LSH: u8 = 0x60;
    pub const RSH: u8 = 0x70;
    pub const NEG: u8 = 0x80;
    pub const MOD: u8 = 0x90;
    pub const XOR: u8 = 0xa0;
    pub const MOV: u8 = 0xb0;
    pub const ARSH: u8 = 0xc0;
    pub const END: u8 = 0xd0;

    pub const ALWAYS: u8 = 0x00;
    pub const EQUAL: u8 = 0x10;
    pub const UNEQUAL: u8 = 0x50;
    pub const CALL_OPERATION: u8 = 0x80;
    pub const EXIT: u8 = 0x90;
    pub const MAY_GOTO: u8 = 0xe0;

    /// The offset of a move that casts an address of the arena (BPF_ADDR_SPACE_CAST).
    pub const CAST: i16 = 1;

    pub const FETCH: i32 = 0x01;
    pub const COMPARE_AND_EXCHANGE: i32 = 0xf1;
    pub const LOAD_ACQUIRE: i32 = 0x100;
    pub const STORE_RELEASE: i32 = 0x110;

    /// Whether an atomic operation reads a value and writes a new one.
    pub fn is_exchange(operation: i32) -> bool {
        operation == COMPARE_AND_EXCHANGE
            || [0x00, 0x40, 0x50, 0xa0, 0xe0].contains(&(operation & !FETCH))
    }
}

/// Does an atomic operation ([`is_exchange`]) on 4 or 8 bytes at an address. Returns the previous value.
///
/// # Errors
/// If the bytes are not the program's own.
pub(crate) fn exchange(
    host: &mut impl Host,
    operation: i32,
    bytes: u32,
    address: u64,
    operand: u64,
    register_0: u64,
) -> Result<u64, Stop> {
    host.prepare(address, bytes)?;
    let old = host.memory().read(address, bytes)?;
    let mask = if bytes == 4 { u64::from(u32::MAX) } else { u64::MAX };
    let new = match operation & !FETCH {
        0x00 => old.wrapping_add(operand),
        0x40 => old | operand,
        0x50 => old & operand,
        0xa0 => old ^ operand,
        0xf0 if old != register_0 & mask => old,
        _ => operand,
    };
    host.store(address, bytes, new)?;
    Ok(old)
}

/// Whether a jump is taken that compares 64 (`wide`) or 32 bits. `None`: there is no such operation.
pub(crate) fn compares(operation: u8, wide: bool, a: u64, b: u64) -> Option<bool> {
    let (mut a, mut b, mut signed_a, mut signed_b) = (a, b, a as i64, b as i64);
    if !wide {
        (signed_a, signed_b) = ((a as i32).into(), (b as i32).into());
        (a, b) = ((a as u32).into(), (b as u32).into());
    }
    Some(match operation {
        EQUAL => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        UNEQUAL => a != b,
        0x60 => signed_a > signed_b,
        0x70 => signed_a >= signed_b,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => signed_a < signed_b,
        0xd0 => signed_a <= signed_b,
        _ => return None,
    })
}

/// The result of an operation that exists for both widths. `None`: there is no such operation.
macro_rules! arithmetic {
    ($name:ident, $unsigned:ty, $signed:ty) => {
        pub(crate) fn $name(
            operation: u8,
            offset: i16,
            a: $unsigned,
            b: $unsigned,
        ) -> Option<$unsigned> {
            let shift = b & (<$unsigned>::BITS - 1) as $unsigned;
            let (signed_a, signed_b) = (a as $signed, b as $signed);
            Some(match (operation, offset) {
                (ADD, 0) => a.wrapping_add(b),
                (SUB, 0) => a.wrapping_sub(b),
                (MUL, 0) => a.wrapping_mul(b),
                (DIV, 0) => a.checked_div(b).unwrap_or(0),
                (DIV, 1) if b == 0 => 0,
                (DIV, 1) => signed_a.wrapping_div(signed_b) as $unsigned,
                (OR, 0) => a | b,
                (AND, 0) => a & b,
                (LSH, 0) => a << shift,
                (RSH, 0) => a >> shift,
                (NEG, 0) => a.wrapping_neg(),
                (MOD, 0) => a.checked_rem(b).unwrap_or(a),
                (MOD, 1) if b == 0 => a,
                (MOD, 1) => signed_a.wrapping_rem(signed_b) as $unsigned,
                (XOR, 0) => a ^ b,
                (MOV, 0) => b,
                (MOV, 8) => b as i8 as $unsigned,
                (MOV, 16) => b as i16 as $unsigned,
                (ARSH, 0) => (signed_a >> shift) as $unsigned,
                _ => return None,
            })
        }
    };
}

arithmetic!(of_64_bits, u64, i64);
arithmetic!(of_32_bits, u32, i32);

fn displaced(address: u64, instruction: Instruction) -> u64 {
    address.wrapping_add_signed(instruction.offset.into())
}

/// Number of bytes that a load or store accesses.
pub(crate) fn access_bytes(code: u8) -> u32 {
    match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

/// The lowest `bits` with their bytes reversed.
fn swap(value: u64, bits: i32) -> Option<u64> {
    Some(match bits {
        16 => (value as u16).swap_bytes().into(),
        32 => (value as u32).swap_bytes().into(),
        64 => value.swap_bytes(),
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod tests;
