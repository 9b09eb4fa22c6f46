//! Lists.

use crate::rig::{Rig, commit, key_in, put, write};
use towpath_store::{Expect, Query, Store};
use towpath_types::resource::Key;
use towpath_types::{Kind, OrgName, Revision, SpaceName};

fn org(name: &str) -> Option<OrgName> {
    Some(OrgName::new(name).unwrap())
}

async fn keys(store: &dyn Store, query: Query) -> Vec<Key> {
    let page = store.list(&query).await.unwrap();
    assert!(!page.more, "{query:?}");
    page.records.into_iter().map(|record| record.key).collect()
}

pub(crate) async fn lists_are_ordered_filtered_and_paged(rig: &impl Rig) {
    let store = rig.open().await;
    assert_eq!(store.list(&Query::default()).await.unwrap().revision, Revision(0));
    let mut all = Vec::new();
    for kind in [Kind::Release, Kind::App, Kind::Org, Kind::Lane] {
        for place in [(None, None), (Some("b"), None), (Some("a"), Some("y")), (Some("a"), Some("x"))] {
            for name in ["z", "a-b", "a", "ab", "a:b", "B", "ä", "a%", "a_", "𝄞", "\u{ffff}"] {
                all.push(key_in(kind, place.0, place.1, name));
            }
        }
    }
    let writes = all.iter().map(|key| put(key, Expect::Absent, 1)).collect();
    commit(&*store, writes).await.unwrap();
    all.sort();
    assert_eq!(keys(&*store, Query::default()).await, all);

    type Filter<'a> = (Query, &'a dyn Fn(&Key) -> bool);
    let filters: [Filter<'_>; 9] = [
        (Query { kind: Some(Kind::App), ..Query::default() }, &|key| key.kind == Kind::App),
        (Query { kind: Some(Kind::Token), ..Query::default() }, &|_| false),
        (Query { org: org("a"), ..Query::default() }, &|key| key.org == org("a")),
        (
            Query {
                kind: Some(Kind::Lane),
                org: org("a"),
                space: SpaceName::new("x").ok(),
                ..Query::default()
            },
            &|key| key.kind == Kind::Lane && key.space == SpaceName::new("x").ok(),
        ),
        (Query { name_prefix: Some("a".into()), ..Query::default() }, &|key| key.name.starts_with('a')),
        (Query { name_prefix: Some("a%".into()), ..Query::default() }, &|key| key.name.starts_with("a%")),
        (Query { name_prefix: Some("a_".into()), ..Query::default() }, &|key| key.name.starts_with("a_")),
        (Query { name_prefix: Some("".into()), ..Query::default() }, &|_| true),
        (Query { kind: Some(Kind::App), name_prefix: Some("\u{ffff}".into()), ..Query::default() }, &|key| {
            key.kind == Kind::App && key.name == "\u{ffff}"
        }),
    ];
    for (query, fits) in filters {
        let expected: Vec<Key> = all.iter().filter(|key| fits(key)).cloned().collect();
        assert_eq!(keys(&*store, query.clone()).await, expected, "{query:?}");
        for limit in [1, 7, expected.len().max(1), 1000] {
            let mut query = Query { limit, ..query.clone() };
            let mut found = Vec::new();
            loop {
                let page = store.list(&query).await.unwrap();
                assert_eq!(page.revision, Revision(1));
                assert!(page.records.len() <= limit);
                query.after = page.records.last().map(|record| record.key.clone()).or(query.after);
                found.extend(page.records.into_iter().map(|record| record.key));
                if !page.more {
                    break;
                }
            }
            assert_eq!(found, expected, "{query:?} in pages of {limit}");
        }
    }
    // A page may begin behind a key that is gone, or of a kind that is not asked for.
    let after = Some(key_in(Kind::App, Some("a"), Some("x"), "a-a"));
    let from_there = keys(&*store, Query { after: after.clone(), ..Query::default() }).await;
    let expected: Vec<Key> = all.iter().filter(|key| Some(*key) > after.as_ref()).cloned().collect();
    assert_eq!(from_there, expected);
    let release = Query { after: after.clone(), kind: Some(Kind::Release), ..Query::default() };
    assert_eq!(keys(&*store, release).await.len(), 44);
    let orgs = Query { after, kind: Some(Kind::Org), ..Query::default() };
    assert_eq!(keys(&*store, orgs).await, []);
    let record = write(&*store, put(&all[0], Expect::Present, 2)).await.unwrap();
    let page = store.list(&Query { limit: 1, ..Query::default() }).await.unwrap();
    assert_eq!((page.revision, page.records, page.more), (Revision(2), vec![record], true));
}
