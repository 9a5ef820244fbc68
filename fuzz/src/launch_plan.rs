//! Plans of launches: whatever a configuration and an image say, the plan keeps its promises.
//!
//! An input is a line with the folders that the image wants to write to, a tab between them, and a
//! `strait.toml` after it. Every server in it is planned, by every runtime.

use strait::launch::config::Config;
use strait::launch::owner::Owner;
use strait::launch::plan::{Inmate, Plan, Scene, Step, Subnets};
use strait::launch::runtime::{
    ImageConfig, ImageFacts, LimitsInForce, RuntimeFacts, RuntimeKind, Version,
};
use strait::launch::spec::{LaunchSpec, RunId};

const IMAGE: &str = "sha256:00000000000000000000000000000000000000000000000000000000000000aa";
const EMPTY: &str = "sha256:00000000000000000000000000000000000000000000000000000000000000ee";
/// Every option a container is made with; whatever else stands before the image was smuggled in.
const OPTIONS: [&str; 32] = [
    "--interactive",
    "--rm",
    "--name",
    "--label",
    "--pull",
    "--log-driver",
    "--read-only",
    "--cap-drop",
    "--security-opt",
    "--ipc",
    "--no-healthcheck",
    "--cgroupns",
    "--http-proxy",
    "--read-only-tmpfs",
    "--image-volume",
    "--sdnotify",
    "--systemd",
    "--sysctl",
    "--hostname",
    "--memory",
    "--memory-swap",
    "--pids-limit",
    "--dns",
    "--mount",
    "--volume",
    "--network",
    "--ip",
    "--env",
    "--tmpfs",
    "--user",
    "--entrypoint",
    "--workdir",
];
/// What stands before the image on every container.
const ALWAYS: [&str; 8] = [
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--pull=never",
    "--log-driver=none",
    "--no-healthcheck",
    "--sysctl=net.ipv6.conf.all.disable_ipv6=1",
    "--sysctl=net.ipv6.conf.default.disable_ipv6=1",
];

/// Plans every server of an input.
pub fn check(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let (volumes, text) = text.split_once('\n').unwrap_or(("", text));
    let Ok(config) = Config::parse(text) else {
        return;
    };
    let volumes = volumes.split('\t').filter(|volume| !volume.is_empty());
    let image = ImageFacts {
        id: IMAGE.to_owned(),
        architecture: "amd64".to_owned(),
        layers: Vec::new(),
        config: ImageConfig {
            volumes: volumes.map(str::to_owned).collect(),
            ..ImageConfig::default()
        },
    };
    for server in config.servers() {
        // Folders are found on a disk, and there is none here.
        let spec = server
            .spec(Vec::new())
            .expect("the configuration was checked as a whole");
        for runtime in runtimes() {
            for inmate in [Inmate::Server, Inmate::Probe] {
                check_plan(&spec, &runtime, &image, inmate);
            }
        }
    }
}

fn runtimes() -> [RuntimeFacts; 3] {
    let facts = |kind: RuntimeKind, version, is_rootless| RuntimeFacts {
        kind,
        program: format!("/usr/bin/{}", kind.program()),
        version,
        is_rootless,
        limits: LimitsInForce::ALL,
        architecture: "amd64".to_owned(),
        has_selinux: is_rootless,
        has_ipv6: true,
    };
    [
        facts(RuntimeKind::Podman, Version(4, 3, 1), true),
        facts(RuntimeKind::Docker, Version(20, 10, 24), false),
        facts(RuntimeKind::Docker, Version(28, 0, 0), false),
    ]
}

fn check_plan(spec: &LaunchSpec, runtime: &RuntimeFacts, image: &ImageFacts, inmate: Inmate) {
    let run = RunId::parse("0123456789ab").expect("an id");
    let owner = Owner::parse("desk boot 12 3456").expect("an owner");
    let plan = Plan::new(&Scene {
        spec,
        runtime,
        image,
        empty_image: EMPTY,
        program: "/cache/program",
        hosts_file: "/cache/hosts",
        resolver_file: "/cache/resolv.conf",
        run: &run,
        owner: &owner,
        user: (1000, 1000),
        subnets: Subnets::default(),
        inmate,
    });
    // An image may ask for what cannot be given, and then there is no plan.
    let Ok(plan) = plan else {
        return;
    };
    let prefix = format!("strait-{}-{run}-", spec.name());
    let options = options(&plan.workload.create, IMAGE);
    let networks: Vec<_> = options
        .iter()
        .filter(|word| word.starts_with("--network"))
        .collect();
    let expected = if spec.has_network() {
        format!("--network={prefix}in")
    } else {
        "--network=none".to_owned()
    };
    assert!(
        networks.len() == 1 && networks[0].starts_with(&expected),
        "{networks:?}"
    );
    assert_eq!(plan.sidecar.is_some(), spec.has_network());
    let sidecar = plan
        .sidecar
        .iter()
        .map(|sidecar| self::options(&sidecar.steps[0], EMPTY));
    for options in sidecar.chain([options]) {
        for flag in ALWAYS {
            assert!(
                options.iter().any(|word| word == flag),
                "{flag} is missing: {options:?}"
            );
        }
        for word in &options {
            let option = word.split('=').next().unwrap_or_default();
            assert!(OPTIONS.contains(&option), "{word}");
        }
    }
    for step in plan.steps() {
        let Some(undo) = &step.undo else {
            continue;
        };
        let name = undo.remove.words().last().expect("a name");
        assert!(name.starts_with(&prefix), "{name}");
        let label = format!("--label=strait.run={run}");
        assert!(step.argv.words().contains(&label), "{}", step.title);
    }
    // What is shown is one argument a line, whatever is in it.
    for step in plan.steps() {
        let shown = step.argv.to_string();
        assert_eq!(shown.lines().count(), step.argv.words().len(), "{shown}");
    }
}

/// The words that a runtime reads as options.
fn options(step: &Step, image: &str) -> Vec<String> {
    let words = step.argv.arguments();
    let end = words
        .iter()
        .position(|word| word == image)
        .expect("the image");
    assert_eq!(words[0], "create");
    words[1..end].to_vec()
}
