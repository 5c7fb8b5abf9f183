//! What a node tells of its cluster.

use super::*;

#[test]
fn cluster_commands_describe_nodes_and_slots() {
    let (_, mut client) = cluster();
    let (me, other) = (format!("{:040x}", 10), format!("{:040x}", 11));
    assert_eq!(
        client.ask("CLUSTER NODES"),
        format!(
            "$191 {me} 127.0.0.1:7000@0 myself,master - 0 0 1 connected 0-8191\n\
             {other} 127.0.0.1:7001@0 master - 0 0 1 connected 8192-16383\n"
        )
        .trim_end()
    );
    client.expect(&[
        ("CLUSTER MYID", &format!("$40 {me}")),
        ("CLUSTER MYSHARDID", &format!("$40 {me}")),
        ("CLUSTER LINKS", "*0"),
        (&format!("CLUSTER REPLICAS {other}"), "*0"),
        (&format!("CLUSTER COUNT-FAILURE-REPORTS {other}"), ":0"),
        ("CLUSTER KEYSLOT {foo}x", ":12182"),
        ("READONLY", "+OK"),
        ("READWRITE", "+OK"),
        ("SELECT 0", "+OK"),
        ("SELECT 1", "-ERR SELECT is not allowed in cluster mode"),
        ("SWAPDB 0 1", "-ERR SWAPDB is not allowed in cluster mode"),
        ("INFO cluster", "$30 # Cluster cluster_enabled:1"),
    ]);
    assert!(client.ask("INFO server").contains(" redis_mode:cluster "));
    assert!(client.ask("HELLO").contains(" $4 mode $7 cluster "));
    let info = client.ask("CLUSTER INFO");
    assert!(info.contains("cluster_state:ok ") && info.contains("cluster_known_nodes:2 "), "{info}");
}

#[test]
fn cluster_info_counts_slots_by_their_state() {
    let (cluster, mut client) = cluster();
    // A slot that this node does not serve yet.
    cluster.put("bar", Spot::Late(0));
    let info = client.ask("CLUSTER INFO");
    for line in ["state:ok", "slots_assigned:16384", "slots_ok:16383", "slots_pfail:1", "slots_fail:0"] {
        assert!(info.contains(&format!("cluster_{line} ")), "{line}: {info}");
    }
    cluster.put("bar", Spot::At(0));
    cluster.put("foo", Spot::Nowhere);
    cluster.change(|_, nodes| nodes[1].is_online = false);
    let info = client.ask("CLUSTER INFO");
    for line in ["state:fail", "slots_assigned:16383", "slots_ok:8192", "slots_fail:8191", "current_epoch:5"]
    {
        assert!(info.contains(&format!("cluster_{line} ")), "{line}: {info}");
    }
    assert!(client.ask("CLUSTER NODES").contains("master,fail - 0 0 5 disconnected 8192-12181 12183-16383"));
    assert!(client.ask("CLUSTER SHARDS").contains("$6 health $6 failed"));
}

#[test]
fn cluster_state_fails_where_no_slot_is_served() {
    let (cluster, mut client) = cluster();
    let be = |spot: Spot| cluster.change(|spots, _| spots[..8192].fill(spot));
    be(Spot::Late(0));
    let info = client.ask("CLUSTER INFO");
    assert!(info.contains("cluster_state:fail ") && info.contains("cluster_slots_pfail:8192 "), "{info}");
    be(Spot::At(0));
    assert!(client.ask("CLUSTER INFO").contains("cluster_state:ok "));
}

