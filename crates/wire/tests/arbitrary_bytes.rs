//! Decoding arbitrary bytes yields values or an error, never a panic.

mod common;
#[path = "common/rounds.rs"]
mod rounds;

use common::Numbers;
use rounds::rounds;
use wire::decode;
use wire::layout::{RECORD_HEADER, Record};
use wire::types::Type;

#[test]
fn reading_never_panics() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut tries, mut read) = (0, 0);
    for _ in rounds(20_000) {
        tries += 1;
        let types: Vec<Type> = (0..numbers.below(6)).map(|_| numbers.ty(2)).collect();
        let length = numbers.below(300);
        let data = numbers.bytes(length);
        let at = numbers.below(320) as usize;
        assert_eq!(decode::header(&data).is_ok(), data.len() >= RECORD_HEADER as usize);
        if let Ok(values) = decode::record(&data, &Record::new(types.clone())) {
            assert_eq!(values.len(), types.len());
            read += 1;
        }
        let _ = decode::key(&data, &types);
        types.iter().for_each(|ty| drop(decode::value(&data, at, ty)));
    }
    assert!(read > tries / 10, "{read} of {tries} records were long enough");
}
