//! Tests: a flipped bit is found, and costs a record.

use super::{
    Filled, filled, largest, look_at, name_of, one_of, part, parts_of, salvage_of, salvaged, try_open, with,
};
use crate::fixtures::contents;
use terrace_engine::OnDisk;
use terrace_medium::files::Files;

#[test]
fn flipped_bits_of_a_block_are_found_and_cost_a_record() {
    let (files, model) = filled();
    let path = largest(&files, ".block");
    let bytes = files.content(&path).unwrap();
    let parts = parts_of(&bytes);
    for (nth, range) in parts.windows(2).enumerate() {
        assert!(range[0] < range[1], "part {nth} is empty");
        let step = ((range[1] - range[0]) / 150).max(1);
        for at in (range[0]..range[1]).step_by(step | 1) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let (files, about) = (with(&files, &path, &damaged), format!("part {nth}, byte {at}"));
            let seen = look_at(&files, &path, &model, &about);
            // What a version field or the number of words says is of no use on the tier.
            let is_unused = nth == 0 && !seen.is_found;
            assert!(seen.is_found || is_unused && seen.unreadable == 0, "{about}: {seen:?}");
            assert_eq!(seen.is_refused, nth > 0, "{about}");
            let (lost, findings) = salvage_of(&files, &model, &about);
            assert!(lost <= usize::from(nth == 0), "{about}: {lost} lost, {findings:?}");
            if nth > 0 {
                assert!(!findings.is_empty(), "{about}");
            }
        }
    }
}

/// Records of a page, each with its place: of all bytes, one bit.
#[test]
fn flipped_bits_of_a_page_never_show_a_wrong_value() {
    let (files, model) = filled();
    let path = largest(&files, ".block");
    let bytes = files.content(&path).unwrap();
    for at in 0..700 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at * 5 % 8);
        let about = format!("byte {at}");
        let seen = look_at(&with(&files, &path, &damaged), &path, &model, &about);
        assert!(seen.unreadable <= 1, "{about}: {seen:?}");
    }
}

#[test]
fn flipped_bits_of_other_files_are_found() {
    let (files, model) = filled();
    for kind in [".large", "TERRACE", "CURRENT", "MANIFEST"] {
        let path = one_of(&files, kind);
        let bytes = files.content(&path).unwrap();
        for at in (0..bytes.len()).step_by((bytes.len() / 100).max(1)) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let (files, about) = (with(&files, &path, &damaged), format!("{kind}, byte {at}"));
            let (lost, findings) = salvage_of(&files, &model, &about);
            assert_eq!(lost, usize::from(kind == ".large"), "{about}");
            // Edits have whole words, and the mark behind the last one may be torn.
            let is_padding = kind == "MANIFEST" && (bytes[at] == 0 || at + 40 >= bytes.len());
            let is_told = findings.iter().any(|finding| finding.to_string().contains(name_of(&path)));
            assert!(is_told || is_padding, "{about}: {findings:?}");
            let seen = look_at(&files, &path, &model, &about);
            assert!(seen.is_found || is_padding, "{about}: {seen:?}");
        }
    }
}

/// What lies behind the last sync may be torn, so its damage is not told.
#[test]
fn flipped_bits_of_the_log_cost_two_records() {
    let (files, model) = filled();
    let path = largest(&files, ".log");
    let bytes = files.content(&path).unwrap();
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for at in (0..used).step_by((used / 300) | 1) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let (files, about) = (with(&files, &path, &damaged), format!("byte {at} of {used}"));
        let (found, findings) = salvaged(&files);
        let wrong = found.iter().filter(|(key, entry)| model.get(*key) != Some(entry)).count();
        let lost = model.keys().filter(|key| !found.contains_key(*key)).count();
        assert!(lost + wrong <= 2, "{about}: {lost} lost, {wrong} wrong");
        match try_open(&files) {
            Err(error) => assert!(error.contains(name_of(&path)) && error.contains("offset"), "{error}"),
            Ok(store) => {
                let left = contents(&store).unwrap();
                let is_last = at + 200 > used && left.len() + 1 == model.len();
                assert!(left == model || is_last, "{about}: {} entries", left.len());
            }
        }
        assert!(lost + wrong == 0 || !findings.is_empty() || at + 200 > used, "{about}: {findings:?}");
    }
}

/// A bit of the log that was synced is damage. One behind the last sync looks like a torn end.
#[test]
fn log_behind_its_damage_is_kept() {
    let mut filled = Filled::new();
    for number in 0..40 {
        filled.put(number, vec![number as u8; 60]);
        OnDisk::sync(&filled.store).unwrap();
    }
    let (files, model) = filled.left();
    let path = largest(&files, ".log");
    let bytes = files.content(&path).unwrap();
    let value = vec![20; 60];
    let at = bytes.windows(60).position(|window| window == value).expect("a value in the log");
    let mut damaged = bytes.clone();
    damaged[at + 7] ^= 4;
    let files = with(&files, &path, &damaged);
    // The records tell it without the notes of how far the log went.
    files.remove(&part(&files, "ENDS")[0]).unwrap();
    let error = try_open(&files).err().expect("the log is damaged");
    assert!(error.contains(name_of(&path)) && error.contains("offset"), "{error}");
    let (lost, findings) = salvage_of(&files, &model, "a value");
    assert_eq!((lost, findings.len()), (1, 1), "{findings:?}");
    assert!(findings[0].to_string().contains("19 records behind it are kept"), "{}", findings[0]);
}
