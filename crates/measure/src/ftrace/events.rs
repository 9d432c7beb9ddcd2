//! The scheduler's events with the fields that are used, decoded according to their formats.

use std::collections::BTreeMap;

use super::format::{self, Field, Fields};
use super::pages::RawEvent;
use crate::error::MeasureError;

/// A scheduler event. Names are as in the kernel (at most 15 bytes, in any encoding). CPUs have the operating system's
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedEvent<'a> {
    /// `sched_switch`: a CPU switches from one task to another.
    Switch {
        /// The task that stops running.
        prev: Comm<'a>,
        /// Its state: bits of `TASK_REPORT`, 0x100 for preemption.
        prev_state: i64,
        /// The task that starts to run.
        next: Comm<'a>,
    },
    /// `sched_waking`: a wakeup begins, on the waker's CPU.
    Waking {
        /// The task to be woken.
        task: Comm<'a>,
    },
    /// `sched_wakeup`: the wakeup is complete. It happens on the waker's CPU, or on the CPU where the task will run.
    Wakeup {
        /// The woken task.
        task: Comm<'a>,
        /// The CPU where the task will run.
        target_cpu: u32,
    },
    /// `sched_wakeup_new`: a new task is about to run for the first time.
    WakeupNew {
        /// The new task.
        task: Comm<'a>,
        /// The CPU where the task will run.
        target_cpu: u32,
    },
    /// `sched_migrate_task`: a task that is not running is assigned to another CPU.
    Migrate {
        /// The task.
        task: Comm<'a>,
        /// The old CPU.
        orig_cpu: u32,
        /// The new CPU.
        dest_cpu: u32,
    },
    /// `sched_process_fork`: a task is created.
    Fork {
        /// The task that calls fork.
        parent: Comm<'a>,
        /// The new task.
        child: Comm<'a>,
    },
    /// `sched_process_exit`: a task is about to end.
    Exit {
        /// The task.
        task: Comm<'a>,
    },
    /// `sched_process_exec`: a task starts another program.
    Exec {
        /// The task, named by the program's file.
        task: Comm<'a>,
        /// Its number before. It differs if a thread other than the process's first one called exec.
        old_pid: u32,
    },
}

/// A task, as named in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comm<'a> {
    /// Its number; 0 is the idle task.
    pub pid: u32,
    /// Its name at this moment.
    pub comm: &'a [u8],
}

/// Where an event has the fields of a task.
#[derive(Clone, Copy, Debug)]
struct CommFields {
    pid: Field,
    comm: Field,
}

/// Where the fields of one kind of event are.
#[derive(Clone, Copy, Debug)]
enum Decoder {
    Switch { prev: CommFields, prev_state: Field, next: CommFields },
    Waking { task: CommFields },
    Wakeup { task: CommFields, target_cpu: Field },
    WakeupNew { task: CommFields, target_cpu: Field },
    Migrate { task: CommFields, orig_cpu: Field, dest_cpu: Field },
    Fork { parent: CommFields, child: CommFields },
    Exit { task: CommFields },
    Exec { task: CommFields, old_pid: Field },
}

/// The events whose formats are needed, by their names in tracefs.
pub const EVENTS: [&str; 8] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "sched_process_fork",
    "sched_process_exit",
    "sched_process_exec",
];

impl CommFields {
    fn of(fields: &Fields, pid: &str, comm: &str) -> Result<Self, MeasureError> {
        Ok(Self { pid: fields.get(pid)?, comm: fields.get(comm)? })
    }

    fn decode<'a>(&self, data: &'a [u8]) -> Option<Comm<'a>> {
        Some(Comm { pid: number(self.pid, data)?, comm: self.comm.text(data)? })
    }
}

fn number(field: Field, data: &[u8]) -> Option<u32> {
    u32::try_from(field.integer(data)?).ok()
}

