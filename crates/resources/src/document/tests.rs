use super::*;
use std::collections::BTreeSet;

fn faults(kind: Kind, value: Value) -> Vec<String> {
    let id = match kind {
        Kind::Consumer => "jack",
        Kind::Credential => "jack/credentials/c",
        Kind::Secret => "vault/s",
        Kind::PluginMetadata => "limit-count",
        _ => "1",
    };
    match read(kind, &Id::new(kind, id).unwrap(), &value) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(Fault::to_string).collect(),
    }
}

#[test]
fn good_documents_of_every_kind_are_taken() {
    let (cert, pem_key) = crate::certificate::tests::pair("a.test");
    for (kind, value) in [
        (
            Kind::Route,
            json!({"id": 1, "uri": "/a/*", "methods": ["GET"], "upstream": {"type": "roundrobin", "nodes": {"127.0.0.1:80": 1}}}),
        ),
        (
            Kind::Route,
            json!({"uris": ["/a", "/u/:name/x"], "hosts": ["*.a.test"], "remote_addrs": ["::1", "10.0.0.0/8"], "upstream_id": 3,
            "vars": [["arg_name", "==", "json"]], "timeout": {"connect": 1, "send": 0.5, "read": 3}, "status": 1, "labels": {"a": "b"}}),
        ),
        (Kind::Service, json!({"name": "s", "upstream_id": "u", "enable_websocket": true})),
        (
            Kind::Upstream,
            json!({"nodes": [{"host": "[::1]", "port": 80, "weight": 0, "priority": -1, "metadata": {"zone": "a"}}],
            "type": "chash", "hash_on": "header", "key": "x-user", "retries": 0, "keepalive_pool": {},
            "checks": {"active": {"type": "http", "http_path": "/s", "healthy": {}}, "passive": {}}}),
        ),
        (
            Kind::Upstream,
            json!({"service_name": "shop.svc", "discovery_type": "dns", "pass_host": "rewrite", "upstream_host": "a.test"}),
        ),
        (Kind::Upstream, json!({"app": "acme/prod/shop"})),
        (Kind::Consumer, json!({"username": "jack", "plugins": {"key-auth": {"key": "k"}}})),
        (Kind::ConsumerGroup, json!({"plugins": {}})),
        (Kind::Credential, json!({"plugins": {"key-auth": {"key": "k"}}})),
        (
            Kind::PluginConfig,
            json!({"plugins": {"request-id": {"_meta": {"disable": true, "priority": 5, "error_response": {"a": 1}}}}}),
        ),
        (
            Kind::GlobalRule,
            json!({"plugins": {"limit-count": {"count": 2, "time_window": 60, "rejected_code": 503}}}),
        ),
        (Kind::Ssl, json!({"type": "client", "cert": cert, "key": pem_key})),
        (
            Kind::Ssl,
            json!({"cert": cert, "key": pem_key, "snis": ["a.test", "*.a.test", "*"], "client": {"ca": cert, "depth": 0},
                "certs": [cert], "keys": [pem_key], "ssl_protocols": ["TLSv1.2", "TLSv1.3"], "status": 0,
                "ocsp_response": "MAMKAQA=", "ocsp_responses": [""]}),
        ),
        (Kind::PluginMetadata, json!({"limit_header": "X-Limit"})),
    ] {
        assert_eq!(faults(kind, value.clone()), Vec::<String>::new(), "{kind} {value}");
    }
}

