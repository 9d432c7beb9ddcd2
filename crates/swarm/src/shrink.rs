//! Makes a failing case smaller.

use crate::case::Case;

/// Removes parts, or makes them smaller, for as long as the rest still fails according to `fails`. Tries at most
/// `tries` cases.
pub fn smallest(case: &Case, mut tries: usize, fails: impl Fn(&Case) -> bool) -> Case {
    let mut smallest = case.clone();
    'again: loop {
        for smaller in smaller(&smallest) {
            if tries == 0 {
                return smallest;
            }
            tries -= 1;
            if fails(&smaller) {
                smallest = smaller;
                continue 'again;
            }
        }
        return smallest;
    }
}

/// Cases that are one step smaller, starting with the largest step.
fn smaller(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Case)| {
        let mut smaller = case.clone();
        change(&mut smaller);
        if smaller != *case {
            all.push(smaller);
        }
    };
    if case.tasks.len() > 1 {
        (0..case.tasks.len()).for_each(|i| add(&|case| drop(case.tasks.remove(i))));
    }
    (0..case.beside.len()).for_each(|i| add(&|case| drop(case.beside.remove(i))));
    (0..case.weights.len()).for_each(|i| add(&|case| _ = case.weights.remove(i)));
    add(&|case| case.duration_ms = case.duration_ms.map(|ms| (ms / 2).max(1)));
    (0..case.machine.counts.len()).for_each(|i| {
        add(&|case| {
            case.machine.counts[i] = case.machine.counts[i].div_ceil(2);
            let cpus = case.machine.counts.iter().product();
            case.machine.offline.retain(|&cpu| cpu < cpus);
        });
    });
    add(&|case| case.background = false);
    add(&|case| case.faults = false);
    add(&|case| case.machine.offline.clear());
    add(&|case| _ = case.machine.offline.pop_last());
    add(&|case| case.machine.without_memory.clear());
    add(&|case| case.machine.memory_node = false);
    (0..case.switches.len()).for_each(|i| add(&|case| drop(case.switches.remove(i))));
    for (i, task) in case.tasks.iter().enumerate() {
        add(&|case| case.tasks[i].instances = task.instances.div_ceil(2));
        (0..task.settings.len()).for_each(|j| add(&|case| drop(case.tasks[i].settings.remove(j))));
        for (j, phase) in task.phases.iter().enumerate() {
            if task.phases.len() > 1 {
                add(&|case| drop(case.tasks[i].phases.remove(j)));
            }
            add(&|case| case.tasks[i].phases[j].times = 1);
            for k in 0..phase.settings.len() {
                add(&|case| drop(case.tasks[i].phases[j].settings.remove(k)));
            }
            // The first event stays, because it keeps the loop from standing still.
            for k in 1..phase.events.len() {
                add(&|case| drop(case.tasks[i].phases[j].events.remove(k)));
            }
        }
    }
    all
}
