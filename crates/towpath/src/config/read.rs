//! Sources to settings. Pure.

use super::ranges::Span;
use super::{
    ApiSettings, CellSettings, GatewaySettings, NatsSettings, Role, RolloutSettings, Settings, Sources,
};
use super::{gateway, identity};
use crate::document::Value;
use crate::document::fields::Fields;
use crate::document::problem::{Problem, Problems};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use towpath_types::{Millis, NetBlock, Place};
use towpath_wire::protocol::{OLDEST, PROTOCOL};

/// What the machine says, for defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    /// Default data directory.
    pub(crate) data_dir: Option<PathBuf>,
    /// Host name.
    pub(crate) node: String,
}

/// The settings for a role, or all that is wrong.
pub(crate) fn read(role: Role, sources: &Sources, machine: &Machine) -> Result<Settings, Vec<Problem>> {
    let (tree, origins) = sources.merged(role);
    let problems = Problems::with_origins(origins);
    let source = sources.file.as_ref().map_or("", |(name, _)| name);
    let empty = crate::document::Node { value: crate::document::Value::Map(Vec::new()), line: 0 };
    let top = Fields::of(source, &problems, "", &tree);
    let table = |name| top.table(name).unwrap_or_else(|| Fields::of(source, &problems, name, &empty));
    let bus = table("bus");
    let store = table("store");
    let (evict_after, weight, protocol, secrets_key_file) = manager(&table("manager"));
    let settings = Settings {
        data_dir: data_dir(&top, machine),
        domain: domain(&top),
        place: Place {
            region: label(&top, "region").unwrap_or_default(),
            zone: label(&top, "zone").unwrap_or_default(),
            node: label(&top, "node").unwrap_or_else(|| machine.node.clone()),
        },
        log: top.text("log").unwrap_or_else(|| "info".into()),
        log_json: top.choice("log_format", &[("text", false), ("json", true)]).unwrap_or(false),
        drain: top.parsed("drain").unwrap_or(Millis::secs(30)),
        api: api(&table("api")),
        evict_after,
        weight,
        identity: identity::read(&table("logins"), &table("audit")),
        protocol,
        secrets_key_file,
        rollout: rollout(&table("rollout")),
        gateway: gateway(role, &table("gateway")),
        cell: cell(role, &table("cell")),
        nats: nats(role, &bus, table("gateway").node("file").is_some()),
        postgres: postgres(role, &store),
        postgres_ca: store.text("ca").map(PathBuf::from),
    };
    bus.finish();
    store.finish();
    top.finish();
    problems.or(settings)
}

fn data_dir(top: &Fields<'_>, machine: &Machine) -> PathBuf {
    match (top.text("data_dir"), &machine.data_dir) {
        (Some(text), _) if text.is_empty() => {
            top.wrong("data_dir", "it is empty", "name a directory");
            PathBuf::new()
        }
        (Some(text), _) => PathBuf::from(text),
        (None, Some(dir)) => dir.clone(),
        (None, None) => {
            top.wrong("data_dir", "there is no home directory to put data in", "name one with --data-dir");
            PathBuf::new()
        }
    }
}

fn domain(top: &Fields<'_>) -> String {
    let domain = top.text("domain").unwrap_or_else(|| "localhost".into()).to_ascii_lowercase();
    if let Err(why) = crate::manifest::parse_route(&domain).map(|route| route.path) {
        top.wrong("domain", why, "write for example apps.example.com");
    } else if domain.contains(['/', '*']) {
        top.wrong("domain", format!("{domain:?} is not a host name"), "write for example apps.example.com");
    }
    domain
}

fn label(top: &Fields<'_>, name: &'static str) -> Option<String> {
    let text = top.text(name)?;
    let fits = text.len() <= 63 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !fits {
        top.wrong(name, format!("{text:?} is no name of a place"), "up to 63 letters, digits, '-', '_', '.'");
    }
    Some(text)
}

fn url(fields: &Fields<'_>, name: &'static str) -> Option<String> {
    checked_url(fields, name, &fields.text(name)?)
}

/// One URL, or a list of them.
fn urls(fields: &Fields<'_>, name: &'static str) -> Vec<String> {
    let is_one = fields.node(name).is_some_and(|node| matches!(node.value, Value::Text(_)));
    let texts =
        if is_one { fields.text(name).into_iter().collect() } else { fields.texts(name).unwrap_or_default() };
    texts.iter().filter_map(|text| checked_url(fields, name, text)).collect()
}

fn checked_url(fields: &Fields<'_>, name: &'static str, text: &str) -> Option<String> {
    match text.parse::<crate::api::Address>() {
        Ok(address) => Some(address.to_string()),
        Err(why) => {
            fields.wrong(name, why, "");
            None
        }
    }
}

