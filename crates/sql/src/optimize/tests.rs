//! Golden plans.

use crate::bind::tests::plan;

#[track_caller]
fn golden(sql: &str, expected: &str) {
    let found = plan(sql);
    let expected: Vec<&str> = expected.lines().map(str::trim_end).filter(|line| !line.trim().is_empty()).collect();
    let indent = expected.iter().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    let expected: Vec<&str> = expected.iter().map(|line| &line[indent..]).collect();
    assert_eq!(found, expected.join("\n"), "\n{sql}\n{found}\n");
}

#[test]
fn equality_on_the_primary_key() {
    golden("SELECT * FROM t WHERE id = 5", "
        Index Scan using t_pkey on t
          Index Cond: (id = 5)");
    golden("SELECT b FROM t WHERE id = $1 AND a > 2", "
        Index Scan using t_pkey on t
          Index Cond: (id = $1)
          Filter: (a > 2)");
    golden("SELECT b FROM t WHERE c = 5 AND a = 7", "
        Index Scan using t_a_c_idx on t
          Index Cond: ((a = 7) AND (c = 5))");
}
