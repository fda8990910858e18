//! How sessions end, and what goes through them before.

use crate::client::{Client, message};
use crate::node::{Event, row};
use crate::world::{World, soon};
use tokio::io::AsyncWriteExt;

async fn running(world: &World) -> (Client, crate::node::FakeNode) {
    let mut node = world.app().await;
    let client = world.session().await;
    node.started().await;
    (client, node)
}

#[tokio::test]
async fn a_node_that_ends_is_reported() {
    let world = World::new().await;
    let (mut client, node) = running(&world).await;
    node.kill().await;
    let error = client.refusal().await;
    assert_eq!(error.field(b'C'), "57P01");
    assert!(!error.field(b'H').is_empty());
    assert_eq!(world.metric("dormouse_proxy_nodes_lost_total"), 1.0);
}

#[tokio::test]
async fn a_node_that_ends_under_fire_is_reported_too() {
    let world = World::new().await;
    let (mut client, _node) = running(&world).await;
    // More statements than the node reads before it ends: closing must not lose the last words.
    let mut flood = message(b'Q', b"die\0");
    for _ in 0..1000 {
        flood.extend(message(b'Q', b"more\0"));
    }
    client.send(&flood).await;
    assert_eq!(client.refusal().await.field(b'C'), "57P01");
}

#[tokio::test]
async fn nothing_is_put_into_the_middle_of_a_message() {
    let world = World::new().await;
    let (mut client, _node) = running(&world).await;
    client.query("die-inside").await;
    let mut rest = Vec::new();
    soon(tokio::io::AsyncReadExt::read_to_end(&mut client.socket, &mut rest)).await.unwrap();
    assert_eq!(rest, b"D\0\0\x01\0half a row");
}

#[tokio::test]
async fn a_nodes_own_last_words_are_enough() {
    let world = World::new().await;
    let (mut client, _node) = running(&world).await;
    client.query("die-fatally").await;
    assert_eq!(client.refusal().await.field(b'C'), "57P05");
}

#[tokio::test]
async fn a_client_that_says_goodbye() {
    let world = World::new().await;
    let (mut client, mut node) = running(&world).await;
    client.send(&message(b'X', b"")).await;
    client.closed().await;
    assert_eq!(node.next().await, Event::Closed);
}

#[tokio::test]
async fn a_client_that_vanishes_takes_its_node_connection_along() {
    let world = World::new().await;
    let (client, mut node) = running(&world).await;
    drop(client);
    assert_eq!(node.next().await, Event::Closed);
}

#[tokio::test]
async fn a_client_that_vanishes_while_it_is_sent_rows() {
    let world = World::new().await;
    let (mut client, mut node) = running(&world).await;
    client.query("rows 100000").await;
    assert!(matches!(node.next().await, Event::Statement(_)));
    client.next().await.unwrap();
    drop(client);
    assert_eq!(node.next().await, Event::Closed);
}

#[tokio::test]
async fn a_half_closed_client_hears_its_answer() {
    let world = World::new().await;
    let (mut client, mut node) = running(&world).await;
    client.query("rows 3").await;
    client.socket.shutdown().await.unwrap();
    for n in 0..3 {
        assert_eq!(client.next().await.unwrap().body, row(n));
    }
    assert_eq!(client.next().await.unwrap().kind, b'Z');
    client.closed().await;
    assert!(matches!(node.next().await, Event::Statement(_)));
    assert_eq!(node.next().await, Event::Closed);
}

#[tokio::test]
async fn a_half_closed_client_of_a_hanging_node_is_given_up() {
    let world = World::with(|c| c.timeouts.half_closed = std::time::Duration::from_millis(100)).await;
    let (mut client, _node) = running(&world).await;
    client.query("hang").await;
    client.socket.shutdown().await.unwrap();
    client.closed().await;
}

async fn many_rows(mut client: Client) {
    client.query("rows 5000").await;
    for n in 0..5000 {
        let message = client.next().await.unwrap();
        assert!(message.kind == b'D' && message.body == row(n), "row {n}");
    }
    assert_eq!(client.next().await.unwrap().kind, b'Z');
    let text = "x".repeat(3 << 20);
    assert!(client.run(&text).await[0].body == text.as_bytes());
}

#[tokio::test]
async fn large_results_and_statements_arrive_whole() {
    let world = World::new().await;
    let (client, _node) = running(&world).await;
    many_rows(client).await;
}

#[tokio::test]
async fn the_same_over_tls_on_both_sides() {
    let world = World::new().await;
    let node = world.nodes.start_tcp(&world.authority, 2).await;
    world.control.serve("app", &node);
    let mut client = Client::tls(world.proxy, "app.dormouse.test").await;
    client.start(&[("user", "u")]).await;
    client.ready().await;
    many_rows(client).await;
}

#[tokio::test]
async fn a_proxy_that_stops_says_so() {
    let mut world = World::new().await;
    let (mut client, mut node) = running(&world).await;
    world.control.hold(true);
    world.control.serve("slow", &node);
    let mut held = Client::plain(world.proxy).await;
    held.start(&[("user", "u"), ("database", "slow.db")]).await;
    world.control.asked(2).await;
    world.stop();
    assert_eq!(client.refusal().await.field(b'C'), "57P01");
    assert_eq!(held.refusal().await.field(b'C'), "57P01");
    world.stopped().await;
    assert_eq!(node.next().await, Event::Closed);
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let world = World::new().await;
    let (client, mut node) = running(&world).await;
    drop(client);
    assert_eq!(node.next().await, Event::Closed);
    soon(async {
        while world.metric("dormouse_proxy_sessions") > 0.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(world.metric("dormouse_proxy_starting_connections"), 0.0);
    assert!(world.metric("dormouse_proxy_bytes_total") > 0.0);
}
