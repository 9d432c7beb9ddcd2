//! What a register or a slot of the stack holds, as far as the code tells.

use std::collections::BTreeMap;

use crate::btf::TypeId;
use crate::interpret::operation::{ADD, CAST, END, MOV, SUB};
use crate::interpret::{STACK_BYTES, of_32_bits, of_64_bits};

/// What the code tells about 64 bits. [`Value::join`] makes it an order: from exact values up to [`Value::Unset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A number. `None`: which one is not known.
    Number(Option<u64>),
    /// A pointer into an object of the kernel: its type and the offset in bytes. It may be NULL.
    Object { of: TypeId, offset: i32 },
    /// A map itself, by number.
    Map(usize),
    /// The arguments of a hook, by its number among the scheduler's hooks.
    Arguments(usize),
    /// A pointer to a variable: its section and the offset in bytes.
    Data { section: usize, offset: i32 },
    /// A pointer to a number of the kernel's configuration.
    Setting(u64),
    /// A pointer into the function's own stack: the offset from its end.
    Stack(i32),
    /// Anything but a pointer into the function's own stack.
    Unknown,
    /// Anything at all.
    Any,
    /// The verifier lets no program read it: not set on every way to here.
    Unset,
}

use Value::{Any, Data, Number, Object, Stack, Unknown, Unset};

/// NULL, or the number 0.
pub(super) const NULL: Value = Number(Some(0));

impl Value {
    /// What holds for both. It never is less than either, so that repeated joins end.
    pub(super) fn join(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Unset, _) | (_, Unset) => Unset,
            (Any | Stack(_), _) | (_, Any | Stack(_)) => Any,
            (object @ Object { .. }, NULL) | (NULL, object @ Object { .. }) => object,
            (Number(_), Number(_)) => Number(None),
            _ => Unknown,
        }
    }

    /// Whether it may point into the function's own stack.
    pub(super) fn may_be_on_stack(self) -> bool {
        matches!(self, Stack(_) | Any)
    }

    /// The same in another function, whose stack is another one.
    pub(super) fn given(self) -> Self {
        if self.may_be_on_stack() { Unknown } else { self }
    }

    /// The pointer moved by some bytes. `None`: it is no pointer, or moves too far.
    fn moved(self, bytes: i64) -> Option<Self> {
        let to = |offset: i32| offset.checked_add(i32::try_from(bytes).ok()?);
        Some(match self {
            Object { of, offset } => Object { of, offset: to(offset)? },
            Data { section, offset } => Data { section, offset: to(offset)? },
            Stack(offset) => Stack(to(offset)?),
            _ => return None,
        })
    }

    /// The result of an operation on 64 bits.
    pub(super) fn after_64(self, operation: u8, variant: i16, other: Self) -> Self {
        let moved = match (operation, self, other) {
            (MOV, _, value) if variant == 0 => return value,
            (MOV, _, Number(value)) if variant != CAST => {
                return Number(value.and_then(|b| of_64_bits(MOV, variant, 0, b)));
            }
            (MOV, ..) => return Unknown,
            (END, Number(_), _) => return Number(None),
            (_, Number(a), Number(b)) => {
                let both = a.zip(b);
                return Number(both.and_then(|(a, b)| of_64_bits(operation, variant, a, b)));
            }
            (ADD, pointer, Number(Some(by))) | (ADD, Number(Some(by)), pointer) => {
                pointer.moved(by as i64)
            }
            (SUB, pointer, Number(Some(by))) => pointer.moved((by as i64).wrapping_neg()),
            _ => None,
        };
        let on_stack = self.may_be_on_stack() || other.may_be_on_stack();
        moved.unwrap_or(if on_stack { Any } else { Unknown })
    }

    /// The result of an operation on 32 bits. An address of the arena may go through such operations.
    pub(super) fn after_32(self, operation: u8, variant: i16, other: Self) -> Self {
        let a = if operation == MOV { NULL } else { self };
        match (a, other) {
            (Number(_), _) if operation == END => Number(None),
            (Number(a), Number(b)) => Number(a.zip(b).and_then(|(a, b)| {
                of_32_bits(operation, variant, a as u32, b as u32).map(u64::from)
            })),
            _ => Unknown,
        }
    }
}

const MOST_STACK: i32 = STACK_BYTES as i32;

/// Registers and stack of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) registers: [Value; 11],
    /// What slots of 8 bytes hold, by their offset. Others hold [`Value::Any`].
    slots: BTreeMap<i32, Value>,
}

impl State {
    /// The beginning of a function.
    pub(super) fn entry(arguments: [Value; 5]) -> Self {
        let mut registers = [Unset; 11];
        registers[1..6].copy_from_slice(&arguments);
        registers[10] = Stack(0);
        Self { registers, slots: BTreeMap::new() }
    }

    /// Keeps what also holds in another state. Returns whether that changed anything.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let before = (self.registers, self.slots.len());
        for (mine, other) in self.registers.iter_mut().zip(other.registers) {
            *mine = mine.join(other);
        }
        let mut changed = self.registers != before.0;
        self.slots.retain(|at, mine| {
            let joined = mine.join(other.slot(*at));
            changed |= joined != *mine;
            *mine = joined;
            joined != Any
        });
        changed
    }

    /// What a register holds. There is none beyond the 11th.
    pub(super) fn register(&self, number: u8) -> Value {
        self.registers.get(usize::from(number)).copied().unwrap_or(Any)
    }

    pub(super) fn set(&mut self, number: u8, value: Value) {
        if let Some(register) = self.registers.get_mut(usize::from(number)) {
            *register = value;
        }
    }

    /// Notes that a register equals a number. A pointer that equals 0 is NULL.
    pub(super) fn equals(&mut self, number: u8, other: Value) {
        match (self.register(number), other) {
            (Number(None), Number(Some(_))) | (Object { .. }, NULL) => self.set(number, other),
            _ => {}
        }
    }

    /// What the 8 bytes at an offset hold.
    pub(super) fn slot(&self, at: i32) -> Value {
        self.slots.get(&at).copied().unwrap_or(Any)
    }

    /// Notes that something is written through a pointer.
    pub(super) fn write(&mut self, pointer: Value, offset: i16, bytes: u32, value: Value) {
        match pointer {
            Stack(from) => {
                let start = from.saturating_add(offset.into());
                let end = start.saturating_add(bytes as i32);
                self.slots.retain(|at, _| at.saturating_add(8) <= start || *at >= end);
                let is_slot = bytes == 8 && start % 8 == 0 && (-MOST_STACK..0).contains(&start);
                if is_slot && value != Any {
                    self.slots.insert(start, value);
                }
            }
            Any => self.forget_stack(),
            _ => {}
        }
    }

    /// Forgets what is on the stack.
    pub(super) fn forget_stack(&mut self) {
        self.slots.clear();
    }

    /// The end of a call: the result is in r0, and nobody may read the arguments any more.
    pub(super) fn returned(&mut self, result: Value) {
        if self.registers[1..6].iter().any(|given| given.may_be_on_stack()) {
            self.forget_stack();
        }
        self.registers[0] = result;
        self.registers[1..6].fill(Unset);
    }
}
