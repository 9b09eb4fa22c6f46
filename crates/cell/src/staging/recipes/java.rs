//! Java: Maven projects, Gradle projects with a wrapper, ready jars and wars with a server inside.

use crate::staging::Refusal;
use crate::staging::command::ENV_FILE;
use crate::staging::recipe::{Bench, Card, Launch, Recipe, Step, no_command};
use towpath_types::Millis;

pub(super) struct Java;

static CARD: Card =
    Card { name: "java", looks_for: "pom.xml, a Gradle wrapper (gradlew), or one *.jar", tools: &["java"] };

/// A JVM takes most of what the instance may have for its heap; the rest is for code, threads and buffers.
const ENV: &str = "\
if [ -n \"$TOWPATH_MEMORY\" ]; then TOWPATH_JAVA=\"-Xmx$((TOWPATH_MEMORY * 6 / 10))m\"
else TOWPATH_JAVA=\"-XX:MaxRAMPercentage=60\"; fi
export TOWPATH_JAVA
";

#[derive(Clone, Copy)]
enum Project {
    Maven,
    Gradle,
    Ready,
}

impl Recipe for Java {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn detect(&self, bench: &Bench<'_>) -> Option<String> {
        let by = match project(bench)? {
            Project::Maven => "pom.xml".to_owned(),
            Project::Gradle => "gradlew".to_owned(),
            Project::Ready => jar(bench, ".")?,
        };
        Some(by)
    }

    fn steps(&self, bench: &Bench<'_>) -> Result<Vec<Step>, Refusal> {
        bench.tools.need("java")?;
        let home = bench.places.home.to_string_lossy().into_owned();
        let mut steps = match project(bench) {
            Some(Project::Maven) => vec![maven(bench, &home)?],
            Some(Project::Gradle) => vec![gradle(bench)],
            _ => Vec::new(),
        };
        steps.push(Step::write(ENV_FILE, ENV));
        Ok(steps)
    }

    fn launch(&self, bench: &Bench<'_>) -> Result<Launch, Refusal> {
        let dir = match project(bench) {
            Some(Project::Maven) => "target",
            Some(Project::Gradle) => "build/libs",
            _ => ".",
        };
        let mut launch = match (bench.command, jar(bench, dir)) {
            (Some(command), _) => Launch::new(command),
            (None, Some(jar)) => {
                let path = if dir == "." { jar } else { format!("{dir}/{jar}") };
                Launch::new(format!("java $TOWPATH_JAVA -Dserver.port=\"$PORT\" $JAVA_OPTS -jar '{path}'"))
            }
            (None, None) => return Err(no_command(&format!("no runnable jar in {dir}"))),
        };
        launch.health.start_timeout = Millis::secs(120);
        Ok(launch.env_file())
    }
}

fn project(bench: &Bench<'_>) -> Option<Project> {
    if bench.source.has_file("pom.xml") {
        return Some(Project::Maven);
    }
    let gradle = bench.source.has_file("build.gradle") || bench.source.has_file("build.gradle.kts");
    if gradle && bench.source.has_file("gradlew") {
        return Some(Project::Gradle);
    }
    jar(bench, ".").map(|_| Project::Ready)
}

fn maven(bench: &Bench<'_>, home: &str) -> Result<Step, Refusal> {
    let repository = format!("-Dmaven.repo.local={}", bench.places.cache.join("m2").to_string_lossy());
    let user_home = format!("-Duser.home={home}");
    let program = match (bench.tools.find("mvn"), bench.source.has_file("mvnw")) {
        // By the shell: a wrapper that came through a system without such a mark is not executable.
        (None, true) => "/bin/sh",
        (None, false) => return bench.tools.need("mvn").map(|_| Step::tool("", "mvn", &[])),
        (Some(_), _) => "mvn",
    };
    let mut args = if program == "mvn" { Vec::new() } else { vec!["./mvnw"] };
    args.extend(["-q", "-B", &repository, &user_home]);
    let settings = bench.places.home.join(".m2/settings.xml");
    let settings = settings.to_string_lossy();
    if bench.places.home.join(".m2/settings.xml").is_file() {
        args.extend(["-s", &settings]);
    }
    args.extend(["package", "-DskipTests"]);
    let step = Step::tool("Building with Maven", program, &args);
    // Where a wrapper keeps the Maven that it downloads.
    Ok(step.env("MAVEN_USER_HOME", bench.places.cache.join("maven").to_string_lossy()))
}

fn gradle(bench: &Bench<'_>) -> Step {
    let args = ["-c", "exec sh ./gradlew --no-daemon --console=plain -q assemble"];
    Step::tool("Building with Gradle", "/bin/sh", &args)
        .env("GRADLE_USER_HOME", bench.places.cache.join("gradle").to_string_lossy())
}

/// The largest jar or war that can be the app: what holds its dependencies is larger than what does not.
fn jar(bench: &Bench<'_>, dir: &str) -> Option<String> {
    const NOT: &[&str] = &["-sources.jar", "-javadoc.jar", "-tests.jar", "-plain.jar", "-test-sources.jar"];
    let fits = |name: &str| {
        (name.ends_with(".jar") || name.ends_with(".war"))
            && !name.starts_with("original-")
            && !NOT.iter().any(|ending| name.ends_with(ending))
            && !name.contains('\'')
    };
    let jars = bench.source.list(dir).into_iter().filter(|entry| entry.file && fits(&entry.name));
    jars.max_by_key(|entry| entry.bytes).map(|entry| entry.name)
}
