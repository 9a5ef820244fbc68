//! `strait launch` and what belongs to it: from the flags to an exit code. What is read of this machine
//! (its environment, its configuration) is read here.

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use serde_json::json;
use tokio::runtime;

use strait::launch::config::{Config, Server};
use strait::launch::exec::{Exec, code};
use strait::launch::locations::{Locations, System};
use strait::launch::plan::{Inmate, Subnets};
use strait::launch::snippet::{self, SnippetInput};
use strait::launch::spec::{EnvName, LaunchSpec, ServerName};
use strait::launch::survey::{self, Found, Request, RuntimeChoice};
use strait::launch::{FAILED, Launch, Setting, Stop, machine, reaper, sweep, workspace};

use crate::cli::{
    ConfigArgs, LaunchArgs, ListArgs, PullArgs, RuntimeArgs, SandboxArgs, SnippetArgs, SweepArgs,
};
use crate::notices::{self, notice};
use crate::{Misuse, print};

/// Says something to the user, and who says it, in every line.
pub(crate) fn say(text: &str) {
    for line in text.lines() {
        notice(format_args!("strait: {line}"));
    }
}

/// Runs something that starts processes. Its own failures have an exit code of their own, as those of
/// the runtimes do.
pub(crate) fn run(
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    // What is said here must not hold up what it is about.
    notices::start()?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(work);
    // A thread that still reads the client's input must not hold up the end.
    runtime.shutdown_background();
    match outcome {
        Err(error) if !error.is::<Misuse>() => {
            say(&format!("{error:#}"));
            Ok(ExitCode::from(FAILED))
        }
        outcome => outcome,
    }
}

/// This machine, as far as a launch is concerned.
pub(crate) struct Here {
    locations: Locations,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl Here {
    pub(crate) fn look() -> anyhow::Result<Self> {
        let mut environment: Vec<(OsString, OsString)> = env::vars_os().collect();
        let home = env::home_dir().ok_or_else(|| anyhow!("no home folder; set HOME"))?;
        let (user, _) = machine::user();
        let variable = |name: &str| {
            let set = environment.iter().find(|(set, _)| set == name);
            set.map(|(_, value)| value.clone())
        };
        let locations = Locations::new(System::HERE, variable, user, &home).context(Misuse)?;

        // MCP clients pass on six variables. A runtime needs two more, and helpers that it looks for.
        let runtime_folder = locations
            .derived_runtime_folder()
            .filter(|folder| fs::metadata(folder).is_ok_and(|it| it.is_dir() && it.uid() == user));
        if let Some(folder) = runtime_folder {
            environment.push(("XDG_RUNTIME_DIR".into(), folder.into()));
        }
        let path = env::join_paths(locations.program_folders())?;
        environment.retain(|(name, _)| name != "PATH" && name != "HOME");
        environment.extend([("PATH".into(), path), ("HOME".into(), home.into())]);
        Ok(Self {
            locations,
            environment,
        })
    }

    /// What no server may see or change.
    fn protected(&self, options: &ConfigArgs) -> Vec<PathBuf> {
        let mut protected = self.locations.protected(&self.config_file(options));
        let sockets = ["DOCKER_HOST", "CONTAINER_HOST"].iter().filter_map(|name| {
            let (_, value) = self.environment.iter().find(|(set, _)| set == name)?;
            value.to_str()?.strip_prefix("unix://").map(PathBuf::from)
        });
        protected.extend(sockets);
        protected
    }

    fn config_file(&self, options: &ConfigArgs) -> PathBuf {
        let named = options.config.clone();
        named.unwrap_or_else(|| self.locations.config_file())
    }

    fn config(&self, options: &ConfigArgs) -> anyhow::Result<Config> {
        let path = self.config_file(options);
        let text = crate::read_bounded(&path)
            .with_context(|| format!("cannot read the configuration `{}`", path.display()))
            .context(Misuse)?;
        Config::parse(&text)
            .with_context(|| format!("in `{}`", path.display()))
            .context(Misuse)
    }

    pub(crate) fn request(&self, options: &RuntimeArgs, config: Option<&Config>) -> Request {
        let configured = config.and_then(Config::runtime).map(RuntimeChoice::from);
        Request {
            runtime: options.runtime.clone().or(configured),
            folders: self.locations.program_folders().to_vec(),
            proxy_program: options.proxy_binary.clone(),
            cache: self.locations.cache_folder().to_owned(),
        }
    }

    pub(crate) fn exec(&self) -> Arc<Exec> {
        Arc::new(Exec::new(self.environment.clone()))
    }
}

/// A server and where it comes from.
pub(crate) struct Chosen {
    pub(crate) spec: LaunchSpec,
    pub(crate) config: Option<Config>,
}

impl Chosen {
    /// The server of the flags, or of the configuration; `None` where the flags name none.
    pub(crate) fn find(here: &Here, options: &SandboxArgs) -> anyhow::Result<Option<Self>> {
        match &options.server {
            Some(name) => Self::configured(here, options, name).map(Some),
            None => Self::unconfigured(here, options),
        }
    }

