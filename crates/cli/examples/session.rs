//! A conversation: talk, fork, go back, save and take up again.
//!
//! ```console
//! $ cargo run --release --example session -- MODEL.gguf
//! ```

use std::error::Error;

use cera::{DiskOptions, Engine, Options, Request, Service, ServiceOptions, Session};
use cera_cpu::Cpu;
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the model's file, please")?;
    let folder = std::env::temp_dir().join("cera-example");
    // What the cache holds of prompts is kept in a folder, so a restart does not read them again.
    let disk = DiskOptions { folder: folder.join("prompts"), bytes: 1 << 30 };
    let options = Options { disk: Some(disk), ..Options::default() };
    let engine = Engine::load(path.as_ref(), Box::new(Cpu::new(Default::default())?), &options)?;
    let service = Service::start(engine, ServiceOptions::default())?;
    let request = Request { max_tokens: Some(60), ..Request::default() };

    let mut session = service.session();
    session.append_messages(&[
        json!({ "role": "system", "content": "You answer in one short sentence." }),
        json!({ "role": "user", "content": "Name a river in Africa." }),
    ])?;
    let (text, report) = session.answer(request.clone())?;
    println!("{text}\n  [{} tokens of the prompt were known]", report.reused_tokens);

    // Two ways to go on, of which neither knows the other.
    let here = session.tokens().len();
    let mut other = session.fork();
    for (session, question) in [(&mut session, "And one in Asia?"), (&mut other, "How long is it?")] {
        session.append_messages(&[json!({ "role": "user", "content": question })])?;
        let (text, report) = session.answer(request.clone())?;
        println!("{question}\n{text}\n  [{} tokens of the prompt were known]", report.reused_tokens);
    }

    // Back to the first answer, and into a file.
    session.rewind(here);
    let file = folder.join("talk.json");
    session.save(&file)?;
    let again = Session::restore(&service, &file)?;
    println!("{} messages are in {}", again.messages().len(), file.display());
    Ok(())
}
