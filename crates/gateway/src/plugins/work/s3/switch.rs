//! `s3-switch`: operations of S3 that are switched off.

use super::{recognise, refused};
use crate::plugins::{Phase, Phases, Plugin, Request, Step};
use http::{HeaderMap, HeaderValue};
use std::sync::Arc;
use towpath_resources::plugins::s3_switch::{Code, Config, OrderedList, Rule};
use towpath_s3::encode::argument;
use towpath_s3::pattern::fits;
use towpath_s3::recognise::{argument_of, claimed_access_key};
use towpath_s3::{ErrorCode, Group, Operation, S3Error, Seen};

/// See the module.
pub(in crate::plugins) struct S3Switch {
    config: Arc<Config>,
    rules: Vec<Switch>,
}

/// A rule whose names are read.
struct Switch {
    off: Vec<Group>,
    on: Vec<Group>,
}

fn groups(names: &[String]) -> Vec<Group> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

fn code(code: Code) -> ErrorCode {
    match code {
        Code::AccessDenied => ErrorCode::AccessDenied,
        Code::MethodNotAllowed => ErrorCode::MethodNotAllowed,
        Code::NotImplemented => ErrorCode::NotImplemented,
        Code::ServiceUnavailable => ErrorCode::ServiceUnavailable,
    }
}

/// The bucket of a copy's source; `None` = servers could read different ones out of it.
fn source_bucket(line: &str) -> Option<String> {
    let source = argument(line);
    let path = source.split('?').next()?.trim_start_matches('/');
    let (bucket, key) = path.split_once('/')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    // A `?` may be the key's.
    let tidy = !source.split(['/', '\\', '?']).any(|segment| segment == "." || segment == "..");
    (tidy && !bucket.is_empty() && !key.is_empty() && bucket.bytes().all(plain)).then(|| bucket.to_owned())
}

/// Arguments of lists that lean on the order of keys.
const LEANING: [&str; 6] =
    ["delimiter", "marker", "start-after", "key-marker", "version-id-marker", "upload-id-marker"];

impl S3Switch {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        let read = |rule: &Rule| Switch { off: groups(&rule.operations), on: groups(&rule.except) };
        Self { rules: config.rules.iter().map(read).collect(), config: config.clone() }
    }

    /// The rule that switches this off for this bucket and access key.
    fn rule(&self, operation: Operation, bucket: Option<&str>, access_key: Option<&str>) -> Option<&Rule> {
        let one_fits = |patterns: &Option<Vec<String>>, text: Option<&str>| {
            patterns.as_ref().is_none_or(|patterns| {
                text.is_some_and(|text| patterns.iter().any(|pattern| fits(pattern, text)))
            })
        };
        let rules = self.config.rules.iter().zip(&self.rules);
        let mut found = rules.filter(|(rule, switch)| {
            switch.off.iter().any(|group| group.has(operation))
                && !switch.on.iter().any(|group| group.has(operation))
                && one_fits(&rule.buckets, bucket)
                && one_fits(&rule.access_keys, access_key)
        });
        found.next().map(|(rule, _)| rule)
    }

    fn judge(&self, request: &Request<'_>, seen: &Seen<'_>) -> Result<(), S3Error> {
        let Some(operation) = seen.operation else { return Ok(()) };
        // Verified, if `s3-auth` did that; else whose it says it is.
        let vars = request.vars();
        let claimed = || claimed_access_key(request.record.uri.query(), request.headers);
        let access_key = vars.other("s3_access_key").or_else(claimed);
        if let Some(rule) = self.rule(operation, seen.bucket.as_deref(), access_key.as_deref()) {
            let message = rule.message.clone();
            let message = message.unwrap_or_else(|| format!("{operation} is switched off here."));
            return Err(S3Error::new(code(rule.code), message));
        }
        if matches!(operation, Operation::CopyObject | Operation::UploadPartCopy) {
            self.judge_sources(request.headers, access_key.as_deref())?;
        }
        Ok(())
    }

    /// A copy reads its source, which stands in a header.
    fn judge_sources(&self, headers: &HeaderMap, access_key: Option<&str>) -> Result<(), S3Error> {
        let reads = |group: &Group| group.has(Operation::GetObject);
        if !self.rules.iter().any(|rule| rule.off.iter().any(reads)) {
            return Ok(());
        }
        let is_off = |line: &HeaderValue| match line.to_str().ok().and_then(source_bucket) {
            Some(bucket) => self.rule(Operation::GetObject, Some(&bucket), access_key).is_some(),
            None => true,
        };
        if headers.get_all("x-amz-copy-source").iter().any(is_off) {
            let message = "The source of the copy is switched off here.";
            return Err(S3Error::new(ErrorCode::AccessDenied, message));
        }
        Ok(())
    }

    /// What becomes of a list whose answer has an order; `Ok(true)` = it is asked for without.
    fn judge_order(&self, query: Option<&str>, operation: Option<Operation>) -> Result<bool, S3Error> {
        let unordered =
            || argument_of(query, "allow-unordered").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if self.config.ordered_list == OrderedList::Allow
            || !operation.is_some_and(Operation::is_ordered_list)
            || unordered()
        {
            return Ok(false);
        }
        let leans =
            LEANING.iter().any(|name| argument_of(query, name).is_some_and(|value| !value.is_empty()));
        let is_uploads = operation == Some(Operation::ListMultipartUploads);
        if self.config.ordered_list == OrderedList::Relax && !leans && !is_uploads {
            return Ok(true);
        }
        let message = "Lists in the order of keys are not implemented here; allow-unordered=true asks for one without order.";
        Err(S3Error::new(ErrorCode::NotImplemented, message))
    }
}

impl Plugin for S3Switch {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let judged = recognise(request.record, request.headers, &self.config.base_domains)
            .map_err(towpath_s3::Unclear::error)
            .and_then(|seen| {
                self.judge(request, &seen)?;
                let relaxed = self.judge_order(request.record.uri.query(), seen.operation)?;
                Ok((seen.operation, seen.bucket.map(std::borrow::Cow::into_owned), relaxed))
            });
        let (operation, bucket, relaxed) = match judged {
            Ok(judged) => judged,
            Err(error) => return Step::answer(refused(&error, request)),
        };
        if let Some(operation) = operation {
            request.running().set_var("s3_operation", operation.name().to_owned());
        }
        if let Some(bucket) = bucket {
            request.running().set_var("s3_bucket", bucket);
        }
        if relaxed {
            let query = match request.record.sent_query() {
                Some(query) if !query.is_empty() => format!("{query}&allow-unordered=true"),
                _ => "allow-unordered=true".to_owned(),
            };
            request.running().rewritten.query = Some(query);
        }
        Step::Next
    }
}
