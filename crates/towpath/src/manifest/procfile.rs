//! `Procfile`: one `name: command` a line, of which Towpath runs `web`.

use crate::document::problem::Problem;

/// What a `Procfile` says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Procfile {
    /// Command of the `web` line.
    pub(super) web: Option<String>,
    /// Lines of other process types, which are not run.
    pub(super) ignored: Vec<String>,
}

/// Reads the file's text.
pub(super) fn read(source: &str, text: &str) -> Result<Procfile, Vec<Problem>> {
    let mut found = Procfile::default();
    let mut problems = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line_number = at + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut wrong = |message: String, hint: &str| {
            problems.push(Problem {
                source: source.into(),
                line: line_number,
                path: String::new(),
                message,
                hint: hint.into(),
                place: None,
            });
        };
        let Some((name, command)) = line.split_once(':') else {
            wrong(format!("{line:?} is no process"), "write for example web: python3 app.py");
            continue;
        };
        let (name, command) = (name.trim(), command.trim());
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            wrong(format!("{name:?} is not a process name"), "write for example web: python3 app.py");
        } else if command.is_empty() {
            wrong(format!("{name} has no command"), "write it behind the colon");
        } else if name == "web" && found.web.is_none() {
            found.web = Some(command.to_owned());
        } else if name == "web" {
            wrong("web stands twice".into(), "keep one of them");
        } else {
            let what = "only web is run; push a directory of its own for this process";
            found.ignored.push(format!("{source}:{line_number}: {name}: {what}"));
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_is_taken_and_the_rest_is_said() {
        let found = read("Procfile", "# c\nweb: gunicorn app:app -b :$PORT\nworker: celery\n\n").unwrap();
        assert_eq!(found.web.as_deref(), Some("gunicorn app:app -b :$PORT"));
        assert!(found.ignored[0].starts_with("Procfile:3: worker:"), "{found:?}");
    }

    #[test]
    fn all_errors_are_listed() {
        let problems = read("Procfile", "web\nweb:\n: x\nweb: a\nweb: b\n").unwrap_err();
        assert_eq!(problems.iter().map(|p| p.line).collect::<Vec<_>>(), [1, 2, 3, 5]);
    }
}
