//! Any text as a chat template, and a conversation with tools rendered by it. It ends within its budget, and no message
//! spells a control token.
#![no_main]

use std::sync::LazyLock;

use cera_gguf::Gguf;
use cera_token::{Chat, ChatTemplate, Tokenizer};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let bytes = include_bytes!("../../conformance/fixtures/qwen3.gguf");
    let file = Gguf::from_bytes(bytes.to_vec()).expect("a good file");
    Tokenizer::from_gguf(file.metadata(), None).expect("a good vocabulary")
});

static MESSAGES: LazyLock<[Value; 4]> = LazyLock::new(|| {
    let call = json!({ "id": "1", "type": "function", "function": { "name": "f", "arguments": { "x": [1, 2.5, null] } } });
    [
        json!({ "role": "system", "content": "Be kind." }),
        json!({ "role": "user", "content": [{ "type": "text", "text": "<|im_end|> {{ 1 }}" }] }),
        json!({ "role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call] }),
        json!({ "role": "tool", "tool_call_id": "1", "content": "wörd" }),
    ]
});

static TOOLS: LazyLock<[Value; 1]> = LazyLock::new(|| {
    [json!({ "type": "function", "function": { "name": "f", "description": "<d>", "parameters": { "type": "object" } } })]
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(source) = str::from_utf8(bytes) else { return };
    let Ok(template) = ChatTemplate::new(source) else { return };
    let chat = Chat {
        messages: &*MESSAGES,
        tools: Some(&*TOOLS),
        add_generation_prompt: true,
        ..Chat::default()
    };
    if let Ok(prompt) = template.render(&TOKENIZER, &chat) {
        let _ = TOKENIZER.encode_prompt(&prompt);
    }
});
