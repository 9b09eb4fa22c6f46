//! Start-up settings of a cell.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use towpath_types::{ByteSize, Place};

/// All that a cell needs to start. [`CellSettings::new`] fills in the defaults.
#[derive(Debug, Clone)]
pub struct CellSettings {
    /// Id, ledger, artifacts.
    pub data_dir: PathBuf,
    /// Where the trees of instances and builds live. `None`: `run` in the data directory, unless instances run as other users who
    /// cannot pass through its parents; then `/var/lib/towpath/cells/<id>`.
    pub runtime_dir: Option<PathBuf>,
    /// IP address at which gateways reach the instances.
    pub address: IpAddr,
    /// Where the cell stands.
    pub place: Place,
    /// URLs of managers' APIs, `http://host:port`. More are learnt from what managers tell on the bus.
    pub api: Vec<String>,
    /// The cell's token for the blob endpoint.
    pub token: String,
    /// URL of the node's gateway, told to instances.
    pub gateway_url: String,
    /// Domain of the apps, told to instances.
    pub domain: String,
    /// `PATH` of instances and builds. By default the system's when the cell is root, since other users cannot enter root's home; else
    /// the cell's own, where its user's tools are.
    pub path: String,
    /// Memory that may be given to instances. `None`: 80 % of the machine's.
    pub memory: Option<ByteSize>,
    /// Ports of instances. Keep it off the kernel's ephemeral range.
    pub ports: RangeInclusive<u16>,
    /// Balancing weight of its instances: a machine of twice the usual strength has 200; 0 takes no requests.
    pub weight: u32,
    /// Its instances are asked before those of cells with a lower one, wherever these are.
    pub priority: i32,
    /// Users of instances and builds, one each, when the cell is root. `None`: the cell's own user.
    pub uids: Option<RangeInclusive<u32>>,
    /// Unpacked artifacts that no instance uses are kept up to this size.
    pub artifact_cache: ByteSize,
    /// Free disk space that fetching and building must leave.
    pub disk_reserve: ByteSize,
    /// How often is looked how much an instance has written on the disk.
    pub disk_interval: Duration,
    /// Logs of instances.
    pub logs: LogSettings,
    /// When an instance that ended is started again.
    pub restart: RestartSettings,
    /// Builds that run at the same time.
    pub builds_at_once: usize,
    /// What builds take over from the machine.
    pub builds: crate::BuildEnvironment,
    /// Pause between looks at what should run, when nothing says that it changed.
    pub sync_interval: Duration,
    /// The program that is the parent of each instance.
    pub shim: ShimProgram,
}

/// Bounds on the logs of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LogSettings {
    /// Size at which a new segment is begun, bytes.
    pub segment_bytes: u64,
    /// Segments that are kept, the one being written included.
    pub segments: u32,
    /// Bytes a second that are kept in the long run; more is dropped and counted.
    pub rate_bytes: u64,
    /// Bytes above the rate that are kept after a quiet time.
    pub burst_bytes: u64,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { segment_bytes: 2 << 20, segments: 5, rate_bytes: 1 << 20, burst_bytes: 4 << 20 }
    }
}

/// When an instance that ended by itself is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartSettings {
    /// Pause before the second start in a row; the first is at once. It doubles from there.
    pub first: Duration,
    /// Longest pause.
    pub max: Duration,
    /// Being healthy for so long makes the count begin anew.
    pub healthy_reset: Duration,
    /// So many ends without a healthy stretch between are a crash loop.
    pub loop_crashes: u32,
}

impl Default for RestartSettings {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            max: Duration::from_secs(60),
            healthy_reset: Duration::from_secs(30),
            loop_crashes: 5,
        }
    }
}

/// How the shim is started: the program, and arguments before the shim's own.
#[derive(Debug, Clone)]
pub struct ShimProgram {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub args: Vec<OsString>,
}

impl Default for ShimProgram {
    /// The running binary, whatever happened to its file since.
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), args: vec![crate::SHIM_COMMAND.into()] }
    }
}

fn default_path() -> String {
    const SYSTEM: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let own = std::env::var("PATH").ok().filter(|path| !path.is_empty() && !nix::unistd::geteuid().is_root());
    own.unwrap_or_else(|| SYSTEM.into())
}

impl CellSettings {
    /// Settings with every default.
    pub fn new(data_dir: impl Into<PathBuf>, api: impl Into<String>, token: impl Into<String>) -> Self {
        Self {
            data_dir: data_dir.into(),
            runtime_dir: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            place: Place::default(),
            api: vec![api.into()],
            token: token.into(),
            gateway_url: "http://127.0.0.1:8080".into(),
            domain: "localhost".into(),
            path: default_path(),
            memory: None,
            ports: 20_000..=29_999,
            weight: 100,
            priority: 0,
            uids: Some(200_000..=265_535),
            artifact_cache: ByteSize(4 << 30),
            disk_reserve: ByteSize::mib(256),
            disk_interval: Duration::from_secs(5),
            logs: LogSettings::default(),
            restart: RestartSettings::default(),
            builds_at_once: 1,
            builds: crate::BuildEnvironment::default(),
            sync_interval: Duration::from_secs(5),
            shim: ShimProgram::default(),
        }
    }

    /// Everything that is wrong, as `field: what is wrong; what would be right`.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let is_http = |api: &String| {
            api.parse::<http::Uri>().is_ok_and(|uri| {
                uri.scheme_str() == Some("http") && uri.authority().is_some() && uri.path() == "/"
            })
        };
        let api_is_http = !self.api.is_empty() && self.api.iter().all(is_http);
        let no_zero_in_paths = !self.path.contains('\0') && !self.domain.contains('\0');
        let token_is_header = http::HeaderValue::from_str(&self.token).is_ok();
        let checks = [
            (self.data_dir.as_os_str().is_empty(), "data_dir: it is empty; name a directory"),
            (!api_is_http, "api: it holds no URL, or one that is not plain http; write http://host:port"),
            (!token_is_header, "token: it has characters that no HTTP header may have"),
            (self.ports.is_empty(), "ports: the range is empty; write first..=last"),
            (self.ports.contains(&0), "ports: port 0 is in it; begin at 1024 or higher"),
            (
                self.uids.as_ref().is_some_and(|uids| uids.is_empty() || *uids.start() < 1000),
                "uids: the range is empty or holds system users; begin at 1000 or higher",
            ),
            (self.logs.segments < 2, "logs.segments: fewer than 2; write 2 or more"),
            (self.logs.segment_bytes < 4096, "logs.segment_bytes: less than 4096"),
            (self.logs.rate_bytes == 0, "logs.rate_bytes: it is 0; write bytes a second"),
            (self.builds_at_once == 0, "builds_at_once: it is 0; write 1 or more"),
            (self.disk_interval.is_zero(), "disk_interval: it is 0; write a pause"),
            (self.sync_interval.is_zero(), "sync_interval: it is 0; write a pause"),
            (!no_zero_in_paths, "path, domain: a NUL character is in it"),
        ];
        let wrong: Vec<String> =
            checks.into_iter().filter(|(bad, _)| *bad).map(|(_, text)| text.to_owned()).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_all_that_is_wrong_is_said() {
        assert_eq!(CellSettings::new("/x", "http://127.0.0.1:7700", "t").validate(), Ok(()));
        let mut bad = CellSettings::new("", "ftp://x", "a\nb");
        bad.uids = Some(0..=5);
        let wrong = bad.validate().unwrap_err();
        assert_eq!(wrong.len(), 4, "{wrong:?}");
    }
}
