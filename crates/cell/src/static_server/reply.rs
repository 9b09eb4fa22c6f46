//! Answers requests.

use super::content_type::content_type;
use super::range::{Wanted, wanted};
use super::resolve::{Target, inside, resolve};
use bytes::Bytes;
use futures::TryStreamExt;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Frame;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio_util::io::ReaderStream;

type Body = BoxBody<Bytes, io::Error>;

/// Larger files are not hashed for their tag.
const HASHED: u64 = 16 << 20;

/// The directory that is served.
pub(super) struct Site {
    root: PathBuf,
    tags: Mutex<HashMap<PathBuf, (Stamp, String)>>,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    seconds: i64,
    nanos: i64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            length: metadata.len(),
            seconds: metadata.mtime(),
            nanos: metadata.mtime_nsec(),
        }
    }
}

/// A file that was chosen for an answer.
struct Chosen {
    file: File,
    length: u64,
    tag: String,
    modified: Option<SystemTime>,
    content_type: &'static str,
    encoding: Option<&'static str>,
    status: StatusCode,
}

enum Found {
    Chosen(Box<Chosen>),
    Slash(String),
    Missing,
}

impl Site {
    /// The directory `root`, a real path.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, tags: Mutex::default() }
    }

    /// Answers a request.
    pub(super) async fn reply<B>(self: &std::sync::Arc<Self>, request: &Request<B>) -> Response<Body> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let (site, path) = (std::sync::Arc::clone(self), request.uri().path().to_owned());
        let accepted = request.headers().get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
        let accepted = accepted.unwrap_or_default().to_owned();
        let found = tokio::task::spawn_blocking(move || site.find(&path, &accepted)).await;
        let mut response = match found {
            Ok(Ok(Found::Chosen(chosen))) => send(*chosen, request.headers()),
            Ok(Ok(Found::Slash(to))) => moved(&to, request.uri().query()),
            Ok(Ok(Found::Missing)) => text(StatusCode::NOT_FOUND, "not found\n"),
            _ => text(StatusCode::INTERNAL_SERVER_ERROR, "the file could not be read\n"),
        };
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if request.method() == Method::HEAD {
            *response.body_mut() = empty();
        }
        response
    }

    fn find(&self, path: &str, accepted: &str) -> io::Result<Found> {
        match resolve(&self.root, path) {
            Target::Slash(to) => return Ok(Found::Slash(to)),
            Target::File(file) => return self.choose(&file, accepted, StatusCode::OK),
            Target::Missing => {}
        }
        for (page, status) in [("200.html", StatusCode::OK), ("404.html", StatusCode::NOT_FOUND)] {
            if let Some(page) = inside(&self.root, &self.root.join(page)).filter(|page| page.is_file()) {
                return self.choose(&page, accepted, status);
            }
        }
        Ok(Found::Missing)
    }

    /// Opens the file, or what is compressed beside it.
    fn choose(&self, path: &Path, accepted: &str, status: StatusCode) -> io::Result<Found> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut chosen = (path.to_path_buf(), None);
        for (encoding, ending) in [("br", "br"), ("gzip", "gz")] {
            let beside = path.with_file_name(format!("{name}.{ending}"));
            if accepts(accepted, encoding)
                && let Some(beside) = inside(&self.root, &beside).filter(|beside| beside.is_file())
            {
                chosen = (beside, Some(encoding));
                break;
            }
        }
        let (path, encoding) = chosen;
        let file = File::open(&path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Found::Missing);
        }
        let tag = self.tag(&path, &file, &metadata)?;
        let modified = metadata.modified().ok();
        let content_type = content_type(&name);
        Ok(Found::Chosen(Box::new(Chosen {
            file,
            length: metadata.len(),
            tag,
            modified,
            content_type,
            encoding,
            status,
        })))
    }

    /// The entity tag: of the content, so that all instances agree; large files go by length and time.
    fn tag(&self, path: &Path, file: &File, metadata: &Metadata) -> io::Result<String> {
        let stamp = Stamp::of(metadata);
        if stamp.length > HASHED {
            return Ok(format!("\"{:x}-{:x}\"", stamp.length, stamp.seconds));
        }
        let tags = || self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, tag)) = tags().get(path)
            && *known == stamp
        {
            return Ok(tag.clone());
        }
        let (mut hash, mut buffer, mut file) = (Sha256::new(), vec![0; 64 << 10], file);
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            hash.update(buffer.get(..n).unwrap_or_default());
        }
        file.seek(SeekFrom::Start(0))?;
        let hex: String = hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let tag = format!("\"{hex}\"");
        tags().insert(path.to_path_buf(), (stamp, tag.clone()));
        Ok(tag)
    }
}