#[test]
fn faults_name_the_field_and_what_would_be_right() {
    let upstream = json!({"nodes": {"127.0.0.1:80": 1}});
    for (kind, value, expected) in [
        (
            Kind::Route,
            json!({"urii": "/a", "uri": "/a", "upstream": upstream}),
            "urii: there is no field \"urii\": did you mean \"uri\"?",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "methods": ["GTE"]}),
            "methods[0]: must be one of \"GET\", \"POST\", \"PUT\", \"DELETE\", \"PATCH\", \"HEAD\", \"OPTIONS\", \"CONNECT\", \"TRACE\", \"PURGE\", not \"GTE\": did you mean \"GET\"?",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "priority": "high"}),
            "priority: must be an integer, not \"high\"",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "vars": [["arg_a", "=~", "x"]], "plugins": {}}),
            "vars[0][1]: operator \"=~\" is not known; one of ==, ~=, >, >=, <, <=, ~~, ~*, in, has, ipmatch",
        ),
        (
            Kind::Route,
            json!({"uri": "/a"}),
            "does nothing: give upstream, upstream_id, service_id or plugins",
        ),
        (Kind::Route, json!({"upstream": upstream}), "uri: is missing: give uri or uris"),
        (
            Kind::Route,
            json!({"uri": "/a*b", "upstream": upstream}),
            "uri: \"/a*b\" has a * before its end: only the end of a path can be open",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": {"nodes": [{"host": "a.test", "weight": -1}]}}),
            "upstream.nodes[0].weight: must be at least 0, not -1",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": {"nodes": {"a.test:0": 1}}}),
            "upstream.nodes.a.test:0: is no address: give host:port, an IPv6 address in brackets",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "remote_addr": "10.0.0.0/33"}),
            "remote_addr: \"10.0.0.0/33\" is no address: give an IPv4 or IPv6 address, with /length for a network",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "status": 2}),
            "status: must be one of 1, 0, not 2",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "id": "7"}),
            "id: is \"7\", but the route is stored as \"1\"",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "timeout": {"connect": 0, "send": 1, "read": 1}}),
            "timeout.connect: must be greater than 0, not 0",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "timeout": {"connect": 1, "send": 1}}),
            "timeout.read: is missing",
        ),
    ] {
        assert_fault(kind, &value, expected);
    }
}

#[test]
fn what_is_not_run_is_refused_by_name() {
    let upstream = json!({"nodes": {"127.0.0.1:80": 1}});
    for (kind, value, expected) in [
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "filter_func": "function(vars) return true end"}),
            "filter_func: is Lua, which is not run here: use vars for conditions, e.g. [[\"arg_name\", \"==\", \"json\"]]",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "plugins": {"serverless-pre-function": {}}}),
            "plugins.serverless-pre-function: plugin serverless-pre-function is not supported: it is Lua, which is not run here; use proxy-rewrite, response-rewrite, redirect or fault-injection with _meta.filter",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "plugins": {"limit-cuont": {}}}),
            "plugins.limit-cuont: there is no plugin \"limit-cuont\": did you mean \"limit-count\"?",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "plugins": {"limit-count": {"count": 0, "time_window": 1}}}),
            "plugins.limit-count.count: must be greater than 0, not 0",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "plugins": {"limit-count": {"count": 1}}}),
            "plugins.limit-count.time_window: is missing",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "plugins": {"request-id": {"header": "x"}}}),
            "plugins.request-id.header: there is no field \"header\"",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "plugins": {"request-id": {"_meta": {"disabled": true}}}}),
            "plugins.request-id._meta.disabled: there is no field \"disabled\": did you mean \"disable\"?",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "upstream": upstream, "plugins": []}),
            "plugins: must be an object, not a list",
        ),
    ] {
        assert_fault(kind, &value, expected);
    }
}

#[test]
fn places_that_the_table_refuses_are_refused() {
    let upstream = json!({"nodes": {"127.0.0.1:80": 1}});
    for (kind, value, expected) in [
        (
            Kind::Route,
            json!({"uris": ["/a", "/a?x"], "upstream": upstream}),
            "uris[1]: \"/a?x\" has '?' in it, which no path has; conditions on the query go into vars",
        ),
        (
            Kind::Route,
            json!({"uri": "/a//b", "upstream": upstream}),
            "uri: \"/a//b\" matches nothing, since //, /./ and /../ are resolved first; write it without",
        ),
        (
            Kind::Route,
            json!({"uri": "/a", "host": "*foo.com", "upstream": upstream}),
            "host: host \"*foo.com\" is not a host name; write for example shop.example.com or *.example.com",
        ),
        (
            Kind::Service,
            json!({"hosts": ["a.test", "*"]}),
            "hosts[1]: host \"*\" is not a host name; write for example shop.example.com or *.example.com",
        ),
    ] {
        assert_fault(kind, &value, expected);
    }
}

#[test]
fn kinds_that_are_not_served_are_refused() {
    for (kind, value) in [
        (Kind::Secret, json!({"uri": "https://vault.test", "prefix": "kv", "token": "t"})),
        (Kind::Proto, json!({"content": "syntax = \"proto3\";"})),
    ] {
        let found = faults(kind, value);
        assert!(matches!(&found[..], [one] if one.contains("not served by this gateway yet")), "{found:?}");
    }
}

