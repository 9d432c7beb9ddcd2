//! What is known at each place of a function, found before machine code is made: the values of registers or where they
//! come from, what the function's stack holds, and which cache lines the CPU has had since the call began.
//!
//! While a program runs, only its own CPU accesses lines. So a line that the CPU has read can be read again without a
//! transfer until the call ends, and a line that it has written can be read and written.
//!
//! A hook's arguments are at a known address, and the first is a task's struct for most hooks. Functions that the
//! program itself calls may get anything, so nothing is known of their arguments.
//!
//! A value that is not known has the number of the instruction that made it, or of the block and the register where
//! several values meet. Only one such value is known at a time: on the first way to the instruction nothing is known
//! of its value, and what is known at a place holds on all ways to it. For this, an instruction makes one value, and is
//! in one block only.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::emit::{Flow, Source, flow, wide};
use super::{Array, Given};
use crate::helpers::{CLOCKS, MAP_LOOKUP, TASK_STORAGE_GET, THIS_CPU};
use crate::instruction::{CALL, Instruction, LOAD_64, class};
use crate::interpret::operation::*;
use crate::interpret::{STACK_BYTES, access_bytes, compares, of_32_bits, of_64_bits};
use crate::lines::LINE_BYTES;
use crate::maps::BEFORE_VALUE;

/// What a value is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// 0: the value is known.
    Zero,
    /// The frame pointer.
    Stack,
    /// A pointer to a piece of memory, or NULL.
    Piece(Piece),
    /// A value that is not known, by its number.
    Unknown(u32),
}

/// A pointer to a piece of memory that has at least so many bytes, or NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    number: u32,
    bytes: u32,
    /// How far behind the beginning of a cache line the piece begins, if that is known.
    behind: Option<u8>,
    /// Whether its lines are not counted.
    exempt: bool,
}

/// What NULL counts as where it meets a pointer: any such piece.
const NULL: Piece = Piece { number: 0, bytes: u32::MAX, behind: None, exempt: true };

impl Piece {
    /// What is known of a pointer that may be to either piece. `number` is that of the pointer.
    fn meet(self, other: Self, number: u32) -> Self {
        let behind = match (self == NULL, other == NULL) {
            (true, _) => other.behind,
            (_, true) => self.behind,
            _ => self.behind.filter(|_| self.behind == other.behind),
        };
        let (bytes, exempt) = (self.bytes.min(other.bytes), self.exempt && other.exempt);
        Self { number, bytes, behind, exempt }
    }
}

/// The value of a register: a base plus an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub base: Base,
    pub offset: i64,
}

impl Known {
    /// A number.
    pub(super) fn number(value: u64) -> Self {
        Self { base: Base::Zero, offset: value as i64 }
    }

    /// The number, if it is known.
    pub(super) fn as_number(self) -> Option<u64> {
        (self.base == Base::Zero).then_some(self.offset as u64)
    }

    fn unknown(number: u32) -> Self {
        Self { base: Base::Unknown(number), offset: 0 }
    }

    /// The value plus a number.
    pub(super) fn plus(self, number: i64) -> Self {
        Self { offset: self.offset.wrapping_add(number), ..self }
    }

    /// Whether an access of this size is to the function's own stack.
    pub(super) fn is_own_stack(self, bytes: u32) -> bool {
        let own = -(STACK_BYTES as i64)..=-i64::from(bytes);
        self.base == Base::Stack && own.contains(&self.offset)
    }

    /// An address of the same line, the same for all such addresses if it is known how they lie.
    fn line(self) -> Self {
        match self.base {
            Base::Zero => Self { offset: self.offset & -(LINE_BYTES as i64), ..self },
            Base::Piece(Piece { behind: Some(behind), .. }) => {
                let behind = i64::from(behind);
                let line = self.offset.wrapping_add(behind) & -(LINE_BYTES as i64);
                Self { offset: line.wrapping_sub(behind), ..self }
            }
            _ => self,
        }
    }

    /// A pointer to a piece or NULL. A number is one if it is 0.
    fn as_piece(self) -> Option<Piece> {
        match (self.base, self.offset) {
            (Base::Piece(piece), 0) => Some(piece),
            (Base::Zero, 0) => Some(NULL),
            _ => None,
        }
    }

    /// What is known of two values that meet in a register. `number` is that of the unknown value.
    fn meet(self, other: Self, number: u32) -> Self {
        if self == other {
            return self;
        }
        match (self.as_piece(), other.as_piece()) {
            (Some(a), Some(b)) => Self { base: Base::Piece(a.meet(b, number)), offset: 0 },
            _ => Self::unknown(number),
        }
    }
}

/// The number of the value that an instruction makes.
fn made_at(at: usize) -> u32 {
    2 * at as u32
}

