//! The meaning of keys in rt-app files, according to the tutorial and rt-app's source.

use roost_workload::{
    Cpus, Group, MetricKind, Op, Placement, Policy, Region, Sharing, Slice, TimerRef, Workload,
    rtapp,
};

fn parse(text: &str) -> Workload {
    rtapp::parse(text, "f.json").unwrap_or_else(|error| panic!("{error}"))
}

/// The first task's operations after the common start.
fn ops(workload: &Workload) -> &[Op] {
    let (start, rest) = workload.templates[0].program.ops.split_first().expect("a program");
    assert!(matches!(start, Op::Start { .. }), "{start:?}");
    rest
}

#[test]
fn times_are_microseconds_and_the_duration_is_seconds() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "delay" : 7, "run" : 1, "sleep" : 2, "runtime" : 3 } },
             "global" : { "duration" : 4 } }"#,
    );
    assert_eq!(workload.duration_ns, Some(4_000_000_000));
    assert_eq!(workload.templates[0].program.ops[0], Op::Start { delay_ns: 7_000 });
    let expected = [Op::Run { ns: 1_000 }, Op::Sleep { ns: 2_000 }, Op::Runtime { ns: 3_000 }];
    assert_eq!(ops(&workload)[..3], expected);
}

#[test]
fn a_duration_of_minus_one_means_until_all_exit() {
    let text = r#"{ "tasks" : { "t" : { "loop" : 2, "run" : 1 } },
                    "global" : { "duration" : -1 } }"#;
    let workload = parse(text);
    assert_eq!(workload.duration_ns, None);
    assert!(workload.endless_template().is_none());
}

#[test]
fn events_may_carry_suffixes_and_keep_their_order() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "run1" : 1, "sleep_2" : 2, "run" : 3, "run" : 4, "runB" : 5 } } }"#,
    );
    let lengths: Vec<u64> = ops(&workload)
        .iter()
        .filter_map(|op| match op {
            Op::Run { ns } | Op::Sleep { ns } => Some(*ns),
            _ => None,
        })
        .collect();
    assert_eq!(lengths, [1_000, 2_000, 3_000, 4_000, 5_000]);
}

#[test]
fn sync_signals_and_waits_under_the_mutex_that_the_task_holds() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "lock" : "m", "sync" : { "ref" : "c", "mutex" : "m" },
                                 "broad" : "c", "unlock" : "m" } } }"#,
    );
    assert_eq!(
        ops(&workload)[..5],
        [
            Op::Lock(0),
            Op::Signal(0),
            Op::Wait { condition: 0, mutex: 0 },
            Op::Broadcast(0),
            Op::Unlock(0)
        ]
    );
}

#[test]
fn a_barrier_waits_for_every_instance_of_every_task_that_names_it() {
    let workload = parse(
        r#"{ "tasks" : { "a" : { "instance" : 3, "run" : 1, "barrier" : "b" },
                         "c" : { "instance" : 2, "barrier" : "b", "run" : 1 } } }"#,
    );
    assert_eq!(workload.barriers, [5]);
    let meet = [Op::Lock(0), Op::Meet { barrier: 0, mutex: 0 }, Op::Unlock(0)];
    assert_eq!(ops(&workload)[1..4], meet);
}

#[test]
fn the_mutex_of_a_barrier_is_nobody_elses() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "lock" : "b", "unlock" : "b", "run" : 1, "barrier" : "b" } } }"#,
    );
    assert_eq!(workload.mutexes, 2);
    assert_eq!(ops(&workload)[3..5], [Op::Lock(1), Op::Meet { barrier: 0, mutex: 1 }]);
}

