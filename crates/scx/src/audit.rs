//! Checks of the state of the class, in builds with debug assertions. Each claim is a function that panics if it does
//! not hold. [`Scx::audit_all`] lists them. The engine calls it between events.

use roost_engine::{TaskId, World};

use crate::class::Scx;
use crate::tasks::{Custody, Task, Tasks};

impl Scx {
    /// Checks all claims.
    pub(crate) fn audit_all(&self, world: &World) {
        self.audit_current(world);
        self.audit_queues(world);
        if self.kernel.builtin_idle {
            self.audit_idle(world);
            self.audit_idle_cores(world);
        }
    }

    /// The task that a CPU runs is its current one here, and is in no queue.
    fn audit_current(&self, world: &World) {
        for cpu in 0..world.nr_cpus() {
            if let Some(task) = world.current(cpu) {
                assert_eq!(self.kernel.current[cpu], Some(task), "CPU {cpu}");
                assert_eq!(self.kernel.tasks.get(task).custody, Custody::None, "CPU {cpu}");
            }
        }
    }

    /// A waiting task is in exactly one queue, or with the scheduler.
    fn audit_queues(&self, world: &World) {
        let mut queued = 0;
        for (dsq, queue) in self.kernel.queues.all() {
            for task in queue.tasks() {
                let custody = self.kernel.tasks.get(task).custody;
                assert_eq!(custody, Custody::Queue(dsq), "{}", Tasks::named(world, task));
                queued += 1;
            }
        }
        let in_queue = |(_, task): &(TaskId, &Task)| matches!(task.custody, Custody::Queue(_));
        let known = self.kernel.tasks.runnable().filter(in_queue).count();
        assert_eq!(known, queued, "runnable tasks that are in a queue, and tasks in queues");
    }

    /// A CPU that is marked idle runs no task.
    fn audit_idle(&self, world: &World) {
        for cpu in self.kernel.idle.cpus.iter() {
            let current = world.current(cpu).map(|task| Tasks::named(world, task));
            assert!(current.is_none(), "CPU {cpu} is marked idle, and runs {current:?}");
        }
    }

    /// A CPU whose core is marked idle is marked idle, and so are the other threads of the core.
    fn audit_idle_cores(&self, world: &World) {
        let (machine, idle) = (world.machine(), &self.kernel.idle);
        for cpu in idle.cores.iter().filter(|_| machine.has_smt()) {
            let core = &machine.cores[machine.cpus[cpu].core as usize].cpus;
            let (cores, cpus) = (&idle.cores, &idle.cpus);
            assert!(core.is_subset(cores) && core.is_subset(cpus), "the core of CPU {cpu}");
        }
    }
}
