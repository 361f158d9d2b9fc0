//! FOBS' own part of a session: chunks in segments or in passes, each packet with its number. There
//! are reports of what is there, and a rate that follows the loss of segments.

use farhaul_core::{
    codec::{DecodeError, NoRoom, Writer},
    loss::Bitmap,
    rounds::{Ends, Leaving, RoundMachine, RoundMessage, RoundSender, Rounds, Style},
    time::Instant,
    units::Rate,
};

use super::{
    config::{Config, Mode},
    law::Law,
    wire::{self, HEADER, Header, Message},
};

/// Chunks on their way at once.
const WINDOW: usize = 1;

/// FOBS in a session.
pub type FobsMachine = RoundMachine<FobsStyle>;

/// Difference from other protocols that send in rounds.
#[derive(Debug)]
pub struct FobsStyle {
    mode: Mode,
    chunk: u64,
    law: Law,
}

impl FobsStyle {
    pub(super) fn new(config: &Config) -> Self {
        let tolerance = match config.mode {
            Mode::Greedy { .. } => 0.0,
            Mode::Segments { tolerance, .. } => tolerance,
        };
        Self {
            mode: config.mode,
            chunk: config.chunk,
            law: Law::new(config.highest_rate(), tolerance),
        }
    }

    /// New packets after which the peer reports; none: when it is asked.
    const fn every(&self) -> Option<u32> {
        match self.mode {
            Mode::Greedy { every } => Some(every),
            Mode::Segments { .. } => None,
        }
    }

    /// Takes the peer's report of a chunk. One that is over may still be spoken of.
    fn on_report(
        &mut self,
        sender: &mut RoundSender,
        (first, through): (u32, Option<u32>),
        have: Bitmap,
    ) -> Result<(), DecodeError> {
        if sender.packets(first).is_some() {
            let judged = sender.on_report(first, through, have)?;
            if self.every().is_none() {
                self.law.on_judged(judged, sender.rounds_begun());
            }
        }
        Ok(())
    }
}

impl Style for FobsStyle {
    const HEADER: usize = HEADER;
    const LANE: bool = true;

    fn sender(&self) -> RoundSender {
        RoundSender::new(self.chunk, WINDOW).with_rounds(match self.mode {
            Mode::Greedy { .. } => Rounds::Unreported,
            Mode::Segments { packets, .. } => Rounds::Reported(packets.max(1).into()),
        })
    }

    fn number(bytes: &[u8]) -> Result<u32, DecodeError> {
        Ok(Header::decode(bytes)?.number)
    }

    fn head(leaving: &Leaving<'_>, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let header = Header {
            number: leaving.number,
            round: u16::try_from(leaving.round & 0xffff).unwrap_or(0),
        };
        header.encode(w)
    }

    fn rate(&self, _payload: u32) -> Rate {
        self.law.rate()
    }

    fn encode(&self, message: RoundMessage<'_>, into: &mut Vec<u8>) {
        let message = match message {
            RoundMessage::Ready(first) => Message::Ready(first),
            RoundMessage::Cut(first) => Message::Cut(first),
            RoundMessage::Block(first, layout) => {
                Message::Chunk(first, self.every(), layout.clone())
            }
            RoundMessage::Asked { first, round, sent } => Message::EndOfSegment {
                first,
                segment: round,
                sent,
            },
            RoundMessage::Report(report) if report.count == report.packets => {
                Message::Completed(report.first)
            }
            RoundMessage::Report(report) => {
                return match report.through {
                    Some(segment) => wire::feedback(report.first, segment, &report.have, into),
                    None => wire::ack(report.first, &report.have, report.packets, into),
                };
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
        match message {
            Message::Chunk(first, every, layout) => {
                // Without a number of packets a chunk is reported when it is whole.
                let every = every.map_or(u64::MAX, u64::from);
                ends.on_block(first, layout, Some(every))?;
            }
            Message::Ready(first) => ends.sender.on_ready(first),
            Message::EndOfSegment {
                first,
                segment,
                sent,
            } => {
                // The chunk may have become whole while this was under way.
                if ends.receiver.awaits(first) {
                    ends.receiver.on_question(now, first, segment, sent)?;
                }
            }
            Message::Feedback(first, segment, have) => {
                self.on_report(&mut ends.sender, (first, Some(segment)), have)?;
            }
            Message::Ack(first, have) => self.on_report(&mut ends.sender, (first, None), have)?,
            Message::Completed(first) => ends.sender.on_completed(first)?,
            Message::Cut(first) => ends.on_cut(first),
        }
        Ok(len)
    }
}
