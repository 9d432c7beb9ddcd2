//! What can be wrong with an object.

/// Why an object, or a kernel's type information, cannot be used: one line, without the file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScxError {
    /// It is no ELF file for BPF.
    #[error("not a BPF object ({0}); give what `clang --target=bpf -g -c` wrote")]
    NotBpf(String),
    /// It has no type information.
    #[error("no {0} section: compile the object with -g")]
    NoSection(&'static str),
    /// Its type information contradicts itself.
    #[error("broken type information (BTF): {0}; compile the object again")]
    Btf(String),
    /// Some other part of it contradicts itself.
    #[error("broken object: {0}; compile it again")]
    Broken(String),
    /// It defines no scheduler.
    #[error(
        "no struct sched_ext_ops in a .struct_ops section: this object is no sched_ext scheduler"
    )]
    NoScheduler,
    /// It defines several schedulers.
    #[error("several schedulers ({0}); the simulation runs objects that define one")]
    SeveralSchedulers(String),
    /// A field's place on the kernel is not known, because its type information was reduced.
    #[error(
        "{0} is not in the kernel's type information that comes with this program; add --btf with /sys/kernel/btf/vmlinux of that kernel"
    )]
    Reduced(String),
    /// The object asks the kernel's types something that is not implemented.
    #[error("relocation kind {kind} of {name}: not supported")]
    Relocation {
        /// The kind's number in the kernel's `enum bpf_core_relo_kind`.
        kind: u32,
        /// The type that it is about.
        name: String,
    },
    /// A setting is not one of the object's, or its value does not fit.
    #[error("{0}")]
    Setting(String),
    /// The object needs what the simulation does not have.
    #[error("the simulation does not have {0}")]
    Lacks(String),
    /// The kernel has several types of that name that disagree.
    #[error("{0}: the kernel has several types of this name that disagree")]
    Ambiguous(String),
}

impl ScxError {
    pub(crate) fn btf(what: impl Into<String>) -> Self {
        Self::Btf(what.into())
    }

    pub(crate) fn broken(what: impl Into<String>) -> Self {
        Self::Broken(what.into())
    }
}