fn api(fields: &Fields<'_>) -> ApiSettings {
    let listen = fields.parsed::<Listen>("listen").map(|listen| listen.0);
    let settings = ApiSettings {
        listen: listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 7700))),
        advertise: url(fields, "advertise"),
        max_upload: fields.parsed("max_upload"),
        trusted_proxies: proxies(fields),
    };
    fields.refuse_rest();
    settings
}

fn proxies(fields: &Fields<'_>) -> Vec<NetBlock> {
    let texts = fields.texts("trusted_proxies").unwrap_or_default();
    let read = |text: &String| {
        let wrong = |error| fields.wrong("trusted_proxies", format!("{text:?} is {error}"), "10.0.0.0/8");
        text.parse().map_err(wrong).ok()
    };
    texts.iter().filter_map(read).collect()
}

fn manager(fields: &Fields<'_>) -> (Option<Millis>, Option<f32>, Option<u16>, Option<PathBuf>) {
    let evict_after = fields.parsed::<Millis>("evict_after");
    if evict_after.is_some_and(|time| time.0 < 3_000) {
        fields.wrong("evict_after", "it is shorter than 3s", "heartbeats come every 2s");
    }
    let weight = fields.parsed::<f32>("weight");
    if weight.is_some_and(|weight| !(0.0..=16.0).contains(&weight)) {
        fields.wrong("weight", "it is not between 0 and 16", "1 is normal");
    }
    let protocol = fields.parsed::<u16>("protocol");
    if protocol.is_some_and(|protocol| !(OLDEST..=PROTOCOL).contains(&protocol)) {
        let right = format!("this build speaks {OLDEST} and {PROTOCOL}");
        fields.wrong("protocol", "it is not a protocol of this build", &right);
    }
    let secrets_key_file = fields.text("secrets_key_file").map(PathBuf::from);
    fields.refuse_rest();
    (evict_after, weight, protocol, secrets_key_file)
}

fn rollout(fields: &Fields<'_>) -> RolloutSettings {
    let settings = RolloutSettings {
        surge: fields.number("surge", 0.0..=1.0),
        drain: fields.parsed("drain"),
        lost: fields.parsed("lost"),
        prepare: fields.parsed("prepare"),
        crashes: fields.count("crashes", 1..=100).and_then(|n| u32::try_from(n).ok()),
        unhealthy: fields.parsed("unhealthy"),
        overcommit: fields.number("overcommit", 0.1..=100.0),
        starts_per_second: fields.number("starts_per_second", 0.1..=1_000_000.0),
        replaced_per_second: fields.number("replaced_per_second", 0.1..=1_000_000.0),
        starts_per_cell: fields.count("starts_per_cell", 1..=10_000).and_then(|n| u32::try_from(n).ok()),
    };
    fields.refuse_rest();
    settings
}

fn priority(fields: &Fields<'_>) -> i32 {
    let priority = fields.parsed::<i32>("priority").unwrap_or_default();
    if !(-100..=100).contains(&priority) {
        fields.wrong("priority", format!("{priority} is out of range"), "-100 to 100");
    }
    priority
}

/// The gateway's own configuration, checked by itself too, and its URL.
fn gateway(role: Role, fields: &Fields<'_>) -> GatewaySettings {
    let config = gateway::read(fields);
    let file = fields.text("file").map(PathBuf::from).filter(|_| role == Role::Gateway);
    let url = url(fields, "url");
    fields.refuse_rest();
    if let Err(errors) = config.clone().validate() {
        for error in errors.0 {
            fields.wrong_inside(&error.field, error.message);
        }
    }
    GatewaySettings { config, url, file }
}

fn cell(role: Role, fields: &Fields<'_>) -> CellSettings {
    let settings = CellSettings {
        address: fields.parsed("address").unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        api: urls(fields, "api"),
        token_file: fields.text("token_file").map(PathBuf::from),
        gateway_url: url(fields, "gateway_url"),
        memory: fields.parsed("memory"),
        ports: fields.parsed::<Span<u16>>("ports").map_or(20_000..=29_999, |span| span.0),
        uids: fields.parsed::<Span<u32>>("uids").map(|span| span.0),
        disk_reserve: fields.parsed("disk_reserve"),
        weight: fields.count("weight", 0..=10_000).and_then(|n| u32::try_from(n).ok()).unwrap_or(100),
        priority: priority(fields),
        keep_instances: fields.boolean("keep_instances").unwrap_or(role == Role::Cell),
    };
    if role == Role::Cell {
        if fields.node("api").is_none_or(|node| matches!(&node.value, Value::List(list) if list.is_empty())) {
            fields.wrong(
                "api",
                "a cell needs the API of a manager",
                "--api http://10.0.0.1:7700 or TOWPATH_API",
            );
        }
        if settings.token_file.is_none() {
            let hint = "--token-file FILE: the managers write it to <data-dir>/cell-token";
            fields.wrong("token_file", "a cell needs its token", hint);
        }
    }
    fields.refuse_rest();
    settings
}

