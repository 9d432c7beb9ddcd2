//! `struct cpumask`: the masks of the program (`kernel/bpf/cpumask.c`) and of the kernel.

use std::collections::BTreeMap;

use roost_engine::CpuId;
use roost_machine::CpuSet;

use crate::error::ScxError;
use crate::helpers::Function;
use crate::interpret::{Host, Stop};
use crate::kernel::Call;
use crate::kernel_types::KernelTypes;
use crate::memory::Memory;

/// What stands for a mask in values of maps between runs before the start: this plus the mask's number. No program has
/// an address like it.
const STAND_IN: u64 = 0x6d61_736b_0000_0000;

/// What stands for the mask with a number.
pub(crate) fn stand_in(number: u32) -> u64 {
    STAND_IN + u64::from(number)
}

/// The number of the mask for which a word stands, if it does.
pub(crate) fn number(word: u64) -> Option<u32> {
    u32::try_from(word.checked_sub(STAND_IN)?).ok()
}

/// Replaces words of 8 bytes.
pub(crate) fn replace(bytes: &mut [u8], by: impl Fn(u64) -> Option<u64>) {
    for word in bytes.as_chunks_mut().0 {
        if let Some(other) = by(u64::from_le_bytes(*word)) {
            *word = other.to_le_bytes();
        }
    }
}

/// Combines two words of masks.
type Operation = fn(u64, u64) -> u64;

/// All masks and their addresses.
#[derive(Debug)]
pub(crate) struct Masks {
    /// Size of a mask of the program, in bytes.
    size: usize,
    /// Reference count of each mask of the program.
    held: BTreeMap<u64, u32>,
    /// Addresses of the masks of idle CPUs and of wholly idle cores: by node, or one pair for the machine. They show
    /// the state when the program last asked.
    idle: Vec<[u64; 2]>,
    /// Address of the mask of all CPUs.
    pub all: u64,
    /// Address of an empty mask.
    pub none: u64,
}

impl Masks {
    /// Creates the kernel's masks for a machine. `nr_idle`: number of sets of idle CPUs that are tracked, one or one
    /// for each node.
    pub(crate) fn new(
        kernel: &KernelTypes,
        memory: &mut Memory,
        nr_cpus: usize,
        nr_idle: usize,
    ) -> Result<Self, ScxError> {
        let size = kernel.struct_size("bpf_cpumask").or(kernel.struct_size("cpumask"))?;
        if nr_cpus > 8 * size {
            return Err(ScxError::broken(format!("the kernel has at most {} CPUs", 8 * size)));
        }
        let room = || ScxError::broken("its maps and variables do not fit into memory");
        let mut piece = || memory.allocate(size).ok_or_else(room);
        let masks = Self {
            size,
            held: BTreeMap::new(),
            idle: (0..nr_idle).map(|_| Ok([piece()?, piece()?])).collect::<Result<_, _>>()?,
            all: piece()?,
            none: piece()?,
        };
        write(memory, masks.all, CpuSet::full(nr_cpus).words()).map_err(|_| room())?;
        Ok(masks)
    }

    /// Creates a mask of the program. `None` if there is no room.
    pub(crate) fn create(&mut self, memory: &mut Memory) -> Option<u64> {
        let mask = memory.allocate(self.size)?;
        self.held.insert(mask, 1);
        Some(mask)
    }

    /// Whether the program has a mask at an address.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.held.contains_key(&address)
    }

    /// The addresses of the program's masks.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.held.keys().copied()
    }

    /// Addresses of the masks of idle CPUs and, with SMT, of wholly idle cores. If idle CPUs are tracked by node, those
    /// of `node`.
    pub(crate) fn of_idle(
        &self,
        node: Option<usize>,
        smt: bool,
    ) -> impl Iterator<Item = u64> + use<> {
        self.idle[node.unwrap_or(0)].into_iter().take(1 + usize::from(smt))
    }
}

fn write(memory: &mut Memory, mask: u64, words: &[u64]) -> Result<(), crate::memory::Wild> {
    for (number, word) in (0..).zip(words) {
        memory.write(mask.wrapping_add(8 * number), 8, *word)?;
    }
    Ok(())
}

