//! Relocation against a kernel's types (CO-RE). It answers questions such as "where is member x of struct y on this
//! kernel".
//!
//! For each such instruction, clang writes a type of the object, a path of indices into this type, and a question. The
//! answer is found as in libbpf (`relo_core.c`):
//!
//! 1. The path is followed in the object's type. This gives names of members and indices of arrays.
//! 2. The kernel's types with the same name are candidates. A suffix after `___` is ignored.
//! 3. The same path is followed in each candidate. Members without a name are searched too. A candidate is dropped if
//!    it lacks a member, or if the member has another kind of type.
//! 4. The answer replaces the instruction's immediate or offset. If there is no answer, and the question was not
//!    whether one exists, the instruction is replaced by one that ends the run when it is reached.

use crate::btf::{Btf, Kind, TypeId, essential};
use crate::error::ScxError;
use crate::instruction::{CALL, Instruction, LOAD_64, class};
use crate::kernel_types::KernelTypes;
use crate::object::{Object, TypeRelocation};

/// The number of a helper that does not exist. An instruction that could not be relocated becomes a call of it.
pub const POISON: i32 = 0x0bad_2310;

/// The questions, with the kernel's numbers (`enum bpf_core_relo_kind`).
mod question {
    pub const BYTE_OFFSET: u32 = 0;
    pub const BYTE_SIZE: u32 = 1;
    pub const FIELD_EXISTS: u32 = 2;
    pub const SIGNED: u32 = 3;
    pub const LEFT_SHIFT: u32 = 4;
    pub const RIGHT_SHIFT: u32 = 5;
    pub const LOCAL_TYPE: u32 = 6;
    pub const KERNEL_TYPE: u32 = 7;
    pub const TYPE_EXISTS: u32 = 8;
    pub const TYPE_SIZE: u32 = 9;
    pub const VALUE_EXISTS: u32 = 10;
    pub const VALUE: u32 = 11;
}

/// Largest length of a path, as in the kernel (BPF_CORE_SPEC_MAX_LEN).
const MOST_STEPS: usize = 64;

/// Relocated code.
#[derive(Clone, Debug)]
pub struct Relocated {
    /// The object's code with all answers.
    pub code: Vec<Instruction>,
    /// The questions, in the order of the relocations.
    pub asked: Vec<Asked>,
}

/// A question, and whether the kernel has an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The instruction.
    pub at: usize,
    /// The type, member or value in question: `task_struct.scx.slice`.
    pub name: String,
    /// Whether the question is where a member is.
    pub member: bool,
    /// Whether the kernel has the type, member or value.
    pub found: bool,
    /// Whether the instruction only asks if it exists.
    pub optional: bool,
}

/// Answers all questions of `object` about the types of `kernel`.
///
/// # Errors
/// If the questions contradict the object's types, or a question is not supported.
pub fn relocate(object: &Object, kernel: &KernelTypes) -> Result<Relocated, ScxError> {
    let mut relocated = Relocated { code: object.code.clone(), asked: Vec::new() };
    for relocation in &object.relocations {
        let (answer, name) = answer(&object.btf, kernel, relocation)?;
        let optional = matches!(
            relocation.kind,
            question::FIELD_EXISTS | question::TYPE_EXISTS | question::VALUE_EXISTS
        );
        let found = match answer {
            Some(answer) => {
                patch(&mut relocated.code, relocation.at, answer);
                !optional || answer.value != 0
            }
            None => {
                poison(&mut relocated.code, relocation.at);
                false
            }
        };
        let member = relocation.kind == question::BYTE_OFFSET;
        relocated.asked.push(Asked { at: relocation.at, name, member, found, optional });
    }
    Ok(relocated)
}

/// The replacement for an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    value: u64,
    /// Set if the member has a size other than the one that the instruction reads.
    resize: Option<Resize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resize {
    To(u32),
    /// The size cannot be changed, because a signed number would lose its sign.
    Impossible,
}

impl From<u64> for Answer {
    fn from(value: u64) -> Self {
        Self { value, resize: None }
    }
}

