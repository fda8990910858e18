//! The optimizer does not change what queries return: each query runs as bound and as optimized.

use super::optimize;
use super::reference::{Around, Interpreter};
use crate::bind::tests::bind;
use crate::plan::Plan;
use sql_types::{Datum, Row};
use std::collections::HashMap;

/// Small numbers that repeat, with NULLs in between.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn datum(&mut self, below: u64, make: impl Fn(u64) -> Datum) -> Datum {
        if self.next(6) == 0 { Datum::Null } else { make(self.next(below)) }
    }
}

fn interpreter() -> Interpreter {
    let mut numbers = Numbers(7);
    let int4 = |value: u64| Datum::Int4(value as i32);
    let int8 = |value: u64| Datum::Int8(value as i64);
    let t: Vec<Row> = (0..60)
        .map(|id| {
            let b = Datum::text(format!("b{:02}", (id * 7) % 60));
            vec![
                int4(id),
                numbers.datum(8, int4),
                if id % 11 == 0 { Datum::Null } else { b },
                numbers.datum(10, int8),
                numbers.datum(5, |value| Datum::Timestamptz(value as i64 * 1_000_000)),
            ]
        })
        .collect();
    let u: Vec<Row> = (0..25)
        .map(|id| {
            let note = numbers.datum(3, |value| Datum::text(["x", "y", "z"][value as usize]));
            vec![int8(id), numbers.datum(70, int4), note, Datum::Null, Datum::Null]
        })
        .collect();
    let s: Vec<Row> = (0..10)
        .map(|id| {
            let made = Datum::Timestamptz(0);
            vec![int4(id), Datum::text(format!("s{}", id % 3)), numbers.datum(4, int4), made, int8(id)]
        })
        .collect();
    let h: Vec<Row> = (0..8).map(|id| vec![numbers.datum(3, int4), int8(id)]).collect();
    let tables = [("t", t), ("u", u), ("s", s), ("h", h)].map(|(name, rows)| (name.to_string(), rows));
    Interpreter { tables: HashMap::from(tables), params: vec![Datum::Int4(5), Datum::Int8(3)] }
}

fn rows(interpreter: &Interpreter, plan: &Plan, sql: &str) -> Vec<String> {
    let rows = interpreter.run(plan, &Around::default()).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    rows.iter().map(|row| format!("{row:?}")).collect()
}

