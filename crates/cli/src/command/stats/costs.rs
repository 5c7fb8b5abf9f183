//! The costs of writes in addition to copying: write-backs and fences, which depend on the store's
//! durability.

use serde_json::{Value, json};

/// Counts by name.
#[derive(Clone, Debug)]
pub(super) struct Costs([(&'static str, u64); 5]);

const NAMES: [&str; 5] = [
    "fences_per_put",
    "fences_per_removal",
    "fences_per_batch",
    "write_backs_per_put",
    "write_backs_per_removal",
];

impl Costs {
    pub(super) fn of(costs: terrace::Costs) -> Costs {
        let counts = [
            costs.fences_per_put,
            costs.fences_per_removal,
            costs.fences_per_batch,
            costs.write_backs_per_put,
            costs.write_backs_per_removal,
        ];
        Costs(std::array::from_fn(|nth| (NAMES[nth], counts[nth].into())))
    }

    /// Reads the costs from a server's metrics; `None` if one is missing.
    pub(super) fn from_metrics(count: impl Fn(&str) -> Option<u64>) -> Option<Costs> {
        let mut costs = [("", 0); 5];
        for (cost, name) in costs.iter_mut().zip(NAMES) {
            *cost = (name, count(name)?);
        }
        Some(Costs(costs))
    }

    pub(super) fn text(&self) -> String {
        let [put, removal, batch, lines, removal_lines] = self.0.map(|(_, count)| count);
        if put == 0 {
            return "none: stores survive the process without them".into();
        }
        format!(
            "a write: {put} fences (shared in a pipeline), its record's lines and {lines} more written back; \
             a removal: {removal} fences, {removal_lines} lines written back; a batch: {batch} fences"
        )
    }

    pub(super) fn json(&self, field: &mut dyn FnMut(&str, Value)) {
        self.0.iter().for_each(|(name, count)| field(name, json!(count)));
    }
}
