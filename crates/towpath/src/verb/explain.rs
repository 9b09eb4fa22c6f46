//! `towpath explain`.

use super::cells::place;
use crate::api::view::{at, count, list, number, short_id, text, texts};
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use crate::screen::{Format, Screen, time};
use clap::Args;
use hyper::Method;
use serde_json::{Value, json};

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath explain http://shop.localhost:8080/\n  towpath explain http://shop.localhost:8080/cart -H 'towpath-lane: blue' -X POST\n  towpath explain http://shop.localhost:8080/ --cookie towpath_lane=blue\n\nExit code 0: some gateway would send it to an instance; 4: there is no route; 7: nothing can take it now."
)]
pub(crate) struct ExplainArgs {
    /// URL as a client would ask for it
    url: String,
    /// Request header; several may be given
    #[arg(short = 'H', long = "header", value_parser = parse_header, value_name = "NAME: VALUE")]
    headers: Vec<(String, String)>,
    /// Cookie; several may be given
    #[arg(short = 'b', long = "cookie", value_name = "NAME=VALUE")]
    cookies: Vec<String>,
    /// Method
    #[arg(short = 'X', long, default_value = "GET", value_name = "METHOD")]
    method: String,
    /// Client address to assume
    #[arg(long, value_name = "IP")]
    client: Option<std::net::IpAddr>,
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| "write it as 'name: value', for example 'towpath-lane: blue'".to_owned())?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl ExplainArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let url = if self.url.contains("://") { self.url } else { format!("http://{}", self.url) };
        let mut headers = self.headers;
        if !self.cookies.is_empty() {
            headers.push(("cookie".into(), self.cookies.join("; ")));
        }
        let mut body = json!({"url": url, "method": self.method, "headers": headers});
        if let (Some(client), Some(map)) = (self.client, body.as_object_mut()) {
            map.insert("client".into(), json!(client));
        }
        let found = context.api.call(Method::POST, "/v1/explain", Some(&body)).await?;
        let verdict = verdict(list(&found, "items"));
        if context.screen.json() {
            context.screen.json_document(found.get("items").unwrap_or(&found))?;
            return verdict;
        }
        let paint = context.screen.paint();
        context.screen.line(format!("{} {}", self.method, paint.text(Style::Name, &url)))?;
        for explanation in list(&found, "items") {
            context.screen.write(&render(explanation, &context.screen))?;
        }
        for silent in texts(&found, "silent") {
            context.screen.warn(format!("gateway {} did not answer", short_id(silent)));
        }
        verdict
    }
}

/// A request that no gateway would serve ends with the exit code for it, so that scripts can ask.
fn verdict(explanations: &[Value]) -> Outcome {
    let errors = explanations.iter().map(|explanation| match list(explanation, "error") {
        [code, ..] => code.as_str(),
        [] => None,
    });
    let mut exit = None;
    for code in errors {
        match code {
            None => return Ok(()),
            Some("no_route") => exit = exit.or(Some(Exit::NotFound)),
            Some(_) => exit = Some(Exit::Unavailable),
        }
    }
    exit.map_or(Ok(()), |exit| Err(Failure::silent(exit)))
}

/// One gateway's answer.
fn render(explanation: &Value, screen: &Screen) -> String {
    let paint = screen.paint();
    let mut out = String::new();
    let gateway = format!(
        "gateway {} at {}, table of revision {}",
        short_id(text(explanation, "gateway")),
        place(explanation),
        count(explanation, "revision")
    );
    out += &format!("\n{}\n", paint.text(Style::Dim, &gateway));
    let mut line = |name: &str, value: &str, why: &str| {
        let why = if why.is_empty() { String::new() } else { format!("  {}", paint.text(Style::Dim, why)) };
        out += &format!("  {}{value}{why}\n", paint.text(Style::Dim, &format!("{name:<10}")));
    };
    let say = |text: &str| screen.fit(text, 12);
    line("Route", at(explanation, "route").and_then(Value::as_str).unwrap_or("none"), "");
    if let Some(app) = at(explanation, "app") {
        line(
            "App",
            &paint.text(Style::Strong, text(app, "app")),
            &format!("{}/{}", text(app, "org"), text(app, "space")),
        );
        match list(explanation, "asked_lane") {
            [lane, from] => line(
                "Asked for",
                lane.as_str().unwrap_or_default(),
                &format!("by {}", from.as_str().unwrap_or_default()),
            ),
            _ => line("Asked for", "no lane", ""),
        }
        line("Lane", &paint.text(Style::Strong, text(explanation, "lane")), text(explanation, "lane_reason"));
        line("Balancer", &say(text(explanation, "balancer")), "");
        let tier = at(explanation, "tier").and_then(Value::as_u64);
        line(
            "Tier",
            &tier.map_or("none".to_owned(), |tier| tier.to_string()),
            text(explanation, "tier_reason"),
        );
    }
    if let [code, message] = list(explanation, "error") {
        let code = code.as_str().unwrap_or_default();
        line("Answer", &paint.text(Style::Bad, code), message.as_str().unwrap_or_default());
    }
    let endpoints = list(explanation, "endpoints");
    if !endpoints.is_empty() {
        out.push('\n');
        out += &table(endpoints, screen.format).indent(2).shown(screen);
    }
    out
}

fn table(endpoints: &[Value], format: Format) -> Table {
    let mut table = Table::new(&[
        "INSTANCE",
        "LANE",
        "PLACE",
        "TIER",
        "SHARE",
        "SCORE",
        "IN FLIGHT",
        "LATENCY",
        "LOAD",
        "ADDRESS",
        "WHY NOT",
    ])
    .optional(&["LATENCY", "IN FLIGHT", "ADDRESS", "LOAD", "PLACE", "SCORE"]);
    for endpoint in endpoints {
        let id = text(endpoint, "instance");
        let share = number(endpoint, "share");
        let figure = |path: &str, digits: usize| {
            at(endpoint, path).and_then(Value::as_f64).map_or("-".to_owned(), |n| format!("{n:.digits$}"))
        };
        let style = if share > 0.0 { Style::Good } else { Style::Dim };
        table.row([
            Cell::new(if format == Format::Wide { id.to_owned() } else { short_id(id) }).style(style),
            Cell::new(text(endpoint, "lane")),
            Cell::new(place(endpoint)),
            Cell::number(
                at(endpoint, "tier").and_then(Value::as_u64).map_or("-".to_owned(), |tier| tier.to_string()),
            ),
            Cell::number(time::percent(share)).style(style),
            Cell::number(at(endpoint, "score").and_then(Value::as_f64).map_or("-".to_owned(), score)),
            Cell::number(count(endpoint, "in_flight")),
            Cell::number(format!("{:.1}ms", number(endpoint, "latency_ms"))),
            Cell::number(figure("load", 2)),
            Cell::new(text(endpoint, "address")),
            Cell::new(text(endpoint, "why_not")).style(Style::Dim),
        ]);
    }
    table
}

/// Three digits, wherever they are.
fn score(value: f64) -> String {
    match value.abs() {
        v if v == 0.0 || v >= 100.0 => format!("{value:.0}"),
        v if v >= 0.1 => format!("{value:.2}"),
        v if v >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}
