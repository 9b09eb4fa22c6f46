//! What is pushed: the manifest with the flags laid over it.

use super::{HealthType, PushArgs};
use crate::exit::{Exit, Failure, Outcome};
use crate::manifest::Manifest;
use std::path::Path;
use towpath_types::health::{HealthCheck, Probe};
use towpath_types::{AppName, LaneName};

/// One app to push.
#[derive(Debug)]
pub(super) struct Target {
    /// Its name.
    pub(super) app: AppName,
    /// Lane.
    pub(super) lane: LaneName,
    /// Manifest with the flags in it.
    pub(super) manifest: Manifest,
    /// What the name was made of, where it could not be taken as it is: `My App!`.
    pub(super) named_after: Option<String>,
}

impl Target {
    /// Lays the flags over a manifest.
    pub(super) fn new(args: &PushArgs, mut manifest: Manifest) -> Outcome<Self> {
        let (app, own) = match manifest.name.clone() {
            Some(name) => (name, None),
            None => name_of(&args.dir).map(|(name, own)| (name, Some(own)))?,
        };
        let named_after = own.filter(|own| *own != app.as_str());
        let lane = args.lane.clone().or_else(|| manifest.lane.clone()).unwrap_or_else(LaneName::base);
        manifest.instances = args.instances.or(manifest.instances);
        manifest.limits.memory = args.memory.or(manifest.limits.memory);
        manifest.limits.disk = args.disk.or(manifest.limits.disk);
        manifest.command = args.command.clone().or(manifest.command);
        manifest.builder = args.builder.clone().or(manifest.builder);
        manifest.grace = args.grace.or(manifest.grace);
        manifest.env.extend(args.env.iter().map(|v| (v.name.clone(), v.value.clone())));
        manifest.routes.extend(args.route.iter().cloned());
        manifest.health = health(args, manifest.health)?;
        Ok(Self { app, lane, manifest, named_after })
    }

    /// The settings that this push changes, in words: `memory 256M`.
    pub(super) fn settings(&self) -> Vec<String> {
        let manifest = &self.manifest;
        let sizes = [("memory", manifest.limits.memory), ("disk", manifest.limits.disk)];
        let counts = [("files", manifest.limits.files), ("processes", manifest.limits.processes)];
        let sizes = sizes.iter().filter_map(|(name, size)| size.map(|size| format!("{name} {size}")));
        let counts = counts.iter().filter_map(|(name, count)| count.map(|count| format!("{name} {count}")));
        let env = manifest.env.keys().map(|name| format!("env {name}"));
        manifest
            .instances
            .map(|n| format!("instances {n}"))
            .into_iter()
            .chain(sizes)
            .chain(counts)
            .chain(env)
            .collect()
    }
}

fn health(args: &PushArgs, manifest: Option<HealthCheck>) -> Outcome<Option<HealthCheck>> {
    let touched = args.health.is_some() || args.health_path.is_some() || args.start_timeout.is_some();
    if !touched {
        return Ok(manifest);
    }
    let mut check = manifest.unwrap_or_default();
    if let Some(path) = &args.health_path {
        if !path.starts_with('/') {
            let what = format!("--health-path: {path:?} is not a path");
            return Err(Failure::hinted(Exit::Usage, what, "begin it with '/'"));
        }
        if matches!(args.health, Some(HealthType::Port | HealthType::Process)) {
            let what = "--health-path is only for --health http";
            return Err(Failure::hinted(Exit::Usage, what, "drop one of them"));
        }
        check.probe = Probe::Http(path.clone());
    }
    match args.health {
        Some(HealthType::Port) => check.probe = Probe::Port,
        Some(HealthType::Process) => check.probe = Probe::Process,
        Some(HealthType::Http) if !matches!(check.probe, Probe::Http(_)) => {
            check.probe = Probe::Http("/".into())
        }
        _ => {}
    }
    check.start_timeout = args.start_timeout.unwrap_or(check.start_timeout);
    Ok(Some(check))
}

/// A name from the directory's or file's, and what that is called: `My App` becomes `my-app`, `orders.jar` becomes `orders`.
fn name_of(dir: &Path) -> Outcome<(AppName, String)> {
    let full = dir.canonicalize().map_err(|error| Failure::io(dir.display(), &error))?;
    let own = if full.is_file() { full.file_stem() } else { full.file_name() };
    let own = own.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let base = own.to_lowercase();
    let mut name = String::new();
    for c in base.chars() {
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    let cut: String = name.chars().take(AppName::MAX).collect();
    let name = AppName::new(cut.trim_end_matches('-')).map_err(|_| {
        let what = format!("{} gives no name for the app", full.display());
        Failure::hinted(Exit::Usage, what, "say --app NAME, or name = \"…\" in towpath.toml")
    })?;
    Ok((name, own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_give_names() {
        let dir = tempfile::tempdir().unwrap();
        for (name, app) in [("My App_2.0", "my-app-2-0"), ("x--y", "x-y"), ("ünder", "nder")] {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            assert_eq!(name_of(&path).unwrap().0.as_str(), app);
        }
        assert!(name_of(Path::new("/")).unwrap_err().lines[0].contains("--app"));
    }
}
