//! Files that are broken, rows that are refused, and what is in the table then.

use super::Place;
use std::fs;

#[tokio::test]
async fn a_refused_row_is_named_and_what_came_before_stays() {
    let place = Place::new().await;
    place
        .client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, a text CHECK (a <> 'bad'))")
        .await
        .unwrap();
    // Row 500 begins on line 502: one row before it has two lines, and there is a header.
    let mut text = String::from("id,a\n");
    for row in 1..=1000 {
        let value = match row {
            500 => "bad".to_owned(),
            7 => "\"two\nlines\"".to_owned(),
            _ => format!("row {row}"),
        };
        text.push_str(&format!("{row},{value}\n"));
    }
    let path = place.write("a.csv", &text);
    let journal = place.path("journal");
    let import = ["import", "t", &path, "--batch-rows", "100", "--jobs", "1", "--resume", &journal];
    let said = place.failure(&import);
    assert!(said.contains("a.csv: line 502: ") && said.contains("SQLSTATE 23514"), "{said}");
    assert!(said.contains("400 rows are loaded and stay") && said.contains("rows 1-400"), "{said}");
    assert_eq!(place.number("SELECT count(*) FROM t").await, 400);
    // The report for programs says the same.
    let arguments = [&import[..], &["--output", "json", "--url", &place.url]].concat();
    let output = place.cluster.run(&arguments);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &summary["error"]["sqlstate"]), (Some(1), &"23514".into()));
    assert_eq!(summary["files"][0]["loaded_before"], serde_json::json!([[1, 400]]));
    // Mended, it goes on from there.
    fs::write(&path, text.replace("500,bad", "500,good")).unwrap();
    assert_eq!(place.run(&import)["rows"], 600);
    assert_eq!(place.run(&import)["rows"], 0);
    assert_eq!(place.number("SELECT count(*) FROM t").await, 1000);
    place.cluster.stop();
}

#[tokio::test]
async fn all_or_nothing() {
    let place = Place::new().await;
    place.client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    let rows = |numbers: &mut dyn Iterator<Item = i32>| numbers.map(|n| format!("{n}\n")).collect::<String>();
    let good = place.write("good.csv", format!("id\n{}", rows(&mut (1..=500))));
    let bad = place.write("bad.csv", format!("id\n{}", rows(&mut (501..=700).chain([5]))));
    let flags = ["--atomic", "--batch-rows", "100"];
    let said = place.failure(&[&["import", "t", &good, &bad][..], &flags].concat());
    assert!(said.contains("bad.csv: line 202: ") && said.contains("SQLSTATE 23505"), "{said}");
    assert!(said.contains("Nothing was loaded"), "{said}");
    assert_eq!(place.number("SELECT count(*) FROM t").await, 0);
    assert_eq!(place.run(&[&["import", "t", &good][..], &flags].concat())["rows"], 500);
    let said = place.failure(
        &[
            &["import", "made", &bad, "--create", "--primary-key", "id", "--types", "text"][..],
            &["--atomic", "--columns", "id,x"],
        ]
        .concat(),
    );
    assert!(said.contains("line 2: missing data for column \"x\""), "{said}");
    assert_eq!(place.number("SELECT count(*) FROM pg_class WHERE relname = 'made'").await, 0);
    place.cluster.stop();
}

#[tokio::test]
async fn broken_files_are_errors_that_say_where() {
    let place = Place::new().await;
    place.client.batch_execute("CREATE TABLE t (id int, a text)").await.unwrap();
    for (text, wanted) in [
        ("id,a\n1,x\n2\n", "line 3: missing data for column \"a\""),
        ("id,a\n1,x,y\n", "line 2: extra data after last expected column"),
        ("id,a\n1,x\n\"2,y\n3,z\n", "line 3: the file ends within quotes"),
        (
            "id,a\n1,x\nseven,y\n",
            "line 3: invalid input syntax for type integer: \"seven\" (column id: \"seven\")",
        ),
        ("id,nope\n1,x\n", "column \"nope\" of relation \"t\" does not exist"),
        ("id,id\n1,x\n", "line 1: two columns are called id"),
        ("id,a\n1,x\n\\.\n2,y\n", "line 3: a record that is only \\."),
        ("", "the file is empty"),
    ] {
        let path = place.write("a.csv", text);
        let said = place.failure(&["import", "t", &path]);
        assert!(said.contains(wanted), "{said}");
    }
    let invalid = place.write("a.csv", b"id,a\n1,x\n2,\xff\xfe\n");
    let said = place.failure(&["import", "t", &invalid]);
    assert!(said.contains("line 3: ") && said.contains("22021"), "{said}");
    place.run(&[
        "export",
        "--query",
        "SELECT i AS id, i::text AS a FROM generate_series(1, 1000) i",
        &place.path("a.parquet"),
    ]);
    let whole = fs::read(place.path("a.parquet")).unwrap();
    let cut = place.write("cut.parquet", &whole[..whole.len() / 2]);
    let said = place.failure(&["import", "t", &cut]);
    assert!(said.contains("cut.parquet: ") && said.contains("Parquet"), "{said}");
    let hole = [&whole[..4], &[0xff; 500], &whole[504..]].concat();
    let said = place.failure(&["import", "t", &place.write("hole.parquet", hole)]);
    assert!(said.contains("hole.parquet: ") && !said.contains("panicked"), "{said}");
    let said = place.failure(&["import", "t", &place.path("missing.csv")]);
    assert!(said.contains("missing.csv"), "{said}");
    assert!(place.failure(&["import", "t", &place.path("none-*.csv")]).contains("no file matches"));
    place.cluster.stop();
}
