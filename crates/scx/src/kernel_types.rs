//! The types of a kernel: those that come with this program, or of a file.
//!
//! What comes along is the BTF of Debian's 7.2.13, reduced by `examples/reduce_btf.rs` to what sched_ext
//! schedulers read and call: some structs whole, all others by name only. `docs/scx.md` has the command.

use std::io::Read;

use object::Object as _;

use crate::btf::{Btf, Kind};
use crate::error::ScxError;
use crate::object::{Elf, section_bytes};

/// Types of a kernel.
#[derive(Clone, Debug)]
pub struct KernelTypes {
    /// Where they are from, for people.
    pub source: String,
    /// The types.
    pub btf: Btf,
    /// Whether most structs are only declared.
    pub reduced: bool,
}

const SHIPPED: &[u8] = include_bytes!("../kernel/7.2.13.btf.xz");

/// Of which kernel the shipped types are.
pub const SHIPPED_VERSION: &str = "7.2.13";

/// Its number, as LINUX_KERNEL_VERSION has it.
pub(crate) const SHIPPED_CODE: u64 = (7 << 16) | (2 << 8) | 13;

/// What an xz file that comes with this program holds.
pub(crate) fn unpacked(packed: &[u8]) -> Result<Vec<u8>, ScxError> {
    let mut bytes = Vec::new();
    lzma_rust2::XzReader::new(packed, false)
        .read_to_end(&mut bytes)
        .map_err(|error| ScxError::broken(error.to_string()))?;
    Ok(bytes)
}

impl KernelTypes {
    /// The value of an enumerator, of whatever enumeration.
    pub fn enumerator(&self, name: &str) -> Option<i64> {
        self.btf.types().iter().find_map(|ty| {
            let Kind::Enum { values, .. } = &ty.kind else { return None };
            values.iter().find(|(known, _)| self.btf.text(*known) == name).map(|(_, value)| *value)
        })
    }

    /// Where a member of a struct is, in bytes: `("task_struct", "scx.slice")`.
    ///
    /// # Errors
    /// If the kernel does not have it.
    pub fn offset(&self, of: &str, path: &str) -> Result<u64, ScxError> {
        let missing = || ScxError::btf(format!("the kernel has no {of}.{path}"));
        let mut at = self.btf.composite(of).ok_or_else(missing)?;
        let mut bits = 0;
        for name in path.split('.') {
            let (member, place) = self.btf.member(at, name).ok_or_else(missing)?;
            bits += u64::from(place);
            at = self.btf.plain(member.of);
        }
        Ok(bits / 8)
    }

    /// Bytes of a struct.
    ///
    /// # Errors
    /// If the kernel does not have it.
    pub fn struct_size(&self, of: &str) -> Result<usize, ScxError> {
        let size = self.btf.composite(of).and_then(|id| self.btf.size(id));
        Ok(size.ok_or_else(|| ScxError::btf(format!("the kernel has no {of}")))? as usize)
    }

    /// Those that come with this program.
    ///
    /// # Errors
    /// None, unless this program is damaged.
    pub fn shipped() -> Result<Self, ScxError> {
        let bytes = unpacked(SHIPPED)?;
        let source = format!("Linux {SHIPPED_VERSION}");
        Ok(Self { source, btf: Btf::parse(&bytes)?, reduced: true })
    }

    /// From `/sys/kernel/btf/vmlinux`, or an ELF file that has it as a section (`vmlinux`).
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(source: &str, bytes: &[u8]) -> Result<Self, ScxError> {
        let btf = match Elf::parse(bytes) {
            Ok(elf) if elf.section_by_name(".BTF").is_some() => {
                Btf::parse(section_bytes(&elf, ".BTF")?)?
            }
            _ => Btf::parse(bytes)?,
        };
        Ok(Self { source: source.to_owned(), btf, reduced: false })
    }
}
