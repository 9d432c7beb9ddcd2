//! Reads pages with charts.

use base64::Engine;
use serde_json::Value;

/// What the script of a page reads: JSON, packed with gzip, in base64.
pub fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    let (packed, _) = rest.split_once('<').unwrap();
    let packed = base64::engine::general_purpose::STANDARD.decode(packed).unwrap();
    serde_json::from_reader(flate2::read::GzDecoder::new(&packed[..])).unwrap()
}
