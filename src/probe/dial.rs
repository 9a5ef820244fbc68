//! Carries the tries out, all at once, in one thread: the only place besides the proxy's dialler that
//! makes connections, and it dials what the orders name.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketType, socket, sockopt};

use super::look::Interface;
use super::{
    Ask, COMPLAINED_IN, CONNECTION_IN, LINK_LOCAL_IN, Outcome, PROXIED_IN, RESOLVED_IN, Tried, Try,
    dns,
};

/// Between two tries of an address that cannot be used yet.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of the longest answer that is read: the proxy's head and its JSON, or a datagram.
const LONGEST_ANSWER: usize = 16 << 10;
/// Bytes in front of a DNS message over TCP: its length (RFC 1035 §4.2.2).
const PREFIX: usize = 2;

/// A try of a link-local address, on every interface; any other as it is.
pub(super) fn on_every_link(one: Try, interfaces: &[Interface]) -> Vec<Try> {
    let SocketAddr::V6(to) = one.to else {
        return vec![one];
    };
    if !to.ip().is_unicast_link_local() || to.scope_id() != 0 {
        return vec![one];
    }
    let mut indexes: Vec<u32> = interfaces.iter().filter_map(|each| each.index).collect();
    indexes.sort_unstable();
    indexes.dedup();
    let on = |index| Try {
        to: SocketAddrV6::new(*to.ip(), to.port(), 0, index).into(),
        ask: one.ask.clone(),
    };
    if indexes.is_empty() {
        return vec![one];
    }
    indexes.into_iter().map(on).collect()
}

/// Carries all of them out. Without any IPv6 address of our own, none will come.
pub(super) fn carry_out(tries: Vec<Try>, has_ipv6: bool) -> Vec<Tried> {
    let now = Instant::now();
    let attempts = tries.into_iter();
    let mut attempts: Vec<Attempt> = attempts.map(|of| Attempt::new(of, now, has_ipv6)).collect();
    loop {
        let now = Instant::now();
        for attempt in &mut attempts {
            attempt.pass_time(now);
        }
        let next = attempts.iter().filter_map(Attempt::next).min();
        let Some(next) = next else {
            return attempts.into_iter().map(Attempt::tried).collect();
        };
        for index in ready(&attempts, next.saturating_duration_since(now)) {
            if let Some(attempt) = attempts.get_mut(index) {
                attempt.go_on();
            }
        }
    }
}