/// `alone` = the gateway has its resources from a file.
fn nats(role: Role, bus: &Fields<'_>, alone: bool) -> Option<NatsSettings> {
    let servers = bus.texts("nats").unwrap_or_default();
    for server in &servers {
        if !server.starts_with("nats://") && !server.starts_with("tls://") {
            let what = "a server's URL begins with nats:// or tls://";
            bus.wrong("nats", what, "nats://10.0.0.1:4222");
        }
    }
    let file = |name: &'static str| bus.text(name).map(PathBuf::from);
    let (credentials, nkey, ca) = (file("credentials"), file("nkey"), file("ca"));
    if credentials.is_some() && nkey.is_some() {
        bus.wrong("nkey", "there are credentials too", "one of bus.credentials and bus.nkey is enough");
    }
    let certificate = match (file("certificate"), file("key")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            bus.wrong("certificate", "it has no key", "bus.key is the file with its key");
            None
        }
        (None, Some(_)) => {
            bus.wrong("key", "it has no certificate", "bus.certificate is the file with it");
            None
        }
    };
    if role == Role::Up || (role == Role::Gateway && alone) {
        return None;
    }
    if servers.is_empty() {
        let what = "the processes of a cluster meet over NATS";
        bus.wrong("nats", what, "--nats nats://10.0.0.1:4222 or TOWPATH_NATS");
        return None;
    }
    Some(NatsSettings { servers, credentials, nkey, ca, certificate })
}

fn postgres(role: Role, store: &Fields<'_>) -> Option<String> {
    let url = store.text("postgres");
    if let Some(url) = &url
        && !(url.starts_with("postgres://") || url.starts_with("postgresql://") || url.contains('='))
    {
        let what = "it is not a connection string";
        store.wrong("postgres", what, "postgres://user:password@10.0.0.1/towpath");
    }
    if role == Role::Manager && url.is_none() {
        let what = "the managers of a cluster keep their state in PostgreSQL";
        store.wrong("postgres", what, "--postgres postgres://user@10.0.0.1/towpath or TOWPATH_POSTGRES");
    }
    url.filter(|_| role == Role::Manager)
}

/// An address to listen on, in the standard form.
pub(super) fn listen_text(text: &str) -> Result<String, String> {
    text.parse::<Listen>().map(|listen| listen.0.to_string())
}

