//! A cluster of some nodes in this process, whose slots a test moves.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
};

use terrace_protocol::{SLOTS, slot};
use terrace_server::routing::{Node, Place, Routing, Shape};

/// Where a slot is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Served by a node.
    At(usize),
    /// Served by a node, which sends clients to another one for a command each.
    Ask(usize, usize),
    /// Being moved.
    Held,
    /// On its way to a node, which all know.
    Late(usize),
    /// Served by no node.
    Nowhere,
}

struct Map {
    spots: Vec<Spot>,
    nodes: Vec<Node>,
    epoch: u64,
    /// The cluster as each node sees it.
    shapes: Vec<Arc<Shape>>,
}

/// The slots of a cluster, and its nodes.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Mutex<Map>>);

struct View {
    cluster: Cluster,
    me: usize,
}

impl Cluster {
    /// A cluster whose nodes serve these ports. Each has as many slots as the others, one range.
    pub(crate) fn new(ports: &[u16]) -> Cluster {
        let node = |(nth, port): (usize, &u16)| Node {
            id: format!("{:040x}", nth + 10),
            host: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: *port,
            slots: Vec::new(),
            is_online: true,
        };
        let nodes: Vec<Node> = ports.iter().enumerate().map(node).collect();
        let each = usize::from(SLOTS).div_ceil(nodes.len());
        let spots = (0..usize::from(SLOTS)).map(|slot| Spot::At(slot / each)).collect();
        let cluster = Cluster(Arc::new(Mutex::new(Map { spots, nodes, epoch: 1, shapes: Vec::new() })));
        cluster.change(|_, _| {});
        cluster
    }

    /// Sets the epoch that the next change makes.
    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.0.lock().unwrap().epoch = epoch;
    }

    /// The cluster for the server of a node.
    pub(crate) fn routing(&self, me: usize) -> Arc<dyn Routing> {
        Arc::new(View { cluster: self.clone(), me })
    }

    /// Moves the slot of a key.
    pub(crate) fn put(&self, key: &str, spot: Spot) {
        self.change(|spots, _| spots[usize::from(slot(key.as_bytes()))] = spot);
    }

    /// Changes the spots of the slots, and the nodes.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<Spot>, &mut Vec<Node>)) {
        let mut map = self.0.lock().unwrap();
        let Map { spots, nodes, .. } = &mut *map;
        change(spots, nodes);
        let with_slots = |(nth, node): (usize, &Node)| {
            let is_there = |(_, spot): &(u16, &Spot)| match spot {
                Spot::At(at) | Spot::Ask(at, _) | Spot::Late(at) => *at == nth,
                Spot::Held | Spot::Nowhere => false,
            };
            let slots = (0..SLOTS).zip(&map.spots).filter(is_there).map(|(slot, _)| slot..=slot).collect();
            Node { slots, ..node.clone() }
        };
        let nodes: Vec<Node> = map.nodes.iter().enumerate().map(with_slots).collect();
        let shape = |me: usize| {
            let others = nodes.iter().enumerate().filter(|(nth, _)| *nth != me).map(|(_, node)| node.clone());
            Arc::new(Shape::new(map.epoch, nodes[me].clone(), others.collect()))
        };
        map.shapes = (0..nodes.len()).map(shape).collect();
        map.epoch += 1;
    }
}

impl Routing for View {
    fn place(&self, slot: u16, asking: bool) -> Place {
        let map = self.cluster.0.lock().unwrap();
        let node = |nth: usize| Arc::new(map.nodes[nth].clone());
        match map.spots[usize::from(slot)] {
            Spot::At(at) if at == self.me => Place::Here,
            Spot::At(at) => Place::There(node(at)),
            Spot::Ask(at, to) if at == self.me => Place::Ask(node(to)),
            Spot::Ask(_, to) if to == self.me && asking => Place::Here,
            Spot::Ask(at, _) => Place::There(node(at)),
            Spot::Late(at) if at != self.me => Place::There(node(at)),
            Spot::Held | Spot::Late(_) => Place::Held,
            Spot::Nowhere => Place::Nowhere,
        }
    }

    fn arrivals(&self) -> u64 {
        self.cluster.0.lock().unwrap().epoch
    }

    fn shape(&self) -> Arc<Shape> {
        Arc::clone(&self.cluster.0.lock().unwrap().shapes[self.me])
    }
}
