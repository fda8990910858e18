//! Stored tables: scans through indexes, INSERT, UPDATE, DELETE and their constraints.

use crate::plan_support::*;
use crate::support::idle_txn;
use sql::catalog::descriptor::*;
use sql::exec::{CancelFlag, ExecContext, MemoryBudget, execute_over};
use sql::plan::*;
use sql_types::functions::EvalContext;
use sql_types::{Datum, SqlError, Type};
use std::sync::Arc;

/// `t (a primary key, b, c)` with a unique index on b and an index on c.
fn indexed() -> TableDescriptor {
    let mut t = table(1000, "t", &["a", "b", "c"]);
    t.indexes.push(index(2, "t_b_key", true, &[2]));
    t.indexes.push(index(3, "t_c_idx", false, &[3]));
    t
}

fn runner(tables: Vec<TableDescriptor>) -> Runner {
    Runner::new(idle_txn(), tables)
}

fn ids(table: &TableDescriptor) -> Vec<ColumnId> {
    table.columns.iter().map(|column| column.id).collect()
}

struct Scan {
    index: IndexId,
    access: IndexAccess,
    columns: Vec<ColumnId>,
    reverse: bool,
    filter: Option<Expr>,
}

fn scan(runner: &Runner, name: &str, how: Scan) -> Plan {
    let width = how.columns.len();
    let kind = PlanKind::Scan {
        table: runner.table(name),
        index: how.index,
        access: how.access,
        columns: how.columns,
        filter: how.filter,
        reverse: how.reverse,
        lock: None,
        limit: None,
        fence: Default::default(),
    };
    plan(kind, width)
}

fn everything(runner: &Runner, name: &str) -> Plan {
    let columns = ids(&runner.table(name));
    scan(
        runner,
        name,
        Scan { index: 1, access: IndexAccess::default(), columns, reverse: false, filter: None },
    )
}

fn insert<const N: usize>(runner: &Runner, name: &str, rows: &[[i32; N]]) -> PlanKind {
    PlanKind::Insert {
        table: runner.table(name),
        input: Box::new(values(rows)),
        targets: ids(&runner.table(name)).into_iter().take(N).collect(),
        defaults: Vec::new(),
        checks: Arc::default(),
        on_conflict: None,
        returning: None,
        policies: None,
    }
}

async fn fill<const N: usize>(runner: &Runner, name: &str, rows: &[[i32; N]]) -> u64 {
    runner.run(plan(insert(runner, name, rows), 0), &[]).await.expect("an insert").1.expect("a count")
}

fn update(runner: &Runner, name: &str, assignments: Vec<(ColumnId, Expr)>, filter: Option<Expr>) -> Plan {
    let table = runner.table(name);
    let columns = ids(&table);
    let access = IndexAccess::default();
    let input = Box::new(scan(runner, name, Scan { index: 1, access, columns, reverse: false, filter }));
    plan(
        PlanKind::Update {
            table,
            input,
            assignments,
            checks: Arc::default(),
            returning: None,
            policies: None,
        },
        0,
    )
}

fn delete(runner: &Runner, name: &str, filter: Option<Expr>) -> Plan {
    let table = runner.table(name);
    let columns = ids(&table);
    let access = IndexAccess::default();
    let input = Box::new(scan(runner, name, Scan { index: 1, access, columns, reverse: false, filter }));
    plan(PlanKind::Delete { table, input, returning: None }, 0)
}

async fn affected(runner: &Runner, plan: Plan) -> u64 {
    runner.run(plan, &[]).await.expect("a change").1.expect("a count")
}

/// Code, message, detail and constraint.
fn told(error: &SqlError) -> [String; 4] {
    let extra = error.extra().cloned().unwrap_or_default();
    let text = |part: Option<String>| part.unwrap_or_default();
    [error.code.as_str().to_string(), error.message.clone(), text(extra.detail), text(extra.constraint)]
}

