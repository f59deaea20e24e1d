//! Progress bars on standard error, where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of bytes: `what` before it. Shows nothing where standard error is no terminal.
pub fn bytes(what: &str) -> ProgressBar {
    bar(what, "{msg:12} {wide_bar} {bytes:>10} of {total_bytes} {bytes_per_sec:>12} {eta:>4}")
}

/// A bar of tokens.
pub fn tokens(what: &str) -> ProgressBar {
    bar(what, "{msg:12} {wide_bar} {pos:>7} of {len} tokens")
}

/// A bar of rounds of a measurement.
pub fn rounds(what: &str) -> ProgressBar {
    bar(what, "{msg:12} {wide_bar} {pos:>3} of {len}")
}

/// Says that something is under way that cannot be counted.
pub fn waiting(what: &str) -> ProgressBar {
    let bar = bar(what, "{msg} {elapsed}");
    bar.tick();
    bar
}

fn bar(what: &str, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_message(what.to_string())
}
