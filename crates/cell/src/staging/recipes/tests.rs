//! What each recipe makes of a source: tables of files and what follows from them. Nothing is run.

use super::*;
use crate::staging::recipe::{Launch, Places, Step};
use crate::staging::source::Source;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A directory with files, and a machine with all tools.
struct Desk {
    app: tempfile::TempDir,
    tools: tempfile::TempDir,
}

impl Desk {
    fn new(files: &[(&str, &str)]) -> Self {
        let desk = Self { app: tempfile::tempdir().unwrap(), tools: tempfile::tempdir().unwrap() };
        for (path, content) in files {
            desk.add(path, content);
        }
        for tool in ["python3", "node", "npm", "java", "mvn", "php", "go", "cargo"] {
            let path = desk.tools.path().join(tool);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        desk
    }

    fn add(&self, path: &str, content: &str) {
        let path = self.app.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn with<T>(&self, command: Option<&str>, work: impl FnOnce(&Bench<'_>) -> T) -> T {
        let root = Path::new("/build");
        let places = Places {
            app: root.join("app"),
            home: root.join("home"),
            scratch: root.join("tmp"),
            cache: root.join("cache"),
        };
        work(&Bench {
            source: &Source::new(self.app.path(), None),
            tools: &ToolBox::new(&self.tools.path().to_string_lossy(), false),
            command,
            places: &places,
            app: "shop",
        })
    }

    fn recipe(&self) -> &'static str {
        self.with(None, |bench| choose(None, bench).map_or("none", |(recipe, _)| recipe.card().name))
    }

    fn steps(&self) -> Vec<Step> {
        self.with(None, |bench| choose(None, bench).unwrap().0.steps(bench).unwrap())
    }

    fn launch(&self) -> Launch {
        self.with(None, |bench| choose(None, bench).unwrap().0.launch(bench).unwrap())
    }

    /// Arguments of the first step that runs this program.
    fn args(&self, program: &str) -> String {
        let steps = self.steps();
        let step = steps.iter().find(|step| step.program == program);
        step.unwrap_or_else(|| panic!("{program} is not in {steps:#?}")).args.join(" ")
    }
}

#[test]
fn sources_are_recognised_by_their_files() {
    for (files, recipe) in [
        (&["requirements.txt"][..], "python"),
        (&["pyproject.toml"], "python"),
        (&["Pipfile"], "python"),
        (&["manage.py", "package.json"], "python"),
        (&["app.py"], "python"),
        (&["package.json"], "node"),
        (&["package.json", "index.html"], "node"),
        (&["pom.xml", "package.json"], "java"),
        (&["app.jar"], "java"),
        (&["gradlew", "build.gradle"], "java"),
        (&["build.gradle"], "none"),
        (&["composer.json"], "php"),
        (&["public/index.php", "public/index.html"], "php"),
        (&["go.mod", "index.html"], "go"),
        (&["Cargo.toml", "pyproject.toml"], "rust"),
        (&["index.html"], "static"),
        (&["_site/index.html"], "static"),
        (&["README.md", "lib/app.py"], "none"),
    ] {
        let files: Vec<_> = files.iter().map(|file| (*file, "")).collect();
        assert_eq!(Desk::new(&files).recipe(), recipe, "{files:?}");
    }
    let node = [("package.json", r#"{"scripts": {"start": "node ."}}"#), ("requirements.txt", "")];
    assert_eq!(Desk::new(&node).recipe(), "node", "helper scripts do not make it a Python app");
    let bare = Desk::new(&[("x", "")]);
    assert_eq!(bare.with(Some("./x"), |bench| choose(None, bench).unwrap().0.card().name), "procfile");
}

#[test]
fn every_recipe_has_a_card_that_can_be_asked_for() {
    let desk = Desk::new(&[]);
    for name in available(&ToolBox::new(&desk.tools.path().to_string_lossy(), false)) {
        assert_eq!(desk.with(None, |bench| choose(Some(&name), bench).unwrap().0.card().name), name);
    }
    assert_eq!(available(&ToolBox::new("/nowhere", false)), ["static", "binary", "procfile"]);
}

#[test]
fn node_installs_what_it_needs() {
    let desk = Desk::new(&[("package.json", r#"{"dependencies": {"express": "4"}}"#), ("server.js", "")]);
    assert_eq!(desk.args("npm"), "install --no-audit --no-fund --progress=false --omit=dev");
    desk.add("package-lock.json", "{}");
    assert_eq!(desk.args("npm"), "ci --no-audit --no-fund --progress=false --omit=dev");
    assert_eq!(desk.launch().command, "node server.js");
    desk.add("package.json", r#"{"dependencies": {"x": "1"}, "devDependencies": {"vite": "5"}, "scripts": {"build": "vite build"}}"#);
    let all: Vec<String> = desk.steps().iter().map(|step| step.args.join(" ")).collect();
    assert!(
        all[0].ends_with("--include=dev") && all[1] == "run build" && all[2].starts_with("prune"),
        "{all:?}"
    );
    desk.add(
        "package.json",
        r#"{"devDependencies": {"nodemon": "3"}, "scripts": {"start": "NODE_ENV=x nodemon app.js"}}"#,
    );
    assert!(desk.args("npm").ends_with("--include=dev"), "what starts the app is needed");
    desk.add("package.json", "{}");
    assert_eq!(desk.steps().len(), 1, "only the file for the shell");
}

#[test]
fn node_starts_what_the_package_says() {
    for (package, command) in [
        (r#"{"scripts": {"start": "node bin/www"}}"#, "node bin/www"),
        (r#"{"scripts": {"start": "next start -p $PORT"}}"#, "next start -p $PORT"),
        (r#"{"scripts": {"start": "node .", "prestart": "x"}}"#, "npm start --silent"),
        (r#"{"scripts": {"start": "echo $npm_package_version"}}"#, "npm start --silent"),
        (r#"{"main": "lib/main.js"}"#, "node lib/main.js"),
        (r#"{"main": "missing.js"}"#, "node index.js"),
        (r#"{"main": "lib/main.js; rm -rf ."}"#, "node index.js"),
    ] {
        let desk = Desk::new(&[("package.json", package), ("lib/main.js", ""), ("index.js", "")]);
        assert_eq!(desk.launch().command, command, "{package}");
    }
    let site = Desk::new(&[("package.json", r#"{"scripts": {"build": "x"}}"#), ("dist/index.html", "")]);
    assert_eq!(site.launch().command, "\"$TOWPATH_BIN\" __static dist");
    let none = Desk::new(&[("package.json", "{}")]);
    let message = none.with(None, |bench| choose(None, bench).unwrap().0.launch(bench).unwrap_err().message);
    assert!(message.contains("without a start script") && message.contains("Procfile"), "{message}");
    let broken = Desk::new(&[("package.json", "{,}")]);
    let error = broken.with(None, |bench| choose(None, bench).unwrap().0.steps(bench).unwrap_err());
    assert_eq!(error.code, ErrorCode::BuildFailed);
}

#[test]
fn python_is_started_by_what_is_there() {
    let gunicorn = (".towpath/venv/bin/gunicorn", "");
    let uvicorn = (".towpath/venv/bin/uvicorn", "");
    for (files, start) in [
        (vec![("app.py", "app = Flask(__name__)\n"), gunicorn], "gunicorn "),
        (vec![("main.py", "app = FastAPI()\n"), uvicorn], "uvicorn "),
        (vec![("main.py", "app = FastAPI()\n")], "python3 main.py"),
        (vec![("manage.py", ""), ("site1/wsgi.py", ""), gunicorn], "gunicorn --bind"),
        (vec![("manage.py", ""), ("site1/wsgi.py", "")], "python3 manage.py runserver"),
        (vec![("requirements.txt", ""), ("bot.py", "")], "python3 bot.py"),
        (
            vec![
                ("requirements.txt", ""),
                ("flaskr/__init__.py", "def create_app(x=None):\n    app = Flask('x')\n"),
                gunicorn,
            ],
            "gunicorn ",
        ),
    ] {
        let command = Desk::new(&files).launch().command;
        assert!(command.starts_with(start), "{files:?}: {command}");
    }
    let source =
        Desk::new(&[("src/main.py", "app = FastAPI()\n"), ("requirements.txt", ""), uvicorn]).launch();
    assert_eq!(source.env.get("PYTHONPATH").map(String::as_str), Some("src"));
    let plain = Desk::new(&[("requirements.txt", "# nothing\n"), ("app.py", "")]);
    assert!(plain.steps().iter().all(|step| step.title.is_none()), "no environment without packages");
}

#[test]
fn an_app_that_cannot_be_started_is_refused_before_anything_is_installed() {
    let bots = [("requirements.txt", "flask\n"), ("a.py", ""), ("b.py", "")];
    let package = ("package.json", r#"{"dependencies": {"express": "4"}, "scripts": {"test": "x"}}"#);
    for desk in [Desk::new(&bots), Desk::new(&[package])] {
        let steps = |command| desk.with(command, |bench| choose(None, bench).unwrap().0.steps(bench));
        let error = steps(None).unwrap_err();
        assert!(error.code == ErrorCode::NoBuilder && error.message.contains("Procfile"), "{error:?}");
        assert!(steps(Some("./start")).is_ok(), "a command says it");
    }
    let made =
        ("package.json", r#"{"dependencies": {"x": "4"}, "scripts": {"postinstall": "make server.js"}}"#);
    assert!(!Desk::new(&[made]).steps().is_empty(), "a script of the app may make what is started");
}

#[test]
fn compiled_programs_are_chosen_by_name() {
    let go = Desk::new(&[
        ("go.mod", ""),
        ("cmd/a/main.go", "package main\n"),
        ("cmd/shop/main.go", "package main // x\n"),
    ]);
    assert!(go.args("go").ends_with("./cmd/shop"));
    let root =
        Desk::new(&[("go.mod", ""), ("main.go", "\npackage main\n"), ("cmd/a/main.go", "package main\n")]);
    assert!(root.args("go").ends_with(" ."));
    let test = Desk::new(&[("go.mod", ""), ("x_test.go", "package main\n"), ("lib.go", "package lib\n")]);
    assert!(test.with(None, |bench| choose(None, bench).unwrap().0.steps(bench)).is_err());
    for (manifest, files, program) in [
        ("[package]\nname = \"x\"\n", &["src/main.rs"][..], Ok("x")),
        ("[package]\nname = \"x\"\ndefault-run = \"y\"\n", &[], Ok("y")),
        ("[package]\nname = \"x\"\n", &["src/bin/shop.rs", "src/bin/tool.rs"], Ok("shop")),
        ("[package]\nname = \"x\"\n[[bin]]\nname = \"only\"\n", &[], Ok("only")),
        ("[package]\nname = \"x\"\n", &["src/bin/a.rs", "src/bin/b.rs"], Err("several programs")),
        ("[package]\nname = \"x\"\n", &["src/lib.rs"], Err("no program")),
        ("[workspace]\n", &[], Err("workspace")),
        ("[package]\nname = \"--config\"\n", &["src/main.rs"], Err("no valid name")),
        ("not toml", &[], Err("cannot be read")),
    ] {
        let desk = Desk::new(&[("Cargo.toml", manifest)]);
        files.iter().for_each(|file| desk.add(file, ""));
        let steps = desk.with(None, |bench| choose(None, bench).unwrap().0.steps(bench));
        match (steps, program) {
            (Ok(steps), Ok(program)) => {
                assert_eq!(steps[0].args[..4], ["build", "--release", "--bin", program])
            }
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{}", error.message),
            other => panic!("{manifest}: {other:?}"),
        }
    }
}

#[test]
fn the_jar_that_holds_everything_is_started() {
    let desk =
        Desk::new(&[("pom.xml", ""), ("target/app-sources.jar", &"x".repeat(99)), ("target/app.jar", "xx")]);
    desk.add("target/original-app.jar", &"x".repeat(50));
    desk.add("target/helper.jar", "x");
    assert!(desk.launch().command.ends_with("-jar 'target/app.jar'"));
    assert!(desk.launch().env_file);
    assert!(desk.args("mvn").contains("-Dmaven.repo.local=/build/cache/m2"));
    let wrapper = Desk::new(&[("pom.xml", ""), ("mvnw", "")]);
    std::fs::remove_file(wrapper.tools.path().join("mvn")).unwrap();
    let args =
        wrapper.with(None, |bench| choose(None, bench).unwrap().0.steps(bench).unwrap()[0].args.clone());
    assert!(args[0] == "./mvnw" && args.iter().any(|arg| arg == "package"), "{args:?}");
    let none = Desk::new(&[("pom.xml", "")]);
    let message = none.with(None, |bench| choose(None, bench).unwrap().0.launch(bench).unwrap_err().message);
    assert!(message.contains("no runnable jar in target"), "{message}");
}

#[test]
fn php_asks_for_composer_only_when_there_is_something_to_install() {
    let steps = |composer: &str, more: &[(&str, &str)]| {
        let desk = Desk::new(&[("composer.json", composer), ("index.php", "")]);
        more.iter().for_each(|(path, content)| desk.add(path, content));
        desk.with(None, |bench| choose(None, bench).unwrap().0.steps(bench))
    };
    assert_eq!(steps(r#"{"require": {"php": ">=8", "ext-json": "*"}}"#, &[]), Ok(vec![]));
    let error = steps(r#"{"require": {"monolog/monolog": "3"}}"#, &[]).unwrap_err();
    assert_eq!(error.code, ErrorCode::ToolMissing);
    assert_eq!(steps(r#"{"require": {"monolog/monolog": "3"}}"#, &[("vendor/autoload.php", "")]), Ok(vec![]));
    assert_eq!(steps("{", &[]).unwrap_err().code, ErrorCode::BuildFailed);
}
