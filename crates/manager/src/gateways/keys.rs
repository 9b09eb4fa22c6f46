//! Gives gateways the keys that open what is secret in resources: to whoever shows a gateways' token, sealed for that one question.

use crate::core::Core;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use towpath_bus::Message;
use towpath_secrets::{Secret, Sender};
use towpath_telemetry::SeldomHere;
use towpath_types::spec::{Role, TokenSpec};
use towpath_types::{Digest, Kind};
use towpath_wire::gateway::{GatewayKeys, GatewayKeysRequest};
use towpath_wire::{decode, encode, subject};

/// Starts answering, once it is known which tokens and keys there are.
pub(super) fn spawn(core: &Arc<Core>, tasks: &mut JoinSet<()>) {
    let core = core.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = run(&core) => {}
            () = core.stopped() => {}
        }
    });
}

async fn run(core: &Core) {
    crate::feed::wait_loaded(core).await;
    loop {
        match core.bus.subscribe_queue(subject::GATEWAY_KEYS, subject::MANAGERS).await {
            Ok(mut requests) => {
                while let Some(request) = requests.next().await {
                    answer(core, request).await;
                }
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot give gateways keys yet");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn answer(core: &Core, message: Message) {
    let Some(reply) = message.reply else { return };
    let request: GatewayKeysRequest = match decode(&message.payload) {
        Ok(request) => request,
        Err(error) => {
            static TOLD: SeldomHere = SeldomHere::new();
            if let Some(more) = TOLD.now() {
                tracing::warn!(%error, "ignored a gateway's question for keys{more}");
            }
            return;
        }
    };
    let keys = match give(core, &request) {
        Ok(keys) => keys,
        Err(withheld) => {
            static TOLD: SeldomHere = SeldomHere::new();
            if let Some(more) = TOLD.now() {
                tracing::warn!(gateway = %request.gateway, withheld, "a gateway got no keys{more}");
            }
            GatewayKeys { parcel: None, withheld }
        }
    };
    if let Err(error) = core.bus.publish(&reply, encode(&keys).into()).await {
        tracing::debug!(gateway = %request.gateway, %error, "an answer to a gateway was not sent");
    }
}

fn give(core: &Core, request: &GatewayKeysRequest) -> Result<GatewayKeys, String> {
    let who = request.who();
    let proof = request.proof.as_ref().ok_or("it showed no token")?;
    let sender = tokens(core)
        .iter()
        .find_map(|hash| Sender::check(&who, proof, hash))
        .ok_or("its token is no gateways' token of this platform")?;
    let ring = core.gateway_ring().map_err(|error| error.to_string())?;
    let keys: Vec<Secret> = ring.ring.keys().iter().map(towpath_secrets::Key::to_hex).collect();
    let keys: Vec<&str> = keys.iter().map(Secret::expose).collect();
    let text = Secret::new(serde_json::to_string(&keys).unwrap_or_default());
    let parcel = sender.seal(&text).map_err(|error| error.to_string())?;
    Ok(GatewayKeys { parcel: Some(parcel), withheld: String::new() })
}

/// Hashes of the tokens that gateways may have.
fn tokens(core: &Core) -> Vec<Digest> {
    let now = core.now_ms();
    let valid = |spec: &TokenSpec| spec.role == Role::Gateway && spec.expires_ms.is_none_or(|end| now < end);
    let tokens = core.cache.list(Kind::Token, None, None);
    tokens.iter().filter_map(|record| record.spec().ok()).filter(valid).map(|spec| spec.hash).collect()
}
