//! How to start a Python web app that does not say it.

use crate::staging::Refusal;
use crate::staging::recipe::{Bench, HOST, no_command};
use crate::staging::source::Source;

/// A way to start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) command: String,
    /// Where modules are, if not in the app's directory.
    pub(super) python_path: Option<String>,
    pub(super) note: Option<String>,
}

/// Files that may hold the app, in order.
const CANDIDATES: &[&str] = &[
    "wsgi.py",
    "asgi.py",
    "app.py",
    "main.py",
    "application.py",
    "server.py",
    "run.py",
    "index.py",
    "hello.py",
    "app/__init__.py",
    "app/main.py",
    "app/app.py",
    "src/app.py",
    "src/main.py",
    "src/wsgi.py",
    "src/server.py",
];

/// What kind of interface an app object has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interface {
    Flask,
    Wsgi,
    Asgi,
}

/// Constructors by which an app object is known.
const CONSTRUCTORS: &[(&str, Interface)] = &[
    ("Flask(", Interface::Flask),
    ("flask.Flask(", Interface::Flask),
    ("APIFlask(", Interface::Flask),
    ("Bottle(", Interface::Wsgi),
    ("bottle.Bottle(", Interface::Wsgi),
    ("bottle.default_app(", Interface::Wsgi),
    ("falcon.App(", Interface::Wsgi),
    ("get_wsgi_application(", Interface::Wsgi),
    ("falcon.asgi.App(", Interface::Asgi),
    ("FastAPI(", Interface::Asgi),
    ("fastapi.FastAPI(", Interface::Asgi),
    ("Starlette(", Interface::Asgi),
    ("Quart(", Interface::Asgi),
    ("Litestar(", Interface::Asgi),
    ("BlackSheep(", Interface::Asgi),
    ("Sanic(", Interface::Asgi),
    ("get_asgi_application(", Interface::Asgi),
];

/// An app object in a file.
#[derive(Debug, PartialEq, Eq)]
struct Object {
    module: String,
    /// In `src`.
    below_src: bool,
    /// Name of the object, or of the function that makes it.
    name: String,
    factory: bool,
    interface: Interface,
}

/// Finds it: a Django project, then an app object in a file of a usual name, then a file that can be run. `installed` says which
/// programs there are.
pub(super) fn find_start(bench: &Bench<'_>, installed: &dyn Fn(&str) -> bool) -> Result<Start, Refusal> {
    let source = bench.source;
    if let Some(start) = django(source, installed) {
        return Ok(start);
    }
    let others = source.files_ending("", ".py");
    let packages = source.list("").into_iter().filter(|entry| entry.dir && is_module(&entry.name));
    let packages = packages.map(|entry| format!("{}/__init__.py", entry.name));
    let usual = CANDIDATES.iter().map(|file| (*file).to_owned());
    let mut files = usual.chain(others.iter().cloned()).chain(packages);
    let object = files.find_map(|file| object_in(&file, &source.read(&file)?));
    if let Some(start) = object.and_then(|object| serve(&object, installed)) {
        return Ok(start);
    }
    let program = CANDIDATES.iter().map(|file| (*file).to_owned()).find(|file| source.has_file(file));
    let program = program.or_else(|| match others.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    });
    match program.filter(|file| file.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b))) {
        Some(file) => Ok(Start { command: format!("python {file}"), python_path: None, note: None }),
        None => {
            Err(no_command("no manage.py, app.py, main.py, wsgi.py or server.py, nor one other Python file"))
        }
    }
}

fn django(source: &Source, installed: &dyn Fn(&str) -> bool) -> Option<Start> {
    if !source.has_file("manage.py") {
        return None;
    }
    let project =
        source.list("").into_iter().filter(|entry| entry.dir && is_module(&entry.name)).map(|dir| dir.name);
    let project = project.clone().find(|dir| source.has_file(&format!("{dir}/wsgi.py")));
    let start = |command: String, note: Option<&str>| {
        Some(Start { command, python_path: None, note: note.map(str::to_owned) })
    };
    match project {
        Some(project) if installed("gunicorn") => {
            start(format!("gunicorn --bind \"{HOST}:$PORT\" --threads 8 {project}.wsgi"), None)
        }
        Some(project) if installed("uvicorn") && source.has_file(&format!("{project}/asgi.py")) => {
            start(format!("uvicorn --host \"{HOST}\" --port \"$PORT\" {project}.asgi:application"), None)
        }
        _ => start(
            format!("python manage.py runserver --noreload \"{HOST}:$PORT\""),
            Some("this is Django's development server; add gunicorn to the requirements for a better one"),
        ),
    }
}

