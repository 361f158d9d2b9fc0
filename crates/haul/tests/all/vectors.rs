//! The examples of `docs/protocols/haul.md`: each is decoded, compared with what it should mean, and
//! encoded again to the same bytes.
//!
//! A vector is a text file. `what:` names the way to read it, hex with notes after `;` is the
//! datagram, `pad: n` fills it with zeros to n bytes, `means:` lines are the result.

use std::{fmt::Write as _, fs, path::PathBuf};

use farhaul_core::{
    arq::Report,
    codec::{Reader, Writer},
};
use farhaul_haul::{
    crypto::{Side, tls::initial_keys},
    wire::{
        TAG,
        feedback::{self, Known},
        frame::{self, Frame},
        long::{self, Kind},
        params::Params,
        short::{self, Short, expand},
    },
};

struct Vector {
    what: String,
    bytes: Vec<u8>,
    means: Vec<String>,
}

fn parse(text: &str) -> Vector {
    let (mut what, mut bytes, mut means) = (String::new(), Vec::new(), Vec::new());
    for line in text.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("what:") {
            rest.trim().clone_into(&mut what);
        } else if let Some(rest) = line.strip_prefix("means:") {
            means.push(rest.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("pad:") {
            bytes.resize(rest.trim().parse().expect("a length"), 0);
        } else if !line.starts_with('#') {
            let hex: String = line
                .split(';')
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .collect();
            for i in (0..hex.len()).step_by(2) {
                bytes.push(u8::from_str_radix(&hex[i..i + 2], 16).expect("hex"));
            }
        }
    }
    Vector { what, bytes, means }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        write!(text, "{b:02x}").expect("a string takes everything");
        text
    })
}

/// Decodes frames; returns their meaning, and their bytes encoded again.
fn frames(payload: &[u8]) -> (Vec<String>, Vec<u8>) {
    let mut out = vec![0; payload.len()];
    let (mut means, mut w) = (Vec::new(), Writer::new(&mut out));
    let mut r = Reader::new(payload);
    loop {
        let zeros = r.rest().iter().take_while(|b| **b == 0).count();
        if zeros > 0 {
            w.reserve(zeros).expect("as long as it was");
        }
        let Some(f) = frame::next(&mut r).expect("a valid frame") else {
            break;
        };
        if let Frame::Feedback(f) = f {
            let mut report = Report::default();
            let mut known = Known {
                next: 0x1_0000_0200,
                ..Known::default()
            };
            f.complete(&mut known, &mut report).expect("a valid report");
            means.push(format!("{report:?}"));
            w.u8(frame::kind::FEEDBACK).expect("as long as it was");
            // The encoder wants room for the longest report.
            let mut room = [0; 200];
            let mut again = Writer::new(&mut room);
            feedback::encode(&mut again, &report).expect("room enough");
            let n = again.len();
            w.put(&room[..n]).expect("as long as it was");
        } else {
            means.push(format!("{f:?}"));
            frame::encode(&mut w, &f).expect("as long as it was");
        }
    }
    (means, out)
}

/// Opens the sealed part of `bytes` and seals it again.
fn sealed(bytes: &[u8], number: u64, header: usize, from: Side) -> (Vec<String>, Vec<u8>) {
    let to = if from == Side::Client {
        Side::Server
    } else {
        Side::Client
    };
    let mut opened = bytes.to_vec();
    let end = initial_keys(to)
        .remote
        .open(number, &mut opened, header)
        .expect("an authentic datagram");
    let (means, again) = frames(&opened[header..end]);
    let mut out = opened[..header].to_vec();
    out.extend(again);
    out.resize(out.len() + TAG, 0);
    initial_keys(from).local.seal(number, &mut out, header);
    (means, out)
}

