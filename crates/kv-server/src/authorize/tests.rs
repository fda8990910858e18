//! Every kind of request against every kind of key, for every kind of caller.

use super::*;
use bytes::Bytes;
use kv_api::batch::*;
use kv_api::contention::ListContention;
use kv_api::key::CLUSTER_REGION;

/// One request of every kind on `start` (and up to `end`, where it takes a span), by name.
fn requests(start: &Bytes, end: &Bytes) -> Vec<(&'static str, RequestKind)> {
    let (key, value) = (start.clone(), Bytes::from_static(b"v"));
    let (start, end) = (start.clone(), end.clone());
    vec![
        ("get", Get { key: key.clone(), lock: 0 }.into_kind()),
        ("locking get", Get { key: key.clone(), lock: 2 }.into_kind()),
        ("put", Put { key: key.clone(), value: value.clone(), sequence: 1 }.into_kind()),
        (
            "conditional put",
            ConditionalPut { key: key.clone(), value, expected: None, sequence: 1 }.into_kind(),
        ),
        ("delete", Delete { key: key.clone(), sequence: 1 }.into_kind()),
        ("increment", Increment { key, by: 1 }.into_kind()),
        ("scan", Scan { start: start.clone(), end: end.clone(), ..Scan::default() }.into_kind()),
        (
            "reverse locking scan",
            Scan {
                start: start.clone(),
                end: end.clone(),
                reverse: true,
                limit: 1,
                lock: 1,
                ..Scan::default()
            }
            .into_kind(),
        ),
        (
            "delete range",
            DeleteRange { start: start.clone(), end: end.clone(), limit: 0, sequence: 1 }.into_kind(),
        ),
        ("range lookup", RangeLookup { key: start.clone() }.into_kind()),
        ("clear range", ClearRange { start: start.clone(), end: end.clone() }.into_kind()),
        ("list contention", ListContention { start, end, limit: 0 }.into_kind()),
    ]
}

trait IntoKind {
    fn into_kind(self) -> RequestKind;
}

macro_rules! into_kind {
    ($($kind:ident),*) => {
        $(impl IntoKind for $kind {
            fn into_kind(self) -> RequestKind {
                RequestKind::$kind(self)
            }
        })*
    };
}

into_kind!(
    Get,
    Scan,
    Put,
    ConditionalPut,
    Delete,
    DeleteRange,
    Increment,
    ClearRange,
    ListContention,
    EndTxn,
    Refresh,
    DropTenant,
    DrainNode,
    RangeLookup,
    CreateTenant,
    ConfigureSpan,
    ConfigureTenant,
    CheckReplicas
);

impl IntoKind for RangesRequest {
    fn into_kind(self) -> RequestKind {
        RequestKind::Ranges(self)
    }
}

impl IntoKind for NodesRequest {
    fn into_kind(self) -> RequestKind {
        RequestKind::Nodes(self)
    }
}

fn batch(kind: RequestKind, refresh_spans: Vec<Span>) -> BatchRequest {
    BatchRequest { header: Header { refresh_spans, ..Header::default() }, requests: vec![kind.into()] }
}

fn allowed(caller: Caller, kind: RequestKind) -> bool {
    match authorize(caller, &batch(kind, vec![])) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), KvErrorKind::Unauthorized);
            false
        }
    }
}

/// Spans that are no tenant's, or reach beyond one.
fn foreign_spans(own: TenantId) -> Vec<(&'static str, Bytes, Bytes)> {
    let key = |id: u64, rest: &[u8]| TenantId(id).prefixed(rest);
    let bytes = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    let own = own.0;
    vec![
        ("the tenant after", key(own + 1, b"a"), key(own + 1, b"b")),
        ("the tenant before", key(own - 1, b"a"), key(own - 1, b"b")),
        ("the last key of the tenant before", key(own - 1, &[0xff; 30]), key(own, b"")),
        ("the first key of the tenant after", key(own + 1, b""), key(own + 1, b"\0")),
        ("a tenant far away", key(u64::MAX - 1, b"a"), key(u64::MAX - 1, b"b")),
        ("no tenant", key(0, b"a"), key(0, b"b")),
        ("the cluster's keys", bytes(&[CLUSTER_REGION]), bytes(&[CLUSTER_REGION, 1])),
        (
            "cluster keys that look like a tenant's",
            bytes(&[[CLUSTER_REGION; 1].as_slice(), &own.to_be_bytes()].concat()),
            bytes(&[[CLUSTER_REGION; 1].as_slice(), &(own + 1).to_be_bytes()].concat()),
        ),
        ("an unknown region", bytes(&[0x11; 12]), bytes(&[0x12; 12])),
        ("a key shorter than a prefix", key(own, b"").slice(..8), key(own, b"b")),
        ("the empty key", Bytes::new(), key(own, b"b")),
        ("everything", Bytes::new(), bytes(&[0xff; 20])),
    ]
}

