//! Removes what dead launches left.
//!
//! The last of four nets: a launch cleans up after itself, its reaper does when it is killed, its
//! sidecar ends with its lifeline; what is left when the whole machine went down is found here, by
//! its labels. Labels alone prove nothing: an image has labels too, and whatever somebody else makes
//! from it has them. So the name must be the one these labels lead to, which no image can choose.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::exec::{Exec, Output};
use super::machine;
use super::owner::Owner;
use super::plan::{Argv, OWNER_LABEL, RUN_LABEL, SERVER_LABEL};
use super::runtime::RuntimeKind;
use super::spec::{RunId, ServerName};
use super::survey::{Found, SurveyError};

/// Something that a launch made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its name.
    pub name: String,
    /// What it is.
    pub what: What,
    /// Whose it is.
    pub owner: Owner,
}

/// What can be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A container; removed first.
    Container,
    /// A network.
    Network,
}

impl What {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Network => "network",
        }
    }

    /// The ends of the names that a launch gives.
    fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Container => &["proxy", "server", "neighbour"],
            Self::Network => &["in", "out"],
        }
    }

    fn list(self, found: &Found) -> Argv {
        let words: &[&str] = match self {
            Self::Container => &["ps", "--all", "--quiet", "--no-trunc"],
            Self::Network => &["network", "ls", "--quiet", "--no-trunc"],
        };
        // podman's networks have names of their own length, and no such option.
        let is_short = self == Self::Network && found.kind() == RuntimeKind::Podman;
        let words = words
            .iter()
            .filter(|word| !is_short || **word != "--no-trunc");
        let words: Vec<&str> = words.copied().collect();
        found
            .argv(&words)
            .set("--filter", format_args!("label={RUN_LABEL}"))
    }

    fn inspect(self, found: &Found, ids: &[&str]) -> Argv {
        let argv = found.argv(match self {
            Self::Container => &["container", "inspect"],
            Self::Network => &["network", "inspect"],
        });
        ids.iter().fold(argv, |argv, id| argv.operand(*id))
    }

    fn remove(self, found: &Found, name: &str) -> Argv {
        let argv = found.argv(match (self, found.kind()) {
            (Self::Container, RuntimeKind::Podman) => &["rm", "--force", "--volumes", "--time=0"],
            (Self::Container, RuntimeKind::Docker) => &["rm", "--force", "--volumes"],
            (Self::Network, _) => &["network", "rm"],
        });
        argv.operand(name)
    }
}

/// What became of something that was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// What it is.
    pub left: Left,
    /// Why it is still there; `None` where it was removed.
    pub complaint: Option<String>,
}

/// A container as both runtimes describe it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedContainer {
    name: String,
    config: ContainerConfig,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContainerConfig {
    labels: Option<BTreeMap<String, String>>,
}

/// A network: docker's names are capitalised, podman's are not.
#[derive(Debug, Deserialize)]
struct InspectedNetwork {
    #[serde(alias = "Name")]
    name: String,
    #[serde(alias = "Labels", default)]
    labels: Option<BTreeMap<String, String>>,
}

/// Reads what `inspect` says of things with our label; what is not ours, whatever its labels say, is
/// left out.
pub fn parse(what: What, answer: &[u8]) -> Result<Vec<Left>, serde_json::Error> {
    let named: Vec<(String, Option<BTreeMap<String, String>>)> = match what {
        What::Container => serde_json::from_slice::<Vec<InspectedContainer>>(answer)?
            .into_iter()
            .map(|container| (container.name, container.config.labels))
            .collect(),
        What::Network => serde_json::from_slice::<Vec<InspectedNetwork>>(answer)?
            .into_iter()
            .map(|network| (network.name, network.labels))
            .collect(),
    };
    let ours = named.into_iter().filter_map(|(name, labels)| {
        let labels = labels?;
        // docker's names have a slash in front.
        let name = name.strip_prefix('/').unwrap_or(&name);
        let server = ServerName::parse(labels.get(SERVER_LABEL)?).ok()?;
        let run = RunId::parse(labels.get(RUN_LABEL)?)?;
        let owner = Owner::parse(labels.get(OWNER_LABEL)?)?;
        let is_ours = what
            .parts()
            .iter()
            .any(|part| name == format!("strait-{server}-{run}-{part}"));
        is_ours.then(|| Left {
            name: name.to_owned(),
            what,
            owner,
        })
    });
    Ok(ours.collect())
}

