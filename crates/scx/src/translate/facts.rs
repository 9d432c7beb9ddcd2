//! What is known of a program's registers where machine code is made for an instruction: their values or where they
//! come from, and which cache lines the CPU has had since the call began.
//!
//! While a program runs, only its own CPU accesses lines. So a line that the CPU has read can be read again without a
//! transfer until the call ends, and a line that it has written can be read and written.

/// What a value is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// 0: the value is known.
    Zero,
    /// The frame pointer.
    Stack,
    /// A value that is not known. It has a number of its own.
    Unknown(u32),
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

    /// The value plus a number.
    pub(super) fn plus(self, number: i64) -> Self {
        Self { offset: self.offset.wrapping_add(number), ..self }
    }
}

/// An access to the line of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Had {
    address: Known,
    write: bool,
}

/// The facts at a place in a function.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    registers: [Known; 11],
    had: Vec<Had>,
}

impl Facts {
    /// No facts. `next` numbers unknown values.
    pub(super) fn none(next: &mut u32) -> Self {
        let mut facts = Self { registers: [Known::number(0); 11], had: Vec::new() };
        (0..10).for_each(|register| facts.forget(register, next));
        facts.registers[10].base = Base::Stack;
        facts
    }

    /// What holds whichever of several ways execution came.
    pub(super) fn common(ways: &[&Self], next: &mut u32) -> Self {
        let Some((first, others)) = ways.split_first() else { return Self::none(next) };
        let mut facts = (*first).clone();
        for register in 0..10 {
            if others.iter().any(|way| way.get(register) != facts.get(register)) {
                facts.forget(register, next);
            }
        }
        facts.had.retain(|had| others.iter().all(|way| way.has(had.address, had.write)));
        facts
    }

    pub(super) fn get(&self, register: u8) -> Known {
        self.registers[register as usize]
    }

    pub(super) fn set(&mut self, register: u8, value: Known) {
        self.registers[register as usize] = value;
    }

    /// A register has a new value, which is not known.
    pub(super) fn forget(&mut self, register: u8, next: &mut u32) {
        *next += 1;
        self.set(register, Known { base: Base::Unknown(*next), offset: 0 });
    }

    /// Whether the CPU can access the line of an address without a transfer.
    pub(super) fn has(&self, address: Known, write: bool) -> bool {
        self.had.iter().any(|had| had.address == address && (had.write || !write))
    }

    /// The CPU has accessed the line of an address.
    pub(super) fn have(&mut self, address: Known, write: bool) {
        if !self.has(address, write) {
            self.had.retain(|had| had.address != address);
            self.had.push(Had { address, write });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_written_can_be_read_and_written_and_one_that_was_read_only_read() {
        let mut next = 0;
        let mut facts = Facts::none(&mut next);
        let (read, written) = (facts.get(1), facts.get(2).plus(8));
        facts.have(read, false);
        facts.have(written, true);
        assert_eq!([false, true].map(|write| facts.has(read, write)), [true, false]);
        assert_eq!([false, true].map(|write| facts.has(written, write)), [true, true]);
        assert!(!facts.has(facts.get(2), false), "another address");
        facts.have(written, false);
        assert!(facts.has(written, true));
    }

    #[test]
    fn where_ways_join_holds_what_holds_on_each() {
        let mut next = 0;
        let mut first = Facts::none(&mut next);
        let [a, b] = [1, 2].map(|register| first.get(register));
        first.have(a, true);
        let mut second = first.clone();
        first.have(b, false);
        second.set(3, Known::number(5));
        let common = Facts::common(&[&first, &second], &mut next);
        assert!(common.has(a, true) && !common.has(b, false));
        assert_eq!(common.get(1), a);
        assert!(common.get(3) != first.get(3) && common.get(3) != second.get(3));
        assert!(!Facts::common(&[], &mut next).has(a, false), "the start of a loop");
    }
}