/// The answer, if the kernel has one, and the name of what was asked about.
fn answer(
    local: &Btf,
    kernel: &KernelTypes,
    relocation: &TypeRelocation,
) -> Result<(Option<Answer>, String), ScxError> {
    use question::*;
    let name = local.name(local.plain_named(relocation.of)).to_owned();
    let answer = match relocation.kind {
        BYTE_OFFSET..=RIGHT_SHIFT => {
            let path = Path::follow(local, relocation)?;
            let name = path.name(local);
            return Ok((field(local, kernel, &path, relocation.kind, &name)?, name));
        }
        LOCAL_TYPE => Some(u64::from(relocation.of).into()),
        KERNEL_TYPE | TYPE_EXISTS | TYPE_SIZE => of_type(local, kernel, relocation, &name)?,
        VALUE_EXISTS | VALUE => {
            let (value, full) = enumerator(local, relocation)?;
            let found = kernel_value(kernel, &name, value, &full)?;
            let answer = match relocation.kind {
                VALUE_EXISTS => Some(u64::from(found.is_some()).into()),
                _ => found.map(|found| Answer::from(found as u64)),
            };
            return Ok((answer, full));
        }
        kind => return Err(ScxError::Relocation { kind, name }),
    };
    Ok((answer, name))
}

/// An answer about a whole type.
fn of_type(
    local: &Btf,
    kernel: &KernelTypes,
    relocation: &TypeRelocation,
    name: &str,
) -> Result<Option<Answer>, ScxError> {
    let wanted = local.kind(relocation.of);
    let candidates = kernel.btf.named(essential(name));
    let same = |id: &&TypeId| same_kind(wanted, kernel.btf.kind(**id));
    let declared = candidates.iter().any(|&id| {
        kernel.reduced
            && matches!(wanted, Kind::Composite { .. })
            && *kernel.btf.kind(id) == Kind::Declared
    });
    let found = candidates.iter().find(same).copied();
    Ok(match relocation.kind {
        question::TYPE_EXISTS => Some(u64::from(found.is_some() || declared).into()),
        _ if declared && found.is_none() => return Err(ScxError::Reduced(name.to_owned())),
        question::KERNEL_TYPE => found.map(|id| u64::from(id).into()),
        _ => found.and_then(|id| kernel.btf.size(id)).map(|size| u64::from(size).into()),
    })
}

/// The name of the enumerator in question, and the same name with the name of its enumeration.
fn enumerator<'a>(
    local: &'a Btf,
    relocation: &TypeRelocation,
) -> Result<(&'a str, String), ScxError> {
    let bad = || ScxError::btf(format!("no value {} in its enumeration", relocation.access));
    let Kind::Enum { values, .. } = local.kind(local.plain(relocation.of)) else {
        return Err(bad());
    };
    let index: usize = relocation.access.parse().map_err(|_| bad())?;
    let name = local.text(values.get(index).ok_or_else(bad)?.0);
    let full = format!("{}.{name}", local.name(local.plain(relocation.of)));
    Ok((name, full))
}

fn kernel_value(
    kernel: &KernelTypes,
    of: &str,
    value: &str,
    full: &str,
) -> Result<Option<i64>, ScxError> {
    let btf = &kernel.btf;
    for &id in btf.named(essential(of)) {
        let Kind::Enum { values, .. } = btf.kind(btf.plain(id)) else { continue };
        if values.is_empty() && kernel.reduced {
            return Err(ScxError::Reduced(full.to_owned()));
        }
        let same = |(name, _): &&(u32, i64)| essential(btf.text(*name)) == essential(value);
        if let Some((_, number)) = values.iter().find(same) {
            return Ok(Some(*number));
        }
    }
    Ok(None)
}

/// An answer about a member.
fn field(
    local: &Btf,
    kernel: &KernelTypes,
    path: &Path,
    kind: u32,
    name: &str,
) -> Result<Option<Answer>, ScxError> {
    let root = essential(local.name(path.root));
    let mut answers = Vec::new();
    let mut declared = false;
    for &candidate in kernel.btf.named(root) {
        declared |= kernel.reduced && *kernel.btf.kind(candidate) == Kind::Declared;
        if !same_kind(local.kind(path.root), kernel.btf.kind(candidate)) {
            continue;
        }
        let Some(there) = path.follow_in(local, &kernel.btf, candidate) else { continue };
        let answer = place_answer(local, &kernel.btf, path, &there, kind)
            .ok_or_else(|| ScxError::btf(format!("{name} has no size")))?;
        if !answers.contains(&answer) {
            answers.push(answer);
        }
    }
    match answers[..] {
        [] if declared => Err(ScxError::Reduced(name.to_owned())),
        [] if kind == question::FIELD_EXISTS => Ok(Some(0.into())),
        [] => Ok(None),
        [answer] => Ok(Some(answer)),
        _ => Err(ScxError::Ambiguous(root.to_owned())),
    }
}

