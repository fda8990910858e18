//! Golden plans: statement to optimized plan, by the rule that matters. The tables are those of
//! `bind::tests`: `t` (100,000 rows; primary key `id`; indexes on `(a, c)` and `b`), `u` (1,000 rows;
//! primary key `id`; descending index on `t_id`), `s` (10 rows).

use crate::bind::tests::plan;

#[track_caller]
fn golden(sql: &str, expected: &str) {
    let found = plan(sql);
    let lines: Vec<&str> = expected.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let indent = lines.iter().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    let expected: Vec<&str> = lines.iter().map(|line| &line[indent..]).collect();
    assert_eq!(found, expected.join("\n"), "\n{sql}\n{found}\n");
}

#[test]
fn equalities_become_the_prefix_of_an_access() {
    golden(
        "SELECT * FROM t WHERE id = 5",
        "
            Index Scan using t_pkey on t
              Index Cond: (id = 5)",
    );
    golden(
        "SELECT b FROM t WHERE c = 5 AND a = 7",
        "
            Index Scan using t_a_c_idx on t
              Index Cond: ((a = 7) AND (c = 5))",
    );
    golden(
        "SELECT a, c FROM t WHERE a = 3",
        "
            Index Only Scan using t_a_c_idx on t
              Index Cond: (a = 3)",
    );
    golden(
        "SELECT * FROM t WHERE id = 5000000000",
        "
            Index Scan using t_pkey on t
              Index Cond: (id = NULL::integer)",
    );
    golden(
        "SELECT * FROM t WHERE 1 = 1 AND id = 2 + 3",
        "
            Index Scan using t_pkey on t
              Index Cond: (id = 5)",
    );
    golden(
        "SELECT id FROM u WHERE id = $1::int",
        "
            Index Scan using u_pkey on u
              Index Cond: (id = ($1)::bigint)",
    );
    golden(
        "SELECT id FROM t WHERE id = $1::int8",
        "
            Index Scan using t_pkey on t
              Index Cond: (id = CASE WHEN (($1 >= '-2147483648'::bigint) AND ($1 <= 2147483647)) THEN ($1)::integer END)",
    );
    golden(
        "SELECT * FROM t WHERE c = 3 OR a = 2",
        "
            Seq Scan on t
              Filter: ((c = 3) OR (a = 2))",
    );
    golden(
        "SELECT * FROM t WHERE d > now()",
        "
            Seq Scan on t
              Filter: (d > now())",
    );
}

#[test]
fn lists_and_ranges_bound_the_next_column() {
    golden(
        "SELECT b FROM t WHERE id IN (1,2,3)",
        "
            Index Scan using t_pkey on t
              Index Cond: (id = ANY (1, 2, 3))",
    );
    golden(
        "SELECT b FROM t WHERE id = 1 OR 2 = id",
        "
            Index Scan using t_pkey on t
              Index Cond: (id = ANY (1, 2))",
    );
    golden(
        "SELECT b FROM t WHERE id = 1 OR id > 2",
        "
            Seq Scan on t
              Filter: ((id = 1) OR (id > 2))",
    );
    golden(
        "SELECT b FROM t WHERE id = ANY($1)",
        "
            Index Scan using t_pkey on t
              Index Cond: (id = ANY ($1))",
    );
    golden(
        "SELECT b FROM t WHERE id BETWEEN 1 AND 10",
        "
            Index Scan using t_pkey on t
              Index Cond: ((id >= 1) AND (id <= 10))
              Filter: ((id >= 1) AND (id <= 10))",
    );
    golden(
        "SELECT b FROM t WHERE b LIKE 'abc%'",
        "
            Index Only Scan using t_b_key on t
              Index Cond: ((b >= 'abc'::text) AND (b < 'abd'::text))
              Filter: (b ~~ 'abc%'::text)",
    );
    golden(
        "DELETE FROM t WHERE a = 3 AND c < 5",
        "
            Delete on t
              ->  Index Scan using t_a_c_idx on t
                    Index Cond: ((a = 3) AND (c < 5))
                    Lock: row
                    Filter: (c < 5)",
    );
}

#[test]
fn an_index_makes_a_sort_superfluous() {
    golden(
        "SELECT * FROM t ORDER BY id LIMIT 10",
        "
            Limit
              ->  Seq Scan on t",
    );
    golden(
        "SELECT * FROM t ORDER BY id DESC LIMIT $1",
        "
            Limit
              ->  Index Scan Backward using t_pkey on t",
    );
    golden(
        "SELECT * FROM t WHERE a = 3 ORDER BY c DESC LIMIT 5",
        "
            Limit
              ->  Index Scan Backward using t_a_c_idx on t
                    Index Cond: (a = 3)",
    );
    golden(
        "SELECT * FROM t ORDER BY b",
        "
            Sort
              Sort Key: b
              ->  Seq Scan on t",
    );
    golden(
        "SELECT id FROM t WHERE a = 1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
        "
            Limit
              ->  Seq Scan on t
                    Lock: row
                    Filter: (a = 1)",
    );
}