#[test]
fn a_task_goes_to_its_cpus_after_the_common_start() {
    let workload = parse(r#"{ "tasks" : { "t" : { "cpus" : [ 3 ], "loop" : 5, "run" : 1 } } }"#);
    let template = &workload.templates[0];
    assert_eq!(
        (&template.affinity, &template.program.affinities[..]),
        (&None, &[Some(Cpus::List(vec![3]))][..])
    );
    assert_eq!(ops(&workload)[..2], [Op::SetAffinity(0), Op::Run { ns: 1_000 }]);
    assert!(ops(&workload).contains(&Op::Loop { depth: 0, times: 5, to: 2 }));
}

#[test]
fn a_timer_is_absolute_as_soon_as_one_of_its_uses_says_so() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "timer" : { "ref" : "tick", "period" : 5 },
            "timer2" : { "ref" : "tick", "period" : 6, "mode" : "absolute" },
            "timer3" : { "ref" : "uniqueA", "period" : 7, "mode" : "relative" },
            "timer4" : { "ref" : "uniqueB", "period" : 8 } } } }"#,
    );
    let timer = |timer, period_ns, absolute| Op::Timer { timer, period_ns, absolute };
    assert_eq!(
        ops(&workload)[..4],
        [
            timer(TimerRef::Shared(0), 5_000, true),
            timer(TimerRef::Shared(0), 6_000, true),
            timer(TimerRef::Own(0), 7_000, false),
            timer(TimerRef::Own(1), 8_000, false),
        ]
    );
}

#[test]
fn policy_priority_and_default_policy_apply_to_tasks_and_phases() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "priority" : 5, "phases" : {
                "p" : { "policy" : "SCHED_IDLE", "run" : 1 },
                "q" : { "policy" : "SCHED_OTHER", "priority" : -3, "run" : 1 } } } },
             "global" : { "default_policy" : "SCHED_BATCH" } }"#,
    );
    let template = &workload.templates[0];
    assert_eq!((template.policy, template.nice), (Policy::Batch, 5));
    assert_eq!(
        ops(&workload)[..6],
        [
            Op::SetPolicy(Policy::Idle),
            Op::SetNice(0),
            Op::Run { ns: 1_000 },
            Op::SetPolicy(Policy::Normal),
            Op::SetNice(-3),
            Op::Run { ns: 1_000 },
        ]
    );
}

#[test]
fn a_phase_takes_its_priority_range_from_the_policy_in_force() {
    let text = |policy| {
        format!(
            r#"{{ "tasks" : {{ "t" : {{ "phases" : {{ "p" : {{ "priority" : 50, "run" : 1 }} }},
                 "policy" : "{policy}" }} }} }}"#
        )
    };
    assert!(rtapp::parse(&text("SCHED_FIFO"), "f").is_ok());
    let error = rtapp::parse(&text("SCHED_OTHER"), "f").unwrap_err().to_string();
    assert!(error.contains("tasks.t.phases.p.priority: 50 is out of range"), "{error}");
}

#[test]
fn a_phase_without_cpus_returns_to_those_of_the_task() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "phases" : { "p" : { "cpus" : [ 3, 1, 3 ], "run" : 1 },
                                              "q" : { "run" : 1 } } } } }"#,
    );
    assert_eq!(workload.templates[0].program.affinities, [Some(Cpus::List(vec![1, 3])), None]);
    assert_eq!(ops(&workload)[2], Op::SetAffinity(1));
}

#[test]
fn fork_starts_a_task_of_no_instance() {
    let workload = parse(
        r#"{ "tasks" : { "parent" : { "loop" : 3, "sleep" : 1, "fork" : "child" },
                         "child" : { "instance" : 0, "loop" : 1, "run" : 1 } } }"#,
    );
    assert_eq!(workload.start, [(0, 1)]);
    assert_eq!(ops(&workload)[1], Op::Fork(1));
}

/// rt-app's set_thread_taskgroup(): each thread is moved separately, with `mkdir -p` and without a weight.
#[test]
fn each_thread_is_in_the_task_group_it_names() {
    let workload = parse(
        r#"{ "tasks" : { "a" : { "taskgroup" : "/web/front", "run" : 1 },
                         "b" : { "run" : 1 }, "c" : { "taskgroup" : "/web", "run" : 1 },
                         "d" : { "taskgroup" : "/", "run" : 1 } } }"#,
    );
    let groups: Vec<_> = workload.templates.iter().map(|task| task.group).collect();
    assert_eq!(groups, [Some(1), None, Some(0), None]);
    let group = |path: &str, parent| Group { path: path.to_string(), parent, weight: 100 };
    assert_eq!(workload.groups, [group("/web", None), group("/web/front", Some(0))]);
    assert_eq!(workload.processes.len(), 1, "rt-app's threads are of one process");
}