#[test]
fn cluster_slots_begins_with_another_node_a_client() {
    let (cluster, client) = cluster();
    cluster.put("bar", Spot::At(1));
    let whole =
        |id: usize, port: usize, range: &str| format!("*3 {range} *4 $9 127.0.0.1 :{port} $40 {id:040x} *0");
    let ranges = [
        whole(10, 7000, ":0 :5060"),
        whole(11, 7001, ":5061 :5061"),
        whole(10, 7000, ":5062 :8191"),
        whole(11, 7001, ":8192 :16383"),
    ];
    let mut seen = Vec::new();
    for _ in 0..4 {
        let mut other = client.another();
        let reply = other.ask("CLUSTER SLOTS");
        let start = ranges.iter().position(|range| reply.starts_with(&format!("*4 {range}"))).unwrap();
        let mut rotated = ranges.clone();
        rotated.rotate_left(start);
        assert_eq!(reply, format!("*4 {}", rotated.join(" ")));
        assert_eq!(other.ask("CLUSTER SLOTS"), reply, "a client gets the same again");
        seen.push(start);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 0, 1, 1], "the first range of each node comes first for half of the clients");
    // A change is seen at once.
    cluster.put("bar", Spot::At(0));
    assert!(client.another().ask("CLUSTER SLOTS").starts_with("*2 *3 "));
    cluster.change(|spots, _| spots.fill(Spot::Nowhere));
    assert_eq!(client.another().ask("CLUSTER SLOTS"), "*0");
}

#[test]
fn keys_in_slot_are_counted_and_listed() {
    let (_, mut client) = cluster();
    for n in 0..30 {
        client.expect(&[(&format!("SET {{bar}}{n:02} x"), "+OK"), (&format!("SET {{b}}{n} x"), "+OK")]);
    }
    client.expect(&[
        ("CLUSTER COUNTKEYSINSLOT 5061", ":30"),
        ("CLUSTER COUNTKEYSINSLOT 866", ":0"),
        ("CLUSTER GETKEYSINSLOT 866 10", "*0"),
        ("CLUSTER GETKEYSINSLOT 5061 0", "*0"),
        ("CLUSTER COUNTKEYSINSLOT 16384", "-ERR Invalid slot"),
    ]);
    let some = client.ask("CLUSTER GETKEYSINSLOT 5061 2");
    assert!(some.starts_with("*2 $7 {bar}") && some.matches("{bar}").count() == 2, "{some}");
    let all = client.ask("CLUSTER GETKEYSINSLOT 5061 9223372036854775807");
    assert!(all.starts_with("*30 ") && (0..30).all(|n| all.contains(&format!("{{bar}}{n:02}"))), "{all}");
    // As in Redis, a transaction sees its own writes.
    client.expect(&[
        ("MULTI", "+OK"),
        ("SET {bar}x 1", "+QUEUED"),
        ("CLUSTER COUNTKEYSINSLOT 5061", "+QUEUED"),
    ]);
    client.expect(&[("EXEC", "*2 +OK :31")]);
}

#[test]
fn server_without_cluster_has_only_the_slot_of_a_key() {
    const DISABLED: &str = "-ERR This instance has cluster support disabled";
    let mut client = Client::new();
    client.expect(&[("CLUSTER KEYSLOT foo", ":12182"), ("INFO cluster", "$30 # Cluster cluster_enabled:0")]);
    assert!(client.ask("CLUSTER HELP").contains("COUNTKEYSINSLOT"));
    for line in [
        "ASKING",
        "READONLY",
        "READWRITE",
        "CLUSTER COUNT-FAILURE-REPORTS x",
        "CLUSTER COUNTKEYSINSLOT 1",
        "CLUSTER GETKEYSINSLOT 1 1",
        "CLUSTER INFO",
        "CLUSTER LINKS",
        "CLUSTER MYID",
        "CLUSTER MYSHARDID",
        "CLUSTER NODES",
        "CLUSTER REPLICAS x",
        "CLUSTER SHARDS",
        "CLUSTER SLOTS",
    ] {
        client.expect(&[(line, DISABLED)]);
    }
    client.expect(&[("CLUSTER MEET 1 2", "-ERR unknown subcommand 'MEET'. Try CLUSTER HELP.")]);
}
