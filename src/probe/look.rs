//! What the kernel says of the probe's own place: read, never tried.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::{Address, DefaultRoute, Limits, Mounted, Status, Writing, Written};

/// Kinds of file systems that are the kernel's own: what they show belongs to other questions.
const OF_THE_KERNEL: [&str; 8] = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "devpts",
    "mqueue",
    "securityfs",
    "bpf",
];
/// The flag of a route that leads nowhere (`RTF_REJECT`, linux/route.h).
const REJECTS: u32 = 0x0200;
/// The flag of a neighbour whose hardware address is known (`ATF_COM`, `linux/if_arp.h`).
const IS_KNOWN: u32 = 0x02;
/// Control groups, version 1, say "no limit" with a number that no machine has: `PAGE_COUNTER_MAX`
/// pages.
const NO_LIMIT: u64 = 1 << 62;

/// An address of an interface other than loopback.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: Option<u32>,
    pub(super) address: IpAddr,
}

impl From<Interface> for Address {
    fn from(interface: Interface) -> Self {
        Self {
            interface: interface.name,
            address: interface.address,
        }
    }
}

pub(super) fn interfaces() -> Vec<Interface> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let others = all.into_iter().filter(|each| !each.is_loopback());
    others
        .map(|each| Interface {
            index: each.index,
            address: each.ip(),
            name: each.name,
        })
        .collect()
}

pub(super) fn resolvers() -> Vec<IpAddr> {
    parse_resolvers(&read("/etc/resolv.conf"))
}

fn parse_resolvers(text: &str) -> Vec<IpAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    });
    let mut addresses: Vec<IpAddr> = addresses
        .filter_map(|address| address.split('%').next()?.parse().ok())
        .collect();
    addresses.dedup();
    addresses
}

pub(super) fn hosts() -> Vec<IpAddr> {
    let text = read("/etc/hosts");
    let addresses = text
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().next());
    addresses
        .filter_map(|address| address.parse().ok())
        .collect()
}

pub(super) fn default_routes() -> Vec<DefaultRoute> {
    let mut routes = parse_routes(&read("/proc/net/route"));
    routes.extend(parse_routes_v6(&read("/proc/net/ipv6_route")));
    routes
}

/// IPv4: interface, destination, gateway, flags, …, mask in the eighth column; numbers are in hex, the
/// addresses in the machine's own order.
fn parse_routes(text: &str) -> Vec<DefaultRoute> {
    let routes = text.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |column: usize| u32::from_str_radix(words.get(column)?, 16).ok();
        let is_default = number(1)? == 0 && number(7)? == 0 && number(3)? & REJECTS == 0;
        let by = Ipv4Addr::from(number(2)?.to_ne_bytes());
        is_default.then(|| DefaultRoute {
            interface: words.first().copied().unwrap_or_default().to_owned(),
            by: (!by.is_unspecified()).then_some(by.into()),
        })
    });
    routes.collect()
}

/// IPv6: destination, its prefix length, source, its prefix length, next hop, metric, use counts, flags
/// and the interface. The kernel keeps a default route that rejects everything on `lo`.
fn parse_routes_v6(text: &str) -> Vec<DefaultRoute> {
    let routes = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let flags = u32::from_str_radix(words.get(8)?, 16).ok()?;
        let next = u128::from_str_radix(words.get(4)?, 16).ok()?;
        let (length, interface) = (*words.get(1)?, *words.get(9)?);
        let is_default = length == "00" && interface != "lo" && flags & REJECTS == 0;
        is_default.then(|| DefaultRoute {
            interface: interface.to_owned(),
            by: (next != 0).then(|| Ipv6Addr::from(next).into()),
        })
    });
    routes.collect()
}

pub(super) fn neighbours() -> Vec<IpAddr> {
    parse_neighbours(&read("/proc/net/arp"))
}

fn parse_neighbours(text: &str) -> Vec<IpAddr> {
    let known = text.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let flags = words.get(2)?.trim_start_matches("0x");
        let is_known = u32::from_str_radix(flags, 16).ok()? & IS_KNOWN != 0;
        is_known.then(|| words.first()?.parse().ok())?
    });
    known.collect()
}

