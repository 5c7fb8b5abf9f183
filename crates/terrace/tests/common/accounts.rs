//! Accounts that several processes move money between. Their total never changes, whichever process
//! dies at whatever point.
#![allow(unreachable_pub, reason = "of the test that uses it")]

use super::Draws;
use std::ops::Range;
use terrace::{Store, Transaction};
use terrace_testkit::process::acknowledge;

/// The prefix of all keys of accounts.
pub const PREFIX: &[u8] = b"account";
const ACCOUNTS: u64 = 6;
const EACH: i64 = 1000;
/// Acknowledge only every so many moves: only progress matters.
const ACKNOWLEDGE_EVERY: u64 = 32;
/// The total balance.
pub const TOTAL: i64 = ACCOUNTS as i64 * EACH;

fn account(number: u64) -> Vec<u8> {
    format!("account {number}").into_bytes()
}

fn amount(value: &[u8]) -> i64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

fn balance(transaction: &mut Transaction<'_>, key: &[u8]) -> i64 {
    amount(&transaction.get(key).unwrap().unwrap())
}

/// Creates the accounts with equal balances.
pub fn open_accounts(store: &Store) {
    (0..ACCOUNTS).for_each(|number| store.put(account(number), EACH.to_string().as_bytes()).unwrap());
}

/// The total balance at one instant.
pub fn total(store: &Store) -> i64 {
    let keys: Vec<Vec<u8>> = (0..ACCOUNTS).map(account).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut total = 0;
    store.snapshot_many(&keys, &mut |_, entry| total += amount(entry.unwrap().unwrap().value));
    total
}

/// Moves money in several threads, and acknowledges progress, until the process is killed.
pub fn move_until_killed(store: &Store, threads: Range<u64>, seed: impl Fn(u64) -> Draws) {
    std::thread::scope(|scope| {
        for (place, thread) in threads.enumerate() {
            let mut draws = seed(thread);
            scope.spawn(move || {
                for n in 1..u64::MAX {
                    move_some(store, &mut draws);
                    if n.is_multiple_of(ACKNOWLEDGE_EVERY) {
                        acknowledge(place, n);
                    }
                }
            });
        }
    });
}

fn move_some(store: &Store, draws: &mut Draws) {
    let from = draws.below(ACCOUNTS);
    let to = (from + 1 + draws.below(ACCOUNTS - 1)) % ACCOUNTS;
    let (from, to, sum) = (account(from), account(to), draws.below(10) as i64);
    let run = |transaction: &mut Transaction<'_>| {
        let (left, right) = (balance(transaction, &from) - sum, balance(transaction, &to) + sum);
        transaction.put(&from, left.to_string().as_bytes())?;
        transaction.put(&to, right.to_string().as_bytes())
    };
    store.transaction(run).unwrap();
}
