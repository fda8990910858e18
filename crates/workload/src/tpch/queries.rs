//! The 22 queries of TPC-H with the parameters that the specification uses for validation (clauses 2.4.1 to 2.4.22).
//!
//! Where a query is to return so many rows, it says so with LIMIT. Query 15 has a common table expression instead of a
//! view, which the specification allows as its variant A.

use crate::scale::Scale;

/// A query.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    /// Its name, `Q01` to `Q22`.
    pub name: &'static str,
    text: &'static str,
    /// The columns of its answer, from zero, whose order ORDER BY says.
    pub ordered_by: &'static [usize],
}

impl Query {
    /// The statement, for data of a scale.
    pub fn text(&self, scale: Scale) -> String {
        // The share of query 11 (clause 2.4.11.3).
        self.text.replace("{fraction}", &format!("{:.10}", 0.0001 / scale.factor()))
    }

    /// The query of a number, 1 to 22.
    pub fn numbered(number: u8) -> Option<&'static Query> {
        QUERIES.get(usize::from(number).checked_sub(1)?)
    }
}

macro_rules! query {
    ($name:literal, $file:literal, $ordered_by:expr) => {
        Query {
            name: $name,
            text: include_str!(concat!("queries/", $file, ".sql")),
            ordered_by: &$ordered_by,
        }
    };
}

/// All of them.
pub const QUERIES: [Query; 22] = [
    query!("Q01", "q01", [0, 1]),
    query!("Q02", "q02", [0, 2, 1, 3]),
    query!("Q03", "q03", [1, 2]),
    query!("Q04", "q04", [0]),
    query!("Q05", "q05", [1]),
    query!("Q06", "q06", []),
    query!("Q07", "q07", [0, 1, 2]),
    query!("Q08", "q08", [0]),
    query!("Q09", "q09", [0, 1]),
    query!("Q10", "q10", [2]),
    query!("Q11", "q11", [1]),
    query!("Q12", "q12", [0]),
    query!("Q13", "q13", [1, 0]),
    query!("Q14", "q14", []),
    query!("Q15", "q15", [0]),
    query!("Q16", "q16", [3, 0, 1, 2]),
    query!("Q17", "q17", []),
    query!("Q18", "q18", [4, 3]),
    query!("Q19", "q19", []),
    query!("Q20", "q20", [0]),
    query!("Q21", "q21", [1, 0]),
    query!("Q22", "q22", [0]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_numbered_and_scaled() {
        for number in 1..=22 {
            assert_eq!(Query::numbered(number).unwrap().name, format!("Q{number:02}"));
        }
        assert!(Query::numbered(0).is_none() && Query::numbered(23).is_none());
        let text = Query::numbered(11).unwrap().text("0.1".parse().unwrap());
        assert!(text.contains("* 0.0010000000") && !text.contains('{'));
    }
}
