//! The known word that was obviously meant by another one.

/// Words for our keys in the configurations of clients, of other launchers, and on our own command
/// line.
const OTHER_WORDS: [(&str, &str); 10] = [
    ("allow", "network"),
    ("allowlist", "network"),
    ("args", "arguments"),
    ("cmd", "command"),
    ("dns", "resolver"),
    ("entrypoint", "command"),
    ("environment", "env"),
    ("hosts", "network"),
    ("pids", "processes"),
    ("volumes", "mounts"),
];

/// The known key that is meant by a word for the same thing, or by a slip of the pen.
pub(super) fn meant(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let other = OTHER_WORDS.iter().find(|(word, _)| *word == key);
    other
        .map(|(_, ours)| *ours)
        .filter(|ours| known.contains(ours))
        .or_else(|| nearest(key, known))
}

/// The known word that this one is obviously a slip of.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase().replace('-', "_");
    // One slip in three letters; more could be another word.
    let near = known
        .iter()
        .map(|known| (distance(&word, known), *known))
        .filter(|(distance, known)| distance * 3 <= known.len());
    near.min().map(|(_, known)| known)
}

/// How many letters are to be added, removed or changed to make one word of the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let letters = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    // The same letters in another order are one slip.
    if from != to && letters(from) == letters(to) {
        return 1;
    }
    // Row by row of the usual table: the distances from a prefix of `from` to every prefix of `to`.
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (removed, letter) in from.chars().enumerate() {
        let mut before = removed;
        let mut next = vec![removed + 1];
        for (other, above) in to.chars().zip(row.iter().skip(1)) {
            let changed = before + usize::from(letter != other);
            let left = next.last().map_or(usize::MAX, |left| left + 1);
            next.push(changed.min(left).min(above + 1));
            before = *above;
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::config::SERVER_KEYS;

    #[test]
    fn a_slip_is_told_from_another_word() {
        for (word, expected) in [
            ("networks", Some("network")),
            ("netwrok", Some("network")),
            ("nmae", Some("name")),
            ("secrets", Some("secret")),
            ("mount", Some("mounts")),
            ("ENV", Some("env")),
            ("envs", Some("env")),
            ("argument", Some("arguments")),
            ("ports", None),
            ("user", None),
            ("net", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &SERVER_KEYS), expected, "{word}");
        }
    }
}
