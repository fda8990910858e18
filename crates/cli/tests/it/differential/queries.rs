//! Generated queries, each from a seed of its own.

use super::expressions::{Expressions, Kind};
use super::schema::TABLES;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// A query and how its answers are compared.
pub struct Query {
    /// The statement.
    pub text: String,
    /// Its rows come in one order only.
    pub ordered: bool,
    /// Errors of evaluation cannot depend on the order in which things are evaluated.
    pub straight: bool,
}

const AGGREGATES: &[(&str, &[Kind])] = &[
    ("count", &[Kind::Integer, Kind::Text, Kind::Date, Kind::Jsonb, Kind::Integers]),
    ("sum", &[Kind::Smallint, Kind::Integer, Kind::Bigint, Kind::Numeric, Kind::Double, Kind::Interval]),
    ("avg", &[Kind::Smallint, Kind::Integer, Kind::Bigint, Kind::Numeric, Kind::Double]),
    (
        "min",
        &[
            Kind::Integer,
            Kind::Numeric,
            Kind::Text,
            Kind::Date,
            Kind::Timestamptz,
            Kind::Interval,
            Kind::Integers,
        ],
    ),
    ("max", &[Kind::Bigint, Kind::Double, Kind::Text, Kind::Timestamp, Kind::Smallint, Kind::Integers]),
    ("bool_and", &[Kind::Boolean]),
    ("bool_or", &[Kind::Boolean]),
    ("stddev", &[Kind::Integer, Kind::Numeric, Kind::Bigint]),
    ("var_pop", &[Kind::Smallint, Kind::Numeric]),
    ("bit_or", &[Kind::Integer]),
];

/// The query of a seed.
pub fn query(seed: u64) -> Query {
    let mut rng = StdRng::seed_from_u64(seed);
    match rng.random_range(0..10) {
        0 | 1 => scalars(&mut rng),
        2..=4 => Select::new(&mut rng, 3).rows(),
        5 | 6 => Select::new(&mut rng, 2).groups(),
        7 => Select::new(&mut rng, 1).windows(),
        8 => set_operation(&mut rng),
        _ => nested(&mut rng),
    }
}

/// Expressions over one table, without anything that decides which rows are seen.
fn scalars(rng: &mut StdRng) -> Query {
    let columns = TABLES[0].columns.iter().map(|(name, kind)| (name.to_string(), *kind)).collect();
    let mut expressions = Expressions { rng, columns };
    let kind = expressions.kind();
    let text = format!("select {} from wide order by id", expressions.expr(kind, 3));
    // What has a constant NULL for an argument may be folded to NULL, or fail before that.
    let straight = !text.contains("null::");
    Query { text, ordered: true, straight }
}

struct Select<'r> {
    expressions: Expressions<'r>,
    from: String,
}

impl<'r> Select<'r> {
    /// Of up to so many joined tables.
    fn new(rng: &'r mut StdRng, tables: usize) -> Self {
        let mut select =
            Select { expressions: Expressions { rng, columns: Vec::new() }, from: String::new() };
        let count = select.expressions.rng.random_range(1..=tables);
        for number in 0..count {
            select.join(number);
        }
        select
    }

    fn join(&mut self, number: usize) {
        let Some(table) = TABLES.choose(self.expressions.rng) else { return };
        let alias = format!("t{number}");
        let columns = table.columns.iter().map(|(name, kind)| (format!("{alias}.{name}"), *kind));
        let earlier = self.expressions.columns.len();
        self.expressions.columns.extend(columns);
        if number == 0 {
            self.from = format!("{} {alias}", table.name);
            return;
        }
        let join = ["join", "left join", "right join", "full join", "cross join"];
        let join = join.choose(self.expressions.rng).copied().unwrap_or("join");
        let on = if join == "cross join" { String::new() } else { format!(" on {}", self.equality(earlier)) };
        self.from = format!("{} {join} {} {alias}{on}", self.from, table.name);
    }

