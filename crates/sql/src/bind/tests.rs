//! Golden tests over a small catalog: statement to plan, statement to error.

use super::*;
use crate::catalog::descriptor::{
    CheckDescriptor, ColumnDescriptor, IndexDescriptor, PRIMARY_INDEX, TableDescriptor,
};
use crate::explain::{ExplainOptions, Summary, describe, render};
use crate::optimize::{Options, optimize};
use crate::parse;
use crate::statistics::{StatisticsCell, TableStatistics};
use sql_types::{ColumnType, Oid};
use std::collections::HashMap;
use std::sync::Arc;

/// A catalog in memory: schema `public`, and the catalog tables.
pub(crate) struct MemoryCatalog {
    relations: HashMap<String, RelationRef>,
}

fn column(id: u32, name: &str, ty: impl Into<ColumnType>, nullable: bool) -> ColumnDescriptor {
    ColumnDescriptor { nullable, ..ColumnDescriptor::plain(id, name, ty.into()) }
}

fn index(id: u32, oid: Oid, name: &str, unique: bool, columns: &[(u32, bool)]) -> IndexDescriptor {
    IndexDescriptor {
        id,
        oid,
        name: name.to_string(),
        unique,
        constraint: unique,
        columns: columns.to_vec(),
        ..IndexDescriptor::default()
    }
}

fn table(
    oid: Oid,
    name: &str,
    columns: Vec<ColumnDescriptor>,
    indexes: Vec<IndexDescriptor>,
    rows: f64,
) -> TableDescriptor {
    TableDescriptor {
        oid,
        database: 5,
        schema: 2200,
        name: name.to_string(),
        owner: 10,
        version: 1,
        storage: u64::from(oid),
        next_column: columns.len() as u32 + 1,
        columns,
        next_index: indexes.len() as u32 + 1,
        indexes,
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        comment: None,
        placement: Default::default(),
        view: None,
        triggers: Vec::new(),
        security: Default::default(),
        on_commit: Default::default(),
        bound: Default::default(),
        statistics: StatisticsCell::of(TableStatistics { rows, ..TableStatistics::default() }),
    }
}

impl MemoryCatalog {
    pub(crate) fn new() -> Self {
        let varchar = ColumnType { ty: Type::VARCHAR, typmod: 24 };
        let t = table(
            20001,
            "t",
            vec![
                column(1, "id", Type::INT4, false),
                column(2, "a", Type::INT4, true),
                column(3, "b", Type::TEXT, true),
                column(4, "c", Type::INT8, true),
                column(5, "d", Type::TIMESTAMPTZ, true),
            ],
            vec![
                index(PRIMARY_INDEX, 20002, "t_pkey", true, &[(1, false)]),
                index(2, 20003, "t_a_c_idx", false, &[(2, false), (4, false)]),
                index(3, 20004, "t_b_key", true, &[(3, false)]),
            ],
            100_000.0,
        );
        let u = table(
            20010,
            "u",
            vec![
                column(1, "id", Type::INT8, false),
                column(2, "t_id", Type::INT4, true),
                column(3, "note", varchar, true),
                column(4, "tags", Type::TEXT_ARRAY, true),
                column(5, "doc", Type::JSONB, true),
            ],
            vec![
                index(PRIMARY_INDEX, 20011, "u_pkey", true, &[(1, false)]),
                index(2, 20012, "u_t_id_idx", false, &[(2, true)]),
            ],
            1_000.0,
        );
        let mut s = table(
            20020,
            "s",
            vec![
                column(1, "id", Type::INT4, false),
                column(2, "name", Type::TEXT, false),
                column(3, "qty", Type::INT4, true),
                column(4, "made", Type::TIMESTAMPTZ, false),
                column(5, "gen", Type::INT8, false),
            ],
            vec![index(PRIMARY_INDEX, 20021, "s_pkey", true, &[(1, false)])],
            10.0,
        );
        s.columns[0].default = Some("nextval(20030::regclass)".to_string());
        s.columns[0].sequence = Some(20030);
        s.columns[2].default = Some("7".to_string());
        s.columns[3].default = Some("now()".to_string());
        s.columns[4].identity = Some('a');
        s.columns[4].sequence = Some(20031);
        s.checks = vec![CheckDescriptor {
            comment: None,
            oid: 20025,
            name: "s_qty_check".to_string(),
            expr: "qty > 0".to_string(),
            validity: Default::default(),
        }];
        let mut h = table(
            20040,
            "h",
            vec![column(1, "x", Type::INT4, true), column(2, "rowid", Type::INT8, false)],
            vec![index(PRIMARY_INDEX, 20041, "h_pkey", true, &[(2, false)])],
            50.0,
        );
        h.columns[1].hidden = true;
        let v = ViewRef {
            oid: 20050,
            owner: 0,
            columns: Arc::from(vec![
                ("id".to_string(), Type::INT4.into()),
                ("twice".to_string(), Type::INT4.into()),
            ]),
            query: Arc::from("SELECT id, a * 2 FROM t WHERE a IS NOT NULL"),
            search_path: Arc::from(vec!["public".to_string()]),
        };
        let mut relations = HashMap::new();
        for table in [t, u, s, h] {
            relations.insert(table.name.clone(), RelationRef::Table(Arc::new(table)));
        }
        relations.insert("v".to_string(), RelationRef::View(v));
        relations.insert("s_id_seq".to_string(), RelationRef::Sequence(20030, 1));
        relations.insert("t_pkey".to_string(), RelationRef::Other("indexes"));
        MemoryCatalog { relations }
    }

