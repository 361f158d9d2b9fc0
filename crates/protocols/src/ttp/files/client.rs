//! The end that wants the files.

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError, datagram::Ecn, protocol::CloseReason, shell::Incoming, store::Extent,
    time::Instant,
};

use super::{MAX_LIST, layout, take};
use crate::ttp::{
    protocol::Loss,
    recv::{Output, Receiver},
    wire::{
        CHALLENGE, FILE_INFO, FileInfo, GOT, NameCount, Parameters, REVISION, Request, Verdict,
        answer, directory, directory_strings, strings,
    },
};

/// News from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The server can be asked.
    Ready,
    /// The server has not got the requested file, or not now.
    Refused(Verdict),
    /// The file has this many bytes, and its blocks come.
    File(u64),
    /// All of the file is here, and the server is being informed.
    Done,
    /// The names of its files.
    Names(Vec<Vec<u8>>),
    /// Names and sizes of the files.
    Directory(Vec<(Vec<u8>, u64)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Revision,
    Challenge,
    Verdict,
    Ready,
    /// The answer to the request of a file.
    Offer,
    Info,
    Receiving,
    NameCount,
    /// A list of this many names and bytes.
    NameList(NameCount),
    /// Progress of a list: the number of strings, as far as is known; the bytes looked at, and the
    /// strings that ended there.
    Directory {
        strings: u64,
        seen: usize,
        ended: u64,
    },
}

/// The client's end of a connection.
#[derive(Debug)]
pub struct FileClient {
    secret: Vec<u8>,
    wanted: Parameters,
    /// Port at which blocks are taken.
    port: u16,
    timeout: Duration,
    state: State,
    /// First request, sent once the server can be asked, and the state that waits for its answer.
    first: Option<(Vec<u8>, State)>,
    receiver: Receiver,
    kept: Vec<u8>,
    out: Vec<u8>,
}

impl FileClient {
    /// A client that wants files with these parameters; it gives up a file that gets nothing for
    /// `timeout`.
    pub fn new(secret: &[u8], wanted: Parameters, timeout: Duration) -> Self {
        Self {
            secret: secret.to_vec(),
            receiver: Receiver::new(wanted, Loss::Repaired, timeout),
            wanted,
            port: 0,
            timeout,
            state: State::Revision,
            first: None,
            kept: Vec::new(),
            out: REVISION.to_be_bytes().to_vec(),
        }
    }

    /// The blocks of the next file are taken at this UDP port.
    pub const fn set_port(&mut self, port: u16) {
        self.port = port;
    }

    /// Asks for something. The first request leaves with the answer to the challenge, which saves a round trip;
    /// any other as soon as the one before is answered.
    pub fn ask(&mut self, request: Request<'_>) {
        let then = match request {
            Request::File(_) => State::Offer,
            Request::Names => State::NameCount,
            Request::Directory => State::Directory {
                strings: 1,
                seen: 0,
                ended: 0,
            },
        };
        if self.state == State::Ready {
            request.encode(&mut self.out);
            self.state = then;
        } else {
            debug_assert!(
                matches!(self.state, State::Revision | State::Challenge) && self.first.is_none(),
                "one request at a time"
            );
            let mut line = Vec::new();
            request.encode(&mut line);
            self.first = Some((line, then));
        }
    }

    /// Bytes came over TCP; what they say.
    pub fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<Option<News>, DecodeError> {
        self.kept.extend(bytes);
        loop {
            let news = match self.state {
                State::Receiving if self.receiver.is_idle() => {
                    self.state = State::Ready;
                    Some(News::Done)
                }
                State::Ready | State::Receiving => break,
                State::Directory { .. } => match self.on_directory()? {
                    None => break,
                    news => news,
                },
                state => match take(&mut self.kept, state.wants()) {
                    None => break,
                    Some(words) => self.on_message(now, &words)?,
                },
            };
            if news.is_some() {
                return Ok(news);
            }
        }
        let waits = matches!(self.state, State::Ready | State::Receiving);
        if self.kept.len() > MAX_LIST || waits && !self.kept.is_empty() {
            return Err(DecodeError::Malformed("words that nobody waits for"));
        }
        Ok(None)
    }

