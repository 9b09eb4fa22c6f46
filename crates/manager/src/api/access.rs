//! Who may do what: one table, method and path → the permission that is needed, on which resource, and what a change is
//! called in the audit log. A test computed from the OpenAPI document shows that every endpoint is in it; at run time what
//! is not in it is refused.
//!
//! Pure: the resource and what the caller holds are arguments.

use http::Method;
use towpath_types::spec::Role;
use towpath_types::{OrgName, SpaceName, SpaceRef};

/// What an endpoint needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Nothing, not even a token.
    Public,
    /// Any valid token.
    SignedIn,
    /// To see what is there: viewers and above.
    Read,
    /// To change what is in a space: developers and above.
    Write,
    /// To rule an org: its owners, and operators.
    Own,
    /// To rule the platform: operators alone.
    Operate,
    /// Cells, and operators for looking after them.
    Cell,
}

/// Where an endpoint's resource is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The platform itself.
    Platform,
    /// A space, by the query.
    Space,
    /// An org, by the query.
    Org,
    /// An org, by the path's `{org}`.
    OrgPath,
    /// The space of the operation that the path's `{id}` names.
    Operation,
}

/// The resource of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The platform itself.
    Platform,
    /// An org.
    Org(OrgName),
    /// A space.
    Space(SpaceRef),
    /// Nobody knows where it belongs, as it is not there.
    Unknown,
}

/// An entry of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) method: &'static Method,
    pub(crate) path: &'static str,
    pub(crate) needs: Permission,
    pub(crate) scope: Scope,
    /// What a change is called in the audit log; empty = it changes nothing of its own.
    pub(crate) action: &'static str,
}

use Permission::{Cell, Operate, Own, Public, Read, SignedIn, Write};
use Scope::{Operation, Org, OrgPath, Platform, Space};

const GET: &Method = &Method::GET;
const HEAD: &Method = &Method::HEAD;
const PUT: &Method = &Method::PUT;
const POST: &Method = &Method::POST;
const PATCH: &Method = &Method::PATCH;
const DELETE: &Method = &Method::DELETE;

const fn e(
    method: &'static Method,
    path: &'static str,
    needs: Permission,
    scope: Scope,
    action: &'static str,
) -> Entry {
    Entry { method, path, needs, scope, action }
}

