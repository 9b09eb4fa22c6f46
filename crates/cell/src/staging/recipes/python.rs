//! Python: packages go into a virtual environment that works wherever it is moved.

use super::python_needs::{Needs, needs};
use super::python_start::{Start, find_start};
use crate::staging::Refusal;
use crate::staging::command::ENV_FILE;
use crate::staging::recipe::{Bench, Card, Launch, OnFailure, Recipe, Step};

pub(super) struct Python;

static CARD: Card = Card {
    name: "python",
    looks_for: "requirements.txt, pyproject.toml, Pipfile, setup.py, manage.py, or app.py, main.py, wsgi.py or server.py",
    tools: &["python3"],
};

const MARKS: &[&str] = &[
    "requirements.txt",
    "pyproject.toml",
    "Pipfile",
    "Pipfile.lock",
    "setup.py",
    "manage.py",
    "app.py",
    "main.py",
    "wsgi.py",
    "asgi.py",
    "server.py",
];

/// Where the virtual environment lies, relative to the app's directory.
const VENV: &str = ".towpath/venv";

const ENV: &str = "export VIRTUAL_ENV=\"$PWD/.towpath/venv\"\nexport PATH=\"$VIRTUAL_ENV/bin:$PATH\"\n";

/// Without an environment the interpreter has the one name that the system gives it; apps and their commands use both.
const NAME: &str = "mkdir -p .towpath/bin\nprintf '#!/bin/sh\\nexec python3 \"$@\"\\n' > .towpath/bin/python\nchmod 755 .towpath/bin/python\n";

const NAME_ENV: &str = "export PATH=\"$PWD/.towpath/bin:$PATH\"\n";

/// A copied interpreter finds its environment by its own place, so the environment may move; links to the system's interpreter
/// would lead out of the app's directory. Two of its three names become links to the third.
const MAKE: &str = r#"
python3 --version
rm -rf .towpath/venv
python3 -m venv --copies --without-pip .towpath/venv
cd .towpath/venv/bin
for name in python python3.[0-9]*; do [ ! -e "$name" ] || ln -sf python3 "$name"; done
rm -f activate* Activate*
"#;

/// pip from outside the environment where it can do that (22.3 and later), otherwise from inside.
const INSTALL: &str = r#"
python="$PWD/.towpath/venv/bin/python3"
if python3 -m pip --python "$python" --version >/dev/null 2>&1; then
    from=$(python3 -I -c 'import os, pip; print(os.path.dirname(os.path.dirname(pip.__file__)))')
    exec "$python" -c "$RUN_PIP" "$from" install "$@"
fi
if "$python" -m ensurepip >/dev/null 2>&1; then
    exec "$python" -m pip install "$@"
fi
if python3 -m pip --version >/dev/null 2>&1; then
    python3 -m pip install --quiet --target "$TMPDIR/pip" pip
    PYTHONPATH="$TMPDIR/pip" exec "$python" -m pip install "$@"
fi
exit 127
"#;

/// pip as `pip --python` runs it: from where the system has it, and from there nothing else. It keeps downloads as HTTP allows;
/// a registry, or a mirror of one, that says nothing about keeping would have every build download all again. So for files whose path
/// is made from their content's hash we say it in its place. pip checks files against the index whether it kept them or not.
/// Where pip is another one inside, it runs as it is.
const RUN_PIP: &str = r#"
import sys
sys.path[:] = [path for path in sys.path if path]
import importlib.machinery, re, runpy
origin = sys.argv.pop(1)
class Origin:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return importlib.machinery.PathFinder.find_spec(name, [origin], target) if name == "pip" else None
sys.meta_path.insert(0, Origin)
try:
    from pip._vendor.cachecontrol.controller import CacheController
    named_by_content = re.compile(r"/packages/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{60}/")
    keep = CacheController.cache_response
    def cache_response(self, request, response, *args, **kwargs):
        if named_by_content.search(request.url) and "cache-control" not in response.headers:
            response.headers["cache-control"] = "max-age=31536000"
        return keep(self, request, response, *args, **kwargs)
    CacheController.cache_response = cache_response
except Exception:
    pass
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"#;

/// Programs that pip installed name the interpreter by its present place: let them look for it beside themselves.
const RELOCATE: &str = r##"
import os, sys
root = sys.argv[1]
for name in sorted(os.listdir(root)):
    path = os.path.join(root, name)
    if os.path.islink(path) or not os.path.isfile(path):
        continue
    with open(path, "rb") as file:
        if file.read(2) != b"#!":
            continue
        line, rest = file.readline(), file.read()
    if b"python" not in line:
        continue
    head = b"#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")/python3\" \"$0\" \"$@\"\n' '''\n"
    with open(path, "wb") as file:
        file.write(head + rest)
