//! Keeps a program's last messages. Bytes that the program writes on stderr are passed on, and the
//! end of them kept. The echo ends on request, not with the pipe, which a remaining process may
//! keep open.

use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    process::ChildStderr,
    thread::{self, JoinHandle},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, ioctl_fionbio},
};

/// The most that is kept, bytes.
const KEPT: usize = 4_096;
/// The most lines reported.
const LINES: usize = 5;

/// Passes on a program's output.
#[derive(Debug)]
pub(crate) struct Echo {
    stop: UnixStream,
    thread: JoinHandle<io::Result<Vec<u8>>>,
}

impl Echo {
    pub(crate) fn start(from: ChildStderr) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        ioctl_fionbio(&from, true)?;
        let thread = thread::Builder::new()
            .name("echo".into())
            .spawn(move || pass_on(from, &stopped))?;
        Ok(Self { stop, thread })
    }

    /// The last lines of the output so far.
    pub(crate) fn end(self) -> io::Result<String> {
        self.stop.shutdown(Shutdown::Both)?;
        let kept = self
            .thread
            .join()
            .map_err(|_| io::Error::other("what passes on stderr has failed"))??;
        Ok(last_lines(&kept))
    }
}

fn pass_on(mut from: ChildStderr, stopped: &UnixStream) -> io::Result<Vec<u8>> {
    let (mut kept, mut buffer) = (Vec::new(), [0; KEPT]);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(kept),
            Ok(n) => {
                // Our own stderr may be closed; the program's words are kept all the same.
                let _unheard = io::stderr().lock().write_all(&buffer[..n]);
                kept.extend_from_slice(&buffer[..n]);
                kept.drain(..kept.len().saturating_sub(KEPT));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let mut fds = [
                    PollFd::new(&from, PollFlags::IN),
                    PollFd::new(stopped, PollFlags::IN),
                ];
                match poll(&mut fds, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                if fds[0].revents().is_empty() && !fds[1].revents().is_empty() {
                    return Ok(kept);
                }
            }
            Err(e) => return Err(e),
        }
    }
}

fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn it_ends_though_the_pipe_stays_open() {
        // The sleeping one keeps stderr open; the other signals its output.
        let words = "sleep 1000 & echo $!; for i in 1 2 3 4 5 6; do echo line $i >&2; done";
        let mut child = Command::new("sh")
            .args(["-c", words])
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let echo = Echo::start(child.stderr.take().unwrap()).unwrap();
        let mut sleeper = String::new();
        io::BufRead::read_line(
            &mut io::BufReader::new(child.stdout.take().unwrap()),
            &mut sleeper,
        )
        .unwrap();
        assert!(child.wait().unwrap().success());
        let said = echo.end().unwrap();
        let ended = Command::new("kill").arg(sleeper.trim()).status().unwrap();
        assert_eq!(said, "line 2\nline 3\nline 4\nline 5\nline 6");
        assert!(ended.success(), "it slept all the time");
    }

    #[test]
    fn lines_are_counted_from_the_end() {
        assert_eq!(last_lines(b"a\nb\nc\nd\ne\nf\n"), "b\nc\nd\ne\nf");
        assert_eq!(last_lines(b"one, cut"), "one, cut");
        assert_eq!(last_lines(b""), "");
    }
}
