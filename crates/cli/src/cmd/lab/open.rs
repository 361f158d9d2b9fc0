//! `farhaul lab open`: the page of a study in a browser on this machine, as it grows while runs are made.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
};

use farhaul_io::Stop;
use farhaul_lab::report::{Server, Source};

use crate::{
    exit::{Exit, Failure},
    interrupt, out,
};

/// Shows `source` at `listen` until it is interrupted, which is how it ends.
pub(super) fn serve(source: &impl Source, listen: SocketAddr) -> Result<(), Failure> {
    let stop = interrupt::stop()?;
    serve_until(source, listen, &stop, |at| {
        out::line(format!("http://{at}/ until Ctrl-C"));
    })
}

/// Serves until `stop` is set; `told` learns where it listens.
fn serve_until(
    source: &impl Source,
    listen: SocketAddr,
    stop: &Stop,
    told: impl FnOnce(SocketAddr),
) -> Result<(), Failure> {
    // An error is reported at once, and not only to those who open the page.
    source.page().map_err(|e| Failure::new(Exit::Config, e))?;
    let server = Server::bind(listen).map_err(|e| unbound(listen, &e))?;
    let system = |e: io::Error| Failure::new(Exit::NetSetup, e.to_string());
    told(server.address().map_err(system)?);
    server.run(source, stop).map_err(system)
}

fn unbound(listen: SocketAddr, error: &io::Error) -> Failure {
    if error.kind() == ErrorKind::InvalidInput {
        return Failure::usage(error.to_string());
    }
    Failure::new(Exit::NetSetup, format!("{listen}: {error}"))
        .fix("choose another address with --listen; port 0 takes a free one")
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
        thread,
    };

    use farhaul_lab::report::Page;

    use super::*;

    struct Study(Result<&'static str, &'static str>);

    impl Source for Study {
        fn version(&self) -> io::Result<String> {
            Ok("1".into())
        }

        fn page(&self) -> Result<Page, String> {
            Ok(Page {
                name: "study".into(),
                title: self.0?.into(),
                source: String::new(),
                about: String::new(),
                quick: false,
                deviations: Vec::new(),
                sections: Vec::new(),
                facts: Vec::new(),
                progress: None,
            })
        }
    }

    fn listen(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_page_is_shown_until_it_is_interrupted() {
        let stop = Stop::new().unwrap();
        let asked = stop.clone();
        let mut browser = None;
        let told = |at: SocketAddr| {
            browser = Some(thread::spawn(move || {
                let mut stream = TcpStream::connect(at).unwrap();
                let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n");
                stream.write_all(request.as_bytes()).unwrap();
                let mut page = String::new();
                stream.read_to_string(&mut page).unwrap();
                asked.set();
                page
            }));
        };
        let study = Study(Ok("Rates & losses"));
        serve_until(&study, listen("127.0.0.1:0"), &stop, told).unwrap();
        let page = browser.unwrap().join().unwrap();
        assert!(page.contains("<h1>Rates &amp; losses</h1>"), "{page}");
    }

    #[test]
    fn what_cannot_be_shown_ends_with_its_code_at_once() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap();
        let good = Study(Ok("x"));
        let cases = [
            (&good, listen("0.0.0.0:0"), Exit::Usage, "127.0.0.1:PORT"),
            (&good, taken, Exit::NetSetup, "--listen"),
            (
                &Study(Err("runs.jsonl:3: not a run")),
                listen("127.0.0.1:0"),
                Exit::Config,
                "runs.jsonl:3",
            ),
        ];
        let stop = Stop::new().unwrap();
        for (source, listen, exit, says) in cases {
            let failure = serve_until(source, listen, &stop, |_| ()).unwrap_err();
            assert_eq!(failure.exit, exit);
            assert!(failure.text.contains(says), "{failure}");
        }
    }
}
