//! Formats messages of programs as `bpf_bprintf_prepare()` does.

use crate::memory::{Memory, Wild};

/// The longest message (SCX_EXIT_MSG_LEN).
const MOST_BYTES: usize = 1024;

/// Formats a message. The format is at address `format`, and `size` bytes of numbers are at `data`.
pub(crate) fn message(memory: &Memory, format: u64, data: u64, size: u64) -> Result<String, Wild> {
    let text = memory.text(format, MOST_BYTES)?;
    let mut numbers = (0..size / 8).map(|index| memory.read(data.wrapping_add(8 * index), 8));
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('%') {
        out += &rest[..at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic() && !"hlz".contains(c));
        let Some(end) = end else { break };
        let (flags, conversion) = (&rest[..end], &rest[end..=end]);
        rest = &rest[end + 1..];
        let number = numbers.next().transpose()?.unwrap_or(0);
        out += &converted(memory, flags, conversion, number)?;
    }
    out += rest;
    Ok(out)
}

fn converted(memory: &Memory, flags: &str, conversion: &str, number: u64) -> Result<String, Wild> {
    let long = flags.contains('l') || flags.contains('z');
    let unsigned = if long { number } else { number.into_u32() };
    let width = flags.trim_matches(|c: char| !c.is_ascii_digit());
    let (zero, width) = (width.starts_with('0'), width.parse().unwrap_or(0).min(MOST_BYTES));
    let digits = match conversion {
        "d" | "i" if long => (number as i64).to_string(),
        "d" | "i" => (number as i32).to_string(),
        "x" | "X" if flags.contains('#') => format!("{unsigned:#x}"),
        "x" | "X" => format!("{unsigned:x}"),
        "p" => format!("{number:#x}"),
        "s" => memory.text(number, MOST_BYTES)?,
        "c" => char::from(number as u8).to_string(),
        _ => unsigned.to_string(),
    };
    Ok(if zero { format!("{digits:0>width$}") } else { format!("{digits:>width$}") })
}

trait Low {
    fn into_u32(self) -> u64;
}

impl Low for u64 {
    fn into_u32(self) -> u64 {
        u64::from(self as u32)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn shown(format: &str, numbers: &[u64]) -> String {
        let mut memory = Memory::default();
        let text = memory.allocate(64).unwrap();
        memory.slice_mut(text, format.len()).unwrap().copy_from_slice(format.as_bytes());
        let data = memory.allocate(64).unwrap();
        for (at, number) in (0..).zip(numbers) {
            memory.write(data + 8 * at, 8, *number).unwrap();
        }
        message(&memory, text, data, 8 * numbers.len() as u64).unwrap()
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let minus = -5i64 as u64;
        assert_eq!(shown("task %d of %llu", &[minus, 7]), "task -5 of 7");
        assert_eq!(shown("%u %lld %x 100%%", &[minus, minus, 255]), "4294967291 -5 ff 100%");
        assert_eq!(shown("%03u.%5d", &[7, 42]), "007.   42");
        assert_eq!(shown("nothing left: %d", &[]), "nothing left: 0");
        assert_eq!(shown("%70000d", &[1]).len(), MOST_BYTES, "as wide as a message can be");
    }
}
