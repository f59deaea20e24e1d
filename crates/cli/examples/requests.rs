//! Many requests at once over one loaded model, each a stream of its own.
//!
//! ```console
//! $ cargo run --release --example requests -- MODEL.gguf
//! ```

use std::error::Error;
use std::thread;

use cera::{Engine, Event, Options, Request, Service, ServiceOptions};
use cera_cpu::Cpu;
use cera_token::Special;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the model's file, please")?;
    // Room for eight sequences of 1,024 tokens each, or more that are shorter.
    let options = Options { context: Some(1024), sequences: 8, ..Options::default() };
    let engine = Engine::load(path.as_ref(), Box::new(Cpu::new(Default::default())?), &options)?;
    let service = Service::start(engine, ServiceOptions::default())?;

    let prompts = ["The capital of France is", "Water boils at", "Once upon a time", "2, 4, 6, 8,"];
    let mut waiting = Vec::new();
    for prompt in prompts {
        let tokens = service.model().tokenizer()?.encode_whole(prompt, Special::AsText)?;
        let request = Request { max_tokens: Some(24), ..Request::default() };
        let answer = service.submit(tokens, request)?;
        // Threads are for waiting only; `answer.next().await` waits without one.
        waiting.push(thread::spawn(move || -> Result<String, cera::Error> {
            let mut text = prompt.to_owned();
            for event in answer {
                match event? {
                    Event::Token(token) => text.push_str(&token.text),
                    Event::Done(report) => {
                        text.push_str(&format!("  [{} tokens/s]", report.generation_rate().round()));
                    }
                    Event::Prompt { .. } => {}
                }
            }
            Ok(text)
        }));
    }
    for thread in waiting {
        println!("{}\n", thread.join().map_err(|_| "a reader panicked")??);
    }
    println!("{:?}", service.stats());
    Ok(())
}
