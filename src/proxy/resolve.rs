//! A name becomes addresses: hickory here and nowhere else.
//!
//! libc's resolver is never used: it has search lists, a hosts file, its own idea of an address
//! literal and no deadline. Names are asked for as fully qualified, exactly once per attempt, and
//! only after the policy has permitted them. Where a server answers with an alias alone, hickory asks
//! the same server for the name it points to: the only names beside the listed ones.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::time::timeout;

use super::BoxFuture;
use crate::destination::HostName;
use crate::refusal::Failed;

/// The longest an answer is kept, whatever its TTL says; a TTL of 0 is never kept.
const MAX_TTL: Duration = Duration::from_mins(5);
/// The longest "there is no such name" is kept.
const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(10);
/// How long IPv4 addresses wait for the IPv6 ones (RFC 8305 §3).
const WAIT_FOR_IPV6: Duration = Duration::from_millis(50);
/// How long IPv6 addresses wait for the IPv4 ones: longer, because a host without working IPv6
/// would have nothing left to try.
const WAIT_FOR_IPV4: Duration = Duration::from_millis(500);

/// Turns names into addresses. A replacement must not check them: that happens after, on all of
/// what it returned.
pub trait Resolve: Send + Sync + 'static {
    /// Resolves a name, once. An empty answer counts as [`Failed::DnsNoRecords`].
    fn resolve<'a>(&'a self, name: &'a HostName) -> BoxFuture<'a, Result<Vec<IpAddr>, Failed>>;
}

/// Resolves under one deadline for everything that takes.
pub async fn lookup(
    resolver: &dyn Resolve,
    name: &HostName,
    limit: Duration,
) -> Result<Vec<IpAddr>, Failed> {
    timeout(limit, resolver.resolve(name))
        .await
        .unwrap_or(Err(Failed::DnsTimeout))
}

/// The resolver of the host, or a given one, spoken to over UDP and TCP.
#[derive(Debug)]
pub struct DnsResolver {
    resolver: TokioResolver,
}

impl DnsResolver {
    /// Uses the name servers of `/etc/resolv.conf`, read once. There is no fallback: without a
    /// name server there is no resolver.
    pub fn from_system() -> io::Result<Self> {
        let builder = TokioResolver::builder_tokio().map_err(io::Error::other)?;
        Self::build(builder)
    }

    /// Uses one name server.
    pub fn from_server(server: SocketAddr) -> io::Result<Self> {
        let mut config = NameServerConfig::udp_and_tcp(server.ip());
        config.connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
        for connection in &mut config.connections {
            connection.port = server.port();
        }
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![config]);
        let provider = TokioRuntimeProvider::default();
        Self::build(TokioResolver::builder_with_config(config, provider))
    }

    fn build(
        mut builder: hickory_resolver::ResolverBuilder<TokioRuntimeProvider>,
    ) -> io::Result<Self> {
        let options = builder.options_mut();
        options.use_hosts_file = ResolveHosts::Never;
        options.positive_max_ttl = Some(MAX_TTL);
        options.negative_max_ttl = Some(MAX_NEGATIVE_TTL);
        Ok(Self {
            resolver: builder.build().map_err(io::Error::other)?,
        })
    }

    async fn lookup(&self, name: Name, kind: RecordType) -> Result<Vec<IpAddr>, Failed> {
        match self.resolver.lookup(name, kind).await {
            Ok(lookup) => {
                let address = |data: &RData| data.ip_addr();
                Ok(lookup
                    .answers()
                    .iter()
                    .filter_map(|record| address(&record.data))
                    .collect())
            }
            Err(error) => Err(failure(&error)),
        }
    }

    /// Asks for both families at once (RFC 8305 §3); when one has addresses, the other gets a
    /// little longer. Both answers are kept: either may hold the address that refuses them all.
    async fn lookup_both(&self, name: &HostName) -> Result<Vec<IpAddr>, Failed> {
        // By its labels: DNS takes names that host names may not have (`-a.example`).
        let mut name = Name::from_labels(name.as_str().split('.').map(str::as_bytes))
            .map_err(|_| Failed::Dns)?;
        // No search list is applied.
        name.set_fqdn(true);
        let mut v6 = pin!(self.lookup(name.clone(), RecordType::AAAA));
        let mut v4 = pin!(self.lookup(name, RecordType::A));
        let (first, second) = tokio::select! {
            first = &mut v4 => match first {
                Ok(found) if !found.is_empty() => {
                    let second = timeout(WAIT_FOR_IPV6, v6).await;
                    (Ok(found), second.unwrap_or(Err(Failed::DnsTimeout)))
                }
                Ok(_) | Err(_) => (first, v6.await),
            },
            first = &mut v6 => match first {
                Ok(found) if !found.is_empty() => {
                    let second = timeout(WAIT_FOR_IPV4, v4).await;
                    (Ok(found), second.unwrap_or(Err(Failed::DnsTimeout)))
                }
                Ok(_) | Err(_) => (first, v4.await),
            },
        };
        match (first, second) {
            (Ok(mut first), Ok(second)) => {
                first.extend(second);
                Ok(first)
            }
            (Ok(found), Err(fault)) | (Err(fault), Ok(found)) => {
                if found.is_empty() {
                    Err(fault)
                } else {
                    Ok(found)
                }
            }
            (Err(first), Err(second)) => Err(worse(first, second)),
        }
    }
}

impl Resolve for DnsResolver {
    fn resolve<'a>(&'a self, name: &'a HostName) -> BoxFuture<'a, Result<Vec<IpAddr>, Failed>> {
        Box::pin(async move {
            let addresses = self.lookup_both(name).await?;
            if addresses.is_empty() {
                Err(Failed::DnsNoRecords)
            } else {
                Ok(addresses)
            }
        })
    }
}

/// Of two families' failures, the one that explains more: a family without records is normal.
fn worse(first: Failed, second: Failed) -> Failed {
    if first == Failed::DnsNoRecords {
        second
    } else {
        first
    }
}

fn failure(error: &NetError) -> Failed {
    if let NetError::Dns(DnsError::NoRecordsFound(none)) = error {
        if none.response_code == ResponseCode::NXDomain {
            return Failed::DnsNameNotFound;
        }
        if none.response_code == ResponseCode::NoError {
            return Failed::DnsNoRecords;
        }
    }
    if matches!(error, NetError::Timeout) {
        Failed::DnsTimeout
    } else {
        Failed::Dns
    }
}
