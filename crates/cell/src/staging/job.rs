//! One build from source to artifact.

use super::cache::Caches;
use super::command::compose;
use super::disk_watch::DiskWatch;
use super::places::BuildDir;
use super::procfile::Procfile;
use super::recipe::{Bench, Launch, Places, Recipe, Step};
use super::recipes;
use super::report::{Reporter, broken};
use super::runner::Runner;
use super::source::Source;
use super::stop::Stop;
use super::tools::ToolBox;
use super::{Refusal, StagingSeam};
use crate::blob::BlobError;
use crate::build::BuildUser;
use crate::disk;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use towpath_archive::{ArtifactOptions, ArtifactSummary, Limits};
use towpath_types::{Digest, ErrorCode};
use towpath_wire::staging::{StageJob, StageResult};

/// Time for a build that does not say how long.
const TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Space that one build may take.
const DISK_MAX: u64 = 8 << 30;

/// A variable of the push that makes the build begin with an empty cache.
const NO_CACHE: &str = "BUILD_NO_CACHE";

/// Builds; the directories are gone when this returns.
pub(crate) async fn run(
    job: &StageJob,
    seam: &StagingSeam,
    tools: ToolBox,
    stop: &Stop,
    reporter: &Reporter,
) -> Result<StageResult, Refusal> {
    let timeout = if job.timeout.0 == 0 { TIMEOUT } else { Duration::from_millis(job.timeout.0) };
    let _timer = stop.after(timeout);
    let launcher = seam.launcher.clone();
    let user = blocking(move || Ok(launcher.user().map(Arc::new))).await?;
    let dir = create_dir(job, seam).await?;
    let mut held = Held(Some(Arc::new(dir)));
    let Some(dir) = held.0.clone() else { return Err(lost()) };
    let watch = DiskWatch { root: dir.root().to_path_buf(), most: DISK_MAX, reserve: seam.disk_reserve.0 };
    let _watch = watch.spawn(stop.clone());
    let build = Build { job, seam, tools, stop, reporter, user, dir };
    let outcome = build.run().await;
    drop(build);
    // Waited for: the app's next build finds its place free, and its cache back.
    let dir = held.0.take();
    blocking(move || {
        drop(dir);
        Ok(())
    })
    .await?;
    outcome
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|_| lost())?
}

fn lost() -> Refusal {
    let message = "a part of the build broke inside Towpath".to_owned();
    Refusal { code: ErrorCode::Internal, message }
}

/// A build's directories, removed on a thread that may wait, also when the build panics.
struct Held(Option<Arc<BuildDir>>);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(dir) = self.0.take() {
            tokio::task::spawn_blocking(move || drop(dir));
        }
    }
}

async fn create_dir(job: &StageJob, seam: &StagingSeam) -> Result<BuildDir, Refusal> {
    let caches = Caches::new(&seam.cache_dir, seam.disk_reserve.0);
    let (work, app) = (seam.work_dir.clone(), job.app.clone());
    // What a build that failed has left there may be what the next one fails at.
    let anew = job.env.get(NO_CACHE).is_some_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
    blocking(move || BuildDir::create(&work, caches, &app, anew)).await
}

struct Build<'a> {
    job: &'a StageJob,
    seam: &'a StagingSeam,
    tools: ToolBox,
    stop: &'a Stop,
    reporter: &'a Reporter,
    user: Option<Arc<BuildUser>>,
    dir: Arc<BuildDir>,
}