/// Whether the client takes this encoding: named, and not with a quality of zero.
fn accepts(header: &str, encoding: &str) -> bool {
    header.split(',').any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(encoding));
        named && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

fn send(chosen: Chosen, request: &HeaderMap) -> Response<Body> {
    let whole = chosen.status == StatusCode::OK && chosen.encoding.is_none();
    let ask = |name: HeaderName| request.get(name).and_then(|value| value.to_str().ok());
    let mut response = Response::new(empty());
    let headers = response.headers_mut();
    put(headers, header::ETAG, &chosen.tag);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(modified) = chosen.modified {
        put(headers, header::LAST_MODIFIED, &http_date(modified));
    }
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if chosen.status == StatusCode::OK
        && is_fresh(&chosen, ask(header::IF_NONE_MATCH), ask(header::IF_MODIFIED_SINCE))
    {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(chosen.content_type));
    if let Some(encoding) = chosen.encoding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    if whole {
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
    let same = ask(header::IF_RANGE).is_none_or(|tag| tag == chosen.tag);
    let (first, count) = match wanted(ask(header::RANGE).filter(|_| whole && same), chosen.length) {
        Wanted::All => (0, chosen.length),
        Wanted::Part(first, last) => {
            put(headers, header::CONTENT_RANGE, &format!("bytes {first}-{last}/{}", chosen.length));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            (first, last.saturating_sub(first).saturating_add(1))
        }
        Wanted::Nothing => {
            let mut response = text(StatusCode::RANGE_NOT_SATISFIABLE, "no such part\n");
            put(response.headers_mut(), header::CONTENT_RANGE, &format!("bytes */{}", chosen.length));
            return response;
        }
    };
    put(response.headers_mut(), header::CONTENT_LENGTH, &count.to_string());
    if response.status() == StatusCode::OK {
        *response.status_mut() = chosen.status;
    }
    *response.body_mut() = part(chosen.file, first, count);
    response
}

/// Whether what the client has is what there is.
fn is_fresh(chosen: &Chosen, tags: Option<&str>, since: Option<&str>) -> bool {
    if let Some(tags) = tags {
        return tags
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.trim_start_matches("W/") == chosen.tag);
    }
    // Clients send back what they were given, so the same text is enough.
    since.is_some_and(|since| chosen.modified.is_some_and(|modified| http_date(modified) == since))
}

fn part(file: File, first: u64, count: u64) -> Body {
    if count == 0 {
        return empty();
    }
    let mut file = file;
    if let Err(error) = file.seek(SeekFrom::Start(first)) {
        return StreamBody::new(futures::stream::once(async { Err(error) })).boxed();
    }
    let reader = tokio::io::AsyncReadExt::take(tokio::fs::File::from_std(file), count);
    StreamBody::new(ReaderStream::with_capacity(reader, 64 << 10).map_ok(Frame::data)).boxed()
}

fn moved(to: &str, query: Option<&str>) -> Response<Body> {
    let to = query.map_or_else(|| to.to_owned(), |query| format!("{to}?{query}"));
    let mut response = text(StatusCode::MOVED_PERMANENTLY, "");
    put(response.headers_mut(), header::LOCATION, &to);
    response
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response =
        Response::new(Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(time: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, seconds) = (since / 86_400, since % 86_400);
    let weekday = DAYS.iter().cycle().nth((days % 7) as usize).unwrap_or(&"");
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970_u64, days);
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if day < length {
            break;
        }
        day -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = "";
    for (name, length) in MONTHS.iter().zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
        month = name;
        if day < length {
            break;
        }
        day -= length;
    }
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{weekday}, {:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_http_wants_them() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn an_encoding_with_quality_zero_is_not_accepted() {
        assert!(accepts("gzip, br;q=0.5", "br"));
        assert!(!accepts("gzip;q=0, deflate", "gzip"));
        assert!(!accepts("", "gzip"));
    }
}
