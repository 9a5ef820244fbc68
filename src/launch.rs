//! An MCP server in a sandbox: its container on a network whose only way out is `strait proxy`.

pub mod owner;
pub mod plan;
pub mod runtime;
pub mod spec;
