//! Answers one connection: one request per connection (RFC 9112), each bounded in size and time, so
//! that one that stalls is given up. The server has only what a page needs: GET and HEAD, and a
//! body of known length.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use farhaul_core::time::Instant;
use farhaul_io::{Stop, clock};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::udp::timespec;

/// Most bytes of a request's head.
const HEAD: usize = 16 * 1024;
/// Most fields in a request's head.
const FIELDS: usize = 64;
/// A request must be complete within this.
const ASKED_WITHIN: Duration = Duration::from_secs(5);
/// An answer must be taken within this.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// Longest time that the other side may take to close: bytes that it still sends would otherwise
/// cost it the answer.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Method, as it was sent.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Host as the `Host` field has it.
    pub host: String,
}

/// An answer.
#[derive(Debug)]
pub struct Response {
    /// Code and reason.
    pub status: &'static str,
    /// Media type.
    pub kind: &'static str,
    /// Content.
    pub body: Vec<u8>,
}

impl Response {
    /// A response with this content.
    pub fn new(status: &'static str, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            kind,
            body: body.into(),
        }
    }

    /// A line of plain text.
    pub fn text(status: &'static str, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{text}\n"))
    }

    /// Head of the response. Nothing may be loaded from elsewhere, no other page may frame or read
    /// this one, and nothing is kept: the results change.
    fn head(&self) -> String {
        format!(
            "HTTP/1.1 {}\r\n\
             Content-Type: {}\r\n\
             Content-Length: {}\r\n\
             Connection: close\r\n\
             Cache-Control: no-store\r\n\
             Allow: GET, HEAD\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; \
             connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\
             Referrer-Policy: no-referrer\r\n\
             X-Content-Type-Options: nosniff\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        )
    }
}

/// Waits until one of `what` is ready, or the time has come. Returns which are.
pub(super) fn wait<const N: usize>(
    mut what: [PollFd<'_>; N],
    until: Option<Instant>,
) -> io::Result<[bool; N]> {
    let limit = until.map(|at| timespec(at.since(clock::now())));
    match poll(&mut what, limit.as_ref()) {
        Ok(_) => Ok(what.map(|fd| !fd.revents().is_empty())),
        Err(Errno::INTR) => Ok([false; N]),
        Err(e) => Err(e.into()),
    }
}

/// A connection that does not block.
pub(super) struct Connection<'a> {
    stream: TcpStream,
    stop: &'a Stop,
}

impl<'a> Connection<'a> {
    pub(super) fn new(stream: TcpStream, stop: &'a Stop) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, stop })
    }

    fn ready(&self, what: PollFlags, until: Instant) -> io::Result<()> {
        let fds = [
            PollFd::new(&self.stream, what),
            PollFd::new(self.stop, PollFlags::IN),
        ];
        wait(fds, Some(until))?;
        if self.stop.is_set() {
            Err(ErrorKind::ConnectionAborted.into())
        } else if clock::now() >= until {
            Err(ErrorKind::TimedOut.into())
        } else {
            Ok(())
        }
    }

    /// Reads what there is; 0 at the end.
    fn read(&mut self, into: &mut [u8], until: Instant) -> io::Result<usize> {
        loop {
            match self.stream.read(into) {
                Err(e) if again(&e) => self.ready(PollFlags::IN, until)?,
                read => return read,
            }
        }
    }

    fn write_all(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if again(&e) => self.ready(PollFlags::OUT, until)?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The request; or the answer to one that is not, or none if the other side has gone.
    pub(super) fn request(&mut self) -> io::Result<Result<Request, Response>> {
        let until = clock::now() + ASKED_WITHIN;
        let mut head = Vec::new();
        let mut piece = [0; 2048];
        loop {
            match self.read(&mut piece, until) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => head.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::TimedOut && !head.is_empty() => {
                    let text = "the request was not complete within 5 s";
                    return Ok(Err(Response::text("408 Request Timeout", text)));
                }
                Err(e) => return Err(e),
            }
            if let Some(parsed) = parse(&head) {
                return Ok(parsed);
            }
        }
    }

    /// Answers, without the body to HEAD, and closes.
    pub(super) fn answer(&mut self, response: &Response, body: bool) -> io::Result<()> {
        let until = clock::now() + TAKEN_WITHIN;
        self.write_all(response.head().as_bytes(), until)?;
        if body {
            self.write_all(&response.body, until)?;
        }
        self.stream.shutdown(Shutdown::Write)?;
        let until = clock::now() + CLOSED_WITHIN;
        let mut rest = [0; 2048];
        while self.read(&mut rest, until)? > 0 {}
        Ok(())
    }
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Parses `head`; `None` if there is more to come.
fn parse(head: &[u8]) -> Option<Result<Request, Response>> {
    let large = "431 Request Header Fields Too Large";
    let bad = |text| Err(Response::text("400 Bad Request", text));
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if head.len() < HEAD => return None,
        Ok(httparse::Status::Partial) => {
            return Some(Err(Response::text(large, "more than 16 KiB")));
        }
        Err(httparse::Error::TooManyHeaders) => {
            return Some(Err(Response::text(large, "more than 64 fields")));
        }
        Err(e) => return Some(bad(&format!("not a request: {e}"))),
    }
    let mut hosts = (request.headers.iter()).filter(|h| h.name.eq_ignore_ascii_case("host"));
    let (host, second) = (hosts.next(), hosts.next());
    let host = host.and_then(|h| str::from_utf8(h.value).ok());
    let (Some(host), None) = (host, second) else {
        return Some(bad("there must be one Host field"));
    };
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Some(bad("not a request"));
    };
    let path = target.split(['?', '#']).next().unwrap_or_default();
    Some(Ok(Request {
        method: method.into(),
        path: path.into(),
        host: host.into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &[u8]) -> &'static str {
        parse(head).unwrap().unwrap_err().status
    }

    #[test]
    fn a_request_is_read_and_others_are_refused() {
        let whole = b"GET /figures/a.svg?x=1 HTTP/1.1\r\nhost: localhost:8\r\n\r\n";
        let request = parse(whole).unwrap().unwrap();
        assert_eq!(
            (request.path.as_str(), request.host.as_str()),
            ("/figures/a.svg", "localhost:8")
        );
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_none(), "{cut}");
        }
        assert_eq!(status(b"\0\0\r\n\r\n"), "400 Bad Request");
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "400 Bad Request");
        let two = b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
        assert_eq!(status(two), "400 Bad Request");
        let long = [b"GET /".as_slice(), &[b'a'; HEAD]].concat();
        assert!(status(&long).starts_with("431"));
        let many = ["GET / HTTP/1.1\r\n", &"a: b\r\n".repeat(65), "\r\n"].concat();
        assert!(status(many.as_bytes()).starts_with("431"));
    }
}
