//! Reads where tracefs puts fields: `header_page`, `header_event`, and the `format` of events.

use crate::error::{Line, MEASURE_AGAIN, MeasureError, UNKNOWN_KERNEL, shown};

/// Place and kind of a field in an event or page header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub offset: usize,
    pub size: usize,
    signed: bool,
    kind: Kind,
}

/// How a field stores its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In the field itself.
    Plain,
    /// Elsewhere in the event: the field has the offset in its lower 16 bits, and the length in its upper 16 bits.
    Located,
    /// The same, but the offset is counted from the end of the field.
    LocatedRelative,
}

impl Field {
    /// The same field at another offset.
    pub fn at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// The field's integer in little-endian order. `None` if it is outside of `data`, or its width is not that of an
    /// integer.
    pub fn integer(&self, data: &[u8]) -> Option<i64> {
        let bytes = data.get(self.offset..self.offset.checked_add(self.size)?)?;
        let mut wide = [0; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let value = u64::from_le_bytes(wide);
        let unused = u32::try_from(64 - 8 * bytes.len()).ok().filter(|unused| *unused < 64)?;
        Some(match self.signed {
            true => (value << unused) as i64 >> unused,
            false => value as i64,
        })
    }

    /// The field's text without its terminator. `None` if it is outside of `data`.
    pub fn text<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        let (offset, size) = match self.kind {
            Kind::Plain => (self.offset, self.size),
            Kind::Located => self.place(data, 0)?,
            Kind::LocatedRelative => self.place(data, self.offset.checked_add(self.size)?)?,
        };
        let bytes = data.get(offset..offset.checked_add(size)?)?;
        bytes.split(|byte| *byte == 0).next()
    }

    fn place(&self, data: &[u8], base: usize) -> Option<(usize, usize)> {
        let place = self.integer(data)? as u64 as usize;
        Some((base.checked_add(place & 0xffff)?, (place >> 16) & 0xffff))
    }
}

/// A list of fields with their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    file: String,
    fields: Vec<(String, Field)>,
}

impl Fields {
    /// Parses those lines of `text` that describe fields.
    pub fn parse(file: &str, text: &str) -> Result<Self, MeasureError> {
        let mut fields = Vec::new();
        for line in Line::all(file, text) {
            if let Some(declaration) = line.text.trim_start().strip_prefix("field:") {
                fields.push(field(&line, declaration)?);
            }
        }
        Ok(Self { file: file.to_owned(), fields })
    }

    pub fn get(&self, name: &str) -> Result<Field, MeasureError> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, field)| *field).ok_or_else(|| MeasureError::Mismatch {
            file: self.file.clone(),
            problem: format!("there is no field {name}"),
            remedy: UNKNOWN_KERNEL,
        })
    }
}

/// Parses a line such as `unsigned short common_type; offset:0; size:2; signed:0;`
fn field(line: &Line<'_>, declaration: &str) -> Result<(String, Field), MeasureError> {
    let mut parts = declaration.split(';').map(str::trim);
    let declared = parts.next().unwrap_or_default();
    let (of_type, name) = declared.rsplit_once([' ', '\t']).unwrap_or(("", declared));
    let name = name.split('[').next().unwrap_or_default();
    let mut numbers = [None; 3];
    for part in parts {
        let Some((key, value)) = part.split_once(':') else { continue };
        let known = ["offset", "size", "signed"].iter().position(|known| *known == key);
        if let Some(number) = known.and_then(|index| numbers.get_mut(index)) {
            *number = Some(line.number::<u16>(value)?);
        }
    }
    let [Some(offset), Some(size), Some(signed)] = numbers else {
        let problem = format!("field {} has no offset, size or sign", shown(name));
        return Err(line.error(problem, MEASURE_AGAIN));
    };
    let kind = match of_type.split(' ').next() {
        Some("__data_loc") => Kind::Located,
        Some("__rel_loc") => Kind::LocatedRelative,
        _ => Kind::Plain,
    };
    let field = Field { offset: offset.into(), size: size.into(), signed: signed != 0, kind };
    Ok((name.to_owned(), field))
}

/// The number that events of this format have in the buffer.
pub(crate) fn id(file: &str, text: &str) -> Result<u16, MeasureError> {
    for line in Line::all(file, text) {
        if let Some(id) = line.text.strip_prefix("ID:") {
            return line.number(id.trim());
        }
    }
    Err(Line { file, number: 1, text }.error("there is no ID".into(), MEASURE_AGAIN))
}

