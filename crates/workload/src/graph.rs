//! Collects the templates and shared objects of a benchmark into a [`Workload`].

use crate::{
    Better, Channel, DEFAULT_GROUP_WEIGHT, Group, GroupId, Metric, MetricKind, Policy, Process,
    Program, Region, Template, TemplateId, Workload,
};

/// An empty workload with this name.
pub(crate) fn empty(name: &str) -> Workload {
    Workload {
        name: name.to_string(),
        templates: Vec::new(),
        start: Vec::new(),
        processes: Vec::new(),
        root_process: None,
        groups: Vec::new(),
        regions: Vec::new(),
        mutexes: 0,
        conditions: 0,
        barriers: Vec::new(),
        channels: Vec::new(),
        shared_timers: 0,
        counters: 0,
        watches: 0,
        duration_ns: None,
        measured_from_ns: 0,
        rates_of_tasks: false,
        metrics: Vec::new(),
    }
}

/// A template with defaults: an unpinned SCHED_OTHER task of nice 0, in process 0.
pub(crate) fn template(class: &str, footprint_bytes: u64, program: Program) -> Template {
    Template {
        name: class.to_string(),
        process: 0,
        group: None,
        nice: 0,
        policy: Policy::Normal,
        affinity: None,
        delay_ns: 0,
        footprint_bytes,
        program,
        class: class.to_string(),
    }
}

/// A throughput: an event counter divided by time. More is better.
pub(crate) fn rate(name: &str, unit: &'static str, counter: u32, scale: f64) -> Metric {
    let kind = MetricKind::Rate { counter, since: None, scale };
    Metric { name: name.to_string(), unit, better: Better::Higher, kind }
}

impl Workload {
    /// Adds a process that starts with a program of its own. Returns its number.
    pub(crate) fn add_process(&mut self, name: &str) -> u32 {
        self.processes.push(Process { name: name.to_string(), forked: false, kernel: false });
        self.processes.len() as u32 - 1
    }

    /// Adds a process that starts as a copy of a running process. Returns its number.
    pub(crate) fn fork_process(&mut self, name: &str) -> u32 {
        let process = self.add_process(name);
        self.processes[process as usize].forked = true;
        process
    }

    /// Adds the group with this path, and missing groups above it (`mkdir -p`). Returns the group's number, or `None`
    /// for the root group. The innermost group gets `weight`, other new groups the default weight.
    pub(crate) fn add_group(&mut self, path: &str, weight: u32) -> Option<GroupId> {
        let mut parent = None;
        let mut so_far = String::new();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            so_far = format!("{so_far}/{name}");
            let known = self.groups.iter().position(|group| group.path == so_far);
            let number = known.unwrap_or_else(|| {
                let path = so_far.clone();
                self.groups.push(Group { path, parent, weight: DEFAULT_GROUP_WEIGHT });
                self.groups.len() - 1
            });
            parent = Some(number as GroupId);
        }
        if let Some(group) = parent.and_then(|number| self.groups.get_mut(number as usize)) {
            group.weight = weight;
        }
        parent
    }

    /// Adds a channel. Returns its number.
    pub(crate) fn add_channel(&mut self, channel: Channel) -> u32 {
        self.channels.push(channel);
        self.channels.len() as u32 - 1
    }

    /// Adds a barrier for `parties` tasks. Returns its number.
    pub(crate) fn add_barrier(&mut self, parties: u32) -> u32 {
        self.barriers.push(parties);
        self.barriers.len() as u32 - 1
    }

    /// Adds a region of memory. Returns its number.
    pub(crate) fn add_region(&mut self, region: Region) -> u32 {
        self.regions.push(region);
        self.regions.len() as u32 - 1
    }

    /// Adds a stopwatch. Returns its number.
    pub(crate) fn add_watch(&mut self) -> u32 {
        self.watches += 1;
        self.watches - 1
    }

    /// Adds a mutex. Returns its number.
    pub(crate) fn add_mutex(&mut self) -> u32 {
        self.mutexes += 1;
        self.mutexes - 1
    }

    /// Adds a condition variable. Returns its number.
    pub(crate) fn add_condition(&mut self) -> u32 {
        self.conditions += 1;
        self.conditions - 1
    }

    /// Adds an event counter. Returns its number.
    pub(crate) fn add_counter(&mut self) -> u32 {
        self.counters += 1;
        self.counters - 1
    }

    /// Adds a template. One task of it starts with the run.
    pub(crate) fn start_one(&mut self, template: Template) -> TemplateId {
        let id = self.templates.len() as TemplateId;
        self.templates.push(template);
        self.start.push((id, 1));
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_made_with_those_that_contain_it() {
        let mut workload = empty("groups");
        assert_eq!(workload.add_group("/", 7), None);
        assert_eq!(workload.add_group("/a/b", 300), Some(1));
        assert_eq!(workload.add_group("//a//c/", 100), Some(2));
        assert_eq!(workload.add_group("/a/b", 300), Some(1), "it exists already");
        let group = |path: &str, parent, weight| Group { path: path.to_string(), parent, weight };
        let expected =
            [group("/a", None, 100), group("/a/b", Some(0), 300), group("/a/c", Some(0), 100)];
        assert_eq!(workload.groups, expected);
    }
}