pub(super) fn environment() -> BTreeMap<String, String> {
    let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
    let variables = std::env::vars_os();
    variables
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// Makes a file that was not there, and takes it away again.
pub(super) fn write_to(folder: String) -> Writing {
    let path = Path::new(&folder).join(format!(".strait-probe-{}", std::process::id()));
    let made = fs::File::options().write(true).create_new(true).open(&path);
    let outcome = match made {
        Ok(_) => {
            // What cannot be removed goes with the container.
            drop(fs::remove_file(&path));
            Written::Written
        }
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Written::ReadOnly,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Written::Forbidden,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Written::Missing,
        Err(error) => Written::Other(error.to_string()),
    };
    Writing { folder, outcome }
}

pub(super) fn mounts() -> Vec<Mounted> {
    parse_mounts(&read("/proc/self/mountinfo"))
}

/// proc(5): id, parent, device, root, mount point, options, …, `-`, kind, source, options of all.
fn parse_mounts(text: &str) -> Vec<Mounted> {
    let mounts = text.lines().filter_map(|line| {
        let (ours, of_all) = line.split_once(" - ")?;
        let ours: Vec<&str> = ours.split(' ').collect();
        let of_all: Vec<&str> = of_all.split(' ').collect();
        let has = |options: &str| options.split(',').any(|option| option == "ro");
        let kind = (*of_all.first()?).to_owned();
        let (root, at, options) = (ours.get(3)?, ours.get(4)?, ours.get(5)?);
        Some(Mounted {
            at: (*at).to_owned(),
            root: (*root).to_owned(),
            is_read_only: has(options) || of_all.get(2).is_some_and(|options| has(options)),
            kind,
        })
    });
    mounts
        .filter(|mount| !OF_THE_KERNEL.contains(&mount.kind.as_str()))
        .collect()
}

pub(super) fn status() -> Status {
    parse_status(&read("/proc/1/status"))
}

fn parse_status(text: &str) -> Status {
    let value = |wanted: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(name, _)| *name == wanted);
        values.next().map(|(_, value)| value.trim().to_owned())
    };
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let capabilities = sets.iter().map(|name| {
        // One that is not told is not known to be empty.
        (
            (*name).to_owned(),
            value(name).unwrap_or_else(|| "?".to_owned()),
        )
    });
    Status {
        capabilities: capabilities
            .filter(|(_, set)| set.is_empty() || set.bytes().any(|digit| digit != b'0'))
            .collect(),
        no_new_privileges: value("NoNewPrivs").map(|value| value == "1"),
        seccomp: value("Seccomp").and_then(|value| value.parse().ok()),
        user: value("Uid").and_then(|value| value.split_ascii_whitespace().nth(1)?.parse().ok()),
    }
}

pub(super) fn limits() -> Limits {
    let file = |path: &str| read(&format!("/sys/fs/cgroup/{path}"));
    let number = |path: &str| limit(&file(path));
    // Version 2 first; version 1 has a folder for each controller.
    let memory = number("memory.max").or_else(|| number("memory/memory.limit_in_bytes"));
    let (beside, together) = (
        file("memory.swap.max"),
        file("memory/memory.memsw.limit_in_bytes"),
    );
    let memory_and_swap = match (beside.is_empty(), together.is_empty()) {
        (false, _) => memory
            .zip(limit(&beside))
            .map(|(memory, swap)| memory + swap),
        (true, false) => limit(&together),
        (true, true) => None,
    };
    Limits {
        memory,
        counts_swap: !beside.is_empty() || !together.is_empty(),
        memory_and_swap,
        processes: number("pids.max").or_else(|| number("pids/pids.max")),
        tmp: tmp(),
    }
}

fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|limit| *limit < NO_LIMIT)
}

/// The size of `/tmp`, where it is in memory.
fn tmp() -> Option<u64> {
    let is_own = mounts()
        .iter()
        .any(|mount| mount.at == "/tmp" && mount.kind == "tmpfs");
    let size = rustix::fs::statvfs("/tmp").ok()?;
    // One without a limit says 0.
    is_own
        .then_some(size.f_blocks.saturating_mul(size.f_frsize))
        .filter(|size| *size != 0)
}

