//! Creates Cranelift's intermediate code for the functions of a program.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use cranelift_codegen::Context;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, AliasRegion, Block, BlockArg, FuncRef, InstBuilder, MemFlags, SigRef, Signature,
    Type, Value,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Module};
use roost_engine::World;

use super::facts::{Facts, Known};
use super::{Array, Calls, Frame, Given, Reason, Storage, what};
use crate::arena::TO_USER;
use crate::costs;
use crate::helpers::{CLOCKS, MAP_LOOKUP, TASK_STORAGE_GET, THIS_CPU};
use crate::instruction::{CALL, Instruction, LOAD_64, class};
use crate::interpret::operation::*;
use crate::interpret::{Callee, MOST_INSTRUCTIONS, STACK_BYTES, access_bytes};
use crate::lines::{LINE_BYTES, Owners};
use crate::maps::BEFORE_VALUE;

/// Creates the intermediate code of the function that begins at `at`, in `context`. `ids` are all functions.
pub(super) fn emit(
    module: &mut JITModule,
    context: &mut Context,
    scratch: &mut FunctionBuilderContext,
    (source, starts): (Source<'_>, BTreeMap<usize, Facts>),
    at: usize,
    ids: &BTreeMap<usize, FuncId>,
) {
    context.func.signature = signature(module, 6, true);
    Emitter::new(module, context, scratch, (source, starts), at, ids).emit(at);
}

/// The signature of a function that takes the frame and some numbers.
pub(super) fn signature(module: &JITModule, numbers: usize, returns: bool) -> Signature {
    let mut signature = module.make_signature();
    signature.params.push(AbiParam::new(module.target_config().pointer_type()));
    signature.params.extend(std::iter::repeat_n(AbiParam::new(I64), numbers));
    signature.returns.extend(returns.then(|| AbiParam::new(I64)));
    signature
}

/// An access to the frame. The frame, the program's memory and what the program cannot write lie apart from each other.
fn of_frame() -> MemFlags {
    MemFlags::trusted().with_alias_region(Some(AliasRegion::Vmctx))
}

/// A read of what the program cannot write: lines, tasks, addresses of their values, and functions to call back.
fn outside() -> MemFlags {
    MemFlags::trusted().with_alias_region(Some(AliasRegion::Table))
}

/// The number that LOAD_64 loads.
pub(super) fn wide(code: &[Instruction], at: usize) -> u64 {
    let half = |at: usize| u64::from(code.get(at).map_or(0, |half| half.imm) as u32);
    half(at) | half(at + 1) << 32
}

/// Where execution continues after an instruction.
pub(super) enum Flow {
    Next(usize),
    Jump(Option<usize>),
    Branch(Option<usize>),
    Leaves,
}

pub(super) fn flow(instruction: Instruction, at: usize) -> Flow {
    let to = |distance: i64| usize::try_from(at as i64 + 1 + distance).ok();
    if instruction.code == LOAD_64 {
        return Flow::Next(at + 2);
    }
    let wide = instruction.class() == JMP;
    if !wide && instruction.class() != JMP_32 {
        return Flow::Next(at + 1);
    }
    match (instruction.code & OPERATION, wide) {
        (ALWAYS, true) => Flow::Jump(to(instruction.offset.into())),
        (ALWAYS, false) => Flow::Jump(to(instruction.imm.into())),
        (EXIT, true) => Flow::Leaves,
        (CALL_OPERATION, true) => Flow::Next(at + 1),
        _ => Flow::Branch(to(instruction.offset.into())),
    }
}

/// The function of the program that an instruction calls, if any.
pub(super) fn callee(instruction: Instruction, at: usize) -> Option<usize> {
    let target = at as i64 + 1 + i64::from(instruction.imm);
    usize::try_from(target).ok().filter(|_| instruction.calls_function())
}

/// The register that an instruction may write, if any.
fn written(instruction: Instruction) -> Option<u8> {
    match instruction.class() {
        class::LD | class::LDX | class::ALU | class::ALU64 => Some(instruction.dst),
        class::STX if instruction.code & MODE == ATOMIC && instruction.imm == LOAD_ACQUIRE => {
            Some(instruction.dst)
        }
        class::STX if instruction.code & MODE == ATOMIC && instruction.imm & FETCH != 0 => {
            Some(instruction.src)
        }
        _ => None,
    }
}

/// The functions, and the starts of their blocks. `None` if a function writes the frame pointer.
pub(super) fn reached(
    code: &[Instruction],
    starts: &[usize],
) -> Option<BTreeMap<usize, BTreeSet<usize>>> {
    let mut functions = BTreeMap::new();
    let mut entries = starts.to_vec();
    while let Some(entry) = entries.pop() {
        if functions.contains_key(&entry) {
            continue;
        }
        let mut leaders = BTreeSet::from([entry]);
        let (mut seen, mut begins) = (BTreeSet::new(), vec![entry]);
        while let Some(mut at) = begins.pop() {
            while let Some(&instruction) = code.get(at) {
                if !seen.insert(at) {
                    // Also if the second half of a LOAD_64 was jumped to: no instruction is in two blocks.
                    leaders.insert(at);
                    break;
                }
                if written(instruction) == Some(10) {
                    return None;
                }
                let target = callee(instruction, at);
                entries.extend(target.filter(|&target| target < code.len()));
                let (next, target) = match flow(instruction, at) {
                    Flow::Next(next) => {
                        at = next;
                        continue;
                    }
                    Flow::Jump(target) => (None, target),
                    Flow::Branch(target) => (Some(at + 1), target),
                    Flow::Leaves => (None, None),
                };
                begins.extend(next.into_iter().chain(target));
                leaders.extend(next.into_iter().chain(target));
                break;
            }
        }
        functions.insert(entry, leaders);
    }
    Some(functions)
}

/// What a function is translated from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub code: &'a [Instruction],
    /// The starts of the function's blocks.
    pub leaders: &'a BTreeSet<usize>,
    pub given: &'a Given,
    /// For each instruction, whether it is seldom executed. Code for these lies apart.
    pub seldom: &'a [bool],
}

