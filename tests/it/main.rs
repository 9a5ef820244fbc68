//! The tests of what strait promises, one binary.

mod iana;