    /// A condition that joins the last table to those before: FULL JOIN takes only equalities.
    fn equality(&mut self, earlier: usize) -> String {
        let (before, after) = self.expressions.columns.split_at(earlier);
        let pairs: Vec<String> = before
            .iter()
            .flat_map(|left| after.iter().filter(|right| right.1 == left.1).map(move |right| (left, right)))
            .map(|(left, right)| format!("{} = {}", left.0, right.0))
            .collect();
        pairs.choose(self.expressions.rng).cloned().unwrap_or_else(|| "t0.id = t1.id".to_string())
    }

    fn condition(&mut self) -> String {
        if self.expressions.rng.random_bool(0.4) {
            return String::new();
        }
        if self.expressions.rng.random_bool(0.2) {
            return format!(" where {}", self.subquery_condition());
        }
        format!(" where {}", self.expressions.condition(2))
    }

    fn subquery_condition(&mut self) -> String {
        let outer = self.expressions.expr(Kind::Integer, 1);
        match self.expressions.rng.random_range(0..6) {
            0 => format!("{outer} in (select i from other where i is not null)"),
            1 => format!("{outer} not in (select i from other)"),
            2 => format!("exists (select 1 from other o where o.i = {outer})"),
            3 => format!("not exists (select 1 from other o where o.i = {outer} and o.b)"),
            4 => format!("{outer} > any (select i from other)"),
            _ => format!("{outer} = (select max(o.i) from other o where o.id <= {outer})"),
        }
    }

    fn outputs(&mut self, least: usize) -> Vec<String> {
        let count = self.expressions.rng.random_range(least..4);
        (0..count)
            .map(|_| {
                let kind = self.expressions.kind();
                self.expressions.expr(kind, 2)
            })
            .collect()
    }

    /// Orders by all of so many columns, and takes some rows, or does neither.
    fn tail(&mut self, columns: usize) -> (String, bool) {
        let rng = &mut self.expressions.rng;
        if rng.random_bool(0.5) {
            return (String::new(), false);
        }
        let directions = ["", " desc", " nulls first", " desc nulls last"];
        let keys: Vec<String> = (1..=columns)
            .map(|column| format!("{column}{}", directions.choose(rng).copied().unwrap_or("")))
            .collect();
        let limit = match rng.random_range(0..3) {
            0 => String::new(),
            1 => format!(" limit {}", rng.random_range(0..8)),
            _ => format!(" limit {} offset {}", rng.random_range(1..9), rng.random_range(0..5)),
        };
        (format!(" order by {}{limit}", keys.join(", ")), true)
    }

    fn rows(mut self) -> Query {
        let outputs = self.outputs(1);
        let distinct = if self.expressions.rng.random_bool(0.2) { "distinct " } else { "" };
        let condition = self.condition();
        let (tail, ordered) = self.tail(outputs.len());
        let text = format!("select {distinct}{} from {}{condition}{tail}", outputs.join(", "), self.from);
        Query { text, ordered, straight: false }
    }

    fn aggregate(&mut self) -> String {
        let (name, kinds) =
            AGGREGATES.choose(self.expressions.rng).copied().unwrap_or(("count", &[Kind::Integer]));
        let kind = kinds.choose(self.expressions.rng).copied().unwrap_or(Kind::Integer);
        if name == "count" && self.expressions.rng.random_bool(0.3) {
            return "count(*)".to_string();
        }
        let distinct = if self.expressions.rng.random_bool(0.15) { "distinct " } else { "" };
        let argument = self.expressions.expr(kind, 1);
        let filter = match self.expressions.rng.random_bool(0.2) {
            true => format!(" filter (where {})", self.expressions.condition(1)),
            false => String::new(),
        };
        format!("{name}({distinct}{argument}){filter}")
    }

