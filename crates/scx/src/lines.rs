//! Cache lines that CPUs share: which CPU wrote a line last, and where copies of it are.
//!
//! If a program reads what another CPU wrote, or writes what another CPU has a copy of, it waits until the line has
//! been transferred ([`Machine::line_ns`]). A line with a copy in the CPU's own LLC costs nothing. Counted lines are
//! the program's maps and variables, the kernel's masks of idle CPUs, run queues and dispatch queues. The kernel's
//! `struct task_struct` is not counted: its lines move with the task under the fair class too, and the figures for a
//! wakeup and a switch include that.

use roost_engine::CpuId;
use roost_machine::Machine;

use crate::memory::{BASE, MOST_BYTES};

pub(crate) const LINE_BYTES: u64 = 64;

/// No CPU.
const NOBODY: u16 = u16::MAX;

/// The CPUs that have to do with a cache line. Machine code reads this (`translate/emit.rs`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Owners {
    /// The CPU that wrote the line last.
    writer: u16,
    /// The CPU that fetched a copy last.
    reader: u16,
}

const _: () = assert!(size_of::<Owners>() == 4, "machine code reads both numbers at once");

impl Owners {
    /// Of a line that is not counted.
    pub(crate) const EXEMPT: Self = Self { writer: EXEMPT, reader: NOBODY };

    /// Of a line that `cpu` wrote last and of which no other CPU has a copy.
    pub(crate) fn alone(cpu: CpuId) -> Self {
        Self { writer: cpu as u16, reader: NOBODY }
    }

    /// Both in one number: the writer is the lower half.
    pub(crate) fn bits(self) -> u32 {
        u32::from(self.writer) | u32::from(self.reader) << 16
    }
}

/// Takes the place of the writer in a line that is not counted.
const EXEMPT: u16 = u16::MAX - 1;

/// Of a line that no CPU has touched.
const NO_OWNERS: Owners = Owners { writer: NOBODY, reader: NOBODY };

/// What fetching a line depends on, by CPU.
#[derive(Clone, Copy, Debug)]
struct CpuPlace {
    /// The bit of its LLC in [`Lines::copies`]. With more than 64 LLCs, neighbouring LLCs share a bit, and count as one
    /// LLC.
    bit: u64,
    /// Its package, LLC and core: 16, 16 and 32 bits. The CPUs of a line have 16 bits, so LLCs and packages have no
    /// more.
    at: u64,
}

/// The cost of fetching lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// Number of lines.
    pub lines: u64,
    /// Time for fetching the lines and for waiting for locks, in ns.
    pub ns: u64,
    /// The part of that time for waiting for locks, in ns.
    pub waited_ns: u64,
}

/// The number of an address's line. An address before the region gets a number that is too large.
#[inline]
fn number_of(address: u64) -> usize {
    (address.wrapping_sub(BASE) / LINE_BYTES) as usize
}

/// All lines of the memory.
#[derive(Debug)]
pub(crate) struct Lines {
    owners: Vec<Owners>,
    /// For each line, where copies have been fetched since it was written: one bit per LLC, see [`CpuPlace::bit`].
    /// Every CPU has a copy of a line that is not counted.
    copies: Vec<u64>,
    /// Where each CPU is.
    places: Vec<CpuPlace>,
    /// The time of a transfer from a CPU of the same core, of the same LLC, of the same package, and of another, in ns.
    ns: [u64; 4],
    /// What was fetched since the last call of [`Lines::take_fetched`].
    fetched: Fetched,
}

impl Lines {
    pub(crate) fn new(machine: &Machine) -> Self {
        let share = machine.llcs.len().div_ceil(64);
        let place = |cpu: &roost_machine::Cpu| CpuPlace {
            bit: 1 << (cpu.llc as usize / share),
            at: u64::from(cpu.package) << 48 | u64::from(cpu.llc) << 32 | u64::from(cpu.core),
        };
        let figures = &machine.figures;
        let ns = [
            figures.line_same_core_ns.value,
            figures.line_same_llc_ns.value,
            figures.line_cross_llc_ns.value,
            figures.line_cross_package_ns.value,
        ];
        let places = machine.cpus.iter().map(place).collect();
        let (owners, copies) = (Vec::new(), Vec::new());
        Self { owners, copies, places, ns, fetched: Fetched::default() }
    }

