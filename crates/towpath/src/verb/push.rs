//! `towpath push`: manifest + flags → upload → operation → URL.

mod request;
mod secrets;
mod source;
mod target;
mod upload;

use super::arguments::{Variable, WaitArg, parse_count};
use super::deed::Deed;
use super::{operation, routes};
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::manifest::load::{load, source_dir};
use crate::manifest::{Manifest, RouteWish, parse_route};
use crate::screen::live::Live;
use crate::screen::style::Style;
use clap::{Args, ValueEnum};
use hyper::Method;
use source::Source;
use std::path::PathBuf;
use target::Target;
use towpath_types::{AppName, ByteSize, LaneName, Millis};

/// Arguments of `push`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  towpath push
  towpath push ./front --app shop --instances 3 --memory 256M
  towpath push --lane blue --env LEVEL=debug
  towpath push target/app.jar --app orders
  towpath push --command 'python3 app.py' --health-path /healthz

The directory's towpath.toml (or Procfile, or Cloud Foundry's manifest.yml)
is read; flags win over it. What .gitignore and .towpathignore name is left
out. The app has to listen on the port in $PORT.")]
pub(crate) struct PushArgs {
    /// Directory with the app, or a file that is the app (a jar, a program)
    #[arg(default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// App [default: the manifest's name, else the directory's]
    #[arg(short, long, value_name = "APP")]
    app: Option<AppName>,
    /// Lane [default: the manifest's, else base]
    #[arg(short, long, value_name = "LANE")]
    lane: Option<LaneName>,
    /// Wanted instances [default: as many as now, else 1]
    #[arg(short, long, value_parser = parse_count, value_name = "N")]
    instances: Option<u32>,
    /// Memory of each instance, for example 256M
    #[arg(short, long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// Disk of each instance, for example 1G
    #[arg(long, value_name = "SIZE")]
    disk: Option<ByteSize>,
    /// Environment variable; several may be given
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<Variable>,
    /// Start command
    #[arg(short, long, value_name = "COMMAND")]
    command: Option<String>,
    /// How it is built [default: what the source looks like]
    #[arg(short, long, value_parser = clap::builder::PossibleValuesParser::new(crate::manifest::BUILDERS), value_name = "BUILDER")]
    builder: Option<String>,
    /// Further address, HOST[/PATH]; several may be given
    #[arg(long, value_parser = parse_route, value_name = "HOST[/PATH]")]
    route: Vec<RouteWish>,
    /// What makes an instance healthy
    #[arg(long, value_enum, value_name = "TYPE")]
    health: Option<HealthType>,
    /// Path of the HTTP health check
    #[arg(long, value_name = "PATH")]
    health_path: Option<String>,
    /// Longest time from the start of an instance to its first healthy answer
    #[arg(long, value_name = "TIME")]
    start_timeout: Option<Millis>,
    /// From SIGTERM to SIGKILL
    #[arg(long, value_name = "TIME")]
    grace: Option<Millis>,
    /// Free text that is kept with the release, for example a commit
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Manifest file [default: towpath.toml, else manifest.yml, in DIR]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Largest sum of the files' sizes
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    max_size: ByteSize,
    #[command(flatten)]
    wait: WaitArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HealthType {
    /// It accepts connections on its port
    Port,
    /// It answers GET of --health-path with a status below 400
    Http,
    /// Its process runs
    Process,
}

impl PushArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let manifests = self.manifests()?;
        let targets: Vec<Target> = self
            .select(manifests)?
            .into_iter()
            .map(|manifest| Target::new(&self, manifest))
            .collect::<Outcome<_>>()?;
        let several = targets.len() > 1;
        for target in &targets {
            if several && !context.screen.json() {
                context.screen.note(format!("— {}", target.app));
            }
            self.push(context, target).await?;
        }
        Ok(())
    }

    /// What the directory's manifest says; a file alone has none.
    fn manifests(&self) -> Outcome<Vec<Manifest>> {
        if self.dir.is_file() {
            let parent = self.dir.parent().unwrap_or(&self.dir);
            return match &self.manifest {
                Some(manifest) => Ok(load(parent, Some(manifest))?),
                None => Ok(vec![Manifest::default()]),
            };
        }
        if !self.dir.is_dir() {
            let what = format!("{}: no such directory", self.dir.display());
            return Err(Failure::hinted(
                Exit::Usage,
                what,
                "name the directory with the app: towpath push DIR",
            ));
        }
        Ok(load(&self.dir, self.manifest.as_deref())?)
    }

    /// The apps of the manifest that are meant: all, or the one that `--app` names. With a single one `--app` renames it.
    fn select(&self, mut manifests: Vec<Manifest>) -> Outcome<Vec<Manifest>> {
        let Some(wanted) = &self.app else { return Ok(manifests) };
        if let [only] = manifests.as_mut_slice() {
            only.name = Some(wanted.clone());
            return Ok(manifests);
        }
        let names: Vec<AppName> = manifests.iter().filter_map(|manifest| manifest.name.clone()).collect();
        manifests.retain(|manifest| manifest.name.as_ref() == Some(wanted));
        if manifests.is_empty() {
            let names: Vec<&str> = names.iter().map(AppName::as_str).collect();
            let hint = crate::suggest::did_you_mean(wanted.as_str(), names.iter().copied())
                .unwrap_or_else(|| format!("it has {}", names.join(", ")));
            return Err(Failure::hinted(Exit::Usage, format!("the manifest has no app {wanted}"), hint));
        }
        Ok(manifests)
    }

    async fn push(&self, context: &Context, target: &Target) -> Outcome {
        for line in &target.manifest.ignored {
            context.screen.warn(line);
        }
        if let Some(own) = &target.named_after {
            context
                .screen
                .note(format!("The app is called {}, after {own:?}; --app names it otherwise", target.app));
        }
        secrets::check(context, target).await?;
        let mut live = Live::new(&context.screen);
        let source = Source::find(&source_dir(&self.dir, &target.manifest))?;
        let source = upload::upload(context, &mut live, source.dir(), self.max_size.0).await?;
        let body = request::body(target, source, self.note.as_deref());
        live.busy("Asking for the release");
        let path = format!("/v1/apps/{}/releases", target.app);
        let begun = context.api.call(Method::POST, &path, Some(&body)).await?;
        let deed = Deed::Push(target.settings());
        if self.wait.detach {
            drop(live);
            return operation::finish(context, begun, true, &deed).await;
        }
        let followed = operation::follow(context, &mut live, &begun, &deed).await?;
        drop(live);
        operation::report(context, &followed, &deed).await?;
        for route in target.manifest.routes.iter().filter(|route| !request::is_plain(route)) {
            routes::put(context, &target.app, route).await?;
            context.screen.note(format!("Route {}{} leads to {}", route.host, route.path, target.app));
        }
        Ok(())
    }
}

/// Says one line of a push that is done.
fn done(live: &Live, text: &str) {
    live.say(Style::Plain, text);
}
