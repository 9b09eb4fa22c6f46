use super::*;
use crate::Body;

fn nothing(_: &str) -> Option<String> {
    None
}

fn faults(text: &str, format: Format) -> Vec<String> {
    read_file(text, format, &nothing).unwrap_err().iter().map(FileFault::to_string).collect()
}

const GOOD: &str = "\
routes:
  - uri: /a
    upstream_id: 1
  - id: two
    uris: [/b, /c/*]
    upstream:
      nodes:
        \"127.0.0.1:1980\": 1
      type: roundrobin
    plugins:
      limit-count: {count: 2, time_window: 60, rejected_code: 503}
upstreams:
  - id: 1
    nodes:
      - {host: a.test, port: 80, weight: 1}
consumers:
  - username: jack
    plugins:
      key-auth: {key: one}
  - id: jack/credentials/second
    plugins:
      key-auth: {key: two}
plugin_metadata:
  - id: limit-count
    limit_header: X-Limit
plugins:
  - name: limit-count
  - name: key-auth
  - name: kafka-logger
#END
";

#[test]
fn a_file_becomes_documents() {
    let documents = read_file(GOOD, Format::Yaml, &nothing).unwrap();
    let keys: Vec<_> = documents.iter().map(|document| document.key.to_string()).collect();
    assert_eq!(
        keys,
        [
            "routes/arr_1",
            "routes/two",
            "upstreams/1",
            "consumers/jack",
            "consumers/jack/credentials/second",
            "plugin_metadata/limit-count"
        ]
    );
}

#[test]
fn json_and_toml_say_the_same() {
    let json = r#"{"routes": [{"id": "r", "uri": "/a", "upstream": {"nodes": {"a.test:80": 1}}}]}"#;
    let toml = "[[routes]]\nid = \"r\"\nuri = \"/a\"\n[routes.upstream.nodes]\n\"a.test:80\" = 1\n";
    let yaml = "routes: [{id: r, uri: /a, upstream: {nodes: {\"a.test:80\": 1}}}]\n#END";
    let of = |text: &str, format| read_file(text, format, &nothing).unwrap();
    assert_eq!(of(json, Format::of("a.json")), of(toml, Format::of("a.toml")));
    assert_eq!(of(json, Format::Json), of(yaml, Format::of("apisix.yaml")));
}

#[test]
fn every_fault_has_its_line() {
    let text = "\
routes:
  - uri: /a
    upstream_id: 7
  - id: two
    uri: /b
    metods: [GET]
    upstream:
      nodes:
        - host: a.test
          weight: -1
  - id: two
    uri: /c
    plugins:
      limit-count:
        count: 1
rutes: []
#END
";
    assert_eq!(
        faults(text, Format::Yaml),
        [
            "line 3: routes/arr_1: upstream_id: there is no upstream \"7\"",
            "line 6: routes/two: metods: there is no field \"metods\": did you mean \"methods\"?",
            "line 10: routes/two: upstream.nodes[0].weight: must be at least 0, not -1",
            "line 11: routes/two: id: the id \"two\" stands here and in line 4",
            "line 14: routes/two: plugins.limit-count.time_window: is missing",
            "line 16: there is no kind of resource \"rutes\": did you mean \"routes\"?",
        ]
    );
    assert_eq!(
        faults("[[routes]]\nuri = 1\nupstream_id = 1\n[[upstreams]]\nid = 1\nnodes = {}\n", Format::Toml),
        ["line 2: routes/arr_1: uri: must be text, not 1"]
    );
    assert_eq!(
        faults("{\"routes\": [\n{\"uri\": \"/a\",\n\"upstream_id\": 1}]}", Format::Json),
        ["line 3: routes/arr_1: upstream_id: there is no upstream \"1\""]
    );
}

#[test]
fn a_file_that_is_not_whole_is_not_taken() {
    assert_eq!(
        faults("routes: []\n", Format::Yaml),
        ["line 1: the last line has to be #END: without it the file may not be whole"]
    );
    assert!(faults("routes: [\n#END", Format::Yaml)[0].contains("this is no YAML"));
    assert!(faults("{", Format::Json)[0].starts_with("line 1: this is no JSON"));
    assert!(faults("a = ", Format::Toml)[0].starts_with("line 1: this is no TOML"));
    assert!(read_file("#END", Format::Yaml, &nothing).unwrap().is_empty());
}

#[test]
fn a_plugin_that_the_file_does_not_switch_on_is_refused() {
    let text = GOOD.replace("  - name: limit-count\n", "");
    assert_eq!(
        faults(&text, Format::Yaml),
        ["line 11: routes/two: plugins.limit-count: is not among the plugins that the file switches on"]
    );
}

#[test]
fn variables_are_filled_in() {
    let text = "upstreams:\n  # ${{LATER}}\n  - id: u\n    retries: ${{RETRIES:=3}}\n    nodes: {\"${{HOST}}:80\": 1}\n#END\n";
    let host = |name: &str| (name == "HOST").then(|| "a.test".to_owned());
    let documents = read_file(text, Format::Yaml, &host).unwrap();
    let Body::Upstream(upstream) = &documents[0].body else { panic!() };
    assert_eq!((upstream.retries, upstream.node_list()[0].host.as_str()), (Some(3), "a.test"));
    assert_eq!(
        faults(text, Format::Yaml),
        ["line 5: the environment has no variable HOST, and no default is given"]
    );
}

#[test]
fn nested_aliases_cannot_fill_the_memory() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![alias; 10].join(", ")));
    }
    assert!(faults(&format!("{text}#END"), Format::Yaml)[0].contains("aliases bring more than"));
}
