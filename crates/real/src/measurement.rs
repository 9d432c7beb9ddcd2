//! One measurement: a workload under a scheduler, converted to files and variables for `measure.sh`.

use std::path::PathBuf;

use crate::error::RealError;
use crate::knobs::{Knobs, Write};
use crate::program::Workload;
use crate::scheduler::{COUNTERS, RealScheduler};

/// The script that measures.
pub(crate) const SCRIPT: &str = include_str!("measure.sh");

/// Its name in a measurement's folder.
pub(crate) const SCRIPT_NAME: &str = "measure.sh";

/// Largest delay of a workload by its seed, in ms. It is longer than a balancing interval of the emulated machines (32
/// CPUs: 32 to 64 ms), so that repeats meet the kernel in different states.
const DELAYS_MS: u64 = 100;

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub struct Measurement<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// The scheduler.
    pub scheduler: &'a RealScheduler,
    /// The seed, which delays the workload's start.
    pub seed: u64,
    /// Size of each CPU's trace buffer in KiB, if every switch and wakeup shall be recorded.
    pub stream_kib: Option<u32>,
}

/// A file of a measurement's folder.
pub(crate) enum Contents {
    Bytes(Vec<u8>),
    /// A copy of this file, which may be a program.
    Copy(PathBuf),
}

impl Measurement<'_> {
    /// The files of a measurement, including `measure.sh`, for a kernel with these settings.
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
        let server = self.workload.server.clone();
        files.extend(server.map(|script| ("server.sh".to_owned(), text(script))));
        let own = self.workload.files.iter();
        files.extend(own.map(|(name, bytes)| (name.clone(), Contents::Bytes(bytes.clone()))));
        if let Some(program) = &self.scheduler.program {
            let arguments: Vec<String> =
                program.arguments.iter().map(|word| quoted(word)).collect();
            // A scheduler that is asked for its counters answers at once, even if all CPUs are busy.
            let nice = if program.serves_counters { "nice -n -20 " } else { "" };
            let script = format!("exec {nice}./scheduler {}\n", arguments.join(" "));
            files.push(("scheduler.sh".to_owned(), text(script)));
            files.push(("scheduler".to_owned(), Contents::Copy(program.path.clone())));
        }
        Ok(files)
    }

    /// The environment of `measure.sh`, except `ROOST_OUT`.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        // 37 and 100 have no common factor, so all delays occur.
        let delay_ms = self.seed.wrapping_mul(37) % DELAYS_MS;
        let mut variables = vec![("ROOST_DELAY", format!("0.{delay_ms:03}"))];
        if self.workload.own_window {
            variables.push(("ROOST_WINDOW", "1".to_owned()));
        }
        if let Some(filter) = self.workload.filter() {
            variables.push(("ROOST_TASKS", filter));
        }
        if let Some([call, task]) = self.workload.calls.filter(|_| self.workload.counts_calls) {
            variables.push(("ROOST_CALLS", format!("{call} {task}")));
        }
        if self.scheduler.program.iter().any(|program| program.serves_counters) {
            let (address, port) = COUNTERS;
            variables.push(("ROOST_COUNTERS", format!("{address}/{port}")));
        }
        if let Some(kib) = self.stream_kib {
            variables.push(("ROOST_STREAM_KB", kib.to_string()));
        }
        variables
    }
}

/// Quotes a word for bash.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