fn place_answer(
    local: &Btf,
    kernel: &Btf,
    path: &Path,
    there: &Offset,
    kind: u32,
) -> Option<Answer> {
    if kind == question::FIELD_EXISTS {
        return Some(1.into());
    }
    let (bytes_at, bytes) = there.storage(kernel)?;
    let end = there.bit_offset + there.width(kernel)?;
    let value = match kind {
        question::BYTE_OFFSET => {
            let (_, here) = path.place.storage(local)?;
            let resize = (here != bytes).then(|| {
                let unsigned = unsigned(local, path.place.of) && unsigned(kernel, there.of);
                if unsigned { Resize::To(bytes) } else { Resize::Impossible }
            });
            return Some(Answer { value: bytes_at.into(), resize });
        }
        question::BYTE_SIZE => bytes.into(),
        question::SIGNED => match kernel.kind(kernel.plain(there.of)) {
            Kind::Int { signed, .. } | Kind::Enum { signed, .. } => u64::from(*signed),
            _ => 0,
        },
        question::LEFT_SHIFT => 64u64.checked_sub((end - bytes_at * 8).into())?,
        _ => 64u64.checked_sub(there.width(kernel)?.into())?,
    };
    Some(value.into())
}

/// Whether a type is read as unsigned.
fn unsigned(btf: &Btf, of: TypeId) -> bool {
    matches!(btf.kind(btf.plain(of)), Kind::Int { signed: false, .. } | Kind::Pointer(_))
}

