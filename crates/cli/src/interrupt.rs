//! Ctrl-C: breaks off an answer where one is being given, and ends the program elsewhere.

use std::ops::ControlFlow;
use std::process;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::failure::Failure;

const IDLE: u8 = 0;
const ANSWERING: u8 = 1;
const BROKEN_OFF: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// While this lives, the first Ctrl-C only asks for the answer to end. A second one ends the program.
pub struct Answering(());

/// Listens for Ctrl-C. Once in a program.
pub fn listen() -> Result<(), Failure> {
    let handler = || {
        let first = STATE.compare_exchange(ANSWERING, BROKEN_OFF, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err() {
            process::exit(130);
        }
    };
    ctrlc::set_handler(handler).map_err(|e| Failure::new(format_args!("cannot listen for Ctrl-C: {e}")))
}

impl Answering {
    /// An answer begins.
    pub fn begin() -> Self {
        STATE.store(ANSWERING, Ordering::Relaxed);
        Answering(())
    }

    /// Whether to go on with the answer.
    pub fn flow(&self) -> ControlFlow<()> {
        match STATE.load(Ordering::Relaxed) {
            BROKEN_OFF => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        STATE.store(IDLE, Ordering::Relaxed);
    }
}