/// What index `id` gives, and that it agrees with the table itself.
async fn through_index(runner: &Runner, name: &str, id: IndexId) -> Vec<String> {
    let columns = ids(&runner.table(name));
    let by_index = scan(
        runner,
        name,
        Scan { index: id, access: IndexAccess::default(), columns, reverse: false, filter: None },
    );
    let found = runner.rows(by_index).await;
    let mut sorted = found.clone();
    sorted.sort();
    assert_eq!(sorted, runner.sorted(everything(runner, name)).await, "index {id} disagrees with the table");
    found
}

async fn indexes_agree(runner: &Runner, name: &str) {
    for index in runner.table(name).indexes.clone() {
        through_index(runner, name, index.id).await;
    }
}

#[tokio::test]
async fn scans_read_the_part_they_are_told() {
    let runner = runner(vec![indexed()]);
    let rows = [[1, 10, 5], [2, 20, 5], [3, 30, 6], [-4, 40, NULL], [5, NULL, 7]];
    assert_eq!(fill(&runner, "t", &rows).await, 5);
    assert_eq!(
        runner.rows(everything(&runner, "t")).await,
        ["-4 40 -", "1 10 5", "2 20 5", "3 30 6", "5 - 7"]
    );
    assert_eq!(through_index(&runner, "t", 3).await, ["1 10 5", "2 20 5", "3 30 6", "5 - 7", "-4 40 -"]);

    let part = |index, access, reverse, columns: &[u32]| {
        let columns = columns.to_vec();
        runner.rows(scan(&runner, "t", Scan { index, access, columns, reverse, filter: None }))
    };
    let point = |value| IndexAccess { prefix: vec![number(value)], ..Default::default() };
    assert_eq!(part(1, point(2), false, &[3, 1]).await, ["5 2"]);
    assert!(part(1, point(9), false, &[1]).await.is_empty());
    assert_eq!(part(2, point(40), false, &[1, 2, 3]).await, ["-4 40 -"]);
    assert_eq!(part(3, point(5), true, &[1]).await, ["2", "1"]);
    let nothing = IndexAccess { prefix: vec![null()], ..Default::default() };
    assert!(part(1, nothing, false, &[1]).await.is_empty());

    let array = Expr::Const(
        Datum::array(Type::INT4, vec![Datum::Int4(1), Datum::Null, Datum::Int4(3)]),
        Type::INT4_ARRAY,
    );
    let alternatives =
        || IndexAccess { in_list: vec![number(3), array.clone(), number(8)], ..Default::default() };
    assert_eq!(part(1, alternatives(), false, &[1]).await, ["1", "3"]);
    assert_eq!(part(1, alternatives(), true, &[1]).await, ["3", "1"]);
    let fives = IndexAccess { in_list: vec![number(6), number(5)], ..Default::default() };
    assert_eq!(part(3, fives, false, &[1]).await, ["1", "2", "3"]);

    let bound = |value: i32, inclusive| Some(ScanBound { value: number(value), inclusive });
    let range = |lower, upper| IndexAccess { lower, upper, ..Default::default() };
    assert_eq!(part(1, range(bound(1, false), bound(5, false)), false, &[1]).await, ["2", "3"]);
    assert_eq!(part(1, range(bound(1, true), bound(5, true)), true, &[1]).await, ["5", "3", "2", "1"]);
    assert_eq!(part(1, range(None, bound(1, false)), false, &[1]).await, ["-4"]);
    // NULL lies in no range.
    assert_eq!(part(3, range(bound(6, true), None), false, &[3]).await, ["6", "7"]);
    assert!(part(1, range(bound(5, true), bound(1, true)), false, &[1]).await.is_empty());
}

#[tokio::test]
async fn many_rows_come_in_pages() {
    let runner = runner(vec![indexed()]);
    let rows: Vec<[i32; 3]> = (0..5000).map(|n| [n, 10_000 - n, n % 7]).collect();
    assert_eq!(fill(&runner, "t", &rows).await, 5000);
    assert_eq!(runner.rows(everything(&runner, "t")).await.len(), 5000);
    let columns = vec![1];
    let access = IndexAccess { prefix: vec![number(3)], ..Default::default() };
    let filter = Some(less(column(0), number(100)));
    let few = scan(&runner, "t", Scan { index: 3, access, columns, reverse: true, filter });
    let expected: Vec<String> = (0..100).rev().filter(|n| n % 7 == 3).map(|n| n.to_string()).collect();
    assert_eq!(runner.rows(few).await, expected);
    assert_eq!(affected(&runner, update(&runner, "t", vec![(3, number(1))], None)).await, 5000);
    assert_eq!(affected(&runner, delete(&runner, "t", Some(less(column(0), number(4990))))).await, 4990);
    indexes_agree(&runner, "t").await;
}

