//! Counters that a program keeps itself: numbers in the values of an array map, usually one value for each CPU.

use crate::btf::Kind;
use crate::error::ScxError;
use crate::maps::Map;
use crate::memory::Memory;
use crate::program::Program;

/// A counter of a program. Its value is the sum over all entries of the map.
#[derive(Clone, Debug)]
pub(crate) struct OwnCounter {
    name: String,
    /// Number of the map.
    map: usize,
    /// Start of the number in a value of the map, in bytes.
    at: u64,
    /// Size in bytes.
    size: u32,
}

impl OwnCounter {
    /// The counters in `member` of the map's values: all members of that struct but `except`. `prefix` begins their
    /// names.
    pub(crate) fn all(
        program: &Program,
        map: &str,
        member: &str,
        prefix: &str,
        except: &[&str],
    ) -> Result<Vec<Self>, ScxError> {
        let number = program.map(map)?;
        let btf = &program.object.btf;
        let unknown = || ScxError::Setting(format!("values of the map {map} have no {member}"));
        let value = btf.plain(program.maps[number].value);
        let (found, bits) = btf.member(value, member).ok_or_else(unknown)?;
        let Kind::Composite { members, .. } = btf.kind(btf.plain(found.of)) else {
            return Err(unknown());
        };
        let counter = |member: &crate::btf::Member| {
            let name = btf.text(member.name);
            let size = btf.size(member.of).filter(|size| (1..=8).contains(size))?;
            let at = u64::from(bits / 8) + u64::from(member.bit_offset / 8);
            let counted = !except.contains(&name);
            counted.then(|| Self { name: format!("{prefix}{name}"), map: number, at, size })
        };
        Ok(members.iter().filter_map(counter).collect())
    }

    /// Its name and value so far.
    pub(crate) fn read(&self, maps: &[Map], memory: &Memory) -> (&str, u64) {
        let values = maps.get(self.map).into_iter().flat_map(Map::values);
        let numbers = values.filter_map(|value| memory.read(value + self.at, self.size).ok());
        (&self.name, numbers.fold(0, u64::wrapping_add))
    }
}
