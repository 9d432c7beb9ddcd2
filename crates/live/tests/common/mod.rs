//! Helpers of the tests that run in guests. Each test uses only a part of them.

#![allow(dead_code, unused_imports, unused_macros, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::path::Path;

use roost_vm::{Cache, Given, GuestSpec, Job, JobResult, Pieces, VmError};

/// The newest kernel that is tested, and the oldest in the archive that has sched_ext.
pub const KERNELS: [&str; 2] = ["7.2", "6.16"];

/// Turns functions that take a kernel into tests, one for each of [`KERNELS`].
macro_rules! on_each_kernel {
    ($($name:ident),*) => {
        mod on_the_newest_kernel {
            $(
                #[test]
                #[ignore = "boots a guest: make test-live"]
                fn $name() {
                    super::$name(super::common::KERNELS[0]);
                }
            )*
        }
        mod on_the_oldest_kernel {
            $(
                #[test]
                #[ignore = "boots a guest: make test-live"]
                fn $name() {
                    super::$name(super::common::KERNELS[1]);
                }
            )*
        }
    };
}
pub(crate) use on_each_kernel;

/// Shell functions at the start of every job. `start` waits until the scheduler runs, `stop` until it has gone. The
/// scheduler's output is in the files `out` and `err`.
const FUNCTIONS: &str = r#"
state() { cat /sys/kernel/sched_ext/state; }
await() { for i in $(seq 300); do [ "$(state)" = "$1" ] && return; sleep 0.1; done; echo "state: $(state)"; }
start() { ./scx_roost --stats 3600 "$@" >out 2>err & roost=$!; await enabled; }
stop() { kill "-${1:-INT}" $roost; wait $roost 2>/dev/null; await disabled; }
"#;

/// A cache with all pieces that guests of the tested kernels need.
pub fn cache() -> Cache {
    cache_of(&KERNELS)
}

/// [`cache`], but only for these kernels.
pub fn cache_of(kernels: &[&str]) -> Cache {
    let cache = Cache::of_user().unwrap();
    for kernel in kernels {
        let pieces = Pieces::prepare(&cache, &given(kernel), &mut |line| eprintln!("{line}"));
        pieces.unwrap_or_else(|error| {
            panic!("no guests on this host (make WITHOUT=guests leaves them out): {error}")
        });
    }
    cache
}

pub fn given(kernel: &str) -> Given {
    Given { kernel: Some(kernel.to_owned()), ..Given::default() }
}

pub fn spec(machine: &str, kernel: &str) -> GuestSpec {
    let mut spec = GuestSpec::new(&roost_machine::resolve(machine).unwrap());
    spec.given = given(kernel);
    // On a busy host, the kernel's test of its timer can fail, which would end the boot.
    spec.kernel_arguments = "no_timer_check".into();
    spec
}

pub fn job(script: &str) -> Job {
    Job::script(format!("{FUNCTIONS}\n{script}"))
        .with_file("scx_roost", Path::new(env!("CARGO_BIN_EXE_scx_roost")))
}

/// Ends the test with all that is known about a failed guest.
pub fn told<T>(result: Result<T, VmError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}\n{}", error.console().join("\n")))
}

pub fn text(result: &JobResult) -> String {
    let [out, err] = [&result.stdout, &result.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// The counters in a line of statistics.
pub fn counters(line: &str) -> BTreeMap<String, u64> {
    let pairs = line.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The number that follows `before` in a text.
pub fn number_after(text: &str, before: &str) -> f64 {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {text}")).1;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("no number after {before:?} in {text}"))
}

/// Binds this thread to CPUs.
pub fn pin(cpus: &[usize]) {
    // SAFETY: a set of zeros is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set has the given size.
    let result = unsafe {
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    assert_eq!(result, 0);
}

/// Percentage of pages of `memory` that are on a node.
pub fn percent_on(memory: &[u8], node: i32) -> f64 {
    let pages: Vec<*const u8> = memory.chunks(4096).map(<[u8]>::as_ptr).collect();
    let mut status = vec![-1_i32; pages.len()];
    // SAFETY: both arrays have the given number of entries.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            0_usize,
            status.as_mut_ptr(),
            0,
        )
    };
    assert_eq!(result, 0);
    status.iter().filter(|&&on| on == node).count() as f64 * 100.0 / pages.len() as f64
}
