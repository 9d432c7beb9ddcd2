//! One measurement: a workload under a scheduler, as files and variables of `measure.sh`.

use std::path::PathBuf;

use crate::error::RealError;
use crate::knobs::{Knobs, Write};
use crate::program::Workload;
use crate::scheduler::RealScheduler;

/// The script that measures.
pub(crate) const SCRIPT: &str = include_str!("measure.sh");

/// Its name in a measurement's folder.
pub(crate) const SCRIPT_NAME: &str = "measure.sh";

/// How long a seed can delay a workload, ms: more than a balancing interval of the machines that
/// are emulated (32 CPUs: 32 to 64 ms), so that repeats meet the kernel in different states.
const DELAYS_MS: u64 = 100;

/// What differs from one measurement to the next.
#[derive(Clone, Debug)]
pub struct Measurement<'a> {
    /// What runs.
    pub workload: &'a Workload,
    /// Under what.
    pub scheduler: &'a RealScheduler,
    /// Delays the workload's start.
    pub seed: u64,
    /// Size of each CPU's trace buffer, KiB, if every switch and wakeup is to be recorded.
    pub stream_kib: Option<u32>,
}

/// A file of a measurement's folder.
pub(crate) enum Contents {
    Bytes(Vec<u8>),
    /// A copy of this file, which may be a program.
    Copy(PathBuf),
}

impl Measurement<'_> {
    /// The files that `measure.sh` needs beside it, itself included, on a kernel with these settings.
    pub(crate) fn files(&self, knobs: &Knobs) -> Result<Vec<(String, Contents)>, RealError> {
        let text = |text: String| Contents::Bytes(text.into_bytes());
        let name = &self.scheduler.name;
        let settings = self.scheduler.settings.iter();
        let writes =
            settings.map(|setting| knobs.resolve(name, setting)).collect::<Result<Vec<_>, _>>()?;
        let line = |write: &Write| format!("{} {}\n", write.file, write.value);
        let mut files = vec![
            (SCRIPT_NAME.to_owned(), text(SCRIPT.to_owned())),
            ("workload.sh".to_owned(), text(self.workload.script.clone())),
            ("knobs".to_owned(), text(writes.iter().flatten().map(line).collect())),
        ];
        let own = self.workload.files.iter();
        files.extend(own.map(|(name, bytes)| (name.clone(), Contents::Bytes(bytes.clone()))));
        if let Some(program) = &self.scheduler.program {
            let arguments: Vec<String> =
                program.arguments.iter().map(|word| quoted(word)).collect();
            let script = format!("exec ./scheduler {}\n", arguments.join(" "));
            files.push(("scheduler.sh".to_owned(), text(script)));
            files.push(("scheduler".to_owned(), Contents::Copy(program.path.clone())));
        }
        Ok(files)
    }

    /// The environment of `measure.sh`, apart from `ROOST_OUT`.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        // 37 and 100 have no common factor: all delays occur.
        let delay_ms = self.seed.wrapping_mul(37) % DELAYS_MS;
        let mut variables = vec![("ROOST_DELAY", format!("0.{delay_ms:03}"))];
        if self.workload.own_window {
            variables.push(("ROOST_WINDOW", "1".to_owned()));
        }
        if let Some(filter) = self.workload.filter() {
            variables.push(("ROOST_TASKS", filter));
        }
        if let Some(kib) = self.stream_kib {
            variables.push(("ROOST_STREAM_KB", kib.to_string()));
        }
        variables
    }
}

/// A word as bash reads it back unchanged.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
