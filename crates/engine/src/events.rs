//! The event queue: at most one pending event per slot.
//!
//! Everything that can happen later has its own slot: the end of a CPU's run, its tick, its next
//! interrupt, the scheduler's timer, a task's timer. Scheduling it again moves the event, so the
//! queue never grows. Two events at the same time are handled in the order in which they were
//! scheduled, so no two events compare equal.

use std::hint::select_unpredictable;

use crate::scheduler::{CpuId, TaskId};
use crate::time::Time;

/// A kind of event, and its CPU or task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The current task of a CPU reaches the end of its operation, or the CPU reaches the end of
    /// its search for a task.
    RunEnd(CpuId),
    /// The periodic tick.
    Tick(CpuId),
    /// Tasks arrive, and other CPUs' requests.
    Interrupt(CpuId),
    /// A task's sleep ends.
    Timer(TaskId),
    /// The scheduler's timer of a CPU.
    SchedulerTimer(CpuId),
    /// The hardware sets the clocks of all packages.
    Clocks,
}

/// Names of the kinds of events, in the order of [`Counters::events`](crate::Counters::events).
pub const EVENT_NAMES: [&str; 6] =
    ["run_end", "tick", "interrupt", "timer", "scheduler_timer", "clocks"];

impl Event {
    pub(crate) fn kind(self) -> usize {
        match self {
            Event::RunEnd(_) => 0,
            Event::Tick(_) => 1,
            Event::Interrupt(_) => 2,
            Event::Timer(_) => 3,
            Event::SchedulerTimer(_) => 4,
            Event::Clocks => 5,
        }
    }
}

/// Events by time: a wheel of three levels.
///
/// - Level 0 has a bucket for every 64 ns of the current window of 524 us.
/// - Level 1 has a bucket for every window of the current epoch of 4.3 s.
/// - Level 2 has a bucket for every epoch of 9.8 hours. Later events wait in a list.
///
/// The next event is at the first set bit. Buckets are so narrow that two events rarely share one,
/// even with 1000 CPUs. The window is so long that most events go into it directly.
///
/// If an event above level 0 is moved to a later time, or cancelled, it stays in its list and only
/// its time is changed. For example, every pick moves a slice's timer, which seldom expires. The
/// event moves to its proper list when the window of its present list opens.
pub(crate) struct EventQueue {
    nr_cpus: usize,
    /// One per slot.
    entries: Vec<Entry>,
    levels: [Level; LEVELS],
    /// Slots of events that are on no level, unordered.
    beyond: Vec<u32>,
    /// Time of the last event taken.
    now: Time,
    /// The slot of the next event, or [`NONE`] if it is not known. [`EventQueue::pop`] looks for it when it takes the
    /// event before, not after that was handled. Processors often guess its kind wrongly, and so they notice it early.
    next: u32,
    /// When that event is due. If it is not known: no event of level 0 is due before this.
    next_at: Time,
    /// Start of the window in level 0, ns.
    window: u64,
    /// Number of times that an event was scheduled above level 0.
    sequence: u64,
}

/// Slots per CPU, from slot 1 on. One for the clocks and the tasks' slots follow.
const CPU_SLOTS: usize = 4;

const LEVELS: usize = 3;
const BUCKET_BITS: u32 = 6;
const LEVEL_BITS: u32 = 13;
const BUCKETS: usize = 1 << LEVEL_BITS;
/// Bits per word.
const BITS: usize = u64::BITS as usize;
const WORDS: usize = BUCKETS / BITS;
/// The slot of no event. Its entry takes what is written to the neighbours that an event lacks, so that lists are
/// changed without branches on their lengths, which processors predict badly. It ends every list, because no event is
/// later.
const NONE: u32 = 0;

#[derive(Clone, Copy)]
struct Entry {
    /// When it is due. If it is not pending: when it was due.
    at: Time,
    /// Above level 0: the order in which events were scheduled there.
    sequence: u64,
    /// Neighbours in its list.
    next: u32,
    previous: u32,
    /// Its list. On level 0 it is the list for its time, above it is that list or an earlier one.
    bucket: u16,
    level: u8,
    pending: bool,
}

/// The level of an event that is in no list. [`LEVELS`] is the level of events beyond all levels.
const UNLISTED: u8 = u8::MAX;