#[test]
fn certificates_are_judged_by_what_clients_would_meet() {
    let (cert, key) = crate::certificate::tests::pair("a.test");
    for (more, expected) in [
        (
            json!({"sni": "10.0.0.1:443"}),
            "sni: must be a name, *. and a name, or *, not \"10.0.0.1:443\": clients name no addresses and no ports",
        ),
        (
            json!({"snis": ["a.test", "*a.test"]}),
            "snis[1]: must be a name, *. and a name, or *, not \"*a.test\": clients name no addresses and no ports",
        ),
        (
            json!({"sni": "a.test", "ssl_protocols": []}),
            "ssl_protocols: must name a version: leave it out for all",
        ),
        (
            json!({"sni": "a.test", "ocsp_response": "MAMKAQY="}),
            "ocsp_response: is an OCSP response without a certificate's status: the responder's answer was 6",
        ),
        (json!({"sni": "a.test", "ocsp_response": "AAAAAAAA"}), "ocsp_response: is no OCSP response"),
        (json!({"sni": "a.test", "ocsp_response": "no base64!"}), "ocsp_response: must be DER in base64"),
        (
            json!({"sni": "a.test", "ocsp_responses": ["MAMKAQA="]}),
            "ocsp_responses: must not be more than certs: there are 0 certs",
        ),
        (
            json!({"type": "client", "client": {"ca": cert}}),
            "client: says nothing for a certificate of type \"client\"",
        ),
    ] {
        let mut value = json!({"cert": cert, "key": key});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_fault(Kind::Ssl, &value, expected);
    }
    let old = json!({"sni": "a.test", "cert": cert, "key": key, "ssl_protocols": ["TLSv1.1"]});
    assert!(faults(Kind::Ssl, old)[0].starts_with("ssl_protocols[0]: must be one of"));
}

#[test]
fn what_would_do_nothing_is_refused_and_defaults_are_taken() {
    let node = json!({"127.0.0.1:80": 1});
    for (spec, fields) in [
        (
            json!({"app": "shop", "type": "chash", "hash_on": "header", "key": "x-a", "retries": 1, "slow_start": 3,
                "timeout": {"connect": 1, "send": 1, "read": 1}, "checks": {"active": {}}, "locality": "none", "scheme": "grpc"}),
            &["type", "hash_on", "key", "retries", "timeout", "checks", "slow_start", "locality", "scheme"][..],
        ),
        (
            json!({"app": "shop", "type": "roundrobin", "hash_on": "vars", "scheme": "http", "locality": "zone"}),
            &[],
        ),
        (json!({"service_name": "_http._tcp.a.test", "discovery_type": "dns"}), &[]),
        (json!({"nodes": node, "scheme": "grpc", "keepalive_pool": {"size": 3}}), &["keepalive_pool"]),
        (
            json!({"nodes": node, "scheme": "grpcs", "keepalive_pool": {"size": 320, "idle_timeout": 60, "requests": 1000}}),
            &[],
        ),
        (
            json!({"nodes": node, "checks": {"active": {"concurrency": 3}, "passive": {"type": "tcp", "healthy": {"successes": 1}}}}),
            &["checks.active.concurrency", "checks.passive.type"],
        ),
        (
            json!({"nodes": node, "checks": {"active": {"concurrency": 10}, "passive": {"type": "http", "healthy": {"successes": 5}}}}),
            &[],
        ),
    ] {
        let found = faults(Kind::Upstream, spec.clone());
        let named: BTreeSet<&str> = found.iter().filter_map(|fault| fault.split(':').next()).collect();
        assert_eq!(named, fields.iter().copied().collect(), "{spec} {found:?}");
    }
}

