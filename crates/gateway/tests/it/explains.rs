//! What a gateway says about requests that carry its own cookies.

use crate::support::{PATIENCE, Raw, Rig, World, instance_id};
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use towpath_bus::{Bus, MemoryBus};
use towpath_wire::gateway::{ExplainRequest, Explanation};
use towpath_wire::{decode, encode, subject};

#[tokio::test]
async fn an_explanation_honours_the_sticky_cookie_that_the_gateway_gave() {
    let raw = Raw::start(|_, mut client| {
        while client.try_read_request().is_some() {
            client.send("HTTP/1.1 200 OK\r\nSet-Cookie: JSESSIONID=1\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let world = (0..4).fold(World::new().app("shop", json!({"balancer": "roundrobin"})), |world, _| {
        world.instance("shop", raw.address)
    });
    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let rig = Rig::start_with(world, |_| {}, Some(bus.clone())).await;
    let given = rig.get("shop.localhost", "/");
    let cookie = given.all("set-cookie")[1].split(';').next().unwrap().to_owned();
    let subject = subject::gateway_explain(rig.gateway.as_ref().unwrap().id());
    let mut chosen = Vec::new();
    for value in [cookie.as_str(), cookie.as_str(), "towpath_sticky=forged"] {
        let request = ExplainRequest {
            method: "GET".into(),
            host: "shop.localhost".into(),
            target: "/".into(),
            headers: vec![("cookie".into(), format!("JSESSIONID=1; {value}"))],
            client: "127.0.0.1".into(),
        };
        let request = Bytes::from(encode(&request));
        // The gateway subscribes in its own time.
        let answer = loop {
            match bus.request(&subject, request.clone(), PATIENCE).await {
                Ok(answer) => break answer,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        };
        let explanation: Explanation = decode(&answer).unwrap();
        let best = &explanation.endpoints[0];
        chosen.push((
            explanation.tier_reason.contains("sticky cookie"),
            best.share,
            best.instance.to_string(),
        ));
    }
    assert_eq!(chosen[0], chosen[1]);
    assert!(chosen[0].0 && (chosen[0].1 - 1.0).abs() < 1e-9, "{chosen:?}");
    assert!((1..=4).any(|n| instance_id(n) == chosen[0].2));
    assert!(!chosen[2].0 && chosen[2].1 < 0.9, "{chosen:?}");
}
