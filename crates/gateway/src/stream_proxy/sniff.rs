//! The first message of a TLS client, read for the name that it asks for. Foreign bytes: nothing of them is trusted.

/// Longest beginning of a connection that is looked at.
pub(crate) const HELLO_MAX: usize = 32 * 1024;

/// Longest record.
const RECORD_MAX: usize = 16 * 1024 + 256;

/// Longest host name.
const NAME_MAX: usize = 255;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// What the beginning of a connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hello {
    /// More has to come before that can be said.
    Incomplete,
    /// No TLS, or none that is well-formed.
    Foreign,
    /// A client that asks for this host, in lower case.
    Named(String),
    /// A client that asks for no host.
    Nameless,
}

/// Reads the beginning of a connection.
pub(crate) fn read(bytes: &[u8]) -> Hello {
    let message = match handshake(bytes) {
        Ok(message) => message,
        Err(found) => return found,
    };
    match server_name(&message) {
        Some(Some(name)) => Hello::Named(name),
        Some(None) => Hello::Nameless,
        None => Hello::Foreign,
    }
}

/// The body of the client's first handshake message, which may come in several records.
fn handshake(bytes: &[u8]) -> Result<Vec<u8>, Hello> {
    let mut rest = Reader(bytes);
    let mut message = Vec::new();
    loop {
        match message.as_slice() {
            [kind, ..] if *kind != CLIENT_HELLO => return Err(Hello::Foreign),
            [_, a, b, c, body @ ..] => {
                let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
                if length > HELLO_MAX {
                    return Err(Hello::Foreign);
                }
                if let Some(body) = body.get(..length) {
                    return Ok(body.to_vec());
                }
            }
            _ => {}
        }
        let more = if bytes.len() < HELLO_MAX { Hello::Incomplete } else { Hello::Foreign };
        // What is there of a record's head has to be one, so that what is no TLS does not wait for more.
        match rest.0 {
            [] => return Err(more),
            [kind, ..] if *kind != HANDSHAKE => return Err(Hello::Foreign),
            [_, major, ..] if *major != 3 => return Err(Hello::Foreign),
            _ => {}
        }
        let (Some(_), Some(length)) = (rest.take(3), rest.number(2)) else { return Err(more) };
        if length == 0 || length > RECORD_MAX {
            return Err(Hello::Foreign);
        }
        message.extend_from_slice(rest.take(length.min(rest.0.len())).unwrap_or_default());
    }
}

/// The server name in a message; `None` = it is malformed.
fn server_name(message: &[u8]) -> Option<Option<String>> {
    let mut reader = Reader(message);
    reader.take(2 + 32)?;
    for length_bytes in [1, 2, 1] {
        // Session id, cipher suites, compression methods.
        let length = reader.number(length_bytes)?;
        reader.take(length)?;
    }
    if reader.0.is_empty() {
        return Some(None);
    }
    let length = reader.number(2)?;
    let mut extensions = Reader(reader.take(length)?);
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let length = extensions.number(2)?;
        let content = extensions.take(length)?;
        if kind == usize::from(SERVER_NAME) {
            return name_in(content);
        }
    }
    Some(None)
}

fn name_in(extension: &[u8]) -> Option<Option<String>> {
    let mut reader = Reader(extension);
    let length = reader.number(2)?;
    let mut names = Reader(reader.take(length)?);
    while !names.0.is_empty() {
        let kind = names.take(1)?;
        let length = names.number(2)?;
        let name = names.take(length)?;
        if kind == [HOST_NAME] {
            return host(name).map(Some);
        }
    }
    Some(None)
}

/// A host name in its one form.
fn host(name: &[u8]) -> Option<String> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let good = !name.is_empty() && name.len() <= NAME_MAX && name.iter().all(plain);
    good.then(|| String::from_utf8_lossy(name).to_ascii_lowercase())
}

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }

    /// A number of so many bytes, the highest first.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// What rustls sends first.
    fn hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_name_is_found_and_never_before_the_message_is_whole() {
        let bytes = hello("Shop.Example.com");
        assert_eq!(read(&bytes), Hello::Named("shop.example.com".into()));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), Hello::Incomplete, "{length} of {}", bytes.len());
        }
        let more = [&bytes[..], b"more"].concat();
        assert_eq!(read(&more), Hello::Named("shop.example.com".into()));
        assert_eq!(read(&hello("127.0.0.1")), Hello::Nameless);
    }

    #[test]
    fn a_message_in_several_records_is_put_together() {
        let bytes = hello("a.test");
        let split: Vec<u8> = bytes[5..]
            .chunks(7)
            .flat_map(|piece| [&[22, 3, 1, 0, piece.len() as u8], piece].concat())
            .collect();
        assert_eq!(read(&split), Hello::Named("a.test".into()));
        assert_eq!(read(&split[..split.len() - 1]), Hello::Incomplete);
    }

    #[test]
    fn what_is_no_tls_is_told_by_its_first_bytes() {
        for foreign in
            [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x02", b"\x16\x03\x01\0\x01\x02", b"\x80\x2e\x01\x03\x01"]
        {
            assert_eq!(read(foreign), Hello::Foreign, "{foreign:?}");
        }
        let huge = [&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 100]].concat();
        assert_eq!(read(&huge), Hello::Foreign);
        let mut bytes = hello("a.test");
        let at = bytes.windows(6).position(|window| window == b"a.test").unwrap();
        bytes[at] = b' ';
        assert_eq!(read(&bytes), Hello::Foreign, "no host name");
    }

    #[test]
    fn no_bytes_whatever_upset_it() {
        let bytes = hello("a.test");
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = bytes.clone();
                broken[at] = value;
                let _ = read(&broken);
            }
        }
    }
}
