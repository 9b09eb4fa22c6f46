use super::reply::Site;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use std::sync::Arc;

async fn ask(site: &Arc<Site>, method: &str, path: &str, headers: &[(&str, &str)]) -> (Response<()>, Bytes) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (head, body) = site.reply(&request.body(()).unwrap()).await.into_parts();
    (Response::from_parts(head, ()), body.collect().await.unwrap().to_bytes())
}

fn site() -> (tempfile::TempDir, Arc<Site>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("docs")).unwrap();
    for (name, text) in [
        ("index.html", "<p>home"),
        ("404.html", "<p>lost"),
        ("docs/index.html", "<p>docs"),
        ("a.txt", "0123456789"),
        ("a.txt.gz", "compressed"),
        ("empty.css", ""),
    ] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let site = Arc::new(Site::new(dir.path().canonicalize().unwrap()));
    (dir, site)
}

#[tokio::test]
async fn files_pages_and_errors_are_answered() {
    let (_dir, site) = site();
    let (head, body) = ask(&site, "GET", "/", &[]).await;
    assert_eq!((head.status().as_u16(), &body[..]), (200, &b"<p>home"[..]));
    assert_eq!(head.headers()["content-type"], "text/html; charset=utf-8");
    assert_eq!(head.headers()["x-content-type-options"], "nosniff");
    let (head, body) = ask(&site, "GET", "/nothing", &[]).await;
    assert_eq!((head.status().as_u16(), &body[..]), (404, &b"<p>lost"[..]));
    let (head, _) = ask(&site, "GET", "/docs?a=b", &[]).await;
    assert_eq!((head.status().as_u16(), &head.headers()["location"]), (301, &"/docs/?a=b".parse().unwrap()));
    let (head, body) = ask(&site, "HEAD", "/a.txt", &[]).await;
    assert_eq!((head.status().as_u16(), body.len()), (200, 0));
    assert_eq!(head.headers()["content-length"], "10");
    let (head, _) = ask(&site, "POST", "/", &[]).await;
    assert_eq!((head.status().as_u16(), &head.headers()["allow"]), (405, &"GET, HEAD".parse().unwrap()));
    let (head, body) = ask(&site, "GET", "/empty.css", &[]).await;
    assert_eq!((head.status().as_u16(), body.len()), (200, 0));
}

#[tokio::test]
async fn tags_ranges_and_encodings_work() {
    let (dir, site) = site();
    let (head, _) = ask(&site, "GET", "/a.txt", &[]).await;
    let tag = head.headers()["etag"].to_str().unwrap().to_owned();
    let date = head.headers()["last-modified"].to_str().unwrap().to_owned();
    for (name, value) in
        [("if-none-match", tag.as_str()), ("if-none-match", "*"), ("if-modified-since", &date)]
    {
        let (head, body) = ask(&site, "GET", "/a.txt", &[(name, value)]).await;
        assert_eq!((head.status().as_u16(), body.len()), (304, 0), "{name}");
    }
    let (head, body) = ask(&site, "GET", "/a.txt", &[("range", "bytes=2-4")]).await;
    assert_eq!((head.status().as_u16(), &body[..]), (206, &b"234"[..]));
    assert_eq!(head.headers()["content-range"], "bytes 2-4/10");
    let stale = [("range", "bytes=2-4"), ("if-range", "\"old\"")];
    assert_eq!(ask(&site, "GET", "/a.txt", &stale).await.1.len(), 10);
    let (head, _) = ask(&site, "GET", "/a.txt", &[("range", "bytes=10-")]).await;
    assert_eq!(
        (head.status().as_u16(), &head.headers()["content-range"]),
        (416, &"bytes */10".parse().unwrap())
    );
    let (head, body) =
        ask(&site, "GET", "/a.txt", &[("accept-encoding", "gzip"), ("range", "bytes=0-1")]).await;
    assert_eq!((head.status().as_u16(), &body[..]), (200, &b"compressed"[..]));
    assert_eq!(head.headers()["content-encoding"], "gzip");
    assert_eq!(head.headers()["content-type"], "text/plain; charset=utf-8");
    assert_ne!(head.headers()["etag"], tag.as_str());
    std::fs::write(dir.path().join("200.html"), "<p>app").unwrap();
    let (head, body) = ask(&site, "GET", "/deep/link", &[]).await;
    assert_eq!((head.status().as_u16(), &body[..]), (200, &b"<p>app"[..]));
}

#[test]
fn settings_come_from_the_environment() {
    let settings = |port: Option<&'static str>, host: Option<&'static str>| {
        super::settings(&[], |name| match name {
            "PORT" => port.map(str::to_owned),
            _ => host.map(str::to_owned),
        })
    };
    assert_eq!(settings(Some("80"), None).unwrap().1.to_string(), "0.0.0.0:80");
    assert_eq!(settings(Some("80"), Some("127.0.0.1")).unwrap().1.to_string(), "127.0.0.1:80");
    for (port, host, word) in
        [(None, None, "PORT"), (Some("x"), None, "PORT"), (Some("1"), Some("x"), "HOST")]
    {
        assert!(settings(port, host).unwrap_err().contains(word));
    }
    assert!(super::settings(&["/nowhere".into()], |_| Some("1".into())).unwrap_err().contains("/nowhere"));
}
