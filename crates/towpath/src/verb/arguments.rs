//! Arguments that several verbs share.

use crate::manifest::check_variable;
use clap::Args;
use towpath_types::LaneName;

/// The lane that a verb works in.
#[derive(Debug, Args)]
pub(crate) struct LaneArg {
    /// Lane
    #[arg(short, long, default_value = "base", value_name = "LANE")]
    pub(crate) lane: LaneName,
}

/// Whether a verb waits for what it started.
#[derive(Debug, Args)]
pub(crate) struct WaitArg {
    /// Start it and return at once
    #[arg(long)]
    pub(crate) detach: bool,
}

/// `NAME=VALUE`.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl std::str::FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| "write it as NAME=VALUE, for example LEVEL=debug".to_owned())?;
        match check_variable(name) {
            Some(why) => Err(why.to_owned()),
            None => Ok(Self { name: name.to_owned(), value: value.to_owned() }),
        }
    }
}