    fn on_message(&mut self, now: Instant, words: &[u8]) -> Result<Option<News>, DecodeError> {
        match self.state {
            State::Revision => {
                if words != REVISION.to_be_bytes() {
                    return Err(DecodeError::Malformed("protocol revision"));
                }
                self.state = State::Challenge;
            }
            State::Challenge => {
                let challenge = words.try_into().map_err(|_| DecodeError::Truncated)?;
                self.out.extend(answer(challenge, &self.secret));
                if let Some((line, _)) = &mut self.first {
                    self.out.append(line);
                }
                self.state = State::Verdict;
            }
            State::Verdict => {
                self.state = State::Ready;
                let verdict = Verdict::decode(words[0])?;
                if verdict != Verdict::Fine {
                    return Ok(Some(News::Refused(verdict)));
                }
                if let Some((_, then)) = self.first.take() {
                    self.state = then;
                }
                return Ok(Some(News::Ready));
            }
            State::Offer => {
                let verdict = Verdict::decode(words[0])?;
                if verdict != Verdict::Fine {
                    self.state = State::Ready;
                    return Ok(Some(News::Refused(verdict)));
                }
                self.wanted.encode(&mut self.out);
                self.state = State::Info;
            }
            State::Info => return self.on_info(now, FileInfo::decode(words)?).map(Some),
            State::NameCount => {
                let count = NameCount::decode(words)?;
                if count.bytes > MAX_LIST as u64 {
                    return Err(DecodeError::Malformed("length of a list of names"));
                }
                self.out.extend(GOT[0]);
                self.state = State::NameList(count);
            }
            State::NameList(count) => {
                let names: Vec<_> = strings(words).map(<[u8]>::to_vec).collect();
                if names.len() as u64 != count.names {
                    return Err(DecodeError::Malformed("number of names"));
                }
                self.out.extend(GOT[1]);
                self.state = State::Ready;
                return Ok(Some(News::Names(names)));
            }
            State::Ready | State::Receiving | State::Directory { .. } => {}
        }
        Ok(None)
    }

    fn on_info(&mut self, now: Instant, info: FileInfo) -> Result<News, DecodeError> {
        if info.block_size != self.wanted.block_size {
            return Err(DecodeError::Malformed("size of a block"));
        }
        let layout = layout(info.size, info.block_size)?;
        self.receiver = Receiver::new(self.wanted, Loss::Repaired, self.timeout);
        self.receiver.open(info.block_size);
        self.receiver.on_file(now, layout, info.blocks)?;
        if info.blocks == 0 {
            self.receiver.finish();
        }
        self.state = State::Receiving;
        Ok(News::File(info.size))
    }

    fn on_directory(&mut self) -> Result<Option<News>, DecodeError> {
        let State::Directory {
            strings,
            seen,
            ended,
        } = &mut self.state
        else {
            return Ok(None);
        };
        // Strings end with a zero. The list is read when all are there, however it comes.
        let ends = self.kept[*seen..].iter().map(|b| u64::from(*b == 0));
        *ended += ends.sum::<u64>();
        *seen = self.kept.len();
        if *ended > 0 && *strings == 1 {
            *strings = directory_strings(&self.kept)?.unwrap_or(1);
        }
        if *ended < *strings {
            return Ok(None);
        }
        let files = directory(&self.kept)?.filter(|_| self.kept.ends_with(&[0]));
        let files = files.ok_or(DecodeError::Malformed("words that nobody waits for"))?;
        let owned = files.into_iter().map(|(name, size)| (name.to_vec(), size));
        let news = News::Directory(owned.collect());
        self.kept.clear();
        self.out.push(0);
        self.state = State::Ready;
        Ok(Some(news))
    }

    /// A datagram came; adds what of it is to be written, `at` counted from its start.
    pub fn on_datagram(
        &mut self,
        now: Instant,
        bytes: &[u8],
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        if self.state != State::Receiving {
            return Err(DecodeError::Malformed("block without a file"));
        }
        let datagram = Incoming {
            kind: 0,
            bytes,
            at: 0,
            wire: 0,
            ecn: Ecn::NotEct,
        };
        self.receiver.on_datagram(now, &datagram, place)
    }

    /// Appends the bytes to leave over TCP.
    pub fn poll_control(&mut self, now: Instant, into: &mut Vec<u8>) {
        let (out, port) = (&mut self.out, self.port);
        self.receiver.poll_output(now, |said| match said {
            Output::Go => out.extend(port.to_be_bytes()),
            Output::Feedback(feedback) => feedback.encode(out),
        });
        into.append(out);
    }

    /// Time at which [`Self::on_timer`] is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.receiver.deadline().map(|(at, _)| at)
    }

    /// The deadline passed; why the file is given up.
    pub fn on_timer(&mut self, now: Instant) -> Option<CloseReason> {
        self.receiver.on_timer(now);
        self.receiver.failure()
    }
}

impl State {
    /// Bytes that come next.
    fn wants(self) -> usize {
        match self {
            Self::Revision => REVISION.to_be_bytes().len(),
            Self::Challenge => CHALLENGE,
            Self::Verdict | Self::Offer => 1,
            Self::Info => FILE_INFO,
            Self::NameCount => NameCount::LEN,
            Self::NameList(count) => usize::try_from(count.bytes).unwrap_or(usize::MAX),
            Self::Ready | Self::Receiving | Self::Directory { .. } => usize::MAX,
        }
    }
}
