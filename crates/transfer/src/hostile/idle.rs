//! Clients that connect, are heard, and do nothing.

use std::time::Duration;

use super::*;
use crate::endpoint::IDLE;

fn server(root: &Path) -> Victim<Server> {
    let shares = vec![Share::open("s", root, Access::ReadWrite).unwrap()];
    Victim::new(Server::new(
        Arc::new(Policy::new(shares, Allow::Any, false)),
        None,
    ))
}

impl Victim<Server> {
    /// Polls the session whenever it wants that, until `until`, or the session ends. Returns the
    /// time of the end.
    fn wait(&mut self, until: Duration) -> Duration {
        let until = Instant::EPOCH + until;
        while !self.line.is_closed() && self.now < until {
            let wake = self.app.next_wake().unwrap_or(until).min(until);
            self.now = wake.max(self.now);
            self.app.poll(self.now, &mut self.line);
        }
        self.now.since(Instant::EPOCH)
    }

    fn asks(&mut self, share: &str) {
        self.send(&Message::request(Direction::Put, share, ""));
    }
}

/// Exit and reason of the close, without the advice.
fn closed(victim: &Victim<Server>) -> (u32, &str) {
    let (code, text) = victim.line.closed.as_ref().expect("it is closed");
    (*code, text.split("; what to do: ").next().unwrap())
}

#[test]
fn a_session_without_a_request_ends_after_ten_seconds() {
    let tmp = tempfile::tempdir().unwrap();
    let hour = Duration::from_hours(1);
    let mut silent = server(tmp.path());
    assert_eq!(silent.wait(hour), Duration::from_secs(10));
    let text = "no request was received within 10 s of the handshake";
    assert_eq!(closed(&silent), (17, text));
    // The beginning of a request is none.
    let mut slow = server(tmp.path());
    slow.line.arrived.extend_from_slice(&[39, 1, 5]);
    slow.app.on_event(slow.now, Event::Readable, &mut slow.line);
    assert_eq!(slow.wait(hour), Duration::from_secs(10));
    let mut refused = server(tmp.path());
    refused.asks("another");
    assert_eq!(refused.wait(hour), Duration::from_secs(10));
    assert!(closed(&refused).1.contains("refused"));
}

#[test]
fn a_session_without_progress_ends_later() {
    let tmp = tempfile::tempdir().unwrap();
    let mut victim = server(tmp.path());
    victim.asks("s");
    victim.wait(Duration::from_mins(9));
    assert!(!victim.line.is_closed());
    // A word is enough.
    victim.send(&Message::Roots(Vec::new()));
    assert_eq!(
        victim.wait(Duration::from_hours(1)),
        Duration::from_mins(9) + IDLE
    );
    assert_eq!(
        closed(&victim),
        (17, "the peer answered, but nothing moved for 10 minutes")
    );
}
