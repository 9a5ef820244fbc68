//! What to paste into an MCP client so that it starts a server through `strait launch`.
//!
//! Never a secret's value: a placeholder that the client itself fills in, where it can, else a text
//! that nobody takes for a value. The formats are those of the clients' own documentation and of their
//! source, as of November 2026.
//!
//! The program is named by its whole path, because clients start servers with a PATH of their own.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use super::spec::{EnvName, ServerName};

/// How long Codex waits for a server to start. Its own default, 10 s, can be too short for a
/// container on a machine that is busy.
const CODEX_STARTUP_SECONDS: u32 = 30;

/// An MCP client that a snippet can be made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    VsCode,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Zed.
    Zed,
}

impl ClientKind {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 7] = [
        Self::ClaudeDesktop,
        Self::ClaudeCode,
        Self::Cursor,
        Self::VsCode,
        Self::Codex,
        Self::Gemini,
        Self::Zed,
    ];

    /// The word for it on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "claude-desktop",
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Zed => "zed",
        }
    }

    /// Parses the word for it.
    pub fn parse(text: &str) -> Result<Self, SnippetError> {
        let found = Self::ALL.into_iter().find(|kind| kind.word() == text);
        found.ok_or_else(|| SnippetError::Client(text.to_owned()))
    }

    /// The files that a snippet goes into, the one to prefer first.
    fn places(self) -> &'static [Place] {
        match self {
            Self::ClaudeDesktop => &[
                Place {
                    scope: "macOS",
                    file: "~/Library/Application Support/Claude/claude_desktop_config.json",
                },
                Place {
                    scope: "Linux",
                    file: "~/.config/Claude/claude_desktop_config.json",
                },
            ],
            Self::ClaudeCode => &[
                // The file its expansion was made for; the other has it in newer versions only
                // (anthropics/claude-code issue 43693).
                Place {
                    scope: "one project",
                    file: ".mcp.json",
                },
                Place {
                    scope: "all projects",
                    file: "~/.claude.json",
                },
            ],
            Self::Cursor => &[
                Place {
                    scope: "all projects",
                    file: "~/.cursor/mcp.json",
                },
                Place {
                    scope: "one project",
                    file: ".cursor/mcp.json",
                },
            ],
            Self::VsCode => &[
                Place {
                    scope: "all projects, macOS",
                    file: "~/Library/Application Support/Code/User/mcp.json",
                },
                Place {
                    scope: "all projects, Linux",
                    file: "~/.config/Code/User/mcp.json",
                },
                Place {
                    scope: "one project",
                    file: ".vscode/mcp.json",
                },
            ],
            Self::Codex => &[
                Place {
                    scope: "all projects",
                    file: "~/.codex/config.toml",
                },
                Place {
                    scope: "one trusted project",
                    file: ".codex/config.toml",
                },
            ],
            Self::Gemini => &[
                Place {
                    scope: "all projects",
                    file: "~/.gemini/settings.json",
                },
                Place {
                    scope: "one project",
                    file: ".gemini/settings.json",
                },
            ],
            Self::Zed => &[Place {
                scope: "macOS and Linux",
                file: "~/.config/zed/settings.json",
            }],
        }
    }

    /// What it puts a variable's value in place of.
    fn placeholder(self, name: &EnvName, server: &ServerName, is_secret: bool) -> String {
        let name = name.as_str();
        match self {
            // Neither of them documents an expansion: what stands there is the value.
            Self::ClaudeDesktop | Self::Zed => format!("REPLACE WITH THE VALUE OF {name}"),
            Self::ClaudeCode => format!("${{{name}}}"),
            // Asked for once, and kept in the system's store of secrets.
            Self::VsCode if is_secret => format!("${{input:{}}}", input_id(name, server)),
            Self::Cursor | Self::VsCode => format!("${{env:{name}}}"),
            // Codex is told the names alone, outside `env`.
            Self::Codex => String::new(),
            Self::Gemini => format!("${name}"),
        }
    }

    /// What is left to do for the variables, if there are any.
    fn note(self) -> &'static str {
        match self {
            Self::ClaudeDesktop | Self::Zed => {
                "put the values in place of REPLACE WITH …, and let nobody else read that file"
            }
            Self::VsCode => {
                "VS Code asks for the secrets when the server first starts; other variables it takes \
                 from the environment it was started in"
            }
            Self::ClaudeCode | Self::Cursor | Self::Codex | Self::Gemini => {
                "the variables are taken from the environment the client was started in"
            }
        }
    }

    /// The server's name as a key. A dot is in no name that Claude Code takes (letters, digits,
    /// hyphens and underscores), nor safe in others; Gemini's policies misread a server's name with an
    /// underscore (its docs/tools/mcp-server.md).
    fn key(self, server: &ServerName) -> String {
        let key = server.as_str().replace('.', "-");
        match self {
            Self::Gemini => key.replace('_', "-"),
            Self::ClaudeDesktop
            | Self::ClaudeCode
            | Self::Cursor
            | Self::VsCode
            | Self::Codex
            | Self::Zed => key,
        }
    }
}

