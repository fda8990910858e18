//! Operators over literal rows.

use crate::plan_support::*;
use crate::support::idle_txn;
use sql::plan::expr::{FrameBound, FrameExclusion, FrameUnits, WindowKind};
use sql::plan::*;
use sql_types::{Datum, Type};
use std::sync::Arc;

fn runner() -> Runner {
    Runner::new(idle_txn(), Vec::new())
}

fn boxed(plan: Plan) -> Box<Plan> {
    Box::new(plan)
}

fn join(kind: JoinKind, method: JoinMethod, on: Option<Expr>) -> Plan {
    let left = values(&[[1, 10], [2, 20], [2, 21], [3, 30], [NULL, 40]]);
    let right = values(&[[2, 100], [2, 101], [3, 99], [4, 102], [NULL, 103]]);
    let width = if matches!(kind, JoinKind::Semi | JoinKind::Anti) { 2 } else { 4 };
    plan(PlanKind::Join { kind, method, left: boxed(left), right: boxed(right), on }, width)
}

#[tokio::test]
async fn all_kinds_and_methods_of_join_agree() {
    let expected: [(JoinKind, &[&str]); 6] = [
        (JoinKind::Inner, &["2 20 2 100", "2 20 2 101", "2 21 2 100", "2 21 2 101"]),
        (
            JoinKind::Left,
            &["- 40 - -", "1 10 - -", "2 20 2 100", "2 20 2 101", "2 21 2 100", "2 21 2 101", "3 30 - -"],
        ),
        (
            JoinKind::Right,
            &["- - - 103", "- - 3 99", "- - 4 102", "2 20 2 100", "2 20 2 101", "2 21 2 100", "2 21 2 101"],
        ),
        (
            JoinKind::Full,
            &[
                "- - - 103",
                "- - 3 99",
                "- - 4 102",
                "- 40 - -",
                "1 10 - -",
                "2 20 2 100",
                "2 20 2 101",
                "2 21 2 100",
                "2 21 2 101",
                "3 30 - -",
            ],
        ),
        (JoinKind::Semi, &["2 20", "2 21"]),
        (JoinKind::Anti, &["- 40", "1 10", "3 30"]),
    ];
    for (kind, rows) in expected {
        // Beyond the equality: 99 < right.c1 leaves the pair of 3 out.
        let beyond = less(number(99), column(3));
        let loop_on = Expr::And(vec![equal(column(0), column(2)), beyond.clone()]);
        let looped = runner().sorted(join(kind, JoinMethod::NestedLoop, Some(loop_on))).await;
        assert_eq!(looped, rows, "{kind:?} by nested loop");
        let keys = vec![(column(0), column(0))];
        let hashed = runner().sorted(join(kind, JoinMethod::Hash(keys), Some(beyond.clone()))).await;
        assert_eq!(hashed, rows, "{kind:?} by hash");
        let keys = vec![MergeKey { left: column(0), right: column(0), descending: false }];
        let merged = runner().sorted(join(kind, JoinMethod::Merge(keys), Some(beyond))).await;
        assert_eq!(merged, rows, "{kind:?} by merging");
    }
}

/// Rows of two small numbers that are NULL now and then, and their number.
fn generated(count: i32, seed: i32) -> Plan {
    let value = |n: i32| if n % 7 == 0 { NULL } else { n % 5 };
    let row = |n: i32| [value(n * 31 + seed), value(n * n + n / 3 + seed), n];
    values(&(0..count).map(row).collect::<Vec<_>>())
}

