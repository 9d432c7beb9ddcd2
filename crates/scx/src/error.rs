//! Errors of objects.

/// Why an object, or a kernel's type information, cannot be used: one line, without the file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScxError {
    /// The file is not an ELF file for BPF.
    #[error("not a BPF object ({}); give what `clang --target=bpf -g -c` wrote", line(.0))]
    NotBpf(String),
    /// The object has no type information.
    #[error("no {0} section: compile the object with -g")]
    NoSection(&'static str),
    /// The type information contradicts itself.
    #[error("broken type information (BTF): {}; compile the object again", line(.0))]
    Btf(String),
    /// The file that should have the kernel's types has none, or they contradict themselves.
    #[error(
        "no type information of a kernel ({}); give a kernel's /sys/kernel/btf/vmlinux, or a vmlinux with BTF",
        line(.0)
    )]
    KernelBtf(String),
    /// Another part of the object contradicts itself.
    #[error("broken object: {}; compile it again", line(.0))]
    Broken(String),
    /// The object defines no scheduler.
    #[error(
        "no struct sched_ext_ops in a .struct_ops section: this object is no sched_ext scheduler"
    )]
    NoScheduler,
    /// The object defines several schedulers.
    #[error("several schedulers ({}); the simulation runs objects that define one", line(.0))]
    SeveralSchedulers(String),
    /// The place of a field in the kernel is not known, because the kernel's type information was reduced.
    #[error(
        "{} is not in the kernel's type information that comes with this program; add --btf with \
         /sys/kernel/btf/vmlinux of that kernel",
        line(.0)
    )]
    Reduced(String),
    /// The object asks a question about the kernel's types that is not implemented.
    #[error("relocation kind {kind} of {}: not supported", line(name))]
    Relocation {
        /// The kind of the question, as in the kernel's `enum bpf_core_relo_kind`.
        kind: u32,
        /// The type in question.
        name: String,
    },
    /// The object has no such setting, or the value does not fit.
    #[error("{}", line(.0))]
    Setting(String),
    /// The object needs something that the simulation does not have.
    #[error("the simulation does not have {}", line(.0))]
    Lacks(String),
    /// The kernel would not take the scheduler.
    #[error("the kernel refuses this scheduler: {}", line(.0))]
    Refused(String),
    /// The kernel has several types with this name, which disagree.
    #[error("{}: the kernel has several types of this name that disagree", line(.0))]
    Ambiguous(String),
}

impl ScxError {
    /// Whether a setting is wrong that the user gave, not the object.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Setting(_))
    }

    pub(crate) fn btf(what: impl Into<String>) -> Self {
        Self::Btf(what.into())
    }

    pub(crate) fn broken(what: impl Into<String>) -> Self {
        Self::Broken(what.into())
    }
}

/// Text that may contain names from the object, as one line.
fn line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_line_break_makes_no_second_line() {
        let error = ScxError::broken("map a\nb");
        assert_eq!(error.to_string(), "broken object: map a?b; compile it again");
    }
}
