//! RBUDP's own part of a session: blocks in rounds, each packet with its number, a report for each
//! round, and a rate that nothing changes.

use std::time::Duration;

use farhaul_core::{
    codec::{DecodeError, NoRoom, Writer},
    rounds::{Ends, Leaving, RoundMachine, RoundMessage, RoundSender, Style},
    time::Instant,
    units::Rate,
};

use super::{
    Config,
    wire::{
        HEADER, Message, decode_number, decode_report, encode_number, encode_report,
        missing_ranges, report_len, without,
    },
};

/// Number of any round: there is one round at a time, and a report is of the one that was asked
/// for.
const ANY: Option<u32> = Some(u32::MAX);

/// RBUDP in a session.
pub type RbudpMachine = RoundMachine<Config>;

/// Count of a block's packets that the peer may report on.
fn asked(sender: &RoundSender, first: u32) -> Result<u64, DecodeError> {
    let asked = sender.asked(first);
    asked.ok_or(DecodeError::Malformed("a report that nobody asked for"))
}

impl Style for Config {
    const HEADER: usize = HEADER;
    const LANE: bool = true;
    const BLASTS: bool = true;

    fn sender(&self) -> RoundSender {
        RoundSender::new(self.block, self.window)
    }

    fn number(bytes: &[u8]) -> Result<u32, DecodeError> {
        decode_number(bytes)
    }

    fn head(leaving: &Leaving<'_>, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        encode_number(w, leaving.number)
    }

    fn payload(&self, most: u32) -> u32 {
        self.payload.unwrap_or(most).min(most)
    }

    fn grace(&self, rtt: Duration) -> Duration {
        if self.overlaps() {
            rtt / 8
        } else {
            Duration::ZERO
        }
    }

    fn overtaken(&self) -> u64 {
        self.overtake.into()
    }

    fn rate(&self, payload: u32) -> Rate {
        self.pace(payload)
    }

    fn spins(&self) -> bool {
        self.spin
    }

    fn encode(&self, message: RoundMessage<'_>, into: &mut Vec<u8>) {
        let message = match message {
            RoundMessage::Ready(first) => Message::Ready(first),
            RoundMessage::Cut(first) => Message::Cut(first),
            RoundMessage::Block(first, layout) => Message::Block(first, layout.clone()),
            RoundMessage::Asked { first, round, sent } => Message::Done { first, round, sent },
            RoundMessage::Report(report) => {
                let (packets, have) = (report.packets, report.have);
                let all = report.count == packets;
                let ranges = self.overlaps() && !all;
                let ranges = ranges.then(|| missing_ranges(&have, packets)).flatten();
                let Some(ranges) = ranges else {
                    Message::Report(report.first).encode(into);
                    return encode_report(&have, packets, all, into);
                };
                Message::Missing(report.first, ranges)
            }
        };
        message.encode(into);
    }

    fn on_control(
        &mut self,
        now: Instant,
        ends: &mut Ends,
        bytes: &[u8],
    ) -> Result<usize, DecodeError> {
        let Some((message, len)) = Message::decode(bytes)? else {
            return Ok(0);
        };
        let sender = &mut ends.sender;
        match message {
            Message::Block(first, layout) => ends.on_block(first, layout, None)?,
            Message::Ready(first) => sender.on_ready(first),
            Message::Done { first, round, sent } => {
                ends.receiver.on_question(now, first, round, sent)?;
            }
            Message::Report(first) => {
                let packets = asked(sender, first)?;
                let end = len + report_len(packets);
                let Some(report) = bytes.get(len..end) else {
                    return Ok(0);
                };
                sender.on_report(first, ANY, decode_report(report, packets)?)?;
                return Ok(end);
            }
            Message::Missing(first, ranges) => {
                let have = without(&ranges, asked(sender, first)?)?;
                sender.on_report(first, ANY, have)?;
            }
            Message::Cut(first) => ends.on_cut(first),
        }
        Ok(len)
    }
}