    /// A table by name.
    pub(crate) fn table(&self, name: &str) -> Arc<TableDescriptor> {
        match self.relations.get(name) {
            Some(RelationRef::Table(table)) => table.clone(),
            _ => panic!("no table {name}"),
        }
    }
}

impl CatalogLookup for MemoryCatalog {
    fn relation(&self, schema: Option<&str>, name: &str, _: &[String]) -> SqlResult<Option<RelationRef>> {
        let system = |schema: &str| {
            system_tables().get(format!("{schema}.{name}").as_str()).copied().map(RelationRef::System)
        };
        Ok(match schema {
            Some("public") => self.relations.get(name).cloned(),
            Some(schema) => system(schema),
            None => system("pg_catalog").or_else(|| self.relations.get(name).cloned()),
        })
    }
    fn schema_exists(&self, schema: &str) -> bool {
        matches!(schema, "public" | "pg_catalog" | "information_schema")
    }
    fn database(&self) -> &str {
        "postgres"
    }
    fn schema_name(&self, _: Oid) -> Option<String> {
        Some("public".to_string())
    }
}

/// The catalog tables of PostgreSQL.
fn system_tables() -> &'static HashMap<&'static str, SystemRef> {
    static TABLES: std::sync::OnceLock<HashMap<&'static str, SystemRef>> = std::sync::OnceLock::new();
    TABLES.get_or_init(|| {
        let text: &'static str = include_str!("../system/data/tables.txt");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                let mut words = line.split(' ');
                let name = words.next().unwrap();
                let oid = words.next().unwrap().parse().unwrap();
                let columns: Vec<(&'static str, Type)> = words
                    .skip(1)
                    .map(|column| {
                        let (name, ty) = column.split_once(':').unwrap();
                        (name, Type::by_name(ty).unwrap_or(Type::TEXT))
                    })
                    .collect();
                (name, SystemRef { name, oid, columns: columns.leak() })
            })
            .collect()
    })
}

/// Knows names of tables, for `regclass`.
struct Names;

impl sql_types::functions::CatalogFunctions for Names {
    fn reg_in(&self, kind: sql_types::functions::RegKind, name: &str) -> SqlResult<Option<Oid>> {
        if kind != sql_types::functions::RegKind::Class {
            return Ok(Some(1));
        }
        let name = name.trim_start_matches("pg_catalog.");
        Ok(match name {
            "s_id_seq" => Some(20030),
            "v" => Some(20050),
            _ => system_tables().get(format!("pg_catalog.{name}").as_str()).map(|table| table.oid),
        })
    }
}

/// Binds with declared parameter types.
pub(crate) fn bind_with(sql: &str, param_types: &[Type]) -> SqlResult<Bound> {
    bind_in(&MemoryCatalog::new(), sql, param_types)
}

