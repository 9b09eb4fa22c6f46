//! The command line: what can be asked for.

pub(crate) mod client;
pub(crate) mod role;

use crate::screen::{ColorChoice, Format};
use crate::verb;
use clap::{Args, Parser, Subcommand};
use client::ClientArgs;

/// Push an app, get a URL: an application platform in one binary.
#[derive(Debug, Parser)]
#[command(
    name = "towpath",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = EXAMPLES
)]
pub(crate) struct Cli {
    /// When to use colours: auto, always or never
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_possible_values = true,
        hide_default_value = true,
        help_heading = "Options of all commands",
        display_order = 1000
    )]
    pub(crate) color: ColorChoice,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  towpath up                      Start the whole platform on this machine
  towpath push                    Deploy the app in this directory; prints its URL
  towpath push --lane blue        Deploy it beside the base version, in a lane of its own
  towpath logs shop -f            Follow what the app prints
  towpath explain http://shop.localhost:8080/ -H 'towpath-lane: blue'

Exit codes: 0 done · 1 the operation failed · 2 wrong usage, configuration or manifest · 3 API not
reachable · 4 no such thing · 5 token missing or not sufficient · 6 not in the present state ·
7 not possible now · 130 left with Ctrl-C";

/// A verb with where the API is.
#[derive(Debug, Args)]
pub(crate) struct Call<T: Args> {
    /// The verb's own arguments.
    #[command(flatten)]
    pub(crate) verb: T,
    /// Where the API is, and as whom.
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole platform in this process: manager, gateway and cell
    Up(Box<role::UpArgs>),
    /// Run a manager of a cluster (needs NATS and PostgreSQL)
    Manager(Box<role::ManagerArgs>),
    /// Run a gateway of a cluster (needs NATS)
    Gateway(Box<role::GatewayArgs>),
    /// Run a cell of a cluster, which runs instances on this machine (needs NATS)
    Cell(Box<role::CellArgs>),
    /// Deploy the app in a directory
    Push(Box<Call<verb::push::PushArgs>>),
    /// List apps
    Apps(Call<verb::apps::AppsArgs>),
    /// Show one app: lanes, instances, addresses
    App(Call<verb::app::AppArgs>),
    /// Change how many instances run, and what each may use
    Scale(Call<verb::scale::ScaleArgs>),
    /// Replace every instance, one after the other, without losing a request
    Restart(Call<verb::restart::RestartArgs>),
    /// Stop an app; its requests are answered 503 until it is started
    Stop(Call<verb::stop::StopArgs>),
    /// Start a stopped app
    Start(Call<verb::stop::StartArgs>),
    /// Go back to an earlier release
    Rollback(Call<verb::rollback::RollbackArgs>),
    /// List the releases of an app
    Releases(Call<verb::releases::ReleasesArgs>),
    /// Show and change environment variables
    Env(Call<verb::env::EnvArgs>),
    /// Show and change secret variables, and the keys that they are sealed with
    Secrets(Call<verb::secrets::SecretsArgs>),
    /// Show what instances print
    Logs(Call<verb::logs::LogsArgs>),
    /// Delete an app, or its part in one lane
    Delete(Call<verb::delete::DeleteArgs>),
    /// Show and change the addresses of apps
    Routes(Call<verb::routes::RoutesArgs>),
    /// Show and change lanes
    Lanes(Call<verb::lanes::LanesArgs>),
    /// List instances
    Instances(Call<verb::instances::InstancesArgs>),
    /// Show how the platform is
    Status(Call<verb::status::StatusArgs>),
    /// Watch instances and cells at work
    Top(Call<verb::top::TopArgs>),
    /// Say where a request would go, and why, without sending it
    Explain(Call<verb::explain::ExplainArgs>),
    /// Follow an operation that was started before
    Follow(Call<verb::follow::FollowArgs>),
    /// Log in as a user
    Login(Call<verb::login::LoginArgs>),
    /// End the session of `towpath login`
    Logout(Call<verb::login::LogoutArgs>),
    /// Say who you are, and what you may do where
    Whoami(Call<verb::login::WhoamiArgs>),
    /// Change your password
    Password(Call<verb::login::PasswordArgs>),
    /// Choose the org and space that other commands work in
    Target(Call<verb::target::TargetArgs>),
    /// Show and change orgs, and what they may use
    Orgs(Call<verb::orgs::OrgsArgs>),
    /// Show and change the spaces of an org
    Spaces(Call<verb::orgs::SpacesArgs>),
    /// Show and change who belongs to an org
    Members(Call<verb::users::MembersArgs>),
    /// Show and change users
    Users(Call<verb::users::UsersArgs>),
    /// Show who changed what
    Audit(Call<verb::audit::AuditArgs>),
    /// Show and change API tokens
    Token(Call<verb::token::TokenArgs>),
    /// List cells
    Cells(Call<verb::cells::CellsArgs>),
    /// List gateways
    Gateways(Call<verb::gateways::GatewaysArgs>),
    /// List the managers, or tell which one owns something
    Managers(Call<verb::managers::ManagersArgs>),
    /// Make a load for benches: many cells that only talk (needs NATS)
    Simulate(crate::simulate::SimulateArgs),
    /// Print a completion script for a shell
    Completions(verb::completions::CompletionsArgs),
    /// Print the versions of this program and of the platform
    Version(Call<verb::version::VersionArgs>),
}

impl Command {
    /// How its results, and with them its errors, are printed.
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Push(call) => call.client.format(),
            Self::Apps(call) => call.client.format(),
            Self::App(call) => call.client.format(),
            Self::Scale(call) => call.client.format(),
            Self::Restart(call) => call.client.format(),
            Self::Stop(call) => call.client.format(),
            Self::Start(call) => call.client.format(),
            Self::Rollback(call) => call.client.format(),
            Self::Releases(call) => call.client.format(),
            Self::Env(call) => call.client.format(),
            Self::Secrets(call) => call.client.format(),
            Self::Logs(call) => call.client.format(),
            Self::Delete(call) => call.client.format(),
            Self::Routes(call) => call.client.format(),
            Self::Lanes(call) => call.client.format(),
            Self::Instances(call) => call.client.format(),
            Self::Status(call) => call.client.format(),
            Self::Top(call) => call.client.format(),
            Self::Explain(call) => call.client.format(),
            Self::Follow(call) => call.client.format(),
            Self::Token(call) => call.client.format(),
            Self::Cells(call) => call.client.format(),
            Self::Gateways(call) => call.client.format(),
            Self::Managers(call) => call.client.format(),
            Self::Version(call) => call.client.format(),
            _ => Format::Table,
        }
    }
}