#[test]
fn joins_look_up_or_hash() {
    golden(
        "SELECT * FROM t JOIN u ON u.t_id = t.id WHERE u.id = 4",
        "
            Nested Loop
              ->  Index Scan using u_pkey on u
                    Index Cond: (id = 4)
              ->  Index Scan using t_pkey on t
                    Index Cond: (id = outer.t_id)",
    );
    golden(
        "SELECT t.b, u.note FROM t, u WHERE t.id = u.t_id",
        "
            Nested Loop
              ->  Seq Scan on u
              ->  Index Scan using t_pkey on t
                    Index Cond: (id = outer.t_id)",
    );
    golden(
        "SELECT t.b, u.note FROM t LEFT JOIN u ON t.id = u.t_id WHERE t.id = 3",
        "
            Nested Loop Left Join
              ->  Index Scan using t_pkey on t
                    Index Cond: (id = 3)
              ->  Index Scan using u_t_id_idx on u
                    Index Cond: (t_id = outer.id)",
    );
    golden(
        "SELECT t.b FROM t LEFT JOIN u ON t.id = u.t_id WHERE u.note = 'x'",
        "
            Nested Loop
              ->  Seq Scan on u
                    Filter: ((note)::text = 'x'::text)
              ->  Index Scan using t_pkey on t
                    Index Cond: (id = outer.t_id)",
    );
    golden(
        "SELECT t.id, u.id, s.id FROM t JOIN u ON u.t_id = t.id JOIN s ON s.id = u.t_id WHERE t.a = 5",
        "
            Nested Loop
              ->  Nested Loop
                    ->  Seq Scan on s
                    ->  Index Scan using t_pkey on t
                          Index Cond: (id = outer.id)
                          Filter: (a = 5)
              ->  Index Only Scan using u_t_id_idx on u
                    Index Cond: (t_id = outer.id)
                    Filter: (outer.id = t_id)",
    );
    golden(
        "SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.t_id = t.id ORDER BY u.id LIMIT 1) AS l WHERE t.id = 3",
        "
            Nested Loop
              ->  Index Scan using t_pkey on t
                    Index Cond: (id = 3)
              ->  Limit
                    ->  Sort
                          Sort Key: id
                          ->  Index Scan using u_t_id_idx on u
                                Index Cond: (t_id = outer.id)",
    );
    golden(
        "UPDATE t SET a = u.id FROM u WHERE u.t_id = t.id AND u.id = 5",
        "
            Update on t
              ->  Nested Loop
                    ->  Index Scan using u_pkey on u
                          Index Cond: (id = 5)
                    ->  Index Scan using t_pkey on t
                          Index Cond: (id = outer.t_id)
                          Lock: row",
    );
    golden(
        "WITH x AS (SELECT * FROM t) SELECT x.b FROM x JOIN x AS y ON x.id = y.a",
        "
            Hash Join
              Hash Cond: (id = a)
              CTE 0
                ->  Seq Scan on t
              ->  CTE Scan on cte 0
              ->  CTE Scan on cte 0",
    );
}

#[test]
fn subqueries_become_joins() {
    golden(
        "SELECT t.b FROM t WHERE id IN (SELECT t_id FROM u WHERE note = 'x')",
        "
            Nested Loop
              ->  HashAggregate
                    ->  Seq Scan on u
                          Filter: ((note)::text = 'x'::text)
              ->  Index Scan using t_pkey on t
                    Index Cond: (id = outer.t_id)",
    );
    golden(
        "SELECT t.b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND u.note = 'x')",
        "
            Nested Loop
              ->  HashAggregate
                    ->  Seq Scan on u
                          Filter: ((note)::text = 'x'::text)
              ->  Index Scan using t_pkey on t
                    Index Cond: (id = outer.t_id)",
    );
    golden(
        "SELECT t.b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id)",
        "
            Hash Anti Join
              Hash Cond: (id = t_id)
              ->  Seq Scan on t
              ->  Seq Scan on u",
    );
    golden(
        "SELECT t.b FROM t WHERE id NOT IN (SELECT t_id FROM u)",
        "
            Seq Scan on t
              Filter: (NOT ?column?)
              InitPlan 1
                ->  Seq Scan on u",
    );
    golden(
        "SELECT (SELECT count(*) FROM u WHERE u.t_id = t.a) FROM t",
        "
            Hash Left Join
              Hash Cond: (a = t_id)
              ->  Seq Scan on t
              ->  HashAggregate
                    Group Key: t_id
                    Aggregates: count(*)
                    ->  Seq Scan on u",
    );
    golden(
        "SELECT (SELECT count(*) FROM u WHERE u.t_id = t.id) FROM t WHERE id = 10",
        "
            Index Scan using t_pkey on t
              Index Cond: (id = 10)
              SubPlan 1
                ->  Aggregate
                      Aggregates: count(*)
                      ->  Index Only Scan using u_t_id_idx on u
                            Index Cond: (t_id = outer.id)",
    );
    golden(
        "SELECT (SELECT max(id) FROM u) FROM t",
        "
            Seq Scan on t
              InitPlan 1
                ->  Aggregate
                      Aggregates: max(id)
                      ->  Limit
                            ->  Index Scan Backward using u_pkey on u",
    );
}

