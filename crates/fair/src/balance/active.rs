//! Active balance: the stopper of a queue pushes one of its tasks to a CPU that failed to pull one
//! (`active_load_balance_cpu_stop`; kernel model, section 10.10).

use roost_engine::{CpuId, Work, World};

use super::imbalance::Migration;
use super::pass::Pass;
use crate::numa::NumaPush;
use crate::state::{Fair, Push};

impl Fair {
    /// Asks the stopper of the pass's source to push a task. Returns false if an earlier request is
    /// still pending.
    pub(super) fn start_active_balance(&mut self, world: &mut World, pass: &Pass) -> bool {
        let rq = &self.rqs[pass.src];
        if rq.push.is_some() || rq.numa_push.is_some_and(NumaPush::is_for_idle) {
            return false;
        }
        let for_llc = pass.kind == Migration::LlcTask;
        self.rqs[pass.src].push = Some(Push { cpu: pass.cpu, level: pass.level, for_llc });
        self.balance.pay(world, pass.executor);
        world.kick(pass.executor, pass.src, Work::Stop);
        true
    }

    /// The stopper of `cpu` runs. The task that ran is back on the queue and can be moved. The
    /// level is the one whose pass asked. It is the lowest level of the destination that spans both
    /// CPUs.
    pub(crate) fn active_balance_stop(&mut self, world: &mut World, cpu: CpuId) {
        let Some(push) = self.rqs[cpu].push.take() else { return };
        let Push { cpu: dst, level, .. } = push;
        // The kernel requires more than one task, because the stopper counts there.
        if self.rqs[cpu].nr_running == 0 {
            return;
        }
        let mut pass = Pass::push(self, cpu, push);
        let pushed = self.move_one(world, &mut pass);
        let counters = self.topology.stat_level(dst, level);
        let counters = &mut self.stats.levels[counters];
        counters.alb_count += 1;
        if pushed {
            counters.alb_pushed += 1;
            self.rqs[dst].domains[level].nr_balance_failed = 0;
        } else {
            counters.alb_failed += 1;
        }
        self.balance.pay(world, cpu);
    }
}
