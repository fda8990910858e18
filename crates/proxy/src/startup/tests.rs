//! Tests of the startup packet, and random bytes through everything that reads it.

use super::tenant::{TenantName, take_tenant};
use super::*;
use proptest::prelude::*;

fn packet(parameters: &[(&str, &str)]) -> Vec<u8> {
    body(PROTOCOL_3_0, parameters)
}

fn body(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    bytes.push(0);
    bytes
}

fn startup(parameters: &[(&str, &str)]) -> Startup {
    match decode(&packet(parameters)).unwrap() {
        Packet::Startup(startup) => startup,
        other => panic!("{other:?}"),
    }
}

fn name(parameters: &[(&str, &str)], sni: Option<&str>) -> Result<(TenantName, Startup), ClientError> {
    let mut all = vec![("user", "u")];
    all.extend_from_slice(parameters);
    let mut startup = startup(&all);
    let own = ["db.example.com".to_owned()];
    take_tenant(&mut startup, sni, &own).map(|tenant| (tenant, startup))
}

#[test]
fn lengths_are_bounded() {
    assert!(packet_length(7u32.to_be_bytes()).is_err());
    assert_eq!(packet_length(8u32.to_be_bytes()).unwrap(), 8);
    assert_eq!(packet_length(10_000u32.to_be_bytes()).unwrap(), 10_000);
    assert!(packet_length(10_001u32.to_be_bytes()).is_err());
    assert!(packet_length(u32::MAX.to_be_bytes()).is_err());
    // A TLS client hello can never be mistaken for a packet.
    assert!(packet_length([0x16, 0, 0, 0]).is_err());
}

#[test]
fn requests_are_told_apart() {
    assert_eq!(decode(&ssl_request()[4..]).unwrap(), Packet::SslRequest);
    assert_eq!(decode(&GSS_ENCRYPTION_REQUEST.to_be_bytes()).unwrap(), Packet::GssEncryptionRequest);
    let key = CancelKey { process_id: 7, secret: 0xfedc_ba98 };
    assert_eq!(decode(&key.cancel_request()[4..]).unwrap(), Packet::Cancel(key));
    assert_eq!(CancelKey::from_bytes(key.to_bytes()), key);
}

#[test]
fn wrong_lengths_of_requests_are_refused() {
    assert!(decode(&key_with_extra_byte()).is_err());
    let mut ssl = ssl_request()[4..].to_vec();
    ssl.push(0);
    assert!(decode(&ssl).is_err());
    assert!(decode(&[1, 2, 3]).is_err());
}

fn key_with_extra_byte() -> Vec<u8> {
    let mut bytes = CancelKey { process_id: 1, secret: 2 }.cancel_request()[4..].to_vec();
    bytes.push(9);
    bytes
}

#[test]
fn old_protocols_are_refused() {
    assert_eq!(decode(&body(2 << 16, &[("user", "u")])).unwrap_err().code(), "0A000");
    assert_eq!(decode(&body(4 << 16, &[("user", "u")])).unwrap_err().code(), "0A000");
}

#[test]
fn layout_is_checked() {
    let mut bytes = packet(&[("user", "u")]);
    bytes.push(0);
    assert_eq!(decode(&bytes).unwrap_err().code(), "08P01");
    bytes.truncate(bytes.len() - 2);
    assert_eq!(decode(&bytes).unwrap_err().code(), "08P01");
    assert_eq!(decode(&packet(&[("database", "x")])).unwrap_err().code(), "28000");
    assert_eq!(decode(&packet(&[("user", "")])).unwrap_err().code(), "28000");
}

#[test]
fn reserved_parameters_are_refused() {
    let error = decode(&packet(&[("user", "u"), ("_dormouse.tenant_id", "1")])).unwrap_err();
    assert_eq!(error.code(), "42602");
    assert!(decode(&packet(&[("user", "u"), ("_Dormouse.tls", "on")])).is_err());
}

