//! What the documents say is so: commands marked `sh run` are run, settings and manifests are read, flags are there.
//! CONTRIBUTING.md says how blocks are marked.

use crate::apps;
use crate::platform::{BIN, FREE_ARGS, Role, Up, command, open_dir, run, run_within};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All documents for users, by their path in the repository.
fn documents() -> BTreeMap<String, String> {
    let root = root();
    let mut paths = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for entry in std::fs::read_dir(root.join("docs/guide")).unwrap() {
        paths.push(format!("docs/guide/{}", entry.unwrap().file_name().to_str().unwrap()));
    }
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(root.join(path)).unwrap())).collect()
}

/// A fenced block: the line it begins at, what stands behind the fence, its text.
pub struct Block {
    pub line: usize,
    pub kind: String,
    pub text: String,
}

pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (at, line) in text.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            if !open {
                blocks.push(Block { line: at + 1, kind: kind.trim().to_owned(), text: String::new() });
            }
            open = !open;
        } else if open {
            blocks.last_mut().unwrap().text += &format!("{line}\n");
        }
    }
    assert!(!open, "a block that does not end");
    blocks
}

#[test]
fn every_block_says_what_it_is() {
    for (path, text) in documents() {
        for Block { line, kind, .. } in blocks(&text) {
            let known = ["sh run", "sh", "toml", "yaml", "json", "text"];
            assert!(
                known.contains(&kind.as_str()),
                "{path}:{line}: a block of kind {kind:?}; use one of {known:?}"
            );
            let may_not_run =
                ["CONTRIBUTING.md", "docs/guide/cluster.md", "docs/guide/cluster-operations.md"];
            let runs = kind != "sh" || may_not_run.contains(&path.as_str());
            assert!(runs, "{path}:{line}: mark it `sh run`, so that its commands are tried");
        }
    }
}

/// What the commands of documents find around them. `up` is running already, on other ports than those that documents
/// name; make only says what it would do; nobody is there to answer questions or to press Ctrl-C.
const AROUND: &str = r#"
set -euo pipefail
make() { command make --no-print-directory -n -C "$REPOSITORY" "$@" >/dev/null; }
towpath() {
  case "$1 ${!#}" in
    'up '*) command towpath up --check ;;
    'delete '*) command towpath "$@" --yes ;;
    *' -f') follow "$@" ;;
    *) command towpath "$@" ;;
  esac
}
follow() {
  local output; output=$(mktemp)
  command towpath "$@" >"$output" & local process=$!
  until [ -s "$output" ]; do kill -0 $process; sleep 0.1; done
  kill $process; wait $process || true
}
"#;

struct Reader {
    up: Up,
}

impl Reader {
    /// A user with a home of their own, whose platform runs.
    fn new() -> Self {
        let dir = open_dir();
        std::fs::create_dir_all(dir.path().join(".local/share")).unwrap();
        let up = Up { role: Role::start(dir.path(), ".local/share/towpath", "up", FREE_ARGS), dir };
        let port = |key: &str| up.role.address(key).port();
        let curl = format!(
            "fail\nsilent\nshow-error\nconnect-to = \":8080:127.0.0.1:{}\"\nconnect-to = \":7700:127.0.0.1:{}\"\n",
            port("gateway"),
            port("api"),
        );
        std::fs::write(up.dir.path().join(".curlrc"), curl).unwrap();
        Self { up }
    }

    fn home(&self) -> &Path {
        self.up.dir.path()
    }

    /// Pushes two versions of an app, so that there is one to go back to.
    fn has(&self, app: &str) {
        for version in ["one", "two"] {
            self.up.push(&apps::python(self.home(), app, version), &[]).ok();
        }
    }

    fn bash(&self, script: &str) {
        let mut bash = Command::new("bash");
        for (name, _) in
            std::env::vars().filter(|(name, _)| name.starts_with("TOWPATH_") || name.starts_with("MAKE"))
        {
            bash.env_remove(name);
        }
        let programs = Path::new(BIN).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        bash.env("HOME", self.home()).env("PATH", path).env("REPOSITORY", root());
        bash.env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME").env_remove("CURL_HOME");
        bash.env("TOWPATH_API", self.up.role.url("api")).current_dir(self.home());
        bash.args(["-c", &format!("{AROUND}\nset -x\n{script}")]).stdin(std::process::Stdio::null());
        run_within(bash, Duration::from_secs(180)).ok();
    }

    /// Runs what a document says, in one shell from top to bottom.
    fn follows(&self, path: &str, first: &str) {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        let run: Vec<Block> = blocks(&text).into_iter().filter(|block| block.kind == "sh run").collect();
        assert!(!run.is_empty(), "{path} has nothing to run");
        let script: Vec<String> = run
            .iter()
            .map(|block| format!("echo '--- {path}:{}' >&2\n{}", block.line, one_a_line(&block.text)))
            .collect();
        self.bash(&format!("{first}\n{}", script.join("\n")));
    }
}

