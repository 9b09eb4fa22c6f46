//! Reading the audit log, newest first.

use super::ApiState;
use super::auth::Caller;
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{Params, first_org};
use super::reading::{List, read_answer};
use super::trail::audit_key;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use towpath_store::Query;
use towpath_types::identity::{Actor, AuditField, AuditSpec};
use towpath_types::{Kind, OperationId, OrgName, Record, Revision, SpaceName};

/// Items in a page when the client does not say, and the most.
const LIMIT: (usize, usize) = (100, 1000);
/// Entries that are looked at for one page; with filters it may be shorter than asked for.
const LOOKED_AT: usize = 20_000;
/// Sorts behind every name of an entry.
const BEHIND: &str = "~";

/// Which entries.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Of this org; absent = `default`, for operators every org's and the platform's.
    #[param(value_type = Option<String>)]
    #[serde(default)]
    org: Option<OrgName>,
    /// In this space alone.
    #[param(value_type = Option<String>)]
    #[serde(default)]
    space: Option<SpaceName>,
    /// By the user or token of this name.
    #[serde(default)]
    by: Option<String>,
    /// Actions that begin so, for example `group` or `group.change`.
    #[serde(default)]
    action: Option<String>,
    /// Of the resource of this name, for example `shop`; groups of an app too.
    #[serde(default)]
    name: Option<String>,
    /// Not older than this, milliseconds since 1970.
    #[serde(default)]
    since: Option<u64>,
    /// Older than this, milliseconds since 1970.
    #[serde(default)]
    until: Option<u64>,
    /// Most items in the answer, 1 to 1000; 100 when absent.
    #[serde(default)]
    limit: Option<usize>,
    /// `next` of the page before.
    #[serde(default)]
    cursor: Option<String>,
}

/// An entry of the audit log.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditView {
    /// When, by the store's clock, milliseconds since 1970.
    at_ms: u64,
    by: Actor,
    /// What was done, for example `group.change`.
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    org: Option<OrgName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<SpaceName>,
    /// Kind of the resource.
    kind: String,
    /// Its name.
    name: String,
    /// Its revision before; absent = it was not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Revision>,
    /// Revision of the change.
    to: Revision,
    /// What became different; of an operation: what was asked for. Secrets are not told.
    fields: Vec<AuditField>,
    /// The operation that carries it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<OperationId>,
    /// Id of the request.
    request: String,
    /// Address of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

impl AuditView {
    fn new(record: &Record) -> Option<Self> {
        let spec: AuditSpec = record.spec().ok()?;
        Some(Self {
            at_ms: record.created_ms,
            by: spec.by,
            action: spec.action,
            org: spec.org,
            space: spec.space,
            kind: spec.kind,
            name: spec.name,
            from: spec.from,
            to: record.revision,
            fields: spec.fields,
            operation: spec.operation,
            request: spec.request,
            source: spec.source,
        })
    }
}

impl AuditQuery {
    fn takes(&self, entry: &AuditView) -> bool {
        let by = match &entry.by {
            Actor::User { name } | Actor::Token { name, .. } => name,
        };
        let of_name = |name: &String| {
            entry.name == *name
                || entry.name.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(':'))
        };
        self.space.as_ref().is_none_or(|space| entry.space.as_ref() == Some(space))
            && self.by.as_ref().is_none_or(|wanted| wanted == by)
            && self.action.as_ref().is_none_or(|action| entry.action.starts_with(action.as_str()))
            && self.name.as_ref().is_none_or(of_name)
            && self.since.is_none_or(|since| entry.at_ms >= since)
            && self.until.is_none_or(|until| entry.at_ms < until)
    }
}

