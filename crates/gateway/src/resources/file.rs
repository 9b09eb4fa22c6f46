//! Where a gateway that runs alone has its resources from.

use towpath_resources::Document;

/// Something that holds a complete set of documents and may change: a file, for example.
pub trait ResourceSource: Send + Sync {
    /// What is there now. Called again and again, on a thread that may block. `seen` = the mark of what was given last.
    fn load(&self, seen: Option<u64>) -> Loaded;
}

/// What a source holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Loaded {
    /// The same as before.
    Same,
    /// These documents, each good for itself and all together.
    Documents {
        /// Of this content.
        mark: u64,
        /// All of them.
        documents: Vec<Document>,
    },
    /// Something that cannot be used: what was there before goes on serving.
    Refused {
        /// Of this content.
        mark: u64,
        /// All that is wrong, each with its place.
        faults: Vec<String>,
    },
}
