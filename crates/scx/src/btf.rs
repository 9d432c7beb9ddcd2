//! BTF, the type information of a BPF object or a kernel: numbered types, checked when they are read.
//!
//! The format is the kernel's (`include/uapi/linux/btf.h`, Documentation/bpf/btf.rst): a header, a section of types
//! numbered from 1 in file order (0 is `void`), and a section of NUL-terminated names. After [`Btf::parse`], every type
//! that another type refers to exists, and every name is valid text.

use std::collections::HashMap;

use crate::bytes::{text_at, u16_at, u32_at};
use crate::error::ScxError;

/// Number of a type; 0 is `void`.
pub type TypeId = u32;

/// How deep types may nest before they are treated as circular: the kernel's MAX_RESOLVE_DEPTH.
const MOST_DEPTH: usize = 32;

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;

/// A type.
#[derive(Clone, Debug)]
pub struct Type {
    /// Offset of its name among the names.
    name: u32,
    /// The kind of the type, with its details.
    pub kind: Kind,
}

/// The kind of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `void`.
    Void,
    /// An integer.
    Int {
        /// Size in bytes.
        size: u32,
        /// Whether it is signed.
        signed: bool,
        /// Whether it is `bool`.
        boolean: bool,
    },
    /// A pointer to a type.
    Pointer(TypeId),
    /// An array.
    Array {
        /// Type of its elements.
        element: TypeId,
        /// Number of elements.
        count: u32,
    },
    /// A struct or union.
    Composite {
        /// Whether it is a union.
        union: bool,
        /// Size in bytes.
        size: u32,
        /// The members, in order.
        members: Vec<Member>,
    },
    /// An enumeration. An enumeration without values is a declaration.
    Enum {
        /// Size in bytes.
        size: u32,
        /// Whether it is signed.
        signed: bool,
        /// Offset of the name and value of each enumerator, in order.
        values: Vec<(u32, i64)>,
    },
    /// A struct or union that is declared but not defined.
    Declared,
    /// Another name of a type.
    Typedef(TypeId),
    /// `const`, `volatile`, `restrict` or a tag of a type.
    Qualifier(TypeId),
    /// A function, with its prototype.
    Function(TypeId),
    /// The parameters and result of a function.
    Prototype {
        /// Type of the result.
        result: TypeId,
        /// Offset of the name and type of each parameter.
        parameters: Vec<(u32, TypeId)>,
    },
    /// A variable.
    Variable {
        /// Its type.
        of: TypeId,
        /// Whether other objects can use it.
        global: bool,
    },
    /// The variables in a section of an object.
    Section(Vec<SectionVariable>),
    /// A floating-point number.
    Float {
        /// Size in bytes.
        size: u32,
    },
    /// A tag of a type or function, whose name is the tag.
    Tag(TypeId),
}

/// A member of a struct or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Offset of its name.
    pub name: u32,
    /// Its type.
    pub of: TypeId,
    /// Start of the member, in bits from the start of the struct.
    pub bit_offset: u32,
    /// Width of a bit field. 0: it is not a bit field.
    pub bits: u8,
}

/// A variable in a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionVariable {
    /// The variable.
    pub variable: TypeId,
    /// Start of the variable in the section, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// All types, by number.
#[derive(Clone, Debug)]
pub struct Btf {
    types: Vec<Type>,
    strings: Vec<u8>,
    by_name: HashMap<String, Vec<TypeId>>,
}

impl Btf {
    /// Reads a `.BTF` section.
    ///
    /// # Errors
    /// If the section is cut off or contradicts itself.
    pub fn parse(bytes: &[u8]) -> Result<Self, ScxError> {
        if u16_at(bytes, 0) != Some(MAGIC) {
            return Err(ScxError::btf(
                "it does not begin with the magic number 0xeb9f in little-endian order",
            ));
        }
        let field = |at| u32_at(bytes, at).map(|value| value as usize);
        let header = || Some([field(4)?, field(8)?, field(12)?, field(16)?, field(20)?]);
        let [header, type_at, type_len, string_at, string_len] =
            header().ok_or_else(|| ScxError::btf("the header is cut off"))?;
        let part = |at: usize, len: usize| {
            let start = header.checked_add(at)?;
            bytes.get(start..start.checked_add(len)?)
        };
        let (Some(types), Some(strings)) = (part(type_at, type_len), part(string_at, string_len))
        else {
            return Err(ScxError::btf("it is shorter than its header says"));
        };
        if header < HEADER {
            return Err(ScxError::btf("the header is too short"));
        }
        let mut btf = Self {
            types: vec![Type { name: 0, kind: Kind::Void }],
            strings: strings.to_vec(),
            by_name: HashMap::new(),
        };
        btf.read_types(types)?;
        btf.check()?;
        btf.index();
        Ok(btf)
    }