/// Signatures of the callbacks.
#[derive(Clone, Copy)]
struct Backs {
    call: SigRef,
    read: SigRef,
    write: SigRef,
    touch: SigRef,
    exchange: SigRef,
    stop: SigRef,
}

/// What a function of the kernel gets of a task, or sets.
#[derive(Clone, Copy)]
enum OfTask {
    /// The address of its value in a storage.
    Value(Storage),
    /// Its CPU. The function costs so many instructions.
    Cpu(u64),
    /// A member of its struct at this offset is set. The function costs so many instructions.
    Member(u64, u64),
}

struct Emitter<'a> {
    builder: FunctionBuilder<'a>,
    source: Source<'a>,
    /// What is known at the current instruction.
    facts: Facts,
    /// The blocks that can be reached, by first instruction, and what is known where they begin.
    blocks: BTreeMap<usize, Block>,
    starts: BTreeMap<usize, Facts>,
    registers: [Variable; 11],
    /// Number of instructions that were executed, by callers too.
    count: Variable,
    frame: Value,
    /// The block that returns register 0.
    exit: Block,
    /// Where a program goes that cannot continue. Code that is hardly ever executed is in cold blocks: these lie apart
    /// from the rest, which then takes fewer cache lines. Cranelift puts what a jump moves between registers there too,
    /// but only if the target of the jump is cold. So [`Emitter::exit`] would not do.
    given_up: Block,
    functions: BTreeMap<usize, FuncRef>,
    backs: Backs,
}

/// What a program does with a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// It reads, and writes soon after.
    Both,
}

/// The operation cannot be translated. It ends the program when it is executed.
struct Unknown;

type Emitted<T> = Result<T, Unknown>;

