//! Parses places: what a person types for a file here or on a server, and which of the two it is.

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    fmt,
    net::Ipv6Addr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use farhaul_transfer::client::Remote;

use crate::{
    exit::Failure,
    ticket::{self, Right, Ticket},
};

/// Letters of a ticket that was cut off, at least.
const SHORTEST_TICKET: usize = 40;
/// The default port of servers.
pub(crate) const PORT: u16 = 17_992;

/// A source or destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The standard input or output.
    Pipe,
    /// Path on this machine.
    Local(PathBuf),
    /// Path in a share of a server.
    Far(Far),
}

/// A server, or a host on which ssh is to start one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Name or address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `[user@]host`, if ssh is to start a server there.
    pub(crate) login: Option<String>,
    /// Right that a ticket gives its holder.
    pub(crate) right: Option<Right>,
}

impl Server {
    /// True if both were typed as the same one; names of hosts have no case.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.host.eq_ignore_ascii_case(&other.host)
            && (self.port, &self.login, &self.right) == (other.port, &other.login, &other.right)
    }
}

impl fmt::Display for Server {
    /// Host and port as people write them; the ssh destination where the port is unknown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.login {
            Some(login) => f.write_str(login),
            None if self.host.contains(':') => write!(f, "[{}]:{}", self.host, self.port),
            None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Path in a share of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Far {
    pub(crate) server: Server,
    pub(crate) remote: Remote,
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = farhaul_core::text::shown(&self.remote.path);
        match &self.server.login {
            Some(login) => write!(f, "{login}:{path}"),
            None => write!(f, "{}::{}/{path}", self.server, self.remote.share),
        }
    }
}

/// A path of this machine as it may be shown to people: on one line.
pub(crate) fn local(path: &Path) -> String {
    farhaul_core::text::shown(path.as_os_str().as_bytes())
}

const FORMS: &str = "write [user@]host:path, host::share/path or farhaul://host:port/share/path";

/// Reads what was typed. A `/` or `.` before the first colon means local, as in scp.
pub(crate) fn parse(text: &OsStr) -> Result<Place, Failure> {
    let bytes = text.as_bytes();
    if bytes.is_empty() {
        return Err(Failure::usage("an empty path"));
    }
    if bytes == b"-" {
        return Ok(Place::Pipe);
    }
    if let Some(ticket) = as_ticket(bytes) {
        return Ticket::parse(ticket).map(|ticket| Place::Far(ticket.into()));
    }
    refuse_after_ticket(bytes)?;
    if let Some(rest) = bytes.strip_prefix(b"farhaul://") {
        return url(rest).map(Place::Far);
    }
    if let Some(scheme) = bytes.windows(3).position(|w| w == b"://")
        && bytes[..scheme].iter().all(u8::is_ascii_alphanumeric)
    {
        let scheme = farhaul_core::text::shown(&bytes[..scheme]);
        return Err(Failure::usage(format!("{scheme}:// is not known; {FORMS}")));
    }
    refuse_bare_ipv6(bytes)?;
    refuse_missing_host(bytes)?;
    let Some((host, rest)) = split_host(bytes) else {
        return Ok(Place::Local(PathBuf::from(OsString::from_vec(
            bytes.to_vec(),
        ))));
    };
    match rest.windows(2).position(|w| w == b"::") {
        Some(colons) if !rest[..colons].contains(&b'/') => {
            let port = rest[..colons].strip_prefix(b":");
            far(host, port, &rest[colons + 2..]).map(Place::Far)
        }
        _ => through_ssh(host, &rest[1..]).map(Place::Far),
    }
}

/// Reads what was typed if it is a server without a share: `HOST[:PORT]::` or `farhaul://HOST[:PORT]`.
pub(crate) fn parse_server(text: &OsStr) -> Result<Option<Server>, Failure> {
    let bytes = text.as_bytes();
    if let Some(rest) = bytes.strip_prefix(b"farhaul://") {
        let (host, port, path) = split_url(rest);
        return match path {
            b"" | b"/" => server(&host, port).map(Some),
            _ => Ok(None),
        };
    }
    let Some(named) = bytes.strip_suffix(b"::") else {
        return Ok(None);
    };
    refuse_bare_ipv6(bytes)?;
    let Some((host, _)) = split_host(bytes) else {
        return Ok(None);
    };
    let Some(port) = named.get(host.len()..).filter(|port| !port.contains(&b'/')) else {
        return Ok(None);
    };
    if port.windows(2).any(|w| w == b"::") {
        return Ok(None);
    }
    server(host, port.strip_prefix(b":")).map(Some)
}

