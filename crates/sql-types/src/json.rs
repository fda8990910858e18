//! The JSON parser and printer behind json and jsonb.
