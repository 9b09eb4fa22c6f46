//! Every setting with its field path, flag and variable.

use super::Role;

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    /// Field path in the file.
    pub(crate) path: &'static str,
    /// Environment variable.
    pub(crate) env: &'static str,
    /// Whether it takes several values (comma-separated in the variable).
    pub(crate) list: bool,
}

const fn one(path: &'static str, env: &'static str) -> Key {
    Key { path, env, list: false }
}

/// All settings.
pub(crate) const KEYS: &[Key] = &[
    one("data_dir", "TOWPATH_DATA_DIR"),
    one("domain", "TOWPATH_DOMAIN"),
    one("region", "TOWPATH_REGION"),
    one("zone", "TOWPATH_ZONE"),
    one("node", "TOWPATH_NODE"),
    one("log", "TOWPATH_LOG"),
    one("log_format", "TOWPATH_LOG_FORMAT"),
    one("drain", "TOWPATH_DRAIN"),
    one("api.listen", "TOWPATH_API_LISTEN"),
    one("api.advertise", "TOWPATH_API_ADVERTISE"),
    one("api.max_upload", "TOWPATH_API_MAX_UPLOAD"),
    Key { path: "api.trusted_proxies", env: "TOWPATH_API_TRUSTED_PROXIES", list: true },
    one("manager.evict_after", "TOWPATH_MANAGER_EVICT_AFTER"),
    one("manager.weight", "TOWPATH_MANAGER_WEIGHT"),
    one("manager.protocol", "TOWPATH_MANAGER_PROTOCOL"),
    one("manager.secrets_key_file", "TOWPATH_MANAGER_SECRETS_KEY_FILE"),
    Key { path: "gateway.listen", env: "TOWPATH_GATEWAY_LISTEN", list: true },
    one("gateway.workers", "TOWPATH_GATEWAY_WORKERS"),
    one("gateway.admin", "TOWPATH_GATEWAY_ADMIN"),
    one("gateway.file", "TOWPATH_GATEWAY_FILE"),
    one("gateway.url", "TOWPATH_GATEWAY_URL"),
    one("gateway.sticky_key", "TOWPATH_GATEWAY_STICKY_KEY"),
    one("gateway.token_file", "TOWPATH_GATEWAY_TOKEN_FILE"),
    one("cell.address", "TOWPATH_CELL_ADDRESS"),
    Key { path: "cell.api", env: "TOWPATH_API", list: true },
    one("cell.token_file", "TOWPATH_CELL_TOKEN_FILE"),
    one("cell.gateway_url", "TOWPATH_CELL_GATEWAY_URL"),
    one("cell.memory", "TOWPATH_CELL_MEMORY"),
    one("cell.ports", "TOWPATH_CELL_PORTS"),
    one("cell.weight", "TOWPATH_CELL_WEIGHT"),
    one("cell.priority", "TOWPATH_CELL_PRIORITY"),
    one("cell.uids", "TOWPATH_CELL_UIDS"),
    one("cell.disk_reserve", "TOWPATH_CELL_DISK_RESERVE"),
    one("cell.keep_instances", "TOWPATH_CELL_KEEP_INSTANCES"),
    Key { path: "bus.nats", env: "TOWPATH_NATS", list: true },
    one("bus.credentials", "TOWPATH_NATS_CREDENTIALS"),
    one("bus.nkey", "TOWPATH_NATS_NKEY"),
    one("bus.ca", "TOWPATH_NATS_CA"),
    one("bus.certificate", "TOWPATH_NATS_CERTIFICATE"),
    one("bus.key", "TOWPATH_NATS_KEY"),
    one("store.postgres", "TOWPATH_POSTGRES"),
    one("store.ca", "TOWPATH_POSTGRES_CA"),
];

impl Key {
    /// Whether the variable is read in this role. `TOWPATH_API` is the command line's own outside of a cell.
    pub(crate) fn read_from_environment(&self, role: Role) -> bool {
        match self.path {
            "cell.api" => role == Role::Cell,
            path if path.starts_with("bus.") => role != Role::Up,
            path if path.starts_with("store.") => role == Role::Manager,
            // Instances get these for their own use; a cell inside of one would inherit them.
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn paths_and_variables_are_unique() {
        assert_eq!(KEYS.iter().map(|key| key.path).collect::<HashSet<_>>().len(), KEYS.len());
        assert_eq!(KEYS.iter().map(|key| key.env).collect::<HashSet<_>>().len(), KEYS.len());
        assert!(KEYS.iter().all(|key| key.env.starts_with("TOWPATH_")));
    }
}