#[tokio::test]
async fn duplicates_are_refused_in_postgres_words() {
    for implicit_commit in [false, true] {
        let mut runner = runner(vec![indexed()]);
        runner.implicit_commit = implicit_commit;
        fill(&runner, "t", &[[1, 10, 5]]).await;
        let error = runner.error(plan(insert(&runner, "t", &[[1, 11, 0]]), 0)).await;
        assert_eq!(
            told(&error),
            [
                "23505",
                "duplicate key value violates unique constraint \"t_pkey\"",
                "Key (a)=(1) already exists.",
                "t_pkey"
            ]
        );
        assert_eq!(error.extra().unwrap().table.as_deref(), Some("t"));
        assert_eq!(error.extra().unwrap().schema.as_deref(), Some("public"));
        let error = runner.error(plan(insert(&runner, "t", &[[2, 20, 0], [3, 10, 0]]), 0)).await;
        assert_eq!(told(&error)[2], "Key (b)=(10) already exists.");
        let error = runner.error(plan(insert(&runner, "t", &[[7, 70, 0], [7, 71, 0]]), 0)).await;
        assert_eq!(told(&error)[3], "t_pkey");
    }
    let runner = runner(vec![indexed()]);
    // NULLs are not duplicates of each other.
    assert_eq!(fill(&runner, "t", &[[1, NULL, 0], [2, NULL, 0]]).await, 2);
    // Many rows at once are written on condition.
    let many: Vec<[i32; 3]> = (0..200).map(|n| [n + 2, n + 500, 0]).collect();
    let error = runner.error(plan(insert(&runner, "t", &many), 0)).await;
    assert_eq!(told(&error)[2], "Key (a)=(2) already exists.");
}

#[tokio::test]
async fn not_null_and_check_are_refused() {
    let runner = runner(vec![indexed()]);
    let error = runner.error(plan(insert(&runner, "t", &[[NULL, 1, 2]]), 0)).await;
    assert_eq!(
        told(&error)[..3],
        [
            "23502",
            "null value in column \"a\" of relation \"t\" violates not-null constraint",
            "Failing row contains (null, 1, 2)."
        ]
    );
    let PlanKind::Insert { table, input, targets, defaults, on_conflict, returning, .. } =
        insert(&runner, "t", &[[1, 5, 3], [2, NULL, 3]])
    else {
        panic!("not an insert")
    };
    let positive = RowCheck { name: "t_b_check".into(), expr: less(number(6), column(1)), domain: None };
    let checks = Arc::new(vec![positive]);
    let checked =
        PlanKind::Insert { table, input, targets, defaults, on_conflict, returning, checks, policies: None };
    let error = runner.error(plan(checked, 0)).await;
    assert_eq!(
        told(&error),
        [
            "23514",
            "new row for relation \"t\" violates check constraint \"t_b_check\"",
            "Failing row contains (1, 5, 3).",
            "t_b_check"
        ]
    );
}

#[tokio::test]
async fn updates_move_rows_and_index_entries() {
    let runner = runner(vec![indexed()]);
    fill(&runner, "t", &[[1, 10, 5], [2, 20, 5], [3, 30, 6]]).await;
    // Every key moves onto the next one.
    assert_eq!(affected(&runner, update(&runner, "t", vec![(1, plus(column(0), number(1)))], None)).await, 3);
    assert_eq!(runner.rows(everything(&runner, "t")).await, ["2 10 5", "3 20 5", "4 30 6"]);
    indexes_agree(&runner, "t").await;
    assert_eq!(affected(&runner, update(&runner, "t", vec![(3, column(0))], None)).await, 3);
    assert_eq!(through_index(&runner, "t", 3).await, ["2 10 2", "3 20 3", "4 30 4"]);
    let clash = update(&runner, "t", vec![(2, number(30))], Some(equal(column(0), number(2))));
    assert_eq!(told(&runner.error(clash).await)[2], "Key (b)=(30) already exists.");
}