/// The number of the value in a register where a block begins. A jump out of the program has a block without code, so
/// its number does not matter.
fn met_at(block: usize, register: usize) -> u32 {
    32_u32.wrapping_mul(block as u32).wrapping_add(2 * register as u32 + 1)
}

/// Number of lines that are remembered, because each costs time wherever ways join. To forget one costs only a check.
const MOST_LINES: usize = 128;

/// So many instructions after a load a store to its line is searched, because translation must not take long for long
/// blocks. Not to find it costs only a check.
const SOON: usize = 32;

/// An access to the line of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Had {
    address: Known,
    write: bool,
}

/// A value on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    offset: i64,
    bytes: u32,
    value: Known,
}

impl Slot {
    fn overlaps(&self, range: &Range<i64>) -> bool {
        self.offset < range.end && range.start < self.offset + i64::from(self.bytes)
    }
}

/// The facts at a place in a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    registers: [Known; 11],
    had: Vec<Had>,
    /// Numbers of pointers that are not NULL.
    not_null: Vec<u32>,
    /// Numbers of pointers of which the second is not NULL if the first is not.
    together: Vec<[u32; 2]>,
    /// Whether the first of a hook's arguments is a task, and nobody can have overwritten it.
    for_task: bool,
    stack: Vec<Slot>,
}

impl Facts {
    /// The facts at the start of a function that the program calls.
    pub(super) fn none(entry: usize) -> Self {
        let mut registers = std::array::from_fn(|at| Known::unknown(met_at(entry, at)));
        registers[10].base = Base::Stack;
        let (not_null, together) = (Vec::new(), Vec::new());
        let (had, stack) = (Vec::new(), Vec::new());
        Self { registers, had, not_null, together, for_task: false, stack }
    }

    /// The facts at the start of a function that only the kernel calls.
    pub(super) fn of_hook(entry: usize, given: &Given) -> Self {
        let mut facts = Self::none(entry);
        if let Some(&for_task) = given.hooks.get(&entry) {
            facts.for_task = for_task;
            facts.set(1, Known::number(given.context.start));
            for line in given.context.clone().step_by(LINE_BYTES as usize) {
                facts.have(Known::number(line), true);
            }
        }
        facts
    }

    /// Keeps what also holds on another way to a block. Returns whether that is less.
    fn meet(&mut self, other: &Self, block: usize) -> bool {
        let before = self.clone();
        self.for_task &= other.for_task;
        self.had.retain(|had| other.has(had.address, had.write));
        self.not_null.retain(|number| other.not_null.contains(number));
        self.stack.retain(|slot| other.stack.contains(slot));
        for at in 0..self.registers.len() {
            let number = met_at(block, at);
            let known = self.registers[at].meet(other.registers[at], number);
            if known != self.registers[at] || known != other.registers[at] {
                self.not_null.retain(|known| *known != number);
                if before.is_there(at) && other.is_there(at) {
                    self.not_null.push(number);
                }
            }
            self.registers[at] = known;
        }
        let pairs = (0..=10).flat_map(|a| (0..=10).map(move |b| [a, b]));
        let hold = pairs.filter(|&[a, b]| before.are_together(a, b) && other.are_together(a, b));
        let numbers = |pair: [usize; 2]| {
            let [a, b] = pair.map(|at| self.registers[at].as_piece());
            Some([a?.number, b?.number]).filter(|[a, b]| a != b && !self.not_null.contains(b))
        };
        self.together = hold.filter_map(numbers).collect();
        *self != before
    }

    /// Whether a register has a pointer that is not NULL to the start of a piece of memory.
    fn is_there(&self, register: usize) -> bool {
        let piece = self.registers[register].as_piece();
        piece.is_some_and(|piece| self.not_null.contains(&piece.number))
    }

    /// Whether register `b` has such a pointer if register `a` has.
    fn are_together(&self, a: usize, b: usize) -> bool {
        let [a, b_known] = [a, b].map(|at| self.registers[at].as_piece());
        let (Some(a), Some(known)) = (a, b_known) else { return false };
        a.number == 0 || self.is_there(b) || self.together.contains(&[a.number, known.number])
    }

    pub(super) fn get(&self, register: u8) -> Known {
        self.registers[register as usize]
    }

    fn set(&mut self, register: u8, value: Known) {
        self.registers[register as usize] = value;
    }

    /// Whether the CPU can access the line of an address without a transfer.
    pub(super) fn has(&self, address: Known, write: bool) -> bool {
        let address = address.line();
        if let Base::Piece(Piece { exempt: true, bytes, .. }) = address.base
            && (0..i64::from(bytes)).contains(&address.offset)
        {
            return true;
        }
        self.had.iter().any(|had| had.address == address && (had.write || !write))
    }

