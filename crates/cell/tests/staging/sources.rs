//! Sources that are built with nothing but the language's own tools.

use crate::bench::SERVER;
use crate::support::{Yard, follow, write_all};
use towpath_cell::BuildFile;

#[tokio::test]
async fn python_without_packages_needs_no_environment() {
    let yard = Yard::new().await;
    if yard.can("python").await {
        let result = yard.build(&[("app.py", SERVER)]).await.1.unwrap();
        let started = (result.builder.as_str(), result.command.as_str());
        assert_eq!(started, ("python", ". ./.towpath/env; exec python3 app.py"));
        assert!(yard.serve(&result).await.ends_with("hello"));
        // The interpreter has both of its names, whether the machine gives it both or not.
        let result = yard.build(&[("app.py", SERVER), ("Procfile", "web: python app.py")]).await.1.unwrap();
        assert!(yard.serve(&result).await.ends_with("hello"));
    }
    yard.end().await;
}

#[tokio::test]
async fn node_runs_the_start_script_without_npm_between() {
    let yard = Yard::new().await;
    if yard.can("node").await {
        let server = r#"
            const http = require("http");
            const server = http.createServer((q, s) => s.end("hello in " + process.env.NODE_ENV));
            server.listen(process.env.PORT, process.env.HOST);
            process.on("SIGTERM", () => process.exit(0));
        "#;
        let package = r#"{"name": "x", "scripts": {"start": "node lib/server.js", "build": "mkdir -p lib && cp src.js lib/server.js"}}"#;
        let (said, result) = yard.build(&[("package.json", package), ("src.js", server)]).await;
        let result = result.unwrap();
        assert!(said.steps.iter().any(|step| step == "Running the build script"), "{:?}", said.steps);
        assert_eq!(result.command, ". ./.towpath/env; exec node lib/server.js");
        assert!(yard.serve(&result).await.ends_with("hello in production"));
    }
    yard.end().await;
}

#[tokio::test]
async fn a_built_front_end_is_served_as_files() {
    let yard = Yard::new().await;
    if yard.can("node").await {
        let package = r#"{"name": "x", "scripts": {"build": "mkdir dist && echo built > dist/index.html"}}"#;
        let result = yard.build(&[("package.json", package)]).await.1.unwrap();
        assert!(yard.serve(&result).await.ends_with("built\n"));
    }
    yard.end().await;
}

#[tokio::test]
async fn php_is_served_from_its_public_directory() {
    let yard = Yard::new().await;
    if yard.can("php").await {
        let files = [
            ("public/index.php", "<?php echo 'hello ', 6 * 7;"),
            ("composer.json", r#"{"require": {"php": ">=7"}}"#),
        ];
        let result = yard.build(&files).await.1.unwrap();
        assert_eq!(result.builder, "php");
        assert!(yard.serve(&result).await.ends_with("hello 42"));
    }
    yard.end().await;
}

#[tokio::test]
async fn go_is_compiled() {
    let yard = Yard::new().await;
    if yard.can("go").await {
        let main = r#"package main
            import ("net/http"; "os")
            func main() {
                http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("hello from go")) })
                panic(http.ListenAndServe(os.Getenv("HOST")+":"+os.Getenv("PORT"), nil))
            }"#;
        let result =
            yard.build(&[("go.mod", "module x\n\ngo 1.18\n"), ("cmd/shop/main.go", main)]).await.1.unwrap();
        assert_eq!((result.builder.as_str(), result.command.as_str()), ("go", "exec ./.towpath/bin/app"));
        assert!(yard.serve(&result).await.ends_with("hello from go"));
    }
    yard.end().await;
}

#[tokio::test]
async fn rust_is_compiled() {
    // As the cell's own user: toolchains are often installed for one user only.
    let yard = Yard::with(|settings| {
        settings.uids = None;
        settings.path = std::env::var("PATH").unwrap();
    })
    .await;
    if yard.can("rust").await {
        let main = r#"use std::io::{Read, Write};
            fn main() {
                let port = std::env::var("PORT").unwrap().parse::<u16>().unwrap();
                for stream in std::net::TcpListener::bind(("127.0.0.1", port)).unwrap().incoming() {
                    let mut stream = stream.unwrap();
                    let _ = stream.read(&mut [0; 1024]);
                    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello from rust");
                }
            }"#;
        let manifest = "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
        let result = yard.build(&[("Cargo.toml", manifest), ("src/main.rs", main)]).await.1.unwrap();
        assert_eq!((result.builder.as_str(), result.command.as_str()), ("rust", "exec ./.towpath/bin/app"));
        assert!(!yard.unpack(&result).path().join("app/target").exists());
        assert!(yard.serve(&result).await.ends_with("hello from rust"));
    }
    yard.end().await;
}

const JAVA: &str = r#"
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
public class Main {
    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(Integer.getInteger("server.port")), 0);
        server.createContext("/", exchange -> {
            exchange.sendResponseHeaders(200, 5);
            exchange.getResponseBody().write("hello".getBytes());
            exchange.close();
        });
        server.start();
    }
}
"#;

#[tokio::test]
async fn a_ready_jar_is_run() {
    let yard = Yard::new().await;
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &[("src/Main.java", JAVA), ("src/manifest", "Main-Class: Main\n")]);
    let make = "cd src && javac -d ../classes Main.java && jar cfm ../app.jar manifest -C ../classes .";
    let made = std::process::Command::new("sh").args(["-c", make]).current_dir(dir.path()).status();
    if yard.can("java").await && made.is_ok_and(|status| status.success()) {
        let result = follow(yard.submit(yard.job(yard.upload(dir.path()))).await).await.1.unwrap();
        assert_eq!(result.builder, "java");
        assert!(yard.serve(&result).await.ends_with("hello"));
    }
    yard.end().await;
}

/// Debian's own repository of Maven plugins: there without a network.
const MAVEN_REPOSITORY: &str = "/usr/share/maven-repo";

#[tokio::test]
async fn a_maven_project_is_built_with_the_operators_settings() {
    let plugin = std::path::Path::new(MAVEN_REPOSITORY).join("org/apache/maven/plugins/maven-jar-plugin");
    assert!(
        plugin.is_dir() && std::path::Path::new("/usr/bin/mvn").exists(),
        "no Maven plugins on this machine; `make test` installs them (Debian: maven libmaven-jar-plugin-java …)"
    );
    let settings_dir = tempfile::tempdir().unwrap();
    let settings_file = settings_dir.path().join("settings.xml");
    let mirror =
        format!("<mirror><id>debian</id><mirrorOf>*</mirrorOf><url>file://{MAVEN_REPOSITORY}</url></mirror>");
    std::fs::write(&settings_file, format!("<settings><mirrors>{mirror}</mirrors></settings>")).unwrap();
    let yard = Yard::with(|settings| {
        settings.builds.files =
            vec![BuildFile { from: settings_file.clone(), to: ".m2/settings.xml".into() }];
    })
    .await;
    let source = yard.upload(&crate::support::example("java"));
    let (said, result) = follow(yard.submit(yard.job(source)).await).await;
    let result = result.unwrap_or_else(|error| panic!("{error:?}\n{}", said.text()));
    assert!(result.command.contains("-jar 'target/clock-1.0.jar'"), "{}", result.command);
    assert!(yard.serve(&result).await.contains("Hello from Java"));
    yard.end().await;
}
