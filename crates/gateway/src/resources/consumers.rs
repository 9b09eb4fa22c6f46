//! Consumers by what authentication plugins look for.

use crate::plugins::program::{Consumer, Consumers, Known};
use std::sync::Arc;
use towpath_resources::ResolvedConsumer;
use towpath_resources::plugins::PluginCredential;

/// The index of all consumers. Of two with the same key the one whose name sorts first counts. Those that are as they were
/// `before` stay the same objects, so that what was made for them stays too.
pub(super) fn index<'a>(
    all: impl Iterator<Item = &'a Arc<ResolvedConsumer>>,
    before: &Consumers,
) -> Consumers {
    let mut index = Consumers::default();
    for resolved in all {
        let made = Consumer {
            name: resolved.name.as_str().to_owned(),
            group: resolved.group.as_ref().map(|id| id.as_str().to_owned()),
            custom_id: resolved.labels.get("custom_id").map(|label| label.0.clone()),
            labels: resolved.labels.iter().map(|(name, label)| (name.clone(), label.0.clone())).collect(),
            plugins: resolved.plugins.clone(),
        };
        let same = before.by_name.get(&made.name).filter(|known| ***known == made).cloned();
        let consumer = same.unwrap_or_else(|| Arc::new(made));
        for (id, credential) in &resolved.credentials {
            let id: Option<Arc<str>> = id.as_ref().map(|id| {
                let text = id.as_str();
                text.rsplit('/').next().unwrap_or(text).into()
            });
            add(&mut index, &consumer, id, credential);
        }
        index.by_name.insert(consumer.name.clone(), consumer);
    }
    index
}

fn add(index: &mut Consumers, consumer: &Arc<Consumer>, id: Option<Arc<str>>, credential: &PluginCredential) {
    match credential {
        PluginCredential::KeyAuth(held) => {
            let known = Known { consumer: consumer.clone(), id, credential: held.clone() };
            index.by_key.entry(held.key.clone()).or_insert(known);
        }
        PluginCredential::BasicAuth(held) => {
            let known = Known { consumer: consumer.clone(), id, credential: held.clone() };
            index.by_user.entry(held.username.clone()).or_insert(known);
        }
        PluginCredential::JwtAuth(held) => {
            let known = Known { consumer: consumer.clone(), id, credential: held.clone() };
            index.by_token.entry(held.key.clone()).or_insert(known);
        }
        PluginCredential::HmacAuth(held) => {
            let known = Known { consumer: consumer.clone(), id, credential: held.clone() };
            index.by_key_id.entry(held.key_id.clone()).or_insert(known);
        }
        PluginCredential::S3Auth(held) => {
            let known = Known { consumer: consumer.clone(), id, credential: held.clone() };
            index.by_access_key.entry(held.access_key.clone()).or_insert(known);
        }
    }
}
