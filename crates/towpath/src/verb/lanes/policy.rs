//! `towpath lanes policy`: where a space's requests carry their lane.

use crate::api::view::{flag, text};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::Style;
use clap::{Args, ValueEnum};
use hyper::Method;
use serde_json::{Map, Value, json};

/// Arguments of `lanes policy`. What is not said stays as it is; with nothing said, it is shown.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath lanes policy                          what holds now\n  towpath lanes policy --mode strict            unknown tags are answered 503\n  towpath lanes policy --header trafficenv\n  towpath lanes policy --host-label false       no blue--shop.localhost any more"
)]
pub(super) struct PolicyArgs {
    /// What becomes of a request whose tag names no lane
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Mode>,
    /// Header with the tag
    #[arg(long, value_name = "NAME")]
    header: Option<String>,
    /// Cookie with the tag
    #[arg(long, value_name = "NAME")]
    cookie: Option<String>,
    /// Query parameter with the tag
    #[arg(long, value_name = "NAME")]
    query: Option<String>,
    /// Whether LANE--APP.DOMAIN leads into the lane
    #[arg(long, value_name = "true|false")]
    host_label: Option<bool>,
    /// Whether baggage of clients outside is believed
    #[arg(long, value_name = "true|false")]
    trust_baggage: Option<bool>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// It goes to base, and the answer says so
    Permissive,
    /// It is answered 503
    Strict,
}

impl PolicyArgs {
    pub(super) async fn run(self, context: &Context) -> Outcome {
        let change = self.change();
        let asked = !change.is_empty();
        let space = if asked {
            let body = json!({"lanes": change});
            context.api.call(Method::PATCH, "/v1/space?wait=revision", Some(&body)).await?
        } else {
            context.api.get("/v1/space").await?
        };
        if context.screen.json() {
            return context.screen.json_document(&space);
        }
        if asked {
            context.screen.note(format!("Changed for {}:", context.api.space()));
        }
        let paint = context.screen.paint();
        let name = |name: &str| paint.text(Style::Dim, &format!("{name:<14}"));
        for (title, value) in lines(&space) {
            context.screen.line(format!("{}{value}", name(title)))?;
        }
        crate::verb::refused::warn(context, "this policy", &space);
        Ok(())
    }

    fn change(&self) -> Map<String, Value> {
        let mode = self.mode.map(|mode| match mode {
            Mode::Permissive => "permissive",
            Mode::Strict => "strict",
        });
        let fields = [
            ("mode", mode.map(|mode| json!(mode))),
            ("header", self.header.as_ref().map(|name| json!(name))),
            ("cookie", self.cookie.as_ref().map(|name| json!(name))),
            ("query", self.query.as_ref().map(|name| json!(name))),
            ("host_label", self.host_label.map(|on| json!(on))),
            ("trust_baggage", self.trust_baggage.map(|on| json!(on))),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

fn lines(space: &Value) -> [(&'static str, String); 7] {
    let policy = space.get("lanes").unwrap_or(&Value::Null);
    let unknown = match text(policy, "mode") {
        "strict" => "strict: a tag that names no lane is answered 503",
        _ => "permissive: a tag that names no lane leads to base",
    };
    let baggage = match flag(policy, "trust_baggage") {
        true => "from everybody",
        false => "from instances alone",
    };
    [
        ("Space", format!("{}/{}", text(space, "org"), text(space, "space"))),
        ("Mode", unknown.to_owned()),
        ("Header", text(policy, "header").to_owned()),
        ("Cookie", text(policy, "cookie").to_owned()),
        ("Query", text(policy, "query").to_owned()),
        ("Host label", if flag(policy, "host_label") { "LANE--APP.DOMAIN" } else { "off" }.to_owned()),
        ("Baggage", baggage.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_is_sent() {
        let none = PolicyArgs {
            mode: None,
            header: None,
            cookie: None,
            query: None,
            host_label: None,
            trust_baggage: None,
        };
        assert!(none.change().is_empty());
        let some = PolicyArgs { mode: Some(Mode::Strict), host_label: Some(false), ..none };
        assert_eq!(Value::Object(some.change()), json!({"mode": "strict", "host_label": false}));
    }

    #[test]
    fn a_policy_is_told_in_words() {
        let space =
            json!({"org": "a", "space": "b", "lanes": {"mode": "strict", "header": "x", "host_label": true}});
        let told = lines(&space).map(|(title, value)| format!("{title}: {value}")).join("\n");
        assert!(
            told.contains("Space: a/b\nMode: strict: a tag that names no lane is answered 503\nHeader: x"),
            "{told}"
        );
        assert!(told.contains("Host label: LANE--APP.DOMAIN\nBaggage: from instances alone"), "{told}");
    }
}
