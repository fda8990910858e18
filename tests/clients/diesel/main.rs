//! Diesel on libpq: embedded migrations up, down and again, relations, bulk insert, upserts, transactions, errors.
use diesel::connection::SimpleConnection;
use diesel::data_types::PgNumeric;
use diesel::dsl::{count_star, max, sum};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations");

diesel::table! {
    customers (id) {
        id -> Integer,
        name -> Varchar,
        credit -> Numeric,
        joined -> Timestamp,
        profile -> Nullable<Jsonb>,
    }
}
diesel::table! {
    orders (id) {
        id -> BigInt,
        customer_id -> BigInt,
        total -> Double,
        lines -> Array<Text>,
        placed -> Nullable<Date>,
        paid -> Bool,
    }
}
diesel::allow_tables_to_appear_in_same_query!(customers, orders);

#[derive(Debug, Queryable, Selectable, Identifiable)]
#[diesel(check_for_backend(Pg))]
struct Customer {
    id: i32,
    name: String,
    credit: PgNumeric,
    profile: Option<serde_json::Value>,
}

#[derive(Debug, Queryable, Selectable)]
#[diesel(table_name = orders, check_for_backend(Pg))]
struct Order {
    customer_id: i64,
    total: f64,
    lines: Vec<String>,
    placed: Option<chrono::NaiveDate>,
}

#[derive(Insertable)]
#[diesel(table_name = orders)]
struct NewOrder {
    customer_id: i64,
    total: f64,
    lines: Vec<String>,
    placed: Option<chrono::NaiveDate>,
}

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn kind<T>(result: QueryResult<T>) -> Option<DatabaseErrorKind> {
    match result {
        Err(Error::DatabaseError(kind, _)) => Some(kind),
        _ => None,
    }
}

fn add(connection: &mut PgConnection, name: &str) -> QueryResult<i32> {
    diesel::insert_into(customers::table)
        .values((customers::name.eq(name), customers::profile.eq(serde_json::json!({"short": name}))))
        .returning(customers::id)
        .get_result(connection)
}

fn migrate(connection: &mut PgConnection) -> Outcome {
    assert_eq!(connection.run_pending_migrations(MIGRATIONS)?.len(), 2);
    connection.revert_last_migration(MIGRATIONS)?;
    assert!(connection.has_pending_migration(MIGRATIONS)?);
    connection.run_pending_migrations(MIGRATIONS)?;
    connection.revert_all_migrations(MIGRATIONS)?;
    assert_eq!(connection.run_pending_migrations(MIGRATIONS)?.len(), 2);
    assert_eq!(connection.applied_migrations()?.len(), 2);
    Ok(())
}

fn use_it(connection: &mut PgConnection) -> Outcome {
    let ids = ["hazel", "oak", "beech"].map(|name| add(connection, name));
    let ids = ids.into_iter().collect::<QueryResult<Vec<i32>>>()?;
    assert_eq!(ids, [1, 2, 3]);
    let rows: Vec<_> = (0..300)
        .map(|row| NewOrder {
            customer_id: row % 2 + 1,
            total: row as f64 / 2.0,
            lines: vec![format!("line {row}"), "\"quoted\", {}".into()],
            placed: chrono::NaiveDate::from_ymd_opt(2024, 1, row as u32 % 32),
        })
        .collect();
    assert_eq!(diesel::insert_into(orders::table).values(&rows).execute(connection)?, 300);
    let found: Vec<(Customer, Option<Order>)> = customers::table
        .left_join(orders::table.on(orders::customer_id.eq(diesel::dsl::sql::<diesel::sql_types::BigInt>("customers.id::bigint")).and(orders::total.gt(149.0))))
        .select((Customer::as_select(), Option::<Order>::as_select()))
        .order((customers::name.asc(), orders::id.desc()))
        .load(connection)?;
    let names: Vec<_> = found.iter().map(|(customer, order)| (customer.name.as_str(), order.is_some())).collect();
    assert_eq!(names, [("beech", false), ("hazel", false), ("oak", true)]);
    let (oak, order) = &found[2];
    let order = order.as_ref().expect("an order");
    assert_eq!((oak.id, order.customer_id, order.total, order.lines[1].as_str()), (2, 2, 149.5, "\"quoted\", {}"));
    assert_eq!(order.placed, chrono::NaiveDate::from_ymd_opt(2024, 1, 299 % 32));
    assert_eq!(oak.profile.as_ref().and_then(|profile| profile["short"].as_str()), Some("oak"));
    assert!(matches!(&oak.credit, PgNumeric::Positive { digits, .. } if digits.iter().all(|digit| *digit == 0)));
    let sums: Vec<(i64, i64, Option<f64>, Option<chrono::NaiveDate>)> = orders::table
        .group_by(orders::customer_id)
        .select((orders::customer_id, count_star(), sum(orders::total), max(orders::placed)))
        .having(count_star().gt(10))
        .order(orders::customer_id.desc())
        .load(connection)?;
    assert_eq!((sums.len(), sums[0].0, sums[0].1, sums[0].2), (2, 2, 150, Some(11250.0)));
    let some: i64 = orders::table
        .filter(orders::lines.contains(vec!["line 7"]).or(orders::placed.is_null().and(orders::total.between(0.0, 20.0))))
        .count()
        .get_result(connection)?;
    assert_eq!(some, 3);
    let some: Vec<i32> = customers::table
        .filter(customers::id.eq_any([1, 3, 9]).and(customers::name.ilike("%E%")))
        .filter(diesel::dsl::not(diesel::dsl::exists(orders::table.filter(orders::customer_id.eq(99)))))
        .select(customers::id)
        .order(customers::id)
        .load(connection)?;
    assert_eq!(some, [1, 3]);
    let upserted: i32 = diesel::insert_into(customers::table)
        .values(customers::name.eq("oak"))
        .on_conflict(customers::name)
        .do_update()
        .set(customers::profile.eq(None::<serde_json::Value>))
        .returning(customers::id)
        .get_result(connection)?;
    assert_eq!(upserted, 2);
    assert_eq!(diesel::insert_into(customers::table).values(customers::name.eq("oak")).on_conflict_do_nothing().execute(connection)?, 0);
    assert_eq!(diesel::update(orders::table.filter(orders::total.lt(5.0))).set(orders::paid.eq(true)).execute(connection)?, 10);
    assert_eq!(diesel::delete(customers::table.find(2)).execute(connection)?, 1);
    assert_eq!(orders::table.count().get_result::<i64>(connection)?, 150);
    Ok(())
}

