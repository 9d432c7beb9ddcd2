use proptest::prelude::*;

use super::*;

const HEADER_PAGE: &str = include_str!("../../tests/data/trace/header_page");

fn layout() -> PageLayout {
    PageLayout::parse("header_page", HEADER_PAGE).unwrap()
}

/// A page of 4096 bytes, as written by a 64-bit kernel.
fn page(time: u64, flags: u64, events: &[u8]) -> Vec<u8> {
    let commit = events.len() as u64 | flags;
    let mut page = [time.to_le_bytes(), commit.to_le_bytes()].concat();
    page.extend(events);
    page.resize(4096, 0);
    page
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn header(kind: u32, delta: u32) -> u32 {
    delta << 5 | kind
}

fn read(bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, MeasureError> {
    let layout = layout();
    let mut pages = Pages::new("cpu0", bytes, &layout);
    let mut events = Vec::new();
    while let Some(event) = pages.next_event()? {
        assert_eq!(bytes[event.offset..].get(..event.data.len()), Some(event.data));
        events.push((event.time, event.data.to_vec()));
    }
    Ok(events)
}

#[test]
fn deltas_add_up_from_the_time_of_the_page() {
    let first = words(&[header(1, 0), 7, header(2, 10), 8, 9]);
    let second = words(&[header(1, 5), 10]);
    let bytes = [page(1000, 0, &first), page(5000, 0, &second)].concat();
    let expected = vec![(1000, words(&[7])), (1010, words(&[8, 9])), (5005, words(&[10]))];
    assert_eq!(read(&bytes), Ok(expected));
}

#[test]
fn an_extension_prolongs_a_delta() {
    let events = words(&[header(TIME_EXTEND, 3), 2, header(1, 4), 7]);
    assert_eq!(read(&page(1, 0, &events)), Ok(vec![(1 + (2 << 27) + 3 + 4, words(&[7]))]));
}

#[test]
fn a_time_stamp_replaces_the_time_but_for_the_bits_it_has_no_room_for() {
    let events = words(&[header(TIME_STAMP, 3), 2, header(1, 4), 7]);
    let stamp = (2 << 27) + 3;
    assert_eq!(read(&page(1, 0, &events)), Ok(vec![(stamp + 4, words(&[7]))]));
    let upper = 5_u64 << 59;
    assert_eq!(read(&page(upper, 0, &events)), Ok(vec![(upper + stamp + 4, words(&[7]))]));
    let wrapped = read(&page(upper + stamp + 1, 0, &events)).unwrap();
    assert_eq!(wrapped[0].0, (6 << 59) + stamp + 4);
}

#[test]
fn a_length_before_the_data_counts_itself() {
    let events = words(&[header(0, 1), 12, 7, 8, header(1, 1), 9]);
    assert_eq!(read(&page(0, 0, &events)), Ok(vec![(1, words(&[7, 8])), (2, words(&[9]))]));
}

#[test]
fn padding_is_skipped() {
    let discarded = words(&[header(PADDING, 1), 8, 0, header(1, 2), 7]);
    assert_eq!(read(&page(0, 0, &discarded)), Ok(vec![(2, words(&[7]))]));
    let rest = words(&[header(1, 2), 7, header(PADDING, 0), 8, 9]);
    assert_eq!(read(&page(0, 0, &rest)), Ok(vec![(2, words(&[7]))]));
}

#[test]
fn missing_events_are_counted() {
    let event = words(&[header(1, 1), 7]);
    let mut counted = page(0, MISSED_EVENTS | MISSED_STORED, &event);
    counted[16 + event.len()..][..8].copy_from_slice(&41_u64.to_le_bytes());
    let bytes = [counted, page(0, MISSED_EVENTS, &event)].concat();
    let layout = layout();
    let mut pages = Pages::new("cpu0", &bytes, &layout);
    let mut read = 0;
    while pages.next_event().unwrap().is_some() {
        read += 1;
    }
    assert_eq!((read, pages.missed), (2, 42));
}

#[test]
fn a_last_page_without_its_unused_part_is_complete() {
    let mut bytes = page(0, 0, &words(&[header(1, 1), 7]));
    bytes.truncate(16 + 8);
    assert_eq!(read(&bytes), Ok(vec![(1, words(&[7]))]));
    assert_eq!(read(&[]), Ok(vec![]));
}

#[test]
fn what_is_cut_short_or_too_long_is_named_with_its_place() {
    let event = words(&[header(1, 1), 7]);
    let whole = page(0, 0, &event);
    let long = page(0, 0, &words(&[header(28, 1), 7]));
    let endless = page(0, 0, &words(&[header(PADDING, 1), u32::MAX]));
    let no_length = page(0, 0, &words(&[header(0, 1), 3]));
    let half = page(0, 0, &words(&[header(TIME_EXTEND, 1)]));
    let overfull = page(0, 0x1000, &event);
    for (bytes, offset) in [
        (&[whole.clone(), whole[..10].to_vec()].concat(), 4096),
        (&[whole.clone(), whole[..20].to_vec()].concat(), 4096),
        (&long, 16),
        (&endless, 16),
        (&no_length, 16),
        (&half, 16),
        (&overfull, 0),
    ] {
        let error = read(bytes).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cpu0: byte {offset}: ")), "{error}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_end_in_events_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..9000),
        used in 0_u64..4200,
        flags in 0_u64..4,
    ) {
        let _ = read(&bytes);
        // With a plausible header, more of the page is read.
        let mut bytes = bytes;
        if let Some(commit) = bytes.get_mut(8..16) {
            commit.copy_from_slice(&(used | flags << 30).to_le_bytes());
        }
        let _ = read(&bytes);
    }
}
