//! What tasks share and wait for: mutexes, conditions, barriers, channels, timers.

use std::collections::VecDeque;

use roost_workload::{Channel, Workload};

use crate::scheduler::TaskId;
use crate::time::Time;

/// A mutex. A released mutex is free for whoever runs first, as with futexes: the waiter that is
/// woken tries again.
#[derive(Default)]
pub(crate) struct Mutex {
    pub owner: Option<TaskId>,
    pub waiters: VecDeque<TaskId>,
}

#[derive(Default)]
pub(crate) struct Barrier {
    pub parties: u32,
    pub waiting: Vec<TaskId>,
}

/// A pipe or socket.
pub(crate) struct ChannelState {
    pub spec: Channel,
    pub used_bytes: u32,
    /// Sizes of the writes that are not yet read, where reads keep them apart.
    pub messages: VecDeque<u32>,
    pub readers: VecDeque<TaskId>,
    pub writers: VecDeque<TaskId>,
}

impl ChannelState {
    /// Writes if there is room.
    pub(crate) fn write(&mut self, bytes: u32) -> bool {
        if self.used_bytes > 0 && self.used_bytes + bytes > self.spec.capacity_bytes {
            return false;
        }
        self.used_bytes += bytes;
        if self.spec.messages {
            self.messages.push_back(bytes);
        }
        true
    }

    /// Reads one message, or up to `bytes` of a stream; false if there is nothing.
    pub(crate) fn read(&mut self, bytes: u32) -> bool {
        let taken = if self.spec.messages {
            self.messages.pop_front().unwrap_or(0)
        } else {
            self.used_bytes.min(bytes)
        };
        self.used_bytes -= taken;
        taken > 0
    }
}

/// Everything that tasks of one run share.
pub(crate) struct Shared {
    pub mutexes: Vec<Mutex>,
    pub conditions: Vec<VecDeque<TaskId>>,
    pub barriers: Vec<Barrier>,
    pub channels: Vec<ChannelState>,
    pub timers: Vec<Option<Time>>,
    /// Event counters of the workload.
    pub counts: Vec<u64>,
}

impl Shared {
    pub(crate) fn new(workload: &Workload) -> Self {
        Self {
            mutexes: (0..workload.mutexes).map(|_| Mutex::default()).collect(),
            conditions: vec![VecDeque::new(); workload.conditions as usize],
            barriers: workload
                .barriers
                .iter()
                .map(|&parties| Barrier { parties, waiting: Vec::new() })
                .collect(),
            channels: workload
                .channels
                .iter()
                .map(|spec| ChannelState {
                    spec: spec.clone(),
                    used_bytes: 0,
                    messages: VecDeque::new(),
                    readers: VecDeque::new(),
                    writers: VecDeque::new(),
                })
                .collect(),
            timers: vec![None; workload.shared_timers as usize],
            counts: vec![0; workload.counters as usize],
        }
    }
}
