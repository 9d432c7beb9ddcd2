//! What a scheduler can ask about a task beside what it needs for scheduling: its name, process and
//! parent.

use roost_workload::Process;

use crate::scheduler::{CpuId, TaskId};
use crate::task::{State, Task};
use crate::world::World;

/// What the tasks of a process share.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessState {
    /// Whether it began as a copy of another process.
    pub forked: bool,
    /// Whether its tasks are threads of the kernel.
    kernel: bool,
    /// Its first task.
    leader: Option<Person>,
    /// Number of its tasks that have not exited.
    threads: u32,
}

impl ProcessState {
    /// A process without tasks.
    pub(crate) fn new(process: &Process) -> Self {
        Self { forked: process.forked, kernel: process.kernel, ..Self::default() }
    }

    /// Number of its tasks that have not exited.
    pub(crate) fn threads(&self) -> u32 {
        self.threads
    }
}

/// A task with its unique number, which tells it from a later task with the same [`TaskId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub id: TaskId,
    pub pid: u32,
}

impl World {
    /// A task's name: its template's in the workload, "main" for the root task.
    pub fn name(&self, task: TaskId) -> &str {
        self.name_of(&self.tasks[task.index()])
    }

    pub(crate) fn name_of(&self, task: &Task) -> &str {
        let template = self.names.get(task.template as usize);
        if task.root { "main" } else { template.map_or("", String::as_str) }
    }

    /// The unique number of the first task of `task`'s process (the kernel's tgid).
    pub fn tgid(&self, task: TaskId) -> u32 {
        let leader = self.process_of(task).and_then(|process| process.leader);
        leader.map_or(self.pid(task), |leader| leader.pid)
    }

    /// The first task of `task`'s process; `None` after it has exited.
    pub fn group_leader(&self, task: TaskId) -> Option<TaskId> {
        self.alive(self.process_of(task)?.leader?)
    }

    /// The task that created `task`; `None` for tasks that exist from the start, and after the
    /// parent has exited.
    pub fn parent(&self, task: TaskId) -> Option<TaskId> {
        self.alive(self.tasks[task.index()].parent?)
    }

    /// Number of tasks of `task`'s process that have not exited.
    pub fn nr_threads(&self, task: TaskId) -> u32 {
        self.process_of(task).map_or(1, |process| process.threads)
    }

    /// Whether a task is a kernel thread (PF_KTHREAD).
    pub fn is_kernel_thread(&self, task: TaskId) -> bool {
        self.process_of(task).is_some_and(|process| process.kernel)
    }

    /// Time for which a task has run so far, ns (the kernel's `sum_exec_runtime`).
    pub fn run_ns(&self, task: TaskId) -> u64 {
        let state = &self.tasks[task.index()];
        // A task that is about to sleep keeps its CPU until the CPU picks another task.
        match self.cpus[state.cpu].current == Some(task) {
            true => state.run_ns + self.now.since(state.started_at),
            false => state.run_ns,
        }
    }

    fn process_of(&self, task: TaskId) -> Option<&ProcessState> {
        self.processes.get(self.process(task) as usize)
    }

    /// The task, if it has not exited.
    fn alive(&self, person: Person) -> Option<TaskId> {
        let task = &self.tasks[person.id.index()];
        (task.pid == person.pid && task.state != State::Dead).then_some(person.id)
    }

    /// `task` was created.
    pub(crate) fn join_process(&mut self, task: TaskId) {
        let Task { process, pid, .. } = self.tasks[task.index()];
        let process = process as usize;
        if self.processes.len() <= process {
            self.processes.resize_with(process + 1, ProcessState::default);
        }
        let state = &mut self.processes[process];
        if state.threads == 0 {
            state.leader = Some(Person { id: task, pid });
        }
        state.threads += 1;
    }

    /// `task` has exited.
    pub(crate) fn leave_process(&mut self, task: TaskId) {
        let process = self.process(task) as usize;
        self.processes[process].threads -= 1;
    }

    /// Panics because the scheduler broke its contract.
    #[cold]
    pub(crate) fn broken(&self, task: TaskId, cpu: CpuId, does: &str, but: &str) -> ! {
        let (name, pid, now) = (self.name(task), self.pid(task), self.now.ns());
        let state = self.tasks[task.index()].state;
        panic!("task {name} ({pid}) {does} CPU {cpu} at {now} ns, but {but}: it is {state:?}")
    }

    /// The states of tasks, for a message: the first running and waiting ones by name, the others
    /// counted.
    pub(crate) fn whereabouts(&self) -> String {
        const NAMED: usize = 4;
        let list = |what: &str, wanted: &dyn Fn(State) -> bool| {
            let tasks = || self.tasks.iter().filter(|task| wanted(task.state));
            let named: Vec<String> = tasks()
                .take(NAMED)
                .map(|task| {
                    format!("{} {} on CPU {}", self.name_of(task), task.pid, self.os_cpu(task))
                })
                .collect();
            let more = tasks().count() - named.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            if named.is_empty() {
                format!("none {what}")
            } else {
                format!("{what}: {}{more}", named.join(", "))
            }
        };
        let asleep = self.tasks.iter().filter(|task| task.state == State::Blocked).count();
        let running = list("running", &|state| state == State::Running);
        let waiting = list("waiting", &|state| matches!(state, State::Queued | State::Arriving));
        format!("{running}; {waiting}; {asleep} asleep")
    }

    fn os_cpu(&self, task: &Task) -> u32 {
        self.machine.cpus[task.cpu].os_index
    }
}
