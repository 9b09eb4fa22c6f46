//! What a client would rather read: HTML or JSON (RFC 9110, 12.5.1).

use http::header::{ACCEPT, HeaderMap};

/// What `Accept` says of one kind of content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Wish {
    /// How well it is named: 0 = not at all, then `*/*`, `text/*`, `text/html`.
    named: u8,
    /// Quality in thousandths.
    quality: u16,
    /// Its place in the list.
    place: usize,
}

/// Whether the client prefers HTML: its quality is the higher one, or they are equal and it is named, and before JSON.
/// Who has no preference gets JSON.
pub(crate) fn prefers_html(headers: &HeaderMap) -> bool {
    let (mut html, mut json) = (Wish::default(), Wish::default());
    let ranges = headers.get_all(ACCEPT).iter().flat_map(|line| line.as_bytes().split(|&b| b == b','));
    for (place, range) in ranges.enumerate() {
        let mut parts = range.split(|&b| b == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(quality).unwrap_or(1000);
        let (to_html, to_json) = match kind.as_slice() {
            b"*/*" => (1, 1),
            b"text/*" => (2, 0),
            b"application/*" => (0, 2),
            b"text/html" | b"application/xhtml+xml" => (3, 0),
            b"application/json" | b"application/problem+json" => (0, 3),
            _ => continue,
        };
        for (wish, named) in [(&mut html, to_html), (&mut json, to_json)] {
            let better = named > wish.named || (named == wish.named && quality > wish.quality);
            if named > 0 && better {
                *wish = Wish { named, quality, place };
            }
        }
    }
    html.quality > json.quality
        || (html.quality == json.quality && html.quality > 0 && html.named > 1 && html.place < json.place)
}

/// Thousandths of a `q` parameter; `None` = it is another one. One that is malformed counts as 0.
fn quality(parameter: &[u8]) -> Option<u16> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let value: Option<f32> = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
    Some((value.unwrap_or_default().clamp(0.0, 1.0) * 1000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::HeaderValue;

    fn accepts(lines: &[&'static str]) -> HeaderMap {
        lines.iter().map(|line| (ACCEPT, HeaderValue::from_static(line))).collect()
    }

    #[test]
    fn html_goes_to_who_likes_it_better_or_names_it_first() {
        for html in [
            &["text/html,application/xhtml+xml,*/*;q=0.8"][..],
            &["text/html, application/json;q=0.5"],
            &["application/json;q=0.1, text/html"],
            &["application/json;q=0.8,text/html;q=0.9"],
            &["text/html, application/json"],
            &["application/*;q=0.2, text/*;q=0.3"],
            &["*/*;q=0.1", "text/html"],
            &["image/webp, Text/HTML;level=1;Q=0.3"],
            &["application/problem+json;q=0, text/html;q=0.001"],
        ] {
            assert!(prefers_html(&accepts(html)), "{html:?}");
        }
        for json in [
            &[][..],
            &[""],
            &["*/*"],
            &["application/json"],
            &["application/json, text/html;q=0.1"],
            &["application/json, text/html"],
            &["text/html;q=0.5, application/json"],
            &["text/html;q=0"],
            &["text/html;q=x, application/json;q=0.1"],
            &["text/html;q=0.4", "*/*;q=0.5"],
            &["image/png"],
        ] {
            assert!(!prefers_html(&accepts(json)), "{json:?}");
        }
    }
}