    /// The lines of a region of `bytes`: owners and copies.
    #[inline]
    pub(crate) fn covering(&mut self, bytes: usize) -> (&[Owners], &[u64]) {
        let lines = bytes.div_ceil(LINE_BYTES as usize);
        if lines > self.owners.len() {
            self.add(lines);
        }
        (&self.owners, &self.copies)
    }

    /// All lines: owners and copies.
    #[inline]
    pub(crate) fn all(&self) -> (&[Owners], &[u64]) {
        (&self.owners, &self.copies)
    }

    /// Has at least as many lines from now on.
    #[cold]
    #[inline(never)]
    fn add(&mut self, lines: usize) {
        self.owners.resize(lines.max(self.owners.len()), NO_OWNERS);
        self.copies.resize(self.owners.len(), 0);
    }

    /// Excludes a piece of memory from now on.
    pub(crate) fn exempt(&mut self, address: u64, size: usize) {
        for number in 0..size.div_ceil(LINE_BYTES as usize) as u64 {
            if let Some((owners, copies)) = self.line(address + number * LINE_BYTES) {
                (*owners, *copies) = (Owners::EXEMPT, u64::MAX);
            }
        }
    }

    /// The line of an address, if the address can be in memory: owners and copies.
    #[inline]
    fn line(&mut self, address: u64) -> Option<(&mut Owners, &mut u64)> {
        let number = number_of(address);
        if number >= self.owners.len() {
            if number >= MOST_BYTES / LINE_BYTES as usize {
                return None;
            }
            self.add(number + 1);
        }
        Some((self.owners.get_mut(number)?, self.copies.get_mut(number)?))
    }

    /// The bit of a CPU's LLC in the copies of a line.
    pub(crate) fn bit(&self, cpu: CpuId) -> u64 {
        self.places[cpu].bit
    }

    /// Records that a CPU reads or writes at an address. It counts only in memory.
    #[inline]
    pub(crate) fn touch(&mut self, cpu: CpuId, address: u64, write: bool) {
        let number = number_of(address);
        let has = match (self.owners.get(number), self.copies.get(number)) {
            (Some(owners), _) if write => owners.bits() == Owners::alone(cpu).bits(),
            (Some(owners), Some(copies)) => {
                copies & self.places[cpu].bit != 0 || owners.writer == cpu as u16
            }
            _ => false,
        };
        if !has {
            self.touch_missing(cpu, address, write);
        }
    }

    /// The rare part of [`Lines::touch`].
    #[inline(never)]
    fn touch_missing(&mut self, cpu: CpuId, address: u64, write: bool) {
        if self.line(address).is_some() {
            self.fetch(cpu, address, write);
        }
    }

    /// As [`Lines::touch`], where the CPU probably does not have the line as it needs it. Does nothing if there is no
    /// such line yet, and never panics. For the only caller besides [`Lines::touch_missing`], another call would take
    /// longer than the work.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, cpu: CpuId, address: u64, write: bool) {
        let number = number_of(address);
        let (Some(owners), Some(copies), Some(&place)) =
            (self.owners.get_mut(number), self.copies.get_mut(number), self.places.get(cpu))
        else {
            return;
        };
        let (me, Owners { writer, reader }) = (cpu as u16, *owners);
        if writer == EXEMPT {
            return;
        }
        let from = if write {
            (*owners, *copies) = (Owners::alone(cpu), 0);
            if writer == me || writer == NOBODY { reader } else { writer }
        } else if writer == me || *copies & place.bit != 0 {
            return;
        } else {
            *copies |= place.bit;
            owners.reader = me;
            writer
        };
        if let Some(source) = self.places.get(from as usize).filter(|_| from != me) {
            self.fetched.lines += 1;
            self.fetched.ns += self.ns[way(place.at, source.at)];
        }
    }

    /// Records that the CPU waits for a lock.
    pub(crate) fn wait(&mut self, ns: u64) {
        self.fetched.ns += ns;
        self.fetched.waited_ns += ns;
    }

    /// What was fetched since the last call of [`Lines::take_fetched`].
    pub(crate) fn fetched(&self) -> Fetched {
        self.fetched
    }

    /// Returns what was fetched since the previous call, and starts again from 0.
    pub(crate) fn take_fetched(&mut self) -> Fetched {
        std::mem::take(&mut self.fetched)
    }
}

