//! Carries datagrams of the sending host to the machine that ordered the copy, beside its reports.
//! The datagrams travel in chunks between the lines of that host's output. Chunks for the host are
//! all that its input carries.

use std::{
    fs::File,
    io::{self, BufReader, Stdout, Write},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use farhaul_io::tunnel::{Buffered, Tunnel};

use super::{
    PIPE,
    lines::{CHUNK, MOST_OF_CHUNK},
};

/// The output; everything written to it becomes a chunk.
#[derive(Debug)]
struct Chunks(Stdout);

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(MOST_OF_CHUNK)];
        let len = u32::try_from(bytes.len()).unwrap_or(0);
        // No line gets between.
        let mut out = self.0.lock();
        out.write_all(&[CHUNK])?;
        out.write_all(&len.to_be_bytes())?;
        out.write_all(bytes)?;
        out.flush()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl AsFd for Chunks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A tunnel to the far end of the copy through the machine that ordered it.
pub(crate) fn tunnel(within: Duration) -> io::Result<Tunnel> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let input = Buffered(BufReader::with_capacity(PIPE, input));
    Tunnel::through_pipes(Chunks(io::stdout()), input, within)
}