    fn read_types(&mut self, bytes: &[u8]) -> Result<(), ScxError> {
        let mut at = 0;
        while at < bytes.len() {
            let number = self.types.len();
            let (kind, next) = read_type(bytes, at)
                .ok_or_else(|| ScxError::btf(format!("type {number} is cut off or unknown")))?;
            let name = u32_at(bytes, at).unwrap_or(0);
            self.types.push(Type { name, kind });
            at = next;
        }
        Ok(())
    }

    /// Checks that every type and name that is referred to exists.
    fn check(&self) -> Result<(), ScxError> {
        for (number, ty) in self.types.iter().enumerate().skip(1) {
            let (types, names) = ty.kind.named();
            let missing = types.iter().find(|&&id| id as usize >= self.types.len());
            if let Some(id) = missing {
                let what = format!("type {number} refers to type {id}, which does not exist");
                return Err(ScxError::btf(what));
            }
            let mut names = names.into_iter().chain([ty.name]);
            if names.any(|name| text_at(&self.strings, name as usize).is_none()) {
                return Err(ScxError::btf(format!("a name in type {number} is not valid text")));
            }
        }
        Ok(())
    }

    fn index(&mut self) {
        for id in 1..self.types.len() as TypeId {
            let name = self.name(id);
            if !name.is_empty() {
                let name = essential(name).to_owned();
                self.by_name.entry(name).or_default().push(id);
            }
        }
    }

    /// All types, with `void` first.
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// A type. `void` if there is no type with this number.
    pub fn kind(&self, id: TypeId) -> &Kind {
        self.types.get(id as usize).map_or(&Kind::Void, |ty| &ty.kind)
    }

    /// A type's name. Empty if it has none.
    pub fn name(&self, id: TypeId) -> &str {
        self.types.get(id as usize).map_or("", |ty| self.text(ty.name))
    }

    /// The name at an offset.
    pub fn text(&self, offset: u32) -> &str {
        text_at(&self.strings, offset as usize).unwrap_or("")
    }

    /// Types with the name `name`, in order. A suffix after `___` is ignored.
    pub fn named(&self, name: &str) -> &[TypeId] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The type with exactly this name that `wanted` accepts.
    pub fn find(&self, name: &str, wanted: impl Fn(&Kind) -> bool) -> Option<TypeId> {
        let candidates = self.named(essential(name));
        candidates.iter().copied().find(|&id| self.name(id) == name && wanted(self.kind(id)))
    }

    /// The struct or union with this name.
    pub fn composite(&self, name: &str) -> Option<TypeId> {
        self.find(name, |kind| matches!(kind, Kind::Composite { .. }))
    }

    /// The prototype of a function.
    pub fn prototype(&self, name: &str) -> Option<(TypeId, &[(u32, TypeId)])> {
        let function = self.find(name, |kind| matches!(kind, Kind::Function(_)))?;
        let Kind::Function(prototype) = self.kind(function) else { return None };
        match self.kind(*prototype) {
            Kind::Prototype { result, parameters } => Some((*result, parameters)),
            _ => None,
        }
    }

    /// The type behind qualifiers and typedefs. `void` if they are circular.
    pub fn plain(&self, mut id: TypeId) -> TypeId {
        for _ in 0..MOST_DEPTH {
            match self.kind(id) {
                Kind::Typedef(next) | Kind::Qualifier(next) => id = *next,
                _ => return id,
            }
        }
        0
    }

    /// Size of a type in bytes. `None` if it has no size or is not defined.
    pub fn size(&self, id: TypeId) -> Option<u32> {
        let (mut id, mut times) = (id, 1u32);
        for _ in 0..MOST_DEPTH {
            id = self.plain(id);
            let size = match self.kind(id) {
                Kind::Int { size, .. } | Kind::Enum { size, .. } | Kind::Float { size } => *size,
                Kind::Composite { size, .. } => *size,
                Kind::Pointer(_) => 8,
                Kind::Variable { of, .. } => {
                    id = *of;
                    continue;
                }
                Kind::Array { element, count } => {
                    times = times.checked_mul(*count)?;
                    id = *element;
                    continue;
                }
                _ => return None,
            };
            return times.checked_mul(size);
        }
        None
    }

