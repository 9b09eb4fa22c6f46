//! Whether the files that settings name are there and hold what they should: for `--check`, which starts nothing.

use crate::config::{Role, Settings};
use crate::document::problem::Problem;
use crate::exit::reason;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use towpath_secrets::KeyFileError;

/// All that is wrong with them, by field.
pub(super) fn check(role: Role, settings: &Settings) -> Vec<Problem> {
    let mut found = Found::default();
    if matches!(role, Role::Up | Role::Gateway) {
        let gateway = &settings.gateway.config;
        for (at, tls) in gateway.tls.iter().enumerate() {
            let field = |name: &str| format!("gateway.tls[{at}].{name}");
            if let Some((certificate, key)) = tls.certificate.as_deref().zip(tls.key.as_deref()) {
                found.pair((&field("certificate"), certificate), (&field("key"), key));
            }
        }
        if let Some(path) = &gateway.sticky_key {
            let checked = towpath_gateway::check_shared_key(path);
            found.note("gateway.sticky_key", path, checked.map_err(|error| reason(&error)));
        }
        found.text("gateway.token_file", gateway.token_file.as_deref(), |text| {
            check_token(text, "gateway-token")
        });
        if let Some(dir) = gateway.access_log.file.as_deref().and_then(Path::parent)
            && !dir.as_os_str().is_empty()
        {
            let there = if dir.is_dir() { Ok(()) } else { Err("there is no such directory".to_owned()) };
            found.note("gateway.access_log.file", dir, there);
        }
    }
    if let Some(nats) = &settings.nats {
        found.text("bus.credentials", nats.credentials.as_deref(), check_credentials);
        found.text("bus.nkey", nats.nkey.as_deref(), |text| check_seed(text.trim()));
        found.authorities("bus.ca", nats.ca.as_deref());
        if let Some((certificate, key)) = &nats.certificate {
            found.pair(("bus.certificate", certificate), ("bus.key", key));
        }
    }
    if matches!(role, Role::Up | Role::Manager)
        && let Some(path) = &settings.secrets_key_file
    {
        found.note("manager.secrets_key_file", path, check_keys(path));
    }
    if role == Role::Manager {
        found.authorities("store.ca", settings.postgres_ca.as_deref());
    }
    if role == Role::Cell {
        found.text("cell.token_file", settings.cell.token_file.as_deref(), |text| {
            check_token(text, "cell-token")
        });
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn note<T>(&mut self, field: &str, path: &Path, checked: Result<T, String>) -> Option<T> {
        checked
            .map_err(|why| {
                let message = format!("{}: {why}", path.display());
                self.0.push(Problem { path: field.to_owned(), message, ..Problem::default() });
            })
            .ok()
    }

    /// A text file.
    fn text(&mut self, field: &str, path: Option<&Path>, check: impl FnOnce(&str) -> Result<(), String>) {
        let Some(path) = path else { return };
        let checked =
            std::fs::read_to_string(path).map_err(|error| unreadable(&error)).and_then(|text| check(&text));
        self.note(field, path, checked);
    }

    /// Authorities, PEM.
    fn authorities(&mut self, field: &str, path: Option<&Path>) {
        let Some(path) = path else { return };
        let checked = certificates(path).and_then(|all| {
            all.into_iter().try_for_each(|one| {
                RootCertStore::empty().add(one).map_err(|error| format!("no authority: {error}"))
            })
        });
        self.note(field, path, checked);
    }

    /// A certificate with its chain, and its key, both PEM.
    fn pair(&mut self, certificate: (&str, &Path), key: (&str, &Path)) {
        let chain = self.note(certificate.0, certificate.1, certificates(certificate.1));
        let secret = self.note(key.0, key.1, private_key(key.1));
        let (Some(chain), Some(secret)) = (chain, secret) else { return };
        let provider = rustls::crypto::ring::default_provider();
        let fits = rustls::sign::CertifiedKey::from_der(chain, secret, &provider)
            .map_err(|error| format!("does not go with {}: {error}", certificate.1.display()));
        self.note(key.0, key.1, fits);
    }
}

fn unreadable(error: &std::io::Error) -> String {
    format!("cannot be read: {}", reason(error))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| no_pem(&error, "certificate"))?;
    if all.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(all) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| no_pem(&error, "private key"))
}

