//! What the rules do together. The tables are those of `bind::tests`.

use super::*;
use crate::bind::tests::bind;
use crate::explain::{ExplainOptions, Node, describe};
use crate::optimize::{fold, optimize, prune, pushdown, semi};

/// The titles of a plan's operators.
fn titles(sql: &str, options: Options) -> Vec<String> {
    fn collect(node: &Node, titles: &mut Vec<String>) {
        titles.push(node.title.clone());
        node.children.iter().for_each(|child| collect(child, titles));
    }
    let bound = bind(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let plan = optimize(bound.plan, options);
    let mut titles = Vec::new();
    collect(&describe(&plan, &ExplainOptions::default(), &|_| None, &|_| false), &mut titles);
    titles
}

fn without(rules: &[Rule]) -> Options {
    rules.iter().fold(Options::default(), |options, rule| options.without(*rule))
}

#[test]
fn rules_have_names_of_their_own() {
    let mut names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Rule::ALL.len());
    for (number, rule) in Rule::ALL.into_iter().enumerate() {
        assert_eq!(rule as usize, number);
        assert!(Options::default().has(rule) && !Options::default().without(rule).has(rule));
    }
}

#[test]
fn methods_that_are_switched_off_are_not_used_where_others_can_be() {
    let sql = "SELECT x.b FROM t x JOIN t y ON x.a = y.c JOIN u ON u.t_id = y.id";
    let uses = |name: &str, off: &[Rule]| titles(sql, without(off)).iter().any(|title| title.contains(name));
    let (hash, merge, look_up, nested) = (Rule::HashJoin, Rule::MergeJoin, Rule::LookUp, Rule::NestedLoop);
    assert!(!uses("Hash Join", &[hash]));
    assert!(!uses("Merge Join", &[merge]));
    assert!(!uses("Nested Loop", &[look_up, nested]));
    assert!(!uses("Nested Loop", &[look_up, nested, hash]) && uses("Merge Join", &[look_up, nested, hash]));
    assert!(!uses("Nested Loop", &[look_up, nested, merge]) && uses("Hash Join", &[look_up, nested, merge]));
    // Nothing else can be.
    let cross = titles("SELECT 1 FROM t, u", without(&[look_up, nested]));
    assert!(cross.iter().any(|title| title == "Nested Loop"), "{cross:?}");
}

#[test]
fn without_exploration_joins_are_done_as_written() {
    let sql = "SELECT 1 FROM t, u, s WHERE t.id = u.t_id AND u.id = s.gen AND s.qty = 1";
    let tables = |options| {
        let scans = titles(sql, options).into_iter().filter(|title| title.contains(" on "));
        scans.map(|title| title.rsplit(' ').next().unwrap_or_default().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(tables(Options::default()), ["s", "u", "t"]);
    assert_eq!(tables(without(&[Rule::Associate, Rule::Commute])), ["t", "u", "s"]);
}

#[test]
fn an_order_is_kept_or_made_where_it_costs_least() {
    let count =
        |sql: &str, options: Options| titles(sql, options).iter().filter(|title| *title == "Sort").count();
    let none = Options::default();
    assert_eq!(count("SELECT 1 FROM t JOIN u ON u.t_id = t.id ORDER BY u.id LIMIT 5", none), 0);
    assert_eq!(count("SELECT 1 FROM t x LEFT JOIN t y ON x.id = y.id ORDER BY x.id", none), 0);
    assert_eq!(count("SELECT 1 FROM t x JOIN t y ON x.id = y.id ORDER BY y.id DESC", none), 0);
    // Each `id` is there once.
    assert_eq!(count("SELECT 1 FROM t x JOIN t y ON x.id = y.id ORDER BY x.id, y.c", none), 0);
    assert_eq!(count("SELECT 1 FROM t x JOIN t y ON x.id = y.id ORDER BY x.c, y.id", none), 1);
    // What a full join pads is not in the order of either side.
    assert_eq!(count("SELECT 1 FROM t x FULL JOIN t y ON x.id = y.id ORDER BY x.id", none), 1);
    let sorted = without(&[Rule::HashJoin, Rule::NestedLoop, Rule::LookUp]);
    assert_eq!(count("SELECT 1 FROM t x JOIN t y ON x.c = y.c", sorted), 2);
}

/// A block of joins as the memo gets it.
fn normal(sql: &str) -> Plan {
    let mut plan = bind(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).plan;
    fold::fold(&mut plan);
    semi::unnest(&mut plan);
    let mut plan = prune::prune(pushdown::push_down(plan));
    estimate(&mut plan, false);
    plan
}

#[test]
fn searches_are_bounded() {
    let chain = |count: usize, column: &str| {
        let tables: Vec<String> = (0..count).map(|at| format!("t t{at}")).collect();
        let equal: Vec<String> = (1..count).map(|at| format!("t{}.id = t{at}.{column}", at - 1)).collect();
        format!("SELECT 1 FROM {} WHERE {} ORDER BY t1.c", tables.join(", "), equal.join(" AND "))
    };
    // Nine tables that are all equal, nine that are each equal to the next, and forty.
    for (count, column, most_groups) in [(9, "id", 540), (9, "a", 540), (40, "a", 200)] {
        let plan = normal(&chain(count, column));
        let others = Alternatives::explore(&plan, Options::default(), &[]);
        let mut memo = Memo::new(Options::default(), &[]);
        let group = memo.add(&plan, &others);
        memo.recipe(group, Required::ALL);
        let winners: usize = memo.groups.iter().map(|group| group.winners.len()).sum();
        assert!(memo.groups.len() <= most_groups, "{count} {column}: {} groups", memo.groups.len());
        assert!(winners <= 20 * most_groups, "{count} {column}: {winners} winners");
    }
}

#[test]
fn what_a_search_says_of_costs_is_what_is_estimated_in_the_end() {
    for sql in [
        "SELECT x.b FROM t x JOIN t y ON x.a = y.id",
        "SELECT x.b FROM t x JOIN t y ON x.id = y.id",
        "SELECT t.b, u.note FROM t, u WHERE t.id = u.t_id",
        "SELECT x.b FROM t x LEFT JOIN t y ON x.a = y.a AND y.c > 5 WHERE x.c < 9",
        "SELECT t.b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id)",
        "SELECT x.b FROM t x JOIN t y ON x.a = y.id ORDER BY x.c",
    ] {
        let plan = normal(sql);
        let others = Alternatives::explore(&plan, Options::default(), &[]);
        let mut memo = Memo::new(Options::default(), &[]);
        let group = memo.add(&plan, &others);
        let said = memo.best(group, Required::ALL);
        let found = optimize(bind(sql).unwrap().plan, Options::default()).cost;
        assert!((said / found - 1.0).abs() < 0.1, "{sql}: {said} and {found}");
    }
}
