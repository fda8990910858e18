//! Functions that ask the catalog or the session.
use super::Function;
/// Functions evaluated by [`super::CatalogFunctions::call`], with their signatures.
pub static CATALOG_FUNCTIONS: &[Function] = &[];