    /// The CPU has accessed the line of an address.
    pub(super) fn have(&mut self, address: Known, write: bool) {
        if !self.has(address, write) {
            let address = address.line();
            self.had.retain(|had| had.address != address);
            if self.had.len() < MOST_LINES {
                self.had.push(Had { address, write });
            }
        }
    }

    /// Whether an access of this size is known to be to a piece of memory.
    pub(super) fn is_inside(&self, source: &Source, address: Known, bytes: u32) -> bool {
        let end = address.offset.checked_add(bytes.into());
        match address.base {
            Base::Zero => source.given.has(address.offset as u64, bytes),
            Base::Piece(Piece { number, bytes: size, .. }) => {
                let inside = end.is_some_and(|end| end <= size.into()) && address.offset >= 0;
                inside && self.not_null.contains(&number)
            }
            Base::Stack | Base::Unknown(_) => false,
        }
    }

    /// Whether the line that a load reads is written soon after it in its block, and nothing in between calls a
    /// function or can end the program.
    pub(super) fn writes_soon(&self, source: &Source, at: usize) -> bool {
        let instruction = source.code[at];
        let line = self.get(instruction.src).plus(instruction.offset.into()).line();
        let (mut facts, mut at) = (self.clone(), at);
        for _ in 0..SOON {
            facts.step(source, at);
            let Flow::Next(next) = flow(source.code[at], at) else { return false };
            let Some(&Instruction { code, dst, src, offset, .. }) = source.code.get(next) else {
                return false;
            };
            if dst > 10 || src > 10 || source.leaders.contains(&next) {
                return false;
            }
            let to = facts.get(dst).plus(offset.into());
            let from = facts.get(src).plus(offset.into());
            let bytes = access_bytes(code);
            let harmless = |at: Known| at.is_own_stack(bytes) || facts.is_inside(source, at, bytes);
            match code & 7 {
                // Other arithmetic need not exist.
                class::ALU | class::ALU64 if offset == 0 && code & OPERATION < END => {}
                class::LD if code == LOAD_64 => {}
                class::LDX if code & MODE == MEM && harmless(from) => {}
                class::ST | class::STX if code & MODE == MEM && harmless(to) => {
                    if to.line() == line {
                        return true;
                    }
                }
                _ => return false,
            }
            at = next;
        }
        false
    }

    /// What is known of the value that an instruction writes to a register.
    pub(super) fn result(&self, source: &Source, at: usize) -> Option<Known> {
        let instruction @ Instruction { code, dst, src, offset, imm } = source.code[at];
        let by_register = code & REGISTER != 0;
        match (instruction.class(), code & OPERATION, offset) {
            (class::LD, ..) if code == LOAD_64 => Some(Known::number(wide(source.code, at))),
            (class::ALU64, MOV, 0) if by_register => Some(self.get(src)),
            (class::ALU64, ADD, 0) if !by_register => Some(self.get(dst).plus(imm.into())),
            (class::ALU64 | class::ALU, ..) => self.calculated(instruction),
            (class::LDX, ..) => self.loaded(source, at),
            (JMP, ..) if code == CALL && src == 0 => self.returned(source, at, imm as u32),
            _ => None,
        }
    }

    /// The result of arithmetic on numbers.
    fn calculated(&self, instruction: Instruction) -> Option<Known> {
        let Instruction { code, dst, src, offset, imm } = instruction;
        let operation = code & OPERATION;
        let b = match code & REGISTER {
            0 => i64::from(imm) as u64,
            _ => self.get(src).as_number()?,
        };
        // A move does not read its destination.
        let a = if operation == MOV { 0 } else { self.get(dst).as_number()? };
        let value = match instruction.class() {
            class::ALU64 => of_64_bits(operation, offset, a, b),
            _ => of_32_bits(operation, offset, a as u32, b as u32).map(u64::from),
        };
        value.map(Known::number)
    }

    /// A value that is read from the stack, from a hook's arguments, or from what programs only read.
    fn loaded(&self, source: &Source, at: usize) -> Option<Known> {
        let instruction = source.code[at];
        if self.loads_task(source, instruction) {
            let (number, bytes) = (made_at(at), source.given.task_bytes);
            let piece = Piece { number, bytes, behind: Some(0), exempt: true };
            return Some(Known { base: Base::Piece(piece), offset: 0 });
        }
        let bytes = access_bytes(instruction.code);
        let address = self.get(instruction.src).plus(instruction.offset.into());
        if instruction.code & MODE != MEM {
            return None;
        }
        match address.as_number() {
            Some(address) => source.given.constant(address, bytes).map(Known::number),
            None if address.is_own_stack(bytes) => self.on_stack(address.offset, bytes),
            None => None,
        }
    }

