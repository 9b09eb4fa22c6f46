//! `towpath scale`.

use super::arguments::{LaneArg, WaitArg, parse_count};
use super::deed::Deed;
use super::operation;
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use clap::Args;
use hyper::Method;
use serde_json::json;
use towpath_types::{AppName, ByteSize};

/// Arguments of `scale`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath scale shop 4\n  towpath scale shop 2 --lane blue\n  towpath scale shop --memory 1G"
)]
pub(crate) struct ScaleArgs {
    /// App
    app: AppName,
    /// Wanted instances
    #[arg(value_parser = parse_count, value_name = "INSTANCES")]
    count: Option<u32>,
    /// Memory of each instance, for example 512M
    #[arg(short, long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// Disk of each instance, for example 2G
    #[arg(long, value_name = "SIZE")]
    disk: Option<ByteSize>,
    #[command(flatten)]
    lane: LaneArg,
    #[command(flatten)]
    wait: WaitArg,
}

impl ScaleArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let (app, lane) = (&self.app, &self.lane.lane);
        let mut change = serde_json::Map::new();
        change.extend(self.count.map(|count| ("count".to_owned(), json!(count))));
        if self.memory.is_some() || self.disk.is_some() {
            // Limits are replaced as a whole, so what is not asked for is taken over.
            let groups = context.api.list(&format!("/v1/apps/{app}/groups")).await;
            let groups = context.app_hint(app.as_str(), groups).await?;
            let mut limits = groups
                .iter()
                .find(|group| crate::api::view::text(group, "lane") == lane.as_str())
                .and_then(|group| group.get("limits").cloned())
                .filter(serde_json::Value::is_object)
                .unwrap_or_else(|| json!({}));
            if let Some(map) = limits.as_object_mut() {
                map.extend(self.memory.map(|size| ("memory".to_owned(), json!(size))));
                map.extend(self.disk.map(|size| ("disk".to_owned(), json!(size))));
            }
            change.insert("limits".into(), limits);
        }
        if change.is_empty() {
            return Err(Failure::hinted(
                Exit::Usage,
                "nothing to change",
                format!("say how many instances, for example `towpath scale {app} 3`, or --memory"),
            ));
        }
        let path = format!("/v1/apps/{app}/groups/{lane}");
        let begun = context.api.call(Method::PATCH, &path, Some(&change.into())).await;
        let begun = context.app_hint(app.as_str(), begun).await?;
        let limits = [("memory", self.memory), ("disk", self.disk)];
        let limits = limits.iter().filter_map(|(name, size)| size.map(|size| format!("{name} {size}")));
        let deed = Deed::Scale(self.count, limits.collect());
        operation::finish(context, begun, self.wait.detach, &deed).await
    }
}
