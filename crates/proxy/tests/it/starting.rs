//! Clients that are slow or go away before they have a session.

use crate::client::{Client, SSL_REQUEST, startup};
use crate::node::{Event, Greeting};
use crate::world::{World, soon};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

const APP: [(&str, &str); 2] = [("user", "u"), ("database", "app.db")];

/// One place for starting connections and one for sessions, so that a leak is seen at once.
async fn narrow() -> World {
    World::with(|c| {
        c.limits.starting = 1;
        c.limits.connections = 1;
    })
    .await
}

/// A client that gets in as soon as the place is free.
async fn patient_session(world: &World) {
    let enter = async {
        loop {
            let mut client = Client::plain(world.proxy).await;
            if client.socket.write_all(&startup(3 << 16, &APP)).await.is_err() {
                continue;
            }
            match client.next().await {
                Some(message) if message.kind == b'R' => return,
                Some(message) => assert_eq!(message.field(b'C'), "53300"),
                None => {}
            }
        }
    };
    soon(enter).await;
}

#[tokio::test]
async fn one_byte_at_a_time_is_cut_off() {
    let world = World::with(|c| c.timeouts.startup = Duration::from_millis(200)).await;
    let mut client = Client::plain(world.proxy).await;
    let packet = startup(3 << 16, &[("user", &"u".repeat(9000)), ("database", "app.db")]);
    let mut sent = 0;
    for byte in &packet {
        if client.socket.write_all(&[*byte]).await.is_err() {
            break;
        }
        sent += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(sent < packet.len());
    if let Some(error) = client.next().await {
        assert_eq!(error.field(b'C'), "57014");
    }
    let _node = world.app().await;
    world.session().await;
}

#[tokio::test]
async fn a_silent_client_is_told_and_closed() {
    let world = World::with(|c| c.timeouts.startup = Duration::from_millis(100)).await;
    let mut client = Client::plain(world.proxy).await;
    client.send(&[0, 0, 0]).await;
    assert_eq!(client.refusal().await.field(b'C'), "57014");
    let mut client = Client::plain(world.proxy).await;
    client.send(&SSL_REQUEST).await;
    let mut rest = Vec::new();
    soon(tokio::io::AsyncReadExt::read_to_end(&mut client.socket, &mut rest)).await.unwrap();
    assert_eq!(rest, b"S");
}

#[tokio::test]
async fn leaving_before_the_startup_packet_is_complete() {
    let world = narrow().await;
    let _node = world.app().await;
    for bytes in [&[][..], &[0, 0], &startup(3 << 16, &APP)[..20], &SSL_REQUEST, &[0x16, 3, 1]] {
        let mut client = Client::plain(world.proxy).await;
        let _ = client.socket.write_all(bytes).await;
        drop(client);
        patient_session(&world).await;
    }
}

#[tokio::test]
async fn leaving_while_the_tenant_wakes() {
    let world = narrow().await;
    let _node = world.app().await;
    world.control.hold(true);
    let mut client = Client::plain(world.proxy).await;
    client.start(&APP).await;
    world.control.asked(1).await;
    drop(client);
    // The place is given back although the tenant is still waking: the next client is held, not refused.
    let mut next = loop {
        let mut next = Client::plain(world.proxy).await;
        next.start(&APP).await;
        let held = tokio::time::timeout(Duration::from_millis(50), next.next()).await;
        match held {
            Err(_) => break next,
            Ok(Some(message)) => assert_eq!(message.field(b'C'), "53300"),
            Ok(None) => {}
        }
    };
    world.control.hold(false);
    next.ready().await;
}

#[tokio::test]
async fn leaving_while_authenticating() {
    let world = narrow().await;
    let mut node = world.nodes.start_with(Greeting::Password).await;
    world.control.serve("app", &node);
    let mut client = Client::plain(world.proxy).await;
    client.start(&APP).await;
    assert_eq!(client.next().await.unwrap().kind, b'R');
    node.started().await;
    drop(client);
    assert_eq!(node.next().await, Event::Closed);
    patient_session(&world).await;
}

#[tokio::test]
async fn authentication_that_does_not_end() {
    let world = World::with(|c| c.timeouts.authentication = Duration::from_millis(200)).await;
    let mut node = world.nodes.start_with(Greeting::Silent).await;
    world.control.serve("app", &node);
    let mut client = Client::plain(world.proxy).await;
    client.start(&APP).await;
    client.send(b"p\0\0\0\x05x").await;
    assert_eq!(client.next().await.unwrap().kind, b'R');
    assert_eq!(client.refusal().await.field(b'C'), "57014");
    node.started().await;
    assert_eq!(node.next().await, Event::Closed);
}

#[tokio::test]
async fn what_is_sent_early_is_passed_on() {
    let world = World::new().await;
    let mut node = world.nodes.start_with(Greeting::Password).await;
    world.control.serve("app", &node);
    let mut client = Client::plain(world.proxy).await;
    let mut all = startup(3 << 16, &APP);
    all.extend(crate::client::message(b'p', b"secret\0"));
    all.extend(crate::client::message(b'Q', b"early\0"));
    client.send(&all).await;
    client.ready().await;
    node.started().await;
    assert_eq!(node.next().await, Event::Statement("early".into()));
    assert_eq!(client.next().await.unwrap().body, b"early");
}
