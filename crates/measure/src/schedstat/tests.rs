use super::*;

const BEFORE: &str = include_str!("../../tests/data/before/schedstat");
const AFTER: &str = include_str!("../../tests/data/after/schedstat");

fn unnamed(_: u32, _: usize) -> Option<String> {
    None
}

fn parse(text: &str) -> Result<Schedstat, MeasureError> {
    Schedstat::parse("schedstat", text, unnamed)
}

fn delta(before: &str, after: &str) -> SchedstatDelta {
    parse(after).unwrap().since(&parse(before).unwrap()).unwrap()
}

fn value(delta: &SchedstatDelta, name: &str) -> u64 {
    let mut found = Vec::new();
    delta.for_each(&mut |known, value| {
        if known == name {
            found.push(value)
        }
    });
    assert_eq!(found.len(), 1, "{name}");
    found[0]
}

/// One CPU with one domain. The numbers are 1, 2, 3 ...
fn counted_up(version: u32, name: &str, numbers: u32) -> (String, String) {
    let text = |numbers: Vec<u32>| {
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        let numbers = numbers.join(" ");
        format!(
            "version {version}\ntimestamp 4\ncpu0 1 0 2 3 4 5 6 7 8\ndomain0{name} 000f {numbers}\n"
        )
    };
    (text(vec![0; numbers as usize]), text((1..=numbers).collect()))
}

#[test]
fn idle_types_come_in_the_order_of_the_version() {
    let (before, after) = counted_up(15, "", 36);
    let old = delta(&before, &after);
    let (before, after) = counted_up(16, "", 36);
    let new = delta(&before, &after);
    for (delta, busy, idle) in [(&old, 9, 1), (&new, 1, 9)] {
        assert_eq!(value(delta, "domain0.lb_count.busy"), busy);
        assert_eq!(value(delta, "domain0.lb_count.idle"), idle);
        assert_eq!(value(delta, "domain0.lb_imbalance.idle"), idle + 3);
        assert_eq!(value(delta, "domain0.lb_nobusyg.newidle"), 24);
        assert_eq!(value(delta, "domain0.alb_count"), 25);
        assert_eq!(value(delta, "domain0.alb_pushed"), 27);
        assert_eq!(value(delta, "domain0.ttwu_wake_remote"), 34);
        assert_eq!(value(delta, "domain0.ttwu_move_balance"), 36);
    }
}

#[test]
fn version_17_names_levels_and_has_four_imbalances() {
    let (before, after) = counted_up(17, " MC", 45);
    let delta = delta(&before, &after);
    assert_eq!(value(&delta, "MC.lb_failed.busy"), 3);
    assert_eq!(value(&delta, "MC.lb_imbalance.busy"), 4 + 5 + 6 + 7);
    assert_eq!(value(&delta, "MC.lb_gained.busy"), 8);
    assert_eq!(value(&delta, "MC.lb_count.idle"), 12);
    assert_eq!(value(&delta, "MC.lb_nobusyg.newidle"), 33);
    assert_eq!(value(&delta, "MC.alb_failed"), 35);
    assert_eq!(value(&delta, "MC.ttwu_move_affine"), 44);
}

#[test]
fn overflow_of_a_32_bit_counter_does_not_show() {
    let text = |yields: u32, run: u64| format!("version 17\ncpu0 {yields} 0 0 0 0 0 {run} 0 0\n");
    let delta = delta(&text(u32::MAX - 1, 1 << 40), &text(3, (1 << 40) + (1 << 33)));
    assert_eq!(value(&delta, "yld_count"), 5);
    assert_eq!(value(&delta, "rq_cpu_time"), 1 << 33);
}

#[test]
fn the_caller_names_levels_that_the_kernel_does_not() {
    let (_, text) = counted_up(15, "", 36);
    let more = text.lines().last().unwrap().replace("domain0", "domain1");
    let more = format!("{text}{more}\n{}\n", more.replace("domain1", "domain2"));
    let names = ["DIE", "NUMA", "NUMA"];
    let name = |cpu, domain: usize| (cpu == 0).then(|| names[domain].to_owned());
    let parsed = Schedstat::parse("schedstat", &more, name).unwrap();
    let delta = parsed.since(&parsed).unwrap();
    for level in ["PKG", "NUMA", "NUMA2"] {
        assert_eq!(value(&delta, &format!("{level}.alb_count")), 0);
    }
}