/// Commands in columns, one under the other.
fn one_a_line(text: &str) -> String {
    let mut lines = String::new();
    for line in text.lines() {
        let mut rest = line;
        while let Some(at) = rest.find("  towpath ") {
            lines += &format!("{}\n", rest[..at].trim_end());
            rest = rest[at..].trim_start();
        }
        lines += &format!("{rest}\n");
    }
    lines
}

#[test]
fn the_readme_can_be_followed() {
    let reader = Reader::new();
    reader.has("shop");
    apps::python(reader.home(), "your-app", "main");
    reader.follows(
        "README.md",
        "mv your-app-main your-app
         ( cd your-app; git init -q -b main; git config user.email a@example.com; git config user.name A
           git add .; git commit -q -m main; git branch feature )",
    );
    let names: Vec<String> = reader
        .up
        .towpath(&["apps", "-o", "json"])
        .ok()
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|app| app["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["shop", "your-app"]);
    assert_eq!(reader.up.get("shop.example.com", "/", &[]).status, 200);
}

#[test]
fn the_first_app_can_be_followed() {
    let reader = Reader::new();
    reader.follows("docs/guide/first-app.md", "");
    assert_eq!(reader.up.get("hello.localhost", "/", &[]).body, "hello\n");
}

#[test]
fn lanes_can_be_followed() {
    let reader = Reader::new();
    reader.has("shop");
    reader.follows("docs/guide/lanes.md", "cd shop-two; TOKEN=$(cat ~/.local/share/towpath/token)");
    // Its last change made another header the tag.
    let tagged = reader.up.get("shop.localhost", "/", &[("trafficenv", "summer")]).json();
    assert_eq!(tagged["lane"], "summer", "{tagged}");
}

#[test]
fn deploys_can_be_followed() {
    let reader = Reader::new();
    reader.has("shop");
    reader.follows("docs/guide/deploys.md", "");
    assert_eq!(reader.up.towpath(&["app", "shop"]).code, 4, "its last command is a delete");
}

#[test]
fn identity_can_be_followed() {
    let reader = Reader::new();
    reader.follows("docs/guide/identity.md", "");
    let orgs = reader.up.towpath(&["orgs", "-o", "json"]).ok().json();
    assert_eq!(orgs.as_array().unwrap().len(), 1, "the last commands are deletions: {orgs}");
}

#[test]
fn secrets_can_be_followed() {
    let reader = Reader::new();
    reader.has("shop");
    reader.follows("docs/guide/secrets.md", "");
    let status = reader.up.towpath(&["secrets", "status", "-o", "json"]).ok().json();
    assert_eq!(status["keys"].as_array().unwrap().len(), 2, "it was rotated: {status}");
}

#[test]
fn the_gateway_alone_can_be_followed() {
    Reader::new().follows("docs/guide/gateway-alone.md", "");
}

#[test]
fn streams_can_be_followed() {
    Reader::new().follows("docs/guide/gateway-streams.md", "");
}

#[test]
fn the_api_can_be_followed() {
    Reader::new().follows("docs/guide/api.md", "");
}

/// Whether a manifest is accepted: the API that it would be sent to is not there, which is another exit code.
fn assert_manifest(dir: &Path, name: &str, text: &str, what: &str) {
    let app = dir.join("app");
    std::fs::create_dir_all(app.join("front")).unwrap();
    for file in ["index.html", "front/index.html"] {
        std::fs::write(app.join(file), "<h1>hello</h1>").unwrap();
    }
    std::fs::write(app.join(name), text).unwrap();
    let mut push = command(dir);
    push.arg("push").arg(&app).args(["--api", "http://127.0.0.1:9", "--token", "none"]);
    let output = run(push);
    std::fs::remove_file(app.join(name)).unwrap();
    assert_eq!(output.code, 3, "{what}: {output:#?}");
}

fn assert_settings(dir: &Path, text: &str, what: &str) {
    let file = dir.join("settings.toml");
    std::fs::write(&file, text).unwrap();
    // The files that the documents name are opened by the check.
    let pair = towpath_testkit::tls::Authority::new().issue(&["localhost"]);
    std::fs::write(dir.join("cert.pem"), pair.certificate).unwrap();
    std::fs::write(dir.join("key.pem"), pair.key).unwrap();
    let mut check = command(dir);
    check.current_dir(dir).args(["up", "--check", "--config"]).arg(&file);
    let output = run(check);
    assert_eq!(output.code, 0, "{what}: {output:#?}");
}

#[test]
fn settings_and_manifests_in_documents_are_read_by_their_own_parsers() {
    let dir = open_dir();
    let mut read = 0;
    for (path, text) in documents() {
        for Block { line, kind, text } in blocks(&text) {
            let what = format!("{path}:{line}");
            match kind.as_str() {
                "toml" if path.ends_with("settings.md") || text.starts_with("[gateway") => {
                    assert_settings(dir.path(), &text, &what);
                }
                "toml" => assert_manifest(dir.path(), "towpath.toml", &text, &what),
                "yaml" => assert_manifest(dir.path(), "manifest.yml", &text, &what),
                "json" => drop(
                    serde_json::from_str::<serde_json::Value>(&text)
                        .unwrap_or_else(|e| panic!("{what}: {e}")),
                ),
                _ => continue,
            }
            read += 1;
        }
    }
    assert!(read >= 5, "{read} blocks are too few: has something been renamed?");
}

#[test]
fn every_example_file_is_read() {
    let dir = open_dir();
    let mut found = 0;
    let mut rest = vec![root().join("examples")];
    while let Some(next) = rest.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if path.is_dir() && name != "node_modules" {
                rest.push(path);
            } else if ["towpath.toml", "manifest.yml"].contains(&name.as_str()) {
                let text = std::fs::read_to_string(&path).unwrap();
                assert_manifest(dir.path(), &name, &text, &path.display().to_string());
                found += 1;
            } else if ["apisix.yaml", "object-storage.yaml"].contains(&name.as_str()) {
                let mut check = command(dir.path());
                check.args(["gateway", "--check", "--file"]).arg(&path);
                let output = run(check);
                assert_eq!(output.code, 0, "{}: {output:#?}", path.display());
            } else if name.ends_with(".json") {
                let text = std::fs::read_to_string(&path).unwrap();
                serde_json::from_str::<serde_json::Value>(&text)
                    .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            }
        }
    }
    assert!(found >= 3, "{found} manifests");
}

