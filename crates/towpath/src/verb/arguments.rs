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

/// A count of instances or lines.
pub(super) fn parse_count(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| *count <= 10_000);
    count.ok_or_else(|| "it is not a whole number from 0 to 10000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_and_bounded() {
        assert_eq!((parse_count("0"), parse_count("10000")), (Ok(0), Ok(10_000)));
        for wrong in ["", "-1", "1.5", "10001", "99999999999999999999", "two"] {
            assert!(parse_count(wrong).unwrap_err().contains("0 to 10000"), "{wrong}");
        }
    }
}
