#!/usr/bin/env python3
"""Render llama.cpp's collection of chat templates with Jinja2, as transformers sets it up.

    templates.py FOLDER OUT [--show TEMPLATE CASE]

FOLDER holds `*.jinja` (llama.cpp's `models/templates`). OUT receives what crates/token/tests/templates.rs compares with: the
conversations, and for each template and conversation a digest of the text, "refused" where the template itself objects, or
`null` where Jinja2 fails. `--show` prints one text instead.

The clock is stopped: `strftime_now` gives the time of NOW in UTC.
"""
import argparse
import json
from datetime import datetime, timezone
from pathlib import Path

from jinja2.exceptions import TemplateError
from transformers.utils import chat_template_utils

NOW = 1_700_000_000
BOS, EOS = "<s>", "</s>"  # of the vocabulary that the test renders with

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place, \"now\" or <soon>.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Its name, as in Zürich"},
                "days": {"type": "integer", "default": 1},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "hours": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}},
}


def call(name, arguments, id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content} | more


SYSTEM = {"role": "system", "content": "You are brief.\nAnd kind."}
ASKED = [user("What's the weather in Zürich & Bern?")]
CALLED = ASKED + [
    assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2, "hours": [1, 2], "unit": "C"})]),
    {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"sky\": \"clear\", \"t\": 21.5}"},
]
CASES = {
    "one": dict(messages=[user("Hello, wörld!")]),
    "no_prompt": dict(messages=[user("Hello")], add_generation_prompt=False),
    "turns": dict(messages=[SYSTEM, user("  1 < 2? "), assistant("Yes.\n"), user("'quoted' \"and\" 日本")]),
    "ended": dict(messages=[user("a"), assistant("b")], add_generation_prompt=False),
    "two_systems": dict(messages=[SYSTEM, {"role": "system", "content": "Be exact."}, user("a"), assistant("b"), user("c")]),
    "late_system": dict(messages=[user("a"), assistant("b"), SYSTEM, user("c")]),
    "developer": dict(messages=[{"role": "developer", "content": "Be terse."}, user("a")]),
    "reasoning": dict(
        messages=[
            user("2+2?"),
            assistant("4", reasoning_content="Two and two.\nFour."),
            user("3+3?"),
            assistant("<think>\nsix\n</think>\n\n6"),
            user("and 4+4?"),
        ]
    ),
    "thinking_off": dict(messages=[user("2+2?")], enable_thinking=False),
    "thinking_on": dict(messages=[user("2+2?")], enable_thinking=True),
    "tools": dict(messages=[SYSTEM, *ASKED], tools=[WEATHER, CLOCK]),
    "tools_no_system": dict(messages=ASKED, tools=[WEATHER]),
    "called": dict(messages=CALLED, tools=[WEATHER, CLOCK]),
    "answered": dict(messages=CALLED + [assistant("Clear, 21.5."), user("Thanks. And tomorrow?")], tools=[WEATHER]),
    "two_calls": dict(
        messages=ASKED
        + [
            assistant(None, tool_calls=[call("clock", {}, "call00001"), call("get_weather", {"city": "Bern"}, "call00002")]),
            {"role": "tool", "name": "clock", "tool_call_id": "call00001", "content": "12:00"},
            {"role": "tool", "name": "get_weather", "tool_call_id": "call00002", "content": "rain"},
        ],
        tools=[WEATHER, CLOCK],
    ),
    "thought_then_called": dict(
        messages=ASKED
        + [
            assistant("I look.", reasoning_content="A tool.", tool_calls=[call("get_weather", {"city": "Bern"})]),
            {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "rain"},
        ],
        tools=[WEATHER],
    ),
    "arguments_as_text": dict(
        messages=ASKED
        + [
            assistant("", tool_calls=[call("get_weather", "{\"city\": \"Bern\"}")]),
            {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "rain"},
        ],
        tools=[WEATHER],
    ),
    "parts": dict(messages=[user([{"type": "text", "text": "Part one."}, {"type": "text", "text": "Part two."}])]),
    "empty": dict(messages=[]),
}


class StoppedClock(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(NOW, timezone.utc)


def render(source, case):
    """The text and a digest of it, or what was said and what that is recorded as."""
    given = dict(add_generation_prompt=True, tools=None, documents=None, bos_token=BOS, eos_token=EOS) | case
    try:
        text = chat_template_utils._compile_jinja_template(source).render(**given)
    except Exception as error:  # whatever a template runs into
        objects = type(error) is TemplateError  # as raise_exception does
        return f"{type(error).__name__}: {error}", "refused" if objects else None
    return text, fnv1a(text)


def fnv1a(text):
    """FNV-1a of 64 bits, of the UTF-8."""
    digest = 0xCBF29CE484222325
    for byte in text.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return f"{digest:016x}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--show", nargs=2, metavar=("TEMPLATE", "CASE"))
    arguments = parser.parse_args()
    chat_template_utils.datetime = StoppedClock
    if arguments.show:
        name, case = arguments.show
        print(render((arguments.folder / f"{name}.jinja").read_text(), CASES[case])[0], end="")
        return
    digests = {}
    for path in sorted(arguments.folder.glob("*.jinja")):
        digests[path.stem] = {name: render(path.read_text(), case)[1] for name, case in CASES.items()}
    record = dict(now=NOW, cases=CASES, digests=digests)
    arguments.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    rendered = sum(d not in (None, "refused") for found in digests.values() for d in found.values())
    print(f"{len(digests)} templates, {len(CASES)} conversations: {rendered} texts")


main()
