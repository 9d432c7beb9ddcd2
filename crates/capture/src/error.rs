//! Errors of captures.

/// Why a program could not be captured: one line that names it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{program}: {why}")]
pub struct CaptureError {
    /// The program.
    pub program: String,
    /// The problem.
    pub why: Why,
}

impl CaptureError {
    /// Whether the user asked to end it.
    pub fn is_interrupted(&self) -> bool {
        self.why == Why::Interrupted
    }

    /// Whether the command line is wrong. Otherwise the program failed, or cannot run here.
    pub fn is_usage(&self) -> bool {
        matches!(self.why, Why::Quote | Why::NotFound | Why::NotExecutable)
    }
}

/// What is wrong with a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The command line cannot be split into words.
    #[error("a quote has no end; write it as a shell takes it")]
    Quote,
    /// There is no such program.
    #[error("no such program; give its path, or install it into a folder of PATH")]
    NotFound,
    /// The file is no program.
    #[error("not executable; for an object write scx:FILE.bpf.o")]
    NotExecutable,
    /// It could not be started.
    #[error("cannot be started: {0}")]
    Start(String),
    /// This kernel lacks something.
    #[error("starting it needs {0}; give the scheduler's object instead: scx:FILE.bpf.o")]
    Host(&'static str),
    /// Programs of Linux do not run here.
    #[error(
        "a program is started on Linux only, on x86-64 or arm64; an object runs everywhere: scx:FILE.bpf.o"
    )]
    Platform,
    /// It ended too early.
    #[error("{how} before it attached a scheduler, so there is none to simulate{said}")]
    Ended {
        /// How it ended.
        how: String,
        /// What it asked for in vain, and what it printed.
        said: String,
    },
    /// It takes too long.
    #[error(
        "did not attach a scheduler within {seconds} s; give its object instead: scx:FILE.bpf.o{said}"
    )]
    TooSlow {
        /// The time that it had.
        seconds: u64,
        /// What it asked for in vain, and what it printed.
        said: String,
    },
    /// The user asked to end it.
    #[error("interrupted")]
    Interrupted,
    /// It needs something that is not emulated.
    #[error("asks for {0}, which is not emulated")]
    Lacks(String),
}