impl<'a> Emitter<'a> {
    fn new(
        module: &mut JITModule,
        context: &'a mut Context,
        scratch: &'a mut FunctionBuilderContext,
        (source, starts): (Source<'a>, BTreeMap<usize, Facts>),
        entry: usize,
        ids: &BTreeMap<usize, FuncId>,
    ) -> Self {
        let functions =
            ids.iter().map(|(at, id)| (*at, module.declare_func_in_func(*id, &mut context.func)));
        let functions = functions.collect();
        let mut builder = FunctionBuilder::new(&mut context.func, scratch);
        let mut back =
            |numbers, returns| builder.import_signature(signature(module, numbers, returns));
        let backs = Backs {
            call: back(6, true),
            read: back(3, true),
            write: back(4, false),
            touch: back(1, false),
            exchange: back(6, true),
            stop: back(2, false),
        };
        let mut block = |&at: &usize| {
            let block = builder.create_block();
            if at != entry && source.seldom.get(at).is_some_and(|&seldom| seldom) {
                builder.set_cold_block(block);
            }
            (at, block)
        };
        let blocks = starts.keys().map(&mut block).collect();
        let registers = [(); 11].map(|()| builder.declare_var(I64));
        let count = builder.declare_var(I64);
        let [exit, given_up] = [(); 2].map(|()| builder.create_block());
        builder.set_cold_block(given_up);
        Self {
            builder,
            source,
            facts: starts[&entry].clone(),
            blocks,
            starts,
            registers,
            count,
            frame: Value::from_u32(0),
            exit,
            given_up,
            functions,
            backs,
        }
    }

    fn emit(mut self, entry: usize) {
        let first = self.builder.create_block();
        self.builder.append_block_params_for_function_params(first);
        self.builder.switch_to_block(first);
        let parameters = self.builder.block_params(first).to_vec();
        self.frame = parameters[0];
        let zero = self.number(0);
        for register in self.registers {
            self.builder.def_var(register, zero);
        }
        for (register, value) in [1, 2, 3, 4, 5, 10].into_iter().zip(&parameters[1..]) {
            self.builder.def_var(self.registers[register], *value);
        }
        let count = self.member(offset_of!(Frame, instructions));
        self.builder.def_var(self.count, count);
        let block = self.blocks[&entry];
        self.builder.ins().jump(block, &[]);
        for (at, block) in self.blocks.clone() {
            self.builder.switch_to_block(block);
            self.facts = self.starts[&at].clone();
            self.block(at);
        }
        self.leave();
        self.builder.seal_all_blocks();
        self.builder.finalize();
    }

    fn leave(&mut self) {
        self.builder.switch_to_block(self.given_up);
        self.builder.ins().jump(self.exit, &[]);
        self.builder.switch_to_block(self.exit);
        self.store_count();
        let value = self.builder.use_var(self.registers[0]);
        self.builder.ins().return_(&[value]);
    }

    /// Tells other functions how many instructions were executed.
    fn store_count(&mut self) {
        let count = self.builder.use_var(self.count);
        let place = offset_of!(Frame, instructions) as i32;
        self.builder.ins().store(of_frame(), count, self.frame, place);
    }

    /// Emits the instructions of a block, up to a jump or to the start of another block.
    fn block(&mut self, start: usize) {
        let (mut at, mut length) = (start, 0);
        while let Some(&instruction) = self.source.code.get(at) {
            length += 1;
            match flow(instruction, at) {
                Flow::Next(next) if !self.blocks.contains_key(&next) => at = next,
                _ => break,
            }
        }
        let count = self.builder.use_var(self.count);
        let count = self.builder.ins().iadd_imm(count, length);
        self.builder.def_var(self.count, count);
        let mut at = start;
        loop {
            let Some(&instruction) = self.source.code.get(at) else {
                return self.stop(at, Reason::Left);
            };
            if instruction.dst > 10 || instruction.src > 10 {
                return self.stop(at, Reason::Unknown);
            }
            match flow(instruction, at) {
                Flow::Next(next) => {
                    if self.straight(at, instruction).is_err() {
                        return self.stop(at, Reason::Unknown);
                    }
                    if let Some(&block) = self.blocks.get(&next) {
                        self.builder.ins().jump(block, &[]);
                        return;
                    }
                    at = next;
                }
                Flow::Jump(target) => return self.go(at, target),
                Flow::Branch(target) => return self.branch(at, instruction, target),
                Flow::Leaves => {
                    self.builder.ins().jump(self.exit, &[]);
                    return;
                }
            }
        }
    }

    /// Emits an instruction that is followed by the next one.
    fn straight(&mut self, at: usize, instruction: Instruction) -> Emitted<()> {
        let known = self.facts.result(&self.source, at).and_then(Known::as_number);
        match (instruction.class(), known) {
            (class::ALU | class::ALU64 | class::LD | class::LDX, Some(number)) => {
                let value = self.number(number);
                self.set(instruction.dst, value);
            }
            _ => self.operate(at, instruction)?,
        }
        self.facts.step(&self.source, at);
        Ok(())
    }

    /// Emits an instruction whose result is not known.
    fn operate(&mut self, at: usize, instruction: Instruction) -> Emitted<()> {
        match instruction.class() {
            class::ALU64 => {
                let value = self.arithmetic(instruction, I64)?;
                self.set(instruction.dst, value);
            }
            class::ALU => {
                let value = self.arithmetic(instruction, I32)?;
                self.set(instruction.dst, value);
            }
            class::LDX => self.load(at, instruction)?,
            class::ST if instruction.code & MODE == MEM => {
                let value = self.number(instruction.imm as i64 as u64);
                self.store(at, instruction, value);
            }
            class::STX if instruction.code & MODE == MEM => {
                let value = self.get(instruction.src);
                self.store(at, instruction, value);
            }
            class::STX if instruction.code & MODE == ATOMIC => self.atomic(at, instruction)?,
            _ if instruction.class() == JMP => self.call(at, instruction)?,
            _ => return Err(Unknown),
        }
        Ok(())
    }

    /// A block, which is cold if this one is.
    fn new_block(&mut self) -> Block {
        let block = self.builder.create_block();
        let here = self.builder.current_block();
        if here.is_some_and(|here| self.builder.func.layout.is_cold(here)) {
            self.builder.set_cold_block(block);
        }
        block
    }

    fn number(&mut self, value: u64) -> Value {
        self.builder.ins().iconst(I64, value as i64)
    }

    fn get(&mut self, register: u8) -> Value {
        self.builder.use_var(self.registers[register as usize])
    }

    fn set(&mut self, register: u8, value: Value) {
        self.builder.def_var(self.registers[register as usize], value);
    }

    /// Loads a member of the frame, of 8 bytes.
    fn member(&mut self, offset: usize) -> Value {
        self.member_of(I64, offset)
    }

    /// Loads a member of the frame, or its lowest bytes.
    fn member_of(&mut self, of: Type, offset: usize) -> Value {
        self.builder.ins().load(of, of_frame(), self.frame, offset as i32)
    }

    /// Stops the program. Nothing follows in the block.
    fn stop(&mut self, at: usize, reason: Reason) {
        let (at, reason) = (self.number(at as u64), self.number(reason as u64));
        self.back(offset_of!(Calls, stop), self.backs.stop, &[at, reason]);
        self.builder.ins().jump(self.exit, &[]);
    }

    /// Calls a function of [`super::Calls`].
    fn back(&mut self, function: usize, signature: SigRef, numbers: &[Value]) -> Option<Value> {
        let calls = self.member(offset_of!(Frame, calls));
        let function = self.builder.ins().load(I64, outside(), calls, function as i32);
        let arguments: Vec<Value> =
            [self.frame].into_iter().chain(numbers.iter().copied()).collect();
        let call = self.builder.ins().call_indirect(signature, function, &arguments);
        self.builder.inst_results(call).first().copied()
    }

    /// Returns if the program cannot continue. Following code is in a new block.
    fn check(&mut self) {
        let stopped = self.member(offset_of!(Frame, stopped));
        let goes_on = self.new_block();
        self.builder.ins().brif(stopped, self.given_up, &[], goes_on, &[]);
        self.builder.switch_to_block(goes_on);
    }

    /// Emits a jump. At a backward jump, a loop that does not end is stopped.
    fn go(&mut self, at: usize, target: Option<usize>) {
        let Some((target, &block)) = target.and_then(|to| Some((to, self.blocks.get(&to)?))) else {
            return self.stop(at, Reason::Left);
        };
        if target > at {
            self.builder.ins().jump(block, &[]);
            return;
        }
        self.stop_if_endless(at, block);
    }

    /// Continues with `block`, unless too many instructions were executed.
    fn stop_if_endless(&mut self, at: usize, block: Block) {
        let endless = self.new_block();
        self.builder.set_cold_block(endless);
        let count = self.builder.use_var(self.count);
        let most = MOST_INSTRUCTIONS as i64;
        let too_many = self.builder.ins().icmp_imm(IntCC::UnsignedGreaterThan, count, most);
        self.builder.ins().brif(too_many, endless, &[], block, &[]);
        self.builder.switch_to_block(endless);
        self.stop(at, Reason::Endless);
    }

    fn branch(&mut self, at: usize, instruction: Instruction, target: Option<usize>) {
        if let Some(taken) = self.facts.taken(instruction) {
            return self.go(at, if taken { target } else { Some(at + 1) });
        }
        let taken = if instruction.code & OPERATION == MAY_GOTO && instruction.class() == JMP {
            self.may_goto()
        } else {
            match self.condition(instruction) {
                Ok(taken) => taken,
                Err(Unknown) => return self.stop(at, Reason::Unknown),
            }
        };
        let jump = self.new_block();
        let next = self.blocks[&(at + 1)];
        self.builder.ins().brif(taken, jump, &[], next, &[]);
        self.builder.switch_to_block(jump);
        self.go(at, target);
    }

    /// Whether the limit of loops is used up. If not, reduces it by one.
    fn may_goto(&mut self) -> Value {
        let left = self.member(offset_of!(Frame, loops_left));
        let ends = self.builder.ins().icmp_imm(IntCC::Equal, left, 0);
        let fewer = self.builder.ins().iadd_imm(left, -1);
        let left = self.builder.ins().select(ends, left, fewer);
        let place = offset_of!(Frame, loops_left) as i32;
        self.builder.ins().store(of_frame(), left, self.frame, place);
        ends
    }

    fn condition(&mut self, instruction: Instruction) -> Emitted<Value> {
        let of = if instruction.class() == JMP { I64 } else { I32 };
        let (a, b) = self.operands(instruction, of);
        let compare = match instruction.code & OPERATION {
            0x10 => IntCC::Equal,
            0x20 => IntCC::UnsignedGreaterThan,
            0x30 => IntCC::UnsignedGreaterThanOrEqual,
            0x40 => {
                let both = self.builder.ins().band(a, b);
                return Ok(self.builder.ins().icmp_imm(IntCC::NotEqual, both, 0));
            }
            0x50 => IntCC::NotEqual,
            0x60 => IntCC::SignedGreaterThan,
            0x70 => IntCC::SignedGreaterThanOrEqual,
            0xa0 => IntCC::UnsignedLessThan,
            0xb0 => IntCC::UnsignedLessThanOrEqual,
            0xc0 => IntCC::SignedLessThan,
            0xd0 => IntCC::SignedLessThanOrEqual,
            _ => return Err(Unknown),
        };
        Ok(self.builder.ins().icmp(compare, a, b))
    }

    /// Both operands, as 32 or 64 bits. The second is a register, or the sign-extended immediate.
    fn operands(&mut self, instruction: Instruction, of: Type) -> (Value, Value) {
        let a = self.get(instruction.dst);
        let b = match instruction.code & REGISTER {
            0 => self.number(i64::from(instruction.imm) as u64),
            _ => self.get(instruction.src),
        };
        (self.narrowed(a, of), self.narrowed(b, of))
    }

    fn narrowed(&mut self, value: Value, to: Type) -> Value {
        if to == I64 { value } else { self.builder.ins().ireduce(to, value) }
    }

    fn widened(&mut self, value: Value, from: Type) -> Value {
        if from == I64 { value } else { self.builder.ins().uextend(I64, value) }
    }

    /// The lowest bits of `value`, as many as `from` has, sign-extended to `of`.
    fn sign_extended(&mut self, value: Value, from: Type, of: Type) -> Value {
        let low = self.builder.ins().ireduce(from, value);
        self.builder.ins().sextend(of, low)
    }

    /// The result of an arithmetic operation, as 64 bits.
    fn arithmetic(&mut self, instruction: Instruction, of: Type) -> Emitted<Value> {
        let operation = instruction.code & OPERATION;
        if operation == END {
            return self.byte_order(instruction, of);
        }
        let (a, b) = self.operands(instruction, of);
        let shift = (operation, instruction.offset);
        let ins = self.builder.ins();
        let value = match shift {
            (ADD, 0) => ins.iadd(a, b),
            (SUB, 0) => ins.isub(a, b),
            (MUL, 0) => ins.imul(a, b),
            (OR, 0) => ins.bor(a, b),
            (AND, 0) => ins.band(a, b),
            (XOR, 0) => ins.bxor(a, b),
            (LSH, 0) => ins.ishl(a, b),
            (RSH, 0) => ins.ushr(a, b),
            (ARSH, 0) => ins.sshr(a, b),
            (NEG, 0) => ins.ineg(a),
            (MOV, 0) => b,
            (MOV, CAST) if of == I64 => self.cast(b, instruction.imm),
            (MOV, 8) => self.sign_extended(b, I8, of),
            (MOV, 16) => self.sign_extended(b, I16, of),
            (MOV, 32) if of == I64 => self.sign_extended(b, I32, of),
            (DIV | MOD, 0 | 1) => self.divided(operation, instruction.offset == 1, a, b, of),
            _ => return Err(Unknown),
        };
        Ok(self.widened(value, of))
    }

    /// An address of the arena in the other form ([`crate::arena::cast`]).
    fn cast(&mut self, value: Value, imm: i32) -> Value {
        let low = self.builder.ins().ireduce(I32, value);
        let low = self.builder.ins().uextend(I64, low);
        let null = if imm & TO_USER != 0 { low } else { value };
        let is_null = self.builder.ins().icmp_imm(IntCC::Equal, null, 0);
        let whole = self.builder.ins().bor_imm(low, i64::from(imm as u16) << 32);
        let zero = self.number(0);
        self.builder.ins().select(is_null, zero, whole)
    }

    /// A quotient or a remainder. Division by 0 gives the quotient 0, or leaves the dividend as remainder.
    fn divided(&mut self, operation: u8, signed: bool, a: Value, b: Value, of: Type) -> Value {
        let zero = self.builder.ins().iconst(of, 0);
        let one = self.builder.ins().iconst(of, 1);
        let by_zero = self.builder.ins().icmp(IntCC::Equal, b, zero);
        let mut by = self.builder.ins().select(by_zero, one, b);
        // The smallest number divided by -1 overflows. Dividing by -1 is a negation, and its remainder is 0.
        let minus = self.builder.ins().icmp_imm(IntCC::Equal, b, -1);
        if signed {
            by = self.builder.ins().select(minus, one, by);
        }
        let ins = self.builder.ins();
        let value = match (operation, signed) {
            (DIV, false) => ins.udiv(a, by),
            (DIV, true) => ins.sdiv(a, by),
            (_, false) => ins.urem(a, by),
            (_, true) => ins.srem(a, by),
        };
        let negative = self.builder.ins().ineg(a);
        let value = match operation {
            DIV if signed => self.builder.ins().select(minus, negative, value),
            _ => value,
        };
        let without = if operation == DIV { zero } else { a };
        self.builder.ins().select(by_zero, without, value)
    }

    /// The lowest bits, with their bytes reversed or unchanged.
    fn byte_order(&mut self, instruction: Instruction, of: Type) -> Emitted<Value> {
        let register = instruction.code & REGISTER != 0;
        let swaps = if of == I64 { !register } else { register };
        let bits = match instruction.imm {
            16 => I16,
            32 => I32,
            64 => I64,
            _ => return Err(Unknown),
        };
        if instruction.offset != 0 || (of == I64 && register) {
            return Err(Unknown);
        }
        let value = self.get(instruction.dst);
        let low = self.narrowed(value, bits);
        let low = if swaps { self.builder.ins().bswap(low) } else { low };
        Ok(self.widened(low, bits))
    }

    fn load(&mut self, at: usize, instruction: Instruction) -> Emitted<()> {
        let bytes = access_bytes(instruction.code);
        let signed = instruction.code & MODE == MEMSX;
        if !(signed && bytes < 8 || instruction.code & MODE == MEM) {
            return Err(Unknown);
        }
        let value = self.access(at, instruction.src, instruction.offset, bytes, None);
        let value = match bytes {
            1 if signed => self.sign_extended(value, I8, I64),
            2 if signed => self.sign_extended(value, I16, I64),
            4 if signed => self.sign_extended(value, I32, I64),
            _ => value,
        };
        self.set(instruction.dst, value);
        Ok(())
    }

    fn store(&mut self, at: usize, instruction: Instruction, value: Value) {
        let bytes = access_bytes(instruction.code);
        self.access(at, instruction.dst, instruction.offset, bytes, Some(value));
    }

    fn atomic(&mut self, at: usize, instruction: Instruction) -> Emitted<()> {
        let bytes = access_bytes(instruction.code);
        let Instruction { dst, src, offset, imm, .. } = instruction;
        if imm == LOAD_ACQUIRE {
            let value = self.access(at, src, offset, bytes, None);
            self.set(dst, value);
            return Ok(());
        }
        let operand = self.get(src);
        if imm == STORE_RELEASE {
            self.access(at, dst, offset, bytes, Some(operand));
            return Ok(());
        }
        if bytes < 4 || !is_exchange(imm) {
            return Err(Unknown);
        }
        let address = self.get(dst);
        let known = self.facts.get(dst).plus(offset.into());
        let old = match known.is_own_stack(bytes) {
            true => self.exchange_at(address, instruction, bytes),
            false => self.exchange(at, instruction, bytes)?,
        };
        match imm {
            COMPARE_AND_EXCHANGE => self.set(0, old),
            _ if imm & FETCH != 0 => self.set(src, old),
            _ => {}
        }
        Ok(())
    }

    /// Does an atomic operation. Returns the previous value.
    fn exchange(&mut self, at: usize, instruction: Instruction, bytes: u32) -> Emitted<Value> {
        let Instruction { dst, src, offset, imm, .. } = instruction;
        let known = self.facts.get(dst).plus(offset.into());
        let [address, operand, register_0] = [dst, src, 0].map(|register| self.get(register));
        let [inside, outside, done] = [(); 3].map(|()| self.new_block());
        let result = self.builder.append_block_param(done, I64);
        self.branch_inside(address, offset, inside, outside);

        self.builder.switch_to_block(inside);
        if !self.facts.has(known, true) {
            self.fetch(address, offset, Access::Write);
        }
        let old = self.exchange_at(address, instruction, bytes);
        self.builder.ins().jump(done, &[BlockArg::Value(old)]);

        self.builder.set_cold_block(outside);
        self.builder.switch_to_block(outside);
        let address = self.builder.ins().iadd_imm(address, i64::from(offset));
        let numbers =
            [at as u64, imm as u32 as u64, bytes.into()].map(|number| self.number(number));
        let arguments = [&numbers[..], &[address, operand, register_0]].concat();
        let old = self.back(offset_of!(Calls, exchange), self.backs.exchange, &arguments);
        self.check();
        self.builder.ins().jump(done, &[BlockArg::Value(old.ok_or(Unknown)?)]);
        self.builder.switch_to_block(done);
        Ok(result)
    }

    /// Does an atomic operation in the region, as [`crate::interpret::exchange`]: nobody runs at the same time.
    fn exchange_at(&mut self, address: Value, instruction: Instruction, bytes: u32) -> Value {
        let Instruction { src, offset, imm, .. } = instruction;
        let old = self.access_at(address, offset, bytes, None);
        let (operand, expected) = (self.get(src), self.get(0));
        let new = match imm & !FETCH {
            0x00 => self.builder.ins().iadd(old, operand),
            0x40 => self.builder.ins().bor(old, operand),
            0x50 => self.builder.ins().band(old, operand),
            0xa0 => self.builder.ins().bxor(old, operand),
            0xf0 => {
                let of = if bytes == 4 { I32 } else { I64 };
                let expected = self.narrowed(expected, of);
                let expected = self.widened(expected, of);
                let same = self.builder.ins().icmp(IntCC::Equal, old, expected);
                self.builder.ins().select(same, operand, old)
            }
            _ => operand,
        };
        self.access_at(address, offset, bytes, Some(new));
        old
    }

    /// Jumps to `inside` if an address is in the region, otherwise to `outside`.
    fn branch_inside(&mut self, address: Value, offset: i16, inside: Block, outside: Block) {
        let limit = self.member(offset_of!(Frame, limit));
        let place = self.place(address, offset);
        let is_inside = self.builder.ins().icmp(IntCC::UnsignedLessThan, place, limit);
        self.builder.ins().brif(is_inside, inside, &[], outside, &[]);
    }

    /// Reads or writes bytes at a register plus an offset. Returns what was read; the value has no meaning after a
    /// write.
    fn access(
        &mut self,
        at: usize,
        register: u8,
        offset: i16,
        bytes: u32,
        write: Option<Value>,
    ) -> Value {
        let known = self.facts.get(register).plus(offset.into());
        let address = self.get(register);
        // The function's own stack is in the region, and no other CPU uses it.
        if known.is_own_stack(bytes) {
            return self.access_at(address, offset, bytes, write);
        }
        let has = self.facts.has(known, write.is_some());
        let kind = if write.is_some() { Access::Write } else { Access::Read };
        if self.facts.is_inside(&self.source, known, bytes) {
            if !has && kind == Access::Read && self.facts.writes_soon(&self.source, at) {
                // One look at the line's state instead of two.
                self.fetch(address, offset, Access::Both);
                self.facts.have(known, true);
            } else if !has {
                self.fetch(address, offset, kind);
            }
            return self.access_at(address, offset, bytes, write);
        }
        let [inside, outside, done] = [(); 3].map(|()| self.new_block());
        let result = self.builder.append_block_param(done, I64);
        self.branch_inside(address, offset, inside, outside);

        self.builder.switch_to_block(inside);
        if !has {
            self.fetch(address, offset, kind);
        }
        let value = self.access_at(address, offset, bytes, write);
        self.builder.ins().jump(done, &[BlockArg::Value(value)]);

        self.builder.set_cold_block(outside);
        self.builder.switch_to_block(outside);
        let address = self.builder.ins().iadd_imm(address, i64::from(offset));
        let numbers = [self.number(at as u64), address, self.number(bytes.into())];
        let value = match write {
            None => self.back(offset_of!(Calls, read), self.backs.read, &numbers),
            Some(value) => {
                let numbers = [&numbers[..], &[value]].concat();
                self.back(offset_of!(Calls, write), self.backs.write, &numbers)
            }
        };
        self.check();
        let value = value.unwrap_or(address);
        self.builder.ins().jump(done, &[BlockArg::Value(value)]);

        self.builder.switch_to_block(done);
        result
    }

    /// The offset in the region of an address.
    fn place(&mut self, address: Value, offset: i16) -> Value {
        let address = self.builder.ins().iadd_imm(address, i64::from(offset));
        let base = self.member(offset_of!(Frame, base));
        self.builder.ins().isub(address, base)
    }

    /// Fetches the line of an address if this CPU does not have it in the state that the access needs.
    fn fetch(&mut self, address: Value, offset: i16, access: Access) {
        let address = self.builder.ins().iadd_imm(address, i64::from(offset));
        let number = self.builder.ins().ushr_imm(address, i64::from(LINE_BYTES.ilog2()));
        let [rare, slow, then] = [(); 3].map(|()| self.new_block());
        self.builder.set_cold_block(rare);
        let rarely = if access != Access::Read {
            let owners = self.owners(number);
            let alone = self.member_of(I32, offset_of!(Frame, alone));
            let mine = self.builder.ins().icmp(IntCC::Equal, owners, alone);
            self.builder.ins().brif(mine, then, &[], rare, &[]);
            self.builder.switch_to_block(rare);
            let exempt = Owners::EXEMPT.bits();
            self.builder.ins().icmp_imm(IntCC::Equal, owners, i64::from(exempt))
        } else {
            // All CPUs have copies of lines that are not counted.
            let copies = self.member(offset_of!(Frame, copies));
            let copies = self.element(copies, number, I64);
            let bit = self.member(offset_of!(Frame, bit));
            let there = self.builder.ins().band(copies, bit);
            self.builder.ins().brif(there, then, &[], rare, &[]);
            self.builder.switch_to_block(rare);
            let owners = self.owners(number);
            let writer = self.builder.ins().ireduce(I16, owners);
            let me = self.member_of(I16, offset_of!(Frame, alone));
            self.builder.ins().icmp(IntCC::Equal, writer, me)
        };
        self.builder.set_cold_block(slow);
        self.builder.ins().brif(rarely, then, &[], slow, &[]);
        self.builder.switch_to_block(slow);
        if access != Access::Write {
            self.back(offset_of!(Calls, touch_read), self.backs.touch, &[address]);
        }
        if access != Access::Read {
            self.back(offset_of!(Calls, touch_write), self.backs.touch, &[address]);
        }
        self.builder.ins().jump(then, &[]);
        self.builder.switch_to_block(then);
    }

    /// [`Owners`] of a line.
    fn owners(&mut self, line: Value) -> Value {
        let owners = self.member(offset_of!(Frame, owners));
        self.element(owners, line, I32)
    }

    /// Reads or writes bytes at an address in the region.
    fn access_at(
        &mut self,
        address: Value,
        offset: i16,
        bytes: u32,
        write: Option<Value>,
    ) -> Value {
        let of = match bytes {
            1 => I8,
            2 => I16,
            4 => I32,
            _ => I64,
        };
        let memory = self.member(offset_of!(Frame, memory));
        let at = self.builder.ins().iadd(memory, address);
        let offset = i32::from(offset);
        // Programs may access unaligned addresses.
        let flags = MemFlags::new().with_notrap().with_alias_region(Some(AliasRegion::Heap));
        match write {
            Some(value) => {
                let low = self.narrowed(value, of);
                self.builder.ins().store(flags, low, at, offset);
                value
            }
            None => {
                let value = self.builder.ins().load(of, flags, at, offset);
                self.widened(value, of)
            }
        }
    }

    fn call(&mut self, at: usize, instruction: Instruction) -> Emitted<()> {
        let arguments = [1, 2, 3, 4, 5].map(|register| self.get(register));
        let value = match (instruction.code, instruction.src) {
            (CALL, kind @ (0 | 2)) => {
                let callee = if kind == 2 {
                    Callee::Kfunc(instruction.imm as u32)
                } else {
                    Callee::Helper(instruction.imm as u32)
                };
                match (self.inlined(callee), self.clock(callee), self.of_task(callee)) {
                    (Some(value), ..) => Some(value),
                    (_, Some(cost), _) => self.now(at, callee, &arguments, cost),
                    (.., Some(what)) => self.for_task(at, callee, &arguments, what),
                    _ => self.call_back(at, callee, &arguments),
                }
            }
            (CALL, 1) => {
                let value = self.call_function(at, instruction, &arguments);
                self.check();
                value
            }
            _ => return Err(Unknown),
        };
        let value = value.ok_or(Unknown)?;
        self.set(0, value);
        let zero = self.number(0);
        for register in 1..=5 {
            self.set(register, zero);
        }
        Ok(())
    }

    /// Calls a function of the kernel.
    fn call_back(&mut self, at: usize, callee: Callee, arguments: &[Value]) -> Option<Value> {
        let what = self.number(what(at, callee));
        let numbers = [&[what], arguments].concat();
        let value = self.back(offset_of!(Calls, call), self.backs.call, &numbers);
        self.check();
        value
    }

    /// The instructions that a clock costs. `None` if the function is none.
    fn clock(&self, callee: Callee) -> Option<u64> {
        match (callee, self.source.given.now?) {
            (Callee::Helper(helper), _) if CLOCKS.contains(&helper) => {
                Some(costs::of_helper(helper))
            }
            (Callee::Kfunc(kfunc), (now, cost)) if kfunc == now => Some(cost),
            _ => None,
        }
    }

    /// Reads a clock. Calls the kernel if clocks differ.
    fn now(&mut self, at: usize, callee: Callee, arguments: &[Value], cost: u64) -> Option<Value> {
        let [same, differ, done] = [(); 3].map(|()| self.new_block());
        let result = self.builder.append_block_param(done, I64);
        let knows = self.member(offset_of!(Frame, knows_now));
        self.builder.ins().brif(knows, same, &[], differ, &[]);
        self.builder.switch_to_block(same);
        self.add_to(offset_of!(Frame, executed), cost);
        if matches!(callee, Callee::Kfunc(_)) {
            self.add_to(offset_of!(Frame, kfuncs), 1);
        }
        let now = self.member(offset_of!(Frame, now));
        self.builder.ins().jump(done, &[BlockArg::Value(now)]);
        self.builder.set_cold_block(differ);
        self.builder.switch_to_block(differ);
        let value = self.call_back(at, callee, arguments)?;
        self.builder.ins().jump(done, &[BlockArg::Value(value)]);
        self.builder.switch_to_block(done);
        Some(result)
    }

    /// What a function of the kernel gets of a task, or sets. `None` if it does something else.
    fn of_task(&self, callee: Callee) -> Option<OfTask> {
        let given = self.source.given;
        match callee {
            Callee::Helper(TASK_STORAGE_GET) => {
                let map = self.facts.get(1).as_number()?;
                given.storages.get(&map).copied().map(OfTask::Value)
            }
            Callee::Helper(_) => None,
            Callee::Kfunc(kfunc) => match given.task_cpu {
                Some((known, cost)) if known == kfunc => Some(OfTask::Cpu(cost)),
                _ => given.members.get(&kfunc).map(|&(at, cost)| OfTask::Member(at, cost)),
            },
        }
    }

    /// Does what a function of the kernel does for a task. Calls the kernel if there is no such task, or it does not
    /// have the value. Numbers of tasks and addresses of values are not in memory that the program can write.
    fn for_task(
        &mut self,
        at: usize,
        callee: Callee,
        arguments: &[Value],
        what: OfTask,
    ) -> Option<Value> {
        let [known, other, done] = [(); 3].map(|()| self.new_block());
        let result = self.builder.append_block_param(done, I64);
        let task = if let OfTask::Value(_) = what { arguments[1] } else { arguments[0] };
        let number = self.task_number(task, known, other);
        self.builder.switch_to_block(known);
        let (value, cost) = match what {
            OfTask::Value(storage) => {
                let storages = self.source.given.storages.len() as i64;
                let index = self.builder.ins().imul_imm(number, storages);
                let index = self.builder.ins().iadd_imm(index, storage.number as i64);
                self.within(index, offset_of!(Frame, values_len), other);
                let values = self.member(offset_of!(Frame, values));
                let value = self.element(values, index, I64);
                let there = self.new_block();
                self.builder.ins().brif(value, there, &[], other, &[]);
                self.builder.switch_to_block(there);
                self.fetch(value, -(BEFORE_VALUE as i16), Access::Read);
                (value, costs::of_helper(TASK_STORAGE_GET))
            }
            OfTask::Cpu(cost) => {
                self.within(number, offset_of!(Frame, cpus_len), other);
                let before = self.builder.ins().imul_imm(number, World::TASK_BYTES as i64);
                let cpus = self.member(offset_of!(Frame, cpus));
                let at = self.builder.ins().iadd(cpus, before);
                (self.builder.ins().load(I64, outside(), at, 0), cost)
            }
            OfTask::Member(member, cost) => {
                // The whole struct is in the region.
                let place = self.builder.ins().iadd_imm(task, member as i64);
                self.access_at(place, 0, 8, Some(arguments[1]));
                (self.number(1), cost)
            }
        };
        self.add_to(offset_of!(Frame, executed), cost);
        if matches!(callee, Callee::Kfunc(_)) {
            self.add_to(offset_of!(Frame, kfuncs), 1);
        }
        self.builder.ins().jump(done, &[BlockArg::Value(value)]);

        self.builder.set_cold_block(other);
        self.builder.switch_to_block(other);
        let value = self.call_back(at, callee, arguments)?;
        self.builder.ins().jump(done, &[BlockArg::Value(value)]);
        self.builder.switch_to_block(done);
        Some(result)
    }

    /// Jumps to `other` if an index is not below a member of the frame. Otherwise goes on.
    fn within(&mut self, index: Value, len: usize, other: Block) {
        let len = self.member(len);
        let fits = self.builder.ins().icmp(IntCC::UnsignedLessThan, index, len);
        let inside = self.new_block();
        self.builder.ins().brif(fits, inside, &[], other, &[]);
        self.builder.switch_to_block(inside);
    }

    /// Jumps to `known` if a task's struct begins at an address, otherwise to `other`. The result is the number of the
    /// task, at `known`.
    fn task_number(&mut self, address: Value, known: Block, other: Block) -> Value {
        // The lowest bits become the highest ones, so the number is too large if no line begins at the address.
        let place = self.place(address, 0);
        let line = self.builder.ins().rotr_imm(place, i64::from(LINE_BYTES.ilog2()));
        self.within(line, offset_of!(Frame, task_lines), other);
        let tasks = self.member(offset_of!(Frame, tasks));
        let after = self.element(tasks, line, I32);
        let number = self.builder.ins().iadd_imm(after, -1);
        let number = self.widened(number, I32);
        self.builder.ins().brif(after, known, &[], other, &[]);
        number
    }

    /// An element of a slice outside of the program's memory.
    fn element(&mut self, first: Value, index: Value, of: Type) -> Value {
        let before = self.builder.ins().ishl_imm(index, i64::from(of.bytes().ilog2()));
        let at = self.builder.ins().iadd(first, before);
        self.builder.ins().load(of, outside(), at, 0)
    }

    /// Emits what a function of the kernel does, if that is simple. Returns its result.
    fn inlined(&mut self, callee: Callee) -> Option<Value> {
        let (value, cost) = match callee {
            Callee::Helper(helper @ MAP_LOOKUP) => {
                let map = self.facts.get(1).as_number()?;
                let value = self.look_up(*self.source.given.arrays.get(&map)?)?;
                (value, costs::of_helper(helper))
            }
            Callee::Helper(helper @ THIS_CPU) if self.source.given.this_cpu => {
                (self.member(offset_of!(Frame, cpu)), costs::of_helper(helper))
            }
            Callee::Kfunc(kfunc) => {
                let cost = *self.source.given.nothing.get(&kfunc)?;
                self.add_to(offset_of!(Frame, kfuncs), 1);
                (self.number(0), cost)
            }
            Callee::Helper(_) => return None,
        };
        self.add_to(offset_of!(Frame, executed), cost);
        Some(value)
    }

    /// Adds a number to a member of the frame.
    fn add_to(&mut self, offset: usize, number: u64) {
        let before = self.member(offset);
        let after = self.builder.ins().iadd_imm(before, number as i64);
        self.builder.ins().store(of_frame(), after, self.frame, offset as i32);
    }

    /// The address of an array's value, whose index is on the function's own stack. Otherwise `None`.
    fn look_up(&mut self, array: Array) -> Option<Value> {
        if !self.facts.get(2).is_own_stack(4) {
            return None;
        }
        if let Some(address) = self.facts.looked_up(&array) {
            return Some(self.number(address));
        }
        let address = self.get(2);
        let index = self.access_at(address, 0, 4, None);
        let mut value = self.builder.ins().imul_imm(index, array.stride as i64);
        value = self.builder.ins().iadd_imm(value, array.first as i64);
        if array.of_cpu != 0 {
            let cpu = self.member(offset_of!(Frame, cpu));
            let before = self.builder.ins().imul_imm(cpu, array.of_cpu as i64);
            value = self.builder.ins().iadd(value, before);
        }
        let entries = i64::from(array.entries);
        let is_there = self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, index, entries);
        let zero = self.number(0);
        Some(self.builder.ins().select(is_there, value, zero))
    }

