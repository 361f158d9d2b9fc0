//! Sends a batch: as one `sendmsg` with the segment size beside it where the kernel segments, else
//! as one `sendmmsg` with a header per segment.

use std::{io, os::fd::AsRawFd};

use farhaul_core::datagram::{Ecn, MAX_BATCH, MAX_SEGMENTS};
use socket2::SockAddr;

use super::{
    super::{Outgoing, SendOutcome, native},
    UdpSocket,
    control::Control,
};

/// Reason why a send call took nothing.
enum Refusal {
    /// The call was blocked, with the error number.
    Blocked(i32),
    /// The kernel or the route cannot segment, or a segment is too large; the error does not distinguish
    /// them.
    Offload(i32),
    Final(SendOutcome),
}

impl UdpSocket {
    /// Sends a batch.
    ///
    /// # Panics
    /// If the stride is zero.
    pub fn send(&mut self, batch: &Outgoing<'_>) -> SendOutcome {
        assert!(batch.segment > 0, "a batch needs a stride");
        let addr = (self.peer != Some(batch.to)).then(|| SockAddr::from(native(batch.to, self.v6)));
        let mut sent = 0;
        while sent < batch.bytes.len() {
            let rest = Outgoing {
                bytes: &batch.bytes[sent..],
                ..*batch
            };
            match self.send_some(&rest, addr.as_ref()) {
                Ok(n) => {
                    sent += n;
                    self.counters.bytes_sent += n as u64;
                    self.counters.datagrams_sent += n.div_ceil(batch.segment) as u64;
                }
                Err(refusal) => return self.settle(refusal, sent),
            }
        }
        SendOutcome::Sent
    }

    /// Sends at least the first segment of `batch`; returns the bytes that left.
    fn send_some(
        &mut self,
        batch: &Outgoing<'_>,
        addr: Option<&SockAddr>,
    ) -> Result<usize, Refusal> {
        if batch.bytes.len() <= batch.segment {
            return self.send_message(batch, batch.bytes, addr);
        }
        if !self.capabilities.gso {
            return self.send_each(batch, addr);
        }
        let most = MAX_SEGMENTS.min(MAX_BATCH / batch.segment).max(1) * batch.segment;
        let piece = &batch.bytes[..batch.bytes.len().min(most)];
        let mut done = self.send_message(batch, piece, addr);
        if let Err(Refusal::Offload(_)) = done {
            // Forged ICMP leaves the same numbers on the socket, once.
            done = self.send_message(batch, piece, addr);
        }
        match done {
            Err(Refusal::Offload(errno)) => {
                // Older kernels refuse an oversized segment with the same number: then the plain
                // call fails with "too large", and offload is not the cause.
                let sent = self.send_each(batch, addr)?;
                self.capabilities.gso = false;
                self.capabilities.gso_refusal = Some(errno);
                self.counters.gso_refused += 1;
                Ok(sent)
            }
            done => done,
        }
    }