impl fmt::Display for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Why there is no snippet.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnippetError {
    /// A client we do not know.
    #[error("`{}` is not a client strait knows; write one of {}", .0, clients())]
    Client(String),
    /// A path that depends on the current folder.
    #[error(
        "`{0}` is not an absolute path; a client has another current folder; write the whole path"
    )]
    NotAbsolute(PathBuf),
    /// A path that would be changed on its way.
    #[error(
        "`{0}` holds `$`, a control character or a byte that is not UTF-8, which a client would not \
         hand on as it is; move the file"
    )]
    Characters(PathBuf),
}

fn clients() -> String {
    ClientKind::ALL.map(ClientKind::word).join(", ")
}

/// What a snippet is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnippetInput {
    program: String,
    server: ServerName,
    config: Option<String>,
    secret: Vec<EnvName>,
    env: Vec<EnvName>,
}

impl SnippetInput {
    /// A launch of `server` by the strait at `program`, with `config` if it is not where it is looked
    /// for anyway.
    pub fn new(
        program: &Path,
        server: ServerName,
        config: Option<&Path>,
        secret: &[EnvName],
        env: &[EnvName],
    ) -> Result<Self, SnippetError> {
        Ok(Self {
            program: plain_text(program)?,
            server,
            config: config.map(plain_text).transpose()?,
            secret: secret.to_owned(),
            env: env.to_owned(),
        })
    }

    /// What follows the program's path.
    fn arguments(&self) -> Vec<&str> {
        let mut arguments = vec!["launch"];
        if let Some(config) = &self.config {
            arguments.extend(["--config", config]);
        }
        arguments.push(self.server.as_str());
        arguments
    }

    /// The variables, with what stands for their values.
    fn variables(&self, client: ClientKind) -> BTreeMap<&str, String> {
        let with = |is_secret| {
            move |name| {
                (
                    EnvName::as_str(name),
                    client.placeholder(name, &self.server, is_secret),
                )
            }
        };
        let env = self.env.iter().map(with(false));
        env.chain(self.secret.iter().map(with(true))).collect()
    }
}

/// A path as every client hands it on.
fn plain_text(path: &Path) -> Result<String, SnippetError> {
    if !path.is_absolute() {
        return Err(SnippetError::NotAbsolute(path.to_owned()));
    }
    path.to_str()
        .filter(|text| !text.contains(|letter: char| letter == '$' || letter.is_control()))
        .map(str::to_owned)
        .ok_or_else(|| SnippetError::Characters(path.to_owned()))
}

/// A file that a snippet goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The system, or what the file is for.
    pub scope: &'static str,
    /// The file; a relative one is in the project.
    pub file: &'static str,
}

/// A part of a client's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snippet {
    /// Where it goes; one of them is enough.
    pub places: &'static [Place],
    /// The text, with a newline at its end. It is a whole file; in one that has something already, its
    /// parts are added to those of the same name.
    pub text: String,
    /// What is left to do for the variables, if it has any.
    pub note: Option<&'static str>,
}

/// The snippet that makes a client launch a server.
pub fn snippet(client: ClientKind, input: &SnippetInput) -> Snippet {
    let has_variables = !(input.secret.is_empty() && input.env.is_empty());
    Snippet {
        places: client.places(),
        text: text(client, input),
        note: has_variables.then(|| client.note()),
    }
}

/// Whether a variable's value is still what a snippet has in its place: the client did not fill it in,
/// so there is no value.
pub fn is_placeholder(server: &ServerName, name: &EnvName, value: &str) -> bool {
    let is_it = |client: ClientKind| {
        [true, false].map(|is_secret| client.placeholder(name, server, is_secret) == value)
    };
    !value.is_empty()
        && ClientKind::ALL
            .into_iter()
            .flat_map(is_it)
            .any(|is_it| is_it)
}