    fn unconfigured(here: &Here, options: &SandboxArgs) -> anyhow::Result<Option<Self>> {
        let flags = &options.unconfigured;
        let mounts = match &flags.workspace {
            Some(folder) => {
                let folder = std::path::absolute(folder)?;
                let protected = here.protected(&options.config);
                workspace::resolve(&folder, &flags.mount, &protected).context(Misuse)?
            }
            None if flags.mount.is_empty() => Vec::new(),
            None => {
                return Err(anyhow!(
                    "a --mount is a folder in a workspace; add --workspace FOLDER"
                ))
                .context(Misuse);
            }
        };
        let spec = flags.spec(mounts).transpose().context(Misuse)?;
        Ok(spec.map(|spec| Self { spec, config: None }))
    }

    fn configured(here: &Here, options: &SandboxArgs, name: &ServerName) -> anyhow::Result<Self> {
        let config = here.config(&options.config)?;
        let server = config.server(name).context(Misuse)?;
        let mounts = match server.workspace() {
            Some(workspace) if !server.mounts().is_empty() => {
                let folder = workspace.path(here.locations.home());
                workspace::resolve(&folder, server.mounts(), &here.protected(&options.config))
                    .with_context(|| format!("server `{name}`"))
                    .context(Misuse)?
            }
            Some(_) | None => Vec::new(),
        };
        let spec = server.spec(mounts).context(Misuse)?;
        Ok(Self {
            spec,
            config: Some(config),
        })
    }