fn no_pem(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::Io(error) => unreadable(error),
        pem::Error::NoItemsFound => format!("there is no {what} in it"),
        error => format!("it is not well-formed PEM: {error}"),
    }
}

/// A NATS credentials file: a token, and the seed of the key that it was given to.
fn check_credentials(text: &str) -> Result<(), String> {
    let section = |name: &str| {
        let (_, rest) = text.split_once(&format!("-----BEGIN {name}-----"))?;
        // Tools write five dashes or six at the end.
        Some(rest.split_once("-----")?.0.trim().to_owned()).filter(|text| !text.is_empty())
    };
    section("NATS USER JWT").ok_or("there is no section NATS USER JWT in it")?;
    check_seed(&section("USER NKEY SEED").ok_or("there is no section USER NKEY SEED in it")?)
}

fn check_seed(seed: &str) -> Result<(), String> {
    nkeys::KeyPair::from_seed(seed).map(drop).map_err(|error| format!("there is no seed of an nkey: {error}"))
}

/// A key file for secrets. What is wrong with it is said without its name, which stands before.
fn check_keys(path: &Path) -> Result<(), String> {
    match towpath_secrets::load(path) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("there is no such file".to_owned()),
        Err(KeyFileError::Io { source, .. }) => Err(unreadable(&source)),
        Err(KeyFileError::Line { line, .. }) => {
            Err(format!("line {line} is not `towpath-key-1` and 64 hex digits"))
        }
        Err(KeyFileError::Empty { .. }) => Err("there is no key in it".to_owned()),
        Err(KeyFileError::Open { mode, .. }) => {
            Err(format!("it can be read by others (mode {mode:o}); chmod 600 it"))
        }
        Err(error @ KeyFileError::NoKey) => Err(error.to_string()),
    }
}