/// rt-app's `set_thread_taskgroup()` at each phase, after the affinity. A phase without a group, or with an empty one,
/// stays in the group of the phase before. `/` is the root group.
#[test]
fn a_phase_moves_its_thread_to_the_task_group_it_names() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "taskgroup" : "/start", "phases" : {
                "a" : { "cpus" : [ 1 ], "taskgroup" : "/tg1/tg11", "run" : 1 },
                "b" : { "loop" : 1, "run" : 2 }, "c" : { "taskgroup" : "", "run" : 3 },
                "d" : { "taskgroup" : "/", "run" : 4 } } } } }"#,
    );
    assert_eq!(workload.templates[0].group, Some(0), "/start");
    let paths: Vec<_> = workload.groups.iter().map(|group| group.path.as_str()).collect();
    assert_eq!(paths, ["/start", "/tg1", "/tg1/tg11"]);
    let of_interest = |op: &&Op| matches!(op, Op::SetGroup(_) | Op::Run { .. });
    let ops: Vec<Op> = ops(&workload).iter().filter(of_interest).copied().collect();
    let run = |us: u64| Op::Run { ns: us * 1000 };
    let into = Op::SetGroup;
    assert_eq!(ops, [into(Some(2)), run(1), run(2), run(3), into(None), run(4)]);
}

/// rt-app's memload(): memset over the buffer, as often as needed.
#[test]
fn mem_writes_the_buffer_of_each_thread_again_and_again() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "instance" : 2, "membind_nodes" : [ 1 ], "mem" : 2500 } },
             "global" : { "mem_buffer_size" : 1000 } }"#,
    );
    let region =
        |bytes| Region { bytes, sharing: Sharing::Thread, placement: Placement::Bind(vec![1]) };
    assert_eq!(workload.regions, [region(1000), region(500)]);
    let passes = [Op::Access(0), Op::Loop { depth: 1, times: 2, to: 1 }, Op::Access(1)];
    assert_eq!(ops(&workload)[..3], passes);
    let written = &workload.templates[0].program.accesses[1].slices;
    assert_eq!(written[..], [Slice { region: 1, write: true }]);
}

#[test]
fn each_task_reports_its_wakeup_latency_and_its_loops() {
    let workload = parse(r#"{ "tasks" : { "t" : { "run" : 1 } }, "global" : { "duration" : 1 } }"#);
    let names: Vec<&str> = workload.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["t wu_lat avg", "t wu_lat p99", "t loops/s"]);
    assert!(matches!(workload.metrics[2].kind, MetricKind::Rate { counter: 0, .. }));
}

#[test]
fn an_endless_last_phase_counts_its_own_loops() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "loop" : 1, "phases" : { "p" : { "loop" : -1, "run" : 1 } } } } }"#,
    );
    assert_eq!(ops(&workload)[1], Op::Count { counter: 0, by: 1 });
    assert_eq!(ops(&workload)[2], Op::Loop { depth: 0, times: 0, to: 1 });
}

#[test]
fn tasks_of_equal_name_are_numbered_as_workgen_does() {
    let workload = parse(r#"{ "tasks" : { "t" : { "run" : 1 }, "t" : { "run" : 2 } } }"#);
    let names: Vec<&str> = workload.templates.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["t", "t1"]);
}

#[test]
fn a_missing_file_is_named() {
    let error = rtapp::load_file("no/such/file.json").unwrap_err().to_string();
    assert!(error.starts_with("no/such/file.json: cannot be read"), "{error}");
}

#[test]
fn a_wait_that_nothing_ends_is_noted() {
    let text = r#"{ "tasks" : { "a" : { "run" : 1, "suspend" : "wrker" },
                                "b" : { "run" : 1, "resume" : "worker" } } }"#;
    let notes = rtapp::load(text, "f").unwrap().notes;
    assert_eq!(notes, ["tasks.a.suspend: no task signals or resumes 'wrker'"]);
}

/// rt-app's ioload(): write() of the buffer to /dev/null, as often as needed.
#[test]
fn iorun_costs_a_system_call_a_buffer() {
    let parsed = rtapp::load(
        r#"{ "tasks" : { "t" : { "loop" : 1, "iorun" : 2500 } },
             "global" : { "mem_buffer_size" : 1000, "io_device" : "/dev/sdb" } }"#,
        "f.json",
    );
    let loaded = parsed.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ops(&loaded.workload)[0], Op::Run { ns: 600 });
    assert!(loaded.notes[0].contains("io_device"), "{:?}", loaded.notes);
    assert!(loaded.workload.regions.is_empty(), "/dev/null looks at no byte");
}