    fn is_configured(&self) -> bool {
        self.config.is_some()
    }
}

/// Refuses a launch whose variables are not there: a server without its token fails in ways that
/// nobody connects with it.
fn check_variables(here: &Here, spec: &LaunchSpec) -> anyhow::Result<()> {
    let is_usable = |name: &EnvName| {
        here.environment.iter().any(|(set, value)| {
            let is_placeholder = value
                .to_str()
                .is_some_and(|value| snippet::is_placeholder(spec.name(), name, value));
            set == name.as_str() && !value.is_empty() && !is_placeholder
        })
    };
    let parts = spec.parts();
    if let Some(missing) = parts.secret.iter().find(|name| !is_usable(name)) {
        return Err(anyhow!(
            "the secret `{}` has no value in the environment of strait; set it where the client's \
             configuration has its `env`",
            missing.as_str()
        ))
        .context(Misuse);
    }
    for name in parts.env.iter().filter(|name| !is_usable(name)) {
        say(&format!(
            "`{}` is not set, so the server does not get it",
            name.as_str()
        ));
    }
    Ok(())
}

/// Launches a server and stays until it has ended.
pub(crate) fn launch(options: LaunchArgs) -> anyhow::Result<ExitCode> {
    run(launch_here(options))
}

async fn launch_here(options: LaunchArgs) -> anyhow::Result<ExitCode> {
    let stop = Stop::watch()?;
    let here = Here::look()?;
    let chosen = Chosen::find(&here, &options.sandbox)?
        .ok_or_else(|| anyhow!("which server? Give the NAME of a configured one, or an --image"))
        .context(Misuse)?;
    let spec = &chosen.spec;
    let audit = match options.audit {
        Some(path) if path == Path::new("none") => None,
        // Without a network there are no attempts.
        _ if !spec.has_network() => None,
        Some(path) => Some(path),
        None => Some(here.locations.audit_file(spec.name())),
    };
    let setting = Setting {
        environment: here.environment.clone(),
        audit,
        grace: options.grace,
        is_configured: chosen.is_configured(),
        notice: say,
    };
    let request = here.request(&options.sandbox.runtime, chosen.config.as_ref());
    let server = chosen.is_configured().then_some(spec.name().as_str());
    let has_network = spec.has_network();
    let survey = survey::survey(&here.exec(), &request, spec.image(), server, has_network).await?;
    if !options.print {
        check_variables(&here, spec)?;
    }
    let launch = Launch {
        spec: chosen.spec,
        survey,
        setting,
        run: machine::run_id()?,
        owner: machine::owner(),
    };
    if options.print {
        let plan = launch.plan(Inmate::Server, Subnets::default())?;
        print(plan.to_string().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    match launch.run(stop).await {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(error) => {
            say(&error.to_string());
            Ok(ExitCode::from(error.code()))
        }
    }
}

/// Pulls the image of a configured server.
pub(crate) fn pull(options: &PullArgs) -> anyhow::Result<ExitCode> {
    run(async {
        let here = Here::look()?;
        let config = here.config(&options.config)?;
        let server = config.server(&options.server).context(Misuse)?;
        let image = server.image();
        if !image.has_name() {
            return Err(anyhow!(
                "{image} is the id of an image on this machine, and no registry has it by that; make \
                 or load it, or write NAME@sha256:DIGEST"
            ))
            .context(Misuse);
        }
        let found = Found::find(&here.request(&options.runtime, Some(&config)))?;
        let status = here.exec().show(&found.pull(image)).await?;
        Ok(ExitCode::from(code(status)))
    })
}

/// Shows the configured servers.
pub(crate) fn list(options: &ListArgs) -> anyhow::Result<ExitCode> {
    run(async {
        let here = Here::look()?;
        let config = here.config(&options.config)?;
        let (exec, found) = (
            here.exec(),
            Found::find(&here.request(&options.runtime, Some(&config))),
        );
        let found = found?;
        // What is wrong with the runtime is told as that, and not as images that are not here.
        found.facts(&exec).await?;
        let mut text = String::new();
        for server in config.servers() {
            let image = server.image().to_string();
            let is_here = found.image(&exec, &image).await?.is_some();
            let network: Vec<String> = server.network().iter().map(ToString::to_string).collect();
            if options.json {
                let name = server.name().as_str();
                let line =
                    json!({"name": name, "image": image, "present": is_here, "network": network});
                writeln!(text, "{line}")?;
            } else {
                text += &entry(server, &image, is_here, &network)?;
            }
        }
        if text.is_empty() && !options.json {
            say("no server is configured; write a [[server]], see `strait launch --help`");
        }
        print(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    })
}

fn entry(
    server: &Server,
    image: &str,
    is_here: bool,
    network: &[String],
) -> anyhow::Result<String> {
    let mut text = String::new();
    let name = server.name();
    writeln!(text, "{name}")?;
    let here = if is_here {
        "here".to_owned()
    } else if server.image().has_name() {
        format!("not here; `strait pull {name}` pulls it")
    } else {
        "not here".to_owned()
    };
    writeln!(text, "  image    {image}\n           {here}")?;
    let network = if network.is_empty() {
        "none".to_owned()
    } else {
        network.join(", ")
    };
    writeln!(text, "  network  {network}")?;
    Ok(text)
}

/// Removes what dead launches left.
pub(crate) fn sweep(options: &SweepArgs) -> anyhow::Result<ExitCode> {
    run(async {
        let here = Here::look()?;
        let found = Found::find(&here.request(&options.runtime, None))?;
        let swept = sweep::sweep(&here.exec(), &found, &machine::owner()).await?;
        let mut text = String::new();
        let mut is_clean = true;
        for sweep::Swept { left, complaint } in &swept {
            let what = left.what.word();
            match complaint {
                None => writeln!(text, "removed {what} {}", left.name)?,
                Some(complaint) => {
                    is_clean = false;
                    say(&format!("cannot remove {what} {}: {complaint}", left.name));
                }
            }
        }
        if swept.is_empty() {
            text.push_str("nothing is left of dead launches\n");
        }
        print(text.as_bytes())?;
        Ok(if is_clean {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

/// Prints what makes a client launch a server.
pub(crate) fn config(options: &SnippetArgs) -> anyhow::Result<ExitCode> {
    let here = Here::look()?;
    let config = here.config(&options.config)?;
    let server = config.server(&options.server).context(Misuse)?;
    let name: ServerName = server.name().clone();
    // Named wherever the client's strait would look elsewhere: it has HOME, and no XDG_CONFIG_HOME.
    let file = std::path::absolute(here.config_file(&options.config))?;
    let is_default = file == here.locations.home().join(".config/strait/strait.toml");
    let file = (!is_default).then_some(file);
    let program = machine::own_program()?;
    let input = SnippetInput::new(
        &program,
        name,
        file.as_deref(),
        server.secret(),
        server.env(),
    )
    .context(Misuse)?;
    let snippet = snippet::snippet(options.client, &input);
    for place in snippet.places {
        notice(format_args!("# {}: {}", place.scope, place.file));
    }
    if let Some(note) = snippet.note {
        notice(format_args!("# {note}"));
    }
    // The text alone, so that it can be redirected into a file.
    print(snippet.text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The reaper: see [`reaper`].
pub(crate) fn reap() -> anyhow::Result<ExitCode> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let control = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let leash = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let exec = Exec::new(env::vars_os().collect());
    // What it says is read by the launch that started it.
    runtime.block_on(reaper::reap(exec, control, leash, io::stdout()))?;
    Ok(ExitCode::SUCCESS)
}