impl Entry {
    /// Events are handled in this order: by time, then as they were scheduled. It is right for events
    /// that come from above level 0, which alone have numbers.
    #[inline]
    fn order(&self) -> u128 {
        u128::from(self.at.ns()) << 64 | u128::from(self.sequence)
    }
}

/// The entry of [`NONE`].
const END: Entry = Entry { at: Time::NEVER, sequence: u64::MAX, ..ABSENT };

/// The entry of an event that was never scheduled.
const ABSENT: Entry = Entry {
    at: Time(0),
    sequence: 0,
    next: NONE,
    previous: NONE,
    bucket: 0,
    level: UNLISTED,
    pending: false,
};

/// Lists of slots, with a bit for each non-empty list.
struct Level {
    heads: Box<[u32; BUCKETS]>,
    words: [u64; WORDS],
}

impl Level {
    fn new() -> Self {
        Self { heads: Box::new([NONE; BUCKETS]), words: [0; WORDS] }
    }

    /// Puts an event into a list of this level, which has number `level`. On level 0 lists are in the
    /// order in which events are handled. Above they are in no order. `place` takes the first slot of
    /// the list, and returns the event's neighbours: the next and the previous one.
    #[inline(always)]
    fn insert(
        &mut self,
        entries: &mut [Entry],
        level: usize,
        bucket: usize,
        slot: usize,
        place: impl FnOnce(&[Entry], u32) -> (u32, u32),
    ) {
        let head = self.heads[bucket];
        let (next, previous) = place(entries, head);
        let entry = &mut entries[slot];
        (entry.next, entry.previous) = (next, previous);
        (entry.level, entry.bucket) = (level as u8, bucket as u16);
        entries[next as usize].previous = slot as u32;
        entries[previous as usize].next = slot as u32;
        self.heads[bucket] = if previous == NONE { slot as u32 } else { head };
        self.words[bucket / BITS] |= 1 << (bucket % BITS);
    }

    /// Takes an event with these neighbours out of its list, which belongs to this level.
    #[inline]
    fn remove(&mut self, entries: &mut [Entry], bucket: usize, next: u32, previous: u32) {
        let bucket = bucket % BUCKETS;
        entries[next as usize].previous = previous;
        entries[previous as usize].next = next;
        self.set_head(bucket, if previous == NONE { next } else { self.heads[bucket] });
    }

    /// Sets the first event of a bucket that was not empty. Clears the bucket's bit if it is now.
    #[inline]
    fn set_head(&mut self, bucket: usize, head: u32) {
        self.heads[bucket] = head;
        self.words[bucket / BITS] &= !(u64::from(head == NONE) << (bucket % BITS));
    }

    /// The first non-empty bucket, if there is none in the words before `from`.
    fn first(&self, from: usize) -> Option<usize> {
        let index = (from..WORDS).find(|&index| self.words[index] != 0)?;
        Some(index * BITS + self.words[index].trailing_zeros() as usize)
    }

    /// [`Level::first`] if it is in the word `from` or the one after it.
    #[inline]
    fn near(&self, from: usize) -> Option<usize> {
        // Processors predict badly in which of the two it is. After the last word this looks at word 0, which is
        // empty, because all its events would be before now.
        let here = self.words[from];
        let index = select_unpredictable(here != 0, from, from + 1);
        let word = select_unpredictable(here != 0, here, self.words[(from + 1) % WORDS]);
        (word != 0).then(|| index * BITS + word.trailing_zeros() as usize)
    }
}

/// The place in a list of level 0, which begins with `head`, in front of the first entry for which
/// `precedes` is false: the next and the previous slot.
#[inline(always)]
fn place_after(entries: &[Entry], head: u32, precedes: impl Fn(&Entry) -> bool) -> (u32, u32) {
    let (mut next, mut previous) = (head, NONE);
    while precedes(&entries[next as usize]) {
        (next, previous) = (entries[next as usize].next, next);
    }
    (next, previous)
}

/// Number of bits by which a time is shifted to give its bucket on a level.
const fn shift(level: usize) -> u32 {
    BUCKET_BITS + level as u32 * LEVEL_BITS
}

/// The bucket for a time on a level.
#[inline]
fn bucket(level: usize, at: Time) -> usize {
    (at.ns() >> shift(level)) as usize % BUCKETS
}

