//! A blast with negative acknowledgements: a block is sent at a set rate, and the receiver reports the ranges that are
//! missing. Rounds, repair, the ordered stream, opening and close are farhaul's; this file is all of the protocol.

use farhaul_congestion::{Kind, Parameter};
use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    loss::Bitmap,
    protocol::{Descriptor, Provenance},
    rounds::{Ends, Leaving, RoundMachine, RoundMessage, RoundSender, Style, wire},
    shell::Endpoint,
    time::Instant,
    units::Rate,
};
use farhaul_measure::registry::{Entry, NO_LAW};

static BLAST: Descriptor = Descriptor {
    name: "blast",
    summary: "blocks at a set rate, the receiver reports what is missing",
    provenance: Provenance::Specification,
    citation: "examples/my-protocol",
    sealed: false,
    control_lane: false,
    multiplexed: true,
};

static PARAMETERS: [Parameter; 1] = [Parameter {
    name: "rate",
    about: "bits of data per second",
    kind: Kind::Rate,
    default: "100Mbit",
}];

/// Bytes of a block, blocks in flight, and missing ranges in a report.
const BLOCK: u64 = 1 << 20;
const BLOCKS: usize = 4;
const RANGES: usize = 20_000;

/// What farhaul's commands need to know.
pub fn entry() -> Entry {
    Entry::new(
        &BLAST,
        NO_LAW,
        true,
        &PARAMETERS,
        |descriptor, choice, values, _end| {
            let rate = values.rate("rate");
            let rate = choice.max_rate.map_or(rate, |most| most.min(rate));
            let machine = move || RoundMachine::new(Blast { rate });
            Ok(Box::new(Endpoint::new(descriptor, 1_500, machine)))
        },
    )
}

struct Blast {
    rate: Rate,
}

/// A message: type (1), first number of its block (4), bytes that follow (4), and these.
fn put(kind: u8, first: u32, body: &[u8], into: &mut Vec<u8>) {
    into.push(kind);
    into.extend(first.to_be_bytes());
    into.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    into.extend(body);
}

/// Bits of a block of `packets` of which all are set but the ranges in `r`.
fn all_but(r: &mut Reader<'_>, packets: u64) -> Result<Bitmap, DecodeError> {
    const BAD: DecodeError = DecodeError::Malformed("missing range");
    let mut bits = vec![0xff_u8; usize::try_from(packets.div_ceil(8)).map_err(|_| BAD)?];
    while !r.is_empty() {
        let (start, end) = (r.u32()?, r.u32()?);
        if start >= end || u64::from(end) > packets {
            return Err(BAD);
        }
        for n in start..end {
            bits[n as usize / 8] &= !(1 << (n % 8));
        }
    }
    Ok(Bitmap::from_bytes(&bits, packets))
}

impl Style for Blast {
    const HEADER: usize = 4;

    fn sender(&self) -> RoundSender {
        RoundSender::new(BLOCK, BLOCKS)
    }

    fn number(bytes: &[u8]) -> Result<u32, DecodeError> {
        Reader::new(bytes).u32()
    }

    fn head(leaving: &Leaving<'_>, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.u32(leaving.number)
    }

    fn rate(&self, _payload: u32) -> Rate {
        self.rate
    }

    fn encode(&self, message: RoundMessage<'_>, into: &mut Vec<u8>) {
        let mut body = Vec::new();
        match message {
            RoundMessage::Ready(first) => put(1, first, &body, into),
            RoundMessage::Cut(first) => put(2, first, &body, into),
            RoundMessage::Block(first, layout) => {
                wire::encode_layout(layout, &mut body);
                put(3, first, &body, into);
            }
            RoundMessage::Asked { first, round, sent } => {
                body.extend(round.to_be_bytes());
                body.extend(sent.to_be_bytes());
                put(4, first, &body, into);
            }
            RoundMessage::Report(report) => {
                body.extend(report.through.unwrap_or(0).to_be_bytes());
                for gap in report.have.missing(0..report.packets).take(RANGES) {
                    let ends = [gap.start, gap.end].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
                    body.extend(ends.into_iter().flat_map(u32::to_be_bytes));
                }
                put(5, report.first, &body, into);
            }
        }
    }

    fn on_control(
        &mut self,
        now: Instant,
        ends: &mut Ends,
        bytes: &[u8],
    ) -> Result<usize, DecodeError> {
        const HEAD: usize = 9;
        let mut r = Reader::new(bytes);
        if bytes.len() < HEAD {
            return Ok(0);
        }
        let (kind, first, len) = (r.u8()?, r.u32()?, r.u32()? as usize);
        if len > 8 * RANGES + 4 {
            return Err(DecodeError::Malformed("length of a message"));
        }
        let Some(body) = bytes.get(HEAD..HEAD + len) else {
            return Ok(0);
        };
        let mut body = Reader::new(body);
        match kind {
            1 => ends.sender.on_ready(first),
            2 => ends.on_cut(first),
            3 => ends.on_block(first, wire::decode_layout(&mut body)?, None)?,
            4 => ends
                .receiver
                .on_question(now, first, body.u32()?, body.u64()?)?,
            5 => {
                let unasked = DecodeError::Malformed("a report that was not requested");
                let packets = ends.sender.asked(first).ok_or(unasked)?;
                let through = Some(body.u32()?);
                let have = all_but(&mut body, packets)?;
                ends.sender.on_report(first, through, have)?;
            }
            _ => return Err(DecodeError::Malformed("type of a message")),
        }
        Ok(HEAD + len)
    }
}
