//! Measures the kernel's TCP on the path of a bench, as its competitor.

use std::{
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    thread,
    time::Duration,
};

use farhaul_core::units::Rate;
use farhaul_measure::{
    bench::{Limit, Report, Span},
    tcp::{self, Blast, TcpError},
};

use super::shown::Line;
use crate::{
    exit::{Exit, Failure},
    out,
};

/// Sends to `to` by the kernel's TCP under `law`, its own if none is named.
pub(super) fn measure(
    to: SocketAddr,
    law: Option<&str>,
    (limit, interval): (Limit, Duration),
    quiet: bool,
) -> Result<Report, Failure> {
    let own = || fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    let law = match law {
        Some(law) => law.to_string(),
        None => own()
            .map_err(|e| {
                Failure::usage(format!(
                    "name a law with --cc: the kernel's is unknown: {e}"
                ))
            })?
            .trim()
            .into(),
    };
    if !quiet {
        out::line(format!(
            "kernel TCP, law {law}, to {to}: the intervals follow at the end"
        ));
    }
    let blast = Blast {
        law,
        limit,
        interval,
        mtu: None,
    };
    let report = tcp::blast(to, &blast).map_err(|e| failure(&e, to))?;
    for part in report.intervals.iter().filter(|_| !quiet) {
        let [from, to] = [part.from, part.to].map(Duration::from_secs_f64);
        let bytes = Rate::from_f64(part.goodput_bits_per_second).bytes_in(to.saturating_sub(from));
        let span = Span {
            from,
            to,
            bytes,
            datagrams: None,
        };
        out::line(Line { span, sender: None });
    }
    Ok(report)
}

fn failure(error: &TcpError, to: SocketAddr) -> Failure {
    let (exit, hint) = match error {
        TcpError::Law(..) => (Exit::Usage, ": choose one of these with --cc".to_string()),
        TcpError::Connect(..) => (
            Exit::NetSetup,
            format!(
                ": does `farhaul bench serve --tcp` run there, and is TCP port {} open?",
                to.port()
            ),
        ),
        _ => (Exit::ConnectionLost, String::new()),
    };
    Failure::new(exit, format!("{error}{hint}"))
}

/// Serves the kernel's TCP at `listen` beside a server of benches, for runs of at most `longest`.
pub(super) fn serve(listen: SocketAddr, longest: Duration) -> Result<(), Failure> {
    let listener = TcpListener::bind(listen).map_err(|e| {
        let text =
            format!("cannot listen at {listen}/tcp: {e}; choose another address with --listen");
        Failure::new(Exit::NetSetup, text)
    })?;
    let body = move || loop {
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => continue,
            Err(e) => {
                errln!("farhaul: warning: {listen}/tcp is served no longer: {e}");
                return;
            }
        };
        // A client that breaks off is reported, and the next one is served.
        match tcp::take(stream, longest) {
            Ok(()) => errln!("kernel TCP from {peer}: done"),
            Err(e) => errln!("farhaul: warning: kernel TCP from {peer}: {e}"),
        }
    };
    let thread = thread::Builder::new().name("tcp".into()).spawn(body);
    thread
        .map(drop)
        .map_err(|e| Failure::new(Exit::NetSetup, format!("no thread for --tcp: {e}")))
}
