//! Measures the cost of sockets and shards on this machine, without any protocol worth the name.
//!
//! `blast [SECONDS [SEGMENT [GBIT [QUANTUM]]]] [nogso] [nogro]`: one client blasts one listener
//! over loopback, paced at GBIT (0: as fast as it goes) with one wake per QUANTUM bytes. It prints
//! rates and CPU per Gbit/s of both ends. With `serve ADDR` or `to ADDR` in front it is one end
//! only, for two hosts or namespaces.

#![expect(clippy::print_stdout, reason = "the figures are the point")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "lengths of datagrams, and figures for people"
)]

#[path = "../tests/blast/mod.rs"]
mod blast;

use std::{error::Error, net::SocketAddr, thread, time::Duration};

use blast::{Blast, Shape};
use farhaul_core::{
    protocol::{CloseReason, Event, Session},
    store::{Extent, Store, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::{App, Buffers, HostStats, Stop, Waker, client, server};

/// Sends nothing in particular for a while.
struct Source {
    lasting: Duration,
    until: Instant,
    quiet: bool,
}

impl Store for Source {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

impl App for Source {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Connected { .. } => {
                session.send(0, 0, u64::MAX / 2);
                self.until = now + self.lasting;
            }
            Event::Delivered => session.close(now, 0, "done"),
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if now >= self.until && !self.quiet {
            self.quiet = true;
            session.cancel_unsent();
        }
    }
}

/// Counts, and stops the listener when the session ends.
struct Sink {
    began: Option<Instant>,
    bytes: u64,
    stop: Stop,
}

impl Store for Sink {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        self.bytes += extents.iter().map(|e| u64::from(e.len)).sum::<u64>();
        Ok(())
    }
}

impl App for Sink {
    fn on_event(&mut self, now: Instant, event: Event, _: &mut dyn Session) {
        match event {
            Event::Connected { .. } => self.began = Some(now),
            Event::Closed(CloseReason::Peer { .. }) => {
                let seconds = now.since(self.began.unwrap_or(now)).as_secs_f64();
                let goodput = self.bytes as f64 * 8e-9 / seconds;
                println!("arrived   {goodput:6.2} Gbit/s");
                self.stop.set();
            }
            _ => {}
        }
    }

    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}

fn report(who: &str, host: &HostStats, bytes: u64) {
    let total = (host.busy + host.asleep + host.blocked).as_secs_f64();
    let rate = bytes as f64 * 8e-9 / total;
    let cpu = host.cpu.as_secs_f64() * 100.0 / total;
    println!(
        "{who:9} {rate:6.2} Gbit/s  {cpu:5.1} % cpu  {:5.2} %/Gbps  busy {:3.0} %  blocked {:3.0} %  \
         sleeps {}  sends {}  receives {}  messages {}  datagrams/batch {:.1}  overflowed {}",
        cpu / rate,
        host.busy_share() * 100.0,
        host.blocked.as_secs_f64() * 100.0 / total,
        host.sleeps,
        host.socket.send_calls,
        host.socket.receive_calls,
        host.socket.messages_received,
        host.segments_per_batch(),
        host.socket.overflowed,
    );
}

fn serve(
    listen: SocketAddr,
    shape: Shape,
    buffers: Buffers,
) -> Result<server::Listener, Box<dyn Error>> {
    let mut options = server::Options::new(listen);
    options.buffers = buffers;
    let stop = STOP.get_or_init(|| Stop::new().expect("an eventfd"));
    let factory = move |_, _: &Waker| -> Box<dyn App> {
        Box::new(Sink {
            began: None,
            bytes: 0,
            stop: stop.clone(),
        })
    };
    Ok(server::Listener::bind(
        options,
        Box::new(Blast(shape)),
        factory,
    )?)
}

static STOP: std::sync::OnceLock<Stop> = std::sync::OnceLock::new();

fn listen(listener: server::Listener) {
    let stop = STOP.get().expect("set by serve");
    match listener.run(stop) {
        Ok(stats) => report("listener", &stats.host, stats.host.socket.bytes_received),
        Err(error) => eprintln!("{error}"),
    }
}

fn blast(
    to: SocketAddr,
    seconds: u64,
    shape: Shape,
    buffers: Buffers,
) -> Result<(), Box<dyn Error>> {
    let mut options = client::Options::new(to);
    options.buffers = buffers;
    let app = Source {
        lasting: Duration::from_secs(seconds),
        until: Instant::FAR_FUTURE,
        quiet: false,
    };
    let outcome = client::run(&options, Box::new(Blast(shape)), app, &Waker::new()?)?;
    report("client", &outcome.host, outcome.host.socket.bytes_sent);
    println!("client    {}", outcome.reason);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let buffers = Buffers {
        gso: !words.iter().any(|w| w == "nogso"),
        gro: !words.iter().any(|w| w == "nogro"),
        ..Buffers::default()
    };
    words.retain(|w| w != "nogso" && w != "nogro");
    let role = words
        .first()
        .filter(|w| *w == "serve" || *w == "to")
        .cloned();
    let addr = match &role {
        Some(_) => words
            .drain(..2)
            .nth(1)
            .ok_or("an address is needed")?
            .parse()?,
        None => SocketAddr::from(([127, 0, 0, 1], 0)),
    };
    let number = |i: usize, default: u64| words.get(i).map_or(Ok(default), |w| w.parse());
    let seconds = number(0, 5)?;
    let gbit = number(2, 0)?;
    let shape = Shape {
        segment: usize::try_from(number(1, 8_900)?)?,
        rate: if gbit == 0 {
            Rate::UNLIMITED
        } else {
            Rate::gbit(gbit)
        },
        quantum: number(3, 500_000)?,
        window: if gbit == 0 { 2_048 } else { u64::MAX / 2 },
        ignores_port_unreachable: false,
    };
    match role.as_deref() {
        Some("serve") => listen(serve(addr, shape, buffers)?),
        Some(_) => blast(addr, seconds, shape, buffers)?,
        None => {
            let listener = serve(addr, shape, buffers)?;
            let to = listener.local_addr()?;
            let far = thread::spawn(move || listen(listener));
            blast(to, seconds, shape, buffers)?;
            far.join().map_err(|_| "the listener panicked")?;
        }
    }
    Ok(())
}