#[test]
fn conditions_move_down() {
    golden(
        "SELECT a, count(*) FROM t WHERE c > 5 GROUP BY a HAVING a = 3",
        "
            HashAggregate
              Group Key: a
              Aggregates: count(*)
              ->  Index Only Scan using t_a_c_idx on t
                    Index Cond: ((a = 3) AND (c > 5))
                    Filter: (c > 5)",
    );
    golden(
        "SELECT * FROM (SELECT a, sum(c) AS s FROM t GROUP BY a) AS x WHERE a = 4 AND s > 5",
        "
            HashAggregate
              Group Key: a
              Aggregates: sum(c)
              Filter: (sum > 5)
              ->  Index Only Scan using t_a_c_idx on t
                    Index Cond: (a = 4)",
    );
    golden(
        "SELECT * FROM v WHERE id = 7",
        "
            Index Scan using t_pkey on t
              Index Cond: (id = 7)
              Filter: (a IS NOT NULL)",
    );
    golden(
        "WITH x AS (SELECT * FROM t WHERE a = 1) SELECT b FROM x WHERE id = 2",
        "
            Index Scan using t_pkey on t
              Index Cond: (id = 2)
              Filter: (a = 1)",
    );
    golden(
        "SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY a ORDER BY c) AS n FROM t) AS q WHERE n = 1",
        "
            WindowAgg
              Filter: (?column? = 1)
              ->  Seq Scan on t",
    );
}

#[test]
fn constants_are_computed() {
    golden(
        "SELECT 1 + 2 * 3, CASE WHEN 1 = 1 THEN 'a' ELSE 'b' END, coalesce(NULL, 3)",
        "
            Result",
    );
}

#[test]
fn other_operators() {
    golden(
        "UPDATE t SET a = a + 1 WHERE id = 3",
        "
            Update on t
              ->  Index Scan using t_pkey on t
                    Index Cond: (id = 3)
                    Lock: row",
    );
    golden(
        "INSERT INTO s (name) VALUES ('x')",
        "
            Insert on s
              ->  Result
                    Calls: nextval
                    Calls: nextval",
    );
    golden(
        "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, c",
        "
            Unique
              ->  Sort
                    Sort Key: a, c
                    ->  Seq Scan on t",
    );
    golden(
        "SELECT a FROM t UNION SELECT t_id FROM u ORDER BY 1 LIMIT 3",
        "
            Limit
              ->  Sort
                    Sort Key: a
                    ->  HashSetOp Union
                          ->  Seq Scan on t
                          ->  Seq Scan on u",
    );
    golden(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT sum(n) FROM r",
        "
            Aggregate
              Aggregates: sum(n)
              CTE 0
                ->  Recursive Union
                      ->  Result
                      ->  CTE Scan on cte 0
                            Filter: (n < 10)
              ->  CTE Scan on cte 0",
    );
    golden(
        "SELECT * FROM u WHERE t_id > 5 ORDER BY t_id DESC",
        "
            Sort
              Sort Key: t_id DESC
              ->  Seq Scan on u
                    Filter: (t_id > 5)",
    );
}

#[test]
fn extremes_read_one_row() {
    golden(
        "SELECT max(id) FROM t",
        "
            Aggregate
              Aggregates: max(id)
              ->  Limit
                    ->  Index Scan Backward using t_pkey on t",
    );
    golden(
        "SELECT min(b) FROM t",
        "
            Aggregate
              Aggregates: min(b)
              ->  Limit
                    ->  Index Only Scan using t_b_key on t
                          Filter: (b IS NOT NULL)",
    );
    golden(
        "SELECT max(a) FROM t WHERE c = 3",
        "
            Aggregate
              Aggregates: max(a)
              ->  Seq Scan on t
                    Filter: (c = 3)",
    );
}

#[test]
fn large_inputs_are_hashed_or_merged() {
    golden(
        "SELECT x.b FROM t x JOIN t y ON x.a = y.id",
        "
            Hash Join
              Hash Cond: (a = id)
              ->  Seq Scan on t
              ->  Seq Scan on t",
    );
    golden(
        "SELECT x.b FROM t x FULL JOIN u ON x.id = u.t_id AND x.a < u.id",
        "
            Hash Full Join
              Hash Cond: (id = t_id)
              Join Filter: (a < id)
              ->  Seq Scan on t
              ->  Seq Scan on u",
    );
    golden(
        "SELECT x.b FROM t x FULL JOIN t y ON x.id = y.id AND x.a < y.c",
        "
            Merge Full Join
              Merge Cond: (id = id)
              Join Filter: (a < c)
              ->  Seq Scan on t
              ->  Seq Scan on t",
    );
    golden(
        "SELECT x.b FROM t x LEFT JOIN t y ON x.a = y.a AND y.c > 5 WHERE x.c < 9",
        "
            Hash Left Join
              Hash Cond: (a = a)
              ->  Seq Scan on t
                    Filter: (c < 9)
              ->  Seq Scan on t
                    Filter: (c > 5)",
    );
}
