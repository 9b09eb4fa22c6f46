//! `ssls`.

use super::text::{Host, Labels, RegexText, Switch};
use crate::certificate::{self, Validity, Wrong, check_chain, check_pair};
use crate::{Fault, Id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A certificate with its key.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("not" = json!({"required": ["sni", "snis"]})))]
pub struct Ssl {
    /// The id; the one of the address wins.
    pub id: Option<Id>,
    /// What it is for.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Labels.
    pub labels: Option<Labels>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was changed last, in seconds since 1970.
    pub update_time: Option<i64>,
    /// Shown to clients, or shown to upstreams.
    #[serde(default)]
    pub r#type: SslKind,
    /// The certificate and those above it, PEM.
    #[schemars(length(min = 128, max = 65536))]
    pub cert: String,
    /// The private key, PEM.
    #[schemars(length(min = 64, max = 65536), extend("x-secret" = true))]
    pub key: String,
    /// The name that it is for.
    pub sni: Option<Host>,
    /// The names that it is for.
    #[schemars(length(min = 1))]
    pub snis: Option<Vec<Host>>,
    /// More certificates for the same names (ECDSA beside RSA).
    #[schemars(inner(length(min = 128, max = 65536)))]
    pub certs: Option<Vec<String>>,
    /// The keys of `certs`, in its order.
    #[schemars(inner(length(min = 64, max = 65536)), extend("x-secret" = true))]
    pub keys: Option<Vec<String>>,
    /// *Ours*: the OCSP response for `cert` that clients get with it, DER in base64. The gateway asks no responder by itself.
    #[schemars(length(min = 8, max = 65536))]
    pub ocsp_response: Option<String>,
    /// *Ours*: the same for `certs`, in its order; an empty text = none.
    #[schemars(inner(length(max = 65536)))]
    pub ocsp_responses: Option<Vec<String>>,
    /// Clients have to show a certificate.
    pub client: Option<SslClient>,
    /// 1 = in use, 0 = not.
    #[serde(default)]
    pub status: Switch,
    /// Versions of TLS that are spoken for these names.
    #[schemars(length(max = 3), extend("uniqueItems" = true))]
    pub ssl_protocols: Option<Vec<TlsVersion>>,
}

/// Whom a certificate is shown to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SslKind {
    /// Clients.
    #[default]
    Server,
    /// Upstreams.
    Client,
}

/// A version of TLS. 1.1 is APISIX's and refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub enum TlsVersion {
    #[serde(rename = "TLSv1.2")]
    Tls12,
    #[serde(rename = "TLSv1.3")]
    Tls13,
}

/// What a client has to show.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SslClient {
    /// Certificates of the authorities that are trusted, PEM.
    #[schemars(length(min = 128, max = 65536))]
    pub ca: String,
    /// Most certificates between the client's and the authority's.
    #[serde(default = "one")]
    pub depth: u32,
    /// Paths for which no certificate is needed.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub skip_mtls_uri_regex: Option<Vec<RegexText>>,
}

fn one() -> u32 {
    1
}