    /// Whether an instruction reads the task that the hook is about.
    fn loads_task(&self, source: &Source, instruction: Instruction) -> bool {
        let address = self.get(instruction.src).plus(instruction.offset.into());
        self.for_task
            && address == Known::number(source.given.context.start)
            && instruction.code & MODE == MEM
            && access_bytes(instruction.code) == 8
    }

    fn on_stack(&self, offset: i64, bytes: u32) -> Option<Known> {
        let slot = self.stack.iter().find(|slot| (slot.offset, slot.bytes) == (offset, bytes));
        slot.map(|slot| slot.value)
    }

    /// What a helper returns.
    fn returned(&self, source: &Source, at: usize, helper: u32) -> Option<Known> {
        let map = self.get(1).as_number()?;
        let number = made_at(at);
        let piece = match helper {
            MAP_LOOKUP => {
                let array = source.given.arrays.get(&map)?;
                if let Some(address) = self.looked_up(array) {
                    return Some(Known::number(address));
                }
                let aligned = [array.first, array.stride, array.of_cpu]
                    .iter()
                    .all(|bytes| bytes.is_multiple_of(LINE_BYTES));
                let bytes = u32::try_from(array.stride).ok()?;
                Piece { number, bytes, behind: aligned.then_some(0), exempt: false }
            }
            TASK_STORAGE_GET => {
                let bytes = source.given.storages.get(&map)?.bytes;
                Piece { number, bytes, behind: Some(BEFORE_VALUE as u8), exempt: false }
            }
            _ => return None,
        };
        Some(Known { base: Base::Piece(piece), offset: 0 })
    }

    /// The address of an array's value, if the index is known.
    pub(super) fn looked_up(&self, array: &Array) -> Option<u64> {
        let key = Some(self.get(2)).filter(|key| key.is_own_stack(4) && array.of_cpu == 0)?;
        let index = self.on_stack(key.offset, 4)?.as_number()?;
        (index < array.entries.into()).then(|| array.first + array.stride * index)
    }

    /// What holds after an instruction that is followed by the next one.
    pub(super) fn step(&mut self, source: &Source, at: usize) {
        let instruction @ Instruction { code, dst, src, offset, imm } = source.code[at];
        let result = self.result(source, at);
        let made = result.unwrap_or(Known::unknown(made_at(at)));
        let [to, from] = [dst, src].map(|register| self.get(register).plus(offset.into()));
        let bytes = access_bytes(code);
        match instruction.class() {
            class::LDX => {
                if self.loads_task(source, instruction) {
                    self.not_null.push(made_at(at));
                }
                self.load(from, bytes);
                self.set(dst, made);
            }
            class::ST => self.store(source, to, bytes, Known::number(i64::from(imm) as u64)),
            class::STX if code & MODE == MEM || imm == STORE_RELEASE => {
                self.store(source, to, bytes, self.get(src));
            }
            class::STX if imm == LOAD_ACQUIRE => {
                self.load(from, bytes);
                self.set(dst, made);
            }
            class::STX => {
                // What is stored is not what the instruction returns.
                self.write(source, to, bytes);
                match imm {
                    COMPARE_AND_EXCHANGE => self.set(0, made),
                    _ if imm & FETCH != 0 => self.set(src, made),
                    _ => {}
                }
            }
            JMP => {
                self.call(source, instruction, made);
                // The helper has read what stands before the value.
                if result.is_some() && imm as u32 == TASK_STORAGE_GET {
                    self.have(made, false);
                }
            }
            _ => self.set(dst, made),
        }
    }

    fn load(&mut self, from: Known, bytes: u32) {
        if !from.is_own_stack(bytes) {
            self.have(from, false);
        }
    }

    /// A value that is not known is written.
    fn write(&mut self, source: &Source, to: Known, bytes: u32) {
        if to.is_own_stack(bytes) {
            let range = to.offset..to.offset + i64::from(bytes);
            return self.stack.retain(|slot| !slot.overlaps(&range));
        }
        if !self.is_inside(source, to, bytes) {
            self.stack.clear();
        }
        self.for_task = false;
        self.have(to, true);
    }

    fn store(&mut self, source: &Source, to: Known, bytes: u32, value: Known) {
        self.write(source, to, bytes);
        if !to.is_own_stack(bytes) {
            return;
        }
        let value = match (value.as_number(), bytes) {
            (_, 8) => value,
            (Some(number), _) => Known::number(number & !(u64::MAX << (8 * bytes))),
            (None, _) => return,
        };
        self.stack.push(Slot { offset: to.offset, bytes, value });
    }

