//! Apps that the tests push.

use std::path::{Path, PathBuf};

/// An app in Python's standard library that says who it is: `{"app", "lane", "instance", "version", "env"}`; `/slow/<ms>`
/// waits, `/hold` until somebody asks for `/let-go`, `/fail` is a 500. A POST gets its body back.
const SERVER: &str = r#"
import json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

let_go = threading.Event()

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path.startswith("/slow/"):
            time.sleep(int(self.path.split("/")[2]) / 1000)
        if self.path == "/hold":
            let_go.wait()
        if self.path == "/let-go":
            let_go.set()
        body = json.dumps({
            "app": os.environ.get("TOWPATH_APP"), "lane": os.environ.get("TOWPATH_LANE"),
            "instance": os.environ.get("TOWPATH_INSTANCE"), "index": os.environ.get("TOWPATH_INSTANCE_INDEX"),
            "version": VERSION, "level": os.environ.get("LEVEL"), "path": self.path,
            "host": self.headers.get("host"), "pid": os.getpid(),
        }).encode()
        self.send_response(500 if self.path == "/fail" else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = b""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, format, *args):
        print("request", self.path, flush=True)

class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

print("version", VERSION, "listens on", os.environ["PORT"], flush=True)
Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

/// Writes the server as an app named `name` with a version that it tells; gives its directory.
pub fn python(root: &Path, name: &str, version: &str) -> PathBuf {
    let dir = root.join(format!("{name}-{version}"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("app.py"), format!("VERSION = {version:?}\n{SERVER}")).unwrap();
    manifest(&dir, name, "command = \"exec python3 app.py\"\nbuilder = \"binary\"\n");
    dir
}

/// An app whose server is a console script of a package (a wheel beside it, so that no index is needed): it is found only
/// in the app's own virtual environment. A Procfile names it.
pub fn packaged(root: &Path, name: &str) -> PathBuf {
    let dir = root.join(format!("{name}-packaged"));
    std::fs::create_dir_all(&dir).unwrap();
    let module = format!("VERSION = 'packaged'\ndef main():\n{}", indented(SERVER));
    std::fs::write(dir.join("greeter.py"), module).unwrap();
    let wheel = "import zipfile\n\
        w = zipfile.ZipFile('greeter-1.0-py3-none-any.whl', 'w')\n\
        w.write('greeter.py')\n\
        d = 'greeter-1.0.dist-info/'\n\
        w.writestr(d + 'METADATA', 'Metadata-Version: 2.1\\nName: greeter\\nVersion: 1.0\\n')\n\
        w.writestr(d + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        w.writestr(d + 'entry_points.txt', '[console_scripts]\\ngreeter-server = greeter:main\\n')\n\
        w.writestr(d + 'RECORD', '')\n\
        w.close()\n";
    let made = std::process::Command::new("python3").arg("-c").arg(wheel).current_dir(&dir).status().unwrap();
    assert!(made.success());
    std::fs::remove_file(dir.join("greeter.py")).unwrap();
    std::fs::write(dir.join("requirements.txt"), "./greeter-1.0-py3-none-any.whl\n").unwrap();
    std::fs::write(dir.join("Procfile"), "web: greeter-server\n").unwrap();
    dir
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// An app that prints why and exits.
pub fn crashing(root: &Path, name: &str) -> PathBuf {
    let dir = root.join(format!("{name}-crashing"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("run.sh"), "echo 'no database configured'; echo 'giving up' >&2; exit 3\n")
        .unwrap();
    manifest(&dir, name, "command = \"sh run.sh\"\nbuilder = \"binary\"\n");
    dir
}

/// An app that runs but never listens.
pub fn deaf(root: &Path, name: &str) -> PathBuf {
    let dir = root.join(format!("{name}-deaf"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("run.sh"), "echo 'I do not listen'; exec sleep 600\n").unwrap();
    let more = "command = \"exec sh run.sh\"\nbuilder = \"binary\"\n[health]\nstart_timeout = \"2s\"\n";
    manifest(&dir, name, more);
    dir
}

/// The server of [`python`] behind a shell that first does something else.
pub fn odd(root: &Path, name: &str, before: &str) -> PathBuf {
    let dir = python(root, name, "odd");
    std::fs::write(dir.join("run.sh"), format!("{before}\nexec python3 app.py\n")).unwrap();
    manifest(&dir, name, "command = \"exec sh run.sh\"\nbuilder = \"binary\"\ngrace = \"1s\"\n");
    dir
}

/// Static files.
pub fn pages(root: &Path, name: &str, text: &str) -> PathBuf {
    let dir = root.join(format!("{name}-static"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("index.html"), format!("<!doctype html><title>{text}</title><h1>{text}</h1>\n"))
        .unwrap();
    dir
}

/// Writes `towpath.toml`.
pub fn manifest(dir: &Path, name: &str, more: &str) {
    std::fs::write(dir.join("towpath.toml"), format!("name = {name:?}\n{more}")).unwrap();
}
