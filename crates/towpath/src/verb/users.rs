//! `towpath users` and `towpath members`.

use super::login::ask_password;
use crate::api::view::{at, count, flag, text};
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use crate::screen::time;
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde_json::{Value, json};
use towpath_types::UserName;

/// Arguments of `users`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath users\n  towpath users create ann\n  towpath users create root --operator\n  towpath users disable ann\n  towpath users delete ann\n\nPasswords are asked for, or read from the first line of the standard input."
)]
pub(crate) struct UsersArgs {
    #[command(subcommand)]
    action: Option<UserAction>,
}

#[derive(Debug, Subcommand)]
enum UserAction {
    /// List users
    List,
    /// Make a user
    Create {
        /// User
        name: UserName,
        /// May do everything on the platform
        #[arg(long)]
        operator: bool,
        /// Also when there is one of this name, who then gets the password and these rights
        #[arg(long)]
        replace: bool,
    },
    /// Give a user another password; all sessions end
    Password {
        /// User
        name: UserName,
    },
    /// Let a user do nothing for the time being
    Disable {
        /// User
        name: UserName,
    },
    /// Let a user work again
    Enable {
        /// User
        name: UserName,
    },
    /// Delete a user with all memberships
    Delete {
        /// User
        name: UserName,
    },
}

/// Arguments of `members`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath members --org acme\n  towpath members add ann --role owner --org acme\n  towpath members remove ann --org acme"
)]
pub(crate) struct MembersArgs {
    #[command(subcommand)]
    action: Option<MemberAction>,
}

#[derive(Debug, Subcommand)]
enum MemberAction {
    /// List the members of the org
    List,
    /// Make a user a member of the org, or change the role
    Add {
        /// User
        name: UserName,
        /// What the member may do
        #[arg(long, value_enum, default_value = "developer")]
        role: Role,
    },
    /// End a membership
    Remove {
        /// User
        name: UserName,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    /// Everything in the org: spaces, members, tokens
    Owner,
    /// Apps, lanes, routes, environment
    Developer,
    /// Reading, but for environment values
    Viewer,
}

impl UsersArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let put = async |name: &UserName, body: Value, note: String| {
            let made = context.api.call(Method::PUT, &format!("/v1/users/{name}"), Some(&body)).await?;
            if context.screen.json() {
                return context.screen.json_document(&made);
            }
            context.screen.note(note);
            Ok(())
        };
        match self.action {
            None | Some(UserAction::List) => show_users(context).await,
            Some(UserAction::Create { name, operator, replace }) => {
                let body = json!({"password": ask_password("Password")?, "operator": operator});
                let note = format!("User {name} can log in: towpath login {name}");
                if replace {
                    return put(&name, body, note).await;
                }
                let made = context.api.create(&format!("/v1/users/{name}"), &body).await;
                let made = made.map_err(|failure| taken(&name, failure))?;
                if context.screen.json() {
                    return context.screen.json_document(&made);
                }
                context.screen.note(note);
                Ok(())
            }
            Some(UserAction::Password { name }) => {
                let password = ask_password("New password")?;
                put(&name, json!({"password": password}), format!("{name} has another password")).await
            }
            Some(UserAction::Disable { name }) => {
                put(&name, json!({"disabled": true}), format!("{name} may do nothing now")).await
            }
            Some(UserAction::Enable { name }) => {
                put(&name, json!({"disabled": false}), format!("{name} may work again")).await
            }
            Some(UserAction::Delete { name }) => {
                context.api.call(Method::DELETE, &format!("/v1/users/{name}"), None).await?;
                context.screen.note(format!("Deleted user {name}"));
                Ok(())
            }
        }
    }
}

/// What to say when a user cannot be made.
fn taken(name: &UserName, failure: Failure) -> Failure {
    if failure.exit != Exit::Conflict {
        return failure;
    }
    Failure::hinted(
        Exit::Conflict,
        format!("there is a user {name} already"),
        format!("towpath users password {name} gives another password; --replace the rights, too"),
    )
}

async fn show_users(context: &Context) -> Outcome {
    let users = context.api.list("/v1/users").await?;
    if context.screen.json() {
        return context.screen.json_document(&Value::Array(users));
    }
    if users.is_empty() {
        context.screen.note("No users; make one: towpath users create NAME");
        return Ok(());
    }
    let mut table = Table::new(&["USER", "STATE", "ROLES", "AGE"]);
    for user in &users {
        let roles = at(user, "orgs").and_then(Value::as_object);
        let mut roles: Vec<String> = roles
            .into_iter()
            .flatten()
            .map(|(org, role)| format!("{} of {org}", role.as_str().unwrap_or_default()))
            .collect();
        if flag(user, "operator") {
            roles.insert(0, "operator".into());
        }
        table.row([
            Cell::new(text(user, "name")).style(Style::Strong),
            Cell::new(if flag(user, "disabled") { "disabled" } else { "active" }),
            Cell::new(roles.join(", ")),
            Cell::number(time::ago(count(user, "created_ms"))),
        ]);
    }
    context.screen.write(&table.shown(&context.screen))
}

impl MembersArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let org = context.api.org();
        let path = format!("/v1/orgs/{org}/members");
        match self.action {
            None | Some(MemberAction::List) => {
                let members = context.api.list(&path).await?;
                if context.screen.json() {
                    return context.screen.json_document(&Value::Array(members));
                }
                let mut table = Table::new(&["USER", "ROLE", "SINCE"]);
                for member in &members {
                    table.row([
                        Cell::new(text(member, "user")).style(Style::Strong),
                        Cell::new(text(member, "role")),
                        Cell::number(time::ago(count(member, "created_ms"))),
                    ]);
                }
                context.screen.write(&table.shown(&context.screen))
            }
            Some(MemberAction::Add { name, role }) => {
                let role = match role {
                    Role::Owner => "owner",
                    Role::Developer => "developer",
                    Role::Viewer => "viewer",
                };
                let body = json!({"role": role});
                let made = context.api.call(Method::PUT, &format!("{path}/{name}"), Some(&body)).await?;
                if context.screen.json() {
                    return context.screen.json_document(&made);
                }
                context.screen.note(format!("{name} is {role} of {org}"));
                Ok(())
            }
            Some(MemberAction::Remove { name }) => {
                context.api.call(Method::DELETE, &format!("{path}/{name}"), None).await?;
                context.screen.note(format!("{name} is no member of {org} any more"));
                Ok(())
            }
        }
    }
}
