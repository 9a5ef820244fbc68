//! Who launched something: enough to tell, later, whether that launch is still alive.

use std::fmt;

/// The process that owns a launch. A process id alone is used again, sooner or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The machine's name: a runtime may be shared by several machines.
    pub host: String,
    /// The id of the machine's boot; `-` where there is none.
    pub boot: String,
    /// The process id.
    pub process: u32,
    /// When the process started, in the words of its machine.
    pub started: String,
}

impl Owner {
    /// Parses what [`fmt::Display`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut word = || {
            words
                .next()
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
        };
        let owner = Self {
            host: word()?,
            boot: word()?,
            process: word()?.parse().ok()?,
            started: word()?,
        };
        words.next().is_none().then_some(owner)
    }

    /// Whether this owner is known to be dead, seen from the machine of `here`, where `started` says
    /// when the process with a given id started. What another machine launched is never known.
    pub fn is_dead(&self, here: &Self, started: impl Fn(u32) -> Option<String>) -> bool {
        self.host == here.host
            && (self.boot != here.boot || started(self.process).as_ref() != Some(&self.started))
    }
}

impl fmt::Display for Owner {
    /// As a label's value: four words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |text: &str| {
            let plain: String = text
                .chars()
                .map(|letter| {
                    let is_plain = letter.is_ascii_alphanumeric() || "._:-".contains(letter);
                    if is_plain { letter } else { '_' }
                })
                .collect();
            if plain.is_empty() {
                "-".to_owned()
            } else {
                plain
            }
        };
        let (host, boot) = (word(&self.host), word(&self.boot));
        write!(f, "{host} {boot} {} {}", self.process, word(&self.started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(boot: &str, process: u32, started: &str) -> Owner {
        Owner {
            host: "desk".to_owned(),
            boot: boot.to_owned(),
            process,
            started: started.to_owned(),
        }
    }

    #[test]
    fn an_owner_survives_its_label() {
        let it = owner("0f-1e", 12, "3456");
        assert_eq!(Owner::parse(&it.to_string()), Some(it));
        let odd = Owner {
            host: "a b,c=d".to_owned(),
            ..owner("", 1, "Tue Dec 1")
        };
        assert_eq!(odd.to_string(), "a_b_c_d - 1 Tue_Dec_1");
        for text in ["", "a", "a b c d", "a b 1", "a b 1 c d", "a  1 c"] {
            assert_eq!(Owner::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_what_is_known_to_be_dead_is_dead() {
        let here = owner("boot", 99, "9");
        let started = |process| (process == 12).then(|| "3456".to_owned());
        assert!(!owner("boot", 12, "3456").is_dead(&here, started), "alive");
        assert!(
            owner("boot", 12, "1").is_dead(&here, started),
            "its id is another's now"
        );
        assert!(owner("boot", 13, "1").is_dead(&here, started), "gone");
        assert!(
            owner("earlier", 12, "3456").is_dead(&here, started),
            "before this boot"
        );
        let elsewhere = Owner {
            host: "other".to_owned(),
            ..owner("boot", 13, "1")
        };
        assert!(!elsewhere.is_dead(&here, started), "another machine's");
    }
}