    /// Calls a function of the program. The immediate is the distance from the next instruction.
    fn call_function(
        &mut self,
        at: usize,
        instruction: Instruction,
        arguments: &[Value],
    ) -> Option<Value> {
        let own = self.get(10);
        let stack = self.builder.ins().iadd_imm(own, STACK_BYTES as i64);
        let end = self.member(offset_of!(Frame, stack_end));
        let deep = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, stack, end);
        let [too_deep, fine] = [(); 2].map(|()| self.new_block());
        self.builder.set_cold_block(too_deep);
        self.builder.ins().brif(deep, too_deep, &[], fine, &[]);
        self.builder.switch_to_block(too_deep);
        self.stop(at, Reason::TooDeep);
        self.builder.switch_to_block(fine);
        let target = usize::try_from(at as i64 + 1 + i64::from(instruction.imm)).ok();
        let Some(&function) = target.and_then(|target| self.functions.get(&target)) else {
            let at = target.unwrap_or(at);
            let numbers = [self.number(at as u64), self.number(Reason::Left as u64)];
            self.back(offset_of!(Calls, stop), self.backs.stop, &numbers);
            return Some(own);
        };
        let all = [&[self.frame], arguments, &[stack]].concat();
        self.store_count();
        let call = self.builder.ins().call(function, &all);
        let count = self.member(offset_of!(Frame, instructions));
        self.builder.def_var(self.count, count);
        let goes_on = self.new_block();
        self.stop_if_endless(at, goes_on);
        self.builder.switch_to_block(goes_on);
        self.builder.inst_results(call).first().copied()
    }
}
