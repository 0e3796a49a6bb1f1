#!/usr/bin/env python3
"""A small server around transformers' DeepseekV4ForCausalLM on the mini golden model: chat completions (tools, reasoning,
log-probabilities, usage with cached tokens), SGLang's /generate and, on token ids, /v1/completions with vLLM's prompt_logprobs,
and vLLM's /tokenize of messages. It has a real prefix cache, and stops when the client goes away.

    python3 adapters/python/serve_transformers.py [--port 30010] [--fault NAME]

A real engine for `karat recall --endpoint` and `karat audit --endpoint` to talk to (docs/endpoints.md). Needs torch 2.15,
transformers 5.24 and tokenizers, on a CPU. Faults:

    stale-abort    what was generated for a client that left stays in the cache under the prompt alone
    other-prefix   when a client leaves, its prompt stays in the cache's index and its pages become another prompt's
    next-prefix    when a client leaves, the next request goes on from its pages, whatever its own prompt is
    scale          the attention scale of layer 2 is 5 % off
    forget         only the last 64 ids of a prompt are seen
"""

import argparse
import copy
import json
import select
import socket
import sys
import threading
import time
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
# Behind the standard library: the training code has a module of the name `select`.
sys.path += [str(ROOT / "xtask/oracle"), str(ROOT / "xtask/golden")]
warnings.filterwarnings("ignore")

import transformers_golden as golden
from chat import Template, parts


