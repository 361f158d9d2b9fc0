//! RBUDP's control stream: everything that decodes encodes to the same bytes, and reports have for
//! each packet the bit that was written.

use farhaul_protocols::rbudp::wire::{
    Message, decode_number, decode_report, encode_report, missing_ranges, report_len, without,
};

pub(crate) fn run(data: &[u8]) {
    let _no_panic = decode_number(data);
    if let Some((packets, bytes)) = data.split_first_chunk() {
        let packets = u64::from(u16::from_be_bytes(*packets));
        let bytes = &bytes[..bytes.len().min(report_len(packets))];
        if let Ok(have) = decode_report(bytes, packets) {
            let all = bytes[0] == 1;
            let mut out = Vec::new();
            encode_report(&have, packets, all, &mut out);
            let again = decode_report(&out, packets).expect("what was written");
            assert!((0..packets).all(|n| again.contains(n) == have.contains(n)));
            if let Some(ranges) = missing_ranges(&have, packets) {
                let same = without(&ranges, packets).expect("what was written");
                assert!((0..packets).all(|n| same.contains(n) == have.contains(n)));
            }
        }
    }
    let mut rest = data;
    while let Ok(Some((message, len))) = Message::decode(rest) {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(out, rest[..len]);
        if let Message::Missing(_, ranges) = &message {
            let _no_panic = without(ranges, 5_000);
        }
        rest = &rest[len..];
    }
}
