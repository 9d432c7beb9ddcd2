//! One BPF instruction, as RFC 9669 encodes it.

use serde::{Deserialize, Serialize};

/// An instruction of 8 bytes. A load of 64 bits takes two instructions; the second has the upper half in `imm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Instruction {
    /// The operation code. The class is in its lowest 3 bits.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register, or the meaning of `imm`.
    pub src: u8,
    /// Offset of an address or a jump, or a variant of the operation.
    pub offset: i16,
    /// Immediate operand.
    pub imm: i32,
}

/// Classes of instructions, `code & 7` (RFC 9669, table 3).
pub mod class {
    /// Loads of immediates.
    pub const LD: u8 = 0;
    /// Loads from memory.
    pub const LDX: u8 = 1;
    /// Stores of immediates.
    pub const ST: u8 = 2;
    /// Stores of registers, and atomic operations.
    pub const STX: u8 = 3;
    /// Arithmetic on 32 bits.
    pub const ALU: u8 = 4;
    /// Arithmetic on 64 bits.
    pub const ALU64: u8 = 7;
}

/// A load of 64 bits into a register.
pub const LOAD_64: u8 = 0x18;
/// A call of a helper (`src` 0), a function of the program (1) or a kfunc (2).
pub const CALL: u8 = 0x85;

impl Instruction {
    /// Decodes an instruction from its 8 bytes.
    pub fn decode(bytes: [u8; 8]) -> Self {
        let [code, registers, o0, o1, i0, i1, i2, i3] = bytes;
        Self {
            code,
            dst: registers & 0xf,
            src: registers >> 4,
            offset: i16::from_le_bytes([o0, o1]),
            imm: i32::from_le_bytes([i0, i1, i2, i3]),
        }
    }

    /// The class of the instruction.
    pub fn class(self) -> u8 {
        self.code & 7
    }

    /// Whether it calls a function of the program.
    pub fn calls_function(self) -> bool {
        self.code == CALL && self.src == 1
    }

    /// Whether it casts an address of the arena to its other form.
    pub fn casts(self) -> bool {
        self.code == 0xbf && self.offset == 1
    }

    /// The number of the helper that it calls, if it calls one.
    pub fn helper(self) -> Option<u32> {
        (self.code == CALL && self.src == 0).then_some(self.imm as u32)
    }
}
