//! Frames of a lying peer: any frame with any values, near the expected ones or far from them,
//! alone or many in a datagram.

use farhaul_core::{arq::Report, codec::Writer, recv::Arrivals, rng::Rng};
use farhaul_haul::wire::{
    feedback,
    frame::{self, Cause, Frame, kind},
};

/// Knowledge of the liar about the session.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Next packet number of the liar.
    pub(super) next: u64,
    /// Packets that the liar has received from the honest end.
    pub(super) heard: Arrivals,
    /// Share of frames that violate the protocol at once: doing so always ends the session early.
    pub(super) bold: f64,
}

/// A whole number: small or near `about`; from the bold also near a power of two, or anything.
fn number(rng: &mut Rng, bold: f64, about: u64) -> u64 {
    let kinds = if rng.chance(bold) { 8 } else { 4 };
    let value = match rng.below(kinds) {
        0 => rng.below(4),
        1 | 2 => about,
        3 => about.saturating_sub(rng.below(64)),
        4 => rng.below(about.saturating_mul(2).saturating_add(1)),
        5 => (1_u64 << rng.below(63)).wrapping_sub(rng.below(3)),
        6 => farhaul_core::codec::VARINT_MAX - rng.below(3),
        _ => rng.next_u64(),
    };
    value.min(farhaul_core::codec::VARINT_MAX)
}

/// A report: of what was received, or of a part of it; sometimes forged.
fn report(rng: &mut Rng, known: &Known) -> Report {
    let heard = known.heard.end();
    let largest = heard.saturating_sub(1);
    let mut report = Report {
        from: 0,
        largest,
        delay_us: number(rng, known.bold, 500),
        arrived_us: rng.next_u64() >> rng.below(64),
        bytes: rng.next_u64() >> rng.below(64),
        ce: number(rng, known.bold, 3),
        room: rng.chance(0.5).then(|| number(rng, known.bold, 1 << 20)),
        runs: vec![1],
    };
    if !rng.chance(known.bold) {
        let from = heard.saturating_sub(1 << rng.below(14));
        if heard > 0 {
            known.heard.runs(from, largest, 1_200, &mut report.runs);
        }
        return report;
    }
    report.largest = match rng.below(4) {
        0 => number(rng, 1.0, heard),
        1 => heard.saturating_add(rng.below(100)),
        _ => largest.saturating_sub(rng.below(3)),
    };
    report.runs = invented(rng, report.largest);
    report
}

/// Arbitrary runs of packets up to `largest`.
fn invented(rng: &mut Rng, largest: u64) -> Vec<u64> {
    let mut runs = Vec::new();
    let mut left = largest.saturating_add(1);
    let most = if rng.chance(0.1) { 600 } else { 6 };
    let count = 1 + rng.below(most);
    for _ in 0..count {
        let longest = if rng.chance(0.5) { 4 } else { 5_000 };
        let run = (1 + rng.below(longest)).min(left);
        if run == 0 {
            break;
        }
        runs.push(run);
        left -= run;
    }
    if rng.chance(0.4) {
        runs = vec![largest.saturating_add(1).min(1 << 31)];
    }
    runs
}

/// Appends a frame; false if it ends the datagram or does not fit.
fn put(rng: &mut Rng, known: &Known, reported: &mut bool, into: &mut Vec<u8>) -> bool {
    let mut bytes = [0; ROOM];
    let mut w = Writer::new(&mut bytes[into.len()..]);
    let more = write(rng, known, reported, &mut w);
    let len = w.len();
    if let Some(more) = more {
        into.extend_from_slice(&bytes[into.len()..][..len]);
        return more;
    }
    false
}

/// Writes a frame; whether another may follow, or none if it does not fit.
fn write(rng: &mut Rng, known: &Known, reported: &mut bool, w: &mut Writer<'_>) -> Option<bool> {
    let bold = known.bold;
    let bytes = [0x5a; 1_300];
    let most = w.room().saturating_sub(24).min(bytes.len());
    let len = match rng.below(3) {
        0 => rng.below(3),
        1 => rng.below(most as u64 + 1),
        _ => most as u64,
    };
    let data = &bytes[..usize::try_from(len).unwrap_or_default().min(most)];
    let short = &data[..data.len().min(255)];
    let ends = rng.chance(0.3);
    let frame = match rng.below(if ends { 14 } else { 11 }) {
        1 => Frame::State {
            behind: number(rng, bold, 40),
            interval_us: number(rng, bold, 5_000),
        },
        2 => Frame::Want {
            behind: number(rng, bold, 40),
        },
        3 | 4 if !*reported || rng.chance(bold) => {
            *reported = true;
            let report = report(rng, known);
            w.u8(kind::FEEDBACK).ok()?;
            feedback::encode(w, &report).ok()?;
            return Some(true);
        }
        0 | 3 | 4 => Frame::Ping,
        5 => Frame::Challenge(rng.next_u64()),
        6 => Frame::Response(rng.next_u64()),
        7 => Frame::Credit {
            read: number(rng, bold, 20_000),
        },
        8 => Frame::AckFrequency {
            packets: u32::try_from(rng.next_u64() >> rng.below(40) & 0xffff_ffff).unwrap_or(0),
        },
        9 => Frame::Message {
            up: rng.chance(0.5),
            bytes: short,
        },
        10 => Frame::Ready,
        11 if !rng.chance(bold) => Frame::Ping,
        11 => Frame::Crypto {
            offset: number(rng, bold, 0),
            data: short,
        },
        12 => Frame::Stream {
            offset: number(rng, bold, 3_000),
            data,
        },
        _ => Frame::Data {
            object: u32::try_from(rng.next_u64() >> (32 + rng.below(32))).unwrap_or(0),
            offset: number(rng, bold, 10_000),
            data,
        },
    };
    let ended = matches!(frame, Frame::Stream { .. } | Frame::Data { .. });
    frame::encode(w, &frame).ok()?;
    Some(!ended)
}

/// Bytes of frames in a datagram.
const ROOM: usize = 1_150;

/// The frames of a datagram.
pub(super) fn frames(rng: &mut Rng, known: &Known) -> Vec<u8> {
    let (mut frames, mut reported) = (Vec::new(), false);
    let kinds = if rng.chance(known.bold) { 2 } else { 20 };
    match rng.below(kinds) {
        // Noise under a good seal.
        0 if kinds == 2 => {
            frames.resize(usize::try_from(rng.below(64)).unwrap_or(0), 0);
            rng.fill(&mut frames);
        }
        1 if kinds == 2 => frames = close(rng),
        // As many as fit of anything.
        2 | 3 => while put(rng, known, &mut reported, &mut frames) {},
        _ => {
            for _ in 0..=rng.below(3) {
                if !put(rng, known, &mut reported, &mut frames) {
                    break;
                }
            }
        }
    }
    frames
}

fn close(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = [0; 64];
    let mut w = Writer::new(&mut bytes);
    let cause = [
        Cause::Application,
        Cause::Auth,
        Cause::Protocol,
        Cause::Store,
    ];
    let frame = Frame::Close {
        cause: cause[usize::try_from(rng.below(4)).unwrap_or(0)],
        code: u32::try_from(rng.below(1 << 32)).unwrap_or(0),
        text: b"a \x1b[31mlie\xff\xe2\x80\xae",
    };
    let len = frame::encode(&mut w, &frame).map_or(0, |()| w.len());
    bytes[..len].to_vec()
}