impl EventQueue {
    pub(crate) fn new(nr_cpus: usize) -> Self {
        let mut entries = vec![ABSENT; 1 + CPU_SLOTS * nr_cpus + 1];
        entries[NONE as usize] = END;
        Self {
            nr_cpus,
            entries,
            levels: [(); LEVELS].map(|()| Level::new()),
            beyond: Vec::new(),
            now: Time(0),
            next: NONE,
            next_at: Time(0),
            window: 0,
            sequence: 0,
        }
    }

    /// Slots of one kind are side by side: the ends of runs are most events, and fill few cache lines.
    #[inline]
    fn slot(&self, event: Event) -> usize {
        1 + match event {
            Event::RunEnd(cpu) => cpu,
            Event::Tick(cpu) => self.nr_cpus + cpu,
            Event::Interrupt(cpu) => 2 * self.nr_cpus + cpu,
            Event::SchedulerTimer(cpu) => 3 * self.nr_cpus + cpu,
            Event::Clocks => CPU_SLOTS * self.nr_cpus,
            Event::Timer(task) => CPU_SLOTS * self.nr_cpus + 1 + task.index(),
        }
    }

    /// The event of a slot. It asks for the most frequent kinds first.
    #[inline]
    fn event(&self, slot: usize) -> Event {
        let (index, cpus) = (slot - 1, self.nr_cpus);
        if index < cpus {
            Event::RunEnd(index)
        } else if index > CPU_SLOTS * cpus {
            Event::Timer(TaskId((index - CPU_SLOTS * cpus - 1) as u32))
        } else if index < 2 * cpus {
            Event::Tick(index - cpus)
        } else if index < 3 * cpus {
            Event::Interrupt(index - 2 * cpus)
        } else if index < CPU_SLOTS * cpus {
            Event::SchedulerTimer(index - 3 * cpus)
        } else {
            Event::Clocks
        }
    }

    /// Schedules `event` at `at`, moving it if it is already pending.
    ///
    /// # Panics
    /// If `at` is before the last event taken.
    #[inline]
    pub(crate) fn set(&mut self, event: Event, at: Time) {
        self.set_slot(self.slot(event), at);
    }

    fn set_slot(&mut self, slot: usize, at: Time) {
        let Some(entry) = self.entries.get_mut(slot) else { return self.set_new(slot, at) };
        if at < self.now {
            in_the_past(self.event(slot), at, self.now);
        }
        if entry.pending && entry.at == at {
            return;
        }
        let Entry { at: before, level, bucket, next, previous, .. } = *entry;
        (entry.at, entry.pending) = (at, true);
        let moves_next = slot == self.next as usize;
        match level {
            UNLISTED => {}
            0 => self.levels[0].remove(&mut self.entries, bucket.into(), next, previous),
            _ if at >= before => return self.give_sequence(slot),
            _ => self.unlink(slot),
        }
        match self.level(at) {
            // Of the events at its time it is the last, because it is scheduled last.
            0 => {
                let later = Time(at.ns().saturating_add(1));
                self.insert_in_window(slot, at, |other| other.at < later);
                // Events above level 0 are due after this window.
                if later <= self.next_at {
                    (self.next, self.next_at) = (slot as u32, at);
                }
            }
            level => {
                self.give_sequence(slot);
                self.insert_above(slot, at, level);
            }
        }
        if moves_next {
            self.find_next();
        }
    }

    /// Notes that an event above level 0 is scheduled now.
    #[inline]
    fn give_sequence(&mut self, slot: usize) {
        self.entries[slot].sequence = self.sequence;
        self.sequence += 1;
    }

    /// As [`EventQueue::set_slot`] for a slot that is used for the first time.
    #[cold]
    #[inline(never)]
    fn set_new(&mut self, slot: usize, at: Time) {
        self.entries.resize(slot + 1, ABSENT);
        self.set_slot(slot, at);
    }

    /// The level of the list for a time, which is not before the window; [`LEVELS`] beyond all.
    #[inline(always)]
    fn level(&self, at: Time) -> usize {
        // The highest bit in which the two differ gives the level.
        let differ = at.ns() ^ self.window;
        (0..LEVELS).find(|&level| differ >> shift(level + 1) == 0).unwrap_or(LEVELS)
    }