/// rt-app's set_thread_membind(): the nodes of a phase apply until another phase names nodes, to pages that were not
/// touched before.
#[test]
fn the_phase_that_touches_the_buffer_first_says_where_it_is() {
    let placement = |phases: &str| {
        let text = format!(
            r#"{{ "tasks" : {{ "t" : {{ "nodes_membind" : [ 3 ], "phases" : {{ {phases} }} }} }} }}"#
        );
        parse(&text).regions[0].placement.clone()
    };
    let early = r#""a" : { "nodes_membind" : [ 1 ], "run" : 1 }, "b" : { "mem" : 1 },
                   "c" : { "nodes_membind" : [ 2 ], "mem" : 1 }"#;
    assert_eq!(placement(early), Placement::Bind(vec![1]));
    assert_eq!(placement(r#""a" : { "mem" : 1 }"#), Placement::Bind(vec![3]));
}

/// rt-app's parse_global() reads the keys that it knows and ignores all others.
#[test]
fn unknown_keys_of_global_are_ignored_with_a_note() {
    let text = r#"{ "tasks" : { "t" : { "run" : 1 } },
                    "global" : { "duration" : 1, "logstats" : false } }"#;
    let loaded = rtapp::load(text, "f").unwrap();
    assert_eq!(loaded.workload.duration_ns, Some(1_000_000_000));
    assert_eq!(loaded.notes, ["global.logstats: rt-app knows no such key and ignores it"]);
}

/// rt-app's loadwait() takes the length as unsigned, so a negative length is half a million years.
#[test]
fn a_negative_run_never_ends_and_no_loop_with_it_is_counted() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "sleep" : 5, "run" : -1 } }, "global" : { "duration" : 1 } }"#,
    );
    assert!(matches!(
        ops(&workload)[1..3],
        [Op::Run { ns: 1.. }, Op::Loop { times: 0, to: 2, .. }]
    ));
    assert!(workload.endless_template().is_some());
    let names: Vec<&str> = workload.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["t wu_lat avg", "t wu_lat p99"]);
}

/// rt-app's __set_thread_sched_other_attrs(), for SCHED_OTHER and SCHED_BATCH.
#[test]
fn dl_runtime_asks_for_a_slice() {
    let workload = parse(
        r#"{ "tasks" : { "t" : { "dl-runtime" : 1000, "phases" : {
                "p" : { "priority" : 3, "dl-runtime" : 2000, "run" : 1 } } } } }"#,
    );
    let expected = [
        Op::SetSlice { ns: 1_000_000 },
        Op::SetNice(3),
        Op::SetSlice { ns: 2_000_000 },
        Op::Run { ns: 1_000 },
    ];
    assert_eq!(ops(&workload)[..4], expected);
}

/// rt-app's _set_thread_cfs() returns early if the priority does not change, and sets no slice for SCHED_IDLE.
#[test]
fn a_slice_that_rt_app_does_not_set_is_noted() {
    let notes = |task: &str| {
        let text = format!(r#"{{ "tasks" : {{ "t" : {task} }} }}"#);
        let loaded = rtapp::load(&text, "f").unwrap();
        let asks = ops(&loaded.workload).iter().any(|op| matches!(op, Op::SetSlice { .. }));
        assert!(!asks, "{task}");
        loaded.notes
    };
    assert_eq!(
        notes(r#"{ "phases" : { "p" : { "dl-runtime" : 1000, "run" : 1 } } }"#),
        ["tasks.t.phases.p.dl-runtime: rt-app ignores it in a phase without policy or priority"]
    );
    assert_eq!(
        notes(r#"{ "policy" : "SCHED_IDLE", "dl-runtime" : 1000, "run" : 1 }"#),
        ["tasks.t.dl-runtime: rt-app sets no slice of SCHED_IDLE"]
    );
    assert_eq!(
        notes(r#"{ "dl-period" : 1000, "run" : 1 }"#),
        ["tasks.t.dl-period: only SCHED_DEADLINE has it, which is not simulated"]
    );
}
