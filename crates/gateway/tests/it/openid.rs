//! `openid-connect` and `acl` with a provider of the test's own, which signs with RS256.

use crate::alone::{Alone, route, upstream};
use crate::support::{Answer, Client, Raw};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rsa::{KeyPair, PublicKeyComponents};
use ring::signature::RSA_PKCS1_SHA256;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};
use towpath_testkit::HttpApp;

const KEYS: [&str; 2] = [include_str!("rsa-1.pem"), include_str!("rsa-2.pem")];

fn key(n: usize) -> KeyPair {
    let der = PrivatePkcs8KeyDer::from_pem_slice(KEYS[n].as_bytes()).unwrap();
    KeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap()
}

fn sign(n: usize, claims: &Value) -> String {
    let head = json!({"alg": "RS256", "kid": n.to_string()});
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&head), part(claims));
    let key = key(n);
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &ring::rand::SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// What the provider is told to say, and what it was asked.
#[derive(Default)]
struct Told {
    issuer: String,
    published: Vec<usize>,
    nonce: String,
    challenge: String,
    lasts: u64,
    introspected: Value,
    broken: bool,
    asked: Vec<String>,
}

struct Provider {
    told: Arc<Mutex<Told>>,
    _server: Raw,
}

impl Provider {
    fn start() -> Self {
        let told = Arc::new(Mutex::new(Told { published: vec![0], lasts: 3600, ..Told::default() }));
        let answers = told.clone();
        let server = Raw::start(move |_, mut client| {
            let head = client.read_request();
            let length = head
                .iter()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let form = String::from_utf8(client.bytes(length.unwrap_or(0))).unwrap();
            let answer = answers.lock().unwrap().answer(&head, &form);
            let (status, body) = answer.map_or(("400 Bad Request", json!({})), |body| ("200 OK", body));
            let body = body.to_string();
            client.send(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        });
        told.lock().unwrap().issuer = format!("http://{}", server.address);
        Self { told, _server: server }
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    fn claims(&self, more: Value) -> Value {
        let mut claims =
            json!({"iss": self.told().issuer, "aud": "client", "sub": "ann", "exp": now() + 600});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claims
    }

    fn config(&self, more: Value) -> Value {
        let mut config = json!({
            "client_id": "client", "client_secret": "s:cret", "ssl_verify": false,
            "discovery": format!("{}/.well-known/openid-configuration", self.told().issuer),
            "session": {"secret": "0123456789abcdef"},
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    }
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

impl Told {
    fn answer(&mut self, head: &[String], form: &str) -> Option<Value> {
        let path = head[0].split(' ').nth(1).unwrap();
        self.asked.push(path.to_owned());
        if self.broken {
            return None;
        }
        let header = |name: &str| {
            head.iter().find_map(|line| {
                let (own, value) = line.split_once(": ")?;
                own.eq_ignore_ascii_case(name).then(|| value.to_owned())
            })
        };
        let basic = format!("Basic {}", STANDARD.encode("client:s%3Acret"));
        match path {
            "/.well-known/openid-configuration" => {
                let at = |path: &str| format!("{}/{path}", self.issuer);
                Some(json!({
                    "issuer": self.issuer, "authorization_endpoint": at("authorize"), "token_endpoint": at("token"),
                    "userinfo_endpoint": at("userinfo"), "introspection_endpoint": at("introspect"),
                    "end_session_endpoint": at("end"), "jwks_uri": at("jwks"),
                }))
            }
            "/jwks" => {
                let keys = self.published.iter().map(|n| {
                    let PublicKeyComponents { n: modulus, e } =
                        PublicKeyComponents::<Vec<u8>>::from(key(*n).public());
                    json!({"kty": "RSA", "use": "sig", "alg": "RS256", "kid": n.to_string(),
                        "n": URL_SAFE_NO_PAD.encode(modulus), "e": URL_SAFE_NO_PAD.encode(e)})
                });
                Some(json!({"keys": keys.collect::<Vec<_>>()}))
            }
            "/token" => {
                assert_eq!(header("authorization"), Some(basic));
                let field = |name: &str| {
                    form.split('&')
                        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                        .unwrap_or_default()
                };
                let renews = field("grant_type") == "refresh_token" && field("refresh_token") == "refresh-1";
                let verifier = URL_SAFE_NO_PAD.encode(Sha256::digest(field("code_verifier")));
                if !renews && (field("code") != "good" || verifier != self.challenge) {
                    return None;
                }
                let mut tokens = json!({"access_token": if renews { "access-2" } else { "access-1" },
                    "token_type": "Bearer", "expires_in": self.lasts, "refresh_token": "refresh-1", "scope": "openid mail"});
                if !renews {
                    let claims = json!({"iss": self.issuer, "aud": ["client"], "sub": "ann", "exp": now() + 600, "nonce": self.nonce});
                    tokens["id_token"] = json!(sign(0, &claims));
                }
                self.lasts = 3600;
                Some(tokens)
            }
            "/userinfo" => {
                assert!(header("authorization").unwrap().starts_with("Bearer access-"));
                Some(json!({"sub": "ann", "name": "Ann", "groups": ["staff"]}))
            }
            "/introspect" => {
                assert_eq!(header("authorization"), Some(basic));
                assert!(form.starts_with("token="), "{form}");
                Some(self.introspected.clone())
            }
            _ => None,
        }
    }
}

fn location(answer: &Answer) -> (String, Vec<(String, String)>) {
    let text = answer.header("location").unwrap_or_else(|| panic!("{answer:?}"));
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let decoded = |text: &str| text.replace("%3A", ":").replace("%2F", "/").replace("%20", " ");
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    (path.to_owned(), pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect())
}

fn field(pairs: &[(String, String)], name: &str) -> String {
    pairs.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone()).unwrap_or_default()
}

/// The cookies of a response as a browser would send them.
fn cookies(answer: &Answer) -> String {
    let lines = answer.all("set-cookie").into_iter().filter(|line| !line.contains("Max-Age=0"));
    lines.map(|line| line.split(';').next().unwrap()).collect::<Vec<_>>().join("; ")
}

fn decoded(answer: &Answer, header: &str) -> Value {
    serde_json::from_slice(&STANDARD.decode(answer.seen(header).unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn a_browser_logs_in_is_known_and_logs_out() {
    let (app, provider) = (HttpApp::start("a"), Provider::start());
    let config = provider.config(json!({"use_pkce": true, "redirect_uri": "/back", "scope": "openid mail",
        "required_scopes": ["mail"], "set_raw_id_token_header": true, "post_logout_redirect_uri": "/bye",
        "authorization_params": {"prompt": "login"}}));
    let alone =
        Alone::start(json!({"routes": [route(app.address(), json!({"openid-connect": config}))]})).await;
    // Two slashes at the front would lead to another host in the end.
    let away = alone.get_with("//a?x=1", "X-Userinfo: forged");
    let (to, asked) = location(&away);
    assert_eq!((away.status, to), (302, format!("{}/authorize", provider.told().issuer)));
    assert_eq!(field(&asked, "redirect_uri"), "http://a.test/back");
    assert_eq!((field(&asked, "scope"), field(&asked, "prompt")), ("openid mail".into(), "login".into()));
    let pending = away.header("set-cookie").unwrap().to_owned();
    assert!(pending.contains("; Path=/back; HttpOnly; SameSite=Lax"), "{pending}");
    (provider.told().nonce, provider.told().challenge) = Default::default();
    provider.told().nonce = field(&asked, "nonce");
    provider.told().challenge = field(&asked, "code_challenge");
    let (state, cookie) = (field(&asked, "state"), format!("Cookie: {}", cookies(&away)));
    assert_eq!(alone.get_with("/back?state=other&code=good", &cookie).status, 400);
    assert_eq!(alone.get(&format!("/back?state={state}&code=good")).status, 400, "another browser");
    assert_eq!(alone.get_with(&format!("/back?state={state}&error=access_denied"), &cookie).status, 401);
    assert_eq!(alone.get_with(&format!("/back?state={state}&code=bad"), &cookie).status, 401);
    let nonce = std::mem::replace(&mut provider.told().nonce, "other".into());
    assert_eq!(
        alone.get_with(&format!("/back?state={state}&code=good"), &cookie).status,
        401,
        "a replayed token"
    );
    provider.told().nonce = nonce;
    let back = alone.get_with(&format!("/back?state={state}&code=good"), &cookie);
    assert_eq!((back.status, location(&back).0.as_str()), (302, "/a"), "{back:?}");
    assert_eq!(app.requests(), 0);

    let known = format!("Cookie: a=1; {}", cookies(&back));
    let answer = alone.get_with("/a", &known);
    assert_eq!((answer.status, answer.seen("cookie").as_deref()), (200, Some("a=1")));
    assert_eq!(answer.seen_all("x-access-token"), ["access-1"]);
    assert_eq!(decoded(&answer, "x-userinfo")["name"], "Ann");
    assert_eq!(decoded(&answer, "x-id-token")["sub"], "ann");
    assert_eq!(answer.seen("x-raw-id-token").unwrap().split('.').count(), 3);
    assert_eq!(answer.seen("x-refresh-token"), None);
    let changed = known.replacen("session=", "session=A", 1);
    assert_eq!(alone.get_with("/a", &changed).status, 302);

    let out = alone.get_with("/logout", &known);
    let (to, told) = location(&out);
    assert_eq!((out.status, to), (302, format!("{}/end", provider.told().issuer)));
    assert_eq!(field(&told, "post_logout_redirect_uri"), "http://a.test/bye");
    assert!(out.all("set-cookie").iter().any(|line| line.starts_with("session=; Max-Age=0")));
}

#[tokio::test]
async fn an_access_token_that_is_over_is_renewed_and_strangers_are_denied_where_that_is_wanted() {
    let (app, provider) = (HttpApp::start("a"), Provider::start());
    let with = |more: Value| json!({"openid-connect": provider.config(more)});
    let (deny, pass) = (with(json!({"unauth_action": "deny"})), with(json!({"unauth_action": "pass"})));
    let auth = with(
        json!({"redirect_uri": "/back", "set_userinfo_header": false, "token_endpoint_auth_method": "client_secret_basic"}),
    );
    let alone = Alone::start(json!({"routes": [
        {"id": "1", "uri": "/deny", "plugins": deny, "upstream": upstream(&[app.address()])},
        {"id": "2", "uri": "/pass", "plugins": pass, "upstream": upstream(&[app.address()])},
        {"id": "3", "uris": ["/auth", "/back"], "plugins": auth, "upstream": upstream(&[app.address()])},
    ]}))
    .await;
    let denied = alone.get("/deny");
    assert_eq!((denied.status, denied.header("www-authenticate")), (401, Some("Bearer realm=\"apisix\"")));
    let passed = alone.get_with("/pass", "X-Access-Token: forged");
    assert_eq!((passed.status, passed.seen("x-access-token")), (200, None));
    let away = alone.get("/auth");
    let (_, asked) = location(&away);
    // Without PKCE there is no verifier, and so this is its hash.
    let nothing = URL_SAFE_NO_PAD.encode(Sha256::digest(""));
    {
        let mut told = provider.told();
        (told.nonce, told.challenge, told.lasts) = (field(&asked, "nonce"), nothing, 0);
    }
    let path = format!("/back?state={}&code=good", field(&asked, "state"));
    let back = alone.get_with(&path, &format!("Cookie: {}", cookies(&away)));
    let answer = alone.get_with("/auth", &format!("Cookie: {}", cookies(&back)));
    assert_eq!((answer.status, answer.seen("x-access-token").as_deref()), (200, Some("access-2")));
    let answer = alone.get_with("/auth", &format!("Cookie: {}", cookies(&answer)));
    assert_eq!((answer.status, answer.seen("x-access-token").as_deref()), (200, Some("access-2")));
    assert_eq!(provider.told().asked.iter().filter(|path| *path == "/token").count(), 2);
}

#[tokio::test]
async fn bearer_tokens_are_verified_with_keys_that_rotate_and_labels_say_who_may_come() {
    let (app, provider) = (HttpApp::start("a"), Provider::start());
    let config = provider.config(json!({"bearer_only": true, "use_jwks": true, "required_scopes": ["read"],
        "claim_validator": {"audience": {"match_with_client_id": true}}}));
    let acl = json!({"allow_labels": {"groups": ["staff"]}, "deny_labels": {"groups": ["banned"]}});
    let plugins = json!({"openid-connect": config, "acl": acl});
    let alone = Alone::start(json!({"routes": [route(app.address(), plugins)]})).await;
    let with = |token: &str| alone.get_with("/", &format!("Authorization: Bearer {token}"));
    let claims = |more: Value| {
        let mut all = json!({"scope": "read write", "groups": ["staff"]});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        provider.claims(all)
    };
    assert_eq!(alone.get("/").status, 401);
    let good = with(&sign(0, &claims(json!({}))));
    assert_eq!((good.status, decoded(&good, "x-userinfo")["sub"].as_str()), (200, Some("ann")));
    for (more, status) in [
        (json!({"exp": now() - 1}), 401),
        (json!({"nbf": now() + 600}), 401),
        (json!({"iss": "http://other"}), 401),
        (json!({"aud": "other"}), 401),
        (json!({"scope": "write"}), 403),
        (json!({"groups": ["guests"]}), 403),
        (json!({"groups": ["staff", "banned"]}), 403),
    ] {
        assert_eq!(with(&sign(0, &claims(more.clone()))).status, status, "{more}");
    }
    let text = sign(0, &claims(json!({})));
    let (signed, _) = text.rsplit_once('.').unwrap();
    let body = signed.split_once('.').unwrap().1;
    let none = format!("{}.{body}.", URL_SAFE_NO_PAD.encode("{\"alg\":\"none\"}"));
    let symmetric = format!("{}.{body}.AAAA", URL_SAFE_NO_PAD.encode("{\"alg\":\"HS256\"}"));
    for bad in [none.as_str(), &symmetric, "x", "a.b.c", &text.replacen('.', "A.", 1)] {
        let refused = with(bad);
        assert_eq!(refused.status, 401, "{bad}");
        assert!(refused.header("www-authenticate").unwrap().contains("error=\"invalid_token\""));
    }
    // The provider signs with another key from now on.
    provider.told().published = vec![1];
    assert_eq!(with(&sign(1, &claims(json!({})))).status, 200);
    assert_eq!(with(&sign(0, &claims(json!({})))).status, 401);
    let asked = |provider: &Provider| provider.told().asked.iter().filter(|path| *path == "/jwks").count();
    (0..20).for_each(|_| assert_eq!(with(&sign(0, &claims(json!({})))).status, 401));
    assert!(asked(&provider) <= 6, "forged tokens do not make the gateway a burden: {}", asked(&provider));
}

#[tokio::test]
async fn bearer_tokens_are_introspected_and_remembered_as_long_as_wanted() {
    let (app, provider) = (HttpApp::start("a"), Provider::start());
    let config = provider.config(json!({"bearer_only": true, "introspection_interval": 3600, "access_token_in_authorization_header": true}));
    let alone =
        Alone::start(json!({"routes": [route(app.address(), json!({"openid-connect": config}))]})).await;
    let with = |token: &str| alone.get_with("/", &format!("Authorization: Bearer {token}"));
    provider.told().introspected = json!({"active": false});
    assert_eq!(with("one").status, 401);
    provider.told().introspected = json!({"active": true, "sub": "ann", "exp": now() + 600});
    for _ in 0..3 {
        let answer = with("one");
        assert_eq!((answer.status, answer.seen("authorization").as_deref()), (200, Some("Bearer one")));
        assert_eq!(answer.seen("x-access-token"), None);
    }
    let asked = provider.told().asked.iter().filter(|path| *path == "/introspect").count();
    assert_eq!(asked, 2);
    let _: Client = alone.client();
}

#[tokio::test]
async fn users_do_not_get_each_others_responses_from_the_cache() {
    let (app, provider) = (HttpApp::start("a"), Provider::start());
    let config = provider.config(json!({"bearer_only": true, "use_jwks": true}));
    let plugins = json!({"openid-connect": config, "proxy-cache": {"cache_strategy": "memory"}});
    let alone = Alone::start(json!({"routes": [route(app.address(), plugins)]})).await;
    for user in ["ann", "bob", "ann"] {
        let token = sign(0, &provider.claims(json!({"sub": user})));
        let answer = alone.get_with("/", &format!("X-Access-Token: {token}"));
        assert_eq!((answer.status, answer.header("apisix-cache-status")), (200, Some("MISS")));
        assert_eq!(decoded(&answer, "x-userinfo")["sub"], user);
    }
}

#[tokio::test]
async fn a_provider_that_fails_is_left_alone_for_a_while() {
    let (app, provider) = (HttpApp::start("a"), Provider::start());
    let config = provider.config(json!({"bearer_only": true, "use_jwks": true}));
    let alone =
        Alone::start(json!({"routes": [route(app.address(), json!({"openid-connect": config}))]})).await;
    provider.told().broken = true;
    let token = sign(0, &provider.claims(json!({})));
    for _ in 0..5 {
        assert_eq!(alone.get_with("/", &format!("Authorization: Bearer {token}")).status, 503);
    }
    assert_eq!(provider.told().asked.len(), 1);
}

#[tokio::test]
async fn labels_of_consumers_say_who_may_come() {
    let app = HttpApp::start("a");
    let acl =
        json!({"allow_labels": {"team": ["platform", "ops"]}, "rejected_code": 402, "rejected_msg": "no"});
    let consumer = |name: &str, team: &str| json!({"username": name, "labels": {"team": team}, "plugins": {"key-auth": {"key": name}}});
    let alone = Alone::start(json!({
        "consumers": [consumer("ann", "platform"), consumer("bob", "sales"), consumer("cat", "sales,ops")],
        "routes": [
            {"id": "1", "uri": "/*", "plugins": {"key-auth": {}, "acl": acl}, "upstream": upstream(&[app.address()])},
            {"id": "2", "uri": "/open", "plugins": {"acl": acl}, "upstream": upstream(&[app.address()])},
        ],
    }))
    .await;
    let status = |name: &str| alone.get_with("/", &format!("apikey: {name}")).status;
    assert_eq!(["ann", "bob", "cat"].map(status), [200, 402, 200]);
    assert_eq!(alone.get_with("/", "apikey: bob").json(), json!({"message": "no"}));
    assert_eq!(alone.get("/open").status, 401);
}
