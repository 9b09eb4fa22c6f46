//! What a person can do about an operation that failed: by what the platform saw, not by the code alone.

use super::super::deed::lane_option;

/// What is known of a failure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    /// Stable code.
    pub(super) code: &'a str,
    /// What the platform says.
    pub(super) message: &'a str,
    /// App.
    pub(super) app: &'a str,
    /// Lane.
    pub(super) lane: &'a str,
    /// Short id of what serves requests all the while; empty: nothing does.
    pub(super) serving: &'a str,
    /// Whether the group goes on waiting for room.
    pub(super) waits: bool,
}

/// What can be done, if anything is known.
pub(super) fn hint(seen: Seen<'_>) -> Option<String> {
    let (app, lane) = (seen.app, lane_option(seen.lane));
    Some(match seen.code {
        "no_builder" => "write a Procfile with a line `web: <command>`, or say --command or --builder".into(),
        "tool_missing" => "install the tool on the cell, or push a built app with --builder binary".into(),
        "build_failed" | "build_timeout" => "what the build printed is above; nothing was changed".into(),
        "start_failed" => {
            let serving = match seen.serving {
                "" => "nothing serves its address yet".to_owned(),
                release => format!("release {release} still serves"),
            };
            format!("{}; {serving}", start(seen.message, app, &lane))
        }
        "no_room" if seen.waits => format!(
            "it goes on waiting; `towpath cells` shows the room; ask for less: \
             towpath scale {app}{lane} --memory 256M, or a lower count"
        ),
        "no_room" => "`towpath cells` shows the room; ask for less with --memory or --instances".into(),
        "superseded" => format!("`towpath app {app}` shows what runs now"),
        _ => return None,
    })
}

/// The way from what was seen of an instance to what is wrong with it. The order matters: an instance that was killed for
/// its memory did end, too.
fn start(message: &str, app: &str, lane: &str) -> String {
    let has = |part: &str| message.contains(part);
    if has("more memory than its limit") {
        return "it needs more memory: push with --memory, for example --memory 512M".into();
    }
    if has("but must listen on $PORT") {
        return "take the port from the environment variable PORT instead of a fixed one".into();
    }
    if has("on all addresses") {
        return "listen on 0.0.0.0, or on the address in the environment variable HOST".into();
    }
    if has("does not listen on $PORT") {
        return "it runs, but listens nowhere: listen on the port in the variable PORT; more time: --start-timeout; \
                an app without a port: --health process"
            .into();
    }
    if has("status 127") {
        return "its start command was not found: see the lines above, and say another with --command".into();
    }
    if has("status 126") {
        return "its start command may not be executed: chmod +x it, or say another with --command".into();
    }
    if has("exited with status 0") {
        return "its start command ended by itself: it has to stay in the foreground as long as the app runs"
            .into();
    }
    if has("exited with status") || has("killed by signal") {
        return format!("it ended by itself; its own last lines say why: towpath logs {app}{lane}");
    }
    if has("answers with status") {
        return "its health check wants a status below 400 there: mend that path, or say another with --health-path".into();
    }
    if has("gives no HTTP answer") {
        return "what listens there speaks no HTTP: push with --health port, if that is meant".into();
    }
    if has("no answer within") {
        return "it accepts connections but does not answer in time: does its start take long? --start-timeout gives it more"
            .into();
    }
    format!("its own last lines may say why: towpath logs {app}{lane}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: &str, message: &str, serving: &str) -> String {
        hint(Seen { code, message, app: "shop", lane: "blue", serving, waits: false }).unwrap_or_default()
    }

    #[test]
    fn the_hint_fits_what_was_seen() {
        for (message, part) in [
            (
                "ended 3 times before it was healthy: restarted: exited with status 3 after 0.0 s",
                "towpath logs shop --lane blue",
            ),
            (
                "ended 3 times before it was healthy: used more memory than its limit of 16M after 0.3 s",
                "--memory 512M",
            ),
            (
                "did not become healthy within 60 s: it listens on port 3000, but must listen on $PORT (20001)",
                "variable PORT",
            ),
            ("did not become healthy within 60 s: it does not listen on $PORT (20001)", "--health process"),
            (
                "it listens on 127.0.0.1:20001 only, but must listen on 10.0.0.1:20001 or on all addresses",
                "0.0.0.0",
            ),
            ("exited with status 127 after 0.0 s", "--command"),
            ("exited with status 0 after 0.1 s", "foreground"),
            ("killed by signal 11 (SIGSEGV) after 2 s", "towpath logs"),
            ("did not become healthy within 60 s: /healthz answers with status 500", "--health-path"),
            ("something new", "towpath logs"),
        ] {
            let hint = of("start_failed", message, "");
            assert!(hint.contains(part), "{message}: {hint}");
        }
        assert_eq!(of("internal", "", ""), "");
        assert!(of("no_room", "", "").starts_with("`towpath cells`"));
    }

    #[test]
    fn what_serves_is_said_as_it_is() {
        assert!(of("start_failed", "", "").ends_with("nothing serves its address yet"));
        assert!(of("start_failed", "", "17299fa9e29f").ends_with("release 17299fa9e29f still serves"));
    }
}