fn errors(connection: &mut PgConnection) -> Outcome {
    match add(connection, "hazel") {
        Err(Error::DatabaseError(DatabaseErrorKind::UniqueViolation, info)) => {
            assert_eq!((info.constraint_name(), info.table_name()), (Some("customers_name_key"), Some("customers")));
        }
        other => panic!("the same name twice: {other:?}"),
    }
    let insert = |connection: &mut PgConnection, rest: &str| diesel::sql_query(format!("INSERT INTO {rest}")).execute(connection);
    assert!(matches!(kind(insert(connection, "orders (customer_id, total) VALUES (77, 1)")), Some(DatabaseErrorKind::ForeignKeyViolation)));
    assert!(matches!(kind(insert(connection, "orders (customer_id) VALUES (1)")), Some(DatabaseErrorKind::NotNullViolation)));
    assert!(matches!(kind(insert(connection, "customers (name, credit) VALUES ('x', -1)")), Some(DatabaseErrorKind::CheckViolation)));
    assert!(matches!(customers::table.find(99).select(customers::id).first::<i32>(connection), Err(Error::NotFound)));
    Ok(())
}

fn transactions(connection: &mut PgConnection) -> Outcome {
    let outer = connection.transaction(|connection| {
        add(connection, "outer")?;
        let inner: QueryResult<()> = connection.transaction(|connection| {
            add(connection, "inner")?;
            add(connection, "outer").map(|_| ())
        });
        assert!(matches!(kind(inner), Some(DatabaseErrorKind::UniqueViolation)));
        QueryResult::Ok(())
    });
    outer?;
    let undone: Result<(), Error> = connection.transaction(|connection| {
        add(connection, "undone")?;
        Err(Error::RollbackTransaction)
    });
    assert!(matches!(undone, Err(Error::RollbackTransaction)));
    connection.build_transaction().read_only().serializable().run(|connection| {
        assert!(matches!(kind(add(connection, "read only")), Some(DatabaseErrorKind::ReadOnlyTransaction)));
        QueryResult::Ok(())
    }).unwrap_or_default();
    connection.build_transaction().repeatable_read().run(|connection| {
        customers::table.filter(customers::name.eq("outer")).for_update().select(customers::id).first::<i32>(connection)
    })?;
    let names: Vec<String> = customers::table.select(customers::name).order(customers::id).load(connection)?;
    assert_eq!(names, ["hazel", "beech", "outer"]);
    let mut stream = 0;
    for row in orders::table.select(orders::total).load_iter::<f64, diesel::pg::PgRowByRowLoadingMode>(connection)? {
        stream += usize::from(row? >= 0.0);
    }
    assert_eq!(stream, 150);
    Ok(())
}

fn main() -> Outcome {
    let mut connection = PgConnection::establish(&std::env::var("DRIVER_URL")?)?;
    connection.batch_execute("SET client_min_messages = warning")?;
    migrate(&mut connection)?;
    use_it(&mut connection)?;
    errors(&mut connection)?;
    transactions(&mut connection)?;
    println!("diesel: migrations, relations, bulk insert, upserts, transactions, errors");
    Ok(())
}
