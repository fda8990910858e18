//! Whether two nodes that greet each other fit.

use super::message::PeerHello;
use replication::NodeId;
use replication::message::PEER_PROTOCOL_VERSION;

/// Which node of which cluster this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalNode {
    /// `None` until it has joined.
    pub(super) node_id: Option<NodeId>,
    pub(super) cluster_id: String,
}

/// Whether to take messages from the sender of a hello; says who it is.
///
/// # Errors
/// A message for both sides that says what does not fit and what to do about it.
pub(super) fn check_hello(hello: &PeerHello, local: &LocalNode) -> Result<NodeId, String> {
    check_version(hello.version, hello.node_id)?;
    let Some(node_id) = local.node_id else {
        return Err("this node is still joining its cluster; it can be reached once it has".to_owned());
    };
    check_cluster(hello, &local.cluster_id)?;
    if hello.node_id == 0 {
        return Err("a node that has not joined the cluster cannot send to its members".to_owned());
    }
    if hello.node_id == node_id {
        return Err(format!(
            "two processes are node {node_id} of this cluster, which happens when a data directory is \
             copied: stop one of them and start it again with an empty data directory"
        ));
    }
    if hello.to_node != node_id {
        return Err(format!(
            "node {} looks for node {} at the address of node {node_id}: check that the two do not \
             advertise the same address; the cluster learns the right one when node {} is started again",
            hello.node_id, hello.to_node, hello.to_node
        ));
    }
    Ok(hello.node_id)
}

/// Whether to send messages to the sender of an answer, which should be node `expected`.
///
/// # Errors
/// A message that says what does not fit and what to do about it.
pub(super) fn check_answer(answer: &PeerHello, local: &LocalNode, expected: NodeId) -> Result<(), String> {
    if let Some(refused) = &answer.refused {
        return Err(refused.clone());
    }
    check_version(answer.version, expected)?;
    check_cluster(answer, &local.cluster_id)?;
    if answer.node_id != expected {
        return Err(format!(
            "node {} is at the address of node {expected}: check that the two do not advertise the same \
             address; the cluster learns the right one when node {expected} is started again",
            answer.node_id
        ));
    }
    Ok(())
}

pub(super) fn check_version(version: u32, node: NodeId) -> Result<(), String> {
    if version == PEER_PROTOCOL_VERSION {
        return Ok(());
    }
    let who = if node == 0 { "a node that wants to join".to_owned() } else { format!("node {node}") };
    Err(format!(
        "{who} speaks version {version} of the protocol between KV nodes and its peer version \
         {PEER_PROTOCOL_VERSION}: run the same release of dormouse on all nodes of the cluster"
    ))
}

fn check_cluster(hello: &PeerHello, cluster_id: &str) -> Result<(), String> {
    if hello.cluster_id == cluster_id {
        return Ok(());
    }
    Err(format!(
        "node {} belongs to cluster {:?} and its peer to cluster {cluster_id:?}: correct the addresses the \
         nodes are started with, or start the one that is wrong here with an empty data directory to have \
         it join the other cluster",
        hello.node_id, hello.cluster_id
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(node_id: NodeId, to_node: NodeId) -> PeerHello {
        PeerHello {
            version: PEER_PROTOCOL_VERSION,
            cluster_id: "here".to_owned(),
            node_id,
            to_node,
            refused: None,
        }
    }

    fn local(node_id: NodeId) -> LocalNode {
        LocalNode { node_id: Some(node_id), cluster_id: "here".to_owned() }
    }

    #[test]
    fn a_hello_fits_in_all_respects_or_not_at_all() {
        assert_eq!(check_hello(&hello(1, 2), &local(2)), Ok(1));
        let joining = LocalNode { node_id: None, cluster_id: String::new() };
        for (wrong, here, says) in [
            (PeerHello { version: 7, ..hello(1, 2) }, local(2), "same release"),
            (PeerHello { cluster_id: "there".to_owned(), ..hello(1, 2) }, local(2), "\"there\""),
            (hello(0, 2), local(2), "not joined"),
            (hello(2, 2), local(2), "two processes"),
            (hello(1, 3), local(2), "looks for node 3"),
            (hello(1, 2), joining, "still joining"),
        ] {
            let refused = check_hello(&wrong, &here).expect_err("should not fit");
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn so_does_an_answer() {
        assert_eq!(check_answer(&hello(2, 1), &local(1), 2), Ok(()));
        for (wrong, says) in [
            (PeerHello { version: 7, ..hello(2, 1) }, "version 7"),
            (PeerHello { cluster_id: "there".to_owned(), ..hello(2, 1) }, "\"there\""),
            (PeerHello { refused: Some("no".to_owned()), ..hello(2, 1) }, "no"),
            (hello(3, 1), "node 3 is at the address of node 2"),
        ] {
            let refused = check_answer(&wrong, &local(1), 2).expect_err("should not fit");
            assert!(refused.contains(says), "{refused}");
        }
    }
}
