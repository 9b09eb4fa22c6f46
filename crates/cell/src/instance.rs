//! From a spec to what is really run.

use crate::CellSettings;
use crate::driver::StartRequest;
use std::collections::BTreeMap;
use std::path::Path;
use towpath_types::ByteSize;
use towpath_wire::cell::InstanceSpec;

/// Limits where a spec names none.
const MEMORY: ByteSize = ByteSize::mib(512);
const DISK: ByteSize = ByteSize::mib(1024);
const FILES: u64 = 16_384;
const PROCESSES: u64 = 1024;

/// The memory limit.
/// Bytes that it may write on the disk.
pub(crate) fn disk_limit(spec: &InstanceSpec) -> ByteSize {
    spec.limits.disk.unwrap_or(DISK)
}

pub(crate) fn memory_limit(spec: &InstanceSpec) -> ByteSize {
    spec.limits.memory.unwrap_or(MEMORY)
}

/// Everything that a driver needs; `home` is the instance's own directory, `binary` a copy of the platform that it may run.
pub(crate) fn start_request(
    spec: &InstanceSpec,
    settings: &CellSettings,
    port: u16,
    user: Option<u32>,
    home: &Path,
    binary: &Path,
) -> StartRequest {
    StartRequest {
        instance: spec.instance,
        command: with_exec(&spec.command),
        env: environment(spec, settings, port, home, binary),
        secrets: BTreeMap::new(),
        user,
        memory: memory_limit(spec),
        files: spec.limits.files.unwrap_or(FILES),
        processes: spec.limits.processes.unwrap_or(PROCESSES),
    }
}

/// Lets a plain command take the shell's place: one process less, and a signal that ends the app is seen as such. Anything that
/// the shell must stay for, or that could be more than one command, is left as it is.
fn with_exec(command: &str) -> String {
    const NEED_THE_SHELL: [&str; 18] = [
        ".", ":", "!", "cd", "exec", "eval", "exit", "export", "for", "if", "set", "source", "time", "trap",
        "ulimit", "umask", "until", "while",
    ];
    let first = command.split_whitespace().next().unwrap_or_default();
    let is_plain = !command.contains([';', '&', '|', '<', '>', '(', ')', '{', '}', '`', '\n', '#', '\\']);
    if first.is_empty() || first.contains('=') || NEED_THE_SHELL.contains(&first) || !is_plain {
        return command.to_owned();
    }
    format!("exec {}", command.trim_start())
}

/// The spec's variables, and over them those that the platform sets. Variables that no process can have (an empty name, `=` in the
/// name, NUL) are left out: they would make every start fail.
fn environment(
    spec: &InstanceSpec,
    settings: &CellSettings,
    port: u16,
    home: &Path,
    binary: &Path,
) -> BTreeMap<String, String> {
    let is_possible =
        |name: &str, value: &str| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
    let mut env: BTreeMap<String, String> = spec
        .env
        .iter()
        .filter(|(name, value)| is_possible(name, value))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    // Only this one may be the app's own choice.
    env.entry("PATH".into()).or_insert_with(|| settings.path.clone());
    let host = if settings.address.is_loopback() { settings.address.to_string() } else { "0.0.0.0".into() };
    let ours = [
        ("PORT", port.to_string()),
        ("HOST", host),
        ("HOME", home.display().to_string()),
        ("TOWPATH_APP", spec.app.app.to_string()),
        ("TOWPATH_SPACE", spec.app.space.to_string()),
        ("TOWPATH_ORG", spec.app.org.to_string()),
        ("TOWPATH_LANE", spec.lane.to_string()),
        ("TOWPATH_INSTANCE", spec.instance.to_string()),
        ("TOWPATH_INSTANCE_INDEX", spec.ordinal.to_string()),
        ("TOWPATH_RELEASE", spec.release.to_string()),
        ("TOWPATH_GATEWAY", settings.gateway_url.clone()),
        ("TOWPATH_DOMAIN", settings.domain.clone()),
        ("TOWPATH_MEMORY", (memory_limit(spec).0 >> 20).to_string()),
        ("TOWPATH_BIN", binary.display().to_string()),
    ];
    env.extend(ours.into_iter().map(|(name, value)| (name.to_owned(), value)));
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::spec;

    #[test]
    fn only_plain_commands_take_the_shells_place() {
        for plain in
            ["python3 app.py", "  gunicorn -b 0.0.0.0:$PORT 'app:app'", "\"$TOWPATH_BIN\" __static public"]
        {
            assert_eq!(with_exec(plain), format!("exec {}", plain.trim_start()));
        }
        for other in [
            "",
            "A=b app",
            "cd x && y",
            ". ./env; exec z",
            "a | b",
            "(a)",
            "exec a",
            "a\nb",
            "a $(b)",
            "while true",
            "a > b",
        ] {
            assert_eq!(with_exec(other), other);
        }
    }

    #[test]
    fn the_platforms_variables_win_and_impossible_ones_are_left_out() {
        let mut spec = spec(1);
        for (name, value) in
            [("PORT", "1"), ("PATH", "/opt"), ("A=B", "x"), ("", "x"), ("NUL", "a\0b"), ("KEY", "v=w")]
        {
            spec.env.insert(name.into(), value.into());
        }
        let settings = CellSettings::new("/d", "http://127.0.0.1:1", "t");
        let request =
            start_request(&spec, &settings, 20_001, Some(7), Path::new("/home"), Path::new("/bin/towpath"));
        let get = |name: &str| request.env.get(name).map(String::as_str);
        assert_eq!(get("PORT"), Some("20001"));
        assert_eq!(get("HOST"), Some("127.0.0.1"));
        assert_eq!(get("PATH"), Some("/opt"));
        assert_eq!(get("KEY"), Some("v=w"));
        assert_eq!(get("TOWPATH_MEMORY"), Some("512"));
        assert_eq!(get("TOWPATH_INSTANCE"), Some(spec.instance.to_string().as_str()));
        assert_eq!(request.env.len(), 16);
        assert_eq!((request.files, request.processes), (16_384, 1024));
    }
}