#[test]
fn settings_of_plugins_that_would_do_nothing_are_refused_by_name() {
    let headers = |verb: &str, name: &str| {
        let value = if verb == "remove" { json!([name]) } else { json!({name: "x"}) };
        json!({"headers": {verb: value}})
    };
    let ours =
        ["X-Request-Id", "via", "forwarded", "traceparent", "te", "Connection", "upgrade", "content-length"];
    let mut cases: Vec<(&str, Value, String)> = Vec::new();
    for name in ours {
        cases.push(("proxy-rewrite", headers("set", name), format!("headers.set.{name}")));
        cases.push(("proxy-rewrite", headers("add", name), format!("headers.add.{name}")));
        cases.push(("proxy-rewrite", json!({"headers": {name: "x"}}), format!("headers.{name}")));
        let auth = json!({"uri": "http://a.test", "upstream_headers": [name]});
        cases.push(("forward-auth", auth, "upstream_headers[0]".to_owned()));
    }
    for name in ["X-Forwarded-For", "x-request-id", "Via"] {
        cases.push(("proxy-rewrite", headers("remove", name), "headers.remove[0]".to_owned()));
    }
    for (plugin, value, field) in [
        ("proxy-rewrite", json!({"use_real_request_uri_unsafe": true}), "use_real_request_uri_unsafe"),
        ("forward-auth", json!({"uri": "http://a.test", "keepalive": false}), "keepalive"),
        ("forward-auth", json!({"uri": "http://a.test", "keepalive_pool": 9}), "keepalive_pool"),
        ("jwt-auth", json!({"store_in_ctx": true}), "store_in_ctx"),
        ("jwt-auth", json!({"header": "a b"}), "header"),
        ("key-auth", json!({"header": "a:b"}), "header"),
        ("request-id", json!({"header_name": "a b"}), "header_name"),
        ("gzip", json!({"buffers": {"number": 3}}), "buffers"),
        ("response-rewrite", json!({"body": "???", "body_base64": true}), "body"),
        (
            "response-rewrite",
            json!({"filters": [{"regex": "a", "replace": "b", "options": "sm"}]}),
            "filters[0].options",
        ),
        ("uri-blocker", json!({"block_rules": ["("]}), "block_rules[0]"),
        (
            "limit-count",
            json!({"rules": [{"count": 1, "time_window": 1, "key": "$a", "header_prefix": "a b"}]}),
            "rules[0].header_prefix",
        ),
        (
            "api-breaker",
            json!({"break_response_code": 502, "break_response_headers": [{"key": "a b", "value": "c"}]}),
            "break_response_headers[0]",
        ),
        (
            "workflow",
            json!({"rules": [{"actions": [["return", {"code": 403}], ["return", {"code": 404}]]}]}),
            "rules[0].actions[1]",
        ),
        (
            "workflow",
            json!({"rules": [{"actions": [["return", {"code": 403, "body": "x"}]]}]}),
            "rules[0].actions[0][1].body",
        ),
        (
            "workflow",
            json!({"rules": [{"actions": [["limit-count", {"count": 0, "time_window": 1}]]}]}),
            "rules[0].actions[0][1].count",
        ),
        (
            "traffic-split",
            json!({"rules": [{"weighted_upstreams": [{"upstream": {"app": "shop", "lane": "blue"}}]}]}),
            "rules[0].weighted_upstreams[0].upstream.lane",
        ),
    ] {
        cases.push((plugin, value, field.to_owned()));
    }
    for (plugin, value, field) in cases {
        let found = faults(Kind::PluginConfig, json!({"plugins": {plugin: value}}));
        let start = format!("plugins.{plugin}.{field}: ");
        assert!(found.iter().any(|fault| fault.starts_with(&start)), "{start} {value} {found:?}");
    }
    for value in [
        json!({"forward-auth": {"uri": "http://a.test", "keepalive": true, "keepalive_timeout": 60000, "keepalive_pool": 5}}),
        json!({"gzip": {"buffers": {"number": 32, "size": 4096}}, "jwt-auth": {"store_in_ctx": false}}),
        json!({"proxy-rewrite": {"headers": {"set": {"x-real-ip": "$remote_addr", "x-forwarded-host": "a.test"}}}}),
        json!({"workflow": {"rules": [{"actions": [["limit-count", {"count": 1, "time_window": 1}]]}]}}),
    ] {
        assert_eq!(faults(Kind::PluginConfig, json!({"plugins": value})), Vec::<String>::new());
    }
}

#[test]
fn credentials_are_refused_for_what_would_never_authenticate() {
    let of = |plugin: &str, value: Value| faults(Kind::Credential, json!({"plugins": {plugin: value}}));
    let meta = of("key-auth", json!({"key": "k", "_meta": {"disable": true}}));
    assert!(matches!(&meta[..], [one] if one.starts_with("plugins.key-auth._meta: ")), "{meta:?}");
    let key = of("jwt-auth", json!({"key": "k", "algorithm": "RS256", "public_key": "no key"}));
    assert!(matches!(&key[..], [one] if one.starts_with("plugins.jwt-auth.public_key: ")), "{key:?}");
}

