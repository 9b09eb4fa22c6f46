//! `towpath app`.

use super::apps::wanted;
use super::instances;
use crate::api::view::{at, count, list, short_digest, text, texts};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::{Style, of_state};
use crate::screen::table::{Cell, Table};
use crate::screen::time;
use clap::Args;
use serde_json::Value;
use towpath_types::AppName;

/// Arguments of `app`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath app shop\n  towpath app shop -o json")]
pub(crate) struct AppArgs {
    /// App
    app: AppName,
}

impl AppArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let name = self.app.as_str();
        let app = context.app_hint(name, context.api.get(&format!("/v1/apps/{name}")).await).await?;
        if context.screen.json() {
            return context.screen.json_document(&app);
        }
        let paint = context.screen.paint();
        let state = text(&app, "state");
        context.screen.line(format!(
            "{}  {}",
            paint.text(Style::Strong, name),
            paint.text(of_state(state), state)
        ))?;
        for url in texts(&app, "urls") {
            context.screen.line(format!("  {}", paint.text(Style::Name, url)))?;
        }
        context.screen.line("")?;
        context.screen.write(&groups(&app).shown(&context.screen))?;
        for group in list(&app, "groups") {
            let (message, lane) = (text(group, "message"), text(group, "lane"));
            if !message.is_empty() {
                let code = at(group, "code").and_then(Value::as_str).unwrap_or_default();
                context.screen.line(format!("  {lane}: {message} {}", paint.text(Style::Dim, code)))?;
            } else if let Some(last) = last_failure(group) {
                context.screen.line(format!("  {}", paint.text(Style::Dim, &last)))?;
            }
        }
        let all = context.api.list(&format!("/v1/apps/{name}/instances")).await?;
        if !all.is_empty() {
            context.screen.line("")?;
            context
                .screen
                .write(&instances::table(&all, false, context.screen.format).shown(&context.screen))?;
        }
        Ok(())
    }
}

/// What went wrong last in a group where all is well again.
fn last_failure(group: &Value) -> Option<String> {
    let failure = at(group, "last_failure").filter(|failure| failure.is_object())?;
    let (code, ago) = (text(failure, "code"), time::ago(count(failure, "at_ms")));
    Some(format!("{}: last failure {ago} ago: {} {code}", text(group, "lane"), text(failure, "message")))
}

fn groups(app: &Value) -> Table {
    let mut table =
        Table::new(&["LANE", "PHASE", "READY", "RELEASE", "MEMORY", "URL"]).optional(&["MEMORY", "RELEASE"]);
    let mut groups: Vec<&Value> = list(app, "groups").iter().collect();
    groups.sort_by_key(|group| (text(group, "lane") != "base", text(group, "lane").to_owned()));
    for group in groups {
        let phase = if wanted(group) == 0 { "stopped" } else { text(group, "phase") };
        table.row([
            Cell::new(text(group, "lane")),
            Cell::new(phase).style(of_state(phase)),
            Cell::number(format!("{}/{}", count(group, "ready"), wanted(group))),
            Cell::new(short_digest(text(group, "release"))),
            Cell::number(text(group, "limits.memory")),
            Cell::new(texts(group, "urls").first().copied().unwrap_or_default()).style(Style::Name),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_failure_that_is_over_is_told_with_its_age() {
        let at_ms = time::now_ms() - 125_000;
        let failure = json!({"at_ms": at_ms, "code": "start_failed", "message": "it exited with 1"});
        let group = json!({"lane": "base", "message": "", "last_failure": failure});
        let told = last_failure(&group).unwrap();
        assert_eq!(told, "base: last failure 2m ago: it exited with 1 start_failed");
        assert_eq!(last_failure(&json!({"lane": "base"})), None);
    }
}