#[tokio::test]
async fn an_update_does_not_meet_its_own_rows() {
    let runner = runner(vec![indexed()]);
    fill(&runner, "t", &[[1, 10, 5], [2, 20, 6], [3, 30, 7]]).await;
    let table = runner.table("t");
    let columns = ids(&table);
    let access = IndexAccess::default();
    let input =
        Box::new(scan(&runner, "t", Scan { index: 3, access, columns, reverse: false, filter: None }));
    let assignments = vec![(3, plus(column(2), number(100)))];
    let through_c = PlanKind::Update {
        table,
        input,
        assignments,
        checks: Arc::default(),
        returning: None,
        policies: None,
    };
    assert_eq!(affected(&runner, plan(through_c, 0)).await, 3);
    assert_eq!(through_index(&runner, "t", 3).await, ["1 10 105", "2 20 106", "3 30 107"]);
    // INSERT … SELECT from the same table ends.
    let table = runner.table("t");
    let exprs = vec![plus(column(0), number(10)), null(), column(2)];
    let source = Box::new(everything(&runner, "t"));
    let input = Box::new(plan(PlanKind::Project { input: source, exprs }, 3));
    let PlanKind::Insert { targets, defaults, checks, .. } = insert(&runner, "t", &[[1, 1, 1]]) else {
        panic!("not an insert")
    };
    let copy = PlanKind::Insert {
        table,
        input,
        targets,
        defaults,
        checks,
        on_conflict: None,
        returning: None,
        policies: None,
    };
    assert_eq!(affected(&runner, plan(copy, 0)).await, 3);
    indexes_agree(&runner, "t").await;
}

#[tokio::test]
async fn returning_gives_new_and_old_rows() {
    let runner = runner(vec![indexed()]);
    let returning = |kind: PlanKind, exprs: Vec<Expr>| {
        let (exprs, width) = (Some(exprs.clone()), exprs.len());
        let kind = match kind {
            PlanKind::Insert { table, input, targets, defaults, checks, on_conflict, .. } => {
                PlanKind::Insert {
                    table,
                    input,
                    targets,
                    defaults,
                    checks,
                    on_conflict,
                    returning: exprs,
                    policies: None,
                }
            }
            PlanKind::Update { table, input, assignments, checks, .. } => {
                PlanKind::Update { table, input, assignments, checks, returning: exprs, policies: None }
            }
            PlanKind::Delete { table, input, .. } => PlanKind::Delete { table, input, returning: exprs },
            other => panic!("{other:?}"),
        };
        plan(kind, width)
    };
    let inserted = returning(insert(&runner, "t", &[[1, 10, 5], [2, 20, 6]]), vec![column(2), column(0)]);
    assert_eq!(runner.run(inserted, &[]).await.unwrap(), (vec!["5 1".into(), "6 2".into()], Some(2)));
    let updated =
        returning(update(&runner, "t", vec![(3, number(9))], None).kind, vec![column(0), column(2)]);
    assert_eq!(runner.rows(updated).await, ["1 9", "2 9"]);
    let deleted = returning(delete(&runner, "t", None).kind, vec![plus(column(0), column(2))]);
    assert_eq!(runner.rows(deleted).await, ["10", "11"]);
    assert!(runner.rows(everything(&runner, "t")).await.is_empty());
}

fn upsert<const N: usize>(runner: &Runner, rows: &[[i32; N]], on_conflict: OnConflict) -> Plan {
    let PlanKind::Insert { table, input, targets, defaults, checks, .. } = insert(runner, "t", rows) else {
        panic!("not an insert")
    };
    let returning = Some(vec![column(0), column(1), column(2)]);
    let on_conflict = Some(on_conflict);
    plan(
        PlanKind::Insert { table, input, targets, defaults, checks, on_conflict, returning, policies: None },
        3,
    )
}

