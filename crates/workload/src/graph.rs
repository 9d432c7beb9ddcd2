//! Collecting templates and shared objects of a benchmark into a [`Workload`].

use crate::{
    Better, Channel, Metric, MetricKind, Policy, Process, Program, Region, Template, TemplateId,
    Workload,
};

/// An empty workload of this name.
pub(crate) fn empty(name: &str) -> Workload {
    Workload {
        name: name.to_string(),
        templates: Vec::new(),
        start: Vec::new(),
        processes: Vec::new(),
        regions: Vec::new(),
        mutexes: 0,
        conditions: 0,
        barriers: Vec::new(),
        channels: Vec::new(),
        shared_timers: 0,
        counters: 0,
        watches: 0,
        duration_ns: None,
        metrics: Vec::new(),
    }
}

/// A template with defaults: an unpinned SCHED_OTHER task of nice 0, in process 0.
pub(crate) fn template(class: &str, footprint_bytes: u64, program: Program) -> Template {
    Template {
        name: class.to_string(),
        process: 0,
        nice: 0,
        policy: Policy::Normal,
        affinity: None,
        delay_ns: 0,
        footprint_bytes,
        program,
        class: class.to_string(),
    }
}

/// A throughput: an event counter over time, more is better.
pub(crate) fn rate(name: &str, unit: &'static str, counter: u32, scale: f64) -> Metric {
    let kind = MetricKind::Rate { counter, scale };
    Metric { name: name.to_string(), unit, better: Better::Higher, kind }
}

impl Workload {
    /// Adds a process; returns its number.
    pub(crate) fn add_process(&mut self, name: &str) -> u32 {
        self.processes.push(Process { name: name.to_string(), taskgroup: None });
        self.processes.len() as u32 - 1
    }

    /// Adds a channel; returns its number.
    pub(crate) fn add_channel(&mut self, channel: Channel) -> u32 {
        self.channels.push(channel);
        self.channels.len() as u32 - 1
    }

    /// Adds a barrier for `parties` tasks; returns its number.
    pub(crate) fn add_barrier(&mut self, parties: u32) -> u32 {
        self.barriers.push(parties);
        self.barriers.len() as u32 - 1
    }

    /// Adds a piece of memory; returns its number.
    pub(crate) fn add_region(&mut self, region: Region) -> u32 {
        self.regions.push(region);
        self.regions.len() as u32 - 1
    }

    /// Adds a stopwatch; returns its number.
    pub(crate) fn add_watch(&mut self) -> u32 {
        self.watches += 1;
        self.watches - 1
    }

    /// Adds a mutex; returns its number.
    pub(crate) fn add_mutex(&mut self) -> u32 {
        self.mutexes += 1;
        self.mutexes - 1
    }

    /// Adds a condition variable; returns its number.
    pub(crate) fn add_condition(&mut self) -> u32 {
        self.conditions += 1;
        self.conditions - 1
    }

    /// Adds an event counter; returns its number.
    pub(crate) fn add_counter(&mut self) -> u32 {
        self.counters += 1;
        self.counters - 1
    }

    /// Adds a template of which one task starts with the run.
    pub(crate) fn start_one(&mut self, template: Template) -> TemplateId {
        let id = self.templates.len() as TemplateId;
        self.templates.push(template);
        self.start.push((id, 1));
        id
    }
}
