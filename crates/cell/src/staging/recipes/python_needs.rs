//! Which packages a Python app needs, whatever file says it.

use crate::staging::Refusal;
use crate::staging::recipe::Bench;
use serde_json::Value as Json;
use towpath_types::ErrorCode;

/// What pip has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// Nothing.
    Nothing,
    /// Install with these arguments.
    Install {
        /// Of `pip install`.
        arguments: Vec<String>,
    },
    /// Install what this requirements file says.
    Generated {
        /// Its text.
        text: String,
    },
}

/// Reads requirements.txt, else Pipfile.lock or Pipfile, else pyproject.toml or setup.py.
pub(super) fn needs(bench: &Bench<'_>) -> Result<Needs, Refusal> {
    if let Some(text) = bench.source.read("requirements.txt") {
        return Ok(requirements(&text));
    }
    if let Some(text) = bench.source.read("Pipfile.lock") {
        return pipfile_lock(&text);
    }
    if let Some(text) = bench.source.read("Pipfile") {
        return pipfile(&text);
    }
    if let Some(text) = bench.source.read("pyproject.toml") {
        return pyproject(&text, bench);
    }
    Ok(if bench.source.has_file("setup.py") { install_itself() } else { Needs::Nothing })
}

fn install_itself() -> Needs {
    Needs::Install { arguments: vec![".".to_owned()] }
}

fn generated(lines: Vec<String>) -> Needs {
    if lines.is_empty() {
        Needs::Nothing
    } else {
        Needs::Generated { text: format!("{}\n", lines.join("\n")) }
    }
}

/// An editable install points at the directory of the build, which the app leaves: local ones are installed properly.
fn requirements(text: &str) -> Needs {
    let editable = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("-e")
            .or_else(|| line.strip_prefix("--editable"))
            .map(|rest| rest.trim_start_matches(['=', ' ', '\t']).to_owned())
    };
    let meaningful = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    if !text.lines().any(meaningful) {
        return Needs::Nothing;
    }
    if text.lines().any(|line| editable(line).is_some()) {
        return generated(
            text.lines().map(|line| editable(line).unwrap_or_else(|| line.to_owned())).collect(),
        );
    }
    Needs::Install { arguments: vec!["-r".to_owned(), "requirements.txt".to_owned()] }
}

fn unreadable(file: &str, error: &str) -> Refusal {
    Refusal { code: ErrorCode::BuildFailed, message: format!("{file} cannot be read: {error}") }
}

fn pipfile_lock(text: &str) -> Result<Needs, Refusal> {
    let lock: Json =
        serde_json::from_str(text).map_err(|error| unreadable("Pipfile.lock", &error.to_string()))?;
    let packages = lock.get("default").and_then(Json::as_object);
    let line = |(name, package): (&String, &Json)| pipenv_line(name, package);
    Ok(generated(packages.into_iter().flatten().filter_map(line).collect()))
}

fn pipfile(text: &str) -> Result<Needs, Refusal> {
    let file: Json = toml::from_str(text).map_err(|error| unreadable("Pipfile", error.message()))?;
    let packages = file.get("packages").and_then(Json::as_object);
    let line = |(name, package): (&String, &Json)| pipenv_line(name, package);
    Ok(generated(packages.into_iter().flatten().filter_map(line).collect()))
}

/// `name[extra]==1.0 ; marker`, from pipenv's way to say it.
fn pipenv_line(name: &str, package: &Json) -> Option<String> {
    let text = |key: &str| package.get(key).and_then(Json::as_str);
    let extras: Vec<&str> = package
        .get("extras")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let extras = if extras.is_empty() { String::new() } else { format!("[{}]", extras.join(",")) };
    if let Some(path) = text("path") {
        return Some(format!("{path}{extras}"));
    }
    if let Some(git) = text("git") {
        let at = text("ref").map(|at| format!("@{at}")).unwrap_or_default();
        return Some(format!("{name}{extras} @ git+{git}{at}"));
    }
    let version = package.as_str().or_else(|| text("version")).unwrap_or("*").replace('*', "");
    let marker = text("markers").map(|marker| format!(" ; {marker}")).unwrap_or_default();
    let line = format!("{name}{extras}{version}{marker}");
    (!line.contains('\n') && !line.starts_with('-')).then_some(line)
}

/// A project with a build system is installed itself; one that only lists what it needs gets that.
fn pyproject(text: &str, bench: &Bench<'_>) -> Result<Needs, Refusal> {
    let project: Json =
        toml::from_str(text).map_err(|error| unreadable("pyproject.toml", error.message()))?;
    if project.get("build-system").is_some() || bench.source.has_file("setup.py") {
        return Ok(install_itself());
    }
    let dependencies = project.pointer("/project/dependencies").and_then(Json::as_array);
    let lines =
        dependencies.into_iter().flatten().filter_map(Json::as_str).filter(|line| !line.contains('\n'));
    Ok(generated(lines.map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_stay_as_they_are_unless_they_point_at_the_build() {
        assert_eq!(requirements("# none\n\n"), Needs::Nothing);
        assert_eq!(
            requirements("flask\n"),
            Needs::Install { arguments: vec!["-r".into(), "requirements.txt".into()] }
        );
        assert_eq!(
            requirements("flask\n-e .\n--editable=./lib"),
            Needs::Generated { text: "flask\n.\n./lib\n".into() }
        );
    }

    #[test]
    fn pipenv_files_become_requirements() {
        let lock = r#"{"default": {"flask": {"version": "==3.0", "extras": ["async"], "markers": "python_version >= '3.8'"}}}"#;
        let text = "flask[async]==3.0 ; python_version >= '3.8'\n";
        assert_eq!(pipfile_lock(lock).unwrap(), Needs::Generated { text: text.into() });
        let file = "[packages]\nflask = '*'\nrequests = {version = '>=2', extras = ['socks']}\n[dev-packages]\npytest = '*'\n";
        assert_eq!(pipfile(file).unwrap(), Needs::Generated { text: "flask\nrequests[socks]>=2\n".into() });
        assert!(pipfile_lock("{").is_err());
    }
}
