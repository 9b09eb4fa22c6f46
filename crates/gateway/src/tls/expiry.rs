//! Warnings before certificates end.

use std::collections::BTreeMap;
use towpath_resources::{Body, Document, Id};

const DAY: i64 = 24 * 60 * 60;

/// Days before the end at which a warning is due.
const DAYS: [i64; 3] = [21, 7, 1];

/// What was told of each certificate: when it ends, and how many warnings were due.
pub(super) type Told = BTreeMap<Id, (i64, usize)>;

/// The warnings that are due and were not told yet. Each is told once for each certificate and step.
pub(super) fn due<'i>(
    told: &mut Told,
    ends: impl Iterator<Item = (&'i Id, i64)>,
    now: i64,
) -> Vec<(Id, String)> {
    let (mut found, mut known) = (Vec::new(), Told::new());
    for (id, end) in ends {
        let steps = DAYS.iter().filter(|days| end - now <= **days * DAY).count() + usize::from(end < now);
        let before = told.get(id).filter(|(of, _)| *of == end).map_or(0, |(_, steps)| *steps);
        if steps > before {
            found.push((id.clone(), words(end, now)));
        }
        known.insert(id.clone(), (end, steps));
    }
    *told = known;
    found
}

/// A line for each certificate among these documents whose end is near, or over.
pub fn certificate_notes(documents: &[Document]) -> Vec<String> {
    let ends: Vec<_> = documents
        .iter()
        .filter_map(|document| match &document.body {
            Body::Ssl(ssl) => Some((&document.key.id, ssl.validity()?.not_after)),
            _ => None,
        })
        .collect();
    let due = due(&mut Told::new(), ends.into_iter(), super::certificates::unix_seconds());
    due.into_iter().map(|(id, words)| format!("ssls/{}: its certificate {words}", id.as_str())).collect()
}

/// `ends in 6 days`, `has ended 2 days ago`.
fn words(end: i64, now: i64) -> String {
    let count = |seconds: i64| match seconds / DAY {
        0 => format!("{} hours", seconds / 3600),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    if end < now {
        format!("ended {} ago", count(now - end))
    } else {
        format!("ends in {}", count(end - now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_resources::Kind;

    #[test]
    fn each_step_is_told_once_and_anew_for_another_certificate() {
        let id = Id::new(Kind::Ssl, "a").unwrap();
        let mut told = Told::new();
        let mut at = |end: i64, now: i64| -> Vec<String> {
            due(&mut told, [(&id, end)].into_iter(), now).into_iter().map(|(_, words)| words).collect()
        };
        let end = 100 * DAY;
        assert_eq!(at(end, 78 * DAY), Vec::<String>::new());
        assert_eq!(at(end, 79 * DAY), ["ends in 21 days"]);
        assert_eq!(at(end, 80 * DAY), Vec::<String>::new());
        assert_eq!(at(end, 95 * DAY), ["ends in 5 days"]);
        assert_eq!(at(end, 99 * DAY + 3600), ["ends in 23 hours"]);
        assert_eq!(at(end, 101 * DAY), ["ended 1 day ago"]);
        assert_eq!(at(end, 102 * DAY), Vec::<String>::new());
        assert_eq!(at(200 * DAY, 102 * DAY), Vec::<String>::new());
        assert_eq!(at(103 * DAY, 102 * DAY + 1), ["ends in 23 hours"]);
    }
}
