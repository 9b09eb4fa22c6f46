//! The binary: roles and command line.
//!
//! `towpath up | manager | gateway | cell` run the platform, everything else is a client of its HTTP API.
//!
//! Must not: hold logic of the platform itself; that lives in the services.

#![allow(
    rustdoc::broken_intra_doc_links,
    rustdoc::invalid_html_tags,
    reason = "comments on arguments are help texts of the command line, not pages"
)]

mod api;
mod cli;
mod config;
mod document;
mod exit;
mod manifest;
mod remembered;
mod resources_file;
mod role;
mod screen;
mod simulate;
mod suggest;
mod verb;

use clap::Parser;
use cli::{Call, Cli, Command};
use exit::{Exit, Failure, Outcome};
use screen::{ColorChoice, Format, Screen};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Parents of instances and the server of static files: before anything starts a thread or reads arguments.
    let hidden = std::env::args_os().nth(1);
    if hidden.as_deref().is_some_and(|name| name == towpath_cell::SHIM_COMMAND) {
        return towpath_cell::shim_main(std::env::args_os().skip(2).collect());
    }
    if hidden.as_deref().is_some_and(|name| name == towpath_cell::STATIC_COMMAND) {
        return towpath_cell::static_main(std::env::args_os().skip(2).collect());
    }
    let cli = Cli::parse();
    let (color, format) = (cli.color, cli.command.format());
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            Screen::new(color, format).failure(&failure);
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn run(cli: Cli) -> Outcome {
    let names: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    let screen = Screen::new(cli.color, Format::Table);
    config::find_strangers(names.iter().map(String::as_str)).iter().for_each(|line| screen.warn(line));
    match cli.command {
        Command::Up(args) => role::run(config::Role::Up, &args.role, args.flags(), cli.color, false),
        Command::Manager(args) => {
            role::run(config::Role::Manager, &args.role, args.flags(), cli.color, false)
        }
        Command::Gateway(args) => {
            role::run(config::Role::Gateway, &args.role, args.flags(), cli.color, args.take_over)
        }
        Command::Cell(args) => role::run(config::Role::Cell, &args.role, args.flags(), cli.color, false),
        Command::Completions(args) => args.run(&Screen::new(cli.color, Format::Table)),
        Command::Simulate(args) => args.run(&Screen::new(cli.color, Format::Table)),
        command => client(command, cli.color),
    }
}

/// Runs a client verb on one thread.
fn client(command: Command, color: ColorChoice) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start", &error))?;
    let outcome = runtime.block_on(Box::pin(verb(command, color)));
    // A packer that waits for a connection which is gone does not hold up the end.
    runtime.shutdown_background();
    outcome
}

macro_rules! call {
    ($call:expr, $color:expr) => {{
        let Call { verb, client } = $call;
        let context = client.context($color)?;
        Box::pin(verb.run(&context)).await
    }};
}

async fn verb(command: Command, color: ColorChoice) -> Outcome {
    match command {
        Command::Push(call) => call!(*call, color),
        Command::Apps(call) => call!(call, color),
        Command::App(call) => call!(call, color),
        Command::Scale(call) => call!(call, color),
        Command::Restart(call) => call!(call, color),
        Command::Stop(call) => call!(call, color),
        Command::Start(call) => call!(call, color),
        Command::Rollback(call) => call!(call, color),
        Command::Releases(call) => call!(call, color),
        Command::Env(call) => call!(call, color),
        Command::Secrets(call) => call!(call, color),
        Command::Logs(call) => call!(call, color),
        Command::Delete(call) => call!(call, color),
        Command::Routes(call) => call!(call, color),
        Command::Lanes(call) => call!(call, color),
        Command::Instances(call) => call!(call, color),
        Command::Status(call) => call!(call, color),
        Command::Top(call) => call!(call, color),
        Command::Explain(call) => call!(call, color),
        Command::Follow(call) => call!(call, color),
        Command::Login(call) => call!(call, color),
        Command::Logout(call) => call!(call, color),
        Command::Whoami(call) => call!(call, color),
        Command::Password(call) => call!(call, color),
        Command::Target(call) => call!(call, color),
        Command::Orgs(call) => call!(call, color),
        Command::Spaces(call) => call!(call, color),
        Command::Members(call) => call!(call, color),
        Command::Users(call) => call!(call, color),
        Command::Audit(call) => call!(call, color),
        Command::Token(call) => call!(call, color),
        Command::Cells(call) => call!(call, color),
        Command::Gateways(call) => call!(call, color),
        Command::Managers(call) => call!(call, color),
        Command::Version(call) => call!(call, color),
        Command::Up(_)
        | Command::Manager(_)
        | Command::Gateway(_)
        | Command::Cell(_)
        | Command::Completions(_)
        | Command::Simulate(_) => Err(Failure::new(Exit::Failed, "this command needs no API")),
    }
}