impl Call<'_> {
    fn words(&mut self, mask: u64) -> Result<Vec<u64>, Stop> {
        let nr_cpus = self.world.nr_cpus();
        let mut words = Vec::new();
        for number in 0..nr_cpus.div_ceil(64) as u64 {
            let word = mask.wrapping_add(8 * number);
            words.push(self.kernel.memory.read(word, 8)?);
            self.touch(word, false);
        }
        if let Some(last) = words.last_mut().filter(|_| !nr_cpus.is_multiple_of(64)) {
            *last &= (1 << (nr_cpus % 64)) - 1;
        }
        Ok(words)
    }

    /// The CPUs of a mask.
    pub(crate) fn cpus_of(&mut self, mask: u64) -> Result<CpuSet, Stop> {
        let words = self.words(mask)?;
        let nr_cpus = self.world.nr_cpus();
        let has = |&cpu: &CpuId| words[cpu / 64] >> (cpu % 64) & 1 != 0;
        Ok(CpuSet::from_cpus(nr_cpus, (0..nr_cpus).filter(has)))
    }

    /// The address of the word of a mask that contains a CPU's bit, and the bit. `None`: there is no such CPU.
    fn bit(&self, cpu: u64, mask: u64) -> Option<(u64, u64)> {
        let cpu = u64::from(cpu as u32);
        let place = (mask.wrapping_add(8 * (cpu / 64)), 1 << (cpu % 64));
        (cpu < self.world.nr_cpus() as u64).then_some(place)
    }

    /// Sets or clears the bit of a CPU. Returns whether it was set.
    fn set_bit(&mut self, cpu: u64, mask: u64, set: bool) -> Result<u64, Stop> {
        let Some((word, bit)) = self.bit(cpu, mask) else { return Ok(0) };
        let old = self.kernel.memory.read(word, 8)?;
        let new = if set { old | bit } else { old & !bit };
        self.kernel.memory.write(word, 8, new)?;
        self.touch(word, true);
        Ok((old & bit != 0).into())
    }

    /// Writes the combination of two masks to `to`. Returns whether the result is not empty.
    fn combine(&mut self, to: u64, a: u64, b: u64, operation: Operation) -> Result<u64, Stop> {
        let (a, b) = (self.words(a)?, self.words(b)?);
        let words: Vec<u64> = a.into_iter().zip(b).map(|(a, b)| operation(a, b)).collect();
        write(&mut self.kernel.memory, to, &words)?;
        self.touch(to, true);
        Ok(words.iter().any(|word| *word != 0).into())
    }

    /// Whether the combination of two masks is empty.
    fn is_empty(&mut self, a: u64, b: u64, operation: Operation) -> Result<u64, Stop> {
        let (a, b) = (self.words(a)?, self.words(b)?);
        Ok(a.into_iter().zip(b).all(|(a, b)| operation(a, b) == 0).into())
    }

    /// The first CPU of a mask. If the mask is empty, the number of CPUs.
    fn first_of(&self, words: &[u64]) -> u64 {
        let nr_cpus = self.world.nr_cpus() as u64;
        let found = (0..).zip(words).find(|(_, word)| **word != 0);
        found
            .map_or(nr_cpus, |(at, word)| (64 * at + u64::from(word.trailing_zeros())).min(nr_cpus))
    }

    /// A CPU of a mask, a different one each time (`cpumask_any_distribute()`).
    fn any_of(&mut self, cpus: &CpuSet) -> u64 {
        let found = self.kernel.idle.any(self.cpu, cpus);
        found.unwrap_or(self.world.nr_cpus()) as u64
    }

    /// Writes the idle CPUs, of a node if they are tracked by node, to the mask that the program reads.
    pub(crate) fn publish_idle(&mut self, node: Option<usize>, cores: bool) -> Result<u64, Stop> {
        let kernel = &mut *self.kernel;
        // Without SMT, every core has one CPU.
        let set =
            if cores && kernel.machine.has_smt() { &kernel.idle.cores } else { &kernel.idle.cpus };
        let mut set = set.clone();
        if let Some(node) = node {
            set.intersect_with(&kernel.machine.nodes[node].cpus);
        }
        let at = kernel.masks.idle[node.unwrap_or(0)][usize::from(cores)];
        write(&mut kernel.memory, at, set.words())?;
        Ok(at)
    }
}