    fn groups(mut self) -> Query {
        let keys: Vec<String> = (0..self.expressions.rng.random_range(0..3))
            .map(|_| {
                let kind = self.expressions.kind();
                let key = format!("({})", self.expressions.expr(kind, 1));
                // Constants are no keys: GROUP BY takes them for positions, and PostgreSQL 15 does not make them
                // NULL where a grouping set leaves them out.
                if key.contains("t0.") { key } else { "(t0.id)".to_string() }
            })
            .collect();
        let mut outputs = keys.clone();
        for _ in 0..self.expressions.rng.random_range(1..4) {
            let aggregate = self.aggregate();
            outputs.push(aggregate);
        }
        let condition = self.condition();
        let grouping = match (keys.is_empty(), self.expressions.rng.random_range(0..8)) {
            (true, _) => String::new(),
            (false, 0) => format!(" group by rollup ({})", keys.join(", ")),
            (false, 1) => format!(" group by cube ({})", keys.join(", ")),
            (false, _) => format!(" group by {}", keys.join(", ")),
        };
        let having = match self.expressions.rng.random_bool(0.2) {
            true => " having count(*) > 1".to_string(),
            false => String::new(),
        };
        let (tail, ordered) = self.tail(outputs.len());
        let text =
            format!("select {} from {}{condition}{grouping}{having}{tail}", outputs.join(", "), self.from);
        Query { text, ordered, straight: false }
    }

    fn windows(mut self) -> Query {
        let key = self.expressions.expr(Kind::Text, 1);
        let order = self.expressions.expr(Kind::Integer, 1);
        let frames = [
            "",
            " rows between 1 preceding and 1 following",
            " range between 2 preceding and current row",
            " groups between 1 preceding and current row",
            " rows unbounded preceding",
        ];
        let frame = frames.choose(self.expressions.rng).copied().unwrap_or("");
        // Rows, and frames by rows, need one order only: the primary key decides.
        let by_value = frame.contains("range");
        let tie = if by_value { "" } else { ", t0.id" };
        let window = format!("(partition by {key} order by {order}{tie}{frame})");
        let argument = self.expressions.expr(Kind::Integer, 1);
        let functions = [
            format!("sum({argument})"),
            format!("avg({argument})"),
            format!("count({argument})"),
            format!("max({argument})"),
            "rank()".to_string(),
            "dense_rank()".to_string(),
            "cume_dist()".to_string(),
        ];
        let positional = [
            "row_number()".to_string(),
            format!("lag({argument})"),
            format!("lead({argument}, 2, 0)"),
            format!("first_value({argument})"),
            "ntile(3)".to_owned(),
        ];
        let all: Vec<&String> = match by_value {
            true => functions.iter().collect(),
            false => functions.iter().chain(&positional).collect(),
        };
        let function = all.choose(self.expressions.rng).map_or("count(*)", |name| name.as_str());
        let condition = self.condition();
        let text =
            format!("select t0.id, {function} over {window} from {}{condition} order by 1, 2", self.from);
        Query { text, ordered: true, straight: false }
    }
}

/// Two selects of the same kinds.
fn set_operation(rng: &mut StdRng) -> Query {
    let kinds: Vec<Kind> =
        (0..rng.random_range(1..3)).filter_map(|_| super::expressions::KINDS.choose(rng).copied()).collect();
    let operators = ["union", "union all", "intersect", "intersect all", "except", "except all"];
    let operator = operators.choose(rng).copied().unwrap_or("union");
    let mut side = || {
        let mut select = Select::new(rng, 1);
        let outputs: Vec<String> = kinds.iter().map(|kind| select.expressions.expr(*kind, 1)).collect();
        let condition = select.condition();
        format!("select {} from {}{condition}", outputs.join(", "), select.from)
    };
    let text = format!("{} {operator} {}", side(), side());
    Query { text, ordered: false, straight: false }
}

/// A query over another one, as a subquery or a common table expression.
fn nested(rng: &mut StdRng) -> Query {
    let cte = rng.random_bool(0.5);
    let grouped = rng.random_bool(0.5);
    let mut inner = Select::new(rng, 2);
    let key = inner.expressions.expr(Kind::Integer, 1);
    let other = if grouped { inner.aggregate() } else { inner.expressions.expr(Kind::Text, 1) };
    let condition = inner.condition();
    let group = if grouped { " group by 1" } else { "" };
    let body = format!("select {key} as k, {other} as o from {}{condition}{group}", inner.from);
    let text = match cte {
        true => format!("with q as ({body}) select q.k, q.o, s.x from q left join small s on s.id = q.k"),
        false => format!("select q.k, count(*), min(q.o), max(q.k) from ({body}) q group by q.k"),
    };
    Query { text, ordered: false, straight: false }
}