/// The sum of a column over those lines of all CPUs that begin with `key`.
fn column(text: &str, key: &str, level: Option<&str>, column: usize) -> u64 {
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let chosen = lines
        .filter(|words| words[0].starts_with(key) && level.is_none_or(|level| words[1] == level));
    chosen.map(|words| words[column].parse::<u64>().unwrap()).sum()
}

#[test]
fn a_real_guest_is_read_as_its_columns_say() {
    let delta = delta(BEFORE, AFTER);
    let differs =
        |key, level, index| column(AFTER, key, level, index) - column(BEFORE, key, level, index);
    assert_eq!(value(&delta, "sched_goidle"), differs("cpu", None, 4));
    assert_eq!(value(&delta, "rq_cpu_time"), differs("cpu", None, 7));
    for level in ["SMT", "CLS", "MC", "NUMA"] {
        let named = |name: &str| value(&delta, &format!("{level}.{name}"));
        assert_eq!(named("lb_count.busy"), differs("domain", Some(level), 3));
        assert_eq!(named("lb_count.idle"), differs("domain", Some(level), 14));
        assert_eq!(named("lb_count.newidle"), differs("domain", Some(level), 25));
        assert_eq!(named("ttwu_wake_remote"), differs("domain", Some(level), 45));
    }
    assert!(value(&delta, "SMT.lb_count.newidle") > 0, "nothing was counted");
}

#[test]
fn names_are_those_of_the_simulation() {
    let machine = roost_machine::resolve("node:2 l3:1 core:2 pu:2").unwrap();
    let features = roost_fair::Features::parse("fair@7.2").unwrap();
    let mut simulated = std::collections::BTreeSet::new();
    roost_engine::Scheduler::counters(
        &roost_fair::Fair::new(&machine, features),
        &mut |name, _| {
            simulated.insert(name.to_owned());
        },
    );
    let mut shared = 0;
    delta(BEFORE, AFTER).for_each(&mut |name, _| {
        shared += usize::from(simulated.contains(name));
        let of_level = name.contains('.');
        assert!(!of_level || simulated.contains(name), "{name} is no counter of the simulation");
    });
    assert_eq!(shared, 2 + 4 * 30, "two of a CPU, 30 for each of the levels SMT, CLS, MC, NUMA");
}

#[test]
fn what_is_unknown_is_named() {
    let error = |text: &str| parse(text).unwrap_err().to_string();
    assert!(error("version 18\n").starts_with("schedstat:1: schedstat version is 18, known are"));
    assert!(error("").starts_with("schedstat:1: schedstat version is none"));
    assert!(error("version 17\ncpu0 1 2 3\n").starts_with("schedstat:2: 3 numbers instead of 9"));
    assert!(error("version 17\ndomain0 MC 1 2\n").contains("a domain before any CPU"));
    assert!(error("version 16\nnode0 1\n").contains("unknown kind \"node0\""));
    let twice = "version 17\ncpu0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0\n";
    assert!(error(twice).starts_with("schedstat:3: CPU 0 a second time"));
    let (text, _) = counted_up(17, " MC", 45);
    let fewer = text.trim_end().strip_suffix(" 0").unwrap();
    assert!(error(fewer).contains("44 numbers instead of 45"));
    assert!(error(&text.replace(" MC 000f 0", " MC 000f -1")).contains("\"-1\" is not a number"));
}

#[test]
fn domains_that_changed_are_an_error() {
    let before = parse(BEFORE).unwrap();
    let fewer = AFTER.split("cpu15").next().unwrap();
    let renamed = AFTER.replace("CLS", "NODE");
    for after in [fewer, &renamed] {
        let error = parse(after).unwrap().since(&before).unwrap_err().to_string();
        assert!(error.contains("other CPUs or scheduling domains"), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(version 1[5-8]\n)?([a-z0-9 ]|cpu[0-3] |domain[0-2] |\n){0,200}") {
        if let Ok(parsed) = parse(&text) {
            proptest::prop_assert!(parsed.since(&parsed).is_ok());
        }
    }
}
