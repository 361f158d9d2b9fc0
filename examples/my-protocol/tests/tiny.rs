//! Does a protocol written outside carry everything, whatever the path does, and take anything?

use std::time::Duration;

use farhaul_core::{
    arq::{DataHead, Report, SenderState, Wire},
    codec::{Reader, Writer},
};
use farhaul_testkit::{assert_live, seeds};
use my_protocol::{TinyWire, tiny};
use proptest::prelude::*;

#[test]
fn what_is_lost_for_a_while_arrives_at_last() {
    let end = || tiny("reno", 1_500).expect("a known law");
    assert_live(|_| (Box::new(end()), Box::new(end())), seeds(40));
}

#[test]
fn a_law_that_is_not_there_is_named() {
    let error = tiny("renno", 1_500).err().map(|e| e.to_string());
    assert!(error.is_some_and(|e| e.contains("did you mean 'reno'?")));
}

fn written<T>(write: impl FnOnce(&mut Writer<'_>) -> T) -> Vec<u8> {
    let mut bytes = [0; 4_000];
    let mut w = Writer::new(&mut bytes);
    write(&mut w);
    let len = w.len();
    bytes[..len].to_vec()
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        number in 0..1_u64 << 32, object: u32, offset: u64,
        runs in proptest::collection::vec(1_u64..1_000_000, 1..200), clock in 0..1_u64 << 60,
        settled in 0..1_u64 << 60, us in 0_u64..1_000_000, want in proptest::option::of(0..1_u64 << 60),
    ) {
        let data = DataHead { number, object, offset };
        let bytes = written(|w| TinyWire::put_data(w, &data));
        prop_assert_eq!(TinyWire::take_data(&mut Reader::new(&bytes)), Ok(data));

        let sum: u64 = runs.iter().sum();
        let report = Report {
            from: 3, largest: sum + 2, delay_us: us, arrived_us: clock, bytes: settled, ce: 1, room: None, runs,
        };
        let bytes = written(|w| TinyWire::put_report(w, &report));
        let mut back = Report::default();
        TinyWire::take_report(&mut Reader::new(&bytes), &mut back).expect("written by ourselves");
        prop_assert_eq!(back, report);

        let state = SenderState { settled, interval: Duration::from_micros(us), want };
        let bytes = written(|w| TinyWire::put_state(w, &state));
        prop_assert_eq!(TinyWire::take_state(&mut Reader::new(&bytes)), Ok(state));
    }

    #[test]
    fn anything_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = TinyWire::take_data(&mut Reader::new(&bytes));
        let _ = TinyWire::take_state(&mut Reader::new(&bytes));
        let _ = TinyWire::take_report(&mut Reader::new(&bytes), &mut Report::default());
    }
}