/// Binds over a catalog.
pub(crate) fn bind_in(catalog: &MemoryCatalog, sql: &str, param_types: &[Type]) -> SqlResult<Bound> {
    let path = ["public".to_string()];
    let mut eval = EvalContext::plain();
    eval.text.catalog = &Names;
    let context = BindContext {
        catalog,
        search_path: &path,
        eval: &eval,
        param_types,
        variables: None,
        user: 0,
        row_security: true,
    };
    bind_statement(&parse::parse_one(sql)?, &context)
}

pub(crate) fn bind(sql: &str) -> SqlResult<Bound> {
    bind_with(sql, &[])
}

/// The optimized plan as text.
pub(crate) fn plan(sql: &str) -> String {
    let bound = match bind(sql) {
        Ok(bound) => bound,
        Err(error) => panic!("{sql}: {error:?}"),
    };
    let options = ExplainOptions { costs: false, ..ExplainOptions::default() };
    let plan = optimize(bound.plan, Options::default());
    render(&describe(&plan, &options, &|_| None, &|_| false), &options, &Summary::default()).join("\n")
}

fn types(sql: &str) -> Vec<String> {
    let bound = bind(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    bound.plan.columns.iter().map(|column| format!("{} {}", column.name, column.ty.ty)).collect()
}

fn params(sql: &str) -> Vec<Type> {
    bind(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).param_types
}

#[track_caller]
fn fails(sql: &str, code: &str, message: &str) -> SqlError {
    match bind(sql) {
        Ok(_) => panic!("{sql}: bound"),
        Err(error) => {
            assert_eq!((error.code.as_str(), error.message.as_str()), (code, message), "{sql}");
            error
        }
    }
}

fn position(error: &SqlError) -> Option<u32> {
    error.extra().and_then(|extra| extra.position)
}

#[test]
fn names_of_output_columns() {
    let names = |sql: &str| -> Vec<String> {
        bind(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
            .plan
            .columns
            .iter()
            .map(|c| c.name.to_string())
            .collect()
    };
    assert_eq!(names("SELECT 1, 'x', 1 + 1, -1"), ["?column?", "?column?", "?column?", "?column?"]);
    assert_eq!(names("SELECT now(), 1::int, 'a'::text, int '5'"), ["now", "int4", "text", "int4"]);
    assert_eq!(
        names("SELECT CASE WHEN true THEN 1 END, coalesce(1, 2), ARRAY[1], ROW(1, 2)"),
        ["case", "coalesce", "array", "row"]
    );
    assert_eq!(
        names("SELECT t.id, t.id::int8, id AS \"Id\", (SELECT a FROM t LIMIT 1) FROM t"),
        ["id", "id", "Id", "a"]
    );
    assert_eq!(
        names(
            "SELECT extract(year FROM d), substring(b, 1), b COLLATE \"C\", current_user, EXISTS (SELECT 1) FROM t"
        ),
        ["extract", "substring", "b", "current_user", "exists"]
    );
    assert_eq!(
        names("SELECT * FROM t JOIN u USING (id)"),
        ["id", "a", "b", "c", "d", "t_id", "note", "tags", "doc"]
    );
    assert_eq!(names("VALUES (1, 2)"), ["column1", "column2"]);
    assert_eq!(names("SELECT true, x FROM h"), ["bool", "x"]);
}

#[test]
fn types_of_output_columns() {
    assert_eq!(
        types("SELECT 1, 3000000000, 1.5, 'x', null"),
        ["?column? integer", "?column? bigint", "?column? numeric", "?column? text", "?column? text"]
    );
    assert_eq!(
        types("SELECT id + c, a / 2, b || 'x', count(*), sum(a), avg(a) FROM t GROUP BY id"),
        ["?column? bigint", "?column? integer", "?column? text", "count bigint", "sum bigint", "avg numeric"]
    );
    assert_eq!(types("SELECT 1 UNION SELECT 2.5"), ["?column? numeric"]);
    assert_eq!(
        types("SELECT ARRAY[1, 2], ARRAY['a'], (ARRAY[1, 2])[1], (ARRAY[1,2])[1:1]"),
        ["array integer[]", "array text[]", "array integer", "array integer[]"]
    );
    assert_eq!(
        types("SELECT note, tags[1], doc -> 'a', doc ->> 'b' FROM u"),
        ["note character varying", "tags text", "?column? jsonb", "?column? text"]
    );
    assert_eq!(
        types("SELECT unnest(tags), generate_series(1, 3) FROM u"),
        ["unnest text", "generate_series integer"]
    );
    assert_eq!(
        types("SELECT greatest(1, 2.5), least('a', 'b'), nullif(a, 3) FROM t"),
        ["greatest numeric", "least text", "nullif integer"]
    );
}

#[test]
fn types_of_parameters() {
    assert_eq!(params("SELECT * FROM t WHERE id = $1"), [Type::INT4]);
    assert_eq!(
        params("SELECT * FROM t WHERE id = $1 AND b LIKE $2 LIMIT $3"),
        [Type::INT4, Type::TEXT, Type::INT8]
    );
    assert_eq!(
        params("INSERT INTO u (id, note, tags) VALUES ($1, $2, $3)"),
        [Type::INT8, Type::VARCHAR, Type::TEXT_ARRAY]
    );
    assert_eq!(params("SELECT * FROM t WHERE (a, b) > ($1, $2)"), [Type::INT4, Type::TEXT]);
    assert_eq!(params("SELECT * FROM t WHERE (id, c) IN (($1, $2), (3, 4))"), [Type::INT4, Type::INT8]);
    assert_eq!(params("SELECT ROW($1, 2)"), [Type::TEXT]);
    assert_eq!(params("SELECT $1"), [Type::TEXT]);
    assert_eq!(params("SELECT $1::int, $2 + 1"), [Type::INT4, Type::INT4]);
    assert_eq!(params("UPDATE t SET a = $1 WHERE id = ANY ($2)"), [Type::INT4, Type::INT4_ARRAY]);
    assert_eq!(params("SELECT * FROM t WHERE id IN ($1, $2)"), [Type::INT4, Type::INT4]);
    assert_eq!(
        params("INSERT INTO t (id, a) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM t WHERE id = $1)"),
        [Type::INT4, Type::INT4]
    );
    assert_eq!(bind_with("SELECT * FROM t WHERE id = $1", &[Type::INT8]).unwrap().param_types, [Type::INT8]);
    fails(
        "SELECT * FROM t WHERE $1 IS NULL AND $3 = 1",
        "42P18",
        "could not determine data type of parameter $2",
    );
}

#[test]
fn errors_have_code_words_and_position() {
    assert_eq!(position(&fails("SELECT * FROM nope", "42P01", "relation \"nope\" does not exist")), Some(15));
    assert_eq!(position(&fails("SELECT nope FROM t", "42703", "column \"nope\" does not exist")), Some(8));
    let error = fails("SELECT t.idd FROM t", "42703", "column t.idd does not exist");
    assert_eq!(
        error.extra().unwrap().hint.as_deref(),
        Some("Perhaps you meant to reference the column \"t.id\".")
    );
    fails("SELECT id FROM t, u", "42702", "column reference \"id\" is ambiguous");
    fails("SELECT x.id FROM t", "42P01", "missing FROM-clause entry for table \"x\"");
    fails("SELECT t.id FROM t AS q", "42P01", "invalid reference to FROM-clause entry for table \"t\"");
    fails("SELECT * FROM t, t", "42712", "table name \"t\" specified more than once");
    fails("SELECT nofunc(1)", "42883", "function nofunc(integer) does not exist");
    let error =
        fails("SELECT * FROM t WHERE id = 'x'", "22P02", "invalid input syntax for type integer: \"x\"");
    assert_eq!(position(&error), Some(28));
    fails("SELECT 1 + true", "42883", "operator does not exist: integer + boolean");
    fails(
        "SELECT a, count(*) FROM t",
        "42803",
        "column \"t.a\" must appear in the GROUP BY clause or be used in an aggregate function",
    );
    fails("SELECT 1 FROM t WHERE count(*) > 1", "42803", "aggregate functions are not allowed in WHERE");
    fails("SELECT sum(count(*)) FROM t", "42803", "aggregate function calls cannot be nested");
    fails(
        "SELECT 1 FROM t WHERE row_number() OVER () = 1",
        "42P20",
        "window functions are not allowed in WHERE",
    );
    fails("SELECT * FROM t WHERE a", "42804", "argument of WHERE must be type boolean, not type integer");
    fails("SELECT 'abc'::int", "22P02", "invalid input syntax for type integer: \"abc\"");
    fails("INSERT INTO t (id) VALUES (1, 2)", "42601", "INSERT has more expressions than target columns");
    fails("INSERT INTO t (id, a) VALUES (1)", "42601", "INSERT has more target columns than expressions");
    fails("INSERT INTO t (id, id) VALUES (1, 2)", "42701", "column \"id\" specified more than once");
    fails("INSERT INTO t (zz) VALUES (1)", "42703", "column \"zz\" of relation \"t\" does not exist");
    fails(
        "INSERT INTO t (a) VALUES (true)",
        "42804",
        "column \"a\" is of type integer but expression is of type boolean",
    );
    fails("INSERT INTO s (gen) VALUES (1)", "428C9", "cannot insert a non-DEFAULT value into column \"gen\"");
    fails(
        "INSERT INTO t VALUES (1) ON CONFLICT (a) DO NOTHING",
        "42P10",
        "there is no unique or exclusion constraint matching the ON CONFLICT specification",
    );
    fails("UPDATE t SET a = 1, a = 2", "42601", "multiple assignments to same column \"a\"");
    fails("SELECT * FROM t ORDER BY 9", "42P10", "ORDER BY position 9 is not in select list");
    fails(
        "SELECT DISTINCT a FROM t ORDER BY b",
        "42P10",
        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
    );
    fails("SELECT 1 UNION SELECT 1, 2", "42601", "each UNION query must have the same number of columns");
    fails("SELECT (SELECT 1, 2)", "42601", "subquery must return only one column");
    fails("SELECT * FROM (SELECT 1)", "42601", "subquery in FROM must have an alias");
    fails("SELECT * FROM t_pkey", "42809", "cannot open relation \"t_pkey\"");
    fails("SELECT row_number() FROM t", "42809", "window function row_number requires an OVER clause");
    fails("SELECT $0", "42P02", "there is no parameter $0");
    fails("SELECT 1 FROM t GROUP BY a FOR UPDATE", "0A000", "FOR UPDATE is not allowed with GROUP BY clause");
    assert_eq!(
        position(&fails("SELECT 1 FROM t WHERE )", "42601", "syntax error at or near \")\"")),
        Some(23)
    );
    assert_eq!(position(&fails("SELECT (1", "42601", "syntax error at end of input")), Some(10));
}

#[test]
fn deep_statements_are_refused() {
    let run = || {
        for depth in [1000usize, 20_000] {
            let refused = |sql: &str| {
                let error = bind(sql).unwrap_err();
                assert_eq!(error.code.as_str(), "54001", "{} {error}", &sql[..40]);
            };
            refused(&format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth)));
            refused(&format!("{}1{}", "SELECT (".repeat(depth), ")".repeat(depth)));
            refused(&format!("SELECT {} true", "NOT ".repeat(depth)));
            refused(&format!("SELECT 1{}", " + 1".repeat(depth.max(3000))));
        }
        let ors = format!("SELECT 1 FROM t WHERE id = 0{}", " OR id = 1".repeat(450));
        bind(&ors).unwrap();
        let sum = format!("SELECT 1{}", " + 1".repeat(900));
        optimize(bind(&sum).unwrap().plan, Options::default());
        let nested = format!("SELECT {}1{}", "(".repeat(90), ")".repeat(90));
        optimize(bind(&nested).unwrap().plan, Options::default());
        let subqueries = format!("{}1{}", "SELECT (".repeat(40), ")".repeat(40));
        optimize(bind(&subqueries).unwrap().plan, Options::default());
    };
    // The stack of a runtime's worker.
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn functional_dependency_on_the_primary_key() {
    bind("SELECT id, b, count(*) FROM t GROUP BY id").unwrap();
    bind("SELECT t.*, count(u.id) FROM t LEFT JOIN u ON u.t_id = t.id GROUP BY t.id ORDER BY t.b").unwrap();
    fails(
        "SELECT b FROM t GROUP BY a",
        "42803",
        "column \"t.b\" must appear in the GROUP BY clause or be used in an aggregate function",
    );
    fails(
        "SELECT (SELECT max(u.id) FROM u WHERE u.t_id = t.a) FROM t GROUP BY b",
        "42803",
        "subquery uses ungrouped column \"t.a\" from outer query",
    );
}

#[test]
fn much_binds() {
    let mut failures = Vec::new();
    for sql in [
        "SELECT a, sum(c) FILTER (WHERE b > 'x'), string_agg(DISTINCT b, ',' ORDER BY b) FROM t GROUP BY 1 HAVING count(*) > 1 ORDER BY 2 DESC NULLS LAST",
        "SELECT a, b, grouping(a, b), count(*) FROM t GROUP BY GROUPING SETS ((a), (b), ()) ORDER BY 1",
        "SELECT a, count(*) FROM t GROUP BY ROLLUP (a, b)",
        "SELECT a AS x FROM t GROUP BY x, CUBE (b, c)",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t",
        "SELECT row_number() OVER w, sum(a) OVER (w ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING), lag(b, 1, 'z') OVER (PARTITION BY a ORDER BY c DESC) FROM t WINDOW w AS (PARTITION BY a ORDER BY id)",
        "SELECT a, sum(sum(c)) OVER (ORDER BY a) FROM t GROUP BY a",
        "WITH x AS (SELECT 1 AS n), y(m) AS (SELECT n + 1 FROM x) SELECT * FROM x, y",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT sum(n) FROM r",
        "WITH d AS (DELETE FROM h WHERE x = 1 RETURNING x) INSERT INTO h SELECT x + 1 FROM d RETURNING *",
        "SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.t_id = t.id ORDER BY u.id LIMIT 1) AS l",
        "SELECT * FROM t LEFT JOIN LATERAL generate_series(1, t.a) AS g(n) ON true",
        "SELECT * FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY AS x(v, n)",
        "SELECT * FROM ROWS FROM (generate_series(1, 2), unnest(ARRAY['a'])) AS z(p, q)",
        "SELECT * FROM jsonb_to_recordset('[{\"a\": 1}]') AS x(a int, b text)",
        "SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v(n, s) NATURAL JOIN (SELECT 1 AS n) AS w",
        "SELECT * FROM t FULL JOIN u USING (id) RIGHT JOIN s ON s.id = t.id",
        "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, c DESC",
        "SELECT b FROM t ORDER BY a + c, id DESC LIMIT 10 OFFSET 5",
        "SELECT a FROM t FETCH FIRST 3 ROWS ONLY",
        "SELECT id FROM t WHERE a = 1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
        "SELECT * FROM t JOIN u ON u.t_id = t.id FOR SHARE OF t NOWAIT",
        "SELECT * FROM t WHERE id = 1 FOR NO KEY UPDATE",
        "SELECT * FROM ONLY t, u FOR UPDATE OF t, u NOWAIT",
        "SELECT * FROM t WHERE b LIKE ANY (ARRAY['a%', 'b%'])",
        "SELECT * FROM t WHERE (a, c) = (1, 2) OR (a, c) < (3, 4) OR (a, b) IN ((1, 'x'), (2, 'y')) OR (id, a) IN (SELECT t_id, 1 FROM u)",
        "SELECT a = ANY (SELECT t_id FROM u), c > ALL (ARRAY[1, 2]), b = SOME ('{a,b}') FROM t",
        "SELECT ARRAY(SELECT id FROM u WHERE u.t_id = t.id ORDER BY 1) FROM t",
        "SELECT CASE a WHEN 1 THEN 'x' WHEN 2 THEN b ELSE NULL END FROM t",
        "SELECT a BETWEEN SYMMETRIC 3 AND 1, b NOT LIKE 'x%' ESCAPE '!', b ILIKE 'Q', b SIMILAR TO 'a|b', b ~ '^x', b !~* 'y' FROM t",
        "SELECT a IS DISTINCT FROM c, (a > 1) IS NOT TRUE, (a > 1) IS UNKNOWN, b IS NOT NULL FROM t",
        "SELECT d AT TIME ZONE 'UTC', extract(epoch FROM d), date_trunc('day', d), d + interval '1 day', date '2020-01-01' + 3 FROM t",
        "SELECT trim(both 'x' from b), trim(b), position('a' in b), substring(b from 2 for 3), overlay(b placing 'z' from 1), upper(b) FROM t",
        "SELECT current_date, current_timestamp, localtimestamp(0), current_user, session_user, current_schema, current_catalog",
        "SELECT t FROM t",
        "SELECT row_to_json(t), count(t.*), (t).a FROM t GROUP BY t.id",
        "SELECT nextval('s_id_seq'), currval('s_id_seq'::regclass), setval('s_id_seq', 5)",
        "SELECT last_value FROM s_id_seq",
        "SELECT * FROM v WHERE id = 3",
        "SELECT t.tableoid::regclass FROM t",
        "SELECT b COLLATE pg_catalog.default FROM t WHERE b OPERATOR(pg_catalog.~) '^(x)$'",
        "SELECT pg_catalog.length(\"t\".\"b\") FROM public.t",
        "SELECT public.t.id, postgres.public.t.a FROM postgres.public.t",
        "SELECT generate_series(1, a) + 1, unnest(ARRAY[b]) FROM t ORDER BY 1",
        "SELECT (x).key, (x).value FROM (SELECT jsonb_each(doc) AS x FROM u) AS q",
        "SELECT count(*) FROM generate_series(1, 10)",
        "SELECT * FROM now() AS n",
        "SELECT -9223372036854775808, 2 ^ 3, 5 % 2, 7 # 1, ~1, @ -5, |/ 4",
        "TABLE t",
        "(SELECT 1) UNION ALL (SELECT 2 ORDER BY 1 LIMIT 1) ORDER BY 1 LIMIT 5",
        "SELECT 1 WHERE 1<-1 OR 2>-3",
        "SELECT a FROM t EXCEPT SELECT t_id FROM u INTERSECT SELECT 3",
        "SELECT FROM t",
        "SELECT DISTINCT a, b FROM t ORDER BY b, a",
        "INSERT INTO s (name) VALUES ('x'), ('y') RETURNING id, qty * 2 AS q",
        "INSERT INTO s (id, name, qty) VALUES (DEFAULT, 'x', 3), (5, 'y', DEFAULT)",
        "INSERT INTO s DEFAULT VALUES",
        "INSERT INTO s (name, gen) OVERRIDING SYSTEM VALUE VALUES ('x', 3)",
        "INSERT INTO t SELECT id, a + 1 FROM t WHERE id > 5",
        "INSERT INTO t AS q (id, a) VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET a = excluded.a + q.a, b = DEFAULT WHERE q.a < excluded.a RETURNING *",
        "INSERT INTO t (id) VALUES (1) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING",
        "INSERT INTO t (id) VALUES ((SELECT max(id) + 1 FROM t))",
        "UPDATE t SET a = a + 1, (b, c) = ('x', 5) WHERE id = 3 RETURNING id, a",
        "UPDATE t SET (a, b) = (SELECT u.t_id, note FROM u WHERE u.t_id = t.id LIMIT 1), d = DEFAULT",
        "UPDATE t AS x SET a = u.t_id FROM u WHERE u.t_id = x.id RETURNING x.*, u.note",
        "DELETE FROM t USING u WHERE t.id = u.t_id AND u.note = 'x' RETURNING t.*",
        "DELETE FROM t WHERE id IN (SELECT t_id FROM u)",
        "DELETE FROM h",
        "SELECT make_interval(days => 3)",
        "SELECT format('%s-%s', VARIADIC ARRAY['a', 'b'])",
        "SELECT concat_ws(',', 'a', b, 1) FROM t",
        "SELECT tags[1:2], tags[2], doc #>> '{a,b}', doc @> '{\"a\": 1}', doc ? 'x', tags && ARRAY['q'] FROM u",
        "SELECT max(id), min(b) FROM t WHERE d > now() - interval '1 day'",
        "SELECT * FROM information_schema.tables WHERE table_schema = 'public'",
    ] {
        match bind(sql) {
            Ok(bound) => {
                let columns = bound.plan.columns.len();
                let plan = optimize(bound.plan, Options::default());
                assert_eq!(plan.columns.len(), columns, "{sql}");
                check_columns(&plan, sql);
            }
            Err(error) => failures.push(format!("{sql}: {error}")),
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Every column reference of a plan must exist.
fn check_columns(plan: &crate::plan::Plan, sql: &str) {
    let mut plan = plan.clone();
    check_levels(&mut plan, &mut Vec::new(), sql);
}

fn check_levels(plan: &mut crate::plan::Plan, outer: &mut Vec<usize>, sql: &str) {
    use crate::plan::{JoinKind, JoinMethod, PlanKind};
    let width = match &plan.kind {
        PlanKind::Filter { input, .. }
        | PlanKind::Project { input, .. }
        | PlanKind::ProjectSet { input, .. }
        | PlanKind::Aggregate { input, .. }
        | PlanKind::Window { input, .. }
        | PlanKind::Sort { input, .. }
        | PlanKind::Distinct { input, .. } => input.columns.len(),
        PlanKind::Update { input, .. } | PlanKind::Delete { input, .. } => input.columns.len(),
        PlanKind::Scan { columns, .. } => {
            assert_eq!(columns.len(), plan.columns.len(), "{sql}");
            columns.len()
        }
        PlanKind::Join { left, right, .. } => left.columns.len() + right.columns.len(),
        PlanKind::Apply { input, subplans } => {
            input.columns.len()
                + subplans.iter().filter_map(|(sub, _)| sub.plan()).map(|p| p.columns.len()).sum::<usize>()
        }
        PlanKind::Insert { table, .. } => 2 * table.columns.len(),
        _ => 0,
    };
    if let PlanKind::Join { kind, left, right, .. } = &plan.kind {
        let expected = match kind {
            JoinKind::Semi | JoinKind::Anti => left.columns.len(),
            _ => left.columns.len() + right.columns.len(),
        };
        assert_eq!(plan.columns.len(), expected, "{sql}: join");
    }
    plan.for_each_expr_mut(&mut |expr| {
        expr.visit(&mut |part| match part {
            Expr::Column(index, _) => assert!(*index < width, "{sql}: column {index} of {width}"),
            Expr::Outer { depth, index, .. } => {
                let level =
                    outer.len().checked_sub(depth + 1).unwrap_or_else(|| panic!("{sql}: outer {depth}"));
                assert!(*index < outer[level], "{sql}: outer column {index} of {}", outer[level]);
            }
            Expr::Param(_, Type::UNKNOWN) => panic!("{sql}: untyped parameter"),
            _ => {}
        });
    });
    let own = match &plan.kind {
        PlanKind::Apply { input, .. } => input.columns.len(),
        PlanKind::Join { method: JoinMethod::Lateral, left, .. } => left.columns.len(),
        _ => 0,
    };
    plan.for_each_child_mut(&mut |child, inner| {
        if inner {
            outer.push(own);
        }
        check_levels(child, outer, sql);
        if inner {
            outer.pop();
        }
    });
}

#[test]
fn what_tools_ask_binds() {
    let mut failures = Vec::new();
    for text in [include_str!("../parse/testdata/psql.sql"), include_str!("../parse/testdata/tools.sql")] {
        for sql in text.split("\n----\n") {
            let statements = match parse::parse(sql) {
                Ok(statements) => statements,
                Err(error) => {
                    failures.push(format!("{error}\n{sql}"));
                    continue;
                }
            };
            for statement in statements.iter().filter(|statement| statement.kind == StatementKind::Query) {
                match bind(&statement.text) {
                    Ok(bound) => check_columns(&optimize(bound.plan, Options::default()), sql),
                    // Tables of the tool itself.
                    Err(error) if error.message.contains("pgbench_") => {}
                    Err(error) => failures.push(format!("{error}\n{sql}")),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n=====\n"));
}
