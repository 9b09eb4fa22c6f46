//! What a person asked for. The API's operation knows its verb alone (`scale` for a stop, too), so the words for what is
//! being done, and for what was done, are found here.

use super::apps::wanted;
use crate::api::view::{count, flag, list, short_digest, text};
use crate::screen::style::Style;
use serde_json::Value;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    /// A push, with the settings that were said with it: `memory 256M`.
    Push(Vec<String>),
    /// Back to an earlier release.
    Rollback,
    /// New instances of the same.
    Restart,
    /// Stopped.
    Stop,
    /// Started.
    Start,
    /// Another count, or other limits (`memory 256M`).
    Scale(Option<u32>, Vec<String>),
    /// Variables: set, removed; of all lanes or of one.
    Env { set: Vec<String>, unset: Vec<String>, everywhere: bool },
    /// The app, or its part in one lane.
    Delete,
    /// Everything sealed with another key.
    Rotation,
    /// Whatever it was: it is followed by its id alone.
    Unknown,
}

/// How something ended: its style, and what is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// [`Style::Good`] is said with a tick.
    pub(super) style: Style,
    /// What is said.
    pub(super) text: String,
    /// Whether the addresses are worth telling.
    pub(super) with_urls: bool,
}

impl Deed {
    /// What is going on while instances change.
    pub(super) fn doing(&self, verb: &str) -> &'static str {
        match self {
            Self::Push(_) | Self::Start => "Starting instances",
            Self::Rollback | Self::Restart | Self::Env { .. } => "Replacing instances, one after the other",
            Self::Stop | Self::Delete => "Draining instances",
            Self::Scale(..) => "Changing instances",
            Self::Rotation => "Sealing anew",
            Self::Unknown => match verb {
                "delete" | "delete-group" => "Draining instances",
                "scale" | "update" => "Changing instances",
                "push" => "Starting instances",
                "rotate-secrets" => "Sealing anew",
                _ => "Replacing instances",
            },
        }
    }

    /// What was tried, for a failure: `push of shop in lane blue`.
    pub(super) fn tried(&self, operation: &Value) -> String {
        let (app, lane) = (text(operation, "app"), text(operation, "lane"));
        if text(operation, "verb") == "rotate-secrets" {
            return "rotation of secrets".to_owned();
        }
        let verb = match self {
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Env { everywhere: true, .. } => return format!("change of variables of {app}"),
            Self::Env { .. } => "change of variables",
            Self::Delete if text(operation, "verb") == "delete" => return format!("delete of {app}"),
            _ => match text(operation, "verb") {
                "env" => "change of variables",
                "update" => "scale",
                "delete-group" => "delete",
                verb => verb,
            },
        };
        format!("{verb} of {app} in lane {lane}")
    }

    /// What was done. `app` is how the app is now; null if that is not known.
    pub(super) fn done(&self, operation: &Value, app: &Value) -> Verdict {
        let (name, lane) = (text(operation, "app"), text(operation, "lane"));
        if text(operation, "verb") == "rotate-secrets" {
            return good("All secrets are sealed with the newest key".to_owned());
        }
        let here = Here::of(app, lane);
        let option = lane_option(lane);
        match self {
            Self::Delete => good(match text(operation, "verb") {
                "delete" => format!("{name} is deleted"),
                _ => format!("{name} is deleted from lane {lane}"),
            }),
            Self::Stop => good(format!(
                "{name} is stopped in lane {lane}; start it with: towpath start {name}{option}{}",
                others(app, lane)
            )),
            Self::Env { set, unset, everywhere } => variables(name, lane, app, (set, unset), *everywhere),
            _ if text(operation, "verb").starts_with("delete") => Self::Delete.done(operation, app),
            _ if here.known && here.stopped => Verdict {
                style: Style::Warn,
                text: format!(
                    "{name} is stopped in lane {lane}; start it with: towpath start {name}{option}"
                ),
                with_urls: false,
            },
            _ if here.known && here.wanted == 0 => Verdict {
                style: if matches!(self, Self::Scale(Some(0), _)) { Style::Good } else { Style::Warn },
                text: format!(
                    "{name} has 0 instances in lane {lane}, so it answers nothing; \
                     start some with: towpath scale {name} 1{option}"
                ),
                with_urls: false,
            },
            _ if here.known && here.ready < here.wanted => Verdict {
                style: Style::Warn,
                text: format!(
                    "{}, but only {} of {} instances are ready; look at: towpath app {name}",
                    self.words(operation),
                    here.ready,
                    here.wanted
                ),
                with_urls: true,
            },
            _ => {
                let ready = match here.known {
                    true => format!(": {}/{} ready", here.ready, here.wanted),
                    false => String::new(),
                };
                let with_urls =
                    matches!(text(operation, "verb"), "push" | "rollback") || matches!(self, Self::Start);
                Verdict { with_urls, ..good(format!("{}{ready}", self.words(operation))) }
            }
        }
    }

    /// The change in words: `shop runs release 17299fa9e29f in lane base`.
    fn words(&self, operation: &Value) -> String {
        let (name, lane) = (text(operation, "app"), text(operation, "lane"));
        match (self, text(operation, "verb")) {
            (Self::Start, _) => format!("{name} is started in lane {lane}"),
            (Self::Scale(Some(1), limits), _) => {
                format!("{name} has 1 instance{} in lane {lane}", with(limits))
            }
            (Self::Scale(Some(count), limits), _) => {
                format!("{name} has {count} instances{} in lane {lane}", with(limits))
            }
            (Self::Scale(None, limits), _) => format!("{name} has instances{} in lane {lane}", with(limits)),
            (_, "push" | "rollback") => {
                let release = short_digest(text(operation, "release"));
                let reused = match text(operation, "verb") == "push" && flag(operation, "reused") {
                    true => " (built before)",
                    false => "",
                };
                format!("{name} runs release {release}{reused} in lane {lane}")
            }
            (_, "restart") => format!("{name} runs with new instances in lane {lane}"),
            (_, verb) => format!("{verb} of {name} in lane {lane} is done"),
        }
    }
}

