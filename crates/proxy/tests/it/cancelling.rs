//! CancelRequests.

use crate::client::Client;
use crate::node::{Event, NODE_KEY};
use crate::world::World;
use proxy::startup::CancelKey;

async fn cancel(world: &World, key: CancelKey, tls: bool) {
    let mut client =
        if tls { Client::tls(world.proxy, "localhost").await } else { Client::plain(world.proxy).await };
    client.send(&key.cancel_request()).await;
    // The proxy closes when it is done.
    client.closed().await;
}

#[tokio::test]
async fn a_sessions_key_reaches_its_node_as_the_nodes_key() {
    let world = World::new().await;
    let mut node = world.app().await;
    let mut client = Client::plain(world.proxy).await;
    client.start(&[("user", "u"), ("database", "app.db")]).await;
    let key = client.ready().await.expect("a key");
    assert_ne!(key, NODE_KEY);
    node.started().await;

    cancel(&world, CancelKey { secret: key.secret.wrapping_add(1), ..key }, false).await;
    cancel(&world, NODE_KEY, false).await;
    cancel(&world, key, false).await;
    assert_eq!(node.next().await, Event::Cancel(NODE_KEY));
    assert_eq!(node.next().await, Event::Closed);
    cancel(&world, key, true).await;
    assert_eq!(node.next().await, Event::Cancel(NODE_KEY));
    assert_eq!(node.next().await, Event::Closed);
    assert_eq!(client.run("unharmed").await[0].body, b"unharmed");
}

#[tokio::test]
async fn a_key_ends_with_its_session() {
    let world = World::new().await;
    let mut node = world.app().await;
    let mut client = Client::plain(world.proxy).await;
    client.start(&[("user", "u"), ("database", "app.db")]).await;
    let key = client.ready().await.unwrap();
    node.started().await;
    client.query("die").await;
    client.refusal().await;
    assert_eq!(node.next().await, Event::Statement("die".into()));
    assert_eq!(node.next().await, Event::Closed);

    cancel(&world, key, false).await;
    let second = world.session().await;
    node.started().await;
    drop(second);
    assert_eq!(node.next().await, Event::Closed, "no cancel came before");
}
