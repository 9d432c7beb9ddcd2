use std::sync::Arc;

use super::*;
use crate::scheduler::TaskId;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A world on two EPYC 7763, whose C2 takes 3.4 us to leave and is worth it from 0.8 ms on. CPUs 0 to 63 are the first
/// threads of the first package's cores.
fn world() -> World {
    let machine = Arc::new(roost_machine::resolve("zen3-2s").unwrap());
    let mut world = World::for_test(machine.clone(), 64);
    world.power = PowerState::new(&machine, 4 * MS);
    world
}

/// `cpu` runs a task from now until `ns` later, and is idle then.
fn work(world: &mut World, cpu: CpuId, ns: u64) {
    world.leave_idle_state(cpu);
    world.set_now_for_test(world.now() + ns);
    world.enter_idle_state(cpu, false);
}

#[test]
fn idle_times_have_a_mean_in_common_unless_they_differ_much() {
    assert_eq!(typical_ns(&[1_000_000; 8]), Some(1_000_000));
    // All within 20 us of each other.
    assert_eq!(
        typical_ns(&[1_000, 30_000, 1_000, 30_000, 1_000, 30_000, 1_000, 30_000]),
        Some(15_500)
    );
    // Two of eight are exceptions, three are too many.
    let (usual, once) = (300_000, 9_000_000);
    assert_eq!(typical_ns(&[usual, once, usual, usual, usual, once, usual, usual]), Some(300_000));
    assert_eq!(typical_ns(&[usual, once, usual, once / 2, usual, once / 3, usual, usual]), None);
}

#[test]
fn a_cpu_that_is_woken_often_stays_in_its_shallow_state_until_its_tick() {
    let mut world = world();
    assert_eq!(world.idle_exit_ns(3), 3_400, "a machine that was idle");
    for _ in 0..8 {
        world.set_now_for_test(world.now() + 50 * US);
        work(&mut world, 3, 50 * US);
    }
    assert_eq!(world.idle_exit_ns(3), 1_000, "after 8 idle times of 50 us");
    let tick = world.tick_after(3, world.now(), 4 * MS);
    world.set_now_for_test(Time(tick.ns() - 1));
    assert_eq!(world.idle_exit_ns(3), 1_000);
    world.set_now_for_test(tick);
    assert_eq!(world.idle_exit_ns(3), 3_400);
}

#[test]
fn an_interrupt_that_comes_while_a_cpu_wakes_up_waits_for_the_rest() {
    let mut world = world();
    world.set_now_for_test(Time(MS));
    assert_eq!(world.wake_idle_ns(3), 3_400);
    world.set_now_for_test(Time(MS + 1_400));
    assert_eq!(world.wake_idle_ns(3), 2_000);
}

#[test]
fn the_clock_follows_the_number_of_active_cores_of_the_package() {
    let mut world = world();
    let clocks = |world: &mut World| {
        world.set_clocks();
        (world.clock_1024(0), world.clock_1024(64))
    };
    assert_eq!(clocks(&mut world), (1024, 1024));
    for cpu in 0..64 {
        world.leave_idle_state(cpu);
        world.set_current_for_test(cpu, Some(TaskId(cpu as u32)));
    }
    // All cores of the first package: 3000 MHz of 3500.
    assert_eq!(clocks(&mut world), (877, 1024));
    assert_eq!(world.cpus[5].speed_1024, 877);
    // A core whose idle CPUs may wake up soon is active.
    world.set_now_for_test(Time(10 * MS));
    for cpu in 8..64 {
        world.set_current_for_test(cpu, None);
        world.power.as_mut().unwrap().cpus[cpu].intervals = [50_000; INTERVALS];
        world.enter_idle_state(cpu, false);
    }
    assert_eq!(clocks(&mut world), (877, 1024));
    // From the tick on it is not: 8 cores run at 3444 MHz.
    world.set_now_for_test(Time(14 * MS));
    assert_eq!(clocks(&mut world), (1007, 1024));
    assert_eq!(world.cpus[5].speed_1024, 1007);
}

#[test]
fn the_hardware_sets_clocks_while_any_core_is_active() {
    let mut world = world();
    work(&mut world, 3, 300 * US);
    assert_eq!(world.events.due(Event::Clocks), Some(Time(MS)));
    // The CPU is idle, and had only long idle times before.
    world.events.cancel(Event::Clocks);
    world.set_clocks();
    assert!(!world.events.is_pending(Event::Clocks));
}