    /// Puts an event that is in no list into that for its time on level 0, in front of the first event
    /// for which `precedes` is false.
    #[inline(always)]
    fn insert_in_window(&mut self, slot: usize, at: Time, precedes: impl Fn(&Entry) -> bool) {
        let place = |entries: &[Entry], head| place_after(entries, head, precedes);
        self.levels[0].insert(&mut self.entries, 0, bucket(0, at), slot, place);
    }

    /// Puts an event that is in no list into that for its time on a level above 0.
    fn insert_above(&mut self, slot: usize, at: Time, level: usize) {
        match self.levels.get_mut(level) {
            Some(lists) => {
                let first = |_: &[Entry], head| (head, NONE);
                lists.insert(&mut self.entries, level, bucket(level, at), slot, first);
            }
            None => self.link_beyond(slot),
        }
    }

    #[cold]
    fn link_beyond(&mut self, slot: usize) {
        self.entries[slot].level = LEVELS as u8;
        self.beyond.push(slot as u32);
    }

    /// Takes an event out of its list.
    #[cold]
    #[inline(never)]
    fn unlink(&mut self, slot: usize) {
        let level = std::mem::replace(&mut self.entries[slot].level, UNLISTED);
        match self.levels.get_mut(level as usize) {
            Some(lists) => {
                let Entry { bucket, next, previous, .. } = self.entries[slot];
                lists.remove(&mut self.entries, bucket.into(), next, previous);
            }
            None => self.beyond.retain(|&other| other != slot as u32),
        }
    }

    /// Schedules the end of the run of `cpu` at `at`, or cancels it.
    #[inline]
    pub(crate) fn set_run_end(&mut self, cpu: CpuId, at: Option<Time>) {
        match at {
            Some(at) => self.set(Event::RunEnd(cpu), at),
            None => self.cancel(Event::RunEnd(cpu)),
        }
    }

    /// Cancels `event` if it is pending.
    #[inline]
    pub(crate) fn cancel(&mut self, event: Event) {
        let slot = self.slot(event);
        let Some(entry) = self.entries.get_mut(slot) else { return };
        if std::mem::take(&mut entry.pending) && entry.level == 0 {
            entry.level = UNLISTED;
            let Entry { bucket, next, previous, .. } = *entry;
            self.levels[0].remove(&mut self.entries, bucket.into(), next, previous);
            if slot == self.next as usize {
                self.find_next();
            }
        }
    }

    /// Whether `event` is pending.
    #[inline]
    pub(crate) fn is_pending(&self, event: Event) -> bool {
        self.entries.get(self.slot(event)).is_some_and(|entry| entry.pending)
    }

    /// When `event` is due, if it is pending.
    #[inline]
    pub(crate) fn due(&self, event: Event) -> Option<Time> {
        self.entries.get(self.slot(event)).filter(|entry| entry.pending).map(|entry| entry.at)
    }