fn check_token(text: &str, name: &str) -> Result<(), String> {
    let token = text.trim();
    if token.is_empty() {
        return Err(format!("it is empty; a manager writes the token to <data-dir>/{name}"));
    }
    if token.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(());
    }
    Err(format!("it holds more than one token; a manager writes it to <data-dir>/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read::Machine;
    use crate::config::{Sources, read};
    use towpath_testkit::tls::Authority;

    /// What is said of a file of settings, with `DIR` for the directory.
    fn said(role: Role, dir: &Path, settings: &str) -> Vec<String> {
        let text = settings.replace("DIR", &dir.display().to_string());
        let node = crate::document::toml::parse("config.toml", &text).unwrap();
        let sources = Sources { file: Some(("config.toml".into(), node)), ..Sources::default() };
        let machine = Machine { data_dir: Some("/data".into()), node: "here".into() };
        let settings = read(role, &sources, &machine).unwrap();
        let shown = dir.display().to_string();
        check(role, &settings).iter().map(|problem| problem.to_string().replace(&shown, "DIR")).collect()
    }

    #[test]
    fn each_file_that_is_wrong_is_said_with_its_field() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let (one, two) = (authority.issue(&["a.test"]), authority.issue(&["b.test"]));
        for (name, text) in [
            ("one.crt", one.certificate.as_str()),
            ("one.key", &one.key),
            ("two.key", &two.key),
            ("ca.crt", &authority.pem()),
            ("sticky", "short"),
            ("empty", ""),
            ("torn", "-----BEGIN CERTIFICATE-----\nAA\n"),
            ("seed", "SUnonsense"),
            ("token", "abc\n"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let tls = |certificate: &str, key: &str| {
            format!(
                "[[gateway.tls]]\nlisten = \"127.0.0.1:0\"\ncertificate = \"DIR/{certificate}\"\nkey = \"DIR/{key}\"\n"
            )
        };
        assert_eq!(said(Role::Up, dir.path(), &tls("one.crt", "one.key")), [""; 0]);
        let wrong = [tls("none", "empty"), tls("one.crt", "two.key"), tls("torn", "one.key")].concat();
        let all = said(Role::Up, dir.path(), &format!("{wrong}[gateway]\nsticky_key = \"DIR/sticky\"\n"));
        let starts = [
            "gateway.tls[0].certificate: DIR/none: cannot be read: No such file",
            "gateway.tls[0].key: DIR/empty: there is no private key in it",
            "gateway.tls[1].key: DIR/two.key: does not go with DIR/one.crt: ",
            "gateway.tls[2].certificate: DIR/torn: it is not well-formed PEM: ",
            "gateway.sticky_key: DIR/sticky: it has 5 bytes; 32, or 64 hex digits, are right",
        ];
        assert!(
            all.len() == starts.len() && all.iter().zip(starts).all(|(a, b)| a.starts_with(b)),
            "{all:#?}"
        );

        let bus = "[bus]\nnats = [\"nats://h:4222\"]\nnkey = \"DIR/seed\"\nca = \"DIR/empty\"\n";
        let cell = format!("{bus}[cell]\napi = \"http://h:1\"\ntoken_file = \"DIR/empty\"\n");
        let all = said(Role::Cell, dir.path(), &cell);
        let starts = [
            "bus.nkey: DIR/seed: there is no seed of an nkey: ",
            "bus.ca: DIR/empty: there is no certificate in it",
            "cell.token_file: DIR/empty: it is empty",
        ];
        assert!(
            all.len() == starts.len() && all.iter().zip(starts).all(|(a, b)| a.starts_with(b)),
            "{all:#?}"
        );
        let good = "[bus]\nnats = [\"nats://h:4222\"]\nca = \"DIR/ca.crt\"\n[cell]\napi = \"http://h:1\"\ntoken_file = \"DIR/token\"\n";
        assert_eq!(said(Role::Cell, dir.path(), good), [""; 0]);
    }

    #[test]
    fn a_key_file_is_read_and_its_keys_are_not_told() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.key");
        let settings = "[manager]\nsecrets_key_file = \"DIR/secrets.key\"\n";
        let cluster = format!(
            "{settings}[store]\npostgres = \"postgres://h/towpath\"\n[bus]\nnats = [\"nats://h:4222\"]\n"
        );
        let say = |wrong: &str| {
            let line = format!("manager.secrets_key_file: DIR/secrets.key: {wrong}");
            for (role, settings) in [(Role::Up, settings), (Role::Manager, &cluster)] {
                let all = said(role, dir.path(), settings);
                let as_said = if wrong.is_empty() {
                    all.is_empty()
                } else {
                    all.len() == 1 && all[0].starts_with(&line)
                };
                assert!(as_said, "{line}: {all:?}");
            }
        };
        say("there is no such file");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let key = "ab".repeat(32);
        write("# none\n", 0o600);
        say("there is no key in it");
        write(&format!("towpath-key-1 {key}cd\n"), 0o600);
        say("line 1 is not `towpath-key-1` and 64 hex digits");
        write(&format!("towpath-key-1 {key}\n"), 0o644);
        say("it can be read by others (mode 644); chmod 600 it");
        write(&format!("towpath-key-1 {key}\n"), 0o600);
        say("");
    }

    #[test]
    fn credentials_hold_a_token_and_a_seed() {
        let seed = nkeys::KeyPair::new_user().seed().unwrap();
        let file = |jwt: &str, seed: &str| {
            format!(
                "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
            )
        };
        assert_eq!(check_credentials(&file("e30.e30.x", &seed)), Ok(()));
        for bad in [file("", &seed), file("e30", "SUX"), "nothing".to_owned()] {
            assert!(check_credentials(&bad).is_err(), "{bad}");
        }
    }
}