    /// One `sendmsg` of `piece`, segmented by the kernel if it is longer than a segment.
    fn send_message(
        &mut self,
        batch: &Outgoing<'_>,
        piece: &[u8],
        addr: Option<&SockAddr>,
    ) -> Result<usize, Refusal> {
        let mut control = self.control(batch);
        if piece.len() > batch.segment {
            let segment = u16::try_from(batch.segment).expect("a segment fits in a datagram");
            control.push(libc::IPPROTO_UDP, libc::UDP_SEGMENT, segment);
        }
        let mut data = iovec(piece);
        let mut header = header(&mut data, addr);
        control.attach(&mut header);
        loop {
            self.counters.send_calls += 1;
            // SAFETY: `header` points at `data`, `control` and `addr`, which outlive the call, and
            // `data` at `piece`.
            let status = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const header, 0) };
            if let Ok(sent) = usize::try_from(status) {
                return Ok(sent);
            }
            if let Some(refusal) = refusal(io::Error::last_os_error(), piece.len() > batch.segment)
            {
                return Err(refusal);
            }
        }
    }

    /// One `sendmmsg` with a message per segment; returns the bytes of those that left.
    fn send_each(
        &mut self,
        batch: &Outgoing<'_>,
        addr: Option<&SockAddr>,
    ) -> Result<usize, Refusal> {
        let mut control = self.control(batch);
        // SAFETY: these are plain C structs for which all zeroes is a valid value.
        let (mut data, mut headers): ([libc::iovec; MAX_SEGMENTS], [libc::mmsghdr; MAX_SEGMENTS]) =
            unsafe { std::mem::zeroed() };
        let mut count: libc::c_uint = 0;
        for (i, segment) in batch
            .bytes
            .chunks(batch.segment)
            .take(MAX_SEGMENTS)
            .enumerate()
        {
            data[i] = iovec(segment);
            headers[i].msg_hdr = header(&mut data[i], addr);
            control.attach(&mut headers[i].msg_hdr);
            count += 1;
        }
        loop {
            self.counters.send_calls += 1;
            // SAFETY: the first `count` headers point at `data`, `control` and `addr`, which outlive
            // the call, and `data` at the batch.
            let status =
                unsafe { libc::sendmmsg(self.socket.as_raw_fd(), headers.as_mut_ptr(), count, 0) };
            if let Ok(messages) = usize::try_from(status) {
                return Ok((messages * batch.segment).min(batch.bytes.len()));
            }
            if let Some(refusal) = refusal(io::Error::last_os_error(), false) {
                return Err(refusal);
            }
        }
    }

    /// The control messages that every message of `batch` needs.
    fn control(&self, batch: &Outgoing<'_>) -> Control {
        let mut control = Control::EMPTY;
        if batch.ecn != Ecn::NotEct {
            control.push_mark(batch.ecn, batch.to.is_ipv4());
        }
        if let Some(from) = batch.from {
            control.push_source(from, self.v6);
        }
        control
    }

    /// Counts a refusal and reports it.
    fn settle(&mut self, refusal: Refusal, sent: usize) -> SendOutcome {
        let outcome = match refusal {
            Refusal::Blocked(errno) => {
                self.counters.no_memory += u64::from(errno == libc::ENOBUFS);
                SendOutcome::Blocked { sent }
            }
            Refusal::Offload(errno) => SendOutcome::Failed(io::Error::from_raw_os_error(errno)),
            Refusal::Final(outcome) => outcome,
        };
        let counter = match outcome {
            SendOutcome::Sent => return outcome,
            SendOutcome::Blocked { .. } => &mut self.counters.blocked,
            SendOutcome::TooLarge => &mut self.counters.too_large,
            SendOutcome::Refused => &mut self.counters.refused,
            SendOutcome::Failed(_) => &mut self.counters.failed,
        };
        *counter += 1;
        outcome
    }
}

/// Meaning of a failed call; `None`: call again.
fn refusal(error: io::Error, offloaded: bool) -> Option<Refusal> {
    let errno = error.raw_os_error().unwrap_or(0);
    Some(match errno {
        libc::EINTR => return None,
        // ENOBUFS: the device's queue is full; it drains like the socket's buffer does.
        libc::EAGAIN | libc::ENOBUFS => Refusal::Blocked(errno),
        libc::EMSGSIZE => Refusal::Final(SendOutcome::TooLarge),
        libc::ECONNREFUSED => Refusal::Final(SendOutcome::Refused),
        libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOPROTOOPT if offloaded => {
            Refusal::Offload(errno)
        }
        _ => Refusal::Final(SendOutcome::Failed(error)),
    })
}

fn iovec(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        // The kernel only reads through the pointer of a sent message.
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

fn header(data: &mut libc::iovec, addr: Option<&SockAddr>) -> libc::msghdr {
    // SAFETY: a plain C struct for which all zeroes is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = data;
    header.msg_iovlen = 1;
    if let Some(addr) = addr {
        header.msg_name = addr.as_ptr().cast_mut().cast();
        header.msg_namelen = addr.len();
    }
    header
}
