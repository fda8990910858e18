//! Clients that cannot be served are told why.

use crate::client::{Client, Message, SSL_REQUEST, startup};
use crate::control::{Script, at};
use crate::world::World;
use process::control_messages::ResolveError;
use std::time::Duration;

async fn refused(world: &World, parameters: &[(&str, &str)]) -> Message {
    let mut client = Client::plain(world.proxy).await;
    client.start(parameters).await;
    client.refusal().await
}

#[tokio::test]
async fn no_tenant_two_tenants_and_bad_names() {
    let world = World::new().await;
    let missing = refused(&world, &[("user", "u"), ("database", "postgres")]).await;
    assert_eq!(missing.field(b'C'), "08004");
    for way in ["TENANT.dbname", "--tenant=TENANT", "host name"] {
        assert!(missing.field(b'H').contains(way), "{way}");
    }
    let two = [("user", "u"), ("database", "a.db"), ("options", "--tenant=b")];
    assert_eq!(refused(&world, &two).await.field(b'C'), "08004");
    assert_eq!(refused(&world, &[("user", "u"), ("database", "a b.db")]).await.field(b'C'), "42602");
    assert_eq!(refused(&world, &[("database", "app.db")]).await.field(b'C'), "28000");
    let forged = [("user", "u"), ("database", "app.db"), ("_dormouse.tenant_id", "1")];
    assert_eq!(refused(&world, &forged).await.field(b'C'), "42602");
    assert_eq!(world.control.questions(), 0);
}

#[tokio::test]
async fn what_control_says() {
    let world = World::with(|c| c.timeouts.wake = Duration::from_millis(300)).await;
    let unknown = refused(&world, &[("user", "u"), ("database", "nope.db")]).await;
    assert_eq!(unknown.field(b'C'), "3D000");
    assert_eq!(unknown.field(b'M'), "tenant \"nope\" does not exist");
    for (code, state) in [
        (ResolveError::StartFailed, "57P03"),
        (ResolveError::Overloaded, "53300"),
        (ResolveError::Unavailable, "57P03"),
    ] {
        world.control.script("app", [Script::No(code, "said by control")]);
        let error = refused(&world, &[("user", "u"), ("database", "app.db")]).await;
        assert_eq!((error.field(b'C').as_str(), error.field(b'M').as_str()), (state, "said by control"));
        assert_eq!(error.field(b'H'), "Look into the log of control.");
    }
}

#[tokio::test]
async fn plain_connections_where_tls_is_required() {
    let world = World::with(|c| c.require_tls = true).await;
    let _node = world.app().await;
    let error = refused(&world, &[("user", "u"), ("database", "app.db")]).await;
    assert_eq!(error.field(b'C'), "28000");
    let mut client = Client::tls(world.proxy, "app.dormouse.test").await;
    client.start(&[("user", "u")]).await;
    client.ready().await;
}

#[tokio::test]
async fn too_many_connections() {
    let world = World::with(|c| c.limits.connections_per_tenant = 1).await;
    let mut node = world.app().await;
    let client = world.session().await;
    let parameters = [("user", "u"), ("database", "app.db")];
    assert_eq!(refused(&world, &parameters).await.field(b'C'), "53300");
    // The place is free again once the first is gone.
    node.started().await;
    drop(client);
    assert_eq!(node.next().await, crate::node::Event::Closed);
    loop {
        let mut client = Client::plain(world.proxy).await;
        client.start(&parameters).await;
        match client.next().await.unwrap() {
            Message { kind: b'R', .. } => break,
            error => assert_eq!(error.field(b'C'), "53300"),
        }
    }
}

#[tokio::test]
async fn a_tenants_own_limit() {
    let world = World::new().await;
    let node = world.nodes.start().await;
    let Script::At { address, node, .. } = at(&node) else { unreachable!() };
    world.control.script("app", [Script::At { address, node, max_connections: Some(1) }]);
    let _client = world.session().await;
    assert_eq!(refused(&world, &[("user", "u"), ("database", "app.db")]).await.field(b'C'), "53300");
}

#[tokio::test]
async fn what_is_not_the_protocol() {
    let world = World::new().await;
    for (bytes, code) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "08P01"),
        (&[0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0], "08P01"),
        (&[0, 0, 0, 7, 0, 3, 0], "08P01"),
        (&startup(2 << 16, &[("user", "u")]), "0A000"),
        (&[0, 0, 0x27, 0x11, 0, 3, 0, 0], "08P01"),
        (&[0, 0, 0, 9, 0, 3, 0, 0, b'u'], "08P01"),
    ] {
        let mut client = Client::plain(world.proxy).await;
        client.send(bytes).await;
        assert_eq!(client.refusal().await.field(b'C'), code, "{bytes:?}");
    }
    // A second SSLRequest inside TLS.
    let mut client = Client::tls(world.proxy, "localhost").await;
    client.send(&SSL_REQUEST).await;
    assert_eq!(client.refusal().await.field(b'C'), "08P01");
    assert!(world.metric("dormouse_proxy_errors_total") >= 7.0);
}

#[tokio::test]
async fn the_nodes_own_refusal_is_passed_on() {
    let world = World::new().await;
    let error = proxy::error::ClientError::new("28P01", "password authentication failed");
    let node = world.nodes.start_with(crate::node::Greeting::Refuse(error)).await;
    world.control.serve("app", &node);
    let error = refused(&world, &[("user", "u"), ("database", "app.db")]).await;
    assert_eq!(error.field(b'C'), "28P01");
    assert_eq!(world.control.questions(), 1);
}