    /// The member with this name in a struct or union, and its place in bits. Members without a name are searched too.
    pub fn member(&self, composite: TypeId, name: &str) -> Option<(Member, u32)> {
        self.member_within(composite, name, MOST_DEPTH)
    }

    fn member_within(&self, id: TypeId, name: &str, depth: usize) -> Option<(Member, u32)> {
        let Kind::Composite { members, .. } = self.kind(self.plain(id)) else { return None };
        let depth = depth.checked_sub(1)?;
        members.iter().find_map(|member| {
            if self.text(member.name) == name {
                return Some((*member, member.bit_offset));
            }
            if member.name != 0 && !self.text(member.name).is_empty() {
                return None;
            }
            let (found, bits) = self.member_within(member.of, name, depth)?;
            Some((found, bits.checked_add(member.bit_offset)?))
        })
    }

    /// Offset and size in bytes of a number: of a struct's member, whose name may be a path (`attempts.failed`), or of
    /// the type itself if the name is empty. Of an array, the first number counts.
    pub(crate) fn place(&self, of: TypeId, path: &str) -> Option<(usize, usize)> {
        let (mut at, mut of) = (0, of);
        for name in path.split('.').filter(|name| !name.is_empty()) {
            let (member, bits) = self.member(self.plain(of), name)?;
            (at, of) = (at + bits as usize / 8, member.of);
        }
        while let Kind::Array { element, .. } = self.kind(self.plain(of)) {
            of = *element;
        }
        let size = self.size(of).filter(|size| (1..=8).contains(size))?;
        Some((at, size as usize))
    }

    /// A type as written in C, for messages: `struct task_struct *`.
    pub fn written(&self, id: TypeId) -> String {
        self.written_within(id, MOST_DEPTH)
    }

    fn written_within(&self, id: TypeId, depth: usize) -> String {
        let Some(depth) = depth.checked_sub(1) else { return "...".to_owned() };
        let name = self.name(id);
        match self.kind(id) {
            Kind::Void => "void".to_owned(),
            Kind::Pointer(to) => format!("{} *", self.written_within(*to, depth)),
            Kind::Array { element, count } => {
                format!("{}[{count}]", self.written_within(*element, depth))
            }
            Kind::Composite { union, .. } => {
                format!("{} {name}", if *union { "union" } else { "struct" }).trim_end().to_owned()
            }
            Kind::Declared => format!("struct {name}"),
            Kind::Enum { .. } => format!("enum {name}").trim_end().to_owned(),
            Kind::Qualifier(of) => self.written_within(*of, depth),
            Kind::Prototype { .. } => "function".to_owned(),
            _ => name.to_owned(),
        }
    }
}

