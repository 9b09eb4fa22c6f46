//! Arguments that all client verbs share.

use crate::api::{Address, Api, TokenArgs, find_token};
use crate::exit::Outcome;
use crate::screen::{ColorChoice, Format, Screen};
use clap::Args;
use std::path::PathBuf;
use towpath_types::{OrgName, SpaceName};

/// Where the API is, as whom, and how results are printed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all client commands")]
pub(crate) struct ClientArgs {
    /// How results are printed
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    /// URL of the API
    #[arg(
        long,
        global = true,
        env = "TOWPATH_API",
        default_value = "http://127.0.0.1:7700",
        value_name = "URL"
    )]
    api: Address,
    /// API token
    #[arg(long, global = true, env = "TOWPATH_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// File with the API token [default for an API on this machine: <data dir>/token]
    #[arg(long, global = true, env = "TOWPATH_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Org
    #[arg(long, global = true, env = "TOWPATH_ORG", default_value = "default", value_name = "ORG")]
    org: OrgName,
    /// Space inside the org
    #[arg(long, global = true, env = "TOWPATH_SPACE", default_value = "default", value_name = "SPACE")]
    space: SpaceName,
}

/// What a verb works with.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The API.
    pub(crate) api: Api,
    /// Where output goes.
    pub(crate) screen: Screen,
}

impl ClientArgs {
    /// Finds the token and makes the client.
    pub(crate) fn context(self, color: ColorChoice) -> Outcome<Context> {
        let args = TokenArgs { token: self.token, file: self.token_file };
        let token = find_token(&args, &self.api)?;
        let api = Api::new(self.api, token, self.org.to_string(), self.space.to_string());
        Ok(Context { api, screen: Screen::new(color, self.output) })
    }
}