/// The host, and what follows from the colon behind it on; none of a local path.
fn split_host(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let bracketed = bytes.starts_with(b"[")
        || bytes
            .windows(2)
            .find(|w| w[1] == b'[' || matches!(w[0], b':' | b'/'))
            .is_some_and(|w| w == b"@[");
    let end = if bracketed {
        bytes.iter().position(|b| *b == b']')? + 1
    } else {
        bytes.iter().position(|b| matches!(b, b':' | b'/'))?
    };
    let named = end > 0 && bytes.get(end) == Some(&b':') && bytes[0] != b'.';
    named.then(|| bytes.split_at(end))
}

/// A word that is long enough to be a ticket, if also a mistyped one; names of files may begin as they do.
pub(crate) fn as_ticket(text: &[u8]) -> Option<&str> {
    let text = str::from_utf8(text).ok()?;
    let letters = text.strip_prefix(ticket::PREFIX)?;
    let plain = letters.bytes().all(|b| b.is_ascii_alphanumeric());
    (letters.len() >= SHORTEST_TICKET && plain).then_some(text)
}

/// Refuses a ticket that something follows: where a ticket ends is not to be seen in it.
fn refuse_after_ticket(bytes: &[u8]) -> Result<(), Failure> {
    let end = bytes.iter().position(|b| matches!(b, b'/' | b':'));
    let Some((ticket, rest)) = end.map(|end| bytes.split_at(end)) else {
        return Ok(());
    };
    if as_ticket(ticket).is_none() || Path::new(OsStr::from_bytes(bytes)).exists() {
        return Ok(());
    }
    let below = farhaul_core::text::shown(rest);
    let below = below.trim_start_matches(['/', ':']);
    Err(
        Failure::usage("nothing can follow a ticket itself").fix(format!(
            "put the ticket into a file and write --ticket-file FILE ticket:{below}"
        )),
    )
}

/// Place at `path` below the place of a ticket.
pub(crate) fn below(mut far: Far, path: &[u8]) -> Result<Far, Failure> {
    let path = tidy(path);
    refuse_parts(&path)?;
    if !path.is_empty() {
        let own = &mut far.remote.path;
        if !own.is_empty() && !own.ends_with(b"/") {
            own.push(b'/');
        }
        own.extend(path);
    }
    Ok(far)
}

/// Refuses what no path in a share has.
fn refuse_parts(path: &[u8]) -> Result<(), Failure> {
    for part in path.split(|b| *b == b'/') {
        if part == b".." || part.len() > 255 {
            return Err(Failure::usage(format!(
                "'{}': a path in a share has no '..' and no name of more than 255 bytes",
                farhaul_core::text::shown(path)
            )));
        }
    }
    Ok(())
}

impl From<Ticket> for Far {
    fn from(ticket: Ticket) -> Self {
        Self {
            server: Server {
                host: ticket.host,
                port: ticket.port,
                login: None,
                right: Some(ticket.right),
            },
            remote: ticket.remote,
        }
    }
}

/// An IPv6 address without its brackets: where it ends, and the path begins, is anybody's guess.
fn refuse_bare_ipv6(bytes: &[u8]) -> Result<(), Failure> {
    let slash = bytes.iter().position(|b| *b == b'/');
    let name = farhaul_core::text::shown(&bytes[..slash.unwrap_or(bytes.len())]);
    let user = name.find('@').map_or(0, |at| at + 1);
    let is_address = |end: &usize| {
        let host = &name[user..*end];
        let (address, zone) = host.split_once('%').unwrap_or((host, ""));
        address.parse::<Ipv6Addr>().is_ok() && !zone.contains(':')
    };
    let mut colons = name.match_indices(':').map(|(at, _)| at).rev();
    let Some(end) = colons.find(is_address) else {
        return Ok(());
    };
    let path = farhaul_core::text::shown(&bytes[slash.unwrap_or(bytes.len())..]);
    let (login, host, rest) = (&name[..user], &name[user..end], &name[end..]);
    Err(Failure::usage(format!(
        "an IPv6 address needs brackets: write {login}[{host}]{rest}{path} (a local file of this name is written ./{name}{path})"
    )))
}

