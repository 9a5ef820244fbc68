//! `strait doctor`: from the flags to a table and an exit code; and the probe that it starts.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use strait::launch::doctor::MADE_UP;
use strait::launch::spec::{LaunchSpec, ServerName, SpecParts};
use strait::launch::survey;
use strait::launch::{Launch, Setting, Stop, machine};
use strait::probe;
use strait::rule::Rule;

use crate::cli::DoctorArgs;
use crate::launching::{Chosen, Here, run, say};
use crate::{Misuse, print};

/// Examines a sandbox and prints the table.
pub(crate) fn doctor(options: DoctorArgs) -> anyhow::Result<ExitCode> {
    run(examine(options))
}

async fn examine(options: DoctorArgs) -> anyhow::Result<ExitCode> {
    let stop = Stop::watch()?.without_client();
    let here = Here::look()?;
    let exec = here.exec();
    let (spec, request) = if let Some(chosen) = Chosen::find(&here, &options.sandbox)? {
        let request = here.request(&options.sandbox.runtime, chosen.config.as_ref());
        (chosen.spec, request)
    } else {
        let request = here.request(&options.sandbox.runtime, None);
        let image = survey::empty(&exec, &request).await?;
        let parts = SpecParts {
            network: vec![Rule::parse(MADE_UP)?],
            ..SpecParts::default()
        };
        let name = ServerName::parse("doctor")?;
        (
            LaunchSpec::new(name, image, parts).context(Misuse)?,
            request,
        )
    };
    let setting = Setting {
        environment: here.environment.clone(),
        audit: None,
        grace: Duration::ZERO,
        is_configured: false,
        notice: say,
    };
    // Our own program is always needed: it is the probe.
    let survey = survey::survey(&exec, &request, spec.image(), None, true).await?;
    let launch = Launch {
        spec,
        survey,
        setting,
        run: machine::run_id()?,
        owner: machine::owner(),
    };
    let examination = match launch.examine(stop).await {
        Ok(examination) => examination,
        Err(error) => {
            say(&error.to_string());
            return Ok(ExitCode::from(error.code()));
        }
    };
    let text = if options.json {
        serde_json::to_string(&examination)? + "\n"
    } else {
        examination.to_string()
    };
    print(text.as_bytes())?;
    Ok(if examination.is_sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The probe: see [`probe`].
pub(crate) fn probe() -> anyhow::Result<ExitCode> {
    probe::run(io::stdin(), io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