fn good(text: String) -> Verdict {
    Verdict { style: Style::Good, text, with_urls: false }
}

fn with(limits: &[String]) -> String {
    if limits.is_empty() { String::new() } else { format!(" with {}", limits.join(", ")) }
}

/// ` --lane blue`, for commands; nothing for base.
pub(super) fn lane_option(lane: &str) -> String {
    if lane == "base" || lane.is_empty() { String::new() } else { format!(" --lane {lane}") }
}

/// The group of one lane as it is now.
#[derive(Debug, Default)]
struct Here {
    known: bool,
    stopped: bool,
    ready: u64,
    wanted: u64,
}

impl Here {
    fn of(app: &Value, lane: &str) -> Self {
        let mut here = Self::default();
        for group in list(app, "groups").iter().filter(|group| text(group, "lane") == lane) {
            here.known = true;
            here.stopped |= flag(group, "stopped");
            here.ready += count(group, "ready");
            here.wanted += wanted(group);
        }
        here
    }
}

/// `; it still runs in lane blue`, when it does.
fn others(app: &Value, lane: &str) -> String {
    let running: Vec<&str> = list(app, "groups")
        .iter()
        .filter(|group| text(group, "lane") != lane && wanted(group) > 0)
        .map(|group| text(group, "lane"))
        .collect();
    match running.as_slice() {
        [] => String::new(),
        [one] => format!("\n  it still runs in lane {one}; stop it there with --lane {one}"),
        several => {
            format!("\n  it still runs in the lanes {}; stop it there with --lane", several.join(", "))
        }
    }
}