/// The table. Order: path, then method.
pub(crate) const TABLE: &[Entry] = &[
    e(GET, "/", Public, Platform, ""),
    e(GET, "/docs", Public, Platform, ""),
    e(GET, "/openapi.json", Public, Platform, ""),
    e(GET, "/v1/healthz", Public, Platform, ""),
    e(GET, "/v1/readyz", Public, Platform, ""),
    e(POST, "/v1/login", Public, Platform, "session.login"),
    e(POST, "/v1/logout", SignedIn, Platform, "session.logout"),
    e(PUT, "/v1/password", SignedIn, Platform, "user.password"),
    e(GET, "/v1/version", SignedIn, Platform, ""),
    e(GET, "/v1/whoami", SignedIn, Platform, ""),
    e(GET, "/v1/apps", Read, Space, ""),
    e(GET, "/v1/apps/{app}", Read, Space, ""),
    e(PUT, "/v1/apps/{app}", Write, Space, "app.put"),
    e(PATCH, "/v1/apps/{app}", Write, Space, "app.change"),
    e(DELETE, "/v1/apps/{app}", Write, Space, "app.delete"),
    e(GET, "/v1/apps/{app}/env", Write, Space, ""),
    e(PATCH, "/v1/apps/{app}/env", Write, Space, "app.env"),
    e(GET, "/v1/apps/{app}/groups", Read, Space, ""),
    e(PATCH, "/v1/apps/{app}/groups/{lane}", Write, Space, "group.change"),
    e(DELETE, "/v1/apps/{app}/groups/{lane}", Write, Space, "group.delete"),
    e(POST, "/v1/apps/{app}/groups/{lane}/restart", Write, Space, "group.restart"),
    e(GET, "/v1/apps/{app}/instances", Read, Space, ""),
    e(GET, "/v1/apps/{app}/logs", Read, Space, ""),
    e(GET, "/v1/apps/{app}/releases", Read, Space, ""),
    e(POST, "/v1/apps/{app}/releases", Write, Space, "app.push"),
    e(POST, "/v1/apps/{app}/rollback", Write, Space, "app.rollback"),
    e(GET, "/v1/audit", Own, Org, ""),
    e(GET, "/v1/cells", Read, Platform, ""),
    e(GET, "/v1/cells/{cell}", Read, Platform, ""),
    e(PATCH, "/v1/cells/{cell}", Operate, Platform, "cell.change"),
    e(POST, "/v1/explain", Read, Platform, ""),
    e(GET, "/v1/gateways", Read, Platform, ""),
    e(GET, "/v1/instances", Read, Space, ""),
    e(GET, "/v1/instances/{id}/logs", Read, Space, ""),
    e(GET, "/v1/lanes", Read, Space, ""),
    e(GET, "/v1/lanes/{lane}", Read, Space, ""),
    e(PUT, "/v1/lanes/{lane}", Write, Space, "lane.put"),
    e(DELETE, "/v1/lanes/{lane}", Write, Space, "lane.delete"),
    e(GET, "/v1/managers", Read, Platform, ""),
    e(GET, "/v1/managers/owner/{id}", Read, Space, ""),
    e(GET, "/v1/operations", Read, Space, ""),
    e(GET, "/v1/operations/{id}", Read, Operation, ""),
    e(GET, "/v1/operations/{id}/events", Read, Operation, ""),
    e(POST, "/v1/operations/{id}/cancel", Write, Operation, "operation.cancel"),
    e(GET, "/v1/orgs", SignedIn, Platform, ""),
    e(GET, "/v1/orgs/{org}", Read, OrgPath, ""),
    e(PUT, "/v1/orgs/{org}", Operate, OrgPath, "org.put"),
    e(DELETE, "/v1/orgs/{org}", Operate, OrgPath, "org.delete"),
    e(GET, "/v1/orgs/{org}/members", Read, OrgPath, ""),
    e(PUT, "/v1/orgs/{org}/members/{user}", Own, OrgPath, "member.put"),
    e(DELETE, "/v1/orgs/{org}/members/{user}", Own, OrgPath, "member.delete"),
    e(PUT, "/v1/orgs/{org}/quota", Operate, OrgPath, "org.quota"),
    e(GET, "/v1/orgs/{org}/spaces", Read, OrgPath, ""),
    e(PUT, "/v1/orgs/{org}/spaces/{space}", Own, OrgPath, "space.put"),
    e(DELETE, "/v1/orgs/{org}/spaces/{space}", Own, OrgPath, "space.delete"),
    e(GET, "/v1/routes", Read, Space, ""),
    e(PUT, "/v1/routes", Write, Space, "route.put"),
    e(DELETE, "/v1/routes", Write, Space, "route.delete"),
    e(GET, "/v1/secrets", Operate, Platform, ""),
    e(POST, "/v1/secrets/rotate", Operate, Platform, "secrets.rotate"),
    e(HEAD, "/v1/sources/{digest}", Write, Space, ""),
    e(PUT, "/v1/sources/{digest}", Write, Space, "source.upload"),
    e(GET, "/v1/space", Read, Space, ""),
    e(PATCH, "/v1/space", Write, Space, "space.change"),
    e(GET, "/v1/status", Read, Platform, ""),
    e(GET, "/v1/tokens", Own, Org, ""),
    e(POST, "/v1/tokens", Own, Org, "token.create"),
    e(DELETE, "/v1/tokens/{name}", Own, Org, "token.delete"),
    e(GET, "/v1/users", Operate, Platform, ""),
    e(PUT, "/v1/users/{user}", Operate, Platform, "user.put"),
    e(DELETE, "/v1/users/{user}", Operate, Platform, "user.delete"),
    e(GET, "/apisix/admin/{kind}", Operate, Platform, ""),
    e(PUT, "/apisix/admin/{kind}", Operate, Platform, "resource.put"),
    e(POST, "/apisix/admin/{kind}", Operate, Platform, "resource.create"),
    e(GET, "/apisix/admin/{kind}/{id}", Operate, Platform, ""),
    e(PUT, "/apisix/admin/{kind}/{id}", Operate, Platform, "resource.put"),
    e(PATCH, "/apisix/admin/{kind}/{id}", Operate, Platform, "resource.change"),
    e(DELETE, "/apisix/admin/{kind}/{id}", Operate, Platform, "resource.delete"),
    e(GET, "/apisix/admin/{kind}/{id}/{*rest}", Operate, Platform, ""),
    e(PUT, "/apisix/admin/{kind}/{id}/{*rest}", Operate, Platform, "resource.put"),
    e(POST, "/apisix/admin/{kind}/{id}/{*rest}", Operate, Platform, "resource.create"),
    e(PATCH, "/apisix/admin/{kind}/{id}/{*rest}", Operate, Platform, "resource.change"),
    e(DELETE, "/apisix/admin/{kind}/{id}/{*rest}", Operate, Platform, "resource.delete"),
    e(GET, "/internal/v1/artifacts/{digest}", Cell, Platform, ""),
    e(HEAD, "/internal/v1/artifacts/{digest}", Cell, Platform, ""),
    e(PUT, "/internal/v1/artifacts/{digest}", Cell, Platform, ""),
    e(GET, "/internal/v1/sources/{digest}", Cell, Platform, ""),
];

