//! Where a cell or a gateway stands.

use serde::{Deserialize, Serialize};

/// Region, zone and node, from far to near. Empty text means "not said" and equals other empty text.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema, Default,
)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// For example `eu-north`.
    #[serde(default)]
    pub region: String,
    /// For example `eu-north-1a`; unique inside the region.
    #[serde(default)]
    pub zone: String,
    /// The machine; unique inside the zone.
    #[serde(default)]
    pub node: String,
}

/// How far two places are from each other.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// On one machine.
    SameNode,
    /// In one zone.
    SameZone,
    /// In one region.
    SameRegion,
    /// Farther.
    OtherRegion,
}

impl Place {
    /// How far `other` is from here.
    pub fn distance(&self, other: &Place) -> Distance {
        if self.region != other.region {
            Distance::OtherRegion
        } else if self.zone != other.zone {
            Distance::SameRegion
        } else if self.node != other.node {
            Distance::SameZone
        } else {
            Distance::SameNode
        }
    }
}
