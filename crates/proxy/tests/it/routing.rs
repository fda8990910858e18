//! Which tenant, which database, and what the SQL node is told.

use crate::client::{Client, GSS_REQUEST, SSL_REQUEST, startup};
use crate::world::{World, soon};
use tokio::io::AsyncReadExt;

fn get<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

#[tokio::test]
async fn by_database() {
    let world = World::new().await;
    let mut node = world.app().await;
    let mut client = Client::plain(world.proxy).await;
    client.start(&[("user", "u"), ("database", "app.postgres"), ("application_name", "x")]).await;
    client.ready().await;
    let seen = node.started().await;
    assert_eq!(get(&seen, "database"), Some("postgres"));
    assert_eq!(get(&seen, "application_name"), Some("x"));
    assert_eq!(get(&seen, "_dormouse.tenant_id"), Some("2"));
    assert_eq!(get(&seen, "_dormouse.tls"), Some("off"));
    assert!(get(&seen, "_dormouse.client_addr").unwrap().starts_with("127.0.0.1:"));
}

#[tokio::test]
async fn by_options() {
    let world = World::new().await;
    let mut node = world.app().await;
    let mut client = Client::plain(world.proxy).await;
    let options = "-c geqo=off --tenant=app";
    client.start(&[("user", "u"), ("database", "db"), ("options", options)]).await;
    client.ready().await;
    let seen = node.started().await;
    assert_eq!((get(&seen, "database"), get(&seen, "options")), (Some("db"), Some("-c geqo=off")));
}

#[tokio::test]
async fn by_server_name() {
    let world = World::new().await;
    let mut node = world.app().await;
    let mut client = Client::tls(world.proxy, "app.dormouse.test").await;
    client.start(&[("user", "u"), ("database", "db")]).await;
    client.ready().await;
    let seen = node.started().await;
    assert_eq!((get(&seen, "database"), get(&seen, "_dormouse.tls")), (Some("db"), Some("on")));
    assert_eq!(client.run("hello").await[0].body, b"hello");
}

#[tokio::test]
async fn the_proxys_own_name_names_no_tenant() {
    let world = World::with(|c| c.server_names = vec!["Proxy.dormouse.test".into()]).await;
    let _node = world.app().await;
    let mut client = Client::tls(world.proxy, "proxy.dormouse.test").await;
    client.start(&[("user", "u"), ("database", "app.db")]).await;
    client.ready().await;
    let mut client = Client::tls(world.proxy, "other.dormouse.test").await;
    client.start(&[("user", "u"), ("database", "app.db")]).await;
    assert_eq!(client.refusal().await.field(b'C'), "08004");
}

#[tokio::test]
async fn tls_at_once() {
    let world = World::new().await;
    let _node = world.app().await;
    let mut client = Client::direct_tls(world.proxy, "app.dormouse.test", &[b"postgresql"]).await;
    client.start(&[("user", "u")]).await;
    client.ready().await;
    let mut client = Client::direct_tls(world.proxy, "app.dormouse.test", &[]).await;
    assert_eq!(client.refusal().await.field(b'C'), "08P01");
}

#[tokio::test]
async fn gssapi_is_refused_and_tls_may_follow() {
    let world = World::new().await;
    let _node = world.app().await;
    let mut socket = tokio::net::TcpStream::connect(world.proxy).await.unwrap();
    for (request, expected) in [(GSS_REQUEST, b"N"), (SSL_REQUEST, b"S")] {
        tokio::io::AsyncWriteExt::write_all(&mut socket, &request).await.unwrap();
        let mut answer = [0; 1];
        soon(socket.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, expected);
    }
    let mut client = Client::handshake(socket, "localhost", &[]).await;
    client.start(&[("user", "u"), ("database", "app.db")]).await;
    client.ready().await;
}

#[tokio::test]
async fn without_a_certificate_tls_is_declined() {
    let world = World::with(|c| c.client_tls = None).await;
    let _node = world.app().await;
    let mut client = Client::plain(world.proxy).await;
    client.send(&SSL_REQUEST).await;
    let mut answer = [0; 1];
    soon(client.socket.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"N");
    client.start(&[("user", "u"), ("database", "app.db")]).await;
    client.ready().await;
}

#[tokio::test]
async fn a_newer_minor_version_is_negotiated_down() {
    let world = World::new().await;
    let _node = world.app().await;
    let mut client = Client::plain(world.proxy).await;
    client.send(&startup((3 << 16) + 2, &[("user", "u"), ("database", "app.db"), ("_pq_.new", "1")])).await;
    let first = client.next().await.unwrap();
    assert_eq!((first.kind, &first.body[..8]), (b'v', &[0, 3, 0, 0, 0, 0, 0, 1][..]));
    client.ready().await;
}

#[tokio::test]
async fn nodes_behind_tcp_must_be_of_the_tenant() {
    let world = World::with(|c| c.timeouts.wake = std::time::Duration::from_millis(300)).await;
    let mut node = world.nodes.start_tcp(&world.authority, 2).await;
    world.control.serve("app", &node);
    let mut client = world.session().await;
    node.started().await;
    assert_eq!(client.run("over tls").await[0].body, b"over tls");

    let other = world.nodes.start_tcp(&world.authority, 3).await;
    world.control.serve("mine", &other);
    let mut client = Client::plain(world.proxy).await;
    client.start(&[("user", "u"), ("database", "mine.db")]).await;
    assert_eq!(client.refusal().await.field(b'C'), "57P03");
}
