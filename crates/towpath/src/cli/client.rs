//! Arguments that all client verbs share.

use crate::api::{Address, Api, find_token};
use crate::exit::{Exit, Failure, Outcome};
use crate::remembered;
use crate::screen::{ColorChoice, Format, Screen};
use clap::Args;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use towpath_types::{OrgName, SpaceName};

/// Where the API is, as whom, and how results are printed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all client commands")]
pub(crate) struct ClientArgs {
    /// How results are printed
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    /// URL of the API [TOWPATH_API; default: http://127.0.0.1:7700]
    #[arg(long, global = true, value_name = "URL")]
    api: Option<Address>,
    /// API token [TOWPATH_TOKEN]
    #[arg(long, global = true, value_name = "TOKEN")]
    token: Option<String>,
    /// File with the API token [TOWPATH_TOKEN_FILE; default: the session of `towpath login`, or for an API on this machine <data dir>/token]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Org [TOWPATH_ORG; default: that of `towpath target`, or default]
    #[arg(long, global = true, value_name = "ORG")]
    org: Option<OrgName>,
    /// Space inside the org [TOWPATH_SPACE; default: that of `towpath target`, or default]
    #[arg(long, global = true, value_name = "SPACE")]
    space: Option<SpaceName>,
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
    /// How results are printed.
    pub(crate) fn format(&self) -> Format {
        self.output
    }

    /// Finds the token and makes the client. Variables are read here rather than by the parser, which would print them
    /// among the arguments in its usage lines.
    pub(crate) fn context(self, color: ColorChoice) -> Outcome<Context> {
        let api = match self.api {
            Some(api) => api,
            None => variable("TOWPATH_API")?.unwrap_or_default(),
        };
        let remembered = remembered::recall(&api)?;
        let token = find_token(self.token.as_deref(), self.token_file.as_deref(), &api, &remembered)?;
        let org = match self.org {
            Some(org) => Some(org),
            None => variable::<OrgName>("TOWPATH_ORG")?,
        };
        let space = match self.space {
            Some(space) => Some(space),
            None => variable::<SpaceName>("TOWPATH_SPACE")?,
        };
        // A remembered space is one of the remembered org.
        let same_org = org.as_ref().is_none_or(|org| remembered.org.as_deref() == Some(org.as_str()));
        let org = org.map(|org| org.to_string()).or(remembered.org);
        let space = space.map(|space| space.to_string()).or(remembered.space.filter(|_| same_org));
        Ok(Context { api: Api::new(api, token, org, space), screen: Screen::new(color, self.output) })
    }
}

/// The value of a variable; `None` = it is not set, or empty.
fn variable<T>(name: &str) -> Outcome<Option<T>>
where
    T: FromStr,
    T::Err: Display,
{
    let text = std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|why| Failure::new(Exit::Usage, format!("{name}: {why}")))
}
