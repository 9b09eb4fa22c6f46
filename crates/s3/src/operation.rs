//! All operations of S3, as a table: the method, what they are asked of, the sub-resource and the further marks by which a
//! request is known to be one.

use std::fmt;
use std::str::FromStr;

/// What an operation is asked of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// The service as a whole.
    Service,
    /// A bucket.
    Bucket,
    /// An object.
    Object,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Reads an object or a setting.
    Read,
    /// Lists buckets, keys, versions, uploads, parts, configurations.
    List,
    /// Makes or changes something.
    Write,
    /// Deletes something.
    Delete,
}

/// A mark of a request beside method, level and sub-resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A header is there.
    Header(&'static str),
    /// An argument of the query is there.
    Argument(&'static str),
    /// An argument of the query has this value.
    Is(&'static str, &'static str),
}

/// What several operations have in common beside their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Objects and buckets themselves.
    Plain,
    /// Uploads in parts.
    Multipart,
    /// Tags, ACLs, policies and all other settings.
    Settings,
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) operation: Operation,
    pub(crate) method: &'static str,
    pub(crate) level: Level,
    pub(crate) sub: &'static str,
    pub(crate) marks: &'static [Mark],
    pub(crate) kind: Kind,
    pub(crate) part: Part,
}

macro_rules! operations {
    ($($name:ident $method:ident $level:ident $sub:literal [$($mark:expr),*] $kind:ident $part:ident;)*) => {
        /// An operation of S3, by the name that Amazon's documentation gives it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the names are those of the S3 API reference")]
        pub enum Operation {
            $($name,)*
        }

        impl Operation {
            /// All of them.
            pub const ALL: &'static [Operation] = &[$(Operation::$name,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Operation::$name => stringify!($name),)*
                }
            }
        }

        /// In this order they are tried: of the same method, level and sub-resource those with more marks come first.
        pub(crate) static TABLE: &[Row] = &[
            $(Row {
                operation: Operation::$name,
                method: stringify!($method),
                level: Level::$level,
                sub: $sub,
                marks: &[$($mark),*],
                kind: Kind::$kind,
                part: Part::$part,
            },)*
        ];
    };
}

use Mark::{Argument, Header, Is};

