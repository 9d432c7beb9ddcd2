//! Pipes and sockets: reads, writes, and whom they wake.
//!
//! A pipe has the rules of `pipe_read()` and `pipe_write()` (`fs/pipe.c` of Linux). Tasks hold its mutex while they
//! look at it, and release it before they sleep. Wakeups that a read or write brings happen when it has released the
//! mutex. A socket of the Unix domain has those of `net/unix/af_unix.c`.

use std::collections::VecDeque;

use roost_workload::{Channel, ChannelKind, Workload, costs};

use crate::interpret::Step;
use crate::run::Engine;
use crate::scheduler::{CpuId, Scheduler, TaskId};

/// A pipe or socket. What most reads and writes of a socket use is in the first cache line.
#[repr(C, align(64))]
pub(crate) struct ChannelState {
    pub spec: Channel,
    /// What is unread of a socket, in the unit of its capacity.
    pub used_bytes: u32,
    pub readers: VecDeque<TaskId>,
    pub writers: VecDeque<TaskId>,
    /// Sizes of the unread writes, if reads keep messages apart.
    pub messages: VecDeque<u32>,
    /// What is unread of a pipe.
    pub ring: Ring,
}

/// The ring of a pipe.
#[derive(Default)]
pub(crate) struct Ring {
    /// Number of pages that it has.
    pages: usize,
    /// Unread bytes of each page in use, the oldest first.
    unread: VecDeque<u32>,
    /// Bytes of the last page that were ever written.
    end: u32,
    /// Whether a reader is to be woken when the mutex is released.
    wake_reader: bool,
    /// Whether a writer is.
    wake_writer: bool,
}

impl Ring {
    fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }

    fn is_full(&self) -> bool {
        self.unread.len() == self.pages
    }

    /// Whether a read or write has to wait.
    fn blocks(&self, how: &Use) -> bool {
        if how.writes { self.is_full() } else { self.is_empty() }
    }

    /// Reads or writes up to `bytes`, and returns how many. `slept`: the task has waited for that.
    fn transfer(&mut self, writes: bool, bytes: u32, slept: bool) -> u32 {
        let moved = if writes {
            self.wake_reader |= self.is_empty();
            self.wake_writer |= slept;
            self.write(bytes, !slept)
        } else {
            self.wake_reader |= slept;
            self.read(bytes)
        };
        self.wake_reader &= !self.is_empty();
        self.wake_writer &= !self.is_full();
        moved
    }

    /// The part of a write that fills no page goes into the last page, if all of it fits. A write that has waited for
    /// a page does not look there (`merges`).
    fn write(&mut self, bytes: u32, merges: bool) -> u32 {
        let mut left = bytes;
        let part = bytes % costs::PIPE_PAGE_BYTES;
        if merges
            && self.end + part <= costs::PIPE_PAGE_BYTES
            && let Some(last) = self.unread.back_mut()
        {
            *last += part;
            self.end += part;
            left -= part;
        }
        while left > 0 && !self.is_full() {
            self.end = left.min(costs::PIPE_PAGE_BYTES);
            self.unread.push_back(self.end);
            left -= self.end;
        }
        bytes - left
    }

    /// A writer is to be woken if the read frees a page of a full ring.
    fn read(&mut self, bytes: u32) -> u32 {
        let mut left = bytes;
        while left > 0
            && let Some(first) = self.unread.front_mut()
        {
            let taken = left.min(*first);
            left -= taken;
            *first -= taken;
            if *first == 0 {
                self.wake_writer |= self.is_full();
                self.unread.pop_front();
            }
        }
        bytes - left
    }
}

impl ChannelState {
    pub(crate) fn all_of(workload: &Workload) -> Vec<Self> {
        let state = |spec: &Channel| Self {
            spec: spec.clone(),
            used_bytes: 0,
            messages: VecDeque::new(),
            ring: Ring {
                pages: spec.capacity_bytes.div_ceil(costs::PIPE_PAGE_BYTES) as usize,
                ..Ring::default()
            },
            readers: VecDeque::new(),
            writers: VecDeque::new(),
        };
        workload.channels.iter().map(state).collect()
    }