/// The attempts whose sockets have something to say, once one has or the time is over.
fn ready(attempts: &[Attempt], within: Duration) -> Vec<usize> {
    let waiting = attempts.iter().enumerate();
    let (indexes, mut polled): (Vec<usize>, Vec<PollFd<'_>>) = waiting
        .filter_map(|(index, attempt)| Some((index, attempt.waits_for()?)))
        .unzip();
    let within = Timespec::try_from(within).unwrap_or_default();
    // An interrupted wait is a short one.
    let _ = poll(&mut polled, Some(&within));
    let events = indexes.iter().zip(&polled);
    let ready = events.filter(|(_, polled)| !polled.revents().is_empty());
    ready.map(|(index, _)| *index).collect()
}

struct Attempt {
    of: Try,
    /// What is said once there is a connection.
    say: Vec<u8>,
    due: Instant,
    /// Whether an address that cannot be used now may become one that can.
    is_patient: bool,
    stage: Stage,
}

enum Stage {
    /// Begins at this time.
    Pausing(Instant),
    Connecting(OwnedFd),
    Listening(OwnedFd, Vec<u8>),
    Done(Outcome),
}

impl Attempt {
    fn new(of: Try, began: Instant, has_ipv6: bool) -> Self {
        let is_link_local = match of.to.ip() {
            IpAddr::V4(_) => false,
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let (say, within) = match &of.ask {
            Ask::Connection if is_link_local => (Some(Vec::new()), LINK_LOCAL_IN),
            Ask::Connection => (Some(Vec::new()), CONNECTION_IN),
            Ask::Datagram(text) => (Some(text.as_bytes().to_vec()), COMPLAINED_IN),
            Ask::Addresses(name) => (dns::question(name), RESOLVED_IN),
            Ask::AddressesOverTcp(name) => {
                (dns::question(name).as_deref().map(with_length), RESOLVED_IN)
            }
            Ask::Tunnel(target) => (Some(request("CONNECT", target, target)), PROXIED_IN),
            Ask::Page(url) => (Some(page(url)), PROXIED_IN),
        };
        let stage = match say {
            Some(_) => Stage::Pausing(began),
            None => Stage::Done(Outcome::Other("not a name".to_owned())),
        };
        Self {
            say: say.unwrap_or_default(),
            due: began + within,
            is_patient: is_link_local && has_ipv6,
            stage,
            of,
        }
    }

    /// When something is to be done even if no socket says anything; `None` once it is done.
    fn next(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Pausing(until) => Some(*until),
            Stage::Connecting(_) | Stage::Listening(..) => Some(self.due),
            Stage::Done(_) => None,
        }
    }

    fn waits_for(&self) -> Option<PollFd<'_>> {
        match &self.stage {
            Stage::Connecting(socket) => {
                Some(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT))
            }
            Stage::Listening(socket, _) => {
                Some(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
            }
            Stage::Pausing(_) | Stage::Done(_) => None,
        }
    }

    fn pass_time(&mut self, now: Instant) {
        match &self.stage {
            Stage::Pausing(until) if now >= *until => self.begin(),
            Stage::Connecting(_) | Stage::Listening(..) if now >= self.due => {
                self.stage = Stage::Done(match self.of.ask {
                    Ask::Datagram(_) => Outcome::Sent,
                    Ask::Connection
                    | Ask::Addresses(_)
                    | Ask::AddressesOverTcp(_)
                    | Ask::Tunnel(_)
                    | Ask::Page(_) => Outcome::Silence,
                });
            }
            Stage::Pausing(_) | Stage::Connecting(_) | Stage::Listening(..) | Stage::Done(_) => {}
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the probe's orders name whom it dials: none of it is a client's traffic"
    )]
    fn begin(&mut self) {
        let family = match self.of.to {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let kind = match self.of.ask {
            Ask::Datagram(_) | Ask::Addresses(_) => SocketType::DGRAM,
            Ask::Connection | Ask::AddressesOverTcp(_) | Ask::Tunnel(_) | Ask::Page(_) => {
                SocketType::STREAM
            }
        };
        let connected = socket(family, kind, None).and_then(|socket| {
            // Nothing is started from here that it could be left to. Not every system takes this as a flag.
            ioctl_fionbio(&socket, true)?;
            match rustix::net::connect(&socket, &self.of.to) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error),
            }
        });
        match connected {
            Ok(socket) => self.stage = Stage::Connecting(socket),
            Err(error) => self.fail(error),
        }
    }

    /// Its socket has something to say.
    fn go_on(&mut self) {
        // Put back below, or replaced by what follows.
        let stage = std::mem::replace(&mut self.stage, Stage::Done(Outcome::Silence));
        match stage {
            Stage::Connecting(socket) => match sockopt::socket_error(&socket) {
                Ok(Err(error)) | Err(error) => self.fail(error),
                Ok(Ok(())) if self.of.ask == Ask::Connection => {
                    self.stage = Stage::Done(Outcome::Connected);
                }
                // Less than any socket's buffer: it takes all of it.
                Ok(Ok(())) => match rustix::io::write(&socket, &self.say) {
                    Ok(_) => self.stage = Stage::Listening(socket, Vec::new()),
                    Err(error) => self.fail(error),
                },
            },
            Stage::Listening(socket, got) => self.listen(socket, got),
            stage @ (Stage::Pausing(_) | Stage::Done(_)) => self.stage = stage,
        }
    }

    fn listen(&mut self, socket: OwnedFd, mut got: Vec<u8>) {
        let mut piece = [0; 4096];
        match rustix::io::read(&socket, &mut piece) {
            Ok(0) => self.stage = Stage::Done(Outcome::Ended),
            Ok(count) => {
                got.extend(piece.iter().take(count));
                self.stage = match self.answer(&got) {
                    Some(outcome) => Stage::Done(outcome),
                    None if got.len() > LONGEST_ANSWER => Stage::Done(Outcome::Ended),
                    None => Stage::Listening(socket, got),
                };
            }
            Err(Errno::AGAIN | Errno::INTR) => self.stage = Stage::Listening(socket, got),
            Err(error) => self.fail(error),
        }
    }

    fn answer(&self, got: &[u8]) -> Option<Outcome> {
        match self.of.ask {
            Ask::Connection => None,
            // Whatever it says.
            Ask::Datagram(_) => Some(Outcome::Ended),
            Ask::Addresses(_) => dns::answer(got),
            Ask::AddressesOverTcp(_) => dns::answer(got.get(PREFIX..)?),
            Ask::Tunnel(_) | Ask::Page(_) => http(got),
        }
    }

    fn fail(&mut self, error: Errno) {
        let outcome = outcome(error);
        let now = Instant::now();
        let may_change = matches!(
            outcome,
            Outcome::NoAddress | Outcome::NoRoute | Outcome::NoHost
        );
        self.stage = if self.is_patient && may_change && now + PAUSE < self.due {
            Stage::Pausing(now + PAUSE)
        } else {
            Stage::Done(outcome)
        };
    }

    fn tried(self) -> Tried {
        let outcome = match self.stage {
            Stage::Done(outcome) => outcome,
            Stage::Pausing(_) | Stage::Connecting(_) | Stage::Listening(..) => Outcome::Silence,
        };
        Tried {
            of: self.of,
            outcome,
        }
    }
}