    fn call(&mut self, source: &Source, instruction: Instruction, made: Known) {
        let called = instruction.imm as u32;
        let keeps = match instruction.src {
            // These only read.
            0 => {
                [MAP_LOOKUP, THIS_CPU].contains(&called)
                    || CLOCKS.contains(&called)
                    || self.gets_storage(called)
            }
            2 => source.given.keeping.contains(&called),
            _ => false,
        };
        if !keeps {
            self.stack.clear();
        }
        self.for_task = false;
        self.set(0, made);
        (1..=5).for_each(|register| self.set(register, Known::number(0)));
    }

    /// Whether a helper gets a task's value, and does not create it from an initial one.
    fn gets_storage(&self, helper: u32) -> bool {
        helper == TASK_STORAGE_GET && self.get(3) == Known::number(0)
    }

    /// Whether a jump is taken, if that is known.
    pub(super) fn taken(&self, instruction: Instruction) -> Option<bool> {
        let Instruction { code, dst, src, imm, .. } = instruction;
        let wide = instruction.class() == JMP;
        let b = match code & REGISTER {
            0 => i64::from(imm) as u64,
            _ => self.get(src).as_number()?,
        };
        let a = self.get(dst);
        if let Some(a) = a.as_number() {
            return compares(code & OPERATION, wide, a, b);
        }
        let there = self.is_there(dst.into());
        match code & OPERATION {
            EQUAL if wide && there && b == 0 => Some(false),
            UNEQUAL if wide && there && b == 0 => Some(true),
            _ => None,
        }
    }

    /// What holds if a jump is taken, or is not.
    fn after_jump(&self, instruction: Instruction, taken: bool) -> Self {
        let mut facts = self.clone();
        let known = self.get(instruction.dst);
        let b = match instruction.code & REGISTER {
            0 => Some(i64::from(instruction.imm) as u64),
            _ => self.get(instruction.src).as_number(),
        };
        let operation = instruction.code & OPERATION;
        let compares = instruction.class() == JMP && [EQUAL, UNEQUAL].contains(&operation);
        let (Some(b), true) = (b, compares && known.base != Base::Stack) else { return facts };
        if taken == (operation == EQUAL) {
            let equal = facts.registers.iter_mut().filter(|register| **register == known);
            equal.for_each(|register| *register = Known::number(b));
        } else if let Some(piece) = known.as_piece().filter(|_| b == 0) {
            let with = facts.together.iter().filter(|[first, _]| *first == piece.number);
            let with: Vec<u32> = with.map(|[_, second]| *second).collect();
            facts.not_null.push(piece.number);
            facts.not_null.extend(with);
            facts.not_null.dedup();
        }
        facts
    }

    /// Where execution may continue after an instruction that ends a block, and what holds there.
    fn ways(self, instruction: Instruction, at: usize) -> Vec<(usize, Self)> {
        match flow(instruction, at) {
            Flow::Next(next) => vec![(next, self)],
            Flow::Jump(target) => target.map(|target| (target, self)).into_iter().collect(),
            Flow::Leaves => Vec::new(),
            Flow::Branch(target) => {
                let is_taken = self.taken(instruction);
                let ways = [(Some(at + 1), false), (target, true)].into_iter();
                ways.filter(|(_, taken)| is_taken.is_none_or(|is_taken| is_taken == *taken))
                    .filter_map(|(to, taken)| Some((to?, self.after_jump(instruction, taken))))
                    .collect()
            }
        }
    }
}

/// The blocks of a function that can be reached, and what is known where each begins. `facts` hold where the function
/// begins.
pub(super) fn known(source: &Source, entry: usize, facts: Facts) -> BTreeMap<usize, Facts> {
    let mut starts = BTreeMap::from([(entry, facts)]);
    let mut changed = BTreeSet::from([entry]);
    while let Some(block) = changed.pop_first() {
        for (to, facts) in at_end(source, block, starts[&block].clone()) {
            let is_new = match starts.get_mut(&to) {
                Some(known) => known.meet(&facts, to),
                None => starts.insert(to, facts).is_none(),
            };
            if is_new {
                changed.insert(to);
            }
        }
    }
    starts
}