pub(super) fn forwards() -> Option<bool> {
    let value = read("/proc/sys/net/ipv4/ip_forward");
    (!value.is_empty()).then(|| value.trim() != "0")
}

/// A file of the kernel's; one that cannot be read says nothing.
fn read(path: &str) -> String {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read_from_both_tables() {
        let head =
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
        let of_the_link = "eth0\t0000E70A\t00000000\t0001\t0\t0\t0\tF8FFFFFF\t0\t0\t0\n";
        let default = "eth0\t00000000\t0100E70A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
        assert_eq!(parse_routes(&format!("{head}{of_the_link}")), []);
        let route = |by: &str| DefaultRoute {
            interface: "eth0".to_owned(),
            by: Some(by.parse().expect("an address")),
        };
        let expected = if cfg!(target_endian = "little") {
            "10.231.0.1"
        } else {
            "1.0.231.10"
        };
        assert_eq!(
            parse_routes(&format!("{head}{of_the_link}{default}")),
            [route(expected)]
        );

        let zeros = "0".repeat(32);
        let rejecting =
            format!("{zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200       lo\n");
        let next = "fe80000000000000021122fffe334455";
        let default =
            format!("{zeros} 00 {zeros} 00 {next} 00000400 00000001 00000000 00000003     eth0\n");
        assert_eq!(parse_routes_v6(&rejecting), []);
        assert_eq!(
            parse_routes_v6(&format!("{rejecting}{default}")),
            [route("fe80::211:22ff:fe33:4455")]
        );
    }

    #[test]
    fn a_neighbour_is_one_that_has_answered() {
        let text = "IP address       HW type     Flags       HW address            Mask     Device\n\
            10.231.0.1       0x1         0x0         00:00:00:00:00:00     *        eth0\n\
            10.231.0.2       0x1         0x2         02:42:0a:e7:00:02     *        eth0\n";
        assert_eq!(parse_neighbours(text), [IpAddr::from([10, 231, 0, 2])]);
    }

    #[test]
    fn mounts_are_those_of_somebody() {
        let text = "1 0 0:40 / / ro,relatime - overlay overlay rw,lowerdir=/l\n\
            2 1 0:41 / /proc rw,nosuid - proc proc rw\n\
            3 1 0:42 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw,size=65536k\n\
            4 1 8:1 /home/me /workspace/docs rw - ext4 /dev/sda1 rw\n";
        let mounts = parse_mounts(text);
        let shown: Vec<(&str, bool)> = mounts
            .iter()
            .map(|each| (each.at.as_str(), each.is_read_only))
            .collect();
        assert_eq!(
            shown,
            [("/", true), ("/tmp", false), ("/workspace/docs", false)]
        );
    }

    #[test]
    fn a_status_tells_what_process_1_may() {
        let text = "Uid:\t0\t65534\t0\t0\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n\
            CapEff:\t0000000000000000\nCapBnd:\t00000000a80425fb\nCapAmb:\t0000000000000000\n\
            NoNewPrivs:\t1\nSeccomp:\t2\n";
        let status = parse_status(text);
        assert_eq!(status.capabilities.keys().collect::<Vec<_>>(), ["CapBnd"]);
        assert_eq!(
            (status.no_new_privileges, status.seccomp, status.user),
            (Some(true), Some(2), Some(65534))
        );
        assert_eq!(
            parse_status("").capabilities.len(),
            5,
            "what is not told is not empty"
        );
    }

    #[test]
    fn a_limit_is_a_number_that_a_machine_has() {
        assert_eq!(limit("268435456\n"), Some(268_435_456));
        assert_eq!(
            (limit("max\n"), limit("9223372036854771712\n"), limit("")),
            (None, None, None)
        );
    }

    #[test]
    fn resolvers_are_read_as_libc_reads_them() {
        let text = "# nameserver 192.0.2.1\nsearch a\nnameserver 127.0.0.11\nnameserver fe80::1%eth0\noptions x\n";
        let expected: [IpAddr; 2] = [
            [127, 0, 0, 11].into(),
            "fe80::1".parse().expect("an address"),
        ];
        assert_eq!(parse_resolvers(text), expected);
    }
}
