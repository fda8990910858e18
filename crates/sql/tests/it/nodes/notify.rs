//! Notifications reach the listeners of all nodes.

use super::{beside, node, two};
use crate::database::{Database, run, session};
use crate::support::new_tenant;

async fn next(db: &mut Database) -> Vec<(String, String)> {
    db.session.notified().await;
    let arrived = db.session.take_notifications();
    arrived.into_iter().map(|note| (note.channel.to_string(), note.payload.to_string())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_committed_at_one_node_reaches_those_who_listen_at_another() {
    let (mut a, mut b) = two().await;
    a.execute("CREATE TABLE t (id int PRIMARY KEY); LISTEN news").await;
    let mut deaf = beside(&a).await;
    deaf.execute("LISTEN other").await;
    b.execute("NOTIFY news, 'one'").await;
    assert_eq!(next(&mut a).await, [("news".to_string(), "one".to_string())]);
    b.execute("BEGIN; NOTIFY news, 'undone'; ROLLBACK").await;
    b.execute("BEGIN; INSERT INTO t VALUES (1); NOTIFY news, 'two'; SELECT pg_notify('other', 'x'); COMMIT")
        .await;
    b.execute("SELECT pg_notify('news', 'three')").await;
    let mut arrived = Vec::new();
    while arrived.len() < 2 {
        arrived.extend(next(&mut a).await.into_iter().map(|(_, payload)| payload));
    }
    assert_eq!(arrived, ["two", "three"]);
    assert_eq!(a.rows("SELECT * FROM t").await, ["1"]);
    assert_eq!(next(&mut deaf).await, [("other".to_string(), "x".to_string())]);
    // Its own come at once, and once.
    a.execute("NOTIFY news, 'own'; SELECT 1").await;
    assert_eq!(next(&mut a).await, [("news".to_string(), "own".to_string())]);
    b.execute("NOTIFY news, 'last'").await;
    b.engine.retire().await;
    assert_eq!(next(&mut a).await, [("news".to_string(), "last".to_string())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_begun_to_listen_misses_nothing_and_all_come_in_order() {
    let tenant = new_tenant().tenant();
    let mut a = node(tenant).await;
    a.execute("NOTIFY n, 'to nobody'").await;
    let mut b = node(tenant).await;
    b.execute("LISTEN n").await;
    let senders: u64 = 3;
    let mut tasks = Vec::new();
    for sender in 0..senders {
        let mut session = session(&a.engine).await;
        tasks.push(tokio::spawn(async move {
            for number in 0..40 {
                let text = format!("NOTIFY n, '{sender} {number}'");
                run(&mut session, &text, &[]).await.expect("a notification");
            }
        }));
    }
    let mut seen = vec![0; senders as usize];
    while seen.iter().sum::<u64>() < senders * 40 {
        for (_, payload) in next(&mut b).await {
            let (sender, number) = payload.split_once(' ').expect("two numbers");
            let seen = &mut seen[sender.parse::<usize>().expect("a sender")];
            assert_eq!(number.parse(), Ok(*seen), "{payload}");
            *seen += 1;
        }
    }
    for task in tasks {
        task.await.expect("a sender");
    }
    assert!(b.session.take_notifications().is_empty());
}