/// Refuses a place whose host is empty, as that of a variable that was not set.
fn refuse_missing_host(bytes: &[u8]) -> Result<(), Failure> {
    if bytes.starts_with(b"::") {
        let text = "the host is missing before ::";
        let fix = format!(
            "write HOST{0} (a local file of this name is written ./{0})",
            farhaul_core::text::shown(bytes)
        );
        return Err(Failure::usage(text).fix(fix));
    }
    Ok(())
}

/// True of names that no program takes for more than a name: ssh hands them to shells where its configuration
/// says so (`ProxyCommand`, `Match exec`).
fn is_host(host: &str) -> bool {
    let is_name = |name: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        !name.is_empty() && !name.starts_with('-') && name.chars().all(fine)
    };
    match host.split_once('%') {
        Some((address, zone)) => address.parse::<Ipv6Addr>().is_ok() && is_name(zone),
        None => is_name(host) || host.parse::<Ipv6Addr>().is_ok(),
    }
}

/// True if the text can be a user's name.
fn is_user(user: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '@');
    !user.is_empty() && !user.starts_with('-') && user.chars().all(fine)
}

/// Host without the brackets of an address.
fn without_brackets(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    inner.unwrap_or(host)
}

/// Place reached by ssh; the path is the far end's to understand.
fn through_ssh(login: &[u8], path: &[u8]) -> Result<Far, Failure> {
    let shown = farhaul_core::text::shown(login);
    if login.starts_with(b"-") {
        return Err(Failure::usage(format!(
            "'{shown}' is not a host: ssh would take it for an option; {FORMS} (a local file of this name is written ./name)"
        )));
    }
    let parts = std::str::from_utf8(login).ok().map(|login| {
        let (user, host) = match login.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, login),
        };
        (login, user, without_brackets(host))
    });
    let parts = parts.filter(|(_, user, host)| user.is_none_or(is_user) && is_host(host));
    let Some((login, _, host)) = parts else {
        return Err(Failure::usage(format!(
            "'{shown}' is not a valid ssh host: names have letters, digits, '.', '-' and '_', those of users \
             also '+' and '@', and begin with no '-'; {FORMS} (a local file whose name has a colon is written ./name); \
             for other names define an alias in ssh's configuration"
        )));
    };
    Ok(Far {
        server: Server {
            host: host.to_string(),
            port: 0,
            login: Some(login.to_string()),
            right: None,
        },
        remote: Remote {
            share: crate::ssh::SHARE.into(),
            path: of_home(path)?.to_vec(),
        },
    })
}

/// Path below a home. A `~` is the home there, whose name there is not known here: its content is
/// meant.
fn of_home(path: &[u8]) -> Result<&[u8], Failure> {
    match path {
        b"~" => Ok(b"~/"),
        [b'~', b'/', ..] => Ok(path),
        [b'~', ..] => {
            let shown = farhaul_core::text::shown(path);
            let text = format!("'{shown}': only ~/ stands for a home, that of the user there");
            let fix = format!("write the whole path; what is called so is written ./{shown}");
            Err(Failure::usage(text).fix(fix))
        }
        _ => Ok(path),
    }
}

fn url(rest: &[u8]) -> Result<Far, Failure> {
    let (host, port, path) = split_url(rest);
    far(&host, port, path.strip_prefix(b"/").unwrap_or(path))
}

/// Host, port if there is one, and the path with the slash before it.
fn split_url(rest: &[u8]) -> (Cow<'_, [u8]>, Option<&[u8]>, &[u8]) {
    let slash = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let (server, path) = rest.split_at(slash);
    let colon = match server.iter().position(|b| *b == b']') {
        Some(bracket) => bracket + 1,
        None => server
            .iter()
            .position(|b| *b == b':')
            .unwrap_or(server.len()),
    };
    let (host, port) = server.split_at(colon);
    let port = if port.is_empty() {
        None
    } else {
        Some(port.strip_prefix(b":").unwrap_or(port))
    };
    (with_zone(host), port, path)
}

/// The host of a URL, where the `%` before the zone of an address is written `%25` (RFC 6874).
fn with_zone(host: &[u8]) -> Cow<'_, [u8]> {
    let at = host.windows(3).position(|w| w == b"%25");
    match at.filter(|at| host.starts_with(b"[") && at + 4 < host.len()) {
        Some(at) => [&host[..=at], &host[at + 3..]].concat().into(),
        None => host.into(),
    }
}