/// The kfuncs of masks: name, number of parameters, function.
pub(crate) const KFUNCS: [(&str, usize, Function); 25] = [
    ("bpf_cpumask_create", 0, create),
    ("bpf_cpumask_acquire", 1, acquire),
    ("bpf_cpumask_release", 1, release),
    ("bpf_cpumask_first", 1, first),
    ("bpf_cpumask_first_zero", 1, first_zero),
    ("bpf_cpumask_first_and", 2, first_and),
    ("bpf_cpumask_set_cpu", 2, |call, [cpu, mask, ..]| {
        call.set_bit(cpu, mask, true)?;
        Ok(0)
    }),
    ("bpf_cpumask_clear_cpu", 2, |call, [cpu, mask, ..]| {
        call.set_bit(cpu, mask, false)?;
        Ok(0)
    }),
    ("bpf_cpumask_test_cpu", 2, test_cpu),
    ("bpf_cpumask_test_and_set_cpu", 2, |call, [cpu, mask, ..]| call.set_bit(cpu, mask, true)),
    ("bpf_cpumask_test_and_clear_cpu", 2, |call, [cpu, mask, ..]| call.set_bit(cpu, mask, false)),
    ("bpf_cpumask_setall", 1, set_all),
    ("bpf_cpumask_clear", 1, |call, [mask, ..]| call.combine(mask, mask, mask, |_, _| 0)),
    ("bpf_cpumask_and", 3, |call, [to, a, b, ..]| call.combine(to, a, b, |a, b| a & b)),
    ("bpf_cpumask_or", 3, |call, [to, a, b, ..]| call.combine(to, a, b, |a, b| a | b)),
    ("bpf_cpumask_xor", 3, |call, [to, a, b, ..]| call.combine(to, a, b, |a, b| a ^ b)),
    ("bpf_cpumask_copy", 2, |call, [to, from, ..]| call.combine(to, from, from, |a, _| a)),
    ("bpf_cpumask_equal", 2, |call, [a, b, ..]| call.is_empty(a, b, |a, b| a ^ b)),
    ("bpf_cpumask_intersects", 2, |call, [a, b, ..]| Ok(1 - call.is_empty(a, b, |a, b| a & b)?)),
    ("bpf_cpumask_subset", 2, |call, [a, b, ..]| call.is_empty(a, b, |a, b| a & !b)),
    ("bpf_cpumask_empty", 1, |call, [mask, ..]| call.is_empty(mask, mask, |a, _| a)),
    ("bpf_cpumask_full", 1, full),
    ("bpf_cpumask_any_distribute", 1, any),
    ("bpf_cpumask_any_and_distribute", 2, any_and),
    ("bpf_cpumask_weight", 1, weight),
];

fn create(call: &mut Call, _: [u64; 5]) -> Result<u64, Stop> {
    let kernel = &mut *call.kernel;
    Ok(kernel.masks.create(&mut kernel.memory).unwrap_or(0))
}

fn acquire(call: &mut Call, [mask, ..]: [u64; 5]) -> Result<u64, Stop> {
    if let Some(held) = call.kernel.masks.held.get_mut(&mask) {
        *held += 1;
    }
    Ok(mask)
}

fn release(call: &mut Call, [mask, ..]: [u64; 5]) -> Result<u64, Stop> {
    let kernel = &mut *call.kernel;
    let Some(held) = kernel.masks.held.get_mut(&mask) else { return Ok(0) };
    *held -= 1;
    if *held == 0 {
        kernel.masks.held.remove(&mask);
        kernel.memory.release(mask, kernel.masks.size);
    }
    Ok(0)
}

fn first(call: &mut Call, [mask, ..]: [u64; 5]) -> Result<u64, Stop> {
    let words = call.words(mask)?;
    Ok(call.first_of(&words))
}

fn first_zero(call: &mut Call, [mask, ..]: [u64; 5]) -> Result<u64, Stop> {
    let words: Vec<u64> = call.words(mask)?.into_iter().map(|word| !word).collect();
    Ok(call.first_of(&words))
}

fn first_and(call: &mut Call, [a, b, ..]: [u64; 5]) -> Result<u64, Stop> {
    let (a, b) = (call.words(a)?, call.words(b)?);
    let both: Vec<u64> = a.into_iter().zip(b).map(|(a, b)| a & b).collect();
    Ok(call.first_of(&both))
}

fn test_cpu(call: &mut Call, [cpu, mask, ..]: [u64; 5]) -> Result<u64, Stop> {
    let Some((word, bit)) = call.bit(cpu, mask) else { return Ok(0) };
    let set = call.kernel.memory.read(word, 8)? & bit != 0;
    call.touch(word, false);
    Ok(set.into())
}

fn set_all(call: &mut Call, [mask, ..]: [u64; 5]) -> Result<u64, Stop> {
    let all = call.kernel.masks.all;
    call.combine(mask, all, all, |a, _| a)?;
    Ok(0)
}

fn full(call: &mut Call, [mask, ..]: [u64; 5]) -> Result<u64, Stop> {
    call.is_empty(call.kernel.masks.all, mask, |all, mask| all & !mask)
}

fn any(call: &mut Call, [mask, ..]: [u64; 5]) -> Result<u64, Stop> {
    let cpus = call.cpus_of(mask)?;
    Ok(call.any_of(&cpus))
}

fn any_and(call: &mut Call, [a, b, ..]: [u64; 5]) -> Result<u64, Stop> {
    let mut cpus = call.cpus_of(a)?;
    cpus.intersect_with(&call.cpus_of(b)?);
    Ok(call.any_of(&cpus))
}

fn weight(call: &mut Call, [mask, ..]: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.words(mask)?.iter().map(|word| u64::from(word.count_ones())).sum())
}