/// Where execution may continue after a block, and what holds there.
fn at_end(source: &Source, block: usize, mut facts: Facts) -> Vec<(usize, Facts)> {
    let mut at = block;
    while let Some(&instruction) = source.code.get(at) {
        if instruction.dst > 10 || instruction.src > 10 {
            break;
        }
        let Flow::Next(next) = flow(instruction, at) else { return facts.ways(instruction, at) };
        facts.step(source, at);
        if source.leaders.contains(&next) {
            return vec![(next, facts)];
        }
        at = next;
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::tests::op;
    use crate::translate::Storage;

    const ROOM: u64 = 0x7000_0000_1000;
    const MAP: u64 = 0x7000_0000_2000;

    /// An array of two values of 128 bytes, and a constant.
    fn given() -> Given {
        let array = Array { first: ROOM, stride: 128, of_cpu: 0, entries: 2 };
        Given {
            arrays: [(MAP, array)].into(),
            constants: vec![(ROOM + 256, 7u64.to_le_bytes().into())],
            region: ROOM..ROOM + 264,
            ..Given::default()
        }
    }

    fn load_64(register: u8, value: u64) -> [Instruction; 2] {
        [op(LOAD_64, register, 0, 0, value as i32), op(0, 0, 0, 0, (value >> 32) as i32)]
    }

    /// What is known where each of the blocks begins that can be reached.
    fn blocks(code: &[Instruction], leaders: &[usize]) -> BTreeMap<usize, Facts> {
        let leaders = [&[0], leaders].concat().into_iter().collect();
        known(&Source { code, leaders: &leaders, given: &given(), seldom: &[] }, 0, Facts::none(0))
    }

    #[test]
    fn a_line_that_was_written_can_be_read_and_written_and_one_that_was_read_only_read() {
        // r0 = *(u8 *)(r1 + 0); *(u8 *)(r2 + 8) = 1; r0 = *(u8 *)(r2 + 8); goto next
        let code = [
            op(0x71, 0, 1, 0, 0),
            op(0x72, 2, 0, 8, 1),
            op(0x71, 0, 2, 8, 0),
            op(0x05, 0, 0, 0, 0),
            op(0x95, 0, 0, 0, 0),
        ];
        let facts = &blocks(&code, &[4])[&4];
        let (read, written) = (facts.get(1), facts.get(2).plus(8));
        assert_eq!([false, true].map(|write| facts.has(read, write)), [true, false]);
        assert_eq!([false, true].map(|write| facts.has(written, write)), [true, true]);
        assert!(!facts.has(facts.get(2), false), "another address");
    }

    #[test]
    fn a_store_to_the_line_of_a_load_is_found_if_nothing_else_can_happen_before_it() {
        // r1 = ROOM; r0 = *(u64 *)(r1 + 0); ...; *(u8 *)(r1 + 63) = 1; exit
        let finds = |between: &[Instruction], store: Instruction, leaders: &[usize]| {
            let begins = [&load_64(1, ROOM)[..], &[op(0x79, 0, 1, 0, 0)]].concat();
            let code = [&begins[..], between, &[store, op(0x95, 0, 0, 0, 0)]].concat();
            let (leaders, given) = (leaders.iter().copied().collect(), given());
            let source = Source { code: &code, leaders: &leaders, given: &given, seldom: &[] };
            let mut facts = Facts::none(0);
            facts.step(&source, 0);
            facts.writes_soon(&source, 2)
        };
        let store = op(0x72, 1, 0, 63, 1);
        let add = op(0x07, 0, 0, 0, 1);
        assert!(finds(&[], store, &[0]));
        assert!(finds(&[add, op(0x79, 2, 1, 64, 0), op(0x7b, 10, 0, -8, 0)], store, &[0]));
        assert!(!finds(&[], op(0x72, 1, 0, 64, 1), &[0]), "another line");
        assert!(!finds(&[], store, &[0, 3]), "another block");
        let ends = [
            ("a call", op(CALL, 0, 0, 0, THIS_CPU as i32)),
            ("a jump", op(0x15, 0, 0, 0, 0)),
            ("an address that may be nowhere", op(0x79, 2, 3, 0, 0)),
            ("the base is another address", op(0xbf, 1, 2, 0, 0)),
            ("no such operation", op(0x07, 0, 0, 1, 0)),
        ];
        for (what, instruction) in ends {
            assert!(!finds(&[instruction], store, &[0]), "{what}");
        }
        assert!(!finds(&[add; SOON], store, &[0]), "far away");
    }

    #[test]
    fn where_ways_join_holds_what_holds_on_each() {
        // *(u8 *)(r1 + 0) = 1; if r4 == 3 goto 4; r0 = *(u8 *)(r2 + 0); r3 = 5; 4: exit
        let code = [
            op(0x72, 1, 0, 0, 1),
            op(0x15, 4, 0, 2, 3),
            op(0x71, 0, 2, 0, 0),
            op(0xb7, 3, 0, 0, 5),
            op(0x95, 0, 0, 0, 0),
        ];
        let blocks = blocks(&code, &[2, 4]);
        let common = &blocks[&4];
        assert!(common.has(common.get(1), true) && !common.has(common.get(2), false));
        assert_eq!(common.get(1), blocks[&0].get(1));
        assert!(common.get(3) != blocks[&0].get(3) && common.get(3).as_number().is_none());
        assert_eq!(blocks[&2].get(4), blocks[&0].get(4), "not 3");
    }

    #[test]
    fn what_changes_in_a_loop_is_not_known_in_it() {
        // r6 = 1; r7 = 2; r8 = r1; 3: *(u8 *)(r8 + 0) = 1; r8 += r2; r6 += 1; if r6 != r3 goto 3; exit
        let code = [
            op(0xb7, 6, 0, 0, 1),
            op(0xb7, 7, 0, 0, 2),
            op(0xbf, 8, 1, 0, 0),
            op(0x72, 8, 0, 0, 1),
            op(0x0f, 8, 2, 0, 0),
            op(0x07, 6, 0, 0, 1),
            op(0x5d, 6, 3, -4, 0),
            op(0x95, 0, 0, 0, 0),
        ];
        let facts = &blocks(&code, &[3, 7])[&3];
        assert_eq!(facts.get(7), Known::number(2));
        assert_eq!(facts.get(6).as_number(), None);
        assert!(!facts.has(facts.get(8), false));
    }

    #[test]
    fn a_jump_that_a_constant_decides_has_one_way() {
        // r1 = the constant's address; r2 = *(u64 *)(r1 + 0); w2 += -3; if r2 > 3 goto 6; 5: exit; 6: exit
        let [low, high] = load_64(1, ROOM + 256);
        let ends = [op(0x95, 0, 0, 0, 0); 2];
        let test = [op(0x79, 2, 1, 0, 0), op(0x04, 2, 0, 0, -3), op(0x25, 2, 0, 1, 3)];
        let code = [&[low, high][..], &test, &ends].concat();
        let reached = |code: &[Instruction]| blocks(code, &[5, 6]).into_keys().collect::<Vec<_>>();
        assert_eq!(reached(&code), [0, 6]);
        let mut other = code.clone();
        other[4].imm = 4;
        assert_eq!(reached(&other), [0, 5]);
        // Beside it is a variable.
        other[2].offset = -8;
        assert_eq!(reached(&other), [0, 5, 6]);
    }

    /// r0 = look_up(MAP, r10 - 4), whose key r1 has been stored; if r0 == 0 goto the end; then the rest.
    fn looks_up(rest: &[Instruction]) -> Vec<Instruction> {
        let [low, high] = load_64(1, MAP);
        let code = [
            op(0x63, 10, 1, -4, 0),
            op(0xbf, 2, 10, 0, 0),
            op(0x07, 2, 0, 0, -4),
            low,
            high,
            op(CALL, 0, 0, 0, MAP_LOOKUP as i32),
            op(0x15, 0, 0, rest.len() as i16, 0),
        ];
        [&code, rest, &[op(0x95, 0, 0, 0, 0)]].concat()
    }

    #[test]
    fn a_value_that_is_there_is_accessed_within_its_size_and_by_its_lines() {
        // r6 = *(u8 *)(r0 + 64); goto next
        let code = looks_up(&[op(0x71, 6, 0, 64, 0), op(0x05, 0, 0, 0, 0)]);
        let blocks = blocks(&code, &[7, 9]);
        let (there, end) = (&blocks[&7], &blocks[&9]);
        let leaders = BTreeSet::new();
        let source = Source { code: &code, leaders: &leaders, given: &given(), seldom: &[] };
        let inside = |facts: &Facts, at| facts.is_inside(&source, there.get(0).plus(at), 8);
        assert_eq!([-1, 0, 120, 121].map(|at| inside(there, at)), [false, true, true, false]);
        assert!(!inside(end, 0), "it may not be there");
        let mut facts = there.clone();
        facts.step(&source, 7);
        let had = [0, 63, 64, 127, 128].map(|at| facts.has(there.get(0).plus(at), false));
        assert_eq!(had, [false, false, true, true, false]);
    }

    #[test]
    fn a_look_up_of_a_tasks_value_reads_the_line_of_its_first_bytes() {
        // r1 = map; r0 = value of r2's task; goto next
        let [low, high] = load_64(1, MAP);
        let call = op(CALL, 0, 0, 0, TASK_STORAGE_GET as i32);
        let code = [low, high, call, op(0x05, 0, 0, 0, 0), op(0x95, 0, 0, 0, 0)];
        let storage = Storage { number: 0, bytes: 128 };
        let given = Given { storages: [(MAP, storage)].into(), ..given() };
        let leaders = [0, 4].into();
        let source = Source { code: &code, leaders: &leaders, given: &given, seldom: &[] };
        let facts = &known(&source, 0, Facts::none(0))[&4];
        let had = [0, 55, 56].map(|at| facts.has(facts.get(0).plus(at), false));
        assert_eq!(had, [true, true, false]);
        assert!(!facts.has(facts.get(0), true));
    }

    #[test]
    fn a_value_is_there_if_a_later_one_is_that_is_looked_up_only_then() {
        // r6 = 0; r7 = r0 = look_up(...); if r0 == 0 goto join; r6 = r0 = look_up(...); join: if r6 == 0 goto end; exit
        let second = [
            op(0xbf, 2, 10, 0, 0),
            op(0x07, 2, 0, 0, -4),
            load_64(1, MAP)[0],
            load_64(1, MAP)[1],
            op(CALL, 0, 0, 0, MAP_LOOKUP as i32),
            op(0xbf, 6, 0, 0, 0),
        ];
        let mut code = vec![op(0xb7, 6, 0, 0, 0)];
        code.extend(&looks_up(&[])[..6]);
        code.extend([op(0xbf, 7, 0, 0, 0), op(0x15, 0, 0, second.len() as i16, 0)]);
        code.extend(second);
        let join = code.len();
        code.extend([op(0x15, 6, 0, 1, 0), op(0x95, 0, 0, 0, 0), op(0x95, 0, 0, 0, 0)]);
        let blocks = blocks(&code, &[9, join, join + 1, join + 2]);
        let are_there = |at| [6, 7].map(|register| blocks[&at].is_there(register));
        assert_eq!(are_there(join), [false, false]);
        assert_eq!(are_there(join + 1), [true, true]);
        assert_eq!(are_there(join + 2), [false, false]);
        // If the first was not there either way, the second says nothing about it.
        code[8] = op(0x05, 0, 0, 0, 0);
        assert!(!self::blocks(&code, &[9, join, join + 1, join + 2])[&(join + 1)].is_there(7));
    }

    #[test]
    fn a_hook_knows_its_task_until_it_may_have_been_overwritten() {
        // r6 = *(u64 *)(r1 + 0); then one instruction; r7 = *(u64 *)(r1 + 0); goto next
        let (first, again) = (op(0x79, 6, 1, 0, 0), op(0x79, 7, 1, 0, 0));
        let knows = |between: Instruction, called: bool| {
            let code = [first, between, again, op(0x05, 0, 0, 0, 0), op(0x95, 0, 0, 0, 0)];
            let context = ROOM + 192..ROOM + 256;
            let given = Given { hooks: [(0, true)].into(), context, task_bytes: 96, ..given() };
            let leaders = [0, 4].into();
            let source = Source { code: &code, leaders: &leaders, given: &given, seldom: &[] };
            let facts = if called { Facts::none(0) } else { Facts::of_hook(0, &given) };
            let end = &known(&source, 0, facts)[&4];
            [6, 7].map(|register| {
                let task = end.get(register);
                let inside = [0, 88, 89].map(|at| end.is_inside(&source, task.plus(at), 8));
                assert_eq!(inside, [inside[0], inside[0], false]);
                assert_eq!(end.has(task, true), inside[0]);
                inside[0]
            })
        };
        assert_eq!(knows(op(0xb7, 2, 0, 0, 0), false), [true, true]);
        assert_eq!(knows(op(0x7b, 10, 2, -8, 0), false), [true, true], "to the stack");
        assert_eq!(knows(op(0x7b, 9, 2, 0, 0), false), [true, false], "anywhere");
        assert_eq!(knows(op(0x7b, 1, 2, 0, 0), false), [true, false], "over it");
        assert_eq!(knows(op(0xb7, 2, 0, 0, 0), true), [false, false], "the program calls it");
    }

    #[test]
    fn the_stack_keeps_a_pointer_until_somebody_may_write_there() {
        // *(u64 *)(r10 - 16) = r0; ...; r6 = *(u64 *)(r10 - 16); goto next
        let kept = |between: Instruction| {
            let spill = [op(0x7b, 10, 0, -16, 0), between, op(0x79, 6, 10, -16, 0)];
            let code = looks_up(&[&spill[..], &[op(0x05, 0, 0, 0, 0)]].concat());
            let blocks = blocks(&code, &[7, 11]);
            let mut facts = blocks[&7].clone();
            let leaders = BTreeSet::new();
            let source = Source { code: &code, leaders: &leaders, given: &given(), seldom: &[] };
            (7..10).for_each(|at| facts.step(&source, at));
            facts.get(6) == blocks[&7].get(0)
        };
        assert!(kept(op(0x7b, 10, 1, -24, 0)), "beside it");
        assert!(kept(op(0x72, 0, 0, 127, 1)), "into the value");
        assert!(!kept(op(0x72, 10, 0, -9, 1)), "into it");
        assert!(!kept(op(0x72, 0, 0, 128, 1)), "behind the value");
        assert!(!kept(op(0x72, 9, 0, 0, 1)), "anywhere");
        assert!(!kept(op(0xdb, 9, 1, 0, 0)), "anywhere, atomically");
        assert!(!kept(op(CALL, 0, 1, 0, 0)), "a function");
    }
}