fn serve(object: &Object, installed: &dyn Fn(&str) -> bool) -> Option<Start> {
    let Object { module, name, factory, interface, below_src } = object;
    let call = if *factory { "()" } else { "" };
    let uvicorn_factory = if *factory { "--factory " } else { "" };
    let (command, note) = match interface {
        Interface::Asgi if installed("uvicorn") => {
            (format!("uvicorn --host \"{HOST}\" --port \"$PORT\" {uvicorn_factory}{module}:{name}"), None)
        }
        Interface::Asgi if installed("hypercorn") => {
            (format!("hypercorn --bind \"{HOST}:$PORT\" '{module}:{name}{call}'"), None)
        }
        Interface::Flask | Interface::Wsgi if installed("gunicorn") => {
            (format!("gunicorn --bind \"{HOST}:$PORT\" --threads 8 '{module}:{name}{call}'"), None)
        }
        Interface::Flask | Interface::Wsgi if installed("waitress-serve") => {
            let by_call = if *factory { "--call " } else { "" };
            (format!("waitress-serve --listen=\"{HOST}:$PORT\" {by_call}{module}:{name}"), None)
        }
        Interface::Flask if installed("flask") => (
            format!("flask --app '{module}:{name}{call}' run --host \"{HOST}\" --port \"$PORT\""),
            Some(
                "this is Flask's development server; add gunicorn to the requirements for a better one"
                    .to_owned(),
            ),
        ),
        _ => return None,
    };
    let command = if *factory { command } else { command.replace('\'', "") };
    Some(Start { command, python_path: below_src.then(|| "src".to_owned()), note })
}

fn is_module(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The app object that a file makes at its top level.
fn object_in(file: &str, text: &str) -> Option<Object> {
    let below_src = file.starts_with("src/");
    let module = file
        .trim_start_matches("src/")
        .trim_end_matches(".py")
        .trim_end_matches("/__init__")
        .replace('/', ".");
    if !module.split('.').all(is_module) {
        return None;
    }
    let interface_of =
        |made: &str| CONSTRUCTORS.iter().find(|(start, _)| made.starts_with(start)).map(|(_, kind)| *kind);
    let anywhere =
        || text.lines().find_map(|line| line.split_once('=').and_then(|(_, made)| interface_of(made.trim())));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("def ").or_else(|| line.strip_prefix("async def ")) {
            let name = rest.split('(').next().unwrap_or_default();
            let no_arguments = rest.contains("()") || rest.contains('=');
            if matches!(name, "create_app" | "make_app" | "get_app" | "build_app")
                && no_arguments
                && let Some(interface) = anywhere()
                && !makes_object(text, name)
            {
                return Some(Object { module, below_src, name: name.to_owned(), factory: true, interface });
            }
            continue;
        }
        let Some((left, made)) = line.split_once('=') else { continue };
        let name = left.split(':').next().unwrap_or_default().trim_end();
        if !is_module(name) {
            continue;
        }
        let made = made.trim();
        let factory_made =
            ["create_app(", "make_app(", "get_app(", "build_app("].iter().any(|call| made.starts_with(call));
        let interface = interface_of(made).or_else(|| {
            factory_made.then(|| {
                if text.contains("fastapi") || text.contains("FastAPI") {
                    Interface::Asgi
                } else {
                    Interface::Flask
                }
            })
        });
        if let Some(interface) = interface {
            return Some(Object { module, below_src, name: name.to_owned(), factory: false, interface });
        }
    }
    None
}

/// Whether the file itself calls the function at its top level to make an object.
fn makes_object(text: &str, function: &str) -> bool {
    text.lines().any(|line| {
        line.split_once('=').is_some_and(|(left, made)| {
            is_module(left.trim_end()) && made.trim().starts_with(&format!("{function}("))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Option<(String, String, bool, Interface)> {
        object_in(file, text).map(|o| (o.module, o.name, o.factory, o.interface))
    }

    #[test]
    fn app_objects_are_found_by_what_makes_them() {
        let flask = "from flask import Flask\n\napp = Flask(__name__)\n";
        assert_eq!(found("app.py", flask), Some(("app".into(), "app".into(), false, Interface::Flask)));
        let api = "api: FastAPI = FastAPI(title='x')\n";
        assert_eq!(found("src/main.py", api), Some(("main".into(), "api".into(), false, Interface::Asgi)));
        let factory = "def create_app(config=None):\n    app = Flask(__name__)\n    return app\n";
        assert_eq!(
            found("app/__init__.py", factory),
            Some(("app".into(), "create_app".into(), true, Interface::Flask))
        );
        let both = format!("{factory}\napplication = create_app()\n");
        assert_eq!(
            found("wsgi.py", &both),
            Some(("wsgi".into(), "application".into(), false, Interface::Flask))
        );
        for nothing in ["x == Flask(", "    app = Flask(__name__)", "import os\n", "# app = Flask()"] {
            assert_eq!(found("app.py", nothing), None, "{nothing}");
        }
        assert_eq!(found("my-app.py", flask), None);
    }

    #[test]
    fn the_best_installed_server_is_taken() {
        let object = object_in("app.py", "app = Flask(__name__)").unwrap();
        let with = |names: &'static [&'static str]| {
            serve(&object, &move |name| names.contains(&name)).map(|s| s.command)
        };
        assert_eq!(
            with(&["gunicorn", "flask"]).unwrap(),
            "gunicorn --bind \"${HOST:-0.0.0.0}:$PORT\" --threads 8 app:app"
        );
        assert_eq!(
            with(&["flask"]).unwrap(),
            "flask --app app:app run --host \"${HOST:-0.0.0.0}\" --port \"$PORT\""
        );
        assert_eq!(with(&[]), None);
    }
}
