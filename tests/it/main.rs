//! What strait promises, one binary: each module holds the tests of one promise.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails loudly, and reaches the proxy as others do"
)]

mod audit;
mod decisions;
mod documents;
mod forwarding;
mod harness;
mod iana;
mod launch;
mod limits;
mod program;
mod tunnel;
