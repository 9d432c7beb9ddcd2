//! Which functions decide: those of the headers, or some of them replaced by a rule of one's own.
//!
//! Every function of this crate calls through a table. The table of the headers is in force on every thread; a run
//! with a rule of its own puts another one in force on its thread while it goes on ([`Rules::enforce`]).

use std::cell::Cell;
use std::fmt;
use std::ptr;

use crate::{HEADERS_RULES, Table};

thread_local! {
    /// What is in force on this thread.
    static IN_FORCE: Cell<&'static Table> = const { Cell::new(&HEADERS_RULES) };
}

/// The table that is in force.
#[inline]
pub(crate) fn in_force() -> &'static Table {
    IN_FORCE.get()
}

/// A set of all functions that decide.
#[derive(Clone, Copy)]
pub struct Rules(&'static Table);

/// Puts rules in force until it is dropped.
#[must_use]
#[derive(Debug)]
pub struct InForce {
    before: Rules,
}

impl Rules {
    /// Those of the headers.
    pub const OF_HEADERS: Self = Self(&HEADERS_RULES);

    /// Those of an object with the symbols of `bindings.c`, each of which `find` finds.
    ///
    /// # Errors
    /// As `find`.
    ///
    /// # Safety
    /// What `find` returns is the function of that name of this crate's `bindings.c`, and stays loaded.
    pub unsafe fn of_object<E>(
        mut find: impl FnMut(&'static str) -> Result<*const (), E>,
    ) -> Result<Self, E> {
        // SAFETY: as above.
        let table = unsafe { Table::find(&mut find) }?;
        // For the rest of the process, as the object.
        Ok(Self(Box::leak(Box::new(table))))
    }

    /// Puts them in force on this thread, until what is returned is dropped.
    pub fn enforce(self) -> InForce {
        InForce { before: Self(IN_FORCE.replace(self.0)) }
    }
}

impl Drop for InForce {
    fn drop(&mut self) {
        IN_FORCE.set(self.before.0);
    }
}

/// The same set.
impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Rules {}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if *self == Self::OF_HEADERS { "of the headers" } else { "of its own" };
        write!(f, "Rules({name})")
    }
}

/// Declares functions of `bindings.c`, and calls them through the table that is in force. Those under
/// `pointers` are unsafe: they take pointers, which have to be to live values.
macro_rules! functions {
    (
        $module:ident
        safe { $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)* }
        pointers { $(fn $other:ident($($parg:ident: $ptype:ty),* $(,)?) $(-> $presult:ty)?;)* }
    ) => {
        mod linked {
            #[allow(unused_imports, reason = "some declare no types of their own")]
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
            /// Those of the header.
            pub(crate) const OF_HEADER: Self =
                Self { $($name: linked::$name,)* $($other: linked::$other,)* };

            /// Those that `find` finds.
            ///
            /// # Safety
            /// As [`crate::Rules::of_object`].
            pub(crate) unsafe fn find<E>(
                find: &mut impl FnMut(&'static str) -> Result<*const (), E>,
            ) -> Result<Self, E> {
                // SAFETY: each is the function of its name, which has this type.
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
                // SAFETY: as the caller says.
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
            // All of the headers but one.
            Err(name)
        };
        // SAFETY: nothing is found.
        let first = unsafe { Rules::of_object(find) }.unwrap_err();
        assert!(first.starts_with("policy_"), "{first}");
        assert!(ptr::eq(in_force(), &HEADERS_RULES));
        let other: &'static Table = Box::leak(Box::new(Table::OF_HEADERS));
        {
            let _in_force = Rules(other).enforce();
            assert!(ptr::eq(in_force(), other));
            let elsewhere = std::thread::spawn(|| ptr::eq(in_force(), &HEADERS_RULES));
            assert!(elsewhere.join().unwrap());
            {
                let _again = Rules::OF_HEADERS.enforce();
                assert!(ptr::eq(in_force(), &HEADERS_RULES));
            }
            assert!(ptr::eq(in_force(), other));
        }
        assert!(ptr::eq(in_force(), &HEADERS_RULES));
    }
}
