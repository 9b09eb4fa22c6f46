//! `Procfile`: lines of `name: command`, of which `web` takes requests.

/// What a Procfile says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Procfile {
    /// Command of `web`.
    pub(crate) web: Option<String>,
    /// Other processes, which are not run.
    pub(crate) others: Vec<String>,
}

impl Procfile {
    /// Reads it; comments, empty and malformed lines are passed over.
    pub(crate) fn parse(text: &str) -> Self {
        let mut procfile = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let Some((name, command)) = line.split_once(':') else { continue };
            let (name, command) = (name.trim(), command.trim());
            let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || !name.chars().all(good) || command.is_empty() {
                continue;
            }
            if name != "web" {
                procfile.others.push(name.to_owned());
            } else if procfile.web.is_none() {
                procfile.web = Some(command.to_owned());
            }
        }
        procfile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_web_line_counts() {
        let text = "# hi\r\nrelease: ./migrate\r\n\r\nweb:  gunicorn app:app --bind 0.0.0.0:$PORT\r\nbad line\nweb: two\n";
        let procfile = Procfile::parse(text);
        assert_eq!(procfile.web.as_deref(), Some("gunicorn app:app --bind 0.0.0.0:$PORT"));
        assert_eq!(procfile.others, ["release"]);
        assert_eq!(
            Procfile::parse("web:\n: x\nurl: http://x"),
            Procfile { web: None, others: vec!["url".into()] }
        );
    }
}
