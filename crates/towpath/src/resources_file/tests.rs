use super::*;

fn parsed(text: &str) -> Result<Vec<Document>, Vec<String>> {
    parse("apisix.yaml", text, Path::new("apisix.yaml"))
}

const GOOD: &str = "routes:\n  - id: 1\n    uri: /*\n    upstream_id: 1\n    plugins:\n      limit-count:\n        count: 2\n        \
                    time_window: 60\n  - uri: /x\n    upstream:\n      type: roundrobin\n      nodes:\n        \"127.0.0.1:80\": 1\n\
                    upstreams:\n  - id: 1\n    nodes:\n      - host: 127.0.0.1\n        port: 80\n        weight: 1\n\
                    consumers:\n  - username: jack\n    plugins:\n      key-auth:\n        key: k\n#END\n";

#[test]
fn a_file_is_its_documents() {
    let mut keys: Vec<_> = parsed(GOOD).unwrap().iter().map(|document| document.key.to_string()).collect();
    keys.sort();
    assert_eq!(keys, ["consumers/jack", "routes/1", "routes/arr_2", "upstreams/1"]);
    assert!(is_complete(GOOD) && !is_complete("routes:\n  - id: 1\n"));
}

#[test]
fn every_fault_has_its_line() {
    let bad =
        GOOD.replace("count: 2", "count: zero$").replace("port: 80", "prot: 80").replace("key: k", "kei: k");
    let faults = parsed(&bad).unwrap_err();
    let at = |line: usize, words: &str| {
        let place = format!("apisix.yaml:{line}: ");
        assert!(faults.iter().any(|fault| fault.starts_with(&place) && fault.contains(words)), "{faults:#?}");
    };
    at(18, "upstreams[0] (id 1): nodes");
    at(24, "consumers[0] (id jack): plugins.key-auth");
    let missing = parsed(&GOOD.replace("upstream_id: 1", "upstream_id: 9")).unwrap_err();
    assert!(missing[0].starts_with("apisix.yaml:4: routes[0] (id 1): upstream_id:"), "{missing:?}");
    let twice = parsed("routes:\n- {id: a, uri: /a}\n- {id: a, uri: /b}\n").unwrap_err();
    assert!(
        twice.iter().any(|fault| fault.starts_with("apisix.yaml:3: routes[1]: id: the same id")),
        "{twice:?}"
    );
    let kind = parsed("rotues: []\n").unwrap_err();
    assert!(kind[0].starts_with("apisix.yaml:1: ") && kind[0].contains("routes"), "{kind:?}");
}

#[test]
fn a_file_is_loaded_again_when_its_content_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("apisix.yaml");
    let file = ResourcesFile::new(path.clone());
    assert_eq!(file.load(None), Loaded::Same, "a file that is not there changes nothing");
    std::fs::write(&path, "routes:\n  - id: 1\n").unwrap();
    assert_eq!(file.load(None), Loaded::Same, "it is still being written");
    std::fs::write(&path, GOOD).unwrap();
    let Loaded::Documents { mark, documents } = file.load(None) else { panic!() };
    assert_eq!(documents.len(), 4);
    assert_eq!(file.load(Some(mark)), Loaded::Same);
    std::fs::write(&path, GOOD.replace("time_window: 60", "time_window: -1")).unwrap();
    let Loaded::Refused { mark: other, faults } = file.load(Some(mark)) else { panic!() };
    assert!(faults[0].starts_with(&format!("{}:8: ", path.display())), "{faults:?}");
    assert_eq!(file.load(Some(other)), Loaded::Same, "a fault is said once");
}