#[test]
fn newer_minor_versions_and_extensions_are_negotiated() {
    assert_eq!(startup(&[("user", "u")]).negotiation(), None);
    let Packet::Startup(newer) = decode(&body(PROTOCOL_3_0 + 2, &[("user", "u"), ("_pq_.x", "1")])).unwrap()
    else {
        panic!()
    };
    assert_eq!(newer.negotiation().unwrap(), b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.x\0");
    let sent = newer.encode(&[]);
    assert_eq!(&sent[4..8], &PROTOCOL_3_0.to_be_bytes());
    assert!(!sent.windows(5).any(|w| w == b"_pq_."));
}

#[test]
fn the_rewritten_packet_decodes_to_the_same() {
    let original = startup(&[("user", "u"), ("database", "d"), ("application_name", "psql")]);
    let sent = original.encode(&[("_dormouse.tls", "on")]);
    assert_eq!(packet_length(sent[..4].try_into().unwrap()).unwrap(), sent.len());
    let text = String::from_utf8_lossy(&sent[8..]).into_owned();
    assert_eq!(text, "user\0u\0database\0d\0application_name\0psql\0_dormouse.tls\0on\0\0");
}

#[test]
fn three_ways_to_name_a_tenant() {
    let (tenant, rewritten) = name(&[("database", "app.postgres")], None).unwrap();
    assert_eq!((tenant.as_str(), rewritten.database.as_deref()), ("app", Some(&b"postgres"[..])));

    let (tenant, rewritten) = name(&[("database", "d"), ("options", "--tenant=app")], None).unwrap();
    assert_eq!((tenant.as_str(), rewritten.database.as_deref()), ("app", Some(&b"d"[..])));
    assert_eq!(rewritten.options, None);

    let (tenant, rewritten) = name(&[("database", "d")], Some("App.dormouse.dev")).unwrap();
    assert_eq!((tenant.as_str(), rewritten.database.as_deref()), ("app", Some(&b"d"[..])));
}

#[test]
fn ways_may_agree_but_not_differ() {
    let all = [("database", "app.d"), ("options", "--tenant=app")];
    assert_eq!(name(&all, Some("app.example.com")).unwrap().0.as_str(), "app");
    assert_eq!(name(&all, Some("other.example.com")).unwrap_err().code(), "08004");
    assert_eq!(name(&[("options", "--tenant=a --tenant=b")], None).unwrap_err().code(), "08004");
    assert_eq!(name(&[("database", "a.d"), ("options", "--tenant=b")], None).unwrap_err().code(), "08004");
}

#[test]
fn some_server_names_name_nobody() {
    for sni in
        ["localhost", "proxy", "127.0.0.1", "::1", "db.example.com", "DB.example.com.", "localhost.x", "app."]
    {
        let error = name(&[("database", "d")], Some(sni)).unwrap_err();
        assert_eq!(error.code(), "08004", "{sni}");
        assert!(error.hint_text().unwrap().contains("--tenant="), "{sni}");
    }
}

#[test]
fn only_the_first_dot_divides() {
    let (tenant, rewritten) = name(&[("database", "app.my.db")], None).unwrap();
    assert_eq!((tenant.as_str(), rewritten.database.as_deref()), ("app", Some(&b"my.db"[..])));
    assert_eq!(name(&[("database", "app.")], None).unwrap().1.database, None);
}

#[test]
fn names_are_checked() {
    for database in [".postgres", "a b.postgres", "a/../b.postgres", "\u{e4}.postgres"] {
        assert_eq!(name(&[("database", database)], None).unwrap_err().code(), "42602", "{database}");
    }
    let long = format!("{}.d", "a".repeat(64));
    assert_eq!(name(&[("database", &long)], None).unwrap_err().code(), "42602");
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048), sni in ".{0,80}") {
        if let Ok(Packet::Startup(mut startup)) = decode(&bytes) {
            let _ = take_tenant(&mut startup, Some(&sni), &[]);
            prop_assert!(startup.encode(&[]).len() <= bytes.len() + 64);
        }
    }

    #[test]
    fn random_parameters_never_panic(
        parameters in proptest::collection::vec(("[a-z_.]{0,20}", "[ -~]{0,60}"), 0..30),
        options in "[-a-z= \\\\]{0,60}",
        database in "[a-z.]{0,20}",
        cut in 0usize..200,
    ) {
        let mut all = vec![("user", "u"), ("options", &options), ("database", &database)];
        all.extend(parameters.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        let bytes = packet(&all);
        let end = bytes.len().saturating_sub(cut);
        let _ = decode(&bytes[..end]);
        if let Ok(Packet::Startup(mut startup)) = decode(&bytes)
            && take_tenant(&mut startup, None, &[]).is_ok()
        {
            let sent = startup.encode(&[]);
            let again = decode(&sent[4..]).unwrap();
            prop_assert_eq!(again, Packet::Startup(Startup { minor_version: 0, extensions: vec![], ..startup }));
        }
    }
}
