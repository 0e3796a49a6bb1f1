"""The chat side of the small server: messages to a prompt by the model's own encoding, and an answer's text to reasoning,
content and tool calls, as it comes.

Written for itself: `karat audit --endpoint` holds the ids that it makes of a conversation against those of karat's encoder.
"""

import json
import re

BOS, EOS, USER, ASSISTANT = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"
THINK, END_THINK, DSML = "<think>", "</think>", "｜DSML｜"
OPENS, CLOSES = f"\n\n<{DSML}tool_calls>\n", f"\n</{DSML}tool_calls>"


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def call_text(call):
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {"arguments": function["arguments"]}
    lines = []
    for key, value in arguments.items():
        is_text = isinstance(value, str)
        shown = value if is_text else dumps(value)
        lines.append(f'<{DSML}parameter name="{key}" string="{str(is_text).lower()}">{shown}</{DSML}parameter>')
    body = "\n".join(lines)
    return f'<{DSML}invoke name="{function["name"]}">\n{body}\n</{DSML}invoke>'


def text_of(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n\n".join(part["text"] for part in content)


class Template:
    """Renders prompts with the fixed texts that lie beside a checkpoint."""

    def __init__(self, texts):
        self.tools = texts["tools_template"]["text"]

    def block(self, tools):
        schemas = "\n".join(dumps(t["function"]) for t in tools)
        parts = {"{dsml_token}": DSML, "{thinking_end_token}": END_THINK, "{tool_schemas}": schemas}
        return re.sub(r"\{(?:dsml_token|thinking_end_token|tool_schemas)\}", lambda m: parts[m[0]], self.tools)

    def turns(self, messages):
        """Tool results and users that follow each other are one turn; results stand in the order of the calls."""
        turns, order = [], {}
        for m in messages:
            if m["role"] == "assistant":
                calls = m.get("tool_calls") or []
                order = {c["id"]: i for i, c in enumerate(calls)} if calls else order
                turns.append({**m, "blocks": [text_of(m)]})
                continue
            role = "user" if m["role"] == "tool" else m["role"]
            is_result = m["role"] == "tool"
            block = [order.get(m.get("tool_call_id"), 0) if is_result else None, text_of(m)]
            if turns and role == "user" and turns[-1]["role"] == "user":
                turns[-1]["blocks"].append(block)
            else:
                turns.append({"role": role, "blocks": [block]})
        for turn in turns:
            if turn["role"] != "user":
                continue
            results = iter(sorted((b for b in turn["blocks"] if b[0] is not None), key=lambda b: b[0]))
            turn["blocks"] = [f"<tool_result>{next(results)[1]}</tool_result>" if b[0] is not None else b[1] for b in turn["blocks"]]
        return turns

    def prompt(self, messages, tools, thinking):
        """The text that the model answers. Reasoning of earlier turns stays only where there are tools."""
        messages = [dict(m) for m in messages]
        if tools and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": ""})
        turns = self.turns(messages)
        last = max((i for i, t in enumerate(turns) if t["role"] == "user"), default=-1)
        out = BOS
        for i, turn in enumerate(turns):
            keeps = thinking and (bool(tools) or i > last)
            if turn["role"] == "system":
                out += turn["blocks"][0][1]
                if tools and i == 0:
                    out += "\n\n" + self.block(tools)
            elif turn["role"] == "assistant":
                if keeps:
                    out += (turn.get("reasoning_content") or "") + END_THINK
                out += turn["blocks"][0]
                if turn.get("tool_calls"):
                    out += OPENS + "\n".join(map(call_text, turn["tool_calls"])) + CLOSES
                out += EOS
            else:
                out += USER + "\n\n".join(turn["blocks"])
                if i + 1 == len(turns) or turns[i + 1]["role"] == "assistant":
                    opens = thinking and (bool(tools) or i >= last)
                    out += ASSISTANT + (THINK if opens else END_THINK)
        return out


def parts(text, thinking, over):
    """Reasoning, content and tool calls of what has come. What may still become a tag is held back until it is `over`."""
    text = text.split(EOS)[0]
    reasoning = ""
    if thinking:
        reasoning, found, text = text.partition(END_THINK)
        if not found:
            return reasoning, "", []
    content, found, rest = text.partition(OPENS)
    if not found:
        held = next((n for n in range(min(len(OPENS), len(content)), 0, -1) if content.endswith(OPENS[:n])), 0)
        return reasoning, content if over else content[: len(content) - held], []
    if CLOSES not in rest:
        return reasoning, content, []
    calls = []
    for name, body in re.findall(rf'<{DSML}invoke name="(.*?)">\n(.*?)\n?</{DSML}invoke>', rest, re.S):
        found = re.findall(rf'<{DSML}parameter name="(.*?)" string="(true|false)">(.*?)</{DSML}parameter>', body, re.S)
        calls.append((name, dumps({k: v if is_text == "true" else json.loads(v) for k, is_text, v in found})))
    return reasoning, content, calls
