//! `farhaul ticket`: rights to one place in a share, to be passed on.

use std::{path::PathBuf, time::Duration};

use farhaul_core::{text, units::Rate};
use farhaul_haul::Identity;
use farhaul_io::clock;
use farhaul_transfer::{client::Remote, server::Access};
use serde_json::json;

use super::serve::{self, Served};
use crate::{
    exit::Failure,
    keys,
    line::Line,
    out,
    place::{self, PORT, Place},
    terminal::Terminal,
    ticket::{Right, Ticket},
    tickets::{Book, Record},
    typed, when,
};

/// The longest time a ticket may be valid: ten years.
const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

/// Server that a ticket is for.
#[derive(Debug, clap::Args)]
struct Of {
    /// The file of `farhaul serve --config`, which names the key, the port and the file of tickets
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File of tickets, as of `farhaul serve --tickets`
    #[arg(long, value_name = "FILE")]
    tickets: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a ticket for one place in a share, and print it
    New(New),
    /// List the tickets that were made
    List {
        #[command(flatten)]
        of: Of,
        /// Print one JSON object instead of text
        #[arg(long, short = 'J')]
        json: bool,
    },
    /// Revoke a ticket; copies that run continue to their end
    Revoke {
        /// As `farhaul ticket list` shows it
        id: String,
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Debug, clap::Args)]
struct New {
    /// Share and path; the share must allow "ticket"
    #[arg(long, value_name = "NAME[/PATH]")]
    share: String,
    /// Validity of the ticket, with its unit: 30min, 24h, 7d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = ttl, allow_hyphen_values = true)]
    ttl: Duration,
    /// Number of copies that the ticket allows; a continued copy counts once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    uses: u32,
    /// Rights of the holder: fetch (ro), deliver (wo), deliver new files (create), both (rw), also
    /// remove and move (rw,delete); never more than the share allows
    #[arg(long, value_name = "ro|wo|create|rw|rw,delete", default_value = "ro", value_parser = mode)]
    mode: Access,
    /// Limit the rate of the holder
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    max_rate: Option<Rate>,
    /// Name or address of the server for the holder [default: the name of this host]
    #[arg(long, value_name = "HOST[:PORT]")]
    address: Option<String>,
    /// Key file of the server
    #[arg(short = 'i', long, value_name = "FILE")]
    identity: Option<PathBuf>,
    #[command(flatten)]
    of: Of,
}

fn ttl(text: &str) -> Result<Duration, String> {
    let time = typed::duration(text)?;
    if time < Duration::from_secs(1) || time > LONGEST {
        return Err("give a time from 1s to 3650d (ten years)".into());
    }
    Ok(time)
}

fn mode(text: &str) -> Result<Access, String> {
    Access::parse(text).ok_or_else(|| format!("write {}", Access::WORDS))
}

/// Runs the command.
pub(crate) fn run(args: Args, line: &Line) -> Result<(), Failure> {
    match args.verb {
        Verb::New(new) => make(&new, line),
        Verb::List { of, json } => list(&of, json, line),
        Verb::Revoke { id, of } => revoke(&id, &of, line),
    }
}

impl Of {
    fn served(&self, line: &Line) -> Result<Option<Served>, Failure> {
        let file = self.config.as_deref();
        file.map(|file| serve::served(file, line)).transpose()
    }

    fn book(&self, served: Option<&Served>) -> Result<Book, Failure> {
        let named = self.tickets.clone().or_else(|| served?.tickets.clone());
        named.map_or_else(Book::default_path, Ok).map(Book::new)
    }

    /// Hint where tickets may be, too, if nothing was named.
    fn hint(&self) -> Option<&'static str> {
        let is_named = self.config.is_some() || self.tickets.is_some();
        (!is_named)
            .then_some("--config FILE names a server's file, which says where its tickets are")
    }
}

