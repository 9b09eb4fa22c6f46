//! What fuzz targets need of the inside; in no other build.

pub use crate::upstream::h1::read_answer;
