//! Apps with packages from their registries. `TOWPATH_TEST_OFFLINE=1` passes over them.

use crate::bench;
use crate::support::{Yard, example, follow, write_all};

fn offline() -> bool {
    let offline = std::env::var_os("TOWPATH_TEST_OFFLINE").is_some();
    if offline {
        eprintln!("skipped: offline");
    }
    offline
}

#[tokio::test]
async fn a_flask_app_runs_under_gunicorn_where_it_was_not_built() {
    let yard = Yard::new().await;
    if !offline() && yard.can("python").await {
        let (said, result) = follow(yard.submit(yard.job(yard.upload(&example("flask")))).await).await;
        let result = result.unwrap_or_else(|error| panic!("{error:?}\n{}", said.text()));
        assert!(result.command.starts_with(". ./.towpath/env; exec gunicorn "), "{}", result.command);
        assert!(said.text().contains("Successfully installed"), "{}", said.text());
        assert!(yard.serve(&result).await.contains("<h1>Hello from Flask</h1>"));
        // Console scripts work by their own name too, and nothing points at the directory of the build.
        let dir = yard.unpack(&result);
        let venv = dir.path().join("app/.towpath/venv");
        let version =
            std::process::Command::new(venv.join("bin/gunicorn")).arg("--version").output().unwrap();
        assert!(String::from_utf8_lossy(&version.stdout).contains("gunicorn"), "{version:?}");
        let script = std::fs::read_to_string(venv.join("bin/flask")).unwrap();
        assert!(!script.contains("builds"), "{script}");
        // The same source again is the same artifact, whoever built it, and of packages nothing is downloaded again.
        let (said, again) = follow(yard.submit(yard.job(yard.upload(&example("flask")))).await).await;
        assert_eq!(again.unwrap().artifact, result.artifact);
        let lines = said.text();
        assert!(lines.contains("Using cached") && !lines.contains("Downloading"), "{lines}");
    }
    yard.end().await;
}

#[tokio::test]
async fn a_console_script_in_the_procfile_is_found() {
    let yard = Yard::new().await;
    if !offline() && yard.can("python").await {
        let files = [
            ("requirements.txt", "flask\n-e .\n"),
            (
                "setup.py",
                "from setuptools import setup\nsetup(name='shopapp', version='1', py_modules=['shopapp'])\n",
            ),
            (
                "shopapp.py",
                "from flask import Flask\napp = Flask(__name__)\napp.add_url_rule('/', view_func=lambda: 'hello from a script')\n",
            ),
            ("Procfile", "web: cd / && flask --app shopapp run --host $HOST --port $PORT"),
        ];
        let (said, result) = yard.build(&files).await;
        let result = result.unwrap_or_else(|error| panic!("{error:?}\n{}", said.text()));
        assert!(yard.serve(&result).await.ends_with("hello from a script"));
    }
    yard.end().await;
}

#[tokio::test]
async fn a_package_that_does_not_exist_fails_with_pips_words() {
    let yard = Yard::new().await;
    if !offline() && yard.can("python").await {
        let (_, result) = yard.build(&[("requirements.txt", "flask==0.0.0.1\n"), ("app.py", "x = 1")]).await;
        let (code, message) = result.unwrap_err();
        assert_eq!(code.as_str(), "build_failed");
        assert!(
            message.contains("ended with status 1") && message.contains("No matching distribution"),
            "{message}"
        );
    }
    yard.end().await;
}

#[tokio::test]
async fn an_express_app_runs_and_its_lock_file_is_honoured() {
    let yard = Yard::new().await;
    if !offline() && yard.can("node").await {
        let (said, result) = follow(yard.submit(yard.job(yard.upload(&example("express")))).await).await;
        let result = result.unwrap_or_else(|error| panic!("{error:?}\n{}", said.text()));
        assert_eq!(result.command, ". ./.towpath/env; exec node server.js");
        let (_, port) = yard.run(&result).await;
        assert!(bench::fetch(port).await.unwrap().contains("<h1>Hello from Express</h1>"));
        // The lock that the install wrote makes the next one exact.
        let dir = yard.unpack(&result);
        let app = tempfile::tempdir().unwrap();
        for file in ["package.json", "package-lock.json", "server.js"] {
            std::fs::copy(dir.path().join("app").join(file), app.path().join(file)).unwrap();
        }
        assert!(follow(yard.submit(yard.job(yard.upload(app.path()))).await).await.1.is_ok());
        write_all(
            app.path(),
            &[("package.json", r#"{"name": "notes", "dependencies": {"express": "^3.0.0"}}"#)],
        );
        let (said, result) = follow(yard.submit(yard.job(yard.upload(app.path()))).await).await;
        assert!(result.unwrap_err().1.contains("npm ended with status 1"));
        assert!(said.text().contains("in sync"), "{}", said.text());
    }
    yard.end().await;
}