operations! {
    ListBuckets GET Service "" [] List Plain;

    CreateBucket PUT Bucket "" [] Write Plain;
    DeleteBucket DELETE Bucket "" [] Delete Plain;
    HeadBucket HEAD Bucket "" [] Read Plain;
    ListObjectsV2 GET Bucket "" [Is("list-type", "2")] List Plain;
    ListObjects GET Bucket "" [] List Plain;
    ListObjectVersions GET Bucket "versions" [] List Plain;
    ListMultipartUploads GET Bucket "uploads" [] List Multipart;
    DeleteObjects POST Bucket "delete" [] Delete Plain;
    WriteGetObjectResponse POST Bucket "" [Header("x-amz-request-route")] Write Plain;
    PostObject POST Bucket "" [] Write Plain;
    CreateSession GET Bucket "session" [] Read Plain;
    GetBucketLocation GET Bucket "location" [] Read Settings;

    GetBucketAbac GET Bucket "abac" [] Read Settings;
    PutBucketAbac PUT Bucket "abac" [] Write Settings;
    GetBucketAccelerateConfiguration GET Bucket "accelerate" [] Read Settings;
    PutBucketAccelerateConfiguration PUT Bucket "accelerate" [] Write Settings;
    GetBucketAcl GET Bucket "acl" [] Read Settings;
    PutBucketAcl PUT Bucket "acl" [] Write Settings;
    GetBucketAnalyticsConfiguration GET Bucket "analytics" [Argument("id")] Read Settings;
    ListBucketAnalyticsConfigurations GET Bucket "analytics" [] List Settings;
    PutBucketAnalyticsConfiguration PUT Bucket "analytics" [] Write Settings;
    DeleteBucketAnalyticsConfiguration DELETE Bucket "analytics" [] Delete Settings;
    GetBucketCors GET Bucket "cors" [] Read Settings;
    PutBucketCors PUT Bucket "cors" [] Write Settings;
    DeleteBucketCors DELETE Bucket "cors" [] Delete Settings;
    GetBucketEncryption GET Bucket "encryption" [] Read Settings;
    PutBucketEncryption PUT Bucket "encryption" [] Write Settings;
    DeleteBucketEncryption DELETE Bucket "encryption" [] Delete Settings;
    GetBucketIntelligentTieringConfiguration GET Bucket "intelligent-tiering" [Argument("id")] Read Settings;
    ListBucketIntelligentTieringConfigurations GET Bucket "intelligent-tiering" [] List Settings;
    PutBucketIntelligentTieringConfiguration PUT Bucket "intelligent-tiering" [] Write Settings;
    DeleteBucketIntelligentTieringConfiguration DELETE Bucket "intelligent-tiering" [] Delete Settings;
    GetBucketInventoryConfiguration GET Bucket "inventory" [Argument("id")] Read Settings;
    ListBucketInventoryConfigurations GET Bucket "inventory" [] List Settings;
    PutBucketInventoryConfiguration PUT Bucket "inventory" [] Write Settings;
    DeleteBucketInventoryConfiguration DELETE Bucket "inventory" [] Delete Settings;
    GetBucketLifecycleConfiguration GET Bucket "lifecycle" [] Read Settings;
    PutBucketLifecycleConfiguration PUT Bucket "lifecycle" [] Write Settings;
    DeleteBucketLifecycle DELETE Bucket "lifecycle" [] Delete Settings;
    GetBucketLogging GET Bucket "logging" [] Read Settings;
    PutBucketLogging PUT Bucket "logging" [] Write Settings;
    GetBucketMetadataConfiguration GET Bucket "metadataConfiguration" [] Read Settings;
    CreateBucketMetadataConfiguration POST Bucket "metadataConfiguration" [] Write Settings;
    DeleteBucketMetadataConfiguration DELETE Bucket "metadataConfiguration" [] Delete Settings;
    GetBucketMetadataTableConfiguration GET Bucket "metadataTable" [] Read Settings;
    CreateBucketMetadataTableConfiguration POST Bucket "metadataTable" [] Write Settings;
    DeleteBucketMetadataTableConfiguration DELETE Bucket "metadataTable" [] Delete Settings;
    UpdateBucketMetadataAnnotationTableConfiguration PUT Bucket "metadataAnnotationTable" [] Write Settings;
    UpdateBucketMetadataInventoryTableConfiguration PUT Bucket "metadataInventoryTable" [] Write Settings;
    UpdateBucketMetadataJournalTableConfiguration PUT Bucket "metadataJournalTable" [] Write Settings;
    GetBucketMetricsConfiguration GET Bucket "metrics" [Argument("id")] Read Settings;
    ListBucketMetricsConfigurations GET Bucket "metrics" [] List Settings;
    PutBucketMetricsConfiguration PUT Bucket "metrics" [] Write Settings;
    DeleteBucketMetricsConfiguration DELETE Bucket "metrics" [] Delete Settings;
    GetBucketNotificationConfiguration GET Bucket "notification" [] Read Settings;
    PutBucketNotificationConfiguration PUT Bucket "notification" [] Write Settings;
    GetBucketOwnershipControls GET Bucket "ownershipControls" [] Read Settings;
    PutBucketOwnershipControls PUT Bucket "ownershipControls" [] Write Settings;
    DeleteBucketOwnershipControls DELETE Bucket "ownershipControls" [] Delete Settings;
    GetBucketPolicy GET Bucket "policy" [] Read Settings;
    PutBucketPolicy PUT Bucket "policy" [] Write Settings;
    DeleteBucketPolicy DELETE Bucket "policy" [] Delete Settings;
    GetBucketPolicyStatus GET Bucket "policyStatus" [] Read Settings;
    GetBucketReplication GET Bucket "replication" [] Read Settings;
    PutBucketReplication PUT Bucket "replication" [] Write Settings;
    DeleteBucketReplication DELETE Bucket "replication" [] Delete Settings;
    GetBucketRequestPayment GET Bucket "requestPayment" [] Read Settings;
    PutBucketRequestPayment PUT Bucket "requestPayment" [] Write Settings;
    GetBucketTagging GET Bucket "tagging" [] Read Settings;
    PutBucketTagging PUT Bucket "tagging" [] Write Settings;
    DeleteBucketTagging DELETE Bucket "tagging" [] Delete Settings;
    GetBucketVersioning GET Bucket "versioning" [] Read Settings;
    PutBucketVersioning PUT Bucket "versioning" [] Write Settings;
    GetBucketWebsite GET Bucket "website" [] Read Settings;
    PutBucketWebsite PUT Bucket "website" [] Write Settings;
    DeleteBucketWebsite DELETE Bucket "website" [] Delete Settings;
    GetObjectLockConfiguration GET Bucket "object-lock" [] Read Settings;
    PutObjectLockConfiguration PUT Bucket "object-lock" [] Write Settings;
    GetPublicAccessBlock GET Bucket "publicAccessBlock" [] Read Settings;
    PutPublicAccessBlock PUT Bucket "publicAccessBlock" [] Write Settings;
    DeletePublicAccessBlock DELETE Bucket "publicAccessBlock" [] Delete Settings;

    GetObject GET Object "" [] Read Plain;
    HeadObject HEAD Object "" [] Read Plain;
    CopyObject PUT Object "" [Header("x-amz-copy-source")] Write Plain;
    PutObject PUT Object "" [] Write Plain;
    DeleteObject DELETE Object "" [] Delete Plain;
    GetObjectAttributes GET Object "attributes" [] Read Plain;
    GetObjectTorrent GET Object "torrent" [] Read Plain;
    RestoreObject POST Object "restore" [] Write Plain;
    SelectObjectContent POST Object "select" [] Read Plain;
    RenameObject PUT Object "renameObject" [] Write Plain;
    UpdateObjectEncryption PUT Object "encryption" [] Write Settings;
    GetObjectAcl GET Object "acl" [] Read Settings;
    PutObjectAcl PUT Object "acl" [] Write Settings;
    GetObjectAnnotation GET Object "annotation" [Argument("annotationName")] Read Settings;
    ListObjectAnnotations GET Object "annotation" [] List Settings;
    PutObjectAnnotation PUT Object "annotation" [] Write Settings;
    DeleteObjectAnnotation DELETE Object "annotation" [] Delete Settings;
    GetObjectLegalHold GET Object "legal-hold" [] Read Settings;
    PutObjectLegalHold PUT Object "legal-hold" [] Write Settings;
    GetObjectRetention GET Object "retention" [] Read Settings;
    PutObjectRetention PUT Object "retention" [] Write Settings;
    GetObjectTagging GET Object "tagging" [] Read Settings;
    PutObjectTagging PUT Object "tagging" [] Write Settings;
    DeleteObjectTagging DELETE Object "tagging" [] Delete Settings;

    CreateMultipartUpload POST Object "uploads" [] Write Multipart;
    UploadPartCopy PUT Object "uploadId" [Argument("partNumber"), Header("x-amz-copy-source")] Write Multipart;
    UploadPart PUT Object "uploadId" [Argument("partNumber")] Write Multipart;
    ListParts GET Object "uploadId" [] List Multipart;
    CompleteMultipartUpload POST Object "uploadId" [] Write Multipart;
    AbortMultipartUpload DELETE Object "uploadId" [] Delete Multipart;
}

