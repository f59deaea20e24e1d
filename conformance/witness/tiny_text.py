"""The text that the tiny fixtures' tokenizer is trained on, the prompt they are run on, and their chat template."""

# A little of everything that a byte-level BPE has to cut: prose, code, JSON, digits, several scripts.
CORPUS = """\
An engine is handed a row of numbers, one for each piece of the text, and answers with a number for every piece that
could come next. It does so again and again, and each answer becomes part of the next question. The work is the same
for a poem, for a shopping list and for the source of a compiler; only the weights know the difference.
When the reader asks why the river is wide, the writer says that the rain in the hills was long and the winter mild.
She counted the sheep: one, two, three, four; then she counted them once more, for the dog had not come home.
    for (size_t i = 0; i < count; i++) { total += values[i] * weights[i]; }
    fn main() { let answer: u32 = (1..=10).sum(); println!("answer = {answer}"); }
def greet(name: str) -> str:
    return f"Hello, {name}! It is {2 * 21} degrees today."
{"city": "Oslo", "rain": true, "days": [1, 2, 3, 4, 5], "wind": {"from": "NW", "speed": 12.5}}
Über den Wolken ist der Himmel größer. Où est le café ? L'été dernier, j'étais à Besançon. ¿Dónde está el niño?
Быстрая река течёт на север. 今日は雨が降ります。東京から京都まで。 Ο ήλιος ανατέλλει. 0123456789 3.1415926 1,000,000
"""

# Letters, code, digits, accents and a second script: about fifty tokens, so that small attention windows are left behind.
PROMPT = 'The engine counted the rivers: values[i] += 42; größer café {"days": [7, 8]} 東京 and again, why?'

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)