#[test]
fn faults_of_other_kinds_name_the_field_too() {
    for (kind, value, expected) in [
        (Kind::Upstream, json!({"nodes": "a"}), "nodes: must be an object or a list, not \"a\""),
        (Kind::Upstream, json!({"nodes": {}, "type": "chash"}), "key: is missing: type is \"chash\""),
        (
            Kind::Upstream,
            json!({"nodes": {}, "pass_host": "rewrite"}),
            "upstream_host: is missing: pass_host is \"rewrite\"",
        ),
        (
            Kind::Upstream,
            json!({"nodes": {}, "discovery_type": "dns", "service_name": "s"}),
            "nodes: only one of nodes, service_name and app can be given",
        ),
        (
            Kind::Upstream,
            json!({"nodes": {}, "scheme": "kafka"}),
            "scheme: must be one of \"http\", \"https\", \"grpc\", \"grpcs\", \"tcp\", \"tls\", \"udp\", not \"kafka\"",
        ),
        (
            Kind::Consumer,
            json!({"username": "jill"}),
            "username: is \"jill\", but the consumer is stored as \"jack\"",
        ),
        (
            Kind::Consumer,
            json!({"username": "jack", "plugins": {"key-auth": {"key": "$secret://vault/1/jack/key"}}}),
            "plugins.key-auth.key: refers to a secret that is kept elsewhere, which is not supported: give the value itself",
        ),
        (
            Kind::Credential,
            json!({"plugins": {"request-id": {}}}),
            "plugins.request-id: does not authenticate: a credential holds one plugin that does",
        ),
        (Kind::PluginMetadata, json!({"limit": "x"}), "limit: there is no field \"limit\""),
        (
            Kind::Ssl,
            json!({"cert": "x", "key": "y", "sni": "a.test"}),
            "cert: must have at least 128 characters, not 1",
        ),
        (Kind::Proto, json!(null), "a proto must be an object"),
    ] {
        assert_fault(kind, &value, expected);
    }
}

fn assert_fault(kind: Kind, value: &Value, expected: &str) {
    let found = faults(kind, value.clone());
    assert!(
        found.iter().any(|fault| fault == expected),
        "{kind} {value}\n expected {expected}\n found    {found:#?}"
    );
}

