//! Why a configuration was refused, in words: where, which server, which key, what to write instead.

use std::fmt;

use thiserror::Error;

use super::slip::nearest;
use crate::document::NetworkError;
use crate::launch::spec::{ServerName, SpecError};
use crate::rule::RuleError;

/// A name that no server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownServer {
    /// The name asked for.
    pub name: ServerName,
    /// The names there are, as listed.
    pub known: Vec<ServerName>,
}

impl std::error::Error for UnknownServer {}

impl fmt::Display for UnknownServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no server is called `{}`; ", self.name)?;
        if self.known.is_empty() {
            return f.write_str("there is none yet; write a [[server]] with that name");
        }
        let known: Vec<_> = self.known.iter().map(ServerName::as_str).collect();
        let near = nearest(self.name.as_str(), &known);
        if let Some(near) = near {
            write!(f, "write `{near}` if that is meant; ")?;
        }
        write!(f, "there are: {}", known.join(", "))
    }
}

/// Why the file was refused: where, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", printable(&format!("{}{}{reason}", At(*line), Of(server.as_ref()))))]
pub struct ConfigError {
    /// The line, from 1; none where the parser has none.
    pub line: Option<usize>,
    /// The server it is about, if it is about one.
    pub server: Option<WhichServer>,
    /// What is wrong; boxed, because it would make every result here large.
    pub reason: Box<Reason>,
}

/// The server that an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichServer {
    /// By its name.
    Named(ServerName),
    /// By its place, from 1, where the name is the trouble.
    Numbered(usize),
}

impl fmt::Display for WhichServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "server `{name}`"),
            Self::Numbered(number) => write!(f, "[[server]] number {number}"),
        }
    }
}

/// What is wrong in the file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// Not TOML.
    #[error("not TOML: {0}")]
    Syntax(String),
    /// A key that means nothing here.
    #[error("unknown key `{key}`; {remedy}")]
    UnknownKey {
        /// The key.
        key: String,
        /// What to do about it.
        remedy: Remedy,
    },
    /// One table where there may be several.
    #[error(
        "`server` is a list of tables; write [[server]], with two brackets, above each of them"
    )]
    ServerTable,
    /// A key that must be there.
    #[error("`{key}` is missing; write {example}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What it could look like.
        example: &'static str,
    },
    /// Something else than a list.
    #[error("`{key}` is a list; write {instead}")]
    NotList {
        /// The key.
        key: &'static str,
        /// The line to write.
        instead: String,
    },
    /// Something else than a string.
    #[error("`{key}` is a text, not {found}; write it in quotes")]
    NotText {
        /// The key, with the place in its list.
        key: String,
        /// What TOML calls what stands there.
        found: &'static str,
    },
    /// Something else than a number.
    #[error("`{key}` is a number without sign or fraction, not {found}; write {key} = {example}")]
    NotNumber {
        /// The key.
        key: &'static str,
        /// What stands there.
        found: String,
        /// What it could be.
        example: &'static str,
    },
    /// A bad value.
    #[error("`{key}`: {reason}")]
    Value {
        /// The key, with the place in its list, from 0.
        key: String,
        /// What is wrong with it.
        reason: ValueError,
    },
    /// Values that do not go together.
    #[error("{0}")]
    Together(SpecError),
    /// A name that is taken.
    #[error("the name `{name}` is taken by the server in line {first}; give one of them another")]
    NameTwice {
        /// The name.
        name: ServerName,
        /// The line of the first that has it.
        first: usize,
    },
}

/// What to do about an unknown key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Write the key that was meant.
    Write(&'static str),
    /// Move it under a server.
    MoveToServer,
    /// Move it above the servers.
    MoveToTop,
    /// Choose among those there are.
    Choose(&'static [&'static str]),
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(key) => write!(f, "write `{key}` if that is meant"),
            Self::MoveToServer => {
                f.write_str("it belongs to a server: write it below a [[server]]")
            }
            Self::MoveToTop => {
                f.write_str("it is for all servers: write it above the first [[server]]")
            }
            Self::Choose(keys) => write!(f, "the keys here are {}", keys.join(", ")),
        }
    }
}

/// What is wrong with one value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValueError {
    /// A part of a spec.
    #[error("{0}")]
    Spec(#[from] SpecError),
    /// An entry of `network`.
    #[error("{0}")]
    Rule(#[from] RuleError),
    /// An entry of `allow_net`.
    #[error("{0}")]
    Network(#[from] NetworkError),
    /// A variable's value, which is not said again.
    #[error(
        "`{0}` is given with a value; write the name alone, the value comes from the environment"
    )]
    VariableValue(String),
    /// A name server that is none.
    #[error("`{0}` is not the address of a name server; write 192.0.2.53 or [2001:db8::53]:53")]
    Resolver(String),
    /// A runtime that is none.
    #[error("`{0}` is not a runtime strait knows; write podman or docker")]
    Runtime(String),
    /// A workspace that is none.
    #[error("`{0}` is not a whole path; begin it with `/`, or with `~/` for your home folder")]
    Workspace(String),
}

/// A text without what a terminal would obey: TOML has escapes for every character, and the file may
/// have come from somebody else.
fn printable(text: &str) -> String {
    let escaped = |letter: char| {
        let escape = letter.is_control().then(|| letter.escape_default());
        let plain = escape.is_none().then_some(letter);
        escape.into_iter().flatten().chain(plain)
    };
    text.chars().flat_map(escaped).collect()
}

/// `line 7: `, where there is a line.
struct At(Option<usize>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, "line {line}: "))
    }
}

/// ``server `notion`: ``, where there is a server.
struct Of<'a>(Option<&'a WhichServer>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |server| write!(f, "{server}: "))
    }
}