fn outcome(error: Errno) -> Outcome {
    match error {
        Errno::CONNREFUSED => Outcome::Refused,
        Errno::CONNRESET | Errno::PIPE => Outcome::Ended,
        Errno::NETUNREACH => Outcome::NoRoute,
        Errno::HOSTUNREACH | Errno::HOSTDOWN => Outcome::NoHost,
        Errno::ADDRNOTAVAIL | Errno::NETDOWN | Errno::AFNOSUPPORT => Outcome::NoAddress,
        Errno::ACCESS | Errno::PERM => Outcome::Forbidden,
        Errno::TIMEDOUT => Outcome::Silence,
        other => Outcome::Other(other.to_string()),
    }
}

fn with_length(message: &[u8]) -> Vec<u8> {
    // A question is shorter than 300 bytes.
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], message].concat()
}

fn request(method: &str, target: &str, host: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").into_bytes()
}

fn page(url: &str) -> Vec<u8> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let host = rest.split('/').next().unwrap_or_default();
    request("GET", url, host)
}

/// The status of an answer, and the code of the proxy's in it, once its head is there.
fn http(got: &[u8]) -> Option<Outcome> {
    let text = String::from_utf8_lossy(got);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let status = head.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let field = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("proxy-status").then_some(value)
    });
    let code = field.and_then(|value| value.split_once("details=\""));
    let code = code.and_then(|(_, rest)| rest.split('"').next());
    Some(Outcome::Http {
        status,
        code: code.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};
    use std::thread;

    use super::*;

    fn one(to: SocketAddr, ask: Ask) -> Outcome {
        let mut tried = carry_out(vec![Try { to, ask }], false);
        tried.pop().expect("one").outcome
    }

    #[test]
    fn what_listens_is_told_from_what_does_not() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        assert_eq!(one(address, Ask::Connection), Outcome::Connected);
        drop(listener);
        assert_eq!(one(address, Ask::Connection), Outcome::Refused);
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = silent.local_addr().expect("bound");
        assert_eq!(one(address, Ask::Datagram("x".to_owned())), Outcome::Sent);
        let mut byte = [0; 8];
        assert_eq!(silent.recv(&mut byte).expect("it came"), 1);
        drop(silent);
        assert_eq!(
            one(address, Ask::Datagram("x".to_owned())),
            Outcome::Refused
        );
    }

    #[test]
    fn a_proxy_is_asked_for_a_tunnel() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let answering = thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let mut request = [0; 256];
            let count = client.read(&mut request).expect("a request");
            let answer = "HTTP/1.1 403 Forbidden\r\nProxy-Status: strait; error=x; details=\"not_listed\"\r\n\r\n";
            client.write_all(answer.as_bytes()).expect("an answer");
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let expected = Outcome::Http {
            status: 403,
            code: Some("not_listed".to_owned()),
        };
        assert_eq!(one(address, Ask::Tunnel("a.test:443".to_owned())), expected);
        let request = answering.join().expect("no panic");
        assert!(request.starts_with("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n"));
    }

    #[test]
    fn a_link_local_address_is_tried_on_every_link() {
        let interface = |name: &str, index, address: &str| Interface {
            name: name.to_owned(),
            index: Some(index),
            address: address.parse().expect("an address"),
        };
        let interfaces = [
            interface("eth0", 2, "192.0.2.2"),
            interface("eth0", 2, "fe80::2"),
            interface("eth1", 3, "198.51.100.2"),
        ];
        let on = |to: &str| {
            let to = to.parse().expect("an address");
            let ask = Ask::Connection;
            let tries = on_every_link(Try { to, ask }, &interfaces);
            tries
                .iter()
                .map(|each| each.to.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(on("[fe80::1]:7"), ["[fe80::1%2]:7", "[fe80::1%3]:7"]);
        assert_eq!(on("192.0.2.1:7"), ["192.0.2.1:7"]);
        assert_eq!(on("[2001:db8::1]:7"), ["[2001:db8::1]:7"]);
    }
}
