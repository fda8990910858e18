//! Stores of several nodes against one another, without faults but those a test asks for.

mod cluster;
mod merge;
mod planted;
mod ranges;
mod sleep;