    /// Takes the earliest event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        if self.next == NONE {
            self.find_far()?;
        }
        let slot = self.next as usize;
        let entry = &mut self.entries[slot];
        (entry.pending, entry.level) = (false, UNLISTED);
        debug_assert!(entry.previous == NONE, "the next event is not the first of its list");
        let (at, bucket, next) = (entry.at, entry.bucket, entry.next);
        self.levels[0].remove(&mut self.entries, bucket.into(), next, NONE);
        self.now = at;
        self.find_next();
        Some((at, self.event(slot)))
    }

    /// Finds the next event if it is in the word of now or the one after it. Otherwise it is not known.
    #[inline]
    fn find_next(&mut self) {
        let from = self.searched_from();
        match self.levels[0].near(bucket(0, from) / BITS) {
            Some(bucket) => self.set_next(bucket),
            None => {
                let word = BUCKET_BITS + BITS.ilog2();
                (self.next, self.next_at) = (NONE, Time(((from.ns() >> word) + 2) << word));
            }
        }
    }

    /// Finds the next event, however far it is. `None` if nothing is pending.
    #[inline(never)]
    fn find_far(&mut self) -> Option<()> {
        loop {
            match self.levels[0].first(bucket(0, self.searched_from()) / BITS) {
                Some(bucket) => {
                    self.set_next(bucket);
                    return Some(());
                }
                None => self.open_next_window()?,
            }
        }
    }

    /// Notes that the next event is the first one of this bucket of level 0, which is not empty.
    #[inline]
    fn set_next(&mut self, bucket: usize) {
        self.next = self.levels[0].heads[bucket];
        self.next_at = self.entries[self.next as usize].at;
    }

    /// No event on level 0 is due before this: none is before now, or before the window, which is later than now only
    /// while [`EventQueue::find_far`] opens windows.
    #[inline]
    fn searched_from(&self) -> Time {
        Time(self.now.ns().max(self.window))
    }

    /// Whether a timer that `wanted` accepts is due at the time of the last event.
    pub(crate) fn timer_due(&self, wanted: impl Fn(TaskId) -> bool) -> bool {
        let mut next = self.levels[0].heads[bucket(0, self.now)];
        while next != NONE {
            let entry = &self.entries[next as usize];
            if entry.at != self.now {
                break;
            }
            if let Event::Timer(task) = self.event(next as usize)
                && wanted(task)
            {
                return true;
            }
            next = entry.next;
        }
        false
    }

    /// Level 0 is empty: opens the next window that has events.
    #[cold]
    fn open_next_window(&mut self) -> Option<()> {
        for level in 1..LEVELS {
            let Some(bucket) = self.levels[level].first(0) else { continue };
            let above = shift(level + 1);
            self.window = (self.window >> above << above) + ((bucket as u64) << shift(level));
            let mut slot = self.levels[level].heads[bucket];
            self.levels[level].set_head(bucket, NONE);
            while slot != NONE {
                let next = self.entries[slot as usize].next;
                self.relink(slot as usize);
                slot = next;
            }
            return Some(());
        }
        self.open_beyond()
    }

    /// No level has events: opens the first window of the events beyond all levels.
    fn open_beyond(&mut self) -> Option<()> {
        let pending = |&&slot: &&u32| self.entries[slot as usize].pending;
        let times = self.beyond.iter().filter(pending).map(|&slot| self.entries[slot as usize].at);
        // If nothing is pending, windows with only cancelled events may have been opened far ahead.
        let next = times.min();
        self.window = next.unwrap_or(self.now).ns() >> shift(1) << shift(1);
        for slot in std::mem::take(&mut self.beyond) {
            self.relink(slot as usize);
        }
        next.map(|_| ())
    }

    /// The list of an event is gone. Puts the event into the list for its time if it is pending. Level 0
    /// was empty when the window opened, so all events there come from above.
    fn relink(&mut self, slot: usize) {
        let entry = &mut self.entries[slot];
        entry.level = UNLISTED;
        let Entry { at, pending, .. } = *entry;
        let order = entry.order();
        match self.level(at) {
            _ if !pending => {}
            0 => self.insert_in_window(slot, at, |other| other.order() < order),
            level => self.insert_above(slot, at, level),
        }
    }
}

