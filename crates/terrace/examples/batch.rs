//! Atomic changes of several keys: a batch, and a transaction that moves money between accounts.
//!
//! `cargo run -p terrace --example batch`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use terrace::{Store, Transaction, WriteError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::options().anonymous().create()?;

    let mut batch = store.batch();
    batch.put("account:ada", "100").put("account:bob", "20").remove("account:old");
    batch.commit()?;

    for amount in [30, 90] {
        let moved =
            store.transaction(|transaction| transfer(transaction, "account:ada", "account:bob", amount));
        match moved {
            Ok(()) => println!("moved {amount}"),
            Err(Refused::NotEnough) => println!("cannot move {amount}: nothing has changed"),
            Err(Refused::Store(error)) => return Err(error.into()),
        }
    }
    assert_eq!(store.get("account:ada")?.unwrap(), "70");
    assert_eq!(store.get("account:bob")?.unwrap(), "50");
    Ok(())
}

enum Refused {
    NotEnough,
    Store(WriteError),
}

impl<E: Into<WriteError>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

/// An error rolls the transaction back.
fn transfer(transaction: &mut Transaction<'_>, from: &str, to: &str, amount: i64) -> Result<(), Refused> {
    let [has, gets] = [balance(transaction, from)?, balance(transaction, to)?];
    if has < amount {
        return Err(Refused::NotEnough);
    }
    transaction.put(from, (has - amount).to_string())?;
    transaction.put(to, (gets + amount).to_string())?;
    Ok(())
}

fn balance(transaction: &mut Transaction<'_>, account: &str) -> Result<i64, Refused> {
    let value = transaction.get(account)?;
    Ok(value.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok()).unwrap_or(0))
}
