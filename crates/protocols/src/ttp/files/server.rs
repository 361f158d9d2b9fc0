//! The end that has the files.

use std::time::Duration;

use farhaul_core::{codec::DecodeError, send::Permit, time::Instant, units::Rate};

use super::{info, layout, take};
use crate::ttp::{
    protocol::LEAST_RATE,
    send::Sender,
    wire::{
        BlockHeader, CHALLENGE, FEEDBACK, Feedback, FeedbackKind, GOT, MAX_LINE, NameCount,
        PARAMETERS, Parameters, REVISION, Request, Verdict, answer, put_directory,
    },
};

/// Blocks are at most as long as fits a datagram.
const MAX_BLOCK: u32 = 65_501;

/// Request of the client; the next is heard once this one was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A file: [`FileServer::offer`] or [`FileServer::refuse`].
    File(Vec<u8>),
    /// The names of all files: [`FileServer::names`].
    Names,
    /// The names and sizes of all files: [`FileServer::directory`].
    Directory,
    /// The port that blocks go to from now on.
    Port(u16),
    /// The file has arrived.
    Stopped,
    /// The client does not know the secret, and got that verdict.
    Denied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Revision,
    Answer,
    /// The caller of this end answers.
    Asked,
    Request,
    /// Count of the messages [`GOT`] that were heard.
    Got(usize),
    /// The client has read the list.
    Listed,
    /// Parameters for a file of this many bytes.
    Parameters(u64),
    Port,
    Sending,
    Denied,
}

/// The server's end of one connection.
#[derive(Debug)]
pub struct FileServer {
    secret: Vec<u8>,
    challenge: [u8; CHALLENGE],
    max_rate: Rate,
    timeout: Duration,
    /// Seconds since 1970, said of each file.
    epoch: u32,
    state: State,
    sender: Sender,
    block: u32,
    kept: Vec<u8>,
    names: Vec<u8>,
    out: Vec<u8>,
}

impl FileServer {
    /// The server of a client that knows `secret`; a file without feedback for `timeout` is given
    /// up.
    pub fn new(
        secret: &[u8],
        challenge: [u8; CHALLENGE],
        (max_rate, timeout): (Rate, Duration),
        epoch: u32,
    ) -> Self {
        Self {
            secret: secret.to_vec(),
            challenge,
            max_rate,
            timeout,
            epoch,
            state: State::Revision,
            sender: Sender::new(max_rate, timeout),
            block: 1,
            kept: Vec::new(),
            names: Vec::new(),
            out: REVISION.to_be_bytes().to_vec(),
        }
    }

    /// Bytes came over TCP; what the client asks for.
    pub fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<Option<Asked>, DecodeError> {
        self.kept.extend(bytes);
        loop {
            let asked = match self.state {
                State::Asked | State::Denied => break,
                State::Request => match Request::decode(&self.kept)? {
                    None => break,
                    Some((request, len)) => {
                        let asked = match request {
                            Request::File(name) => Asked::File(name.to_vec()),
                            Request::Names => Asked::Names,
                            Request::Directory => Asked::Directory,
                        };
                        self.kept.drain(..len);
                        self.state = State::Asked;
                        Some(asked)
                    }
                },
                state => match take(&mut self.kept, state.wants()) {
                    None => break,
                    Some(words) => self.on_message(now, &words)?,
                },
            };
            if asked.is_some() {
                return Ok(asked);
            }
        }
        if self.kept.len() > MAX_LINE {
            return Err(DecodeError::Malformed("words that nobody waits for"));
        }
        Ok(None)
    }

    fn on_message(&mut self, now: Instant, words: &[u8]) -> Result<Option<Asked>, DecodeError> {
        match self.state {
            State::Revision => {
                if words != REVISION.to_be_bytes() {
                    return Err(DecodeError::Malformed("protocol revision"));
                }
                self.out.extend(self.challenge);
                self.state = State::Answer;
            }
            State::Answer => {
                let knows = words == answer(&self.challenge, &self.secret);
                let verdict = if knows {
                    Verdict::Fine
                } else {
                    Verdict::Denied
                };
                self.out.push(verdict.encode());
                if !knows {
                    self.state = State::Denied;
                    return Ok(Some(Asked::Denied));
                }
                self.state = State::Request;
            }
            State::Got(n) => {
                if words != GOT[n] {
                    return Err(DecodeError::Malformed("answer to a list"));
                }
                self.out.append(&mut self.names);
                self.state = if n == 0 {
                    State::Got(1)
                } else {
                    State::Request
                };
            }
            State::Listed => self.state = State::Request,
            State::Parameters(size) => self.on_parameters(now, size, words)?,
            State::Port => {
                let port = u16::from_be_bytes([words[0], words[1]]);
                if self.sender.on_go(now).is_err() && !self.sender.is_idle() {
                    return Err(DecodeError::Malformed("port, out of turn"));
                }
                self.state = State::Sending;
                return Ok(Some(Asked::Port(port)));
            }
            State::Sending => {
                let feedback = Feedback::decode(words)?;
                if !self.sender.is_idle() {
                    self.sender.on_feedback(now, feedback)?;
                } else if feedback.kind != FeedbackKind::Stop {
                    return Err(DecodeError::Malformed("feedback on a file without blocks"));
                }
                if self.sender.is_idle() {
                    self.state = State::Request;
                    return Ok(Some(Asked::Stopped));
                }
            }
            State::Asked | State::Request | State::Denied => {}
        }
        Ok(None)
    }