/// Changes that were made, newest first.
#[utoipa::path(get, path = "/v1/audit", tag = "identity", params(AuditQuery),
    responses((status = 200, body = List<AuditView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_audit(
    State(state): State<ApiState>,
    caller: Caller,
    Params(query): Params<AuditQuery>,
) -> Outcome<Response> {
    let limit = query.limit.unwrap_or(LIMIT.0);
    let mut errors = Vec::new();
    if !(1..=LIMIT.1).contains(&limit) {
        errors.push(FieldError::new("limit", format!("has to be 1 to {}", LIMIT.1)));
    }
    let is_cursor =
        |cursor: &String| cursor.len() <= 32 && cursor.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if query.cursor.as_ref().is_some_and(|cursor| !is_cursor(cursor)) {
        errors.push(FieldError::new("cursor", "take it from `next` of the page before"));
    }
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let orgs = match (&query.org, caller.is_operator()) {
        (None, true) => state.audited_orgs().await?,
        (org, _) => vec![Some(org.clone().unwrap_or_else(first_org))],
    };
    let (items, next, revision) = state.audit_page(&query, orgs, limit).await?;
    Ok(read_answer(false, &List { items, next, revision }))
}

impl ApiState {
    /// The orgs that have entries, those that are gone too; `None` = the platform.
    pub(super) async fn audited_orgs(&self) -> Outcome<Vec<Option<OrgName>>> {
        let mut orgs = Vec::new();
        let mut after = None;
        loop {
            let query = Query { kind: Some(Kind::Audit), after, limit: 1, ..Query::default() };
            let page = self.core.store.list(&query).await?;
            let Some(record) = page.records.into_iter().next() else { return Ok(orgs) };
            after = Some(audit_key(record.key.org.clone(), BEHIND.into()));
            orgs.push(record.key.org);
        }
    }

    async fn audit_page(
        &self,
        query: &AuditQuery,
        orgs: Vec<Option<OrgName>>,
        limit: usize,
    ) -> Outcome<(Vec<AuditView>, Option<String>, Revision)> {
        let mut logs = Vec::new();
        for org in orgs {
            logs.push(Log {
                store: &*self.core.store,
                org,
                at: query.cursor.clone(),
                page: Vec::new(),
                ended: false,
            });
        }
        let (mut items, mut last) = (Vec::new(), query.cursor.clone());
        for _ in 0..LOOKED_AT {
            let mut newest: Option<(usize, String)> = None;
            for (index, log) in logs.iter_mut().enumerate() {
                let name = log.peek(limit).await?;
                if let Some(name) = name.filter(|name| newest.as_ref().is_none_or(|(_, best)| name < best)) {
                    newest = Some((index, name));
                }
            }
            let Some((index, name)) = newest else { return Ok((items, None, self.core.cache.revision())) };
            if items.len() == limit {
                return Ok((items, last, self.core.cache.revision()));
            }
            let record = logs.get_mut(index).and_then(|log| log.page.pop());
            items.extend(record.as_ref().and_then(AuditView::new).filter(|view| query.takes(view)));
            last = Some(name);
        }
        Ok((items, last, self.core.cache.revision()))
    }
}

/// The log of one org, read page by page.
struct Log<'a> {
    store: &'a dyn towpath_store::Store,
    org: Option<OrgName>,
    /// Read up to here.
    at: Option<String>,
    /// What was read, the newest last.
    page: Vec<Record>,
    ended: bool,
}

impl Log<'_> {
    /// Name of the next entry.
    async fn peek(&mut self, limit: usize) -> Outcome<Option<String>> {
        if self.page.is_empty() && !self.ended {
            let after = audit_key(self.org.clone(), self.at.clone().unwrap_or_default());
            let query =
                Query { kind: Some(Kind::Audit), after: Some(after), limit: limit + 1, ..Query::default() };
            let page = self.store.list(&query).await?;
            let before = page.records.len();
            let mut records = page.records;
            records.retain(|record| record.key.org == self.org);
            self.ended = !page.more || records.len() < before;
            self.at = records.last().map(|record| record.key.name.clone());
            records.reverse();
            self.page = records;
        }
        Ok(self.page.last().map(|record| record.key.name.clone()))
    }
}