fn long_datagram(bytes: &[u8]) -> (Vec<String>, Vec<u8>) {
    let (head, kind, at) = long::decode(bytes).expect("a long datagram");
    let mut out = bytes.to_vec();
    let mut w = Writer::new(&mut out);
    long::encode(&mut w, head, &kind).expect("as long as it was");
    let mut means = vec![format!("{head:x?} {kind:x?}")];
    match kind {
        Kind::Retry { .. } => {
            let (inside, again) = sealed(bytes, 0, at, Side::Server);
            means.extend(inside);
            (means, again)
        }
        Kind::Initial { number, .. } => {
            let (inside, again) = sealed(bytes, number.into(), at, Side::Client);
            means.extend(inside);
            (means, again)
        }
        _ => (means, out),
    }
}

fn short_datagram(bytes: &[u8]) -> (Vec<String>, Vec<u8>) {
    let header = Short::decode(bytes).expect("a short header");
    let number = expand(header.number, 0x1_0000_0000);
    let (inside, mut again) = sealed(bytes, number, short::LEN, Side::Client);
    header
        .encode(&mut Writer::new(&mut again))
        .expect("as long as it was");
    let mut means = vec![format!("{header:x?} packet {number:#x}")];
    means.extend(inside);
    (means, again)
}

/// Every vector with its file, in order.
fn vectors() -> Vec<(PathBuf, Vector)> {
    let mut files: Vec<_> = fs::read_dir("tests/all/vectors")
        .expect("the folder of vectors")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    let read = |file: PathBuf| {
        let vector = parse(&fs::read_to_string(&file).expect("a text file"));
        (file, vector)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn every_frame_and_parameter_has_a_vector() {
    let means: Vec<_> = vectors().into_iter().flat_map(|(_, v)| v.means).collect();
    for kind in [
        "Ping",
        "Ready",
        "State",
        "Want",
        "Report",
        "Challenge",
        "Response",
        "Close",
        "Credit",
        "AckFrequency",
        "Message { up: false",
        "Message { up: true",
        "Crypto",
        "Stream",
        "Data",
        "Params",
    ] {
        assert!(means.iter().any(|m| m.starts_with(kind)), "{kind}");
    }
    for law in ["law: None", "law: Some(", "app: []", "app: [6"] {
        assert!(means.iter().any(|m| m.contains(law)), "{law}");
    }
}

#[test]
fn an_ack_frequency_beyond_32_bits_is_refused() {
    let largest = *b"\x0a\xc0\x00\x00\x00\xff\xff\xff\xff";
    let beyond = *b"\x0a\xc0\x00\x00\x01\x00\x00\x00\x00";
    assert!(frame::next(&mut Reader::new(&largest)).is_ok());
    assert!(frame::next(&mut Reader::new(&beyond)).is_err());
}

#[test]
fn missing_or_duplicate_parameters_are_refused() {
    let fields: [&[u8]; 7] = [
        b"\x01\x04\x00\x00\x05\xb0",
        b"\x02\x08\x00\x00\x00\x00\x00\x00\x27\x10",
        b"\x03\x08\x83\x94\xc8\xf0\x3e\x51\x57\x08",
        b"\x04\x03xcp",
        b"\x05\x01a",
        b"\x06\x04\x66\x68\x00\x03",
        b"\x07\x00",
    ];
    assert!(Params::decode(&fields.concat()).is_ok());
    for (at, field) in fields.iter().enumerate() {
        let twice = [&fields.concat(), *field].concat();
        assert!(Params::decode(&twice).is_err(), "twice {}", at + 1);
        let mut rest = fields.to_vec();
        rest.remove(at);
        let may_be_missing = at >= 3;
        let without = Params::decode(&rest.concat());
        assert_eq!(without.is_ok(), may_be_missing, "without {}", at + 1);
    }
}

#[test]
fn every_vector_decodes_and_encodes_identically() {
    for (file, vector) in vectors() {
        let (means, again) = match vector.what.as_str() {
            "long" => long_datagram(&vector.bytes),
            "sealed" => short_datagram(&vector.bytes),
            "frames" => frames(&vector.bytes),
            "params" => {
                let params = Params::decode(&vector.bytes).expect("parameters");
                (vec![format!("{params:x?}")], params.encode())
            }
            other => panic!("{}: {other}?", file.display()),
        };
        assert_eq!(means, vector.means, "{}", file.display());
        assert_eq!(hex(&again), hex(&vector.bytes), "{}", file.display());
    }
}