#[tokio::test]
async fn merge_joins_agree_with_hash_joins() {
    let kinds =
        [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];
    // How many rows there are on both sides, and whether each key is in descending order.
    let inputs =
        [(60, 40, vec![false, true]), (40, 60, vec![true]), (1, 30, vec![false]), (90, 0, vec![true])];
    for (left_rows, right_rows, directions) in inputs {
        for kind in kinds {
            for on in [None, Some(less(column(2), column(5)))] {
                let keys = |at: usize| (column(at), column(1 - at));
                let sorted = |input: Plan, of: &dyn Fn(usize) -> Expr| {
                    let order = directions.iter().enumerate().map(|(at, descending)| {
                        let expr = of(at);
                        SortKey { expr, descending: *descending, nulls_first: *descending }
                    });
                    boxed(plan(PlanKind::Sort { input: boxed(input), keys: order.collect(), limit: None }, 3))
                };
                let width = if matches!(kind, JoinKind::Semi | JoinKind::Anti) { 3 } else { 6 };
                let make = |method, left, right| {
                    plan(PlanKind::Join { kind, method, left, right, on: on.clone() }, width)
                };
                let (left, right) = (generated(left_rows, 1), generated(right_rows, 4));
                let pairs = (0..directions.len()).map(keys).collect();
                let hashed = make(JoinMethod::Hash(pairs), boxed(left.clone()), boxed(right.clone()));
                let hashed = runner().sorted(hashed).await;
                let pairs = directions.iter().enumerate().map(|(at, descending)| {
                    let (left, right) = keys(at);
                    MergeKey { left, right, descending: *descending }
                });
                let method = JoinMethod::Merge(pairs.collect());
                let left = sorted(left, &|at| keys(at).0);
                let right = sorted(right, &|at| keys(at).1);
                let merged = make(method, left, right);
                let what = format!("{kind:?} of {left_rows} and {right_rows}, {directions:?}, {on:?}");
                assert_eq!(runner().sorted(merged.clone()).await, hashed, "{what}");
                // A few rows at a time are the first of them.
                let all = runner().rows(merged.clone()).await;
                let limit = Some(Expr::Const(Datum::Int8(3), Type::INT8));
                let few = plan(PlanKind::Limit { input: boxed(merged), limit, offset: None }, width);
                assert_eq!(runner().rows(few).await, all[..all.len().min(3)], "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_lateral_join_sees_the_left_row() {
    let outer = Expr::Outer { depth: 0, index: 0, ty: Type::INT4 };
    let right =
        plan(PlanKind::Values(vec![vec![plus(outer.clone(), number(1))], vec![plus(outer, number(2))]]), 1);
    for (kind, expected) in [
        (JoinKind::Inner, vec!["1 2", "1 3", "5 6", "5 7"]),
        (JoinKind::Left, vec!["1 2", "1 3", "5 6", "5 7"]),
        (JoinKind::Semi, vec!["1", "5"]),
        (JoinKind::Anti, vec![]),
    ] {
        let left = boxed(values(&[[1], [5]]));
        let right = boxed(right.clone());
        let width = if matches!(kind, JoinKind::Semi | JoinKind::Anti) { 1 } else { 2 };
        let join = PlanKind::Join { kind, method: JoinMethod::Lateral, left, right, on: None };
        assert_eq!(runner().rows(plan(join, width)).await, expected, "{kind:?}");
    }
}

#[tokio::test]
async fn joins_of_nothing() {
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full] {
        let merge = vec![MergeKey { left: column(0), right: column(0), descending: false }];
        let hash = vec![(column(0), column(0))];
        for method in [JoinMethod::NestedLoop, JoinMethod::Hash(hash), JoinMethod::Merge(merge)] {
            let some = || boxed(values(&[[1]]));
            let none = || boxed(values::<1>(&[]));
            let make =
                |left, right| plan(PlanKind::Join { kind, method: method.clone(), left, right, on: None }, 2);
            let right = runner().rows(make(none(), some())).await;
            let left = runner().rows(make(some(), none())).await;
            let keeps_left = matches!(kind, JoinKind::Left | JoinKind::Full);
            let keeps_right = matches!(kind, JoinKind::Right | JoinKind::Full);
            assert_eq!(left, if keeps_left { vec!["1 -"] } else { vec![] }, "{kind:?} {method:?}");
            assert_eq!(right, if keeps_right { vec!["- 1"] } else { vec![] }, "{kind:?} {method:?}");
        }
    }
}

fn aggregate(input: Plan, groups: Vec<Expr>, sets: Vec<Vec<usize>>, aggregates: Vec<AggregateCall>) -> Plan {
    let width = groups.len() + aggregates.len() + usize::from(sets.len() > 1);
    plan(PlanKind::Aggregate { input: boxed(input), groups, sets, aggregates }, width)
}

#[tokio::test]
async fn aggregates_group_filter_order_and_skip_nulls() {
    let input = || values(&[[1, 5], [2, 7], [1, 3], [NULL, 1], [1, NULL], [1, 3]]);
    let mut ordered = array_agg(column(1));
    ordered.order = vec![descending(column(1))];
    let mut distinct = array_agg(column(1));
    distinct.distinct = true;
    distinct.order = vec![ascending(column(1))];
    let mut filtered = count(vec![]);
    filtered.filter = Some(less(column(1), number(5)));
    let calls = vec![count(vec![]), count(vec![column(1)]), ordered, distinct, filtered];
    assert_eq!(
        runner().rows(aggregate(input(), vec![column(0)], vec![vec![0]], calls)).await,
        ["1 4 3 {-,5,3,3} {3,5,-} 2", "2 1 1 {7} {7} 0", "- 1 1 {1} {1} 1"]
    );
    let nothing = || values::<2>(&[]);
    assert_eq!(runner().rows(aggregate(nothing(), vec![], vec![vec![]], vec![count(vec![])])).await, ["0"]);
    let grouped = aggregate(nothing(), vec![column(0)], vec![vec![0]], vec![count(vec![])]);
    assert!(runner().rows(grouped).await.is_empty());
}

#[tokio::test]
async fn grouping_sets_say_what_they_leave_out() {
    let input = values(&[[1, 5], [2, 5], [1, 5]]);
    let sets = vec![vec![0, 1], vec![1], vec![]];
    let rows = runner().sorted(aggregate(input, vec![column(0), column(1)], sets, vec![count(vec![])])).await;
    assert_eq!(rows, ["- - 3 3", "- 5 3 2", "1 5 2 0", "2 5 1 0"]);
}

#[tokio::test]
async fn sort_orders_nulls_and_cuts() {
    let sort = |key: SortKey, limit: Option<i64>| {
        let limit = limit.map(|limit| Expr::Const(Datum::Int8(limit), Type::INT8));
        let input = boxed(values(&[[3, 1], [NULL, 2], [1, 3], [3, 4], [2, 5]]));
        plan(PlanKind::Sort { input, keys: vec![key], limit }, 2)
    };
    assert_eq!(runner().rows(sort(ascending(column(0)), None)).await, ["1 3", "2 5", "3 1", "3 4", "- 2"]);
    assert_eq!(runner().rows(sort(descending(column(0)), Some(3))).await, ["- 2", "3 1", "3 4"]);
}

#[tokio::test]
async fn limit_and_offset() {
    let big = |value| Some(Expr::Const(Datum::Int8(value), Type::INT8));
    let limit = |limit, offset| {
        let input = boxed(values(&[[1], [2], [3], [4], [5]]));
        plan(PlanKind::Limit { input, limit, offset }, 1)
    };
    assert_eq!(runner().rows(limit(big(2), big(1))).await, ["2", "3"]);
    assert_eq!(runner().rows(limit(None, big(4))).await, ["5"]);
    assert!(runner().rows(limit(big(0), None)).await.is_empty());
    assert!(runner().rows(limit(None, big(9))).await.is_empty());
    assert_eq!(runner().error(limit(big(-1), None)).await.code.as_str(), "2201W");
    assert_eq!(runner().error(limit(None, big(-1))).await.code.as_str(), "2201X");
}

#[tokio::test]
async fn set_operations() {
    let left = || boxed(values(&[[1], [1], [2], [NULL], [NULL], [4]]));
    let right = || boxed(values(&[[1], [3], [NULL], [4], [4]]));
    for (kind, all, expected) in [
        (SetOpKind::Union, false, vec!["-", "1", "2", "3", "4"]),
        (SetOpKind::Union, true, vec!["-", "-", "-", "1", "1", "1", "2", "3", "4", "4", "4"]),
        (SetOpKind::Intersect, false, vec!["-", "1", "4"]),
        (SetOpKind::Intersect, true, vec!["-", "1", "4"]),
        (SetOpKind::Except, false, vec!["2"]),
        (SetOpKind::Except, true, vec!["-", "1", "2"]),
    ] {
        let rows =
            runner().sorted(plan(PlanKind::SetOp { kind, all, left: left(), right: right() }, 1)).await;
        assert_eq!(rows, expected, "{kind:?} all: {all}");
    }
}

#[tokio::test]
async fn distinct_and_distinct_on() {
    let input = || boxed(values(&[[1, 1], [1, 2], [1, 1], [2, 9]]));
    let distinct = |on| plan(PlanKind::Distinct { input: input(), on }, 2);
    assert_eq!(runner().rows(distinct(vec![])).await, ["1 1", "1 2", "2 9"]);
    assert_eq!(runner().rows(distinct(vec![column(0)])).await, ["1 1", "2 9"]);
}

#[tokio::test]
async fn recursion_runs_until_nothing_is_new() {
    let step = |limit| {
        let scan = boxed(plan(PlanKind::CteScan { cte: 7 }, 1));
        let predicate = less(column(0), number(limit));
        let filter = boxed(plan(PlanKind::Filter { input: scan, predicate }, 1));
        boxed(plan(PlanKind::Project { input: filter, exprs: vec![plus(column(0), number(1))] }, 1))
    };
    let recursive = PlanKind::Recursive { cte: 7, base: boxed(values(&[[1]])), step: step(5), all: true };
    assert_eq!(runner().rows(plan(recursive, 1)).await, ["1", "2", "3", "4", "5"]);
    // UNION ends a cycle.
    let scan = boxed(plan(PlanKind::CteScan { cte: 7 }, 1));
    let cycle = PlanKind::Recursive { cte: 7, base: boxed(values(&[[1], [1]])), step: scan, all: false };
    assert_eq!(runner().rows(plan(cycle, 1)).await, ["1"]);
    // One that never ends meets the memory bound.
    let mut bounded = runner();
    bounded.memory_bytes = 100_000;
    let scan = |cte| boxed(plan(PlanKind::CteScan { cte }, 1));
    let both = PlanKind::SetOp { kind: SetOpKind::Union, all: true, left: scan(7), right: scan(7) };
    let endless =
        PlanKind::Recursive { cte: 7, base: boxed(values(&[[1]])), step: boxed(plan(both, 1)), all: true };
    assert_eq!(bounded.error(plan(endless, 1)).await.code.as_str(), "53200");
}

#[tokio::test]
async fn common_table_expressions_are_shared() {
    let scan = || boxed(plan(PlanKind::CteScan { cte: 1 }, 1));
    let body = plan(PlanKind::SetOp { kind: SetOpKind::Union, all: true, left: scan(), right: scan() }, 1);
    let with = PlanKind::With { ctes: vec![(1, values(&[[4], [5]]))], body: boxed(body) };
    assert_eq!(runner().rows(plan(with, 1)).await, ["4", "5", "4", "5"]);
}

#[tokio::test]
async fn subqueries_are_three_valued() {
    let outer = || Expr::Outer { depth: 0, index: 0, ty: Type::INT4 };
    let inner = |rows: &[[i32; 1]]| Arc::new(values(rows));
    let quantified = |rows: &[[i32; 1]], any| SubPlan::Quantified {
        plan: inner(rows),
        test: equal(column(0), column(1)),
        any,
    };
    let subplans = vec![
        (SubPlan::Scalar(Arc::new(plan(PlanKind::Values(vec![vec![plus(outer(), number(10))]]), 1))), false),
        (SubPlan::Exists(inner(&[[1]])), true),
        (SubPlan::Exists(inner(&[])), true),
        (quantified(&[[1], [2]], true), true),
        (quantified(&[[1], [NULL]], true), false),
        (quantified(&[], true), true),
        (quantified(&[[1], [NULL]], false), true),
        (SubPlan::Array(inner(&[[8], [9]])), true),
    ];
    let width = 1 + subplans.len();
    let apply = PlanKind::Apply { input: boxed(values(&[[1], [3], [NULL]])), subplans };
    assert_eq!(
        runner().rows(plan(apply, width)).await,
        [
            "1 11 true false true true false - {8,9}",
            "3 13 true false false - false false {8,9}",
            "- - true false - - false - {8,9}",
        ]
    );
    let several = PlanKind::Apply {
        input: boxed(values(&[[1]])),
        subplans: vec![(SubPlan::Scalar(inner(&[[1], [2]])), true)],
    };
    assert_eq!(runner().error(plan(several, 2)).await.code.as_str(), "21000");
}

fn window(
    order: Vec<SortKey>,
    units: FrameUnits,
    start: FrameBound,
    end: FrameBound,
    exclusion: FrameExclusion,
) -> Plan {
    let input = values(&[[1, 1], [1, 2], [1, 2], [1, 4], [2, 7]]);
    let call = WindowCall {
        kind: WindowKind::Aggregate(array_agg(column(1))),
        partition: vec![column(0)],
        order,
        frame: frame(units, start, end, exclusion),
        ty: Type::INT4_ARRAY,
    };
    plan(PlanKind::Window { input: boxed(input), calls: vec![call] }, 3)
}

#[tokio::test]
async fn window_frames() {
    use FrameBound::*;
    use FrameExclusion as Exclude;
    use FrameUnits::*;
    let big = |value| Expr::Const(Datum::Int8(value), Type::INT8);
    let by = || vec![ascending(column(1))];
    let frames = |plan| async {
        runner().rows(plan).await.into_iter().map(|row| row[4..].to_string()).collect::<Vec<_>>()
    };
    let case = |units, start, end, exclude| frames(window(by(), units, start, end, exclude));
    assert_eq!(
        case(Range, UnboundedPreceding, CurrentRow, Exclude::None).await,
        ["{1}", "{1,2,2}", "{1,2,2}", "{1,2,2,4}", "{7}"]
    );
    assert_eq!(
        case(Rows, UnboundedPreceding, CurrentRow, Exclude::None).await,
        ["{1}", "{1,2}", "{1,2,2}", "{1,2,2,4}", "{7}"]
    );
    assert_eq!(
        case(Rows, Preceding(big(1)), Following(big(1)), Exclude::CurrentRow).await,
        ["{2}", "{1,2}", "{2,4}", "{2}", "{}"]
    );
    assert_eq!(
        case(Groups, Preceding(big(1)), CurrentRow, Exclude::None).await,
        ["{1}", "{1,2,2}", "{1,2,2}", "{2,2,4}", "{7}"]
    );
    assert_eq!(
        case(Range, CurrentRow, UnboundedFollowing, Exclude::Group).await,
        ["{2,2,4}", "{4}", "{4}", "{}", "{}"]
    );
    assert_eq!(
        case(Range, CurrentRow, UnboundedFollowing, Exclude::Ties).await,
        ["{1,2,2,4}", "{2,4}", "{2,4}", "{4}", "{7}"]
    );
    assert_eq!(
        case(Rows, Following(big(1)), Following(big(2)), Exclude::None).await,
        ["{2,2}", "{2,4}", "{4}", "{}", "{}"]
    );
    // Without an order all rows of the partition are peers.
    assert_eq!(
        frames(window(vec![], Range, UnboundedPreceding, CurrentRow, Exclude::None)).await,
        ["{1,2,2,4}", "{1,2,2,4}", "{1,2,2,4}", "{1,2,2,4}", "{7}"]
    );
    let negative = window(by(), Rows, Preceding(big(-1)), CurrentRow, Exclude::None);
    assert_eq!(runner().error(negative).await.code.as_str(), "22013");
}

#[tokio::test]
async fn window_frames_by_distance_of_values() {
    use FrameBound::*;
    let near = |order: fn(Expr) -> SortKey, start, end| {
        window(vec![order(column(1))], FrameUnits::Range, start, end, FrameExclusion::None)
    };
    let frames = |plan| async {
        runner().rows(plan).await.into_iter().map(|row| row[4..].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        frames(near(ascending, Preceding(number(1)), Following(number(2)))).await,
        ["{1,2,2}", "{1,2,2,4}", "{1,2,2,4}", "{4}", "{7}"]
    );
    assert_eq!(
        frames(near(descending, Preceding(number(2)), CurrentRow)).await,
        ["{4}", "{4,2,2}", "{4,2,2}", "{2,2,1}", "{7}"]
    );
}

#[tokio::test]
async fn memory_is_bounded() {
    let mut runner = runner();
    runner.memory_bytes = 1000;
    let rows: Vec<[i32; 1]> = (0..100).map(|n| [n]).collect();
    let sort = PlanKind::Sort { input: boxed(values(&rows)), keys: vec![ascending(column(0))], limit: None };
    assert_eq!(runner.error(plan(sort, 1)).await.code.as_str(), "53200");
}

#[tokio::test]
async fn parameters_and_conditions() {
    let runner = runner();
    let predicate = Expr::Or(vec![
        equal(column(0), Expr::Param(0, Type::INT4)),
        Expr::IsNull(Box::new(column(0)), false),
        Expr::InList(Box::new(column(0)), vec![number(7), null()], false),
    ]);
    let filter = PlanKind::Filter { input: boxed(values(&[[1], [2], [NULL], [7]])), predicate };
    let (rows, affected) = runner.run(plan(filter, 1), &[Datum::Int4(2)]).await.unwrap();
    assert_eq!((rows.as_slice(), affected), (&["2", "-", "7"].map(String::from)[..], None));
    let missing = PlanKind::Filter {
        input: boxed(values(&[[1]])),
        predicate: equal(column(0), Expr::Param(3, Type::INT4)),
    };
    assert_eq!(runner.error(plan(missing, 1)).await.code.as_str(), "42P02");
}
