//! SELECT index, SWAPDB index index

use terrace_protocol::Args;

use super::*;
use crate::{
    keyspace::{swap, within},
    state::{
        config::Key,
        databases::{DATABASES, Place},
    },
};

pub(super) static SELECT: Command = Command {
    flags: flag::LOADING | flag::STALE | flag::FAST,
    categories: category::CONNECTION,
    summary: "Selects a database, from 0 to 15.",
    ..Command::new("select", 2, group::CONNECTION, Run::General(select))
};

pub(super) static SWAPDB: Command = Command {
    flags: flag::WRITE | flag::FAST,
    categories: category::KEYSPACE | category::DANGEROUS,
    since: "4.0.0",
    summary: "Exchanges the keys of two databases at one instant.",
    ..Command::new("swapdb", 3, group::SERVER, Run::General(swapdb))
};

fn select(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let database = i32::try_from(parse::integer(args.at(1))?).map_err(|_| OUT_OF_INT)?;
    let database = match u8::try_from(database) {
        Ok(0) => 0,
        _ if cx.shared.is_of_cluster() => {
            return Err(Failure::Text("ERR SELECT is not allowed in cluster mode"));
        }
        Ok(database) if database < DATABASES => database,
        _ => return Err(Failure::NO_SUCH_DATABASE),
    };
    cx.state.selection.select(database);
    cx.reply.ok();
    Ok(())
}

const OUT_OF_INT: Failure =
    Failure::Text("ERR value is out of range, value must between -2147483648 and 2147483647");

fn swapdb(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if cx.state.selection.map().is_none() {
        return Err(Failure::Text("ERR SWAPDB is not allowed in cluster mode"));
    }
    let index = |at, wrong| {
        let number = parse::integer(args.at(at)).ok().and_then(|number| i32::try_from(number).ok());
        number.ok_or(Failure::Text(wrong))
    };
    let one = index(1, "ERR invalid first DB index")?;
    let other = index(2, "ERR invalid second DB index")?;
    let [Some(one), Some(other)] = [one, other].map(known) else { return Err(Failure::NO_SUCH_DATABASE) };
    if cx.shared.config.is_on(Key::Shared) || !cx.shared.store.sharing().other_processes().is_empty() {
        return Err(Failure::Text(
            "ERR SWAPDB is not possible while the pool is shared: the other processes would go on with the old \
             databases. Start `terrace serve` without --shared",
        ));
    }
    if one != other {
        let map = within(cx.keys, Place::RAW, |keys| swap(keys, one, other))?;
        cx.state.selection.see(Some(map));
        if !cx.keys.is_transaction() {
            cx.shared.publish_swap(map);
        }
    }
    cx.reply.ok();
    Ok(())
}

/// The database of this number, if there is one.
fn known(index: i32) -> Option<u8> {
    u8::try_from(index).ok().filter(|index| *index < DATABASES)
}

/// The place of the database that an argument names.
pub(super) fn place(cx: &Context<'_>, index: &[u8]) -> Result<Place, Failure> {
    let database = i32::try_from(parse::integer(index)?).map_err(|_| OUT_OF_INT)?;
    match (cx.state.selection.map(), known(database)) {
        (Some(map), Some(database)) => Ok(map.place(database)),
        (None, Some(0)) => Ok(Place::FIRST),
        _ => Err(Failure::NO_SUCH_DATABASE),
    }
}