#[test]
fn a_caller_touches_its_own_keys() {
    for (caller, tenant) in [
        (Caller::Tenant(TenantId(7)), TenantId(7)),
        (Caller::Tenant(TenantId(1)), TenantId(1)),
        (Caller::Control, TenantId(1)),
    ] {
        let whole = tenant.span();
        for (start, end) in [(tenant.prefixed(b"a"), tenant.prefixed(b"b")), (whole.start, whole.end)] {
            for (name, kind) in requests(&start, &end) {
                assert!(allowed(caller, kind), "{caller:?}: {name}");
            }
        }
        for commit in [true, false] {
            assert!(allowed(caller, EndTxn { commit, ..EndTxn::default() }.into_kind()));
        }
        assert!(allowed(caller, Refresh::default().into_kind()));
    }
}

#[test]
fn every_kind_of_request_outside_is_refused() {
    for (caller, own) in [
        (Caller::Tenant(TenantId(7)), TenantId(7)),
        (Caller::Control, TenantId(1)),
        (Caller::Tenant(TenantId(u64::MAX - 2)), TenantId(u64::MAX - 2)),
    ] {
        for (place, start, end) in foreign_spans(own) {
            if TenantId::of_key(&start) == Some(own) {
                continue;
            }
            for (name, kind) in requests(&start, &end) {
                // Control looks up any range.
                let lookup = caller == Caller::Control && matches!(kind, RequestKind::RangeLookup(_));
                assert_eq!(allowed(caller, kind), lookup, "{caller:?}: {name} on {place}");
            }
            for span in [Span::point(start.clone()), Span::new(start.clone(), end.clone())] {
                for kind in
                    [Refresh::default().into_kind(), EndTxn { commit: true, ..EndTxn::default() }.into_kind()]
                {
                    assert!(
                        authorize(caller, &batch(kind, vec![span.clone()])).is_err(),
                        "refresh span on {place}"
                    );
                }
            }
        }
    }
}

#[test]
fn spans_that_leave_the_tenant_are_refused() {
    let tenant = TenantId(7);
    let caller = Caller::Tenant(tenant);
    let own = tenant.prefixed(b"a");
    let spanning = |kind: &RequestKind| {
        !matches!(
            kind,
            RequestKind::Get(_)
                | RequestKind::Put(_)
                | RequestKind::ConditionalPut(_)
                | RequestKind::Delete(_)
                | RequestKind::Increment(_)
                | RequestKind::RangeLookup(_)
        )
    };
    let next = TenantId(8);
    for (place, start, end) in [
        ("into the next tenant", own.clone(), next.prefixed(b"\0")),
        ("through the next tenant", own.clone(), TenantId(9).prefixed(b"")),
        ("from the tenant before", TenantId(6).prefixed(b"z"), own.clone()),
        ("without an end", own.clone(), Bytes::new()),
        ("backwards", tenant.prefixed(b"b"), own.clone()),
        ("empty", own.clone(), own.clone()),
    ] {
        for (name, kind) in requests(&start, &end).into_iter().filter(|(_, kind)| spanning(kind)) {
            assert!(!allowed(caller, kind), "{name} {place}");
        }
        if !end.is_empty() {
            let span = Span::new(start, end);
            let refresh = batch(Refresh::default().into_kind(), vec![Span::point(own.clone()), span]);
            assert!(authorize(caller, &refresh).is_err(), "refresh {place}");
        }
    }
}

#[test]
fn one_foreign_request_among_many_is_found() {
    let tenant = TenantId(7);
    let get = |id: u64| Get { key: TenantId(id).prefixed(b"a"), lock: 0 }.into_kind().into();
    let mut requests: Vec<Request> = (0..50).map(|_| get(7)).collect();
    let batch =
        |requests: &[Request]| BatchRequest { header: Header::default(), requests: requests.to_vec() };
    assert!(authorize(Caller::Tenant(tenant), &batch(&requests)).is_ok());
    requests[49] = get(8);
    assert!(authorize(Caller::Tenant(tenant), &batch(&requests)).is_err());
}

