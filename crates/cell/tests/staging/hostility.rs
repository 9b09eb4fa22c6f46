//! Builds that try to get at what is not theirs.

use crate::bench::is_root;
use crate::support::{Yard, follow, write_all};

async fn build(yard: &Yard, script: &str) -> (crate::support::Said, Option<tempfile::TempDir>) {
    let dir = tempfile::tempdir().unwrap();
    let package = r#"{"name": "x", "scripts": {"build": "exec bash build.sh"}}"#;
    write_all(dir.path(), &[("package.json", package), ("build.sh", script), ("index.js", "")]);
    let (said, result) = follow(yard.submit(yard.job(yard.upload(dir.path()))).await).await;
    let files = result.ok().map(|result| yard.unpack(&result));
    (said, files)
}

#[tokio::test]
async fn links_that_a_build_leaves_are_neither_followed_nor_packed() {
    let yard = Yard::new().await;
    if yard.can("node").await {
        let script = "ln -sf /etc/passwd leak; ln -s / root; rm package.json; ln -s /etc/hostname package.json; \
                      mkdir -p dist; ln -s /etc dist/etc; mkfifo pipe; echo mine > mine; ln -s mine fine";
        let (said, files) = build(&yard, script).await;
        // package.json is gone as far as anybody can see, so there is nothing to start.
        assert!(files.is_none(), "{}", said.text());
        let script = script.replace("rm package.json; ln -s /etc/hostname package.json; ", "");
        let (said, files) = build(&yard, &script).await;
        let files = files.unwrap();
        let app = files.path().join("app");
        for name in ["leak", "root", "dist/etc", "pipe"] {
            assert!(app.join(name).symlink_metadata().is_err(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(app.join("fine")).unwrap(), "mine\n");
        assert!(said.text().contains("leak was left out: a symbolic link that leads out"), "{}", said.text());
    }
    yard.end().await;
}

#[tokio::test]
async fn a_build_is_another_user_without_the_cells_environment_and_files() {
    let yard = Yard::new().await;
    if yard.can("node").await && is_root() {
        let data = yard.stage.dir.path().join("data");
        let script = format!(
            "id -u; cat {0}/cell.json {0}/ledger.json; ls {0}/run/build-cache {0}/run/builds; ls {0}/run/instances; \
             touch {0}/run/builds/x; sudo -n id; env | sort; true",
            data.display()
        );
        let (said, files) = build(&yard, &script).await;
        assert!(files.is_some());
        let text = said.text();
        let uid: u32 = said.lines.iter().find_map(|line| line.parse().ok()).unwrap();
        assert!((200_000..=265_535).contains(&uid), "{uid}");
        assert!(text.matches("Permission denied").count() >= 5, "{text}");
        for word in ["CARGO_", "TOWPATH_TOKEN", "SSH_", "token="] {
            assert!(!text.contains(word), "{word}: {text}");
        }
        assert!(text.contains("TOWPATH_BUILD=1"), "{text}");
    }
    yard.end().await;
}

#[tokio::test]
async fn settings_of_the_app_cannot_change_what_the_build_relies_on() {
    let yard = Yard::new().await;
    if yard.can("node").await {
        let dir = tempfile::tempdir().unwrap();
        let package = r#"{"name": "x", "scripts": {"build": "env"}}"#;
        write_all(dir.path(), &[("package.json", package), ("index.js", "")]);
        let mut job = yard.job(yard.upload(dir.path()));
        for (name, value) in
            [("HOME", "/etc"), ("PATH", "/nowhere"), ("MY_SETTING", "is seen"), ("TMPDIR", "/")]
        {
            job.env.insert(name.into(), value.into());
        }
        let (said, result) = follow(yard.submit(job).await).await;
        let result = result.unwrap();
        assert!(said.text().contains("MY_SETTING=is seen"));
        assert!(!said.text().contains("HOME=/etc"), "{}", said.text());
        assert!(
            !result.env.contains_key("MY_SETTING"),
            "what is set for the app is not the build's to repeat"
        );
    }
    yard.end().await;
}