/// Every command that a document mentions, in a block or in a line of text.
fn mentioned(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            open = !open;
        } else if open {
            let commands = one_a_line(line);
            found.extend(commands.lines().filter(|line| line.starts_with("towpath ")).map(str::to_owned));
        } else {
            found.extend(
                line.split('`')
                    .skip(1)
                    .step_by(2)
                    .filter(|span| span.starts_with("towpath "))
                    .map(str::to_owned),
            );
        }
    }
    found
}

#[test]
fn commands_in_documents_exist_with_their_flags() {
    let dir = open_dir();
    let mut helps: BTreeMap<Vec<String>, Option<String>> = BTreeMap::new();
    let mut help = |verbs: &[String]| {
        let ask = || {
            let mut help = command(dir.path());
            help.args(verbs).arg("--help");
            let output = run(help);
            (output.code == 0).then_some(output.stdout)
        };
        helps.entry(verbs.to_vec()).or_insert_with(ask).clone()
    };
    let mut checked = 0;
    for (path, text) in documents() {
        for line in mentioned(&text) {
            let before_comment = line.split(" #").next().unwrap();
            let words: Vec<String> = before_comment.split_whitespace().skip(1).map(str::to_owned).collect();
            let plain = |word: &&String| {
                word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
            };
            let verbs: Vec<String> = words.iter().take_while(plain).take(1).cloned().collect();
            if verbs.is_empty() {
                continue;
            }
            let mut text = help(&verbs).unwrap_or_else(|| panic!("{path}: {line}: no such command"));
            if text.contains("\nCommands:\n") {
                let two: Vec<String> = words.iter().take_while(plain).take(2).cloned().collect();
                text = help(&two).unwrap_or_else(|| panic!("{path}: {line}: no such command"));
            }
            for flag in words.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
                let flag = flag.split('=').next().unwrap();
                let known =
                    text.split(|c: char| c.is_whitespace() || c == ',' || c == '=').any(|word| word == flag);
                assert!(known, "{path}: {line}: {flag} is not in\n{text}");
            }
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked} commands are too few");
}

#[test]
fn every_known_pain_has_the_test_that_is_named() {
    let path = "docs/adr/0099-known-pains.md";
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let mut named = 0;
    for row in text.lines().filter(|line| line.starts_with("| ") && line.contains("`crates/")) {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let (file, test) = (cells[3], cells[4]);
        let source =
            std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{path}: {file}: {e}"));
        assert!(source.contains(&format!("fn {test}(")), "{path}: there is no {test} in {file}");
        named += 1;
    }
    assert!(named >= 15, "{named} rows");
}

#[test]
fn every_error_code_is_in_the_table_of_the_guide() {
    let path = "docs/guide/errors.md";
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    for code in towpath_types::ErrorCode::ALL {
        let row = format!("| `{code}` | {} |", code.status());
        assert!(text.contains(&row), "{path} lacks {row}");
    }
    let rows = text.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, towpath_types::ErrorCode::ALL.len(), "{path} has a code that there is not");
}