class Engine:
    """One request at a time; caches of finished and abandoned prompts are kept by their ids."""

    KEPT = 48

    def __init__(self, fault, threads):
        torch.set_num_threads(threads)
        model = ROOT / "golden"
        self.config = json.loads((model / "config.json").read_text())
        self.net = golden.DeepseekV4ForCausalLM(golden.config(self.config)).float().eval()
        self.net.load_state_dict(golden.state(model / "model.safetensors", self.config["n_routed_experts"]), strict=False)
        self.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self.template = Template(json.loads((model / "encoding.json").read_text()))
        self.fault, self.lock, self.kept, self.left = fault, threading.Lock(), [], None
        if fault == "scale":
            self.net.model.layers[2].self_attn.scaling *= 1.05

    def forward(self, ids, cache):
        out = self.net(torch.tensor([ids]), past_key_values=cache, use_cache=True)
        return out.logits[0], out.past_key_values

    def logits(self, ids):
        """All rows of a cold pass, nothing cached."""
        with self.lock, torch.inference_mode():
            return self.net(torch.tensor([ids]), use_cache=False).logits[0]

    def keep(self, ids, cache):
        self.kept = [(i, c) for i, c in self.kept if i != ids][-self.KEPT :] + [(ids, cache)]

    def generate(self, ids, most):
        """Yields (id, its log-probability, cached ids) until the end token, or until the caller goes away."""
        end = self.config["eos_token_id"]
        with self.lock, torch.inference_mode():
            if self.fault == "forget":
                ids = ids[-64:]
            # The last id is always computed: its logits are what is asked for.
            head, last = ids[:-1], ids[-1]
            known = max((k for k in self.kept if k[0] == head[: len(k[0])]), key=lambda k: len(k[0]), default=([], None))
            if self.left is not None:
                pages, self.left = self.left[: len(head)], None
                known = (head[: len(pages)], self.forward(pages, None)[1])
            cache = copy.deepcopy(known[1])
            reused = len(known[0])
            if head[reused:]:
                _, cache = self.forward(head[reused:], cache)
                self.keep(head, copy.deepcopy(cache))
            done = False
            try:
                token = last
                for _ in range(most):
                    logits, cache = self.forward([token], cache)
                    token = int(logits[-1].argmax())
                    yield token, float(torch.log_softmax(logits[-1].double(), -1)[token]), reused
                    if token == end:
                        break
                done = True
            finally:
                if not done:
                    others = [c for k, c in self.kept if k != head[: len(k)]]
                    if self.fault == "other-prefix" and others:
                        self.keep(head, copy.deepcopy(others[-1]))
                    if self.fault == "next-prefix":
                        self.left = head
                    if self.fault == "stale-abort":
                        self.keep(head, copy.deepcopy(cache))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    engine = None

    def log_message(self, *_):
        pass

    def gone(self):
        """True when the client closed its side."""
        if not select.select([self.connection], [], [], 0)[0]:
            return False
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def reply(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            return self.reply({"status": "ok"})
        if self.path == "/v1/models":
            return self.reply({"object": "list", "data": [{"id": "mini-golden", "object": "model"}]})
        self.reply({"error": {"message": "no such path"}}, 404)

    def do_POST(self):
        try:
            asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        except ValueError:
            return self.reply({"error": {"message": "not JSON"}}, 400)
        if self.path == "/generate":
            ids, sampling = asked["input_ids"], asked.get("sampling_params", {})
            most, scores = sampling.get("max_new_tokens", 16), asked.get("logprob_start_len") == 0
        elif self.path == "/v1/completions":
            ids, most, scores = asked["prompt"], asked.get("max_tokens", 16), asked.get("prompt_logprobs") is not None
        elif self.path in ("/v1/chat/completions", "/tokenize"):
            ids, most, scores = self.rendered(asked), asked.get("max_tokens", 256), False
            if self.path == "/tokenize":
                return self.reply({"tokens": ids, "count": len(ids), "max_model_len": 1 << 16})
        else:
            return self.reply({"error": {"message": "no such path"}}, 404)
        if scores:
            return self.reply(self.scored(asked, ids))
        self.answer(asked, ids, most)

    def scored(self, asked, ids):
        k = asked.get("top_logprobs_num") or asked.get("prompt_logprobs") or 1
        p = torch.log_softmax(self.engine.logits(ids).double(), -1)
        values, best = p.topk(k)
        own = p[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].tolist()
        tops = [list(zip(v, b)) for v, b in zip(values[:-1].tolist(), best[:-1].tolist())]
        if self.path == "/generate":
            mine = [[None, ids[0], None]] + [[v, i, None] for v, i in zip(own, ids[1:])]
            return {
                "text": "",
                "meta_info": {
                    "prompt_tokens": len(ids),
                    "cached_tokens": 0,
                    "finish_reason": {"type": "length"},
                    "input_token_logprobs": mine,
                    "input_top_logprobs": [None] + [[[v, i, None] for v, i in top] for top in tops],
                },
            }
        entries = [None]
        for value, i, top in zip(own, ids[1:], tops):
            entry = {str(t): {"logprob": v, "rank": r + 1} for r, (v, t) in enumerate(top)}
            entry.setdefault(str(i), {"logprob": value, "rank": k + 1})
            entries.append(entry)
        choice = {"index": 0, "text": "", "finish_reason": "length", "prompt_token_ids": ids, "prompt_logprobs": entries}
        return {"object": "text_completion", "model": "mini-golden", "choices": [choice]}

    def rendered(self, asked):
        thinking = (asked.get("chat_template_kwargs") or {}).get("thinking", True)
        text = self.engine.template.prompt(asked["messages"], asked.get("tools") or [], thinking)
        return self.engine.tokenizer.encode(text, add_special_tokens=False).ids

    def answer(self, asked, ids, most):
        stream, said, chosen, reused = asked.get("stream"), [], [], 0
        end = self.engine.config["eos_token_id"]
        if stream:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
        speaker = Chat(asked) if self.path == "/v1/chat/completions" else Plain(self.path, asked)
        text = ""
        tokens = self.engine.generate(ids, most)
        try:
            for token, log_prob, reused in tokens:
                said.append(token)
                chosen.append(log_prob)
                text = self.engine.tokenizer.decode(said, skip_special_tokens=False)
                if stream:
                    if self.gone():
                        return
                    for event in speaker.piece(text, None, ids, said, chosen, reused):
                        self.event(event)
            finish = "stop" if said and said[-1] == end else "length"
            if not stream:
                return self.reply(speaker.whole(text, finish, ids, said, chosen, reused))
            for event in speaker.piece(text, finish, ids, said, chosen, reused):
                self.event(event)
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass
        finally:
            tokens.close()

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")


def usage(ids, said, reused):
    return {
        "prompt_tokens": len(ids),
        "completion_tokens": len(said),
        "total_tokens": len(ids) + len(said),
        "prompt_tokens_details": {"cached_tokens": reused},
    }


class Plain:
    """Text as it comes: /generate brings all of it each time, /v1/completions what is new."""

    def __init__(self, path, asked):
        self.generates, self.told, self.scored = path == "/generate", "", 0
        self.wants = asked.get("return_logprob") if self.generates else asked.get("logprobs") is not None

    def piece(self, text, finish, ids, said, chosen, reused):
        new, self.told = text[len(self.told) :], text
        fresh, self.scored = chosen[self.scored :], len(chosen)
        if self.generates:
            why = finish and {"type": finish}
            meta = {"prompt_tokens": len(ids), "completion_tokens": len(said), "cached_tokens": reused, "finish_reason": why}
            if self.wants:
                meta["output_token_logprobs"] = [[p, i, None] for p, i in zip(chosen, said)]
            return [{"text": text, "meta_info": meta}]
        choice = {"index": 0, "text": new, "finish_reason": finish}
        if self.wants:
            choice["logprobs"] = {"token_logprobs": fresh}
        return [{"object": "text_completion", "model": "mini-golden", "choices": [choice], "usage": usage(ids, said, reused)}]

    def whole(self, *answer):
        return self.piece(*answer)[0]


class Chat:
    """Chat completions: reasoning, content and calls in pieces, log-probabilities of each token, usage at the end."""

    def __init__(self, asked):
        self.thinking = (asked.get("chat_template_kwargs") or {}).get("thinking", True)
        self.wants, self.counts = asked.get("logprobs"), (asked.get("stream_options") or {}).get("include_usage")
        self.told, self.scored, self.begun = ("", ""), 0, False

    @staticmethod
    def calls(found, indexed):
        call = lambda i, name, arguments: {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        return [{**({"index": i} if indexed else {}), **call(i, *c)} for i, c in enumerate(found)]

    def log_probs(self, said, chosen):
        return {"content": [{"token": str(i), "logprob": p, "top_logprobs": []} for i, p in zip(said, chosen)]}

    def piece(self, text, finish, ids, said, chosen, reused):
        reasoning, content, calls = parts(text, self.thinking, finish is not None)
        delta = {} if self.begun else {"role": "assistant"}
        self.begun = True
        if reasoning != self.told[0]:
            delta["reasoning_content"] = reasoning[len(self.told[0]) :]
        if content != self.told[1]:
            delta["content"] = content[len(self.told[1]) :]
        self.told = (reasoning, content)
        if finish and calls:
            delta["tool_calls"], finish = self.calls(calls, True), "tool_calls"
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        if self.wants:
            choice["logprobs"] = self.log_probs(said[self.scored :], chosen[self.scored :])
            self.scored = len(said)
        frame = {"object": "chat.completion.chunk", "model": "mini-golden"}
        events = [{**frame, "choices": [choice]}]
        if finish and self.counts:
            events.append({**frame, "choices": [], "usage": usage(ids, said, reused)})
        return events

    def whole(self, text, finish, ids, said, chosen, reused):
        reasoning, content, calls = parts(text, self.thinking, True)
        message = {"role": "assistant", "content": content, "reasoning_content": reasoning}
        if calls:
            message["tool_calls"], finish = self.calls(calls, False), "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        if self.wants:
            choice["logprobs"] = self.log_probs(said, chosen)
        return {"object": "chat.completion", "model": "mini-golden", "choices": [choice], "usage": usage(ids, said, reused)}


def main():
    p = argparse.ArgumentParser(description="transformers on the mini golden model behind HTTP")
    p.add_argument("--port", type=int, default=30010, help="0: a free one")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--fault", choices=["stale-abort", "other-prefix", "next-prefix", "scale", "forget"])
    a = p.parse_args()
    began = time.time()
    Handler.engine = Engine(a.fault, a.threads)
    server = ThreadingHTTPServer(("127.0.0.1", a.port), Handler)
    print(f"ready on port {server.server_address[1]} after {time.time() - began:.1f} s", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