#[tokio::test]
async fn on_conflict_does_nothing_or_updates() {
    let runner = runner(vec![indexed()]);
    fill(&runner, "t", &[[1, 10, 5]]).await;
    let nothing = || OnConflict { arbiter: None, update: None };
    let rows = [[1, 11, 0], [2, 10, 0], [3, 30, 0], [3, 31, 0]];
    assert_eq!(runner.rows(upsert(&runner, &rows, nothing())).await, ["3 30 0"]);
    // The existing row is columns 0 to 2, the excluded one 3 to 5.
    let add = |arbiter, condition| OnConflict {
        arbiter: Some(arbiter),
        update: Some(sql::plan::ConflictUpdate::Row {
            assignments: vec![(3, plus(column(2), column(5)))],
            condition,
        }),
    };
    let rows = [[1, 99, 7], [4, 40, 8]];
    assert_eq!(runner.rows(upsert(&runner, &rows, add(1, None))).await, ["1 10 12", "4 40 8"]);
    let by_b = upsert(&runner, &[[77, 40, 100]], add(2, None));
    assert_eq!(runner.rows(by_b).await, ["4 40 108"]);
    let unless = upsert(&runner, &[[1, 99, 7]], add(1, Some(less(column(2), number(0)))));
    assert!(runner.rows(unless).await.is_empty());
    let other = upsert(&runner, &[[5, 40, 0]], add(1, None));
    assert_eq!(told(&runner.error(other).await)[3], "t_b_key");
    let twice = upsert(&runner, &[[6, 60, 0], [6, 61, 0]], add(1, None));
    assert_eq!(runner.error(twice).await.code.as_str(), "21000");
    indexes_agree(&runner, "t").await;
}

/// `parent (id)` and `child (id, parent_id)` with a foreign key.
fn family(on_delete: char, on_update: char, child_index: bool) -> Runner {
    let parent = table(2000, "parent", &["id", "x"]);
    let mut child = table(3000, "child", &["id", "parent_id"]);
    if child_index {
        child.indexes.push(index(2, "child_parent_idx", false, &[2]));
    }
    child.foreign_keys.push(ForeignKeyDescriptor {
        oid: 1,
        name: "child_parent_id_fkey".to_string(),
        columns: vec![2],
        referenced_table: 2000,
        referenced_columns: vec![1],
        on_delete,
        on_update,
        timing: Default::default(),
        validity: Default::default(),
        comment: None,
    });
    runner(vec![parent, child])
}

#[tokio::test]
async fn foreign_keys_hold_on_both_sides() {
    for child_index in [false, true] {
        let runner = family('a', 'a', child_index);
        fill(&runner, "parent", &[[1, 0], [2, 0], [0, 0]]).await;
        fill(&runner, "child", &[[10, 1], [11, NULL]]).await;
        let orphan = runner.error(plan(insert(&runner, "child", &[[12, 7]]), 0)).await;
        assert_eq!(
            told(&orphan),
            [
                "23503",
                "insert or update on table \"child\" violates foreign key constraint \"child_parent_id_fkey\"",
                "Key (parent_id)=(7) is not present in table \"parent\".",
                "child_parent_id_fkey"
            ]
        );
        let moved = runner.error(update(&runner, "child", vec![(2, number(8))], None)).await;
        assert_eq!(moved.code.as_str(), "23503");
        let runner = family('a', 'a', child_index);
        fill(&runner, "parent", &[[1, 0], [2, 0]]).await;
        fill(&runner, "child", &[[10, 1]]).await;
        let used = runner.error(delete(&runner, "parent", None)).await;
        assert_eq!(
            told(&used)[1..3],
            [
                "update or delete on table \"parent\" violates foreign key constraint \"child_parent_id_fkey\" on table \"child\"",
                "Key (id)=(1) is still referenced from table \"child\"."
            ]
        );
        // Columns that nothing refers to may change.
        let runner = family('a', 'a', child_index);
        fill(&runner, "parent", &[[1, 0]]).await;
        fill(&runner, "child", &[[10, 1]]).await;
        assert_eq!(affected(&runner, update(&runner, "parent", vec![(2, number(5))], None)).await, 1);
        let renumbered = runner.error(update(&runner, "parent", vec![(1, number(5))], None)).await;
        assert_eq!(renumbered.code.as_str(), "23503");
    }
}