#[cold]
fn in_the_past(event: Event, at: Time, now: Time) -> ! {
    panic!("{event:?} is scheduled at {at:?}, before now ({now:?})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_slot_tells_the_event() {
        for nr_cpus in [1, 3] {
            let queue = EventQueue::new(nr_cpus);
            let kinds = [Event::RunEnd, Event::Tick, Event::Interrupt, Event::SchedulerTimer];
            let events =
                kinds.iter().flat_map(|kind| (0..nr_cpus).map(kind)).chain([Event::Clocks]);
            let events: Vec<_> =
                events.chain([0, 1, 70_000].map(|task| Event::Timer(TaskId(task)))).collect();
            for &told in &events {
                assert_eq!(queue.event(queue.slot(told)), told);
            }
            let slots: std::collections::BTreeSet<_> =
                events.iter().map(|&event| queue.slot(event)).collect();
            assert_eq!((slots.len(), slots.first()), (events.len(), Some(&1)));
        }
    }

    /// The search for events when none is pending opens windows ahead of the clock.
    #[test]
    fn an_event_comes_first_that_is_set_after_the_queue_was_found_empty() {
        let mut queue = EventQueue::new(1);
        let (next, later) = (Event::Tick(0), Event::Timer(TaskId(0)));
        let next_epoch = Time(1 << shift(2));
        queue.set(later, next_epoch);
        queue.cancel(later);
        assert_eq!(queue.pop(), None);
        queue.set(later, next_epoch);
        queue.set(next, Time(6));
        assert_eq!(queue.pop(), Some((Time(6), next)));
        assert_eq!(queue.pop(), Some((next_epoch, later)));
    }

    #[test]
    fn even_the_end_of_time_comes() {
        let mut queue = EventQueue::new(2);
        let (earlier, end) = (Time(u64::MAX - 1), Time::NEVER);
        queue.set(Event::Tick(0), end);
        queue.set(Event::RunEnd(1), earlier);
        assert_eq!(queue.pop(), Some((earlier, Event::RunEnd(1))));
        assert_eq!(queue.pop(), Some((end, Event::Tick(0))));
        assert_eq!(queue.pop(), None);
        // Of two, the last one comes first, because no later time ends its place in the list.
        queue.set(Event::RunEnd(1), end);
        queue.set(Event::Tick(0), end);
        assert_eq!(queue.pop(), Some((end, Event::Tick(0))));
        assert_eq!(queue.pop(), Some((end, Event::RunEnd(1))));
    }

    #[test]
    #[should_panic = "Tick(0) is scheduled at Time(4), before now (Time(5))"]
    fn nothing_happens_in_the_past() {
        let mut queue = EventQueue::new(1);
        queue.set(Event::RunEnd(0), Time(5));
        queue.pop();
        queue.set(Event::Tick(0), Time(4));
    }

    #[test]
    fn equal_times_come_in_the_order_scheduled() {
        let mut queue = EventQueue::new(4);
        for cpu in [2, 0, 3, 1] {
            queue.set(Event::Tick(cpu), Time(5));
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, [2, 0, 3, 1].map(Event::Tick));
    }

    /// A delay within a bucket, within a window, within an epoch, of several epochs, or of many.
    fn delay() -> impl Strategy<Value = u64> {
        prop_oneof![
            0u64..50,
            0u64..500_000,
            0u64..8_000_000_000,
            0u64..100_000_000_000,
            0u64..1 << 48
        ]
    }

    proptest! {
        /// Compared with a sorted map: no event is lost or handled twice, time never moves back, and
        /// events at the same time come in the order in which they were scheduled. Some times are
        /// rounded, so that events come to the same time from different levels.
        #[test]
        fn behaves_like_a_sorted_map(
            steps in prop::collection::vec((0usize..12, delay(), 0u32..30, 0u8..8), 1..300)
        ) {
            let mut queue = EventQueue::new(2);
            let events: Vec<_> = [Event::RunEnd, Event::Tick, Event::Interrupt, Event::SchedulerTimer]
                .iter()
                .flat_map(|kind| [kind(0), kind(1)])
                .chain([Event::Clocks])
                .chain([3, 0, 1].map(|task| Event::Timer(TaskId(task))))
                .collect();
            // By event: its time, and the step that scheduled it.
            let mut model: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
            let mut now = 0;
            for (step, (index, delay, rounded, what)) in steps.into_iter().enumerate() {
                let event = events[index];
                let at = (now + delay) >> rounded << rounded;
                match what {
                    0 => { queue.cancel(event); model.remove(&index); }
                    1 | 2 => {
                        let first = model.iter().min_by_key(|(_, due)| **due).map(|(&index, &due)| (index, due));
                        let popped = queue.pop();
                        prop_assert_eq!(popped, first.map(|(index, (at, _))| (Time(at), events[index])));
                        if let Some((index, (at, _))) = first {
                            now = at;
                            model.remove(&index);
                        }
                    }
                    _ if at < now => {}
                    // Setting an event to the time that it has already changes nothing.
                    _ => {
                        queue.set(event, Time(at));
                        let due = model.entry(index).or_insert((at, step));
                        if due.0 != at {
                            *due = (at, step);
                        }
                    }
                }
                prop_assert_eq!(queue.is_pending(event), model.contains_key(&index));
                let first = model.iter().min_by_key(|(_, due)| **due);
                if queue.next != NONE {
                    let next = first.map(|(&index, due)| (queue.slot(events[index]), due.0));
                    prop_assert_eq!(next, Some((queue.next as usize, queue.next_at.ns())));
                } else {
                    let on_level_0 = queue.entries.iter().filter(|entry| entry.level == 0);
                    prop_assert!(on_level_0.clone().all(|entry| entry.at >= queue.next_at));
                }
            }
        }
    }
}
