//! What strait promises, one binary: each module holds the tests of one promise.

mod decisions;
mod harness;
mod iana;
