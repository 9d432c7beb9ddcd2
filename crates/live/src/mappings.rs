//! Which mappings of a process have no memory policy (`bpf/mappings`).

use std::collections::BTreeSet;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput};

use crate::lister::{MappingsSkel, MappingsSkelBuilder};

/// The loaded program.
pub struct Lister<'obj>(MappingsSkel<'obj>);

impl<'obj> Lister<'obj> {
    /// Loads the program.
    pub fn load(object: &'obj mut MaybeUninit<OpenObject>) -> Result<Self, libbpf_rs::Error> {
        MappingsSkelBuilder::default().open(object)?.load().map(Self)
    }

    /// The first address of each mapping of a process that has no memory policy. `None` if the process has ended, or
    /// if its mappings are changing just now.
    pub fn without_policy(&mut self, pid: u32) -> Option<BTreeSet<u64>> {
        let mut found = BTreeSet::new();
        let mut from = 0;
        loop {
            let data = self.0.maps.bss_data.as_mut()?;
            (data.pid, data.from) = (pid, from);
            let done = self.0.progs.list_mappings.test_run(ProgramInput::default()).ok()?;
            let data = self.0.maps.bss_data.as_ref()?;
            if done.return_value != 0 {
                return None;
            }
            found.extend(data.starts.iter().take(data.count as usize));
            // Mappings are in the order of their addresses, so each call gets further.
            if data.next <= from {
                return Some(found);
            }
            from = data.next;
        }
    }
}
