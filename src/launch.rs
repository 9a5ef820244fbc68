//! An MCP server in a sandbox: its container on a network whose only way out is `strait proxy`.

pub mod spec;