/// Which of [`Lines::ns`] a transfer between two CPUs takes, from their [`CpuPlace::at`]. Two LLCs of one package count
/// as such even if their nodes differ, because the line takes the same way ([`Machine::line_ns`]).
#[inline]
fn way(to: u64, from: u64) -> usize {
    // Without branches: processors can hardly predict where a line comes from.
    let differ = to ^ from;
    let far = if differ >> 48 == 0 { 2 } else { 3 };
    let near = if (differ >> 32) as u16 == 0 { 1 } else { far };
    if differ as u32 == 0 { 0 } else { near }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Two LLCs of two CPUs. Transferring a line takes 40 ns within an LLC, and 100 ns between LLCs.
    fn machine() -> Machine {
        let mut machine = roost_machine::resolve("node:1 l3:2 core:2 pu:1").unwrap();
        machine.figures.line_same_llc_ns.value = 40;
        machine.figures.line_cross_llc_ns.value = 100;
        machine
    }

    /// The cost of each access, in ns.
    fn takes(accesses: &[(CpuId, bool)]) -> Vec<u64> {
        let machine = machine();
        let mut lines = Lines::new(&machine);
        let each = accesses.iter().map(|&(cpu, write)| {
            lines.touch(cpu, BASE + 8, write);
            lines.take_fetched().ns
        });
        each.collect()
    }

    #[test]
    fn what_another_cpu_wrote_is_fetched_once_by_each_llc() {
        let accesses = [(0, true), (0, false), (2, false), (3, false), (1, false), (1, false)];
        assert_eq!(takes(&accesses), [0, 0, 100, 0, 40, 0]);
    }

    #[test]
    fn who_writes_waits_for_those_that_have_a_copy() {
        let accesses = [(0, true), (0, true), (2, false), (0, true), (2, true), (2, true)];
        assert_eq!(takes(&accesses), [0, 0, 100, 100, 100, 0]);
    }

    #[test]
    fn each_transfer_takes_what_the_machine_says() {
        for name in ["zen3-2s-nps4", "xeon-2s-40", "x3750-m4", "node:2 l3:3 core:5 pu:2"] {
            let machine = roost_machine::resolve(name).unwrap();
            let lines = Lines::new(&machine);
            for to in 0..machine.cpus.len() {
                for from in (0..machine.cpus.len()).filter(|&from| from != to) {
                    let way = way(lines.places[to].at, lines.places[from].at);
                    assert_eq!(lines.ns[way], machine.line_ns(to, from), "{name}: {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn what_is_never_written_costs_nothing() {
        assert_eq!(takes(&[(0, false), (1, false), (2, false), (3, false)]), [0, 0, 0, 0]);
    }

    #[test]
    fn an_address_far_beyond_memory_has_no_line() {
        assert!(Lines::new(&machine()).line(BASE + (1 << 46)).is_none());
        assert!(Lines::new(&machine()).line(BASE - 1).is_none());
    }

    #[test]
    fn a_piece_that_is_not_shared_costs_nothing() {
        let machine = machine();
        let mut lines = Lines::new(&machine);
        lines.exempt(BASE + 64, 64);
        lines.exempt(BASE + 256, 128);
        for address in [BASE + 64, BASE + 127, BASE + 256, BASE + 383] {
            lines.touch(0, address, true);
            lines.touch(2, address, true);
        }
        assert_eq!(lines.take_fetched(), Fetched::default());
        for address in [BASE + 63, BASE + 128, BASE + 384] {
            lines.touch(0, address, true);
            lines.touch(2, address, true);
        }
        assert_eq!(lines.take_fetched(), Fetched { lines: 3, ns: 300, waited_ns: 0 });
    }
}
