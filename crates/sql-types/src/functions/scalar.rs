//! The tables of scalar functions.

use super::Function;

pub(super) static TABLES: &[&[Function]] = &[
    super::arrays::TABLE,
    super::catalog_functions::CATALOG_FUNCTIONS,
    super::casts::TABLE,
    super::digests::TABLE,
    super::enums::TABLE,
    super::jsonpaths::TABLE,
    super::jsons::TABLE,
    super::math::TABLE,
    super::number_format::TABLE,
    super::regexps::TABLE,
    super::strings::TABLE,
    super::system::TABLE,
    super::times::TABLE,
];