fn make(new: &New, line: &Line) -> Result<(), Failure> {
    let served = new.of.served(line)?;
    let book = new.of.book(served.as_ref())?;
    let port = served.as_ref().map(|s| s.listen.port());
    let (host, port) = address(new.address.as_deref(), port.filter(|p| *p > 0))?;
    let remote = remote(&new.share, &host)?;
    match &served {
        Some(served) => served.takes(&remote.share, new.mode)?,
        None => errln!(
            "warning: without --config it is not known whether the server has a share '{}' that allows \"ticket\"",
            text::plain(&remote.share)
        ),
    }
    let key_file = new.identity.clone();
    let key_file = key_file.or_else(|| served.as_ref()?.identity.clone());
    let server = keys::identity(key_file.as_deref(), &Terminal)?.public();
    let holder = Identity::generate().map_err(|e| Failure::internal(&e))?;
    let record = Record {
        key: holder.public().to_string(),
        share: remote.share.clone(),
        path: remote.path.clone(),
        mode: new.mode.word().into(),
        expires: clock::unix_seconds().saturating_add(new.ttl.as_secs()),
        uses: new.uses,
        used: Vec::new(),
        max_rate_bps: new.max_rate.map(Rate::bps),
        revoked: false,
    };
    let ticket = Ticket {
        host,
        port,
        remote,
        right: Right {
            server,
            seed: *holder.seed(),
        },
    };
    let text = ticket.text()?;
    errln!(
        "ticket {}: {} {}, until {}, for {}:{}",
        record.id(),
        record.mode,
        shown(&record),
        when::utc(record.expires),
        ticket.host,
        ticket.port,
    );
    book.change::<_, Failure>(|records| {
        records.push(record);
        Ok(((), true))
    })?;
    out::line(text);
    Ok(())
}

/// Address where its holder finds the server.
fn address(given: Option<&str>, port: Option<u16>) -> Result<(String, u16), Failure> {
    let port = port.unwrap_or(PORT);
    let Some(given) = given else {
        let name = rustix::system::uname();
        let name = name.nodename().to_string_lossy().into_owned();
        return Ok((name, port));
    };
    let wrong = || {
        Failure::usage(format!(
            "--address {given}: write HOST or HOST:PORT, an IPv6 address in brackets"
        ))
    };
    // What a place on a server may be is known there.
    let Ok(Place::Far(far)) = place::parse(format!("{given}::x").as_ref()) else {
        return Err(wrong());
    };
    let with_port = given
        .rsplit_once(':')
        .is_some_and(|(_, p)| !p.ends_with(']'));
    Ok((
        far.server.host,
        if with_port { far.server.port } else { port },
    ))
}

/// The share and the path in it.
fn remote(text: &str, host: &str) -> Result<Remote, Failure> {
    // As `serve --share` has it.
    if let Some((name, word)) = text.rsplit_once(':')
        && Access::parse(word).is_some()
    {
        let text = format!("--share {text}: the rights of a ticket are a flag of their own");
        return Err(Failure::usage(text).fix(format!("write --share {name} --mode {word}")));
    }
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.into()
    };
    match place::parse(format!("{host}::{text}").as_ref())? {
        Place::Far(far) if far.server.login.is_none() => Ok(far.remote),
        _ => Err(Failure::usage(format!(
            "--share {text}: write NAME or NAME/PATH"
        ))),
    }
}

fn shown(record: &Record) -> String {
    let path = text::shown(&record.path);
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{}{slash}{path}", text::plain(&record.share))
}

fn list(of: &Of, json: bool, line: &Line) -> Result<(), Failure> {
    let book = of.book(of.served(line)?.as_ref())?;
    let records = book.records()?;
    let now = clock::unix_seconds();
    if json {
        let object = |r: &Record| {
            json!({
                "id": r.id(),
                "share": r.share,
                "path": text::shown(&r.path),
                "mode": r.mode,
                "expires": when::utc(r.expires),
                "uses": r.uses,
                "used": r.used.len(),
                "state": r.over(now).unwrap_or("valid"),
            })
        };
        let tickets: Vec<_> = records.iter().map(object).collect();
        out::json(
            &json!({ "schema": "farhaul.tickets/1", "ok": true, "file": book.called(), "tickets": tickets }),
        );
        return Ok(());
    }
    if records.is_empty() {
        out::line(format!("there are no tickets in {}", book.called()));
        if let Some(hint) = of.hint() {
            errln!("hint: {hint}");
        }
    }
    for r in &records {
        let state = r.over(now).unwrap_or("valid");
        out::line(format!(
            "{}  {state:<7}  used {} of {}  until {}  {:<6}  {}",
            r.id(),
            r.used.len(),
            r.uses,
            when::utc(r.expires),
            r.mode,
            shown(r)
        ));
    }
    Ok(())
}

fn revoke(id: &str, of: &Of, line: &Line) -> Result<(), Failure> {
    let book = of.book(of.served(line)?.as_ref())?;
    book.change(|records| {
        let mut found = records.iter_mut().filter(|r| r.id() == id || r.key == id);
        let none = || {
            let text = format!(
                "there is no ticket '{}' in {}",
                text::plain(id),
                book.called()
            );
            Failure::usage(text).fix(of.hint().unwrap_or("`farhaul ticket list` shows them"))
        };
        found.next().ok_or_else(none)?.revoked = true;
        Ok::<_, Failure>(((), true))
    })?;
    out::line(format!("revoked {}", text::plain(id)));
    Ok(())
}