#[track_caller]
fn check(interpreter: &Interpreter, sql: &str) {
    let bound = bind(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let mut expected = rows(interpreter, &bound.plan, sql);
    let mut found = rows(interpreter, &optimize(bound.plan), sql);
    // Queries with ORDER BY name enough keys to fix the order.
    if !sql.contains("ORDER BY id") {
        expected.sort();
        found.sort();
    }
    assert_eq!(found, expected, "{sql}");
}

#[test]
fn queries_return_the_same_optimized() {
    let interpreter = interpreter();
    for sql in [
        "SELECT * FROM t WHERE id = 5",
        "SELECT b FROM t WHERE a = 3 AND c > 2",
        "SELECT b, a FROM t WHERE a = 3 AND c = 2 AND id > 4",
        "SELECT id FROM t WHERE id IN (3, 70, 5, NULL) AND a IS NOT NULL",
        "SELECT id FROM t WHERE a IN (1, 2) AND c BETWEEN 2 AND 7",
        "SELECT id FROM t WHERE c = 3000000000 OR a = 2",
        "SELECT id FROM t WHERE id = 5000000000",
        "SELECT id FROM t WHERE a > 3",
        "SELECT id FROM t WHERE a < 3",
        "SELECT b FROM t WHERE b LIKE 'b1%'",
        "SELECT id FROM u WHERE t_id > 20",
        "SELECT id FROM u WHERE t_id <= 20",
        "SELECT id FROM t WHERE id = $1::int8 + 1",
        "SELECT id, a FROM t ORDER BY id DESC LIMIT 7",
        "SELECT id, a FROM t ORDER BY id LIMIT 7 OFFSET 3",
        "SELECT id, a FROM t ORDER BY id LIMIT $2::int8",
        "SELECT a, c, id FROM t WHERE a = 2 ORDER BY id",
        "SELECT c FROM t WHERE a = 3 ORDER BY c DESC",
        "SELECT max(id), min(id) FROM t",
        "SELECT max(id) FROM t",
        "SELECT min(b) FROM t",
        "SELECT max(a) FROM t",
        "SELECT min(t_id) FROM u",
        "SELECT t.b, u.note FROM t, u WHERE t.id = u.t_id",
        "SELECT t.b, u.note FROM t JOIN u ON t.id = u.t_id AND u.note = 'x' WHERE t.a > 2",
        "SELECT t.id, u.id FROM t LEFT JOIN u ON t.id = u.t_id WHERE t.a > 2",
        "SELECT t.id, u.id FROM t LEFT JOIN u ON t.id = u.t_id AND t.c > 3 AND u.note <> 'y'",
        "SELECT t.id, u.id FROM t LEFT JOIN u ON t.id = u.t_id WHERE u.note = 'x'",
        "SELECT t.id, u.id FROM t LEFT JOIN u ON t.id = u.t_id WHERE u.id IS NULL",
        "SELECT t.id, u.id FROM u RIGHT JOIN t ON t.id = u.t_id WHERE t.a > 2",
        "SELECT t.id, u.id FROM t FULL JOIN u ON t.id = u.t_id AND t.a < u.id",
        "SELECT t.id, u.id FROM t FULL JOIN u ON t.id = u.t_id WHERE t.a > 1 OR u.note = 'x'",
        "SELECT id, t_id FROM t FULL JOIN u USING (id) WHERE id > 3",
        "SELECT x.id, y.id FROM t x JOIN t y ON x.a = y.c WHERE x.id < y.id",
        "SELECT t.id, u.id, s.id FROM t JOIN u ON u.t_id = t.id JOIN s ON s.id = u.t_id",
        "SELECT s.name, count(*), sum(t.a) FROM s LEFT JOIN u ON u.id = s.id LEFT JOIN t ON t.id = u.t_id GROUP BY s.name",
        "SELECT * FROM s, h, u WHERE s.qty = h.x AND u.id = s.id",
        "SELECT t.b FROM t WHERE id IN (SELECT t_id FROM u WHERE note = 'x')",
        "SELECT t.b FROM t WHERE id IN (SELECT t_id FROM u WHERE u.id > t.a)",
        "SELECT t.b FROM t WHERE id NOT IN (SELECT t_id FROM u WHERE t_id IS NOT NULL)",
        "SELECT t.b FROM t WHERE id NOT IN (SELECT t_id FROM u)",
        "SELECT t.b FROM t WHERE (a, id) IN (SELECT u.id, u.t_id FROM u)",
        "SELECT t.b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND u.note = 'x')",
        "SELECT t.b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id)",
        "SELECT t.b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND u.id > t.a)",
        "SELECT t.b FROM t WHERE a = 3 OR EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id)",
        "SELECT t.b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id LIMIT 1)",
        "SELECT t.b FROM t WHERE EXISTS (SELECT 1 FROM u JOIN s ON s.id = u.id WHERE u.t_id = t.id AND EXISTS (SELECT 1 FROM h WHERE h.x = t.a))",
        "SELECT id, (SELECT count(*) FROM u WHERE u.t_id = t.id), (SELECT max(id) FROM u) FROM t WHERE id < 30",
        "SELECT id FROM t WHERE a = (SELECT min(qty) FROM s WHERE s.id > 2)",
        "SELECT id FROM t WHERE c > ALL (SELECT qty FROM s WHERE qty IS NOT NULL)",
        "SELECT a, count(*), sum(c) FROM t WHERE c > 1 GROUP BY a HAVING a > 1 AND count(*) > 1",
        "SELECT * FROM (SELECT a, sum(c) AS s FROM t GROUP BY a) AS x WHERE a = 4 AND s > 5",
        "SELECT a, b, count(*) FROM t WHERE id < 20 GROUP BY ROLLUP (a, b)",
        "SELECT a, grouping(a), grouping(a, c), count(*) FROM t GROUP BY GROUPING SETS ((a, c), (a), ())",
        "SELECT t.id, t.b, count(u.id) FROM t LEFT JOIN u ON u.t_id = t.id GROUP BY t.id ORDER BY id",
        "SELECT a, (SELECT count(*) FROM s WHERE s.qty = t.a) FROM t GROUP BY a",
        "SELECT * FROM v WHERE id < 7",
        "SELECT v.twice, s.name FROM v JOIN s ON s.id = v.id",
        "WITH x AS (SELECT * FROM t WHERE a = 1) SELECT b FROM x WHERE id > 2",
        "WITH x AS (SELECT * FROM t) SELECT x.id, y.id FROM x JOIN x AS y ON x.id = y.a",
        "WITH x AS (SELECT a FROM t WHERE c > 3) SELECT id FROM s WHERE qty IN (SELECT a FROM x) AND EXISTS (SELECT 1 FROM h WHERE h.x = s.qty)",
        "SELECT id, n FROM (SELECT id, row_number() OVER (PARTITION BY a ORDER BY id) AS n FROM t) AS q WHERE n = 1",
        "SELECT id, n FROM (SELECT id, a, row_number() OVER (PARTITION BY a ORDER BY id DESC) AS n FROM t) AS q WHERE a = 2",
        "SELECT DISTINCT a FROM t WHERE c > 1",
        "SELECT DISTINCT ON (a) a, id FROM t ORDER BY a, id DESC",
        "SELECT * FROM (SELECT a FROM t UNION SELECT t_id FROM u) AS x WHERE a > 3",
        "SELECT * FROM (SELECT a, c FROM t UNION ALL SELECT t_id, id FROM u) AS x WHERE a > 3",
        "SELECT a FROM t EXCEPT SELECT qty FROM s",
        "SELECT a FROM t INTERSECT ALL SELECT qty FROM s",
        "SELECT t.id, l.id FROM t, LATERAL (SELECT * FROM u WHERE u.t_id > t.id ORDER BY u.id LIMIT 1) AS l WHERE t.id > 10",
        "SELECT t.id, l.n FROM t LEFT JOIN LATERAL (SELECT count(*) AS n FROM u WHERE u.t_id = t.id) AS l ON l.n > 0",
        "SELECT s.id, l.id, m.id FROM s, LATERAL (SELECT * FROM h WHERE h.x = s.qty) AS k(x), LATERAL (SELECT * FROM u WHERE u.id = k.x) AS l JOIN t AS m ON m.id = l.t_id",
        "SELECT CASE WHEN a > 3 THEN 'big' WHEN a IS NULL THEN 'none' ELSE b END, coalesce(a, 0) FROM t",
        "SELECT id FROM t WHERE 1 = 1 AND (a = 1 OR false) AND NOT (c = 3)",
        "SELECT id FROM t WHERE NULL",
        "SELECT x.id FROM (SELECT id, a + 1 AS n FROM t) AS x WHERE n = 4",
        "SELECT n, id FROM (SELECT id, a + 1 AS n FROM t ORDER BY id LIMIT 10) AS x WHERE n = 4",
        "SELECT a.id FROM t a WHERE a.id = (SELECT b.id FROM t b WHERE b.id = a.id AND b.a IN (SELECT c.qty FROM s c WHERE c.id <> a.id AND c.id <> b.id))",
        "VALUES (1, 'a'), (2, NULL)",
    ] {
        check(&interpreter, sql);
    }
}
