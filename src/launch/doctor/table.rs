//! The doctor's report, for a person and for a program.

use std::fmt;

use serde::Serialize;

use super::judge::{Row, State};

/// Columns of a terminal, of the titles, and of the states.
const WIDTH: usize = 80;
const TITLE: usize = 32;
const STATE: usize = 13;

/// What the doctor says.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// The runtime, with its version.
    pub runtime: String,
    /// Whether nothing is bad.
    pub is_sound: bool,
    /// The table.
    pub rows: Vec<Row>,
}

impl Examination {
    /// Of these rows.
    pub fn new(runtime: String, rows: Vec<Row>) -> Self {
        Self {
            runtime,
            is_sound: rows.iter().all(|row| !row.state.is_bad()),
            rows,
        }
    }

    fn of(&self, state: State) -> Vec<&str> {
        let rows = self.rows.iter().filter(|row| row.state == state);
        rows.map(|row| row.id).collect()
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let mut lines = wrap(&row.detail, WIDTH - TITLE - STATE).into_iter();
            let first = lines.next().unwrap_or_default();
            let line = format!("{:TITLE$}{:STATE$}{first}", row.title, word(row.state));
            writeln!(f, "{}", line.trim_end())?;
            for line in lines {
                writeln!(f, "{:1$}{line}", "", TITLE + STATE)?;
            }
        }
        let (open, failing) = (self.of(State::Open), self.of(State::Fails));
        writeln!(f)?;
        if self.is_sound {
            let what = "What must be closed is closed, and what must work works";
            paragraph(f, &format!("{what} ({}).", self.runtime))?;
        }
        if !open.is_empty() {
            paragraph(f, &format!("OPEN: {} ({}).", open.join(", "), self.runtime))?;
        }
        if !failing.is_empty() {
            paragraph(
                f,
                &format!("FAILS: {} ({}).", failing.join(", "), self.runtime),
            )?;
        }
        let unlimited = self.of(State::NotInForce);
        if !unlimited.is_empty() {
            let text = format!(
                "NOT IN FORCE, because the runtime cannot here: {}.",
                unlimited.join(", ")
            );
            paragraph(f, &text)?;
        }
        Ok(())
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Closed => "closed",
        State::Open => "OPEN",
        State::Works => "works",
        State::Fails => "FAILS",
        State::NotInForce => "NOT IN FORCE",
        State::NotChecked => "not checked",
    }
}

fn paragraph(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    wrap(text, WIDTH)
        .iter()
        .try_for_each(|line| writeln!(f, "{line}"))
}

/// Lines of at most `width` characters, broken between words where that can be.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for part in letters.chunks(width) {
            let length = line.chars().count();
            if length > 0 && length + 1 + part.len() > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.extend(part);
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &'static str, state: State, detail: &str) -> Row {
        Row {
            id,
            title: "A title",
            state,
            detail: detail.to_owned(),
        }
    }

    #[test]
    fn a_table_fits_eighty_columns() {
        let long = "word ".repeat(30) + &"x".repeat(100);
        let rows = vec![
            row("one", State::Open, &long),
            row("two", State::NotInForce, ""),
        ];
        let text = Examination::new("podman 4.3.1".to_owned(), rows).to_string();
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.contains("OPEN: one (podman 4.3.1)."), "{text}");
        assert!(text.contains("cannot here: two."), "{text}");
    }

    #[test]
    fn what_is_not_in_force_or_not_checked_is_not_bad() {
        for (state, is_sound) in [
            (State::Closed, true),
            (State::Works, true),
            (State::NotInForce, true),
            (State::NotChecked, true),
            (State::Open, false),
            (State::Fails, false),
        ] {
            let rows = vec![row("one", State::Closed, "none"), row("two", state, "")];
            assert_eq!(
                Examination::new(String::new(), rows).is_sound,
                is_sound,
                "{state:?}"
            );
        }
    }
}
