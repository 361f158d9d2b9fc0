//! Reports: a report that is understood survives another round.

use farhaul_core::{
    arq::Report,
    codec::{Reader, Writer},
};
use farhaul_haul::wire::feedback::{self, Feedback, Known};

pub(crate) fn run(data: &[u8]) {
    let known = || Known {
        next: 1 << 33,
        ..Known::default()
    };
    let mut report = Report::default();
    let Ok(f) = Feedback::decode(&mut Reader::new(data)) else {
        return;
    };
    if f.complete(&mut known(), &mut report).is_err() {
        return;
    }
    let mut out = [0; 1_200];
    let mut w = Writer::new(&mut out);
    feedback::encode(&mut w, &report).expect("room enough");
    let n = w.len();
    let f = Feedback::decode(&mut Reader::new(&out[..n])).expect("what was encoded");
    let mut again = Report::default();
    f.complete(&mut known(), &mut again).expect("what was encoded");
    assert!(report.runs.starts_with(&again.runs));
    assert_eq!((again.largest, again.bytes), (report.largest, report.bytes));
    assert_eq!(again.room, report.room);
}
