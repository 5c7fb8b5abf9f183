//! Tests of indexes, in one program, so that what they have in common is compiled once.

mod art;
mod art_conformance;
mod cache;
mod clht_conformance;
mod clht_remote;
mod counts;
mod cursors;
mod damage;
mod found;
mod growth;
mod hot;
mod hot_conformance;
mod level;
mod level_conformance;
mod masstree_conformance;
mod rewo;
mod rewo_conformance;
mod stored;
mod turbo;
mod turbo_conformance;