    fn on_parameters(&mut self, now: Instant, size: u64, words: &[u8]) -> Result<(), DecodeError> {
        let wanted = Parameters::decode(words)?;
        let block = wanted.block_size;
        let rate = self.max_rate.bps().min(wanted.rate.into());
        if block > MAX_BLOCK || rate < u64::from(LEAST_RATE) * u64::from(block) {
            return Err(DecodeError::Malformed("size of a block for its rate"));
        }
        let layout = layout(size, block)?;
        info(&layout, self.epoch).encode(&mut self.out);
        self.block = block;
        self.sender = Sender::new(self.max_rate, self.timeout);
        self.sender.set_wanted(wanted);
        self.sender.open(block);
        self.sender.push(0, 0, size);
        self.sender.begin(now);
        self.state = State::Port;
        Ok(())
    }

    /// The file that was asked for has `size` bytes.
    pub fn offer(&mut self, size: u64) {
        self.out.push(Verdict::Fine.encode());
        self.state = State::Parameters(size);
    }

    /// Answers that there is no such file.
    pub fn refuse(&mut self) {
        self.out.push(Verdict::NotFound.encode());
        self.state = State::Request;
    }

    /// Answers with the names, of at most [`MAX_LIST`](super::MAX_LIST) bytes together with a
    /// list's words on each.
    pub fn names<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) {
        let mut count = 0;
        for name in names {
            self.names.extend(name);
            self.names.push(0);
            count += 1;
        }
        let count = NameCount {
            bytes: self.names.len() as u64,
            names: count,
        };
        count.encode(&mut self.out);
        self.state = State::Got(0);
    }

    /// Answers with the names and sizes, within the same limit.
    pub fn directory(&mut self, files: &[(&[u8], u64)]) {
        put_directory(&mut self.out, files);
        self.state = State::Listed;
    }

    /// Appends the bytes to leave over TCP.
    pub fn poll_control(&mut self, into: &mut Vec<u8>) {
        into.append(&mut self.out);
    }

    /// True if blocks may leave.
    pub fn permit(&self, now: Instant) -> bool {
        self.state == State::Sending && matches!(self.sender.permit(now), Permit::Send { .. })
    }

    /// Bytes of a block.
    pub const fn block(&self) -> u32 {
        self.block
    }

    /// The block to be sent now, if one is due: its header, and which bytes of the file it begins with. The
    /// rest of it is anything.
    pub fn next_block(&mut self, now: Instant) -> Option<(BlockHeader, u64, u32)> {
        let (header, layout, unit) = self.sender.next_block(now)?;
        let piece = layout.pieces(unit).next()?;
        Some((header, piece.offset, piece.len))
    }

    /// True if the client knows the secret.
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, State::Revision | State::Answer | State::Denied)
    }

    /// True if a file is on its way.
    pub fn is_sending(&self) -> bool {
        self.state == State::Sending
    }

    /// Time at which blocks may leave again.
    pub fn wake(&self) -> Option<Instant> {
        let deadline = self.sender.deadline().filter(|_| self.is_sending());
        deadline.map(|(at, _)| at)
    }

    /// True if nothing was heard for too long of blocks that leave.
    pub fn is_abandoned(&self, now: Instant) -> bool {
        let since = self.sender.blocked_since();
        since.is_some_and(|since| now.since(since) >= self.timeout)
    }
}

impl State {
    /// Bytes that come next.
    const fn wants(self) -> usize {
        match self {
            Self::Revision => REVISION.to_be_bytes().len(),
            Self::Answer => 16,
            Self::Got(_) => GOT[0].len(),
            Self::Listed => 1,
            Self::Parameters(_) => PARAMETERS,
            Self::Port => 2,
            Self::Sending => FEEDBACK,
            Self::Asked | Self::Request | Self::Denied => usize::MAX,
        }
    }
}