impl Build<'_> {
    async fn run(&self) -> Result<StageResult, Refusal> {
        self.fetch().await?;
        let source = Source::new(&self.dir.places.app, self.uid());
        let read = source.clone();
        let procfile =
            blocking(move || Ok(Procfile::parse(&read.read("Procfile").unwrap_or_default()))).await?;
        // Whoever gives a command has read the file, and said what is not run.
        for name in procfile.others.iter().filter(|_| self.job.command.is_none()) {
            let text = format!("note: the Procfile's process {name:?} is not run; only web is");
            self.reporter.line(text.chars().take(500).collect()).await;
        }
        let command = self.job.command.clone().or(procfile.web).filter(|text| !text.trim().is_empty());
        let ground = Arc::new(Ground {
            source,
            tools: self.tools.clone(),
            command,
            places: self.dir.places.clone(),
            app: self.job.app.app.to_string(),
        });
        let builder = self.job.builder.clone();
        let (recipe, by) = ground.look(move |bench| recipes::choose(builder.as_deref(), bench)).await?;
        let name = recipe.card().name;
        self.reporter.step(&format!("Building with {name} ({by})")).await;
        self.run_steps(&ground.look(|bench| recipe.steps(bench)).await?).await?;
        let launch = ground.look(|bench| recipe.launch(bench)).await?;
        for note in &launch.notes {
            self.reporter.line(format!("note: {note}")).await;
        }
        self.reporter.step("Packing").await;
        let summary = self.pack().await?;
        self.upload(summary.digest).await?;
        Ok(result(recipe, ground.command.as_deref(), launch, &summary))
    }

    fn uid(&self) -> Option<u32> {
        self.user.as_ref().map(|user| user.uid())
    }

    /// Downloads the source, unpacks it, and gives it to the build's user.
    async fn fetch(&self) -> Result<(), Refusal> {
        self.reporter.step("Fetching the source").await;
        let file = self.dir.file("source.tar.zst");
        tokio::select! {
            got = self.seam.blobs.get_source(self.job.source, &file) => got.map_err(|error| blob_error(&error))?,
            why = self.stop.wait() => return Err(why),
        };
        let (dir, digest) = (Arc::clone(&self.dir), self.job.source);
        let environment = self.seam.environment.clone();
        let user = self.user.clone();
        blocking(move || {
            unpack_source(&file, &dir.places.app, &digest)?;
            let configured = environment.copy_files(&dir.places.home);
            configured.map_err(|error| broken("configuration could not be copied", &error))?;
            let owned = dir.own(user.as_deref());
            owned.map_err(|error| broken("the source could not be given to the build's user", &error))
        })
        .await
    }

    async fn run_steps(&self, steps: &[Step]) -> Result<(), Refusal> {
        let runner = Runner {
            launcher: &self.seam.launcher,
            user: self.uid(),
            env: self.environment(),
            places: &self.dir.places,
            tools: &self.tools,
            reporter: self.reporter,
            stop: self.stop,
        };
        for step in steps {
            runner.run(step).await?;
        }
        self.stop.check()
    }

    /// What every step sees: the machine's configuration, then the app's build settings, then what may not be changed.
    fn environment(&self) -> BTreeMap<String, String> {
        let places = &self.dir.places;
        let machine = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let mut env = self.seam.environment.select(machine);
        env.entry("LANG".to_owned()).or_insert_with(|| "C.UTF-8".to_owned());
        env.extend(self.job.env.clone());
        let scratch = places.scratch.to_string_lossy().into_owned();
        let fixed = [
            ("HOME", places.home.to_string_lossy().into_owned()),
            ("TMPDIR", scratch),
            // What a tool keeps that no recipe knows.
            ("XDG_CACHE_HOME", places.cache.join("xdg").to_string_lossy().into_owned()),
            ("PATH", self.seam.path.clone()),
            ("TOWPATH_BUILD", "1".to_owned()),
            ("CI", "true".to_owned()),
            ("NO_COLOR", "1".to_owned()),
            ("TERM", "dumb".to_owned()),
            // Some tools put times into what they make; 1980 is the earliest that a zip file can hold.
            ("SOURCE_DATE_EPOCH", "315532800".to_owned()),
        ];
        env.extend(fixed.map(|(name, value)| (name.to_owned(), value)));
        env
    }

    async fn pack(&self) -> Result<ArtifactSummary, Refusal> {
        let (dir, owner) = (Arc::clone(&self.dir), self.uid());
        let summary =
            blocking(move || pack_app(&dir.places.app, &dir.file("artifact.tar.zst"), owner)).await?;
        for warning in summary.warnings.iter().take(20) {
            self.reporter.line(cut(&format!("note: {} was {}", warning.path.display(), warning.why))).await;
        }
        let files = if summary.files == 1 { "file" } else { "files" };
        let size = match summary.stored_bytes {
            bytes @ 0..0x10_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
            bytes => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        };
        self.reporter.line(format!("{} {files} packed into {size}", summary.files)).await;
        self.stop.check()?;
        Ok(summary)
    }

    async fn upload(&self, digest: Digest) -> Result<(), Refusal> {
        let file = self.dir.file("artifact.tar.zst");
        tokio::select! {
            done = self.seam.blobs.put_artifact(digest, &file) => done.map_err(|error| blob_error(&error)),
            why = self.stop.wait() => Err(why),
        }
    }
}

/// What recipes look at. They read files, so they look on a thread that may wait.
struct Ground {
    source: Source,
    tools: ToolBox,
    command: Option<String>,
    places: Places,
    app: String,
}

impl Ground {
    async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce(&Bench<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let ground = Arc::clone(self);
        blocking(move || {
            look(&Bench {
                source: &ground.source,
                tools: &ground.tools,
                command: ground.command.as_deref(),
                places: &ground.places,
                app: &ground.app,
            })
        })
        .await
    }
}

fn result(
    recipe: &dyn Recipe,
    command: Option<&str>,
    launch: Launch,
    summary: &ArtifactSummary,
) -> StageResult {
    StageResult {
        builder: recipe.card().name.to_owned(),
        artifact: summary.digest,
        artifact_bytes: summary.stored_bytes,
        command: compose(launch.env_file, command.unwrap_or(&launch.command)),
        env: launch.env,
        health: launch.health,
    }
}

fn cut(text: &str) -> String {
    text.chars().take(500).collect()
}

fn unpack_source(file: &Path, to: &Path, digest: &Digest) -> Result<(), Refusal> {
    let reader = std::fs::File::open(file).map_err(|error| broken("the source could not be read", &error))?;
    towpath_archive::unpack(reader, to, &Limits::source(), Some(digest)).map_err(|error| {
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Refusal { code: error.code(), message: format!("{error}{source}") }
    })?;
    disk::remove_if_there(file).map_err(|error| broken("the source could not be removed", &error))
}

fn pack_app(app: &Path, to: &Path, owner: Option<u32>) -> Result<ArtifactSummary, Refusal> {
    let file =
        std::fs::File::create_new(to).map_err(|error| broken("the artifact could not be written", &error))?;
    let writer = std::io::BufWriter::with_capacity(256 << 10, file);
    towpath_archive::pack_artifact(app, &ArtifactOptions { owner }, writer).map_err(|error| {
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Refusal { code: ErrorCode::BuildFailed, message: format!("{error}{source}") }
    })
}

fn blob_error(error: &BlobError) -> Refusal {
    let code = match error {
        BlobError::Missing(_) => ErrorCode::NotFound,
        BlobError::Io(error) => return broken("a blob could not be stored", error),
        _ => ErrorCode::Internal,
    };
    Refusal { code, message: error.to_string() }
}