/// The layout of event headers, according to `header_event`. It has never changed since Linux 2.6.30.
const EVENT_HEADER: [(&str, &str); 6] = [
    ("type_len", "5 bits"),
    ("time_delta", "27 bits"),
    ("padding", "type == 29"),
    ("time_extend", "type == 30"),
    ("time_stamp", "type == 31"),
    ("data max type_len", "== 28"),
];

/// Checks that events have the headers that [`super::pages`] can read.
pub(crate) fn check_event_header(file: &str, text: &str) -> Result<(), MeasureError> {
    for (name, expected) in EVENT_HEADER {
        let rest = Line::all(file, text)
            .find_map(|line| Some((line, line.text.trim().strip_prefix(name)?)));
        let Some((line, rest)) = rest else {
            return Err(MeasureError::Mismatch {
                file: file.to_owned(),
                problem: format!("events have no {name}"),
                remedy: UNKNOWN_KERNEL,
            });
        };
        if rest.trim_matches([' ', '\t', ':']) != expected {
            let problem = format!("{name} is \"{}\" instead of {expected}", shown(rest.trim()));
            return Err(line.error(problem, UNKNOWN_KERNEL));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: sched_migrate_task
ID: 309
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:__data_loc char[] comm;	offset:8;	size:4;	signed:0;
	field:__rel_loc char[] cgroup;	offset:12;	size:4;	signed:0;
	field:char next_comm[4];	offset:2;	size:4;	signed:0;
	field:int prio;	offset:16;	size:4;	signed:1;
";

    #[test]
    fn fields_are_found_by_name() {
        let fields = Fields::parse("format", FORMAT).unwrap();
        let mut data = [0_u8; 28];
        data[0] = 0x35;
        data[1] = 0xff;
        data[2..5].copy_from_slice(b"abc");
        data[8..12].copy_from_slice(&[20, 0, 4, 0]);
        data[12..16].copy_from_slice(&[8, 0, 4, 0]);
        data[16..20].copy_from_slice(&(-2_i32).to_le_bytes());
        data[20..28].copy_from_slice(b"xy\0\0word");
        assert_eq!(fields.get("common_type").unwrap().integer(&data), Some(0xff35));
        assert_eq!(fields.get("prio").unwrap().integer(&data), Some(-2));
        assert_eq!(fields.get("next_comm").unwrap().text(&data), Some(&b"abc"[..]));
        assert_eq!(fields.get("comm").unwrap().text(&data), Some(&b"xy"[..]));
        assert_eq!(fields.get("cgroup").unwrap().text(&data), Some(&b"word"[..]));
        assert_eq!(id("format", FORMAT), Ok(309));
    }

    #[test]
    fn fields_beyond_the_data_are_not_there() {
        let fields = Fields::parse("format", FORMAT).unwrap();
        let short = [0xff; 18];
        assert_eq!(fields.get("prio").unwrap().integer(&short), None);
        assert_eq!(fields.get("comm").unwrap().text(&short), None);
        assert_eq!(fields.get("cgroup").unwrap().text(&short), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let fields = Fields::parse("trace/format/x", FORMAT).unwrap();
        let error = fields.get("next_pid").unwrap_err().to_string();
        assert!(error.starts_with("trace/format/x: there is no field next_pid"), "{error}");
        let error = Fields::parse("f", "\n\tfield:int a;\toffset:0;\tsize:x;").unwrap_err();
        assert!(error.to_string().starts_with("f:2: \"x\" is not a number"), "{error}");
        assert!(Fields::parse("f", "field:int a; offset:0;").is_err());
        assert!(id("f", "name: x").is_err());
    }

    const HEADER: &str = include_str!("../../tests/data/trace/header_event");

    #[test]
    fn another_event_header_is_refused() {
        assert_eq!(check_event_header("header_event", HEADER), Ok(()));
        let other = HEADER.replace("27 bits", "26 bits");
        let error = check_event_header("header_event", &other).unwrap_err().to_string();
        assert!(error.starts_with("header_event:3: time_delta is"), "{error}");
        assert!(check_event_header("header_event", "").is_err());
    }
}