fn text(client: ClientKind, input: &SnippetInput) -> String {
    let entry = Entry {
        kind: None,
        source: None,
        enabled: None,
        command: &input.program,
        args: input.arguments(),
        env: input.variables(client),
    };
    let stdio = Entry {
        kind: Some("stdio"),
        ..entry.clone()
    };
    match client {
        ClientKind::ClaudeDesktop | ClientKind::Gemini => named(client, "mcpServers", input, entry),
        ClientKind::ClaudeCode | ClientKind::Cursor => named(client, "mcpServers", input, stdio),
        ClientKind::VsCode => json(&VsCodeDocument {
            inputs: inputs(input),
            servers: BTreeMap::from([(client.key(&input.server), stdio)]),
        }),
        ClientKind::Codex => codex(input),
        ClientKind::Zed => {
            let entry = Entry {
                // Versions before 2026 know no server without it.
                source: Some("custom"),
                enabled: Some(true),
                ..entry
            };
            named(client, "context_servers", input, entry)
        }
    }
}

/// A server as most clients describe it.
#[derive(Clone, Debug, Serialize)]
struct Entry<'a> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    command: &'a str,
    args: Vec<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<&'a str, String>,
}

/// An entry under the client's key for servers, and under its own.
fn named(client: ClientKind, servers: &str, input: &SnippetInput, entry: Entry<'_>) -> String {
    let entries = BTreeMap::from([(client.key(&input.server), entry)]);
    json(&BTreeMap::from([(servers, entries)]))
}

fn json(document: &impl Serialize) -> String {
    // Strings under keys that are strings: serde_json has nothing to fail on.
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    format!("{text}\n")
}

/// VS Code's `mcp.json`.
#[derive(Debug, Serialize)]
struct VsCodeDocument<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<VsCodeInput>,
    servers: BTreeMap<String, Entry<'a>>,
}

/// What VS Code asks the user for.
#[derive(Debug, Serialize)]
struct VsCodeInput {
    #[serde(rename = "type")]
    kind: &'static str,
    id: String,
    description: String,
    password: bool,
}

fn inputs(input: &SnippetInput) -> Vec<VsCodeInput> {
    let secrets = input.secret.iter().map(|name| VsCodeInput {
        kind: "promptString",
        id: input_id(name.as_str(), &input.server),
        description: format!("{} for {}", name.as_str(), input.server),
        password: true,
    });
    secrets.collect()
}

/// The name of a question, which all servers of a file share.
fn input_id(name: &str, server: &ServerName) -> String {
    format!("{server}-{name}")
}

/// Codex's `config.toml`.
#[derive(Debug, Serialize)]
struct CodexDocument<'a> {
    mcp_servers: BTreeMap<String, CodexEntry<'a>>,
}

/// A server as Codex describes it: `env_vars` are the names of what it hands on from its own
/// environment.
#[derive(Debug, Serialize)]
struct CodexEntry<'a> {
    command: &'a str,
    args: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env_vars: Vec<&'a str>,
    startup_timeout_sec: u32,
}

