//! Where slots are served, as the server asks it: by the slots of this node, and by the map.

use super::node::Node;
use crate::map::{Map, Node as Member};
use crate::owner::Slot;
use crate::slot::SLOTS;
use arc_swap::ArcSwap;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::sync::Arc;
use terrace_server::routing::{self, Figure, Place, Routing, Shape};

/// The cluster as this node knows it.
pub(super) struct Known {
    node: Arc<Node>,
    view: ArcSwap<View>,
}

struct View {
    shape: Arc<Shape>,
    /// For each slot, its owner's place in `shape`.
    owners: Vec<Option<u16>>,
}

impl Known {
    /// Of a node that knows no other. `me`: how clients reach it.
    pub(super) fn new(node: Arc<Node>, me: &Member) -> Self {
        let view = View::of(0, &Map::default(), me);
        Self { node, view: ArcSwap::from_pointee(view) }
    }

    /// There is another map. An older one is ignored: a directory may have lost the later ones.
    pub(super) fn set(&self, epoch: u64, map: &Map, me: &Member) {
        if epoch <= self.view.load().shape.epoch() {
            return;
        }
        self.view.store(Arc::new(View::of(epoch, map, me)));
    }
}

impl View {
    fn of(epoch: u64, map: &Map, me: &Member) -> Self {
        let others = map.nodes.iter().filter(|node| node.id != me.id);
        let others: Vec<routing::Node> = others.map(|node| shown(node, map)).collect();
        let shape = Arc::new(Shape::new(epoch, shown(me, map), others));
        let place = |owner: &Member| shape.nodes().iter().position(|node| node.id == owner.id);
        let owners = map.owners().into_iter().map(|owner| owner.and_then(place).map(|place| place as u16));
        let owners: Vec<_> = owners.collect();
        assert!(owners.len() == usize::from(SLOTS), "a map says of each slot where it belongs");
        Self { owners, shape }
    }
}

/// A node as clients are told of it.
fn shown(node: &Member, map: &Map) -> routing::Node {
    let address = node.host.parse::<IpAddr>();
    let resolve = || (&*node.host, node.port).to_socket_addrs().ok()?.next().map(|address| address.ip());
    routing::Node {
        id: node.id.clone(),
        host: address.is_err().then(|| node.host.clone()),
        address: address.ok().or_else(resolve).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        port: node.port,
        slots: map.slots_of(&node.id).iter().map(|range| range.first..=range.last).collect(),
        is_online: true,
    }
}

impl Routing for Known {
    fn place(&self, slot: u16, _: bool) -> Place {
        match self.node.gate().slots.word(slot).state() {
            Slot::Served => return Place::Here,
            Slot::Held => return Place::Held,
            Slot::Away => {}
        }
        let view = self.view.load();
        match view.owners[usize::from(slot)] {
            None => Place::Nowhere,
            // It comes in a moment.
            Some(0) => Place::Held,
            Some(owner) => Place::There(Arc::clone(&view.shape.nodes()[usize::from(owner)])),
        }
    }

    fn arrivals(&self) -> u64 {
        self.node.gate().slots.arrivals()
    }

    fn shape(&self) -> Arc<Shape> {
        Arc::clone(&self.view.load().shape)
    }

    fn figures(&self) -> Vec<Figure> {
        self.node.told()
    }
}