/// `127.0.0.1:8080`, `[::]:80`, `localhost:8080`, `:8080` or `8080`.
struct Listen(SocketAddr);

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is not an address to listen on; write for example 127.0.0.1:8080 or [::]:8080")
        };
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let ip = match host {
            "localhost" => Ipv4Addr::LOCALHOST,
            "" if text.starts_with(':') => Ipv4Addr::UNSPECIFIED,
            "" => Ipv4Addr::LOCALHOST,
            _ => return Err(wrong()),
        };
        Ok(Self(SocketAddr::from((ip, port))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn machine() -> Machine {
        Machine { data_dir: Some("/data".into()), node: "here".into() }
    }

    fn file(text: &str) -> Sources {
        let node = crate::document::toml::parse("config.toml", text).unwrap();
        Sources { file: Some(("config.toml".into(), node)), ..Sources::default() }
    }

    fn said(role: Role, sources: &Sources) -> String {
        read(role, sources, &machine()).unwrap_err().iter().map(|p| p.to_string() + "\n").collect()
    }

    #[test]
    fn flags_win_over_variables_over_the_file_over_defaults() {
        let mut sources = file(
            "region = \"file\"\nzone = \"file\"\nnode = \"file\"\n[gateway]\nlisten = [\"127.0.0.1:1\"]\n",
        );
        sources.env = BTreeMap::from(
            [("TOWPATH_ZONE", "env"), ("TOWPATH_NODE", "env"), ("TOWPATH_GATEWAY_LISTEN", "127.0.0.1:2, :3")]
                .map(|(k, v)| (k.to_owned(), v.to_owned())),
        );
        sources.flags = vec![("node", "--node", vec!["flag".into()])];
        let settings = read(Role::Up, &sources, &machine()).unwrap();
        let place = &settings.place;
        assert_eq!((&*place.region, &*place.zone, &*place.node), ("file", "env", "flag"));
        assert_eq!(settings.gateway.config.listen, ["127.0.0.1:2", "0.0.0.0:3"]);
        assert_eq!(settings.api.listen, "127.0.0.1:7700".parse().unwrap());
        let plain = read(Role::Up, &Sources::default(), &machine()).unwrap();
        assert_eq!((plain.place.node.as_str(), plain.domain.as_str()), ("here", "localhost"));
        assert!(!plain.cell.keep_instances);
    }

    #[test]
    fn limits_of_logins_and_audit_are_set_and_checked() {
        let text = "[api]\ntrusted_proxies = [\"10.0.0.0/8\"]\n[logins]\nsessions_per_user = 7\n[audit]\ndays = 30\n";
        let settings = read(Role::Up, &file(text), &machine()).unwrap();
        assert_eq!(settings.api.trusted_proxies, ["10.0.0.0/8".parse().unwrap()]);
        let mut limits = towpath_manager::ApiLimits::default();
        settings.identity.apply(&mut limits);
        let default = towpath_manager::ApiLimits::default();
        assert_eq!((limits.sessions_per_user, limits.audit_days), (7, 30));
        assert_eq!(limits.wrong_per_user_per_minute, default.wrong_per_user_per_minute);
        let plain = read(Role::Up, &Sources::default(), &machine()).unwrap();
        assert!(plain.api.trusted_proxies.is_empty());
        let wrong = "[api]\ntrusted_proxies = [\"10.0.0.0/99\"]\n[logins]\nwrong_per_user = 0\nsessions = 1\n[audit]\nentries = 0\n";
        let all = said(Role::Up, &file(wrong));
        for part in [
            "config.toml:2: api.trusted_proxies: \"10.0.0.0/99\" is not an address or a CIDR block; hint: 10.0.0.0/8",
            "config.toml:4: logins.wrong_per_user: 0 is out of range; hint: 1 to 1000000",
            "config.toml:5: logins.sessions: unknown key",
            "config.toml:7: audit.entries: 0 is out of range",
        ] {
            assert!(all.contains(part), "{part} is not in {all}");
        }
    }

    #[test]
    fn all_errors_are_said_with_their_origin() {
        let mut sources = file(
            "domian = \"x\"\nlog_format = \"jsn\"\n[gateway]\nlisten = [\"nowhere\"]\n[cell]\nports = \"9-1\"\n[extra]\n",
        );
        sources.env = BTreeMap::from([("TOWPATH_API_LISTEN".to_owned(), "x:y".to_owned())]);
        sources.flags = vec![
            ("drain", "--drain", vec!["soon".into()]),
            ("gateway.workers", "--workers", vec!["0".into()]),
        ];
        let all = said(Role::Up, &sources);
        for part in [
            "config.toml:1: domian: unknown key; hint: did you mean \"domain\"?",
            "config.toml:2: log_format: \"jsn\" is not one of the choices; hint: did you mean \"json\"?",
            "config.toml:4: gateway.listen: \"nowhere\" is not an address",
            "config.toml:6: cell.ports: \"9-1\" has no numbers",
            "config.toml:7: extra: unknown key",
            "TOWPATH_API_LISTEN: \"x:y\" is not an address",
            "--drain: \"soon\" is not a duration",
            "--workers: 0 is out of range; hint: 1 to 1024",
        ] {
            assert!(all.contains(part), "{part}\n--- in ---\n{all}");
        }
    }

    #[test]
    fn roles_of_a_cluster_say_what_they_need() {
        let all = said(Role::Manager, &Sources::default());
        assert!(all.contains("bus.nats: ") && all.contains("store.postgres: "), "{all}");
        let all = said(Role::Cell, &Sources::default());
        assert!(all.contains("cell.api: ") && all.contains("cell.token_file: "), "{all}");
        assert!(!all.contains("postgres"), "{all}");
    }

    #[test]
    fn a_cell_takes_one_api_or_several() {
        let api = |sources: &Sources| read(Role::Cell, sources, &machine()).map(|settings| settings.cell.api);
        let flags = |flags: &[(&'static str, &'static str, &str)]| {
            let needed = [("cell.token_file", "--token-file", "t"), ("bus.nats", "--nats", "nats://h:4222")];
            let all = needed.iter().chain(flags);
            all.map(|(path, flag, value)| (*path, *flag, vec![(*value).to_owned()])).collect::<Vec<_>>()
        };
        let file = |text: &str| Sources { flags: flags(&[]), ..file(text) };
        assert!(api(&file("[cell]\napi = \"http://a:1\"\n")).is_ok_and(|api| api == ["http://a:1"]));
        let two = file("[cell]\napi = [\"http://a:1\", \"http://b:2\"]\n");
        assert!(api(&two).is_ok_and(|api| api == ["http://a:1", "http://b:2"]));
        let mut variable = Sources { flags: flags(&[]), ..Sources::default() };
        variable.env.insert("TOWPATH_API".into(), "http://a:1, http://b:2".into());
        assert!(api(&variable).is_ok_and(|api| api == ["http://a:1", "http://b:2"]));
        assert!(
            api(&file("[cell]\napi = []\n")).is_err() && api(&file("[cell]\napi = [\"x y\"]\n")).is_err()
        );
    }
}