#[test]
fn all_faults_are_told_at_once() {
    let found = faults(
        Kind::Route,
        json!({"uri": 1, "priority": "x", "script": "return 1", "plugins": {"nope": {}, "limit-count": {"count": 0}}}),
    );
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn every_schema_is_published_without_null_and_with_its_fields() {
    for kind in Kind::ALL {
        let text = schema_of(kind).to_string();
        assert!(!text.contains("\"null\"") && !text.contains("$ref"), "{kind} {text}");
    }
    let route = schema_of(Kind::Route);
    assert_eq!(route["properties"]["status"]["default"], json!(1));
    assert_eq!(route["properties"]["upstream"]["properties"]["scheme"]["default"], json!("http"));
    let active =
        &route["properties"]["upstream"]["properties"]["checks"]["properties"]["active"]["properties"];
    assert_eq!(active["healthy"]["properties"]["successes"]["default"], json!(2));
    assert_eq!(route["additionalProperties"], json!(false));
}

#[test]
fn ids_have_their_form() {
    assert!(Id::new(Kind::Route, "a-Z_0.9").is_ok());
    for bad in ["", "a/b", "ä", &"x".repeat(65)] {
        assert!(Id::new(Kind::Route, bad).is_err(), "{bad}");
    }
    assert!(Id::new(Kind::Credential, "jack").is_err());
    assert!(Id::new(Kind::Secret, "vault/1").is_ok() && Id::new(Kind::Secret, "safe/1").is_err());
}

#[test]
fn no_plugin_writes_what_frames_messages() {
    let plugins = |plugins: Value| faults(Kind::Route, json!({"uri": "/", "plugins": plugins}));
    for name in ["Content-Length", "transfer-encoding", "Connection", "Upgrade", "Trailer", "Keep-Alive"] {
        for headers in [
            json!({name: "5"}),
            json!({"set": {name: "5"}}),
            json!({"add": [format!("{name} : 5")]}),
            json!({"remove": [name]}),
        ] {
            let found = plugins(json!({"response-rewrite": {"headers": headers}}));
            assert!(found.iter().any(|fault| fault.contains("gateway's business")), "{name}: {found:?}");
        }
        for other in [
            json!({"mocking": {"response_headers": {name: "5"}, "response_example": "x"}}),
            json!({"fault-injection": {"abort": {"http_status": 200, "headers": {name: "5"}}}}),
            json!({"proxy-rewrite": {"headers": {"set": {name: "5"}}}}),
        ] {
            assert!(!plugins(other.clone()).is_empty(), "{other}");
        }
    }
    let fine =
        json!({"response-rewrite": {"headers": {"set": {"X-Content-Length": "5"}, "remove": ["Server"]}}});
    assert_eq!(plugins(fine), Vec::<String>::new());
}

#[test]
fn times_of_a_logger_have_an_end() {
    for field in
        ["timeout", "inactive_timeout", "buffer_duration", "retry_delay", "max_retry_count", "batch_max_size"]
    {
        let with = |value: u64| {
            let plugins = json!({"http-logger": {"uri": "http://logs.test/", field: value}});
            faults(Kind::Route, json!({"uri": "/", "plugins": plugins}))
        };
        assert_eq!(with(60), Vec::<String>::new(), "{field}");
        assert_eq!(with(u64::from(u32::MAX)).len(), 1, "{field}");
        assert!(!with(u64::MAX).is_empty(), "{field}");
    }
}

#[test]
fn stream_routes_and_listeners_are_read_and_what_they_cannot_do_is_refused() {
    let node = json!({"127.0.0.1:5432": 1});
    for scheme in ["http", "tcp", "tls", "udp"] {
        let value = json!({"server_port": 9100, "upstream": {"nodes": node, "scheme": scheme}});
        assert_eq!(faults(Kind::StreamRoute, value), [""; 0], "{scheme}");
    }
    let plugins = json!({"ip-restriction": {"blacklist": ["10.0.0.1"]},
        "limit-conn": {"conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "remote_addr", "_meta": {"disable": true}}});
    assert_eq!(faults(Kind::StreamRoute, json!({"plugins": plugins, "upstream": {"nodes": node}})), [""; 0]);
    for protocol in ["http", "tcp", "tls-passthrough", "udp"] {
        assert_eq!(faults(Kind::Listener, json!({"listen": "[::]:53", "protocol": protocol})), [""; 0]);
    }
    let stream = |more: Value| {
        let mut value = json!({"upstream": {"nodes": {"127.0.0.1:5432": 1}}});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        value
    };
    for (kind, value, expected) in [
        (Kind::StreamRoute, json!({}), "upstream: is missing: give upstream, upstream_id or service_id"),
        (
            Kind::StreamRoute,
            stream(json!({"plugins": {"limit-count": {"count": 1, "time_window": 1}}})),
            "plugins.limit-count: works on HTTP requests, not in a stream route: that takes ip-restriction and limit-conn",
        ),
        (
            Kind::StreamRoute,
            stream(
                json!({"plugins": {"ip-restriction": {"blacklist": ["10.0.0.1"], "_meta": {"error_response": "no"}}}}),
            ),
            "plugins.ip-restriction: _meta.filter and _meta.error_response are about HTTP requests, not streams",
        ),
        (
            Kind::StreamRoute,
            stream(json!({"plugins": {"mqtt-proxy": {}}})),
            "plugins.mqtt-proxy: plugin mqtt-proxy is not supported",
        ),
        (
            Kind::StreamRoute,
            json!({"upstream": {"nodes": node, "scheme": "grpc"}}),
            "upstream.scheme: scheme is for routes: in a stream route give tcp, tls or udp",
        ),
        (
            Kind::Route,
            json!({"uri": "/", "upstream": {"nodes": node, "scheme": "tcp"}}),
            "upstream.scheme: scheme is for stream routes: in a route give http, https, grpc or grpcs",
        ),
        (
            Kind::Listener,
            json!({"listen": "127.0.0.1", "protocol": "tcp"}),
            "listen: \"127.0.0.1\" is no address with a port: write for example 0.0.0.0:6379 or [::]:53",
        ),
        (Kind::Listener, json!({"listen": "127.0.0.1:80"}), "protocol: is missing"),
    ] {
        assert_fault(kind, &value, expected);
    }
}
