use super::*;
use crate::operation::{Group, Kind};

fn heads(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    lines
        .iter()
        .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
        .collect()
}

fn see(
    method: &str,
    target: &'static str,
    lines: &[(&'static str, &'static str)],
) -> Result<Operation, Unclear> {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let seen = recognise(method, path, query, "s3.test", &heads(lines), &[])?;
    Ok(seen.operation.unwrap())
}

#[test]
fn each_row_of_the_table_is_recognised_as_itself() {
    for row in TABLE {
        let path = match row.level {
            Level::Service => "/",
            Level::Bucket => "/bucket",
            Level::Object => "/bucket/some/key",
        };
        let mut query = vec![row.sub.to_owned()];
        let mut headers = HeaderMap::new();
        for mark in row.marks {
            match mark {
                Mark::Header(name) => drop(headers.insert(*name, "x".parse().unwrap())),
                Mark::Argument(name) => query.push(format!("{name}=1")),
                Mark::Is(name, value) => query.push(format!("{name}={value}")),
            }
        }
        let query = query.join("&");
        let seen = recognise(row.method, path, Some(&query), "s3.test", &headers, &[]).unwrap();
        assert_eq!(seen.operation, Some(row.operation), "{query}");
        assert_eq!(row.operation.name().parse(), Ok(row.operation));
    }
}

#[test]
fn parameters_that_are_no_sub_resources_change_nothing() {
    assert_eq!(
        see("GET", "/b/k?versionId=1&response-content-type=a&partNumber=2", &[]),
        Ok(Operation::GetObject)
    );
    assert_eq!(see("GET", "/b/k?lifecycle", &[]), Ok(Operation::GetObject));
    assert_eq!(see("GET", "/b?prefix=uploads&delimiter=%2F", &[]), Ok(Operation::ListObjects));
    assert_eq!(see("GET", "/b/?list-type=%32", &[]), Ok(Operation::ListObjectsV2));
    assert_eq!(see("GET", "/b/k?%61cl=", &[]), Ok(Operation::GetObjectAcl));
    assert_eq!(see("PUT", "/b/k?uploadId=1", &[]), Ok(Operation::PutObject));
    assert_eq!(see("PUT", "/b/k?partNumber=1", &[("x-amz-copy-source", "/b/k")]), Ok(Operation::CopyObject));
    assert_eq!(see("POST", "/b/k?select&select-type=2", &[]), Ok(Operation::SelectObjectContent));
}

#[test]
fn what_could_be_two_operations_is_none() {
    assert_eq!(see("PUT", "/b/k?acl&tagging", &[]), Err(Unclear::Conflict("acl", "tagging")));
    assert_eq!(see("DELETE", "/b?acl", &[]), Err(Unclear::Method));
    assert_eq!(see("PATCH", "/b/k", &[]), Err(Unclear::Method));
    for path in ["//b/k", "/b/../c/k", "/b/%2e%2E/c", "/b%2Fc/k", "/b/./k", "/a%5Cb/k", "/%00/k"] {
        assert_eq!(see("GET", path, &[]), Err(Unclear::Path), "{path}");
    }
    assert_eq!(see("GET", "/b//k/...", &[]), Ok(Operation::GetObject));
    let error = Unclear::Conflict("acl", "tagging").error();
    assert_eq!((error.code, error.status()), (ErrorCode::InvalidArgument, 400));
}

