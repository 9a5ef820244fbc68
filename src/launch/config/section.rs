//! A table of the file, read strictly: every way to take a value out of it refuses another kind of
//! value, with the line and the key.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Reason, Remedy, ValueError, WhichServer};
use super::{SERVER_KEYS, slip};
use crate::launch::spec::{ServerName, SpecError};

/// Parses the text as TOML, and nothing more.
pub(super) fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, ConfigError> {
    DeTable::parse(text).map_err(|error| syntax_error(text, &error))
}

fn syntax_error(text: &str, error: &toml::de::Error) -> ConfigError {
    let mut message = error.message().to_owned();
    // The parser does not name it; anywhere else, what stands there could be a secret's value.
    if message == "duplicate key"
        && let Some(key) = error.span().and_then(|span| text.get(span))
    {
        message = format!("{message} `{}`; write it once", key.trim());
    }
    ConfigError {
        line: error.span().map(|span| line_at(text, span.start)),
        server: None,
        reason: Box::new(Reason::Syntax(message)),
    }
}

/// The number of the line, from 1, that holds a byte of the text.
fn line_at(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// A table of the file, with what an error in it has to say.
#[derive(Clone)]
pub(super) struct Section<'a> {
    text: &'a str,
    table: &'a DeTable<'a>,
    span: Range<usize>,
    server: Option<WhichServer>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(super) fn top(text: &'a str, table: &'a Spanned<DeTable<'a>>) -> Self {
        Self {
            text,
            table: table.get_ref(),
            span: table.span(),
            server: None,
        }
    }

    /// The same, with errors that say the server by its name.
    pub(super) fn of(&self, server: ServerName) -> Self {
        Self {
            server: Some(WhichServer::Named(server)),
            ..self.clone()
        }
    }

    /// Its line.
    pub(super) fn line(&self) -> usize {
        line_at(self.text, self.span.start)
    }

    /// Whether a key is there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// An error in the line of the table.
    pub(super) fn error(&self, reason: Reason) -> ConfigError {
        self.error_at(self.span.clone(), reason)
    }

    fn error_at(&self, span: Range<usize>, reason: Reason) -> ConfigError {
        ConfigError {
            line: Some(line_at(self.text, span.start)),
            server: self.server.clone(),
            reason: Box::new(reason),
        }
    }

    /// A key that must be there and is not.
    pub(super) fn missing(&self, key: &'static str, example: &'static str) -> ConfigError {
        self.error(Reason::Missing { key, example })
    }

    /// What values together are refused for, in the line of a key, if it is there.
    pub(super) fn together(&self, key: &str, reason: SpecError) -> ConfigError {
        let value = self.table.get(key);
        let span = value.map_or_else(|| self.span.clone(), Spanned::span);
        self.error_at(span, Reason::Together(reason))
    }

    /// Refuses the first key that is not one of these.
    pub(super) fn check_keys(&self, known: &'static [&'static str]) -> Result<(), ConfigError> {
        let unknown = self
            .table
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start);
        match unknown {
            Some(key) => {
                let name = key.get_ref();
                let reason = Reason::UnknownKey {
                    key: name.to_string(),
                    remedy: remedy(name, known, self.server.is_some()),
                };
                Err(self.error_at(key.span(), reason))
            }
            None => Ok(()),
        }
    }

    /// The tables of the servers.
    pub(super) fn servers(&self) -> Result<Vec<Self>, ConfigError> {
        let Some(value) = self.table.get("server") else {
            return Ok(Vec::new());
        };
        let not_tables = || self.error_at(value.span(), Reason::ServerTable);
        let tables = value.get_ref().as_array().ok_or_else(not_tables)?;
        let tables = tables.iter().enumerate().map(|(index, table)| {
            Ok(Section {
                text: self.text,
                table: table.get_ref().as_table().ok_or_else(not_tables)?,
                span: table.span(),
                server: Some(WhichServer::Numbered(index + 1)),
            })
        });
        tables.collect()
    }

    /// The one value of a key, parsed.
    pub(super) fn value<T, E: Into<ValueError>>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ConfigError> {
        let value = self.table.get(key);
        value
            .map(|value| self.parsed(key.to_owned(), value, parse))
            .transpose()
    }

    /// The values of a list, parsed; none if the key is absent.
    pub(super) fn list<T, E: Into<ValueError>>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, ConfigError> {
        let Some(value) = self.table.get(key) else {
            return Ok(Vec::new());
        };
        let Some(list) = value.get_ref().as_array() else {
            // What holds a `=` could be a variable with its value.
            let text = value.get_ref().as_str();
            let text = text.filter(|text| !text.contains('=')).unwrap_or("…");
            let instead = format!("{key} = [{text:?}]");
            return Err(self.error_at(value.span(), Reason::NotList { key, instead }));
        };
        let parsed = list.iter().enumerate().map(|(index, entry)| {
            let key = format!("{key}[{index}]");
            self.parsed(key, entry, &parse)
        });
        parsed.collect()
    }

    /// One string, parsed.
    fn parsed<T, E: Into<ValueError>>(
        &self,
        key: String,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, ConfigError> {
        let reason = match value.get_ref().as_str().map(parse) {
            Some(Ok(parsed)) => return Ok(parsed),
            Some(Err(reason)) => Reason::Value {
                key,
                reason: reason.into(),
            },
            None => Reason::NotText {
                key,
                found: kind_of(value.get_ref()),
            },
        };
        Err(self.error_at(value.span(), reason))
    }

    /// A number, of a kind that holds no sign.
    pub(super) fn number<T: TryFrom<u64>>(
        &self,
        key: &'static str,
        example: &'static str,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let integer = value.get_ref().as_integer();
        let number = integer
            .and_then(|integer| u64::from_str_radix(integer.as_str(), integer.radix()).ok())
            .and_then(|number| T::try_from(number).ok());
        if number.is_some() {
            return Ok(number);
        }
        let kind = || kind_of(value.get_ref()).to_owned();
        let reason = Reason::NotNumber {
            key,
            found: integer.map_or_else(kind, ToString::to_string),
            example,
        };
        Err(self.error_at(value.span(), reason))
    }
}

/// What stands there, in words.
fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value.type_str() {
        "string" => "a text",
        "integer" => "a number",
        "float" => "a fraction",
        "boolean" => "true or false",
        "datetime" => "a date",
        "array" => "a list",
        _ => "a table",
    }
}

/// What to do about a key that is not among the known ones.
fn remedy(key: &str, known: &'static [&'static str], is_in_server: bool) -> Remedy {
    if !is_in_server && SERVER_KEYS.contains(&key) {
        return Remedy::MoveToServer;
    }
    if is_in_server && key == "runtime" {
        return Remedy::MoveToTop;
    }
    match slip::meant(key, known) {
        Some(meant) => Remedy::Write(meant),
        None => Remedy::Choose(known),
    }
}
