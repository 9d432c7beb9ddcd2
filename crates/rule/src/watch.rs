//! Loads an object, and watches in a thread whether its functions return.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libloading::Library;
use roost_policy::Decisions;

use crate::RuleError;

/// Longest time that a function may take. Rules are formulas that take nanoseconds.
pub const LIMIT: Duration = Duration::from_secs(5);

/// Interval between two checks.
const GLANCE: Duration = Duration::from_millis(250);

/// What a thread is executing (`struct slot` of own_rule.c).
#[repr(C)]
struct Slot {
    /// Name of the function. Null if there is none.
    function: AtomicPtr<c_char>,
    /// Number of calls so far.
    calls: AtomicU64,
}

/// When a call was first seen.
#[derive(Clone, Copy, Default)]
struct Seen {
    calls: u64,
    since: Option<Instant>,
}

/// Loads the object that was compiled from `file`, and watches it.
pub fn load(file: &str, object: &Path) -> Result<Decisions, RuleError> {
    let failed = |error: libloading::Error| RuleError::Object {
        file: file.to_owned(),
        why: error.to_string(),
    };
    // SAFETY: the object was compiled from own_rule.c. Its constructor only sets signal handlers.
    let library = unsafe { Library::new(object) }.map_err(failed)?;
    // It stays loaded until the process ends, because its functions are called from now on.
    let library: &'static Library = Box::leak(Box::new(library));
    let find = |name: &'static str| {
        // SAFETY: only the address is used.
        unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }
            .map(|symbol| *symbol as *const ())
    };
    // SAFETY: own_rule.c includes bindings.c, and the library stays loaded.
    let rules = unsafe { Decisions::of_object(find) }.map_err(failed)?;
    // SAFETY: these are the types in own_rule.c.
    let slots = unsafe {
        let number =
            **library.get::<*const std::ffi::c_ulong>(b"roost_nr_slots").map_err(failed)?;
        let first = *library.get::<*const Slot>(b"roost_slots").map_err(failed)?;
        std::slice::from_raw_parts(first, number as usize)
    };
    let name = CString::new(file).unwrap_or_default().into_raw();
    // SAFETY: this is the type in own_rule.c, and the name stays valid. Handlers read either the old or the new
    // pointer.
    unsafe {
        let rule = *library.get::<*const AtomicPtr<c_char>>(b"roost_rule").map_err(failed)?;
        (*rule).store(name, Ordering::Relaxed);
    }
    let file = file.to_owned();
    std::thread::Builder::new()
        .name("rules".to_owned())
        .spawn(move || watch(&file, slots))
        .map_err(|error| RuleError::Object { file: String::new(), why: error.to_string() })?;
    Ok(rules)
}

/// Ends the process if a function has not returned for [`LIMIT`], because a single thread cannot be ended.
fn watch(file: &str, slots: &'static [Slot]) {
    let mut seen = vec![Seen::default(); slots.len()];
    loop {
        std::thread::sleep(GLANCE);
        for (slot, seen) in slots.iter().zip(&mut seen) {
            if let Some(function) = slot.is_stuck(seen, Instant::now()) {
                let seconds = LIMIT.as_secs();
                let problem = "correct its loop, because a rule is a formula";
                eprintln!("roost: {file}: {function} has not returned for {seconds} s; {problem}");
                std::process::exit(1);
            }
        }
    }
}

impl Slot {
    /// The function that the thread has been in for [`LIMIT`], by its name in the headers.
    fn is_stuck(&self, seen: &mut Seen, now: Instant) -> Option<String> {
        let function = self.function.load(Ordering::Relaxed);
        let calls = self.calls.load(Ordering::Relaxed);
        if function.is_null() || calls != seen.calls {
            *seen = Seen { calls, since: None };
            return None;
        }
        let since = *seen.since.get_or_insert(now);
        if now.duration_since(since) < LIMIT {
            return None;
        }
        // SAFETY: the name is in the object, which stays loaded.
        let name = unsafe { CStr::from_ptr(function) }.to_string_lossy();
        Some(name.replacen("policy_", "roost_", 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_call_for_all_of_the_limit_is_stuck() {
        let name = c"policy_nr_idle_scan".as_ptr().cast_mut();
        let slot = Slot { function: AtomicPtr::new(name), calls: AtomicU64::new(1) };
        let start = Instant::now();
        let mut seen = Seen::default();
        let mut after = |ms| slot.is_stuck(&mut seen, start + Duration::from_millis(ms));
        assert_eq!(after(0), None, "first seen");
        assert_eq!(after(1000), None, "begins to count");
        slot.calls.store(2, Ordering::Relaxed);
        assert_eq!(after(9000), None, "another call");
        assert_eq!(after(10_000), None);
        assert_eq!(after(14_999), None);
        assert_eq!(after(15_000).as_deref(), Some("roost_nr_idle_scan"));
        slot.function.store(std::ptr::null_mut(), Ordering::Relaxed);
        assert_eq!(after(99_000), None, "returned");
    }
}