"##;

impl Recipe for Python {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn detect(&self, bench: &Bench<'_>) -> Option<String> {
        // An app in Node with helper scripts in Python starts with Node.
        let package = bench.source.read("package.json").unwrap_or_default();
        if package.contains("\"start\"") && !bench.source.has_file("manage.py") {
            return None;
        }
        MARKS.iter().find(|mark| bench.source.has_file(mark)).map(|mark| (*mark).to_owned())
    }

    fn steps(&self, bench: &Bench<'_>) -> Result<Vec<Step>, Refusal> {
        bench.tools.need("python3")?;
        // Before anything is installed: what will be there can only say how to serve an object, not which file holds it.
        if bench.command.is_none() {
            find_start(bench, &|_| true)?;
        }
        let (requirements, arguments) = match needs(bench)? {
            Needs::Nothing => return Ok(vec![Step::script(None, NAME), Step::write(ENV_FILE, NAME_ENV)]),
            Needs::Install { arguments } => (None, arguments),
            Needs::Generated { text } => (Some(text), vec!["-r".to_owned(), GENERATED.to_owned()]),
        };
        let mut steps = vec![
            Step::script(Some("Making a Python environment"), MAKE)
                .on_failure(OnFailure::Missing("python3-venv")),
        ];
        steps.extend(requirements.as_ref().map(|text| Step::write(GENERATED, text)));
        steps.push(install(bench, &arguments));
        steps.push(
            Step::tool("Preparing the environment", "/bin/sh", &["-ec", FINISH]).env("RELOCATE", RELOCATE),
        );
        if wants_static_files(bench) {
            let collect = format!(". ./{ENV_FILE}; exec python manage.py collectstatic --noinput");
            steps.push(Step::write(ENV_FILE, ENV));
            steps.push(
                Step::script(Some("Collecting static files"), &collect)
                    .on_failure(OnFailure::Note("collectstatic failed; the app may have no static files")),
            );
        } else {
            steps.push(Step::write(ENV_FILE, ENV));
        }
        Ok(steps)
    }

    fn launch(&self, bench: &Bench<'_>) -> Result<Launch, Refusal> {
        let has_venv = bench.source.has_dir(VENV);
        let Start { command, python_path, note } = match bench.command {
            Some(command) => Start { command: command.to_owned(), python_path: None, note: None },
            None => {
                let source = bench.source;
                find_start(bench, &|program| source.has_program(&format!("{VENV}/bin/{program}")))?
            }
        };
        // The other name costs a shell where there is no environment.
        let command = match command.strip_prefix("python ") {
            Some(rest) if !has_venv && bench.command.is_none() => format!("python3 {rest}"),
            _ => command,
        };
        let mut launch = Launch::new(command).env("PYTHONUNBUFFERED", "1");
        launch.env.extend(python_path.map(|path| ("PYTHONPATH".to_owned(), path)));
        launch.notes.extend(note);
        Ok(launch.env_file())
    }
}

/// Requirements that we wrote; beside the app's own files, since paths in them are relative to here.
const GENERATED: &str = ".towpath-requirements.txt";

/// Compiles with content hashes (files get new times when they are moved, so compiled files that go by time would all be stale)
/// and without the build's paths in them.
const FINISH: &str = r#"
rm -f .towpath-requirements.txt
.towpath/venv/bin/python3 -c "$RELOCATE" .towpath/venv/bin
.towpath/venv/bin/python3 -m compileall -q -j 2 --invalidation-mode checked-hash -s "$PWD" -p /app .towpath/venv/lib >/dev/null 2>&1 || true
"#;

fn install(bench: &Bench<'_>, arguments: &[String]) -> Step {
    let mut args = vec!["-ec", INSTALL, "pip", "--no-compile", "--no-warn-script-location"];
    args.extend(arguments.iter().map(String::as_str));
    Step::tool("Installing Python packages", "/bin/sh", &args)
        .env("RUN_PIP", RUN_PIP)
        .env("PIP_CACHE_DIR", bench.places.cache.join("pip").to_string_lossy())
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .env("PIP_NO_INPUT", "1")
        .env("PIP_PROGRESS_BAR", "off")
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .env("PYTHONNOUSERSITE", "1")
}

/// Whether it is a Django project that says where its static files go.
fn wants_static_files(bench: &Bench<'_>) -> bool {
    bench.source.has_file("manage.py")
        && bench.source.list("").iter().filter(|entry| entry.dir).any(|dir| {
            let settings = bench.source.read(&format!("{}/settings.py", dir.name)).unwrap_or_default();
            settings.lines().any(|line| line.starts_with("STATIC_ROOT"))
        })
}
