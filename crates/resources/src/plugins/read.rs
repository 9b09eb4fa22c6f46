//! From `plugins` of a document to what the gateway runs, with every fault by its path.

use super::meta::Meta;
use super::{Plugin, PluginConfig, PluginCredential, PluginMetadata, Settings, plugin, refused};
use crate::fault::{join, nearest};
use crate::model::RawPlugins;
use crate::resolved::{PluginUse, Source};
use crate::schema::Checker;
use crate::{Fault, Id};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::LazyLock;

static META: LazyLock<Checker> = LazyLock::new(|| Checker::new(&crate::schema::of::<Meta>()));

/// The plugins of a document, each configuration typed. Faults go to `faults` with paths below `plugins`.
pub fn plugins_of(raw: &RawPlugins, from: Source, faults: &mut Vec<Fault>) -> Vec<PluginUse> {
    let mut uses = Vec::with_capacity(raw.len());
    for (name, value) in raw {
        let path = join("plugins", name);
        let Some(plugin) = known(name, &path, faults) else { continue };
        uses.extend(use_of(plugin, &path, value, from.clone(), faults));
    }
    crate::resolved::order(&mut uses);
    uses
}

/// The plugins of a consumer or a credential: those that authenticate hold what proves who it is, others are plugins as anywhere.
pub fn credentials_of(
    raw: &RawPlugins,
    from: Source,
    faults: &mut Vec<Fault>,
) -> (Vec<PluginUse>, Vec<PluginCredential>) {
    let (mut uses, mut credentials) = (Vec::new(), Vec::new());
    for (name, value) in raw {
        let path = join("plugins", name);
        let Some(plugin) = known(name, &path, faults) else { continue };
        match (&plugin.credential_checker, plugin.read_credential) {
            (Some(checker), Some(read)) => {
                if value.get("_meta").is_some() {
                    let message = "does nothing in a credential: put it where the plugin is used";
                    faults.push(Fault::new(join(&path, "_meta"), message));
                    continue;
                }
                credentials.extend(checked(checker, read, &path, value, faults));
            }
            _ => uses.extend(use_of(plugin, &path, value, from.clone(), faults)),
        }
    }
    crate::resolved::order(&mut uses);
    (uses, credentials)
}

/// The metadata of the plugin `id`.
pub fn metadata_of(id: &Id, value: &Value, faults: &mut Vec<Fault>) -> Option<PluginMetadata> {
    let plugin = known(id.as_str(), "", faults)?;
    let (Some(checker), Some(read)) = (&plugin.metadata_checker, plugin.read_metadata) else {
        faults.push(Fault::new("", format!("plugin {} has no metadata", plugin.name)));
        return None;
    };
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        for added in ["id", "create_time", "update_time"] {
            fields.remove(added);
        }
    }
    checked(checker, read, "", &value, faults)
}

/// A value that its schema allows, as the type that the schema was made of.
pub(super) fn typed<T: DeserializeOwned + Settings>(value: &Value, faults: &mut Vec<Fault>) -> Option<T> {
    match serde_path_to_error::deserialize::<_, T>(value) {
        Ok(typed) => {
            typed.check(faults);
            Some(typed)
        }
        Err(error) => {
            let path = error.path().to_string();
            faults.push(Fault::new(
                if path == "." { String::new() } else { path },
                error.into_inner().to_string(),
            ));
            None
        }
    }
}

fn known(name: &str, path: &str, faults: &mut Vec<Fault>) -> Option<&'static Plugin> {
    if let Some(plugin) = plugin(name) {
        return Some(plugin);
    }
    let message = match refused(name) {
        Some(reason) => reason,
        None => match nearest(name, super::all().iter().map(|plugin| plugin.name)) {
            Some(meant) => format!("there is no plugin {name:?}: did you mean {meant:?}?"),
            None => format!("there is no plugin {name:?}"),
        },
    };
    faults.push(Fault::new(path, message));
    None
}

fn use_of(
    plugin: &'static Plugin,
    path: &str,
    value: &Value,
    from: Source,
    faults: &mut Vec<Fault>,
) -> Option<PluginUse> {
    let (value, meta) = without_meta(path, value, faults)?;
    if let Some(policy) =
        value.get("policy").and_then(Value::as_str).filter(|policy| policy.starts_with("redis"))
    {
        let message = format!(
            "{policy:?} is not supported: give \"shared\", with which gateways count together over their own bus, and leave the redis_ fields out"
        );
        faults.push(Fault::new(join(path, "policy"), message));
        return None;
    }
    let config: PluginConfig = checked(&plugin.checker, plugin.read, path, &value, faults)?;
    let priority = meta.priority.unwrap_or(plugin.priority);
    Some(PluginUse { name: plugin.name, priority, config, meta, from })
}

/// A configuration and its `_meta` apart.
fn without_meta(path: &str, value: &Value, faults: &mut Vec<Fault>) -> Option<(Value, Meta)> {
    let mut value = value.clone();
    let Some(raw) = value.as_object_mut().and_then(|fields| fields.remove("_meta")) else {
        return Some((value, Meta::default()));
    };
    let path = join(path, "_meta");
    if raw.get("pre_function").is_some() {
        faults.push(Fault::new(
            join(&path, "pre_function"),
            "is Lua, which is not run here: use _meta.filter for conditions",
        ));
        return None;
    }
    let before = faults.len();
    META.check(&path, &raw, faults);
    if faults.len() > before {
        return None;
    }
    match serde_json::from_value::<Meta>(raw) {
        Ok(meta) => Some((value, meta)),
        Err(error) => {
            faults.push(Fault::new(path, error.to_string()));
            None
        }
    }
}

fn checked<T>(
    checker: &Checker,
    read: fn(&Value, &mut Vec<Fault>) -> Option<T>,
    path: &str,
    value: &Value,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    let before = faults.len();
    checker.check(path, value, faults);
    refuse_secrets(path, value, faults);
    if faults.len() > before {
        return None;
    }
    let mut inner = Vec::new();
    let typed = read(value, &mut inner);
    let good = inner.is_empty();
    faults.extend(inner.into_iter().map(|fault| fault.below(path)));
    typed.filter(|_| good)
}

/// A reference that nobody resolves would be used as if it were the secret.
pub(crate) fn refuse_secrets(path: &str, value: &Value, faults: &mut Vec<Fault>) {
    match value {
        Value::String(text) => {
            let lower = text.get(..10.min(text.len())).unwrap_or_default().to_ascii_lowercase();
            if lower.starts_with("$secret://") || lower.starts_with("$env://") {
                faults.push(Fault::new(path, "refers to a secret that is kept elsewhere, which is not supported: give the value itself"));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                refuse_secrets(&join(path, &format!("[{index}]")), item, faults);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                refuse_secrets(&join(path, name), field, faults);
            }
        }
        _ => {}
    }
}
