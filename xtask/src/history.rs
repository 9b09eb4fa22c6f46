//! Checks the history of a run against the control plane: was each acknowledged write done, once, and in order?
//!
//! A history is a file of JSON lines. `{"is":"acked","key","value","revision"}`: a client was told that its write of this value
//! is done. `{"is":"sent","key","value"}`: a client never learned what became of its last write. `{"is":"effect","key","value",
//! "revision"}`: what the database itself noted, in its order. A key has one writer, which writes 1, 2, 3 and so on, each
//! until it is acknowledged.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// All about one key.
#[derive(Debug, Default)]
struct Register {
    /// Value and revision that were told.
    acked: BTreeMap<u64, u64>,
    /// Values whose fate is not known.
    sent: BTreeSet<u64>,
    /// Value and revision, in the order of the database.
    effects: Vec<(u64, u64)>,
}

/// What is wrong, by kind.
#[derive(Debug, Default, PartialEq)]
struct Verdict {
    acked: usize,
    lost: Vec<String>,
    twice: Vec<String>,
    wrong: Vec<String>,
}

/// Reads a history and says what is wrong with it; fails if anything is.
#[expect(clippy::print_stdout, reason = "a program for a terminal")]
pub(crate) fn check(file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let verdict = judge(&read(&text)?);
    for line in verdict.lost.iter().chain(&verdict.twice).chain(&verdict.wrong).take(20) {
        println!("{line}");
    }
    let (lost, twice, wrong) = (verdict.lost.len(), verdict.twice.len(), verdict.wrong.len());
    println!("acknowledged={} lost={lost} twice={twice} wrong={wrong}", verdict.acked);
    if lost + twice + wrong > 0 || verdict.acked == 0 {
        bail!("the history is not as it has to be");
    }
    Ok(())
}

fn read(text: &str) -> Result<BTreeMap<String, Register>> {
    let mut registers: BTreeMap<String, Register> = BTreeMap::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let event: Value = serde_json::from_str(line).with_context(|| format!("line {}", n + 1))?;
        let number = |name: &str| {
            event.get(name).and_then(Value::as_u64).with_context(|| format!("line {}: no {name}", n + 1))
        };
        let key =
            event.get("key").and_then(Value::as_str).with_context(|| format!("line {}: no key", n + 1))?;
        let register = registers.entry(key.to_owned()).or_default();
        let value = number("value")?;
        match event.get("is").and_then(Value::as_str) {
            Some("acked") => drop(register.acked.insert(value, number("revision")?)),
            Some("sent") => drop(register.sent.insert(value)),
            Some("effect") => register.effects.push((value, number("revision")?)),
            other => bail!("line {}: {other:?} is no kind of event", n + 1),
        }
    }
    Ok(registers)
}

fn judge(registers: &BTreeMap<String, Register>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut owners: BTreeMap<u64, &str> = BTreeMap::new();
    for (key, register) in registers {
        verdict.acked += register.acked.len();
        let mut done: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (value, revision) in &register.effects {
            done.entry(*value).or_default().push(*revision);
        }
        for (value, revision) in &register.acked {
            match done.get(value).map(Vec::as_slice) {
                None => verdict
                    .lost
                    .push(format!("{key}: {value} was acknowledged at {revision}, and is nowhere")),
                Some(at) if !at.contains(revision) => {
                    verdict
                        .wrong
                        .push(format!("{key}: {value} was told to be at {revision} and is at {at:?}"));
                }
                Some(_) => {}
            }
            if let Some(other) = owners.insert(*revision, key) {
                verdict.wrong.push(format!("revision {revision} was given to {other} and to {key}"));
            }
        }
        for (value, at) in &done {
            if at.len() > 1 {
                verdict.twice.push(format!("{key}: {value} was done at {at:?}"));
            }
            if !register.acked.contains_key(value) && !register.sent.contains(value) {
                verdict.wrong.push(format!("{key}: {value} was never asked for"));
            }
        }
        for pair in register.effects.windows(2) {
            if let [(before, at), (value, then)] = pair
                && (value < before || then <= at)
            {
                verdict.wrong.push(format!("{key}: {value} at {then} came after {before} at {at}"));
            }
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two writers of ten values each, all acknowledged but the last of the second.
    fn good() -> Vec<String> {
        let mut lines = Vec::new();
        for value in 1..=10 {
            for (key, offset) in [("a", 0), ("b", 1)] {
                let revision = value * 2 + offset;
                lines.push(format!(
                    r#"{{"is":"effect","key":"{key}","value":{value},"revision":{revision}}}"#
                ));
                lines.push(match (key, value) {
                    ("b", 10) => format!(r#"{{"is":"sent","key":"b","value":{value}}}"#),
                    _ => format!(r#"{{"is":"acked","key":"{key}","value":{value},"revision":{revision}}}"#),
                });
            }
        }
        lines
    }

    fn judged(lines: &[String]) -> Verdict {
        judge(&read(&lines.join("\n")).unwrap())
    }

    #[test]
    fn a_good_history_is_good() {
        assert_eq!(judged(&good()), Verdict { acked: 19, ..Verdict::default() });
    }

    #[test]
    fn every_lost_write_is_found() {
        let effect = |line: &String| line.contains("effect") && !line.contains(r#""b","value":10,"#);
        for at in (0..good().len()).filter(|at| effect(&good()[*at])) {
            let mut lines = good();
            let line = lines.remove(at);
            let verdict = judged(&lines);
            assert_eq!((verdict.lost.len(), verdict.twice.len()), (1, 0), "{line}");
        }
        let mut lines = good();
        lines.retain(|line| !(line.contains("effect") && line.contains(r#""b","value":10,"#)));
        assert_eq!(judged(&lines), Verdict { acked: 19, ..Verdict::default() }, "its fate was never known");
    }

    #[test]
    fn every_write_that_was_done_twice_is_found() {
        for at in (0..good().len()).filter(|at| good()[*at].contains("effect")) {
            let mut lines = good();
            let again = lines[at].clone();
            let (head, _) = again.rsplit_once(':').unwrap();
            // At once, and long after: the second comes behind later values.
            lines.push(format!("{head}:99}}"));
            let verdict = judged(&lines);
            assert_eq!((verdict.lost.len(), verdict.twice.len()), (0, 1), "{again}");
        }
    }

    #[test]
    fn an_old_value_that_comes_back_is_found() {
        let mut lines = good();
        lines.push(r#"{"is":"effect","key":"a","value":3,"revision":50}"#.into());
        let verdict = judged(&lines);
        assert_eq!((verdict.twice.len(), verdict.wrong.len()), (1, 1), "{verdict:?}");
    }

    #[test]
    fn what_nobody_asked_for_and_what_was_told_wrongly_is_found() {
        for (line, what) in [
            (r#"{"is":"effect","key":"a","value":11,"revision":40}"#, "never asked for"),
            (r#"{"is":"acked","key":"a","value":10,"revision":41}"#, "was told to be at 41"),
            (r#"{"is":"acked","key":"c","value":1,"revision":2}"#, "is nowhere"),
        ] {
            let mut lines = good();
            lines.push(line.into());
            let verdict = judged(&lines);
            let all = [verdict.lost, verdict.wrong].concat().join("\n");
            assert!(all.contains(what), "{line}: {all}");
        }
    }

    #[test]
    fn what_is_no_history_is_refused() {
        for text in ["{", r#"{"is":"acked","key":"a","value":1}"#, r#"{"is":"what","key":"a","value":1}"#] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