    /// Writes to a socket if there is room.
    fn write(&mut self, bytes: u32) -> bool {
        let (used, capacity) = (self.used_bytes, self.spec.capacity_bytes);
        if self.spec.kind == ChannelKind::Unix {
            // sock_alloc_send_pskb()
            if used >= capacity {
                return false;
            }
            self.used_bytes += costs::unix_message_bytes(bytes);
            return true;
        }
        if used > 0 && used + bytes > capacity {
            return false;
        }
        self.used_bytes += bytes;
        if self.spec.kind == ChannelKind::Messages {
            self.messages.push_back(bytes);
        }
        true
    }

    /// Reads one message from a socket, or up to `bytes` of a stream; false if there is nothing.
    fn read(&mut self, bytes: u32) -> bool {
        let taken = match self.spec.kind {
            ChannelKind::Messages => self.messages.pop_front().unwrap_or(0),
            ChannelKind::Unix => self.used_bytes.min(costs::unix_message_bytes(bytes)),
            _ => self.used_bytes.min(bytes),
        };
        self.used_bytes -= taken;
        taken > 0
    }

    /// Whether waiting writers of a Unix socket go on (`unix_writable()`).
    fn has_space(&self) -> bool {
        u64::from(self.used_bytes) * 4 <= u64::from(self.spec.capacity_bytes)
    }
}

impl<S: Scheduler> Engine<'_, S> {
    pub(crate) fn send(&mut self, cpu: CpuId, id: TaskId, index: u32, bytes: u32) -> Step {
        let channel = &mut self.shared.channels[index as usize];
        if let ChannelKind::Pipe { mutex } = channel.spec.kind {
            return self.use_pipe(cpu, id, index, mutex, &Use { bytes, writes: true });
        }
        if !channel.write(bytes) {
            channel.writers.push_back(id);
            return Step::BlockedRetry;
        }
        let (sync, softirq_ns) = (channel.spec.sync_wakeup, channel.spec.softirq_ns);
        let reader = channel.readers.pop_front();
        if softirq_ns == 0 {
            return self.wake_from(cpu, id, reader, sync);
        }
        self.world.ran_softirq(cpu, id, softirq_ns);
        let before = self.world.charged_ns(cpu);
        let step = self.wake_from(cpu, id, reader, sync);
        self.world.end_interrupt(cpu, before);
        step
    }

    pub(crate) fn receive(&mut self, cpu: CpuId, id: TaskId, index: u32, bytes: u32) -> Step {
        let channel = &mut self.shared.channels[index as usize];
        if let ChannelKind::Pipe { mutex } = channel.spec.kind {
            return self.use_pipe(cpu, id, index, mutex, &Use { bytes, writes: false });
        }
        if !channel.read(bytes) {
            channel.readers.push_back(id);
            return Step::BlockedRetry;
        }
        let sync = channel.spec.sync_wakeup;
        if channel.spec.kind == ChannelKind::Unix {
            if !channel.writers.is_empty() && channel.has_space() {
                // unix_write_space(): the waiters are not exclusive, so all are woken.
                for writer in std::mem::take(&mut channel.writers) {
                    self.wake_from(cpu, id, Some(writer), sync);
                }
            }
            return Step::Done;
        }
        let writer = channel.writers.pop_front();
        self.wake_from(cpu, id, writer, sync)
    }

    /// Reads from or writes to a pipe whose mutex the task holds, or held before it slept.
    fn use_pipe(&mut self, cpu: CpuId, id: TaskId, index: u32, mutex: u32, how: &Use) -> Step {
        let slept = self.world.tasks[id.index()].slept;
        if slept {
            // wait_event_interruptible_exclusive() looks before the task enters mutex_lock(), and no longer in it.
            let blocks = self.shared.channels[index as usize].ring.blocks(how);
            if blocks && !self.is_in_mutex_lock(id, mutex) {
                return self.sleep_at_pipe(id, index, how);
            }
            let step = self.lock(cpu, id, mutex);
            if !matches!(step, Step::Done) {
                return step;
            }
        }
        let task = &mut self.world.tasks[id.index()];
        task.slept = false;
        let ring = &mut self.shared.channels[index as usize].ring;
        task.moved += ring.transfer(how.writes, how.bytes - task.moved, slept);
        if task.moved == how.bytes {
            task.moved = 0;
            return Step::Done;
        }
        self.unlock(cpu, id, mutex);
        self.sleep_at_pipe(id, index, how)
    }

    fn sleep_at_pipe(&mut self, id: TaskId, index: u32, how: &Use) -> Step {
        let channel = &mut self.shared.channels[index as usize];
        let queue = if how.writes { &mut channel.writers } else { &mut channel.readers };
        queue.push_back(id);
        self.world.tasks[id.index()].slept = true;
        Step::BlockedRetry
    }

    /// The mutex of a pipe is free again: wakes those whom the read or write before that lets go on.
    pub(crate) fn wake_at_pipe(&mut self, cpu: CpuId, id: TaskId, index: u32) {
        let channel = &mut self.shared.channels[index as usize];
        let sync = channel.spec.sync_wakeup;
        let reader = std::mem::take(&mut channel.ring.wake_reader);
        let writer = std::mem::take(&mut channel.ring.wake_writer);
        let reader = if reader { channel.readers.pop_front() } else { None };
        let writer = if writer { channel.writers.pop_front() } else { None };
        self.wake_from(cpu, id, reader, sync);
        self.wake_from(cpu, id, writer, sync);
    }
}

