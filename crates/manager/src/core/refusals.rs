//! What live gateways cannot use of the routing table, and why, as they report it.

use super::Core;
use super::keys::{app_key, resource_name, space_key};
use std::collections::BTreeMap;
use towpath_types::resource::Key;
use towpath_types::{AppRef, GatewayId, Kind, Revision, SpaceRef};
use towpath_wire::gateway::ItemKey;

/// Why an item is not served, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong with it.
    pub why: String,
    /// The gateways that say so.
    pub gateways: Vec<GatewayId>,
}

impl Core {
    /// What live gateways have against an item, each reason once.
    pub fn refusals(&self, item: &ItemKey) -> Vec<Refusal> {
        let name = item.to_string();
        let mut reasons: BTreeMap<String, Vec<GatewayId>> = BTreeMap::new();
        for gateway in self.soft.gateways().iter().filter(|gateway| !gateway.lost) {
            if let Some(why) = gateway.report.refused.get(&name) {
                reasons.entry(why.clone()).or_default().push(gateway.report.gateway);
            }
        }
        reasons.into_iter().map(|(why, gateways)| Refusal { why, gateways }).collect()
    }

    /// Why a live gateway does not serve what was written at this very revision; `None` = nobody has anything against it.
    pub fn refused_at(&self, revision: Revision) -> Option<String> {
        let gateways = self.soft.gateways();
        let refused = gateways.iter().filter(|gateway| !gateway.lost).flat_map(|g| &g.report.refused);
        refused
            .filter(|(name, _)| self.touched_at(name, revision).unwrap_or(false))
            .map(|(name, why)| format!("{name}: {why}"))
            .next()
    }

    /// Whether the item that a gateway names so was touched by the commit of this revision.
    fn touched_at(&self, name: &str, revision: Revision) -> Option<bool> {
        let at = |key: &Key| self.cache.get(key).is_some_and(|record| record.revision == revision);
        let (kind, name) = name.split_once(' ')?;
        let mut parts = name.splitn(3, '/');
        let mut part = || parts.next();
        Some(match kind {
            "route" => at(&Key { kind: Kind::Route, org: None, space: None, name: name.to_owned() }),
            "app" => {
                let (org, space) = (part()?.parse().ok()?, part()?.parse().ok()?);
                let app = AppRef { org, space, app: part()?.parse().ok()? };
                let group = |(_, group): &(_, super::cache::CachedGroup)| group.record.revision == revision;
                at(&app_key(&app)) || self.cache.groups_of(&app).iter().any(group)
            }
            "space" => {
                let space = SpaceRef { org: part()?.parse().ok()?, space: part()?.parse().ok()? };
                let lanes = || self.cache.list(Kind::Lane, Some(&space.org), Some(&space.space));
                at(&space_key(&space)) || lanes().iter().any(|record| record.revision == revision)
            }
            "resource" => at(&resource_name(name.to_owned())),
            _ => false,
        })
    }
}
