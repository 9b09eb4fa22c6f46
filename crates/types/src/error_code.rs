//! One table of error codes: each has a stable text form, an HTTP status and a title for people.

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $title:literal;)*) => {
        /// A stable code for something that went wrong. Clients may branch on it; the text form never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The stable text form.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$name => $text,)* }
            }

            /// The HTTP status that goes with it.
            pub const fn status(self) -> u16 {
                match self { $(ErrorCode::$name => $status,)* }
            }

            /// A short title for people.
            pub const fn title(self) -> &'static str {
                match self { $(ErrorCode::$name => $title,)* }
            }
        }
    };
}

codes! {
    // the gateway's
    /// Framing, head or method that may not be passed on.
    BadRequest = "bad_request", 400, "The request is malformed";
    /// No route has this host and path.
    NoRoute = "no_route", 404, "No app is here";
    /// The route's app is stopped on purpose.
    AppStopped = "app_stopped", 503, "The app is stopped";
    /// The app has no instance that can serve.
    NoEndpoint = "no_endpoint", 503, "No instance can serve this now";
    /// Strict lanes: the tag names no lane.
    UnknownLane = "unknown_lane", 503, "The lane does not exist";
    /// No connection to any instance.
    ConnectFailed = "connect_failed", 502, "The app could not be reached";
    /// The instance closed or broke the connection before a response.
    UpstreamFailed = "upstream_failed", 502, "The app ended the connection";
    /// The instance did not answer in time.
    UpstreamTimeout = "upstream_timeout", 504, "The app did not answer in time";
    /// The client was too slow.
    ClientTimeout = "client_timeout", 408, "The request took too long to arrive";
    /// The body is over the limit.
    BodyTooLarge = "body_too_large", 413, "The request body is too large";
    /// The head is over the limit.
    HeadTooLarge = "head_too_large", 431, "The request head is too large";
    /// Too many connections or requests at once.
    Overloaded = "overloaded", 503, "The gateway is at its limit";
    /// The host asks its clients for another certificate than the connection was asked for.
    Misdirected = "misdirected", 421, "The request needs a connection of its own";
    // the API's
    /// A field is wrong.
    Invalid = "invalid", 422, "A field is not valid";
    /// The body is not what the endpoint reads.
    Malformed = "malformed", 400, "The request could not be read";
    /// The path is known, the method is not one of its own; `Allow` names those.
    MethodNotAllowed = "method_not_allowed", 405, "The path has no such method";
    /// No token, or a wrong one.
    Unauthorized = "unauthorized", 401, "A valid token is needed";
    /// The token may not do this.
    Forbidden = "forbidden", 403, "The token may not do this";
    /// The org may not have more of this.
    QuotaExceeded = "quota_exceeded", 403, "The org's quota does not allow it";
    /// No such resource.
    NotFound = "not_found", 404, "There is no such thing";
    /// It is there already, or claimed by another.
    Conflict = "conflict", 409, "It collides with what is there";
    /// If-Match names another revision.
    StaleRevision = "stale_revision", 412, "It was changed by another in the meantime";
    /// The upload is over the limit.
    UploadTooLarge = "upload_too_large", 413, "The upload is too large";
    /// The archive is hostile or broken.
    BadArchive = "bad_archive", 422, "The archive cannot be used";
    /// No room on disk.
    StorageFull = "storage_full", 507, "There is no room to store this";
    /// The store cannot be reached.
    StoreUnavailable = "store_unavailable", 503, "The store cannot be reached";
    /// A part of this manager died; another one may do it.
    ManagerBroken = "manager_broken", 503, "A part of this manager broke";
    /// Secrets cannot be sealed or opened: this manager has no key, or another one.
    SecretsUnavailable = "secrets_unavailable", 503, "Secrets cannot be used now";
    /// A queue is full.
    Busy = "busy", 429, "Too much work is waiting";
    /// Our own fault.
    Internal = "internal", 500, "Something broke inside Towpath";
    // deployment
    /// No builder knows this source.
    NoBuilder = "no_builder", 422, "No builder recognises this source";
    /// A tool that the builder needs is not on the cell.
    ToolMissing = "tool_missing", 422, "A tool for this source is not installed";
    /// The build ended with an error.
    BuildFailed = "build_failed", 422, "The build failed";
    /// The build took too long.
    BuildTimeout = "build_timeout", 422, "The build took too long";
    /// The new version did not become healthy.
    StartFailed = "start_failed", 422, "The app did not become healthy";
    /// No cell has room or fits.
    NoRoom = "no_room", 503, "No cell has room for it";
    /// A newer change took over.
    Superseded = "superseded", 409, "A newer change replaced this one";
    /// It was given up on request.
    Cancelled = "cancelled", 409, "It was cancelled";
    /// What it was to change was deleted.
    Deleted = "deleted", 409, "It was deleted in the meantime";
}

// By hand, since the derive does not see names that a macro has put in.
impl utoipa::PartialSchema for ErrorCode {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
            .description(Some("A stable code for something that went wrong. Clients may branch on it."))
            .examples([Self::NotFound.as_str()])
            .into()
    }
}

impl utoipa::ToSchema for ErrorCode {}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_unique_and_their_statuses_are_errors() {
        let texts: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert!((400..600).contains(&code.status()), "{code}");
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    #[test]
    fn the_schema_names_codes_as_they_are_sent() {
        use utoipa::PartialSchema;
        let schema = serde_json::to_value(ErrorCode::schema()).unwrap();
        let sent: Vec<_> = ErrorCode::ALL.iter().map(|code| serde_json::to_value(code).unwrap()).collect();
        assert_eq!(schema["enum"], serde_json::Value::Array(sent), "{schema}");
    }
}