/// A read or write.
struct Use {
    bytes: u32,
    writes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u32 = costs::PIPE_PAGE_BYTES;

    fn ring(pages: usize) -> Ring {
        Ring { pages, ..Ring::default() }
    }

    /// 40 messages of 100 bytes fit into a page of 4096, the 41st does not.
    #[test]
    fn small_writes_share_a_page_until_one_does_not_fit() {
        let mut ring = ring(2);
        for _ in 0..80 {
            assert_eq!(ring.transfer(true, 100, false), 100);
        }
        assert_eq!(ring.unread, [4000, 4000]);
        assert_eq!(ring.transfer(true, 100, false), 0, "full");
    }

    #[test]
    fn only_the_read_that_frees_a_page_of_a_full_ring_wakes_a_writer() {
        let mut ring = ring(2);
        for _ in 0..80 {
            ring.transfer(true, 100, false);
        }
        for message in 1..=80 {
            assert_eq!(ring.transfer(false, 100, false), 100);
            assert_eq!(std::mem::take(&mut ring.wake_writer), message == 40, "{message}");
        }
    }

    #[test]
    fn only_a_write_to_an_empty_ring_wakes_a_reader() {
        let mut ring = ring(2);
        ring.transfer(true, 100, false);
        assert!(std::mem::take(&mut ring.wake_reader));
        ring.transfer(true, 100, false);
        assert!(!ring.wake_reader);
    }

    #[test]
    fn a_write_that_waited_wakes_the_next_writer_if_there_is_room_and_begins_a_page() {
        let mut ring = ring(3);
        ring.transfer(true, 100, false);
        ring.transfer(true, 100, true);
        assert_eq!((ring.unread.clone(), ring.wake_writer), ([100, 100].into(), true));
        ring.transfer(true, 100, true);
        assert!(!ring.wake_writer, "full");
    }

    #[test]
    fn a_long_write_fills_the_last_page_and_goes_on_when_there_is_room() {
        let mut ring = ring(2);
        ring.transfer(true, 96, false);
        assert_eq!(ring.transfer(true, 2 * PAGE + 4000, false), 4000 + PAGE);
        assert_eq!(ring.unread, [PAGE, PAGE]);
    }
}