/// A name without its suffix after `___`, which distinguishes versions of a type on different kernels.
pub fn essential(name: &str) -> &str {
    match name.rfind("___") {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

impl Kind {
    /// The types and names that this type refers to.
    pub fn named(&self) -> (Vec<TypeId>, Vec<u32>) {
        match self {
            Kind::Void | Kind::Int { .. } | Kind::Declared | Kind::Float { .. } => (vec![], vec![]),
            Kind::Pointer(id)
            | Kind::Typedef(id)
            | Kind::Qualifier(id)
            | Kind::Function(id)
            | Kind::Tag(id) => (vec![*id], vec![]),
            Kind::Array { element, .. } => (vec![*element], vec![]),
            Kind::Variable { of, .. } => (vec![*of], vec![]),
            Kind::Composite { members, .. } => {
                members.iter().map(|member| (member.of, member.name)).unzip()
            }
            Kind::Enum { values, .. } => (vec![], values.iter().map(|value| value.0).collect()),
            Kind::Prototype { result, parameters } => {
                let (names, mut types): (Vec<u32>, Vec<TypeId>) =
                    parameters.iter().copied().unzip();
                types.push(*result);
                (types, names)
            }
            Kind::Section(variables) => (variables.iter().map(|v| v.variable).collect(), vec![]),
        }
    }
}

/// Turns structs and unions that are only declared into ones without members, in the bytes of a `.BTF` section.
pub(crate) fn define_declared(bytes: &mut [u8]) {
    let Some(header) = u32_at(bytes, 4) else { return };
    let (Some(start), Some(len)) = (u32_at(bytes, 8), u32_at(bytes, 12)) else { return };
    let mut at = (header + start) as usize;
    let end = at + len as usize;
    while at < end {
        let Some((kind, next)) = read_type(bytes, at) else { return };
        if kind == Kind::Declared {
            let union = u32_at(bytes, at + 4).unwrap_or(0) >> 31;
            bytes[at + 4..at + 8].copy_from_slice(&((4 + union) << 24).to_le_bytes());
            bytes[at + 8..at + 12].fill(0);
        }
        at = next;
    }
}

/// Reads the type that begins at `at`. Returns the type and the start of the next one.
fn read_type(bytes: &[u8], at: usize) -> Option<(Kind, usize)> {
    let info = u32_at(bytes, at + 4)?;
    // A size or another type, depending on the kind.
    let value = u32_at(bytes, at + 8)?;
    let (count, flag) = ((info & 0xffff) as usize, info >> 31 == 1);
    let body = at + 12;
    let row =
        |words: usize, index: usize, word: usize| u32_at(bytes, body + (index * words + word) * 4);
    let mut length = 0;
    let kind = match (info >> 24) & 0x1f {
        1 => {
            length = 1;
            let encoding = row(1, 0, 0)? >> 24;
            Kind::Int { size: value, signed: encoding & 1 != 0, boolean: encoding & 4 != 0 }
        }
        2 => Kind::Pointer(value),
        3 => {
            length = 3;
            Kind::Array { element: row(3, 0, 0)?, count: row(3, 0, 2)? }
        }
        kind @ (4 | 5) => {
            length = 3 * count;
            let members = (0..count).map(|index| {
                let place = row(3, index, 2)?;
                let (bit_offset, bits) =
                    if flag { (place & 0xff_ffff, (place >> 24) as u8) } else { (place, 0) };
                Some(Member { name: row(3, index, 0)?, of: row(3, index, 1)?, bit_offset, bits })
            });
            Kind::Composite {
                union: kind == 5,
                size: value,
                members: members.collect::<Option<_>>()?,
            }
        }
        6 => {
            length = 2 * count;
            let values = (0..count).map(|index| {
                let number = row(2, index, 1)?;
                let number = if flag { i64::from(number as i32) } else { i64::from(number) };
                Some((row(2, index, 0)?, number))
            });
            Kind::Enum { size: value, signed: flag, values: values.collect::<Option<_>>()? }
        }
        7 => Kind::Declared,
        8 => Kind::Typedef(value),
        9..=11 | 18 => Kind::Qualifier(value),
        12 => Kind::Function(value),
        13 => {
            length = 2 * count;
            let parameters = (0..count).map(|index| Some((row(2, index, 0)?, row(2, index, 1)?)));
            Kind::Prototype { result: value, parameters: parameters.collect::<Option<_>>()? }
        }
        14 => {
            length = 1;
            Kind::Variable { of: value, global: row(1, 0, 0)? != 0 }
        }
        15 => {
            length = 3 * count;
            let variables = (0..count).map(|index| {
                let [variable, offset, size] =
                    [row(3, index, 0)?, row(3, index, 1)?, row(3, index, 2)?];
                Some(SectionVariable { variable, offset, size })
            });
            Kind::Section(variables.collect::<Option<_>>()?)
        }
        16 => Kind::Float { size: value },
        17 => {
            length = 1;
            Kind::Tag(value)
        }
        19 => {
            length = 3 * count;
            let values = (0..count).map(|index| {
                let (low, high) = (row(3, index, 1)?, row(3, index, 2)?);
                Some((row(3, index, 0)?, (u64::from(high) << 32 | u64::from(low)) as i64))
            });
            Kind::Enum { size: value, signed: flag, values: values.collect::<Option<_>>()? }
        }
        _ => return None,
    };
    let next = body + length * 4;
    (next <= bytes.len()).then_some((kind, next))
}

impl Btf {
    /// The type behind qualifiers. Typedefs are kept, because they have a name.
    pub(crate) fn plain_named(&self, mut id: TypeId) -> TypeId {
        for _ in 0..MOST_DEPTH {
            match self.kind(id) {
                Kind::Qualifier(next) => id = *next,
                _ => return id,
            }
        }
        0
    }
}
