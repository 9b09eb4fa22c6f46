//! `towpath logs`.

use super::arguments::parse_count;
use crate::api::view::{at, count, list, short_id, text};
use crate::api::{Event, Events};
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::screen::plain::{coloured, plain};
use crate::screen::style::{Paint, Style};
use crate::screen::time;
use clap::Args;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use towpath_types::{AppName, LaneName};

/// Arguments of `logs`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath logs shop\n  towpath logs shop -f --lane blue\n  towpath logs shop --tail 1000 -o json\n\nLines begin with lane and number of the instance. Colours that an app prints\nare kept on a terminal alone; other control sequences never get through."
)]
pub(crate) struct LogsArgs {
    /// App
    app: AppName,
    /// Go on with what is printed from now on
    #[arg(short, long)]
    follow: bool,
    /// So many lines that were printed last, of all instances together, in the order of time
    #[arg(short = 'n', long, default_value_t = 100, value_parser = parse_count, value_name = "N")]
    tail: u32,
    /// Only this lane
    #[arg(short, long, value_name = "LANE")]
    lane: Option<LaneName>,
    /// Only this instance, as `towpath instances` names it
    #[arg(long, value_name = "INSTANCE", conflicts_with = "lane")]
    instance: Option<String>,
    /// With the time of each line, UTC
    #[arg(short, long)]
    times: bool,
}

impl LogsArgs {
    fn path(&self, tail: u32) -> String {
        let follow = if self.follow { "&follow=true" } else { "" };
        match (&self.instance, &self.lane) {
            (Some(instance), _) => format!("/v1/instances/{instance}/logs?tail={tail}{follow}"),
            (None, Some(lane)) => format!("/v1/apps/{}/logs?tail={tail}&lane={lane}{follow}", self.app),
            (None, None) => format!("/v1/apps/{}/logs?tail={tail}{follow}", self.app),
        }
    }

    pub(crate) async fn run(mut self, context: &Context) -> Outcome {
        if let Some(name) = &self.instance {
            self.instance = Some(self.find_instance(context, name).await?);
        }
        if self.follow {
            return self.follow(context).await;
        }
        let found = context.api.get(&self.path(self.tail)).await;
        let found = context.app_hint(self.app.as_str(), found).await?;
        if context.screen.json() {
            let mut found = found;
            let kept = last(list(&found, "lines"), self.tail).to_vec();
            if let Some(found) = found.as_object_mut() {
                found.insert("lines".into(), Value::Array(kept));
            }
            return context.screen.json_document(&found);
        }
        for line in last(list(&found, "lines"), self.tail) {
            self.print(context, line, &who(line))?;
        }
        for missing in list(&found, "missing") {
            let (id, why) = (short_id(text(missing, "instance")), text(missing, "why"));
            context.screen.warn(format!("no lines of instance {id}: {why}"));
        }
        if list(&found, "lines").is_empty() {
            context.screen.note(format!("{} has printed nothing", self.app));
        }
        Ok(())
    }

    /// The full id of an instance that is named in full or as tables show it.
    async fn find_instance(&self, context: &Context, name: &str) -> Outcome<String> {
        let listed = context.api.list(&format!("/v1/apps/{}/instances", self.app)).await;
        let listed = context.app_hint(self.app.as_str(), listed).await?;
        let ids = || listed.iter().map(|instance| text(instance, "id"));
        let found = ids().find(|id| *id == name || short_id(id) == name);
        found.map(str::to_owned).ok_or_else(|| {
            let known = ids().map(short_id).collect::<Vec<_>>().join(", ");
            Failure::hinted(
                Exit::NotFound,
                format!("{} has no instance {name}", self.app),
                format!("it has {known}"),
            )
        })
    }

