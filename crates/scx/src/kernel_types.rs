//! The types of a kernel: those shipped with this program, or those of a file.
//!
//! The shipped types are the BTF of Debian's kernel 7.2.13. `examples/reduce_btf.rs` reduced them to what sched_ext
//! schedulers read and call: some structs are whole, all others are only declared. `docs/scx.md` has the command.

use object::{Architecture, Object as _};

use crate::btf::{Btf, Kind};
use crate::error::ScxError;
use crate::object::{Elf, section_bytes};

/// Types of a kernel.
#[derive(Clone, Debug)]
pub struct KernelTypes {
    /// Where the types come from, for messages.
    pub source: String,
    /// The types.
    pub btf: Btf,
    /// Whether most structs are only declared.
    pub reduced: bool,
}

const SHIPPED: &[u8] = include_bytes!("../kernel/7.2.13.btf");

/// The kernel version of the shipped types.
pub const SHIPPED_VERSION: &str = "7.2.13";

/// The number of this version, as in LINUX_KERNEL_VERSION.
pub(crate) const SHIPPED_CODE: u64 = (7 << 16) | (2 << 8) | 13;

impl KernelTypes {
    /// The value of an enumerator, in any enumeration.
    pub fn enumerator(&self, name: &str) -> Option<i64> {
        self.btf.types().iter().find_map(|ty| {
            let Kind::Enum { values, .. } = &ty.kind else { return None };
            values.iter().find(|(known, _)| self.btf.text(*known) == name).map(|(_, value)| *value)
        })
    }

    /// The offset of a member of a struct, in bytes: `("task_struct", "scx.slice")`.
    ///
    /// # Errors
    /// If the kernel does not have the member.
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

    /// Size of a struct in bytes.
    ///
    /// # Errors
    /// If the kernel does not have the struct.
    pub fn struct_size(&self, of: &str) -> Result<usize, ScxError> {
        let size = self.btf.composite(of).and_then(|id| self.btf.size(id));
        Ok(size.ok_or_else(|| ScxError::btf(format!("the kernel has no {of}")))? as usize)
    }

    /// The types that are shipped with this program.
    ///
    /// # Errors
    /// None, unless this program is damaged.
    pub fn shipped() -> Result<Self, ScxError> {
        let source = format!("Linux {SHIPPED_VERSION}");
        Ok(Self { source, btf: Btf::parse(SHIPPED)?, reduced: true })
    }

    /// The shipped types as the file `/sys/kernel/btf/vmlinux` that a loader reads. Structs that are only declared
    /// become structs without members, because loaders compare the parameters of kfuncs by kind.
    pub fn shipped_file() -> Vec<u8> {
        let mut bytes = SHIPPED.to_vec();
        crate::btf::define_declared(&mut bytes);
        bytes
    }

    /// Reads types from `/sys/kernel/btf/vmlinux`, or from an ELF file with such a section (`vmlinux`).
    ///
    /// # Errors
    /// If the file is neither.
    pub fn parse(source: &str, bytes: &[u8]) -> Result<Self, ScxError> {
        let btf = match Elf::parse(bytes) {
            Ok(elf) if elf.architecture() == Architecture::Bpf => {
                return Err(ScxError::KernelBtf("a BPF object".to_owned()));
            }
            Ok(elf) if elf.section_by_name(".BTF").is_some() => {
                Btf::parse(section_bytes(&elf, ".BTF")?)
            }
            Ok(_) => return Err(ScxError::KernelBtf("no .BTF section".to_owned())),
            Err(_) => Btf::parse(bytes),
        };
        let btf = btf.map_err(|error| match error {
            ScxError::Btf(why) => ScxError::KernelBtf(why),
            other => other,
        })?;
        Ok(Self { source: source.to_owned(), btf, reduced: false })
    }
}
