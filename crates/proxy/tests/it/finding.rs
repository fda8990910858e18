//! Nodes that are gone, and control that is.

use crate::client::Client;
use crate::control::{Script, at};
use crate::node::{Event, Greeting};
use crate::world::World;
use process::control_messages::ResolveError;
use proxy::error::ClientError;
use std::time::Duration;

const APP: [(&str, &str); 2] = [("user", "u"), ("database", "app.postgres")];

#[tokio::test]
async fn a_stale_route_is_looked_up_again() {
    let world = World::new().await;
    let first = world.app().await;
    let _old = world.session().await;
    first.kill().await;
    let mut second = world.app().await;
    world.session().await;
    second.started().await;
    assert_eq!(world.control.questions(), 2);
    assert_eq!(world.metric("dormouse_proxy_node_retries_total"), 1.0);
}

#[tokio::test]
async fn control_may_be_late_to_notice() {
    let world = World::new().await;
    let (name, path) = world.nodes.name();
    let nobody = Script::At { address: format!("unix:{path}"), node: name, max_connections: None };
    let (shutting_down, hanging_up) = (
        world.nodes.start_with(Greeting::Refuse(ClientError::new("57P03", "suspending"))).await,
        world.nodes.start_with(Greeting::HangUp).await,
    );
    let mut good = world.nodes.start().await;
    let script = [nobody, at(&shutting_down), at(&hanging_up), at(&good)];
    world.control.script("app", script);
    world.session().await;
    good.started().await;
    assert_eq!(world.control.questions(), 4);
}

#[tokio::test]
async fn a_client_is_held_while_control_is_busy() {
    let world = World::new().await;
    let node = world.nodes.start().await;
    let busy = [ResolveError::Overloaded, ResolveError::Unavailable].map(|code| Script::No(code, "later"));
    world.control.script("app", busy.into_iter().chain([at(&node)]));
    world.session().await;
    assert_eq!(world.control.questions(), 3);
}

#[tokio::test]
async fn a_tenant_that_stays_away_is_an_error_in_the_end() {
    let world = World::with(|c| c.timeouts.wake = Duration::from_millis(300)).await;
    let node = world.nodes.start_with(Greeting::HangUp).await;
    world.control.serve("app", &node);
    let mut client = Client::plain(world.proxy).await;
    client.start(&APP).await;
    assert_eq!(client.refusal().await.field(b'C'), "57P03");
}

#[tokio::test]
async fn routes_are_remembered_until_control_says_gone() {
    let world = World::new().await;
    let first = world.app().await;
    for _ in 0..3 {
        world.session().await;
    }
    assert_eq!(world.control.questions(), 1);
    let mut second = world.app().await;
    world.control.push_gone(&first.name);
    // What control says travels in order: after this answer the news has arrived.
    world.control.script("other", [Script::No(ResolveError::StartFailed, "x")]);
    let mut client = Client::plain(world.proxy).await;
    client.start(&[("user", "u"), ("database", "other.db")]).await;
    client.refusal().await;
    world.session().await;
    second.started().await;
    assert_eq!(world.control.questions(), 3);
}

#[tokio::test]
async fn many_clients_one_question() {
    let world = World::new().await;
    let _node = world.app().await;
    world.control.hold(true);
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = Client::plain(world.proxy).await;
        client.start(&APP).await;
        clients.push(client);
    }
    world.control.asked(1).await;
    world.control.hold(false);
    for client in &mut clients {
        client.ready().await;
    }
    assert_eq!(world.control.questions(), 1);
}

#[tokio::test]
async fn without_control_tenants_in_use_are_served() {
    let world = World::with(|c| c.timeouts.control = Duration::from_millis(200)).await;
    let mut node = world.app().await;
    world.control.serve("late", &node);
    let mut running = world.session().await;
    world.control.kill().await;
    assert_eq!(running.run("still there").await[0].body, b"still there");
    world.session().await;
    let mut other = Client::plain(world.proxy).await;
    other.start(&[("user", "u"), ("database", "late.db")]).await;
    assert_eq!(other.refusal().await.field(b'C'), "57P03");

    world.control.revive().await;
    world.control.connected(2).await;
    let mut other = Client::plain(world.proxy).await;
    other.start(&[("user", "u"), ("database", "late.db")]).await;
    other.ready().await;
    assert!(matches!(node.next().await, Event::Started(_)));
}

#[tokio::test]
async fn a_question_survives_control() {
    let world = World::new().await;
    let _node = world.app().await;
    world.control.hold(true);
    let mut client = Client::plain(world.proxy).await;
    client.start(&APP).await;
    world.control.asked(1).await;
    world.control.kill().await;
    world.control.hold(false);
    world.control.revive().await;
    client.ready().await;
}
