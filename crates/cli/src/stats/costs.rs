//! What writes cost beside the copying: write-backs and fences, which follow from the store's durability.

use serde_json::{Value, json};

/// By their names, without units: they are counts.
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

    /// What a server tells; `None` if something is missing.
    pub(super) fn told(count: impl Fn(&str) -> Option<u64>) -> Option<Costs> {
        let mut costs = [("", 0); 5];
        for (cost, name) in costs.iter_mut().zip(NAMES) {
            *cost = (name, count(name)?);
        }
        Some(Costs(costs))
    }

    pub(super) fn text(&self) -> String {
        let [put, removal, batch, lines, removal_lines] = self.0.map(|(_, count)| count);
        if put == 0 {
            return "none: what is stored survives the process as it is".into();
        }
        format!(
            "a write {put} fences (a pipeline shares them) and its record's lines and {lines} written back, \
             a removal {removal} and {removal_lines}, several keys at once {batch} fences"
        )
    }

    pub(super) fn json(&self, field: &mut dyn FnMut(&str, Value)) {
        self.0.iter().for_each(|(name, count)| field(name, json!(count)));
    }
}