impl Operation {
    fn row(self) -> Option<&'static Row> {
        TABLE.iter().find(|row| row.operation == self)
    }

    /// What it does.
    pub fn kind(self) -> Kind {
        self.row().map_or(Kind::Write, |row| row.kind)
    }

    /// Whether its answer is in lexicographic order of keys.
    pub fn is_ordered_list(self) -> bool {
        matches!(
            self,
            Self::ListObjects | Self::ListObjectsV2 | Self::ListObjectVersions | Self::ListMultipartUploads
        )
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Other names of operations that are the same on the wire: some that Amazon has given up, and the buckets of directories, which
/// are listed at an endpoint of their own.
const OTHER_NAMES: [(&str, Operation); 5] = [
    ("ListDirectoryBuckets", Operation::ListBuckets),
    ("GetBucketLifecycle", Operation::GetBucketLifecycleConfiguration),
    ("PutBucketLifecycle", Operation::PutBucketLifecycleConfiguration),
    ("GetBucketNotification", Operation::GetBucketNotificationConfiguration),
    ("PutBucketNotification", Operation::PutBucketNotificationConfiguration),
];

impl FromStr for Operation {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let current = Self::ALL.iter().copied().find(|one| one.name() == name);
        let other = || OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, one)| *one);
        current.or_else(other).ok_or(())
    }
}

/// One operation, or several under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `all`.
    All,
    /// `read`, `list`, `write`, `delete`.
    Kind(Kind),
    /// `multipart`: uploads in parts, from the first request to the last.
    Multipart,
    /// `settings`: tags, ACLs, policies and other settings of buckets and objects.
    Settings,
    /// An operation by its name.
    One(Operation),
}

impl Group {
    /// Names of the groups.
    pub const NAMES: [&'static str; 7] = ["all", "read", "list", "write", "delete", "multipart", "settings"];

    /// Whether the operation is in it.
    pub fn has(self, operation: Operation) -> bool {
        let part = || operation.row().map(|row| row.part);
        match self {
            Self::All => true,
            Self::Kind(kind) => operation.kind() == kind,
            Self::Multipart => part() == Some(Part::Multipart),
            Self::Settings => part() == Some(Part::Settings),
            Self::One(one) => one == operation,
        }
    }
}

impl FromStr for Group {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "all" => Self::All,
            "read" => Self::Kind(Kind::Read),
            "list" => Self::Kind(Kind::List),
            "write" => Self::Kind(Kind::Write),
            "delete" => Self::Kind(Kind::Delete),
            "multipart" => Self::Multipart,
            "settings" => Self::Settings,
            name => Self::One(name.parse()?),
        })
    }
}