#[tokio::test]
async fn foreign_key_actions() {
    let all_of_one = |runner: &Runner| delete(runner, "parent", Some(equal(column(0), number(1))));
    for (action, expected) in
        [('c', vec!["12 2"]), ('n', vec!["10 -", "11 -", "12 2"]), ('d', vec!["10 0", "11 0", "12 2"])]
    {
        let runner = family(action, 'c', true);
        fill(&runner, "parent", &[[0, 0], [1, 0], [2, 0]]).await;
        fill(&runner, "child", &[[10, 1], [11, 1], [12, 2]]).await;
        assert_eq!(affected(&runner, all_of_one(&runner)).await, 1);
        assert_eq!(runner.rows(everything(&runner, "child")).await, expected, "ON DELETE {action}");
        let renumber = update(&runner, "parent", vec![(1, number(20))], Some(equal(column(0), number(2))));
        assert_eq!(affected(&runner, renumber).await, 1);
        assert!(runner.rows(everything(&runner, "child")).await.contains(&"12 20".to_string()));
        indexes_agree(&runner, "child").await;
    }
}

#[tokio::test]
async fn a_table_may_refer_to_itself() {
    let mut tree = table(4000, "tree", &["id", "parent"]);
    tree.foreign_keys.push(ForeignKeyDescriptor {
        oid: 1,
        name: "tree_parent_fkey".to_string(),
        columns: vec![2],
        referenced_table: 4000,
        referenced_columns: vec![1],
        on_delete: 'a',
        on_update: 'a',
        timing: Default::default(),
        validity: Default::default(),
        comment: None,
    });
    let runner = runner(vec![tree.clone()]);
    // The row referred to may come later in the same statement, and go in the same statement.
    fill(&runner, "tree", &[[2, 1], [1, NULL], [3, 3]]).await;
    assert_eq!(affected(&runner, delete(&runner, "tree", None)).await, 3);
    tree.foreign_keys[0].on_delete = 'c';
    let runner = self::runner(vec![tree]);
    fill(&runner, "tree", &[[1, NULL], [2, 1], [3, 2], [4, 3], [9, NULL]]).await;
    assert_eq!(affected(&runner, delete(&runner, "tree", Some(equal(column(0), number(1))))).await, 1);
    assert_eq!(runner.rows(everything(&runner, "tree")).await, ["9 -"]);
}

#[tokio::test]
async fn rows_without_key_get_a_number() {
    let mut t = table(5000, "t", &["rowid", "x"]);
    t.columns[0].hidden = true;
    t.columns[0].ty = Type::INT8.into();
    let runner = runner(vec![t]);
    let PlanKind::Insert { table, input, defaults, checks, .. } = insert(&runner, "t", &[[7], [7], [8]])
    else {
        panic!("not an insert")
    };
    let insert = PlanKind::Insert {
        table,
        input,
        targets: vec![2],
        defaults,
        checks,
        on_conflict: None,
        returning: None,
        policies: None,
    };
    assert_eq!(affected(&runner, plan(insert, 0)).await, 3);
    let columns = vec![2];
    let access = IndexAccess::default();
    let all = scan(&runner, "t", Scan { index: 1, access, columns, reverse: false, filter: None });
    assert_eq!(runner.rows(all).await, ["7", "7", "8"]);
}

