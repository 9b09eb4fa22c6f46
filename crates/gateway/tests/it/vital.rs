//! A gateway that has lost a part of itself does not go on as if nothing was.

use crate::support::{PATIENCE, Rig};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use towpath_bus::{Bus, BusError, BusState, Subscription};

/// A bus with a bug that kills whoever subscribes.
struct Deadly;

#[async_trait]
impl Bus for Deadly {
    async fn publish(&self, _: &str, _: Bytes) -> Result<(), BusError> {
        Ok(())
    }
    async fn request(&self, subject: &str, _: Bytes, _: Duration) -> Result<Bytes, BusError> {
        Err(BusError::NoResponder(subject.to_owned()))
    }
    async fn subscribe(&self, _: &str) -> Result<Subscription, BusError> {
        panic!("a bug")
    }
    async fn subscribe_queue(&self, _: &str, _: &str) -> Result<Subscription, BusError> {
        panic!("a bug")
    }
    fn state(&self) -> watch::Receiver<BusState> {
        watch::channel(BusState::Up).1
    }
    async fn flush(&self) -> Result<(), BusError> {
        Ok(())
    }
}

#[tokio::test]
async fn the_death_of_the_control_thread_is_told() {
    let rig = Rig::start_in(towpath_testkit::temp_dir(), |_| {}, Some(Arc::new(Deadly))).await;
    let failure = rig.gateway.as_ref().unwrap().failure();
    let failed = tokio::time::timeout(PATIENCE, failure).await;
    assert_eq!(failed, Ok("the control thread"));
}
