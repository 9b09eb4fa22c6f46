//! Which manager owns a resource.
