//! Which functions decide: the functions of the headers, some of which a user's rule may replace.
//!
//! Every function of this crate calls through a table. By default, each thread uses the table of the headers. A run
//! with a user's rule puts another table in force on its thread until the run ends ([`Decisions::enforce`]).

use std::cell::Cell;
use std::fmt;
use std::ptr;

use crate::{HEADERS_RULES, Table};

thread_local! {
    /// The table in force on this thread.
    static IN_FORCE: Cell<&'static Table> = const { Cell::new(&HEADERS_RULES) };
}

/// The table in force.
#[inline]
pub(crate) fn in_force() -> &'static Table {
    IN_FORCE.get()
}

/// A set of all functions that decide.
#[derive(Clone, Copy)]
pub struct Decisions(&'static Table);

/// While this value lives, its rules are in force.
#[must_use]
#[derive(Debug)]
pub struct InForce {
    before: Decisions,
}

impl Decisions {
    /// The functions of the headers.
    pub const OF_HEADERS: Self = Self(&HEADERS_RULES);

    /// The functions of an object with the symbols of `bindings.c`. `find` returns the function of a name.
    ///
    /// # Errors
    /// The errors of `find`.
    ///
    /// # Safety
    /// `find` must return the function of that name, with the type that this crate's `bindings.c` gives it. The object
    /// must stay loaded.
    pub unsafe fn of_object<E>(
        mut find: impl FnMut(&'static str) -> Result<*const (), E>,
    ) -> Result<Self, E> {
        // SAFETY: the caller's promise is the same.
        let table = unsafe { Table::find(&mut find) }?;
        // Leaked, because the object stays loaded until the process ends too.
        Ok(Self(Box::leak(Box::new(table))))
    }

    /// Puts the rules in force on this thread until the returned value is dropped.
    pub fn enforce(self) -> InForce {
        InForce { before: Self(IN_FORCE.replace(self.0)) }
    }
}

impl Drop for InForce {
    fn drop(&mut self) {
        IN_FORCE.set(self.before.0);
    }
}

/// Equal if they are the same table.
impl PartialEq for Decisions {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Decisions {}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if *self == Self::OF_HEADERS { "of the headers" } else { "of its own" };
        write!(f, "Decisions({name})")
    }
}

/// Declares functions of `bindings.c`, and calls them through the table in force. The functions under `pointers` are
/// unsafe, because they take pointers, which must point to live values.
macro_rules! functions {
    (
        $module:ident
        safe { $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)* }
        pointers { $(fn $other:ident($($parg:ident: $ptype:ty),* $(,)?) $(-> $presult:ty)?;)* }
    ) => {
        mod linked {
            #[allow(unused_imports, reason = "some mechanisms declare no types")]
            use super::*;
            unsafe extern "C" {
                $(pub(super) safe fn $name($($arg: $type),*) -> $result;)*
                $(pub(super) fn $other($($parg: $ptype),*) $(-> $presult)?;)*
            }
        }

        /// The functions of this mechanism.
        pub(crate) struct Functions {
            $($name: extern "C" fn($($type),*) -> $result,)*
            $($other: unsafe extern "C" fn($($ptype),*) $(-> $presult)?,)*
        }

        impl Functions {
            /// The functions of the header.
            pub(crate) const OF_HEADER: Self =
                Self { $($name: linked::$name,)* $($other: linked::$other,)* };

            /// The functions that `find` returns, by name.
            ///
            /// # Safety
            /// The same as for [`crate::Decisions::of_object`].
            pub(crate) unsafe fn find<E>(
                find: &mut impl FnMut(&'static str) -> Result<*const (), E>,
            ) -> Result<Self, E> {
                // SAFETY: `find` returns the function of that name, which has this type.
                unsafe {
                    Ok(Self {
                        $($name: std::mem::transmute::<
                            *const (), extern "C" fn($($type),*) -> $result,
                        >(find(stringify!($name))?),)*
                        $($other: std::mem::transmute::<
                            *const (), unsafe extern "C" fn($($ptype),*) $(-> $presult)?,
                        >(find(stringify!($other))?),)*
                    })
                }
            }
        }

        $(
            #[inline]
            fn $name($($arg: $type),*) -> $result {
                (crate::rules::in_force().$module.$name)($($arg),*)
            }
        )*
        $(
            #[inline]
            unsafe fn $other($($parg: $ptype),*) $(-> $presult)? {
                // SAFETY: the caller makes the same promise.
                unsafe { (crate::rules::in_force().$module.$other)($($parg),*) }
            }
        )*
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_in_force_on_their_thread_until_dropped() {
        let find = |name: &'static str| -> Result<*const (), &'static str> {
            // All functions of the headers but one.
            Err(name)
        };
        // SAFETY: `find` returns no function.
        let first = unsafe { Decisions::of_object(find) }.unwrap_err();
        assert!(first.starts_with("policy_"), "{first}");
        assert!(ptr::eq(in_force(), &HEADERS_RULES));
        let other: &'static Table = Box::leak(Box::new(Table::OF_HEADERS));
        {
            let _in_force = Decisions(other).enforce();
            assert!(ptr::eq(in_force(), other));
            let elsewhere = std::thread::spawn(|| ptr::eq(in_force(), &HEADERS_RULES));
            assert!(elsewhere.join().unwrap());
            {
                let _again = Decisions::OF_HEADERS.enforce();
                assert!(ptr::eq(in_force(), &HEADERS_RULES));
            }
            assert!(ptr::eq(in_force(), other));
        }
        assert!(ptr::eq(in_force(), &HEADERS_RULES));
    }
}