fn variables(
    name: &str,
    lane: &str,
    app: &Value,
    (set, unset): (&[String], &[String]),
    everywhere: bool,
) -> Verdict {
    let said = match (set, unset) {
        ([], []) => "nothing changed".to_owned(),
        (set, []) => format!("set {}", set.join(", ")),
        ([], unset) => format!("removed {}", unset.join(", ")),
        (set, unset) => format!("set {}, removed {}", set.join(", "), unset.join(", ")),
    };
    let groups: Vec<&Value> =
        list(app, "groups").iter().filter(|group| everywhere || text(group, "lane") == lane).collect();
    let mut lanes: Vec<&str> = groups.iter().map(|group| text(group, "lane")).collect();
    lanes.sort_by_key(|lane| (*lane != "base", *lane));
    lanes.dedup();
    let place = match (everywhere, lanes.as_slice()) {
        (false, _) => format!("in lane {lane}"),
        (true, []) => "in all lanes".to_owned(),
        (true, [one]) => format!("in all lanes (there is {one})"),
        (true, several) => format!("in all lanes ({})", several.join(", ")),
    };
    let ready: u64 = groups.iter().map(|group| count(group, "ready")).sum();
    let wanted: u64 = groups.iter().map(|group| wanted(group)).sum();
    let (style, state) = match wanted {
        0 => (Style::Good, "; no instances run there now".to_owned()),
        _ if ready < wanted => (Style::Warn, format!(", but only {ready} of {wanted} instances are ready")),
        _ if set.is_empty() => (Style::Good, format!(": {ready}/{wanted} instances run without it")),
        _ => (Style::Good, format!(": {ready}/{wanted} instances have it")),
    };
    Verdict { style, text: format!("{name}: {said} {place}{state}"), with_urls: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn operation(verb: &str) -> Value {
        json!({"verb": verb, "app": "shop", "lane": "base", "release": "sha256:17299fa9e29f611b", "reused": true})
    }

    fn app(ready: u64, count: u64, stopped: bool) -> Value {
        json!({"groups": [
            {"lane": "base", "ready": ready, "count": count, "stopped": stopped},
            {"lane": "blue", "ready": 1, "count": 1, "stopped": false},
        ]})
    }

    #[test]
    fn a_tick_stands_only_before_what_is_ready() {
        let push = Deed::Push(Vec::new());
        let done = push.done(&operation("push"), &app(2, 2, false));
        assert_eq!(done.text, "shop runs release 17299fa9e29f (built before) in lane base: 2/2 ready");
        assert!(done.style == Style::Good && done.with_urls);
        let done = push.done(&operation("push"), &app(0, 2, false));
        assert_eq!(done.style, Style::Warn);
        assert!(
            done.text.ends_with("but only 0 of 2 instances are ready; look at: towpath app shop"),
            "{done:?}"
        );
        let done = push.done(&operation("push"), &app(0, 0, false));
        assert_eq!(done.style, Style::Warn);
        assert!(done.text.ends_with("start some with: towpath scale shop 1"), "{done:?}");
        let done = Deed::Scale(Some(3), Vec::new()).done(&operation("scale"), &app(0, 3, true));
        assert_eq!((done.style, done.with_urls), (Style::Warn, false));
        assert!(
            done.text.ends_with("is stopped in lane base; start it with: towpath start shop"),
            "{done:?}"
        );
        // What is not known is not claimed.
        let done = push.done(&operation("push"), &Value::Null);
        assert_eq!(done.text, "shop runs release 17299fa9e29f (built before) in lane base");
    }

    #[test]
    fn each_verb_says_what_was_done_to_what() {
        for (deed, verb, app, said) in [
            (
                Deed::Stop,
                "scale",
                app(0, 2, true),
                "shop is stopped in lane base; start it with: towpath start shop\n  it still runs in lane blue; stop it there with --lane blue",
            ),
            (Deed::Start, "scale", app(2, 2, false), "shop is started in lane base: 2/2 ready"),
            (
                Deed::Scale(Some(1), vec![]),
                "scale",
                app(1, 1, false),
                "shop has 1 instance in lane base: 1/1 ready",
            ),
            (
                Deed::Scale(None, vec!["memory 1G".into()]),
                "update",
                app(2, 2, false),
                "shop has instances with memory 1G in lane base: 2/2 ready",
            ),
            (
                Deed::Restart,
                "restart",
                app(2, 2, false),
                "shop runs with new instances in lane base: 2/2 ready",
            ),
            (
                Deed::Env { set: vec!["A".into(), "B".into()], unset: vec![], everywhere: true },
                "env",
                app(2, 2, false),
                "shop: set A, B in all lanes (base, blue): 3/3 instances have it",
            ),
            (
                Deed::Env { set: vec![], unset: vec!["A".into()], everywhere: false },
                "env",
                app(0, 2, true),
                "shop: removed A in lane base; no instances run there now",
            ),
            (Deed::Delete, "delete", Value::Null, "shop is deleted"),
            (Deed::Unknown, "delete-group", Value::Null, "shop is deleted from lane base"),
            (
                Deed::Unknown,
                "restart",
                app(2, 2, false),
                "shop runs with new instances in lane base: 2/2 ready",
            ),
        ] {
            let done = deed.done(&operation(verb), &app);
            assert_eq!((done.style, done.text.as_str()), (Style::Good, said), "{deed:?}");
        }
        let none = Deed::Scale(Some(0), vec![]).done(&operation("scale"), &app(0, 0, false));
        assert!(none.style == Style::Good && none.text.contains("0 instances in lane base"), "{none:?}");
    }
}