#[test]
fn buckets_are_found_in_hosts_under_base_domains() {
    let bases = ["s3.test".to_owned(), "eu.s3.test".to_owned()];
    let of = |host| bucket_of_host(host, &bases).unwrap();
    assert_eq!(of("photos.s3.test").as_deref(), Some("photos"));
    assert_eq!(of("A.b.S3.TEST:8080").as_deref(), Some("a.b"));
    assert_eq!(of("x.eu.s3.test").as_deref(), Some("x"));
    assert_eq!((of("s3.test"), of("xs3.test"), of(""), of("[::1]:80")), (None, None, None, None));
    for host in [".s3.test", "a..s3.test", ".a.s3.test:80", "a.s3.test.", "a.s3.test.:80", "s3.test..", "."] {
        assert_eq!(bucket_of_host(host, &bases), Err(Unclear::Path), "{host}");
        let seen = recognise("GET", "/b/k", None, host, &HeaderMap::new(), &bases);
        assert_eq!(seen, Err(Unclear::Path), "{host}");
    }
    assert_eq!(bucket_of_host("a.s3.test.", &[]), Ok(None));
    let seen =
        recognise("GET", "/", Some("list-type=2"), "photos.s3.test", &HeaderMap::new(), &bases).unwrap();
    assert_eq!((seen.operation, seen.bucket.as_deref()), (Some(Operation::ListObjectsV2), Some("photos")));
    let seen = recognise("PUT", "/a/b", None, "photos.s3.test", &HeaderMap::new(), &bases).unwrap();
    assert_eq!(
        (seen.operation, seen.key, seen.virtual_host),
        (Some(Operation::PutObject), Some("a/b"), true)
    );
}

#[test]
fn a_preflight_is_about_another_request() {
    let seen = recognise("OPTIONS", "/b/k", None, "s3.test", &HeaderMap::new(), &[]).unwrap();
    assert_eq!((seen.operation, seen.bucket.as_deref()), (None, Some("b")));
}

#[test]
fn access_keys_are_read_from_wherever_they_stand() {
    let claimed = |query: Option<&'static str>, value: &'static str| {
        let headers = if value.is_empty() { HeaderMap::new() } else { heads(&[("authorization", value)]) };
        claimed_access_key(query, &headers).map(Cow::into_owned)
    };
    let own = Some("AK".to_owned());
    assert_eq!(claimed(None, "AWS4-HMAC-SHA256 Credential=AK/20260101/r/s3/aws4_request, Signature=1"), own);
    assert_eq!(claimed(None, "AWS AK:sig"), own);
    assert_eq!(claimed(Some("X-Amz-Credential=AK%2F2026%2Fr"), ""), own);
    assert_eq!(claimed(Some("AWSAccessKeyId=AK"), ""), own);
    assert_eq!(claimed(Some("x=1"), "Bearer x"), None);
}

#[test]
fn groups_hold_what_their_names_say() {
    let group = |name: &str| name.parse::<Group>().unwrap();
    assert!(group("multipart").has(Operation::UploadPart) && !group("multipart").has(Operation::PutObject));
    assert!(group("delete").has(Operation::DeleteObjects) && group("write").has(Operation::PostObject));
    assert!(group("settings").has(Operation::PutBucketPolicy) && group("list").has(Operation::ListParts));
    assert!(group("read").has(Operation::HeadObject) && !group("read").has(Operation::ListBuckets));
    assert!(group("PutBucketLifecycle").has(Operation::PutBucketLifecycleConfiguration));
    assert!("nonsense".parse::<Group>().is_err());
    for operation in Operation::ALL {
        let kinds = [Kind::Read, Kind::List, Kind::Write, Kind::Delete];
        assert_eq!(kinds.iter().filter(|kind| Group::Kind(**kind).has(*operation)).count(), 1);
    }
}

proptest::proptest! {
    #[test]
    fn whatever_comes_ends_in_an_operation_or_a_reason(
        method in "(GET|PUT|POST|DELETE|HEAD|OPTIONS|X)", path in "/[ -~é]{0,40}", query in "[ -~]{0,40}", host in "[ -~]{0,20}"
    ) {
        let bases = ["s3.test".to_owned()];
        if let Ok(seen) = recognise(&method, &path, Some(&query), &host, &HeaderMap::new(), &bases) {
            proptest::prop_assert!(seen.operation.is_some() || method == "OPTIONS");
        }
    }
}
