//! Plans as text, for each runtime, and what must hold for any of them.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::launch::runtime::{ImageConfig, LimitsInForce};
use crate::launch::spec::{EnvName, ImageRef, MountRequest, ServerName, SpecParts, WorkloadLimits};
use crate::rule::Rule;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const EMPTY: &str = "sha256:eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";

/// podman as root, podman as a user on control groups v1, and docker before and after it learned to
/// isolate a gateway.
fn runtimes() -> [(&'static str, RuntimeFacts); 4] {
    let facts = |kind: RuntimeKind, version, is_rootless| RuntimeFacts {
        kind,
        program: format!("/usr/bin/{}", kind.program()),
        version,
        is_rootless,
        limits: if is_rootless {
            LimitsInForce {
                memory: false,
                processes: false,
            }
        } else {
            LimitsInForce::ALL
        },
        architecture: "amd64".to_owned(),
        has_selinux: false,
        has_ipv6: true,
    };
    [
        (
            "podman",
            facts(RuntimeKind::Podman, Version(4, 3, 1), false),
        ),
        (
            "rootless podman",
            facts(RuntimeKind::Podman, Version(4, 3, 1), true),
        ),
        (
            "docker 20",
            facts(RuntimeKind::Docker, Version(20, 10, 24), false),
        ),
        (
            "docker 28",
            facts(RuntimeKind::Docker, Version(28, 0, 0), false),
        ),
    ]
}

fn image(volumes: &[&str]) -> ImageFacts {
    ImageFacts {
        id: DIGEST.to_owned(),
        architecture: "amd64".to_owned(),
        layers: Vec::new(),
        config: ImageConfig {
            volumes: volumes.iter().map(ToString::to_string).collect(),
            ..ImageConfig::default()
        },
    }
}

fn spec(parts: SpecParts) -> LaunchSpec {
    let name = ServerName::parse("notion").expect("a name");
    let image = ImageRef::parse(DIGEST).expect("an id");
    LaunchSpec::new(name, image, parts).expect("they go together")
}

fn mount(text: &str) -> Mount {
    let request = MountRequest::parse(text).expect("a mount");
    Mount::new(
        &Path::new("/home/me/project").join(request.folder()),
        &request,
    )
    .expect("plain")
}

fn everything() -> SpecParts {
    let rules = [
        "api.notion.com",
        "db.example.com:5432",
        "[2606:4700::1111]:443",
    ];
    SpecParts {
        network: rules
            .iter()
            .map(|rule| Rule::parse(rule).expect("a rule"))
            .collect(),
        allow_net: vec!["10.1.0.0/16".parse().expect("a network")],
        resolver: Some("10.1.0.53:53".parse().expect("an address")),
        secret: vec![EnvName::parse("NOTION_TOKEN").expect("a name")],
        env: vec![EnvName::parse("LANG").expect("a name")],
        mounts: vec![mount("docs:read"), mount("out:write")],
        command: Some(vec!["node".to_owned(), "server.js".to_owned()]),
        arguments: vec!["--privileged".to_owned(), "two words".to_owned()],
        limits: WorkloadLimits::default(),
    }
}

fn plan_of(
    spec: &LaunchSpec,
    runtime: &RuntimeFacts,
    image: &ImageFacts,
) -> Result<Plan, PlanError> {
    plan_with(spec, runtime, image, Inmate::Server, Subnets::default())
}

fn plan_with(
    spec: &LaunchSpec,
    runtime: &RuntimeFacts,
    image: &ImageFacts,
    inmate: Inmate,
    subnets: Subnets,
) -> Result<Plan, PlanError> {
    Plan::new(&Scene {
        spec,
        runtime,
        image,
        empty_image: EMPTY,
        program: "/home/me/.cache/strait/abc/strait",
        hosts_file: "/home/me/.cache/strait/hosts",
        resolver_file: "/home/me/.cache/strait/resolv.conf",
        run: &RunId::parse("0123456789ab").expect("an id"),
        owner: &Owner::parse("desk boot 12 3456").expect("an owner"),
        user: (1000, 1000),
        subnets,
        inmate,
    })
}

#[test]
fn plans_are_these_command_lines() {
    let full = spec(everything());
    let bare = spec(SpecParts::default());
    for (name, runtime) in runtimes() {
        let with = |spec: &LaunchSpec, image: &ImageFacts| {
            plan_of(spec, &runtime, image).expect("a plan").to_string()
        };
        let file = name.replace(' ', "_");
        insta::assert_snapshot!(
            format!("{file}_everything"),
            with(&full, &image(&["/data", "/workspace/docs"]))
        );
        insta::assert_snapshot!(format!("{file}_without_network"), with(&bare, &image(&[])));
    }
}

#[test]
fn a_host_with_labels_and_one_without_ipv6_are_planned_for() {
    let spec = spec(everything());
    for (_, runtime) in runtimes() {
        let labelled = RuntimeFacts {
            has_selinux: true,
            ..runtime.clone()
        };
        let text = plan_of(&spec, &labelled, &image(&[]))
            .expect("a plan")
            .to_string();
        assert!(text.contains("/strait:/strait:ro,z\n"), "{text}");
        // The user's own folders keep their labels.
        assert!(
            text.contains("source=/home/me/project/docs,target=/workspace/docs,readonly\n"),
            "{text}"
        );
        assert!(text.contains("# note: SELinux is enforcing"), "{text}");
        let old = RuntimeFacts {
            has_ipv6: false,
            ..runtime
        };
        let text = plan_of(&spec, &old, &image(&[]))
            .expect("a plan")
            .to_string();
        assert!(
            !text.contains("ipv6"),
            "a switch that is not there stops the start: {text}"
        );
    }
}

#[test]
fn the_probe_gets_what_the_server_would() {
    let spec = spec(everything());
    for (name, runtime) in runtimes() {
        let argv = |inmate| {
            let plan = plan_with(
                &spec,
                &runtime,
                &image(&["/data"]),
                inmate,
                Subnets::default(),
            );
            let words = plan.expect("a plan").workload.create.argv;
            let end = words
                .words()
                .iter()
                .position(|word| word == DIGEST)
                .expect("the image");
            words.words()[..end]
                .iter()
                .cloned()
                .collect::<BTreeSet<_>>()
        };
        let (server, probe) = (argv(Inmate::Server), argv(Inmate::Probe));
        let missing: Vec<&String> = server.difference(&probe).collect();
        let added: Vec<&String> = probe.difference(&server).collect();
        assert!(
            missing.iter().all(|word| word.starts_with("--entrypoint=")),
            "{name}: {missing:?}"
        );
        assert_eq!(added.len(), 2, "{name}: {added:?}");
    }
}

#[test]
fn networks_differ_from_try_to_try_and_stay_in_their_ranges() {
    let spec = spec(everything());
    let (_, runtime) = &runtimes()[0];
    let mut seen = BTreeSet::new();
    for taken in 0..Subnets::TRIES {
        let subnets = Subnets {
            taken,
            is_outer_ours: true,
        };
        let plan = plan_with(&spec, runtime, &image(&[]), Inmate::Server, subnets).expect("a plan");
        for (step, range) in plan.networks.iter().zip([INNER, OUTER]) {
            let subnet = step
                .argv
                .words()
                .iter()
                .find_map(|word| word.strip_prefix("--subnet="));
            let subnet: Ipv4Net = subnet.expect("one").parse().expect("a network");
            assert!(
                range.contains(&subnet) && subnet.prefix_len() == BITS && subnet.trunc() == subnet
            );
            assert!(seen.insert(subnet), "{subnet} a second time");
        }
    }
}

#[test]
fn an_image_s_volumes_are_bounded_memory_or_a_refusal() {
    let spec = spec(everything());
    let (_, docker) = &runtimes()[2];
    let tmpfs = |volumes: &[&str]| {
        let plan = plan_of(&spec, docker, &image(volumes))?;
        let words = plan.workload.create.argv.words().to_vec();
        let targets = words
            .iter()
            .filter_map(|word| word.strip_prefix("--tmpfs="));
        Ok(targets
            .map(|value| value.split(':').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>())
    };
    assert_eq!(
        tmpfs(&["/data/", "/tmp/x", "/workspace/out/deep"]),
        Ok(vec!["/tmp".into(), "/data".into()])
    );
    for bad in [
        "data", "/", "", "/proc", "/sys/x", "/dev/", "/a/../b", "/a,b", "/a:b", "/a\n", "/a//b",
    ] {
        assert_eq!(
            tmpfs(&[bad]),
            Err(PlanError::Volume(bad.to_owned())),
            "{bad:?}"
        );
    }
    let many: Vec<String> = (0..=MAX_VOLUMES)
        .map(|index| format!("/v{index}"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(tmpfs(&many), Err(PlanError::Volumes(MAX_VOLUMES + 1)));
}

#[test]
fn an_image_for_another_machine_is_refused() {
    let (_, runtime) = &runtimes()[0];
    let foreign = ImageFacts {
        architecture: "arm64".to_owned(),
        ..image(&[])
    };
    let error = plan_of(&spec(everything()), runtime, &foreign).expect_err("another machine's");
    assert!(matches!(error, PlanError::Architecture { .. }));
}

#[test]
fn what_a_terminal_would_act_on_is_shown() {
    let argv = Argv(vec![
        "a\u{1b}[2J".to_owned(),
        "b\nc".to_owned(),
        "\u{202e}d".to_owned(),
    ]);
    assert_eq!(
        argv.to_string(),
        "  a\\u{1b}[2J\n  b\\u{a}c\n  \\u{202e}d\n"
    );
}

/// What a stranger could put wherever something can be put.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "--?[a-z=]{1,12}",
        Just("--privileged".to_owned()),
        Just("--volume=/:/host".to_owned()),
        Just("-v".to_owned()),
        Just("[\"sh\"]".to_owned()),
        "[^\\x00]{1,16}",
    ]
}

prop_compose! {
    fn any_parts()(
        hosts in prop::collection::btree_set("[a-z]{1,8}\\.example(:[1-9][0-9]{0,3})?", 0..4),
        secrets in prop::collection::btree_set("S[A-Z0-9_]{1,8}", 0..3),
        variables in prop::collection::btree_set("E[A-Z0-9_]{1,8}", 0..3),
        folders in prop::collection::btree_set("[a-z-]{1,8}", 0..3),
        command in prop::option::of(prop::collection::vec(word(), 1..4)),
        arguments in prop::collection::vec(word(), 0..4),
        memory in 16..4096_u64,
        processes in 4..4096_u32,
    ) -> SpecParts {
        let network: Vec<Rule> = hosts.iter().map(|host| Rule::parse(host).expect("a rule")).collect();
        let names = |names: BTreeSet<String>| names.iter().map(|name| EnvName::parse(name).expect("a name")).collect();
        SpecParts {
            secret: if network.is_empty() { Vec::new() } else { names(secrets) },
            env: names(variables),
            mounts: folders.iter().map(|folder| mount(&format!("{folder}:read"))).collect(),
            command,
            arguments,
            limits: WorkloadLimits::new(memory, processes).expect("in range"),
            network,
            ..SpecParts::default()
        }
    }
}

/// The arguments that a runtime reads as options, and the rest.
fn options_and_operands(argv: &Argv, image: &str) -> (Vec<String>, Vec<String>) {
    let words = argv.arguments();
    let at = words
        .iter()
        .position(|word| word == image)
        .expect("the image");
    (words[..at].to_vec(), words[at + 1..].to_vec())
}

proptest! {
    #[test]
    fn any_plan_keeps_its_promises(parts in any_parts(), which in 0..4_usize, probe in any::<bool>()) {
        let (_, runtime) = &runtimes()[which];
        let spec = spec(parts.clone());
        let inmate = if probe { Inmate::Probe } else { Inmate::Server };
        let plan = plan_with(&spec, runtime, &image(&["/data"]), inmate, Subnets::default()).expect("a plan");
        let (options, operands) = options_and_operands(&plan.workload.create.argv, DIGEST);

        // The workload's only network is the internal one, or none.
        let networks: Vec<&String> = options.iter().filter(|word| word.starts_with("--network")).collect();
        prop_assert_eq!(networks.len(), 1);
        let expected = if spec.has_network() { "--network=strait-notion-0123456789ab-in" } else { "--network=none" };
        prop_assert!(networks[0].starts_with(expected));
        prop_assert_eq!(plan.networks.len(), if spec.has_network() { 2 } else { 0 });
        if let Some(inner) = plan.networks.first() {
            prop_assert!(inner.argv.words().iter().any(|word| word == "--internal"));
        }

        // Every hardening flag is there, on every container.
        let creations = plan.sidecar.iter().map(|sidecar| options_and_operands(&sidecar.steps[0].argv, EMPTY).0);
        for options in creations.chain([options.clone()]) {
            for flag in [
                "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--pull=never", "--rm",
                "--log-driver=none", "--no-healthcheck", "--sysctl=net.ipv6.conf.all.disable_ipv6=1",
                "--sysctl=net.ipv6.conf.default.disable_ipv6=1",
            ] {
                prop_assert!(options.iter().any(|word| word == flag), "{} is missing", flag);
            }
            prop_assert_eq!(options.iter().any(|word| word.starts_with("--memory=")), runtime.limits.memory);
            prop_assert_eq!(options.iter().any(|word| word.starts_with("--pids-limit=")), runtime.limits.processes);
            // None of what is one flag's value away from opening all of it.
            for word in &options {
                for never in ["--privileged", "--cap-add", "--device", "--pid", "--env-host", "--env-file", "--publish", "-"] {
                    prop_assert!(word != never && !word.starts_with(&format!("{never}=")), "{}", word);
                }
            }
        }

        // No word of the user's in option position: every one before the image is of ours, to the `=`.
        for word in options.iter().skip(1) {
            let flag = word.split('=').next().unwrap_or_default();
            prop_assert!(flag.starts_with("--") && flag[2..].bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", word);
        }
        if inmate == Inmate::Server {
            let rest = parts.command.iter().flatten().skip(1).chain(&parts.arguments);
            prop_assert_eq!(operands, rest.cloned().collect::<Vec<_>>());
        } else {
            prop_assert_eq!(operands, ["probe"]);
        }
        // No value of a variable is on a command line.
        for name in parts.secret.iter().chain(&parts.env) {
            let by_name = format!("--env={}", name.as_str());
            prop_assert!(options.contains(&by_name));
        }

        // Every effect has its undo, and every name its label.
        for step in plan.steps() {
            let is_part_of_another = step.argv.words()[1..3] == ["network", "connect"];
            prop_assert_eq!(step.undo.is_none(), is_part_of_another, "{}", step.title);
            let is_labelled = step.argv.words().iter().any(|word| word == "--label=strait.run=0123456789ab");
            prop_assert!(is_labelled || is_part_of_another, "{}", step.title);
            if let Some(undo) = &step.undo {
                let name = undo.remove.words().last().expect("a name");
                prop_assert!(name.starts_with("strait-notion-0123456789ab-"));
                let named = format!("--name={name}");
                prop_assert!(step.argv.words().iter().any(|word| word == name || *word == named));
            }
        }
    }
}