fn same_kind(a: &Kind, b: &Kind) -> bool {
    match (a, b) {
        (Kind::Composite { union: a, .. }, Kind::Composite { union: b, .. }) => a == b,
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

/// The place of a member in a type.
#[derive(Clone, Copy, Debug)]
struct Offset {
    of: TypeId,
    bit_offset: u32,
    /// Width of a bit field. 0: it is not a bit field.
    bits: u8,
}

impl Offset {
    /// The bytes that must be read for the member: offset and number.
    fn storage(&self, btf: &Btf) -> Option<(u32, u32)> {
        // A member that is an array is read element by element.
        let mut of = btf.plain(self.of);
        while let Kind::Array { element, .. } = btf.kind(of) {
            of = btf.plain(*element);
        }
        let mut bytes = btf.size(of)?;
        if self.bits == 0 {
            return Some((self.bit_offset / 8, bytes));
        }
        loop {
            let at = (self.bit_offset / 8).checked_div(bytes)? * bytes;
            if self.bit_offset + u32::from(self.bits) <= (at + bytes).checked_mul(8)? {
                return Some((at, bytes));
            }
            bytes = bytes.checked_mul(2).filter(|&bytes| bytes <= 8)?;
        }
    }

    /// Width of the member in bits.
    fn width(&self, btf: &Btf) -> Option<u32> {
        match self.bits {
            0 => self.storage(btf)?.1.checked_mul(8),
            bits => Some(bits.into()),
        }
    }
}

/// A step into a type.
#[derive(Clone, Debug)]
enum Step {
    /// To a member with this name.
    Member(String, TypeId),
    /// To an element of an array, or of the memory that a pointer points to.
    Element(u32),
}

/// A path into a type of the object.
struct Path {
    root: TypeId,
    steps: Vec<Step>,
    place: Offset,
}

impl Path {
    /// Follows the indices of a relocation.
    fn follow(local: &Btf, relocation: &TypeRelocation) -> Result<Self, ScxError> {
        let bad =
            || ScxError::btf(format!("a relocation's path {} leads nowhere", relocation.access));
        let indices: Option<Vec<u32>> =
            relocation.access.split(':').map(|index| index.parse().ok()).collect();
        let indices = indices.filter(|all| all.len() <= MOST_STEPS).ok_or_else(bad)?;
        let root = local.plain_named(relocation.of);
        let mut path =
            Self { root, steps: Vec::new(), place: Offset { of: root, bit_offset: 0, bits: 0 } };
        for (number, &index) in indices.iter().enumerate() {
            path.step(local, index, number == 0).ok_or_else(bad)?;
        }
        Ok(path)
    }

    fn step(&mut self, btf: &Btf, index: u32, first: bool) -> Option<()> {
        let of = btf.plain(self.place.of);
        if first {
            self.place = element(btf, self.place, of, index)?;
            self.steps.push(Step::Element(index));
            return Some(());
        }
        match btf.kind(of) {
            Kind::Composite { members, .. } => {
                let member = members.get(index as usize)?;
                let bit_offset = self.place.bit_offset.checked_add(member.bit_offset)?;
                self.place = Offset { of: member.of, bit_offset, bits: member.bits };
                let name = btf.text(member.name);
                if !name.is_empty() {
                    self.steps.push(Step::Member(name.to_owned(), member.of));
                }
            }
            Kind::Array { element: of, .. } => {
                self.place = element(btf, self.place, *of, index)?;
                self.steps.push(Step::Element(index));
            }
            _ => return None,
        }
        Some(())
    }

    /// Follows the same path in a type of the kernel. `None` if the type does not have it.
    fn follow_in(&self, local: &Btf, kernel: &Btf, root: TypeId) -> Option<Offset> {
        let mut place = Offset { of: root, bit_offset: 0, bits: 0 };
        for (number, step) in self.steps.iter().enumerate() {
            let of = kernel.plain(place.of);
            place = match (step, kernel.kind(of)) {
                (Step::Element(index), _) if number == 0 => element(kernel, place, of, *index)?,
                (Step::Element(index), Kind::Array { element: of, count }) => {
                    // An array of length 0 has as many elements as fit behind the struct.
                    if *count != 0 && index >= count {
                        return None;
                    }
                    element(kernel, place, *of, *index)?
                }
                (Step::Member(name, type_here), Kind::Composite { .. }) => {
                    let (member, at) = kernel.member(of, essential(name))?;
                    if !compatible(local, *type_here, kernel, member.of) {
                        return None;
                    }
                    let bit_offset = place.bit_offset.checked_add(at)?;
                    Offset { of: member.of, bit_offset, bits: member.bits }
                }
                _ => return None,
            };
        }
        Some(place)
    }

    /// The path as text: `task_struct.scx.slice`.
    fn name(&self, local: &Btf) -> String {
        let mut name = local.name(self.root).to_owned();
        for step in &self.steps[1..] {
            match step {
                Step::Member(member, _) => name += &format!(".{member}"),
                Step::Element(index) => name += &format!("[{index}]"),
            }
        }
        name
    }
}

/// The place of an element in an array with elements of type `of`.
fn element(btf: &Btf, from: Offset, of: TypeId, index: u32) -> Option<Offset> {
    let bits = match index {
        0 => 0,
        _ => index.checked_mul(btf.size(of)?)?.checked_mul(8)?,
    };
    Some(Offset { of, bit_offset: from.bit_offset.checked_add(bits)?, bits: 0 })
}

/// Whether members of these two types are interchangeable (`bpf_core_fields_are_compat()`).
fn compatible(local: &Btf, here: TypeId, kernel: &Btf, there: TypeId) -> bool {
    let (mut here, mut there) = (local.plain(here), kernel.plain(there));
    loop {
        return match (local.kind(here), kernel.kind(there)) {
            (Kind::Composite { .. }, Kind::Composite { .. }) => true,
            (Kind::Array { element: a, .. }, Kind::Array { element: b, .. }) => {
                (here, there) = (local.plain(*a), kernel.plain(*b));
                continue;
            }
            (Kind::Enum { .. }, Kind::Enum { .. }) => {
                let (a, b) = (essential(local.name(here)), essential(kernel.name(there)));
                a.is_empty() || b.is_empty() || a == b
            }
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        };
    }
}

fn patch(code: &mut [Instruction], at: usize, answer: Answer) {
    let next = at + 1;
    let Some(instruction) = code.get_mut(at) else { return };
    match instruction.class() {
        class::ALU | class::ALU64 => instruction.imm = answer.value as i32,
        class::LDX | class::ST | class::STX => match (i16::try_from(answer.value), answer.resize) {
            (Ok(offset), None) => instruction.offset = offset,
            (Ok(offset), Some(Resize::To(bytes))) => {
                instruction.offset = offset;
                instruction.code = instruction.code & !0x18 | size_bits(bytes);
            }
            _ => poison(code, at),
        },
        class::LD if instruction.code == LOAD_64 => {
            instruction.imm = answer.value as i32;
            if let Some(upper) = code.get_mut(next) {
                upper.imm = (answer.value >> 32) as i32;
            }
        }
        _ => poison(code, at),
    }
}

/// The size of an access, as encoded in instructions (RFC 9669, table 11).
fn size_bits(bytes: u32) -> u8 {
    match bytes {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    }
}

fn poison(code: &mut [Instruction], at: usize) {
    let wide = code.get(at).is_some_and(|instruction| instruction.code == LOAD_64);
    for place in at..=at + usize::from(wide) {
        if let Some(instruction) = code.get_mut(place) {
            *instruction = Instruction { code: CALL, imm: POISON, ..Instruction::default() };
        }
    }
}
