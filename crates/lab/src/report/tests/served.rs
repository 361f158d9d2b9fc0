//! Tests that a page is served to its user, to nobody else, and always.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use farhaul_io::Stop;

use super::example;
use crate::report::{Page, Server, Source};

/// Results that grow by a run with each question for the version.
#[derive(Default)]
pub(super) struct Growing {
    pub(super) asked: AtomicUsize,
    pub(super) made: AtomicUsize,
    /// Told of each page that is made.
    pub(super) made_one: Option<Mutex<Sender<usize>>>,
    pub(super) broken: AtomicBool,
}

impl Source for Growing {
    fn version(&self) -> io::Result<String> {
        Ok(format!("{}", self.asked.fetch_add(1, Ordering::Relaxed)))
    }

    fn page(&self) -> Result<Page, String> {
        if self.broken.load(Ordering::Relaxed) {
            return Err("runs.jsonl:7: <nonsense>".into());
        }
        let mut page = example::page();
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        if let Some(told) = &self.made_one {
            told.lock().unwrap().send(made).unwrap();
        }
        page.about = format!("made {made} times before");
        Ok(page)
    }
}

/// Runs `then` while a server does.
pub(super) fn served<S: Source>(source: &S, then: impl FnOnce(SocketAddr)) {
    served_every(Duration::ZERO, source, then);
}

fn served_every<S: Source>(refresh: Duration, source: &S, then: impl FnOnce(SocketAddr)) {
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = server.refreshed_every(refresh);
    let at = server.address().unwrap();
    let stop = Stop::new().unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(|| server.run(source, &stop));
        // Also if it fails, or the server would run for ever.
        let stopping = Stopping(&stop);
        then(at);
        drop(stopping);
        running.join().unwrap().unwrap();
    });
}

struct Stopping<'a>(&'a Stop);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

fn exchange(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(at: SocketAddr, path: &str) -> String {
    exchange(at, &format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n"))
}

#[test]
fn the_page_its_version_and_its_figures_are_served() {
    let source = Growing::default();
    served(&source, |at| {
        let page = get(at, "/?again");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("data-version=\"0\"") && page.contains("made 0 times before"));
        assert!(page.contains("<noscript><meta http-equiv=\"refresh\""));
        assert!(get(at, "/version").ends_with("\r\n\r\n1"));
        assert!(get(at, "/").contains("made 1 times before"));
        assert!(get(at, "/live.js").contains("text/javascript"));
        assert!(get(at, "/figures/k1-rate.svg").contains("<svg"));
        assert!(get(at, "/figures/k1-rate.png").contains("image/png"));
        for missing in [
            "/figures/none.svg",
            "/figures/k1-rate.gif",
            "/figures/../x",
            "/report.html",
        ] {
            assert!(get(at, missing).starts_with("HTTP/1.1 404 "), "{missing}");
        }
        let head = exchange(at, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
    });
}

#[test]
fn the_same_results_are_read_once() {
    struct Still(AtomicUsize);
    impl Source for Still {
        fn version(&self) -> io::Result<String> {
            Ok("same".into())
        }
        fn page(&self) -> Result<Page, String> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(example::page())
        }
    }
    let source = Still(AtomicUsize::new(0));
    served(&source, |at| {
        for path in ["/", "/", "/figures/k1-rate.svg"] {
            assert!(get(at, path).starts_with("HTTP/1.1 200 "));
        }
    });
    assert_eq!(source.0.into_inner(), 1);
}

#[test]
fn a_page_is_not_made_again_at_once() {
    let source = Growing::default();
    served_every(Duration::from_hours(1), &source, |at| {
        // Before there is a page, the version is that of the results.
        assert!(get(at, "/version").ends_with("\r\n\r\n0"));
        assert!(get(at, "/").contains("data-version=\"1\""));
        for _ in 0..3 {
            assert!(get(at, "/version").ends_with("\r\n\r\n1"));
            assert!(get(at, "/").contains("made 0 times before"));
        }
    });
    assert_eq!(source.made.into_inner(), 1);
}

#[test]
fn results_that_cannot_be_read_are_an_error_until_they_can() {
    let source = Growing::default();
    served(&source, |at| {
        source.broken.store(true, Ordering::Relaxed);
        let page = get(at, "/");
        assert!(page.starts_with("HTTP/1.1 500 "), "{page}");
        assert!(page.contains("runs.jsonl:7: &lt;nonsense&gt;"), "{page}");
        source.broken.store(false, Ordering::Relaxed);
        assert!(get(at, "/").starts_with("HTTP/1.1 200 "));
    });
}

#[test]
fn only_this_machine_is_answered_and_only_what_it_may_ask() {
    served(&Growing::default(), |at| {
        let ask = |host: &str| {
            exchange(
                at,
                &format!("GET /version HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            )
        };
        for host in [
            "localhost",
            "LOCALHOST:9000",
            "127.0.0.1:80",
            "[::1]:80",
            "[::1]",
        ] {
            assert!(ask(host).starts_with("HTTP/1.1 200 "), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "192.0.2.1",
            "",
            "localhost:x",
        ] {
            assert!(ask(host).starts_with("HTTP/1.1 421 "), "{host}");
        }
        let body = "x".repeat(100_000);
        let post =
            format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{body}");
        assert!(exchange(at, &post).starts_with("HTTP/1.1 405 "));
        assert!(exchange(at, "\0\r\n\r\n").starts_with("HTTP/1.1 400 "));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(20_000));
        assert!(exchange(at, &long).starts_with("HTTP/1.1 431 "));
    });
    let others = Server::bind("0.0.0.0:0".parse().unwrap()).unwrap_err();
    assert!(
        others.to_string().contains("use 127.0.0.1:PORT"),
        "{others}"
    );
}

#[test]
fn browsers_that_stall_hold_up_nobody_for_ever_and_do_not_delay_the_end() {
    served(&Growing::default(), |at| {
        let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(at).unwrap()).collect();
        let mut half = TcpStream::connect(at).unwrap();
        half.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        // Behind all of them; each is given up after 5 s.
        assert!(get(at, "/version").starts_with("HTTP/1.1 200 "));
        drop(silent);
        let mut told = String::new();
        half.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
        // Asks and takes nothing; the server is stopped meanwhile.
        let mut greedy = TcpStream::connect(at).unwrap();
        greedy
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        std::mem::forget(greedy);
    });
}
