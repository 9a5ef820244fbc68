//! `strait launch` and what belongs to it: from the flags to an exit code.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use tokio::runtime;

use strait::launch::exec::Exec;
use strait::launch::plan::{Inmate, Subnets};
use strait::launch::survey::{self, Request};
use strait::launch::{FAILED, Launch, Setting, Stop, machine, reaper};

use crate::cli::LaunchArgs;
use crate::{Misuse, notice};

/// Launches a server and stays until it has ended.
pub(crate) fn launch(options: LaunchArgs) -> anyhow::Result<ExitCode> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(launch_here(options));
    // A thread that still reads the client's input must not hold up the end.
    runtime.shutdown_background();
    match outcome {
        Err(error) if !error.is::<Misuse>() => {
            notice(format_args!("strait: {error:#}"));
            Ok(ExitCode::from(FAILED))
        }
        outcome => outcome,
    }
}

async fn launch_here(options: LaunchArgs) -> anyhow::Result<ExitCode> {
    let stop = Stop::watch()?;
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let find = |name: &str| {
        environment
            .iter()
            .find(|(set, _)| set == name)
            .map(|(_, value)| value.clone())
    };
    let folders = std::env::split_paths(&find("PATH").unwrap_or_default())
        .filter(|path| path.is_absolute())
        .collect();
    let request = Request {
        runtime: options.runtime.clone(),
        folders,
        proxy_program: options.proxy_binary.clone(),
        cache: PathBuf::from(find("HOME").unwrap_or_default()).join(".cache/strait"),
    };
    let setting = Setting {
        environment: environment.clone(),
        audit: options.audit.clone(),
        grace: options.grace,
        is_configured: false,
        notice: say,
    };
    let is_print = options.print;
    let spec = options.spec().context(Misuse)?;
    let exec = Arc::new(Exec::new(environment));
    let survey = survey::survey(&exec, &request, spec.image(), None, spec.has_network()).await?;
    let launch = Launch {
        spec,
        survey,
        setting,
        run: machine::run_id()?,
        owner: machine::owner(),
    };
    if is_print {
        let plan = launch.plan(Inmate::Server, Subnets::default())?;
        crate::print(plan.to_string().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    match launch.run(stop).await {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(error) => {
            notice(format_args!("strait: {error}"));
            Ok(ExitCode::from(error.code()))
        }
    }
}

/// Says something to the user, and who says it, in every line.
fn say(text: &str) {
    for line in text.lines() {
        notice(format_args!("strait: {line}"));
    }
}

/// The reaper: see [`reaper`].
pub(crate) fn reap() -> anyhow::Result<ExitCode> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let control = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let leash = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let exec = Exec::new(std::env::vars_os().collect());
    // What it says is read by the launch that started it.
    runtime.block_on(reaper::reap(exec, control, leash, io::stdout()))?;
    Ok(ExitCode::SUCCESS)
}
