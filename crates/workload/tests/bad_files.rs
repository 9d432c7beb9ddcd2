//! Malformed rt-app files: each error names file, line, key, and what to do.

use std::path::Path;

use roost_workload::rtapp;

fn check(case: &str, line: usize, path: &str, problem: &str, remedy: &str) {
    let file = format!("{case}.json");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad").join(&file);
    let text = std::fs::read_to_string(data).unwrap_or_else(|error| panic!("{file}: {error}"));
    let error = match rtapp::parse(&text, &file) {
        Ok(workload) => panic!("{file} loads: {workload:?}"),
        Err(error) => error.to_string(),
    };
    let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let start = format!("{file}:{line}: {place}");
    assert!(error.starts_with(&start), "expected {start:?} at the start of: {error}");
    assert!(error.contains(problem), "expected {problem:?} in: {error}");
    let after = error.split_once("; ").map(|(_, remedy)| remedy).unwrap_or_default();
    assert!(after.contains(remedy), "expected {remedy:?} as the remedy in: {error}");
    assert!(!error.contains('\n'), "one line: {error}");
}

/// A test for each file: name of file and test, line, key, problem, remedy.
macro_rules! bad {
    ($($case:ident, $line:literal, $path:literal, $problem:literal, $remedy:literal;)*) => {
        $(#[test]
        fn $case() {
            check(stringify!($case), $line, $path, $problem, $remedy);
        })*
    };
}

bad! {
    unclosed_object, 4, "", "expected ',' or '}', found the end of the file", "comma between keys";
    unclosed_string, 2, "", "Unterminated string", "correct the text";
    unclosed_comment, 2, "", "Unterminated comment", "correct the text";
    missing_colon, 2, "", "expected ':', found '{'", "colon between key and value";
    not_an_object, 2, "top level", "the value is an array", "give an object";
    no_tasks, 1, "tasks", "missing", "\"tasks\" object";
    empty_tasks, 2, "tasks", "no task", "define at least one";
    unknown_section, 3, "task", "unknown section", "tasks, resources, global";
    second_tasks, 3, "tasks", "given twice, first in line 2", "keep one";
    unknown_task_key, 5, "tasks.thread0.instnace", "unknown key", "instance, loop";
    misspelt_event, 4, "tasks.thread0.runtme", "unknown key", "run, runtime";
    old_grammar, 4, "tasks.thread0.exec", "before version 1.0", "events (run, sleep";
    event_beside_phases, 5, "tasks.thread0.sleep", "event beside phases", "move it into a phase";
    unknown_phase_key, 7, "tasks.thread0.phases.p.instance", "unknown key", "a phase has loop";
    empty_phase, 5, "tasks.thread0.phases.p", "no event", "\"run\" : 1000";
    empty_phases, 4, "tasks.thread0.phases", "no phase", "add one";
    run_is_a_string, 4, "tasks.thread0.run", "the value is a string", "give an integer";
    run_is_a_fraction, 4, "tasks.thread0.run", "10.5 is no integer", "give an integer from 0";
    huge_sleep, 5, "tasks.thread0.sleep", "99999999999999999999 is no integer", "give an integer from 0";
    loop_zero, 4, "tasks.thread0.loop", "0 never runs", "-1 for ever";
    loop_twice, 6, "tasks.thread0.loop", "given twice, first in line 4", "keep one";
    negative_instance, 4, "tasks.thread0.instance", "-1 is out of range", "give 0 to";
    too_many_instances, 1, "tasks", "2000000000 tasks start", "lower \"instance\"";
    nothing_starts, 1, "tasks", "no task starts", "\"instance\" of 1";
    nice_out_of_range, 4, "tasks.thread0.priority", "20 is out of range", "give -20 to 19";
    fifo_priority_out_of_range, 5, "tasks.thread0.priority", "100 is out of range", "give 1 to 99";
    unknown_policy, 4, "tasks.thread0.policy", "'SCHED_DEADLINE' is not supported", "choose from SCHED_OTHER";
    utilisation_clamp, 4, "tasks.thread0.util_min", "not supported", "remove it";
    no_cpu, 4, "tasks.thread0.cpus", "no CPU", "name at least one";
    negative_cpu, 6, "tasks.thread0.cpus", "-1 is out of range", "give 0 to 8191";
    cpus_no_array, 4, "tasks.thread0.cpus", "the value is an integer", "an array of CPU numbers";
    relative_taskgroup, 4, "tasks.thread0.taskgroup", "not a cgroup path", "begin it with /";
    real_time_phase_in_a_taskgroup, 9, "tasks.thread0.phases.q", "a taskgroup with policy SCHED_FIFO",
        "only SCHED_OTHER, SCHED_BATCH and SCHED_IDLE";
    timer_without_period, 5, "tasks.thread0.timer", "\"period\" is missing", "\"period\" : us";
    timer_with_unknown_mode, 5, "tasks.thread0.timer.mode", "unknown mode 'abs'", "relative or absolute";
    wait_without_mutex, 5, "tasks.thread0.wait", "\"mutex\" is missing", "\"mutex\" : mutex";
    wait_with_mutex_not_held, 4, "tasks.thread0.wait", "does not hold this mutex", "lock it before";
    locked_twice, 6, "tasks.thread0.lock2", "already holds this mutex", "unlock it before";
    unlock_without_lock, 5, "tasks.thread0.unlock", "does not hold this mutex", "lock it before";
    loop_keeps_a_mutex, 3, "tasks.thread0", "changes whether a mutex is locked", "same phase";
    never_unlocked, 3, "tasks.thread0", "a mutex is never unlocked", "after its last use";
    endless_without_time, 3, "tasks.thread0", "loops without consuming time", "add a run";
    endless_phase_without_time, 5, "tasks.thread0.phases.p", "loops without consuming time", "add a run";
    lone_barrier_spins, 3, "tasks.thread0", "loops without consuming time", "add a run";
    barrier_twice_in_a_task, 7, "tasks.thread0.barrier2", "already waits at this barrier in line 5",
        "name each meeting point";
    fork_of_nobody, 5, "tasks.thread0.fork", "no task 'child'", "fork one of thread0";
    fork_cycle, 5, "tasks.thread0.fork", "cyclic", "after a run or sleep";
    fork_bomb, 5, "tasks.thread0.fork", "cyclic", "outside of loops";
    duration_zero, 7, "global.duration", "a run of 0 s", "-1";
    bad_calibration, 7, "global.calibration", "not a calibration", "\"CPU0\"";
    unknown_resource_type, 3, "resources.m.type", "unknown type 'semaphore'", "choose from mutex";
    too_deep, 3, "", "more than 32 levels", "six levels";
}