#[test]
fn only_control_makes_configures_and_drops_tenants_and_never_the_system() {
    let requests = |tenant_id| {
        [
            DropTenant { tenant_id }.into_kind(),
            CreateTenant { tenant_id }.into_kind(),
            ConfigureTenant { tenant_id, config: RangeConfig::default() }.into_kind(),
        ]
    };
    for id in [2, 7, 100] {
        for kind in requests(id) {
            assert!(allowed(Caller::Control, kind.clone()));
            assert!(!allowed(Caller::Tenant(TenantId(7)), kind.clone()));
            assert!(!allowed(Caller::Tenant(TenantId::SYSTEM), kind));
        }
    }
    for id in [0, 1, u64::MAX] {
        for kind in requests(id) {
            assert!(!allowed(Caller::Control, kind));
        }
    }
}

#[test]
fn a_tenant_configures_spans_of_its_own_and_what_costs_others_nothing() {
    let configure = |id: u64, start: Bytes, end: Bytes, config: Option<RangeConfig>| {
        ConfigureSpan { tenant_id: id, start, end, config }.into_kind()
    };
    let keys = |id: u64| (TenantId(id).prefixed(b"a"), TenantId(id).prefixed(b"b"));
    let own = |config| configure(7, keys(7).0, keys(7).1, config);
    let tenant = Caller::Tenant(TenantId(7));
    let global = RangeConfig { global_reads: true, ..RangeConfig::default() };
    for config in [None, Some(RangeConfig::default()), Some(global)] {
        assert!(allowed(tenant, own(config.clone())) && allowed(Caller::Control, own(config.clone())));
        assert!(!allowed(Caller::Tenant(TenantId(8)), own(config)));
    }
    for config in [
        RangeConfig { replicas: 5, ..RangeConfig::default() },
        RangeConfig { gc_ttl_s: 60, ..RangeConfig::default() },
    ] {
        assert!(!allowed(tenant, own(Some(config.clone()))) && allowed(Caller::Control, own(Some(config))));
    }
    assert!(!allowed(tenant, configure(7, keys(8).0, keys(8).1, None)), "named as its own");
    assert!(!allowed(tenant, configure(8, keys(7).0, keys(7).1, None)));
    assert!(!allowed(tenant, configure(7, keys(7).0, keys(8).1, None)));
    assert!(!allowed(Caller::Control, configure(1, keys(1).0, keys(1).1, None)), "never the system");
    assert!(!allowed(Caller::Tenant(TenantId::SYSTEM), configure(1, keys(1).0, keys(1).1, None)));
}

#[test]
fn control_looks_up_any_range() {
    for key in [TenantId(7).prefixed(b""), Bytes::from_static(&[CLUSTER_REGION])] {
        assert!(allowed(Caller::Control, RangeLookup { key }.into_kind()));
    }
}

#[test]
fn only_control_works_on_the_cluster() {
    let requests = || {
        let drain = |undo| DrainNode { node_id: 1, undo }.into_kind();
        [
            NodesRequest {}.into_kind(),
            drain(false),
            drain(true),
            RangesRequest::default().into_kind(),
            CheckReplicas {}.into_kind(),
        ]
    };
    for kind in requests() {
        assert!(allowed(Caller::Control, kind));
    }
    for tenant in [TenantId::SYSTEM, TenantId(7)] {
        for kind in requests() {
            assert!(!allowed(Caller::Tenant(tenant), kind));
        }
    }
    let foreign = Span::point(TenantId(7).prefixed(b"a"));
    let smuggled = batch(NodesRequest {}.into_kind(), vec![foreign]);
    assert!(authorize(Caller::Control, &smuggled).is_err(), "spans are checked whatever the request");
}

#[test]
fn only_sql_nodes_and_control_are_let_in() {
    let let_in = |identity| Caller::from_identity(Some(identity));
    assert_eq!(let_in(Identity::Tenant(1)), Ok(Caller::Tenant(TenantId::SYSTEM)));
    assert_eq!(let_in(Identity::Tenant(2345)), Ok(Caller::Tenant(TenantId(2345))));
    assert_eq!(let_in(Identity::Control), Ok(Caller::Control));
    for identity in [
        None,
        Some(Identity::Proxy),
        Some(Identity::Warm),
        Some(Identity::Kv),
        Some(Identity::Tenant(0)),
        Some(Identity::Tenant(u64::MAX)),
    ] {
        let refused = Caller::from_identity(identity).expect_err("refused");
        assert_eq!(refused.kind(), KvErrorKind::Unauthorized);
    }
}