impl Decoder {
    /// The decoder for the event `name`, one of [`EVENTS`].
    fn of(name: &str, fields: &Fields) -> Result<Option<Self>, MeasureError> {
        let task = || CommFields::of(fields, "pid", "comm");
        Ok(Some(match name {
            "sched_switch" => Self::Switch {
                prev: CommFields::of(fields, "prev_pid", "prev_comm")?,
                prev_state: fields.get("prev_state")?,
                next: CommFields::of(fields, "next_pid", "next_comm")?,
            },
            "sched_waking" => Self::Waking { task: task()? },
            "sched_wakeup" => Self::Wakeup { task: task()?, target_cpu: fields.get("target_cpu")? },
            "sched_wakeup_new" => {
                Self::WakeupNew { task: task()?, target_cpu: fields.get("target_cpu")? }
            }
            "sched_migrate_task" => Self::Migrate {
                task: task()?,
                orig_cpu: fields.get("orig_cpu")?,
                dest_cpu: fields.get("dest_cpu")?,
            },
            "sched_process_fork" => Self::Fork {
                parent: CommFields::of(fields, "parent_pid", "parent_comm")?,
                child: CommFields::of(fields, "child_pid", "child_comm")?,
            },
            "sched_process_exit" => Self::Exit { task: task()? },
            "sched_process_exec" => Self::Exec {
                task: CommFields::of(fields, "pid", "filename")?,
                old_pid: fields.get("old_pid")?,
            },
            _ => return Ok(None),
        }))
    }

    /// Decodes an event. `None` if `data` is too short, or contains an impossible number of a task or CPU.
    fn decode<'a>(&self, data: &'a [u8]) -> Option<SchedEvent<'a>> {
        Some(match *self {
            Self::Switch { prev, prev_state, next } => SchedEvent::Switch {
                prev: prev.decode(data)?,
                prev_state: prev_state.integer(data)?,
                next: next.decode(data)?,
            },
            Self::Waking { task } => SchedEvent::Waking { task: task.decode(data)? },
            Self::Wakeup { task, target_cpu } => SchedEvent::Wakeup {
                task: task.decode(data)?,
                target_cpu: number(target_cpu, data)?,
            },
            Self::WakeupNew { task, target_cpu } => SchedEvent::WakeupNew {
                task: task.decode(data)?,
                target_cpu: number(target_cpu, data)?,
            },
            Self::Migrate { task, orig_cpu, dest_cpu } => SchedEvent::Migrate {
                task: task.decode(data)?,
                orig_cpu: number(orig_cpu, data)?,
                dest_cpu: number(dest_cpu, data)?,
            },
            Self::Fork { parent, child } => {
                SchedEvent::Fork { parent: parent.decode(data)?, child: child.decode(data)? }
            }
            Self::Exit { task } => SchedEvent::Exit { task: task.decode(data)? },
            Self::Exec { task, old_pid } => {
                SchedEvent::Exec { task: task.decode(data)?, old_pid: number(old_pid, data)? }
            }
        })
    }
}

/// The decoders of all events, by the number of the kind in the buffer.
#[derive(Clone, Debug)]
pub(crate) struct Decoders {
    /// The field with the number of the kind, which all events have at the same place.
    kind: Field,
    decoders: BTreeMap<u16, Decoder>,
}

impl Decoders {
    /// From the `format` files of [`EVENTS`], in that order. Each is its name for errors, and its text.
    pub fn parse(formats: &[(String, String); EVENTS.len()]) -> Result<Self, MeasureError> {
        let mut decoders = BTreeMap::new();
        let mut kind = None;
        for (name, (file, text)) in EVENTS.iter().zip(formats) {
            let fields = Fields::parse(file, text)?;
            let field = fields.get("common_type")?;
            if kind.is_some_and(|kind| kind != field) {
                return Err(mismatch(file, "its common_type is not where other events have it"));
            }
            kind = Some(field);
            if let Some(decoder) = Decoder::of(name, &fields)?
                && decoders.insert(format::id(file, text)?, decoder).is_some()
            {
                return Err(mismatch(file, "its ID is another event's"));
            }
        }
        let missing = || mismatch("trace/format", "no formats");
        Ok(Self { kind: kind.ok_or_else(missing)?, decoders })
    }

    /// The event in `raw`. `None` if its kind is unknown, because another tool traces too.
    pub fn decode<'a>(&self, raw: &RawEvent<'a>) -> Result<Option<SchedEvent<'a>>, &'static str> {
        let kind = self.kind.integer(raw.data).ok_or("an event has no type")?;
        let decoder = u16::try_from(kind).ok().and_then(|kind| self.decoders.get(&kind));
        let Some(decoder) = decoder else { return Ok(None) };
        let wrong = "an event is shorter than its format or names an impossible task or CPU";
        decoder.decode(raw.data).map(Some).ok_or(wrong)
    }
}

fn mismatch(file: &str, problem: &str) -> MeasureError {
    MeasureError::Mismatch {
        file: file.to_owned(),
        problem: problem.to_owned(),
        remedy: crate::error::MEASURE_AGAIN,
    }
}