    /// Goes on until Ctrl-C, or until the app is deleted; a broken connection is made anew.
    async fn follow(&self, context: &Context) -> Outcome {
        let mut tail = self.tail;
        let (mut connected, mut ended) = (false, false);
        let (mut labels, mut shown) = (Labels::default(), Shown::default());
        loop {
            let begun = context.api.events(&self.path(tail), None).await;
            let mut events = match context.app_hint(self.app.as_str(), begun).await {
                Ok(events) => events,
                Err(failure)
                    if connected && matches!(failure.exit, Exit::Unreachable | Exit::Unavailable) =>
                {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            connected = true;
            for event in first_lines(&mut events, tail).await {
                if !shown.note(&event) {
                    continue;
                }
                self.show(context, &event, &mut labels)?;
                ended |= event.name == "end";
            }
            while !ended && let Ok(Some(event)) = events.next().await {
                if shown.note(&event) {
                    self.show(context, &event, &mut labels)?;
                }
                ended = event.name == "end";
            }
            if ended {
                return Ok(());
            }
            context.screen.note("— the connection broke; trying again");
            // What was printed meanwhile is wanted, too; what was shown is left out.
            tail = MOST;
            shown.interrupt();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn show(&self, context: &Context, event: &Event, labels: &mut Labels) -> Outcome {
        match event.name.as_str() {
            "line" if context.screen.json() => context.screen.line(event.data.to_string())?,
            "line" => self.print(context, &event.data, &labels.of(&event.data))?,
            "instance" if !context.screen.json() => {
                let what = if event.text("state") == "gone" { "is gone" } else { "is here" };
                context.screen.note(format!("— {} {what}", labels.of(&event.data)));
                if event.text("state") == "gone" {
                    labels.forget(&event.data);
                }
            }
            "end" if !context.screen.json() => {
                context.screen.note(format!("— {}; nothing more will come", event.text("why")));
            }
            "gap" if !context.screen.json() => {
                context.screen.note(format!("— {} lines are missing", count(&event.data, "missed")));
            }
            _ => {}
        }
        Ok(())
    }

    fn print(&self, context: &Context, line: &Value, who: &str) -> Outcome {
        let paint = context.screen.paint();
        let (head, style) = match text(line, "source") {
            "cell" => (Style::Warn, Style::Dim),
            "stderr" => (Style::Name, Style::Warn),
            _ => (Style::Name, Style::Plain),
        };
        let words = text(line, "text");
        let words = if paint == Paint::On { coloured(words) } else { plain(words) };
        let time =
            if self.times { format!("{} ", time::moment(count(line, "at_ms"))) } else { String::new() };
        let time = paint.text(Style::Dim, &time);
        context.screen.line(format!("{time}{} {}", paint.text(head, who), paint.text(style, &words)))
    }
}

/// `base/0`, or the lane and the instance when it has no number.
fn who(line: &Value) -> String {
    let lane = text(line, "lane");
    match at(line, "ordinal").and_then(Value::as_u64) {
        Some(ordinal) => format!("{lane}/{ordinal}"),
        None => format!("{lane}/{}", short_id(text(line, "instance"))),
    }
}

/// Lines that one instance can be asked for.
const MOST: u32 = 10_000;

type Newest = BTreeMap<String, (u64, BTreeSet<String>)>;

/// The newest lines that were shown of each instance, to tell what is new after a broken connection.
#[derive(Debug, Default)]
struct Shown {
    now: Newest,
    /// As it was when the connection broke.
    before: Newest,
}

impl Shown {
    /// The connection broke: what was shown until now comes again.
    fn interrupt(&mut self) {
        self.before.clone_from(&self.now);
    }

    /// Notes an event; false = it is a line that was shown before the connection broke.
    fn note(&mut self, event: &Event) -> bool {
        if event.name != "line" {
            return true;
        }
        let (at_ms, words) = (count(&event.data, "at_ms"), event.text("text"));
        if let Some((newest, texts)) = self.before.get(event.text("instance"))
            && (at_ms < *newest || (at_ms == *newest && texts.contains(words)))
        {
            return false;
        }
        let (newest, texts) = self.now.entry(event.text("instance").to_owned()).or_default();
        if at_ms != *newest {
            *newest = at_ms;
            texts.clear();
        }
        texts.insert(words.to_owned());
        true
    }
}

/// How followed instances are named. While an instance is replaced, its successor has the same number: the one that came
/// later is named with its id, too.
#[derive(Debug, Default)]
struct Labels(BTreeMap<String, String>);

impl Labels {
    fn of(&mut self, line: &Value) -> String {
        let instance = text(line, "instance");
        if let Some(label) = self.0.get(instance) {
            return label.clone();
        }
        let mut label = who(line);
        if self.0.values().any(|taken| *taken == label) {
            label = format!("{label}({})", short_id(instance));
        }
        self.0.insert(instance.to_owned(), label.clone());
        label
    }

    fn forget(&mut self, line: &Value) {
        self.0.remove(text(line, "instance"));
    }
}

/// The last `tail` of lines that are in the order of time.
fn last(lines: &[Value], tail: u32) -> &[Value] {
    let from = lines.len().saturating_sub(usize::try_from(tail).unwrap_or(usize::MAX));
    lines.get(from..).unwrap_or_default()
}

/// What was there when the stream began is waited for at most so long: an instance whose cell does not answer must not
/// hold back the others.
const LONGEST: Duration = Duration::from_millis(900);

/// What a stream tells of the time before it began: its lines in the order of time, the last `tail` of them.
async fn first_lines(events: &mut Events, tail: u32) -> Vec<Event> {
    let mut found = Vec::new();
    if tail == 0 {
        return found;
    }
    let mut past = Past::default();
    let end = tokio::time::Instant::now() + LONGEST;
    while !past.is_told() {
        let Ok(Ok(Some(event))) = tokio::time::timeout_at(end, events.next()).await else { break };
        past.take(&event);
        found.push(event);
    }
    in_order(found, tail)
}

/// Which instances have told all that they printed before the stream began.
#[derive(Debug, Default)]
struct Past {
    begun: bool,
    /// Found, and not live yet.
    telling: BTreeSet<String>,
}

impl Past {
    fn take(&mut self, event: &Event) {
        let instance = event.text("instance").to_owned();
        match event.name.as_str() {
            "begun" => self.begun = true,
            "instance" if event.text("state") == "found" => {
                self.telling.insert(instance);
            }
            "instance" | "live" => {
                self.telling.remove(&instance);
            }
            _ => {}
        }
    }

    fn is_told(&self) -> bool {
        self.begun && self.telling.is_empty()
    }
}

/// The instances first, then the last `tail` lines in the order of time.
fn in_order(events: Vec<Event>, tail: u32) -> Vec<Event> {
    let (mut lines, mut rest): (Vec<Event>, Vec<Event>) =
        events.into_iter().partition(|event| event.name == "line");
    lines.sort_by_key(|event| count(&event.data, "at_ms"));
    let from = lines.len().saturating_sub(usize::try_from(tail).unwrap_or(usize::MAX));
    rest.extend(lines.drain(from..));
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_tail_counts_all_instances_together_by_time() {
        let line = |instance: &str, at_ms: u64| Event {
            name: "line".into(),
            id: None,
            data: json!({"instance": instance, "at_ms": at_ms}),
        };
        let found = Event { name: "instance".into(), id: None, data: json!({}) };
        let events = vec![found, line("a", 1), line("a", 4), line("a", 5), line("b", 2), line("b", 3)];
        let told: Vec<u64> = in_order(events, 3).iter().map(|event| count(&event.data, "at_ms")).collect();
        assert_eq!(told, [0, 3, 4, 5]);
        let lines: Vec<Value> = (0..5).map(|n| json!(n)).collect();
        assert_eq!(last(&lines, 2), [json!(3), json!(4)]);
        assert_eq!((last(&lines, 0).len(), last(&lines, 9).len()), (0, 5));
    }

    #[test]
    fn after_a_broken_connection_nothing_is_shown_twice_or_lost() {
        let line = |at_ms: u64, words: &str| Event {
            name: "line".into(),
            id: None,
            data: json!({"instance": "a", "at_ms": at_ms, "text": words}),
        };
        let mut shown = Shown::default();
        assert!([line(1, "x"), line(2, "x"), line(2, "x")].iter().all(|event| shown.note(event)));
        shown.interrupt();
        let again = [line(1, "x"), line(2, "x"), line(2, "y"), line(3, "x")];
        assert_eq!(again.map(|event| shown.note(&event)), [false, false, true, true]);
    }

    #[test]
    fn two_instances_of_one_number_have_two_names() {
        let line = |instance: &str| json!({"instance": instance, "lane": "base", "ordinal": 2});
        let mut labels = Labels::default();
        assert_eq!(labels.of(&line("a")), "base/2");
        assert_eq!(labels.of(&line("b")), "base/2(b)");
        assert_eq!((labels.of(&line("a")), labels.of(&line("b"))), ("base/2".into(), "base/2(b)".into()));
        labels.forget(&line("a"));
        assert_eq!(labels.of(&line("b")), "base/2(b)", "a name stays");
        assert_eq!(labels.of(&line("c")), "base/2");
    }

    #[test]
    fn the_past_is_told_when_all_instances_that_were_there_are_live() {
        let mut past = Past::default();
        let mut told = |name: &str, instance: &str, state: &str| {
            let data = json!({"instance": instance, "state": state});
            past.take(&Event { name: name.into(), id: None, data });
            past.is_told()
        };
        assert!(!told("instance", "a", "found"));
        assert!(!told("live", "a", "live"), "others may be named still");
        assert!(!told("instance", "b", "found"));
        assert!(!told("begun", "", ""));
        assert!(!told("line", "b", ""));
        assert!(told("instance", "b", "gone"), "who went tells no more");
        assert!(!told("instance", "c", "found"));
        assert!(told("live", "c", "live"));
    }
}
