//! The seam that builds run through is tested with the recipes; here only what every build relies on.

use crate::support::{Stage, eventually};
use towpath_types::health::Probe;
use towpath_wire::cell::InstanceState;

#[tokio::test]
async fn a_platform_binary_is_offered_to_instances() {
    let mut stage = Stage::new().await;
    stage.start().await;
    let mut spec = stage.spec(&[], "test -x \"$TOWPATH_BIN\" && touch there; exec sleep 1000");
    spec.health.probe = Probe::Process;
    let id = spec.instance;
    stage.want(vec![spec]).await;
    stage.until_state(id, InstanceState::Ready).await;
    eventually("the proof", || stage.instance_dir(id).join("app/there").exists()).await;
    stage.end().await;
}
