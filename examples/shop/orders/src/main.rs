//! The shop's orders: counts them. Standard library only, one thread a connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Method, path, body length and whether the client wants to go on, of one request; `None` at the end of the stream.
fn read_head(reader: &mut impl BufRead) -> std::io::Result<Option<(String, String, u64, bool)>> {
    let mut line = String::new();
    if reader.take(8192).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut parts = line.split_whitespace();
    let (method, path) = (parts.next().unwrap_or("").to_owned(), parts.next().unwrap_or("/").to_owned());
    let (mut length, mut keep) = (0, true);
    loop {
        let mut line = String::new();
        reader.take(8192).read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", value) => length = value.parse().unwrap_or(0),
            ("connection", value) => keep = !value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    Ok(Some((method, path, length, keep)))
}

fn serve(stream: TcpStream, served: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(90)))?;
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some((method, path, length, keep)) = read_head(&mut reader)? {
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink())?;
        let (status, body) = match (method.as_str(), path.split('?').next().unwrap_or("")) {
            ("POST", "/orders") => ("201 Created", format!("{{\"count\":{},\"served\":{served}}}", COUNT.fetch_add(1, Ordering::Relaxed) + 1)),
            ("GET", "/orders") => ("200 OK", format!("{{\"count\":{},\"served\":{served}}}", COUNT.load(Ordering::Relaxed))),
            _ => ("404 Not Found", "{\"error\":\"no such page\"}".into()),
        };
        write!(writer, "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
        if !keep {
            break;
        }
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let of = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    let instance = of("TOWPATH_INSTANCE", "-");
    let tail = instance.get(instance.len().saturating_sub(6)..).unwrap_or("-");
    let served: &'static str = format!("{{\"lane\":\"{}\",\"instance\":\"{tail}\"}}", of("TOWPATH_LANE", "base")).leak();
    let port = of("PORT", "8002");
    let listener = TcpListener::bind(format!("0.0.0.0:{port}"))?;
    println!("orders listens on {port}");
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || serve(stream, served));
    }
    Ok(())
}