/// The entry of an endpoint, by the router's path pattern. HEAD of what has only GET is as GET.
pub(crate) fn find(method: &Method, path: &str) -> Option<&'static Entry> {
    let entry = |method: &Method| TABLE.iter().find(|entry| entry.method == method && entry.path == path);
    entry(method).or_else(|| if method == Method::HEAD { entry(&Method::GET) } else { None })
}

/// A role in an org, or in one of its spaces alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) org: OrgName,
    pub(crate) space: Option<SpaceName>,
    pub(crate) role: Role,
}

/// What a caller holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Everything.
    Operator,
    /// What cells need.
    Cell,
    /// Roles in orgs.
    Orgs(Vec<Grant>),
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Go on, with this role.
    Allowed(Role),
    /// The caller may know of the resource, but not do this.
    Forbidden,
    /// The caller may not know whether the resource is there.
    Hidden,
}

impl Reach {
    /// The highest role at a resource; `None` = the caller may not know of it.
    pub(crate) fn role_at(&self, target: &Target) -> Option<Role> {
        let grants = match self {
            Reach::Operator => return Some(Role::Operator),
            Reach::Cell => return Some(Role::Cell),
            Reach::Orgs(grants) => grants.iter(),
        };
        let role = |grant: &Grant| match target {
            Target::Platform => Some(Role::Viewer),
            // Whoever is in one space alone may know of the org, and no more.
            Target::Org(org) if grant.org == *org => {
                Some(if grant.space.is_none() { grant.role } else { Role::Viewer })
            }
            Target::Space(space) if grant.org == space.org => {
                grant.space.as_ref().is_none_or(|only| *only == space.space).then_some(grant.role)
            }
            Target::Org(_) | Target::Space(_) | Target::Unknown => None,
        };
        grants.filter_map(role).max_by_key(|role| rank(*role))
    }

    /// Whether the caller may know of what is in a space.
    pub(crate) fn sees(&self, space: &SpaceRef) -> bool {
        self.role_at(&Target::Space(space.clone())).is_some_and(|role| role != Role::Cell)
    }

    /// Whether the caller may know of an org.
    pub(crate) fn sees_org(&self, org: &OrgName) -> bool {
        self.role_at(&Target::Org(org.clone())).is_some_and(|role| role != Role::Cell)
    }
}

fn rank(role: Role) -> u8 {
    match role {
        Role::Cell | Role::Gateway => 0,
        Role::Viewer => 1,
        Role::Developer => 2,
        Role::Owner => 3,
        Role::Operator => 4,
    }
}