#[tokio::test]
async fn joins_look_rows_up_by_key() {
    let runner = runner(vec![indexed()]);
    fill(&runner, "t", &[[1, 10, 5], [2, 20, 5], [3, 30, 6]]).await;
    for (index, key, kind, expected) in [
        (1, 0, JoinKind::Inner, vec!["1 0 10", "3 0 30"]),
        (1, 0, JoinKind::Left, vec!["1 0 10", "9 0 -", "3 0 30", "- 0 -"]),
        (2, 0, JoinKind::Inner, vec![]),
    ] {
        let access = IndexAccess {
            prefix: vec![Expr::Outer { depth: 0, index: key, ty: Type::INT4 }],
            ..Default::default()
        };
        let right =
            scan(&runner, "t", Scan { index, access, columns: vec![2], reverse: false, filter: None });
        let left = Box::new(values(&[[1, 0], [9, 0], [3, 0], [NULL, 0]]));
        let join =
            PlanKind::Join { kind, method: JoinMethod::Lateral, left, right: Box::new(right), on: None };
        assert_eq!(runner.rows(plan(join, 3)).await, expected, "index {index}, {kind:?}");
    }
    let access = IndexAccess {
        prefix: vec![Expr::Outer { depth: 0, index: 0, ty: Type::INT4 }],
        ..Default::default()
    };
    let right =
        scan(&runner, "t", Scan { index: 2, access, columns: vec![1, 3], reverse: false, filter: None });
    let left = Box::new(values(&[[30], [10]]));
    let join = PlanKind::Join {
        kind: JoinKind::Inner,
        method: JoinMethod::Lateral,
        left,
        right: Box::new(right),
        on: None,
    };
    assert_eq!(runner.rows(plan(join, 3)).await, ["30 3 6", "10 1 5"]);
    // Through an index that is not unique, several rows each.
    for (kind, width, expected) in [
        (JoinKind::Inner, 2, vec!["6 3", "5 1", "5 2"]),
        (JoinKind::Left, 2, vec!["6 3", "7 -", "5 1", "5 2"]),
        (JoinKind::Semi, 1, vec!["6", "5"]),
        (JoinKind::Anti, 1, vec!["7"]),
    ] {
        let access = IndexAccess {
            prefix: vec![Expr::Outer { depth: 0, index: 0, ty: Type::INT4 }],
            ..Default::default()
        };
        let right =
            scan(&runner, "t", Scan { index: 3, access, columns: vec![1], reverse: false, filter: None });
        let left = Box::new(values(&[[6], [7], [5]]));
        let join =
            PlanKind::Join { kind, method: JoinMethod::Lateral, left, right: Box::new(right), on: None };
        assert_eq!(runner.rows(plan(join, width)).await, expected, "{kind:?}");
    }
}

#[tokio::test]
async fn copied_rows_reach_the_plan() {
    let runner = runner(vec![indexed()]);
    let PlanKind::Insert { table, targets, defaults, checks, .. } = insert(&runner, "t", &[[1, 2, 3]]) else {
        panic!("not an insert")
    };
    let input = Box::new(plan(PlanKind::CteScan { cte: sql::exec::COPY_INPUT }, 3));
    let insert = PlanKind::Insert {
        table,
        input,
        targets,
        defaults,
        checks,
        on_conflict: None,
        returning: None,
        policies: None,
    };
    let insert = Arc::new(plan(insert, 0));
    let deferred = sql::dml::deferred::Deferred::default();
    let (eval, memory, cancel) = (EvalContext::plain(), MemoryBudget::default(), CancelFlag::new());
    let cx = ExecContext {
        txn: &runner.txn,
        before: None,
        eval: &eval,
        params: &[],
        host: &runner.host,
        codecs: &runner.codecs,
        memory: &memory,
        cancel: &cancel,
        stats: None,
        implicit_commit: true,
        read_only: false,
        deferred: &deferred,
        engine: Default::default(),
        partial_aggregates: Default::default(),
    };
    let rows: Vec<Vec<Datum>> = (0..3000).map(|n| [n, n + 1, n % 3].map(Datum::Int4).to_vec()).collect();
    let mut stream = execute_over(&insert, &cx, sql::exec::COPY_INPUT, rows).unwrap();
    assert_eq!(stream.finish(&cx).await.unwrap(), 3000);
    drop(stream);
    indexes_agree(&runner, "t").await;
    cancel.cancel();
    let mut stream =
        execute_over(&insert, &cx, sql::exec::COPY_INPUT, vec![vec![Datum::Int4(-1); 3]; 100]).unwrap();
    assert!(stream.finish(&cx).await.is_err());
}
