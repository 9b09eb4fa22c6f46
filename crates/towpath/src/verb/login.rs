//! `towpath login`, `logout`, `whoami` and `password`.

use crate::api::Token;
use crate::api::view::{count, list, text};
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::remembered;
use crate::screen::time;
use clap::Args;
use hyper::Method;
use serde_json::json;
use std::io::{BufRead, IsTerminal};
use towpath_types::UserName;

/// Arguments of `login`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath login ann\n  towpath login ann --ttl 30m < password-file\n\nThe password is asked for, or read from the first line of the standard input."
)]
pub(crate) struct LoginArgs {
    /// User
    user: UserName,
    /// How long the session lasts, at most 720h
    #[arg(long, value_name = "TIME", default_value = "12h")]
    ttl: towpath_types::Millis,
}

/// Arguments of `logout`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath logout")]
pub(crate) struct LogoutArgs {}

/// Arguments of `whoami`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath whoami\n  towpath whoami -o json")]
pub(crate) struct WhoamiArgs {}

/// Arguments of `password`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath password\n\nBoth passwords are asked for, or read from two lines of the standard input."
)]
pub(crate) struct PasswordArgs {}

/// Asks for a password without showing it; where nobody can be asked, it is the next line of the standard input.
pub(super) fn ask_password(what: &str) -> Outcome<String> {
    let failed = |error: std::io::Error| Failure::io("the password could not be read", &error);
    if std::io::stdin().is_terminal() {
        let terminal = console::Term::stderr();
        terminal.write_str(&format!("{what}: ")).map_err(failed)?;
        return terminal.read_secure_line().map_err(failed);
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(failed)?;
    let password = line.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() {
        return Err(Failure::hinted(
            Exit::Usage,
            format!("no {what}"),
            "give it as a line of the standard input",
        ));
    }
    Ok(password)
}

impl LoginArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let password = ask_password("Password")?;
        let body = json!({"user": self.user, "password": password, "ttl": self.ttl});
        let session = context.api.call(Method::POST, "/v1/login", Some(&body)).await;
        let session = session.map_err(|failure| match failure.exit {
            Exit::Unauthorized => Failure::new(Exit::Unauthorized, "user or password is not right"),
            _ => failure,
        })?;
        remembered::change(context.api.address(), |entry| {
            entry.user = Some(self.user.to_string());
            entry.token = Some(text(&session, "token").to_owned());
        })?;
        if context.screen.json() {
            // The token is in the file; a log of this output is no place for it.
            let shown = json!({"user": self.user, "expires_ms": count(&session, "expires_ms")});
            return context.screen.json_document(&shown);
        }
        let until = time::moment(count(&session, "expires_ms"));
        let until = until.split('.').next().unwrap_or_default();
        context.screen.note(format!(
            "Logged in as {} at {} until {until} UTC",
            self.user,
            context.api.address()
        ));
        Ok(())
    }
}

impl LogoutArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let before = remembered::recall(context.api.address())?;
        let Some(user) = before.user else {
            context.screen.note(format!("Nobody was logged in at {}", context.api.address()));
            return Ok(());
        };
        // The session that is remembered, whatever other token was said.
        let session = context.api.with_token(Token { text: before.token, remedy: String::new() });
        match session.call(Method::POST, "/v1/logout", None).await {
            // It goes on there, so it is not forgotten here.
            Err(failure) if failure.exit != Exit::Unauthorized => return Err(failure),
            // One that has ended already is what was asked for.
            _ => {}
        }
        remembered::change(context.api.address(), |entry| (entry.user, entry.token) = (None, None))?;
        context.screen.note(format!("Logged out {user}"));
        Ok(())
    }
}

impl WhoamiArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let me = context.api.get("/v1/whoami").await?;
        if context.screen.json() {
            return context.screen.json_document(&me);
        }
        let (name, kind, role) = (text(&me, "name"), text(&me, "kind"), text(&me, "role"));
        context.screen.line(format!("{kind} {name}, {role}, working in {}", context.api.space()))?;
        for org in list(&me, "orgs") {
            let space = text(org, "space");
            let place = if space.is_empty() {
                text(org, "org").to_owned()
            } else {
                format!("{}/{space}", text(org, "org"))
            };
            context.screen.line(format!("{} of {place}", text(org, "role")))?;
        }
        Ok(())
    }
}

impl PasswordArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let (current, new) = (ask_password("Present password")?, ask_password("New password")?);
        let body = json!({"current": current, "new": new});
        context.api.call(Method::PUT, "/v1/password", Some(&body)).await?;
        if context.screen.json() {
            return context.screen.json_document(&json!({"changed": true}));
        }
        context.screen.note("Password changed; all other sessions have ended");
        Ok(())
    }
}