fn codex(input: &SnippetInput) -> String {
    let entry = CodexEntry {
        command: &input.program,
        args: input.arguments(),
        env_vars: input.variables(ClientKind::Codex).into_keys().collect(),
        startup_timeout_sec: CODEX_STARTUP_SECONDS,
    };
    let mcp_servers = BTreeMap::from([(ClientKind::Codex.key(&input.server), entry)]);
    // Strings, lists of them and a small number: TOML can say all of it.
    toml::to_string(&CodexDocument { mcp_servers }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn names(texts: &[&str]) -> Vec<EnvName> {
        let parse = |text: &&str| EnvName::parse(text).expect(text);
        texts.iter().map(parse).collect()
    }

    fn input(name: &str, config: Option<&str>, secret: &[&str], env: &[&str]) -> SnippetInput {
        SnippetInput::new(
            Path::new("/usr/local/bin/strait"),
            ServerName::parse(name).expect(name),
            config.map(Path::new),
            &names(secret),
            &names(env),
        )
        .expect("good")
    }

    fn notion(client: ClientKind) -> String {
        snippet(client, &input("notion", None, &["NOTION_TOKEN"], &["LANG"])).text
    }

    #[test]
    fn claude_desktop_expands_nothing() {
        insta::assert_snapshot!(notion(ClientKind::ClaudeDesktop), @r#"
        {
          "mcpServers": {
            "notion": {
              "command": "/usr/local/bin/strait",
              "args": [
                "launch",
                "notion"
              ],
              "env": {
                "LANG": "REPLACE WITH THE VALUE OF LANG",
                "NOTION_TOKEN": "REPLACE WITH THE VALUE OF NOTION_TOKEN"
              }
            }
          }
        }
        "#);
    }

    #[test]
    fn claude_code_expands_braces() {
        insta::assert_snapshot!(notion(ClientKind::ClaudeCode), @r#"
        {
          "mcpServers": {
            "notion": {
              "type": "stdio",
              "command": "/usr/local/bin/strait",
              "args": [
                "launch",
                "notion"
              ],
              "env": {
                "LANG": "${LANG}",
                "NOTION_TOKEN": "${NOTION_TOKEN}"
              }
            }
          }
        }
        "#);
    }

    #[test]
    fn cursor_expands_env() {
        insta::assert_snapshot!(notion(ClientKind::Cursor), @r#"
        {
          "mcpServers": {
            "notion": {
              "type": "stdio",
              "command": "/usr/local/bin/strait",
              "args": [
                "launch",
                "notion"
              ],
              "env": {
                "LANG": "${env:LANG}",
                "NOTION_TOKEN": "${env:NOTION_TOKEN}"
              }
            }
          }
        }
        "#);
    }

    #[test]
    fn vscode_asks_for_secrets() {
        insta::assert_snapshot!(notion(ClientKind::VsCode), @r#"
        {
          "inputs": [
            {
              "type": "promptString",
              "id": "notion-NOTION_TOKEN",
              "description": "NOTION_TOKEN for notion",
              "password": true
            }
          ],
          "servers": {
            "notion": {
              "type": "stdio",
              "command": "/usr/local/bin/strait",
              "args": [
                "launch",
                "notion"
              ],
              "env": {
                "LANG": "${env:LANG}",
                "NOTION_TOKEN": "${input:notion-NOTION_TOKEN}"
              }
            }
          }
        }
        "#);
    }

    #[test]
    fn codex_is_told_names() {
        insta::assert_snapshot!(notion(ClientKind::Codex), @r#"
        [mcp_servers.notion]
        command = "/usr/local/bin/strait"
        args = ["launch", "notion"]
        env_vars = ["LANG", "NOTION_TOKEN"]
        startup_timeout_sec = 30
        "#);
    }

    #[test]
    fn gemini_expands_dollars() {
        insta::assert_snapshot!(notion(ClientKind::Gemini), @r#"
        {
          "mcpServers": {
            "notion": {
              "command": "/usr/local/bin/strait",
              "args": [
                "launch",
                "notion"
              ],
              "env": {
                "LANG": "$LANG",
                "NOTION_TOKEN": "$NOTION_TOKEN"
              }
            }
          }
        }
        "#);
    }

    #[test]
    fn zed_expands_nothing() {
        insta::assert_snapshot!(notion(ClientKind::Zed), @r#"
        {
          "context_servers": {
            "notion": {
              "source": "custom",
              "enabled": true,
              "command": "/usr/local/bin/strait",
              "args": [
                "launch",
                "notion"
              ],
              "env": {
                "LANG": "REPLACE WITH THE VALUE OF LANG",
                "NOTION_TOKEN": "REPLACE WITH THE VALUE OF NOTION_TOKEN"
              }
            }
          }
        }
        "#);
    }

    /// The entry of the server in a snippet, whatever its form, and the key it stands under.
    fn read_back(client: ClientKind, text: &str) -> (String, Value) {
        let document: Value = if client == ClientKind::Codex {
            toml::from_str(text).expect("TOML")
        } else {
            serde_json::from_str(text).expect("JSON")
        };
        let servers = match client {
            ClientKind::ClaudeDesktop
            | ClientKind::ClaudeCode
            | ClientKind::Cursor
            | ClientKind::Gemini => "mcpServers",
            ClientKind::VsCode => "servers",
            ClientKind::Codex => "mcp_servers",
            ClientKind::Zed => "context_servers",
        };
        let servers = document[servers].as_object().expect("servers");
        assert_eq!(servers.len(), 1);
        let (key, entry) = servers.iter().next().expect("one");
        (key.clone(), entry.clone())
    }

    #[test]
    fn every_snippet_reads_back_as_what_went_in() {
        for client in ClientKind::ALL {
            for config in [None, Some("/etc/strait \"quoted\" \\ ü/strait.toml")] {
                let input = input("a_b.c-d", config, &["TOKEN", "OTHER"], &["LANG"]);
                let (key, entry) = read_back(client, &snippet(client, &input).text);
                let is_gemini = client == ClientKind::Gemini;
                let expected = if is_gemini { "a-b-c-d" } else { "a_b-c-d" };
                assert_eq!(key, expected, "{client}");
                assert_eq!(entry["command"], "/usr/local/bin/strait", "{client}");
                let mut arguments = vec!["launch"];
                arguments.extend(config.into_iter().flat_map(|config| ["--config", config]));
                arguments.push("a_b.c-d");
                assert_eq!(entry["args"], Value::from(arguments), "{client}");
                let variables = if client == ClientKind::Codex {
                    entry["env_vars"].clone()
                } else {
                    let env = entry["env"].as_object().expect("env");
                    env.keys().cloned().collect()
                };
                assert_eq!(variables, Value::from(vec!["LANG", "OTHER", "TOKEN"]));
            }
        }
    }

    #[test]
    fn without_variables_nothing_is_said_of_them() {
        for client in ClientKind::ALL {
            let snippet = snippet(client, &input("time", None, &[], &[]));
            let (_, entry) = read_back(client, &snippet.text);
            for key in ["env", "env_vars"] {
                assert_eq!(entry.get(key), None, "{client}");
            }
            assert_eq!(snippet.note, None);
            assert!(!snippet.text.contains("inputs"), "{client}");
            assert!(snippet.text.ends_with('\n') && !snippet.text.ends_with("\n\n"));
        }
    }

    #[test]
    fn every_question_of_vscode_is_the_one_that_is_meant() {
        let input = input("a.b", None, &["TOKEN", "OTHER"], &[]);
        let text = snippet(ClientKind::VsCode, &input).text;
        let document: Value = serde_json::from_str(&text).expect("JSON");
        let asked: Vec<_> = document["inputs"]
            .as_array()
            .expect("inputs")
            .iter()
            .collect();
        assert_eq!(asked.len(), 2);
        for question in asked {
            let id = question["id"].as_str().expect("an id");
            let name = id.strip_prefix("a.b-").expect("the server's");
            let value = format!("${{input:{id}}}");
            assert_eq!(document["servers"]["a-b"]["env"][name], Value::from(value));
            assert_eq!(question["password"], Value::from(true));
        }
    }

    #[test]
    fn a_placeholder_that_was_left_is_known() {
        let server = ServerName::parse("notion").expect("a name");
        let is_left = |value: &str| is_placeholder(&server, &names(&["TOKEN"])[0], value);
        for client in ClientKind::ALL {
            let input = input("notion", None, &["TOKEN"], &[]);
            let (_, entry) = read_back(client, &snippet(client, &input).text);
            if let Some(value) = entry["env"]["TOKEN"].as_str() {
                assert!(is_left(value), "{client}: {value}");
            }
        }
        for value in ["", "secret-1", "$OTHER", "$TOKEN1", "a${TOKEN}"] {
            assert!(!is_left(value), "{value:?}");
        }
    }

    #[test]
    fn a_client_is_named_by_its_word() {
        for client in ClientKind::ALL {
            assert_eq!(ClientKind::parse(client.word()), Ok(client));
            assert!(
                !snippet(client, &input("a", None, &[], &[]))
                    .places
                    .is_empty()
            );
        }
        let error = ClientKind::parse("windsurf").expect_err("not yet");
        insta::assert_snapshot!(error, @"`windsurf` is not a client strait knows; write one of claude-desktop, claude-code, cursor, vscode, codex, gemini, zed");
    }

    #[test]
    fn a_path_that_a_client_would_change_is_refused() {
        let name = || ServerName::parse("a").expect("a name");
        for path in ["/opt/$HOME/strait", "/opt/${A}/strait", "/opt/a\n/strait"] {
            let path = Path::new(path);
            assert_eq!(
                SnippetInput::new(path, name(), None, &[], &[]),
                Err(SnippetError::Characters(path.to_owned()))
            );
        }
        let (program, config) = (Path::new("/bin/strait"), Path::new("strait.toml"));
        assert_eq!(
            SnippetInput::new(program, name(), Some(config), &[], &[]),
            Err(SnippetError::NotAbsolute(config.to_owned()))
        );
    }
}