/// Decides.
pub(crate) fn decide(reach: &Reach, needs: Permission, target: &Target) -> Verdict {
    let role = reach.role_at(target);
    let least = match needs {
        Public | SignedIn => return Verdict::Allowed(role.unwrap_or(Role::Viewer)),
        Cell => {
            return match reach {
                Reach::Operator => Verdict::Allowed(Role::Operator),
                Reach::Cell => Verdict::Allowed(Role::Cell),
                Reach::Orgs(_) => Verdict::Forbidden,
            };
        }
        Read => Role::Viewer,
        Write => Role::Developer,
        Own => Role::Owner,
        Operate => Role::Operator,
    };
    match role {
        Some(role) if rank(role) >= rank(least) => Verdict::Allowed(role),
        Some(_) => Verdict::Forbidden,
        None if *target == Target::Platform => Verdict::Forbidden,
        None => Verdict::Hidden,
    }
}

/// The least role, as the documentation says it.
pub(crate) fn least(needs: Permission) -> &'static str {
    match needs {
        Public => "no token needed",
        SignedIn => "any token",
        Read => "viewer",
        Write => "developer",
        Own => "owner",
        Operate => "operator",
        Cell => "cell",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_endpoint_of_the_document_is_declared_once_and_nothing_else_is() {
        let document = crate::api::openapi();
        let documented: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone()))
            })
            .collect();
        let declared: BTreeSet<(String, String)> =
            TABLE.iter().map(|entry| (entry.method.to_string(), entry.path.to_owned())).collect();
        assert_eq!(declared.len(), TABLE.len());
        assert_eq!(declared, documented);
    }

    #[test]
    fn every_change_has_a_name_and_reads_have_none() {
        for entry in TABLE {
            let reads = matches!(*entry.method, Method::GET | Method::HEAD) || entry.path == "/v1/explain";
            let part = entry.path.starts_with("/internal/");
            assert_eq!(entry.action.is_empty(), reads || part, "{} {}", entry.method, entry.path);
        }
    }

    fn org(name: &str) -> OrgName {
        name.parse().unwrap()
    }

    fn space(name: &str) -> Target {
        let (org, space) = name.split_once('/').unwrap();
        Target::Space(SpaceRef { org: org.parse().unwrap(), space: space.parse().unwrap() })
    }

    fn holds(role: Role, only: Option<&str>) -> Reach {
        Reach::Orgs(vec![Grant { org: org("acme"), space: only.map(|space| space.parse().unwrap()), role }])
    }

    #[test]
    fn decisions_follow_role_and_place() {
        use Verdict::{Forbidden, Hidden};
        let ok = Verdict::Allowed;
        let here = space("acme/prod");
        for (reach, needs, target, verdict) in [
            (holds(Role::Viewer, None), Read, here.clone(), ok(Role::Viewer)),
            (holds(Role::Viewer, None), Write, here.clone(), Forbidden),
            (holds(Role::Developer, None), Write, here.clone(), ok(Role::Developer)),
            (holds(Role::Developer, Some("prod")), Write, here.clone(), ok(Role::Developer)),
            (holds(Role::Developer, Some("test")), Read, here.clone(), Hidden),
            (holds(Role::Owner, Some("prod")), Own, Target::Org(org("acme")), Forbidden),
            (holds(Role::Owner, None), Own, Target::Org(org("acme")), ok(Role::Owner)),
            (holds(Role::Owner, None), Read, Target::Org(org("other")), Hidden),
            (holds(Role::Owner, None), Operate, Target::Org(org("other")), Hidden),
            (holds(Role::Owner, None), Operate, Target::Org(org("acme")), Forbidden),
            (holds(Role::Owner, None), Operate, Target::Platform, Forbidden),
            (holds(Role::Owner, None), Read, Target::Unknown, Hidden),
            (holds(Role::Owner, None), Cell, Target::Platform, Forbidden),
            (Reach::Orgs(Vec::new()), Read, Target::Platform, Forbidden),
            (Reach::Orgs(Vec::new()), SignedIn, Target::Platform, ok(Role::Viewer)),
            (Reach::Operator, Operate, Target::Unknown, ok(Role::Operator)),
            (Reach::Operator, Cell, Target::Platform, ok(Role::Operator)),
            (Reach::Cell, Cell, Target::Platform, ok(Role::Cell)),
            (Reach::Cell, Read, here.clone(), Forbidden),
            (Reach::Cell, Read, Target::Platform, Forbidden),
        ] {
            assert_eq!(decide(&reach, needs, &target), verdict, "{reach:?} {needs:?} {target:?}");
        }
    }
}
