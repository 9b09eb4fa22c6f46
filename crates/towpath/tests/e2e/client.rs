//! A raw HTTP/1.1 client: what is sent and read is exactly what is written here. A broken or cut answer is an error.

use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest silence of a server.
const SILENCE: Duration = Duration::from_secs(60);

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    method: &'static str,
    host: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    chunked: bool,
}

impl Request {
    fn new(method: &'static str, host: &str, target: &str, body: Option<Vec<u8>>) -> Self {
        let (host, target) = (host.to_owned(), target.to_owned());
        Self { method, host, target, headers: Vec::new(), body, chunked: false }
    }

    pub fn get(host: &str, target: &str) -> Self {
        Self::new("GET", host, target, None)
    }

    pub fn post(host: &str, target: &str, body: &[u8]) -> Self {
        Self::new("POST", host, target, Some(body.to_vec()))
    }

    pub fn put(host: &str, target: &str, body: &[u8]) -> Self {
        Self::new("PUT", host, target, Some(body.to_vec()))
    }

    pub fn patch(host: &str, target: &str, body: &[u8]) -> Self {
        Self::new("PATCH", host, target, Some(body.to_vec()))
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends the body in chunks, not with a length.
    pub fn chunked(mut self, chunked: bool) -> Self {
        self.chunked = chunked;
        self
    }

    pub fn body(&self) -> &[u8] {
        self.body.as_deref().unwrap_or_default()
    }

    /// Over a connection of its own.
    pub fn send(&self, address: SocketAddr) -> Result<Response> {
        Connection::open(address)?.send(&self.clone().header("connection", "close"))
    }

    fn write(&self, to: &mut impl Write) -> Result<()> {
        let mut bytes = format!("{} {} HTTP/1.1\r\nhost: {}\r\n", self.method, self.target, self.host);
        for (name, value) in &self.headers {
            bytes += &format!("{name}: {value}\r\n");
        }
        match &self.body {
            Some(_) if self.chunked => bytes += "transfer-encoding: chunked\r\n",
            Some(body) => bytes += &format!("content-length: {}\r\n", body.len()),
            None => {}
        }
        let mut bytes = (bytes + "\r\n").into_bytes();
        match self.body() {
            body if self.chunked => {
                for chunk in body.chunks(10_000) {
                    bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    bytes.extend_from_slice(chunk);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            }
            body => bytes.extend_from_slice(body),
        }
        to.write_all(&bytes)
    }
}

/// A response, complete.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    /// As text; what is no UTF-8 is replaced.
    pub body: String,
    pub bytes: Vec<u8>,
}

impl Response {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A connection, for one request after the other.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request and reads the answer whole.
    pub fn send(&mut self, request: &Request) -> Result<Response> {
        // A server may answer before it has read everything, and close: its answer counts.
        let written = request.write(self.0.get_mut());
        let head = self.head().map_err(|error| written.err().unwrap_or(error))?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let mut bytes = Vec::new();
        if header(&head, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            self.chunks(&mut bytes)?;
        } else if matches!(status, 204 | 304) {
        } else if let Some(length) = header(&head, "content-length") {
            bytes.resize(length.parse().map_err(Error::other)?, 0);
            self.0.read_exact(&mut bytes)?;
        } else {
            self.0.read_to_end(&mut bytes)?;
        }
        Ok(Response { status, head, body: String::from_utf8_lossy(&bytes).into_owned(), bytes })
    }

    fn head(&mut self) -> Result<String> {
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if self.0.read_line(&mut head)? == 0 {
                    return Err(Error::other(format!("closed after {head:?}")));
                }
            }
            if !head.starts_with("HTTP/1.1 1") {
                return Ok(head.trim_end().to_owned());
            }
        }
    }

    fn chunks(&mut self, to: &mut Vec<u8>) -> Result<()> {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16).map_err(Error::other)?;
            let at = to.len();
            to.resize(at + size, 0);
            self.0.read_exact(&mut to[at..])?;
            let mut end = String::new();
            self.0.read_line(&mut end)?;
            if end != "\r\n" {
                return Err(Error::other(format!("a chunk of {size} ends with {end:?}")));
            }
            if size == 0 {
                return Ok(());
            }
        }
    }
}

/// GET `http://<host><target>` at an address.
pub fn get(address: SocketAddr, host: &str, target: &str, headers: &[(&str, &str)]) -> Response {
    try_get(address, host, target, headers).unwrap_or_else(|error| panic!("GET {host}{target}: {error}"))
}

/// [`get`], with the error of the connection.
pub fn try_get(address: SocketAddr, host: &str, target: &str, headers: &[(&str, &str)]) -> Result<Response> {
    let plain = Request::get(host, target);
    headers.iter().fold(plain, |request, (name, value)| request.header(name, value)).send(address)
}
