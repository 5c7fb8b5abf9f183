//! Operations whose instructions callgrind counts: `crates/bench/cost-of-media` runs the programs.

use std::hint::black_box;
use std::io::Write;
use std::process::ExitCode;

/// Calls `work` with a stack that begins at a page.
///
/// Environment and arguments lie above the stack and move it by multiples of 16 bytes. The C
/// library's memcpy takes more instructions with some addresses than with others. So the same
/// operation would take a few more in one environment than in another, or on a medium with a longer
/// name.
#[inline(never)]
pub fn from_a_page_on(work: &dyn Fn() -> ExitCode) -> ExitCode {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let page = black_box(Page([0; 4096]));
    let code = work();
    black_box(&page.0);
    code
}

/// Calls `work`. Callgrind knows this function by its name and counts nothing else.
#[inline(never)]
fn counted(work: &dyn Fn()) {
    work();
}

/// Does `operation` with each number below `times`.
pub fn count(name: &str, times: u64, operation: impl Fn(u64)) {
    counted(&|| {
        for number in 0..times {
            operation(number);
        }
    });
    writeln!(std::io::stdout(), "{name} {times}").expect("somebody reads it");
}