/// Removes whatever launches of this machine left whose owner is dead, and says what became of it.
pub async fn sweep(exec: &Exec, found: &Found, here: &Owner) -> Result<Vec<Swept>, SurveyError> {
    let (containers, networks) = tokio::join!(
        list(exec, found, What::Container),
        list(exec, found, What::Network)
    );
    let mut swept = Vec::new();
    for left in containers?.into_iter().chain(networks?) {
        if !left.owner.is_dead(here, machine::started) {
            continue;
        }
        let complaint = match exec.ask(&left.what.remove(found, &left.name)).await {
            Ok(done) if done.status.success() => None,
            Ok(done) => Some(done.complaint()),
            Err(error) => Some(error.to_string()),
        };
        swept.push(Swept { left, complaint });
    }
    Ok(swept)
}

async fn list(exec: &Exec, found: &Found, what: What) -> Result<Vec<Left>, SurveyError> {
    let listed = succeeded(found, exec.ask(&what.list(found)).await?)?;
    let ids = String::from_utf8_lossy(&listed.stdout).into_owned();
    let ids: Vec<&str> = ids.split_ascii_whitespace().collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    // One that goes in between fails the question as a whole; the next sweep finds the rest.
    let inspected = exec.ask(&what.inspect(found, &ids)).await?;
    parse(what, &inspected.stdout).map_err(|error| SurveyError::Broken {
        kind: found.kind(),
        program: found.program().to_owned(),
        complaint: error.to_string(),
    })
}

fn succeeded(found: &Found, answer: Output) -> Result<Output, SurveyError> {
    if answer.status.success() {
        return Ok(answer);
    }
    Err(SurveyError::Broken {
        kind: found.kind(),
        program: found.program().to_owned(),
        complaint: answer.complaint(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(run: &str, owner: &str, server: &str) -> String {
        serde_json::json!({"strait.run": run, "strait.owner": owner, "strait.server": server, "x": "y"})
            .to_string()
    }

    #[test]
    fn only_what_has_the_name_its_labels_lead_to_is_ours() {
        let good = labels("0123456789ab", "desk boot 12 3456", "notion");
        for (name, labels, is_ours) in [
            ("/strait-notion-0123456789ab-proxy", good.as_str(), true),
            ("strait-notion-0123456789ab-server", &good, true),
            // A stranger's container, made from an image that imitates our labels.
            ("/hopeful_curie", &good, false),
            ("/strait-notion-0123456789ab-in", &good, false),
            ("/strait-other-0123456789ab-proxy", &good, false),
            ("/strait-notion-0123456789ac-proxy", &good, false),
            (
                "/strait-notion-0123456789ab-proxy",
                &labels("x", "desk boot 12 3456", "notion"),
                false,
            ),
            (
                "/strait-notion-0123456789ab-proxy",
                &labels("0123456789ab", "me", "notion"),
                false,
            ),
            ("/strait-notion-0123456789ab-proxy", "{}", false),
            ("/strait-notion-0123456789ab-proxy", "null", false),
        ] {
            let answer = format!(r#"[{{"Name":"{name}","Config":{{"Labels":{labels}}}}}]"#);
            let found = parse(What::Container, answer.as_bytes()).expect("its shape");
            assert_eq!(!found.is_empty(), is_ours, "{name} {labels}");
        }
    }

    #[test]
    fn both_runtimes_networks_are_read() {
        let good = labels("0123456789ab", "desk boot 12 3456", "notion");
        for answer in [
            format!(
                r#"[{{"Name":"strait-notion-0123456789ab-in","Labels":{good},"Internal":true}}]"#
            ),
            format!(
                r#"[{{"name":"strait-notion-0123456789ab-in","labels":{good},"internal":true}}]"#
            ),
        ] {
            let found = parse(What::Network, answer.as_bytes()).expect("its shape");
            assert_eq!(found.len(), 1, "{answer}");
            assert_eq!(found[0].owner.process, 12);
        }
        assert_eq!(parse(What::Network, b"[]").expect("none"), []);
    }
}