/// Path without parts that mean nothing, as `//` and `/./`; a slash at the end stays one.
fn tidy(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|b| *b == b'/');
    let parts = parts.filter(|part| !matches!(part, [] | [b'.']));
    let mut tidy = parts.collect::<Vec<_>>().join(&b'/');
    let contents = path.ends_with(b"/") || path.ends_with(b"/.");
    if contents && !tidy.is_empty() {
        tidy.push(b'/');
    }
    tidy
}

/// A place in a share as it should have been typed.
fn written(host: &str, port: Option<&[u8]>, path: &[u8]) -> String {
    let port = port.filter(|port| !port.is_empty());
    let port = port.map_or_else(String::new, |port| {
        format!(":{}", farhaul_core::text::shown(port))
    });
    format!("{host}{port}::{}", farhaul_core::text::shown(path))
}

fn server(host: &[u8], port: Option<&[u8]>) -> Result<Server, Failure> {
    let shown = farhaul_core::text::shown(host);
    let host = std::str::from_utf8(host).ok().map(without_brackets);
    let Some(host) = host.filter(|host| is_host(host)) else {
        return Err(Failure::usage(format!(
            "'{shown}' is not a host name: those have letters, digits, '.', '-' and '_'; {FORMS}, without a user \
             name: users are identified by keys"
        )));
    };
    let port = match port.filter(|p| !p.is_empty()) {
        None => PORT,
        Some(port) => {
            let number = std::str::from_utf8(port)
                .ok()
                .and_then(|p| p.parse().ok())
                .filter(|p| *p > 0);
            number.ok_or_else(|| {
                Failure::usage(format!(
                    "'{}' is not a port",
                    farhaul_core::text::shown(port)
                ))
            })?
        }
    };
    Ok(Server {
        host: host.to_string(),
        port,
        login: None,
        right: None,
    })
}

fn far(host: &[u8], port: Option<&[u8]>, path: &[u8]) -> Result<Far, Failure> {
    let shown = farhaul_core::text::shown(host);
    if let Some((_, bare)) = shown.rsplit_once('@')
        && is_host(without_brackets(bare))
    {
        let text = format!("'{shown}': a server knows its users by their keys, not by names");
        let place = written(bare, port, path);
        return Err(Failure::usage(text).fix(format!("write {place}")));
    }
    let server = server(host, port)?;
    let (share, path) = match path.iter().position(|b| *b == b'/') {
        Some(i) => (&path[..i], &path[i + 1..]),
        None => (path, &b""[..]),
    };
    let share = std::str::from_utf8(share).ok().filter(|s| !s.is_empty());
    let Some(share) = share else {
        let text = format!("the share is missing after {}", server.host);
        let meant = tidy(&[&b"/"[..], path].concat());
        return Err(Failure::usage(if meant.is_empty() {
            format!("{text}; {FORMS}")
        } else {
            format!("{text}: write {}", written(&shown, port, &meant))
        }));
    };
    let path = &tidy(path)[..];
    refuse_parts(path)?;
    let remote = Remote {
        share: share.to_string(),
        path: path.to_vec(),
    };
    Ok(Far { server, remote })
}

/// The server of a place in a share, as it would be typed for `cp`.
pub(crate) fn server_of(typed: &str) -> Result<Option<(Server, Option<String>)>, Failure> {
    let of_share = typed.contains("::") && !typed.starts_with('[') && !is_address(typed)
        || typed.starts_with('[')
            && typed
                .split_once(']')
                .is_some_and(|(_, rest)| rest.contains("::"))
        || typed.starts_with("farhaul://")
        || as_ticket(typed.as_bytes()).is_some()
        || typed.ends_with(':') && !is_address(typed)
        || typed.contains(":/")
        || typed.contains('@');
    if !of_share {
        return Ok(None);
    }
    // A share need not be named.
    if let Some(server) = parse_server(OsStr::new(typed))? {
        return Ok(Some((server, None)));
    }
    let whole = if typed.contains('@') && !typed.contains(':') {
        format!("{typed}:")
    } else {
        typed.to_string()
    };
    match parse(OsStr::new(&whole))? {
        Place::Far(far) => Ok(Some((far.server, Some(far.remote.share)))),
        Place::Pipe | Place::Local(_) => Ok(None),
    }
}

fn is_address(typed: &str) -> bool {
    typed.parse::<Ipv6Addr>().is_ok()
}

/// The host alone, for `[host]` tables of the configuration; none if it is not understood.
pub(crate) fn host_of(typed: &str) -> Option<String> {
    let found = server_of(typed).ok().flatten();
    found.map(|(server, _)| server.host)
}

#[cfg(test)]
mod tests;