impl std::fmt::Debug for Ssl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ssl")
            .field("id", &self.id)
            .field("names", &self.names().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Ssl {
    /// Every name that it is for.
    pub fn names(&self) -> impl Iterator<Item = &Host> {
        self.sni.iter().chain(self.snis.iter().flatten())
    }

    /// Every certificate with its key.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let more = self.certs.iter().flatten().zip(self.keys.iter().flatten());
        std::iter::once((self.cert.as_str(), self.key.as_str()))
            .chain(more.map(|(cert, key)| (cert.as_str(), key.as_str())))
    }

    /// The OCSP responses of [`Ssl::pairs`], in its order; `None` = there is none.
    pub fn staples(&self) -> impl Iterator<Item = Option<Vec<u8>>> {
        let more = self.ocsp_responses.iter().flatten().map(|text| Some(text.as_str()));
        std::iter::once(self.ocsp_response.as_deref())
            .chain(more)
            .map(|text| certificate::ocsp_response(text.filter(|text| !text.is_empty())?).ok())
    }

    /// When its certificates are valid: all of them together, so from the latest beginning to the earliest end.
    pub fn validity(&self) -> Option<Validity> {
        let each = self.pairs().filter_map(|(cert, _)| certificate::validity(cert).ok());
        each.reduce(|one, other| Validity {
            not_before: one.not_before.max(other.not_before),
            not_after: one.not_after.min(other.not_after),
        })
    }

    fn check_names(&self, faults: &mut Vec<Fault>) {
        for (index, name) in self.names().enumerate() {
            let text = name.as_str();
            let rest = text.strip_prefix("*.").unwrap_or(text);
            let good = text == "*"
                || (!rest.is_empty() && !rest.contains(['*', ':', '[', ']']) && !rest.contains(".."));
            if !good {
                let path = if self.sni.is_some() { "sni".to_owned() } else { format!("snis[{index}]") };
                let message = format!(
                    "must be a name, *. and a name, or *, not {text:?}: clients name no addresses and no ports"
                );
                faults.push(Fault::new(path, message));
            }
        }
    }

    fn check_staples(&self, faults: &mut Vec<Fault>) {
        let one = self.ocsp_response.iter().map(|text| ("ocsp_response".to_owned(), text));
        let more = self.ocsp_responses.iter().flatten().enumerate();
        let more = more.map(|(index, text)| (format!("ocsp_responses[{index}]"), text));
        for (path, text) in one.chain(more.filter(|(_, text)| !text.is_empty())) {
            if let Err(message) = certificate::ocsp_response(text) {
                faults.push(Fault::new(path, message));
            }
        }
        let certs = self.certs.iter().flatten().count();
        if self.ocsp_responses.as_ref().is_some_and(|all| all.len() > certs) {
            faults.push(Fault::new(
                "ocsp_responses",
                format!("must not be more than certs: there are {certs} certs"),
            ));
        }
    }

    /// What only a certificate that clients are shown can have.
    fn check_client_kind(&self, faults: &mut Vec<Fault>) {
        let given = [
            ("client", self.client.is_some()),
            ("ssl_protocols", self.ssl_protocols.is_some()),
            ("ocsp_response", self.ocsp_response.is_some()),
            ("ocsp_responses", self.ocsp_responses.is_some()),
        ];
        for (field, _) in given.iter().filter(|(_, given)| *given) {
            faults.push(Fault::new(*field, "says nothing for a certificate of type \"client\""));
        }
    }

    fn check_pems(&self, faults: &mut Vec<Fault>) {
        for (index, (cert, key)) in self.pairs().enumerate() {
            let field = |one: &str, several: &str| match index.checked_sub(1) {
                None => one.to_owned(),
                Some(index) => format!("{several}[{index}]"),
            };
            match check_pair(cert, key) {
                Ok(()) => {}
                Err(Wrong::Certificate(message)) => faults.push(Fault::new(field("cert", "certs"), message)),
                Err(Wrong::Key(message)) => faults.push(Fault::new(field("key", "keys"), message)),
            }
        }
        if let Some(Err(message)) = self.client.as_ref().map(|client| check_chain(&client.ca)) {
            faults.push(Fault::new("client.ca", message));
        }
    }

    pub(crate) fn check(&self, faults: &mut Vec<Fault>) {
        match (&self.sni, &self.snis) {
            (Some(_), Some(_)) => faults.push(Fault::new("snis", "must not stand beside sni")),
            (None, None) if self.r#type == SslKind::Server => {
                faults.push(Fault::new("sni", "is missing: give sni or snis, or type \"client\" for a certificate that is shown to upstreams"));
            }
            _ => {}
        }
        self.check_pems(faults);
        self.check_names(faults);
        self.check_staples(faults);
        if self.r#type == SslKind::Client {
            self.check_client_kind(faults);
        }
        if self.ssl_protocols.as_ref().is_some_and(Vec::is_empty) {
            faults.push(Fault::new("ssl_protocols", "must name a version: leave it out for all"));
        }
        let (certs, keys) = (self.certs.iter().flatten().count(), self.keys.iter().flatten().count());
        if certs != keys {
            faults.push(Fault::new(
                "keys",
                format!("must have a key for each of certs: there are {certs} certs and {keys} keys"),
            ));
        }
    }
}
