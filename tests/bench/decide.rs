//! The pure path of a request, in the order it is walked: parse, permit, check, record.
//!
//! `cargo bench --bench decide`, or one group of it: `cargo bench --bench decide -- permit`.

#![allow(
    missing_docs,
    clippy::expect_used,
    reason = "criterion's macros write undocumented functions, and a bench fails loudly"
)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, UNIX_EPOCH};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use strait::audit::{Reason, Record};
use strait::destination::Destination;
use strait::head::{HeadLimits, RequestHead};
use strait::policy::Policy;
use strait::rule::Rule;

/// The proxy's default.
const LIMITS: HeadLimits = HeadLimits {
    bytes: 64 * 1024,
    fields: 100,
};

/// What curl sends for a tunnel.
const CONNECT: &str = "CONNECT api.example.com:443 HTTP/1.1\r\n\
    Host: api.example.com:443\r\n\
    User-Agent: curl/7.88.1\r\n\
    Proxy-Connection: Keep-Alive\r\n\r\n";

/// What a browser sends for a page.
const GET: &str = "GET http://www.example.com/a/path?with=a&query=1 HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Referer: http://www.example.com/a/\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    Connection: keep-alive\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Priority: u=0, i\r\n\r\n";

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    for target in [
        "api.example.com:443",
        "93.184.216.34:443",
        "[2606:4700::1111]:443",
    ] {
        group.throughput(Throughput::Bytes(bytes(target)));
        group.bench_with_input(
            BenchmarkId::new("authority", target),
            target,
            |bench, target| {
                bench.iter(|| Destination::from_authority_form(black_box(target)));
            },
        );
    }
    for (name, head) in [("connect", CONNECT), ("get", GET)] {
        group.throughput(Throughput::Bytes(bytes(head)));
        group.bench_with_input(BenchmarkId::new("head", name), head, |bench, head| {
            bench.iter(|| RequestHead::parse(black_box(head.as_bytes()), LIMITS));
        });
    }
    group.finish();
}

fn permit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("permit");
    for count in [10, 1_000, 10_000] {
        let policy = policy(count);
        let listed = destination(&format!("host-{}.example.com:443", count - 1));
        let other = destination("host-x.example.com:443");
        for (name, asked) in [("listed", listed), ("not listed", other)] {
            group.bench_with_input(BenchmarkId::new(name, count), &asked, |bench, asked| {
                // The clone is part of it: a permit owns its destination.
                bench.iter(|| policy.permit(black_box(asked).clone()).is_ok());
            });
        }
    }
    group.finish();
}

fn check(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("check");
    let policy = policy(1);
    let asked = destination("host-0.example.com:443");
    let own = [SocketAddr::from(([127, 0, 0, 1], 3128))];
    for count in [1, 4, 16] {
        let answers = answers(count);
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_with_input(
            BenchmarkId::from_parameter(count),
            &answers,
            |bench, answers| {
                bench.iter_batched(
                    || policy.permit(asked.clone()).expect("listed"),
                    |permit| permit.check(black_box(answers), &own),
                    BatchSize::SmallInput,
                );
            },
        );
    }
    group.finish();
}

fn record(criterion: &mut Criterion) {
    let record = Record {
        time: UNIX_EPOCH + Duration::from_millis(1_796_077_200_123),
        server: Some("notion"),
        id: 17,
        method: Some("CONNECT"),
        host: Some("api.notion.com"),
        port: Some(443),
        allowed: true,
        reason: Reason::Listed,
        address: Some(SocketAddr::from(([208, 103, 161, 1], 443))),
        elapsed: Duration::from_millis(12),
    };
    criterion
        .benchmark_group("record")
        .bench_function("line", |bench| bench.iter(|| black_box(&record).to_line()));
}

fn bytes(text: &str) -> u64 {
    text.len().try_into().expect("not that long")
}

fn policy(rules: u32) -> Policy {
    let rule = |index| Rule::parse(&format!("host-{index}.example.com")).expect("a rule");
    Policy::new((0..rules).map(rule), []).expect("no rule twice")
}

fn destination(text: &str) -> Destination {
    Destination::from_authority_form(text).expect("a destination")
}

/// Public addresses, of both families in turn.
fn answers(count: u32) -> Vec<IpAddr> {
    let address = |index: u32| {
        if index.is_multiple_of(2) {
            IpAddr::from((0x5db8_d822 + index).to_be_bytes())
        } else {
            Ipv6Addr::from_bits((0x2606_4700 << 96) + u128::from(index)).into()
        }
    };
    (0..count).map(address).collect()
}

criterion_group!(benches, parse, permit, check, record);
criterion_main!(benches);
