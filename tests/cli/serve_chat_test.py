"""serve: conversations, and answers in pieces, as programs for OpenAI's interface expect them on the wire."""

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

from judged import END, make_model
from program import GOLDEN, TRIFOLD, ProgramTest

TEMPLATE = ("{% if messages[0]['role'] == 'assistant' %}{{ raise_exception('a user begins') }}{% endif %}"
            "{% for m in messages %}{{ m['content'] }}" + END + "{% endfor %}{% if loud %}!{% endif %}")
HELLO = [{"role": "user", "content": "To be"}]
CHATS = "/v1/chat/completions"


class ServeChat(ProgramTest):
    def setUp(self):
        super().setUp()
        make_model(self.folder / "model", GOLDEN / "hf_tokenizers" / "gpt2.json")
        path = self.folder / "model" / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": TEMPLATE}))
        self.start()

    def start(self, *more, load="model"):
        self.server = subprocess.Popen([TRIFOLD, "serve", "--load", load, "--port", "0", "--threads-per-rank", "1", *more], cwd=self.folder,
                                       stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.server.stderr.close)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.kill)
        for line in self.server.stderr:
            if line.startswith("serving"):
                self.port = int(line.split()[1].split(":")[2].split("/")[0])
                self.assertIn(CHATS, line)
                self.assertIn("of keys and values for 40 tokens", line)
                return
        self.fail("no address was printed")

    def post(self, body, path=CHATS):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), {"Content-Type": "application/json"})
        return connection.getresponse()

    def ask(self, status=200, path=CHATS, **body):
        answer = self.post(body, path)
        data = json.loads(answer.read())
        self.assertEqual(answer.status, status, data)
        return data

    def events(self, path=CHATS, **body):
        """The objects of an answer in pieces, which [DONE] ends."""
        answer = self.post({**body, "stream": True}, path)
        self.assertEqual((answer.status, answer.getheader("Content-Type"), answer.getheader("Transfer-Encoding")), (200, "text/event-stream", "chunked"))
        parts = answer.read().decode().split("\n\n")
        self.assertEqual(parts[-2:], ["data: [DONE]", ""])
        return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]

    def raw(self, body, version="1.1"):
        """Sends a request and returns the socket."""
        data = json.dumps(body).encode()
        client = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        self.addCleanup(client.close)
        client.sendall(f"POST {CHATS} HTTP/{version}\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        return client

    @staticmethod
    def rest_of(client):
        data = b""
        while part := client.recv(65536):
            data += part
        return data

    def test_a_conversation(self):
        answer = self.ask(messages=HELLO, max_tokens=8, temperature=0, model="any")
        self.assertEqual((answer["object"], answer["id"][:9], set(answer["usage"])), ("chat.completion", "chatcmpl-", {"prompt_tokens", "completion_tokens", "total_tokens"}))
        choice, = answer["choices"]
        self.assertEqual((choice["index"], choice["message"]["role"], choice["logprobs"]), (0, "assistant", None))
        # The template's text continued, as another endpoint does it.
        same = self.ask(path="/v1/completions", prompt="To be" + END, max_tokens=8, temperature=0)
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (same["choices"][0]["text"], same["choices"][0]["finish_reason"]))
        self.assertEqual(answer["usage"], same["usage"])
        # Without a limit the window is filled.
        whole = self.ask(messages=HELLO, temperature=0)
        self.assertTrue(whole["choices"][0]["finish_reason"] == "stop" or whole["usage"]["total_tokens"] == 40, whole)
        parts = self.ask(messages=[{"role": "user", "content": [{"type": "text", "text": "To"}, {"type": "text", "text": " be"}]}], max_tokens=8, temperature=0)
        self.assertEqual(parts["choices"], answer["choices"])
        loud = self.ask(messages=HELLO, max_tokens=8, temperature=0, chat_template_kwargs={"loud": True})
        self.assertGreater(loud["usage"]["prompt_tokens"], answer["usage"]["prompt_tokens"])

    def test_rules_and_stops(self):
        rules = {"temperature": 1.5, "top_k": 50, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.4, "seed": 8}
        text = self.ask(messages=HELLO, max_completion_tokens=25, **rules)["choices"][0]["message"]["content"]
        out, _ = self.trifold("generate", "--load", "model", "--prompt", "To be" + END, "--max-new-tokens", 25, "--threads-per-rank", 1,
                              *(word for name, value in rules.items() for word in ("--" + name.replace("_", "-"), value)))
        self.assertEqual(("To be" + END + text).replace("\r", "\n") + "\n", out)
        for _ in range(2):  # whatever was asked before
            self.assertEqual(self.ask(messages=HELLO, max_tokens=25, **rules)["choices"][0]["message"]["content"], text)
        stop = text[6:8]
        choice = self.ask(messages=HELLO, max_tokens=25, stop=stop, **rules)["choices"][0]
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (text[:text.index(stop)], "stop"))
        pieces = self.events(messages=HELLO, max_tokens=25, stop=stop, **rules)
        self.assertEqual("".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces), text[:text.index(stop)])

    def test_a_conversation_in_pieces(self):
        more = {"messages": HELLO, "max_tokens": 20, "temperature": 0.8, "seed": 3}
        whole = self.ask(**more)
        pieces = self.events(**more, stream_options={"include_usage": True})
        self.assertEqual({(piece["object"], piece["id"], piece["model"]) for piece in pieces}, {("chat.completion.chunk", pieces[0]["id"], "model")})
        last = pieces.pop()
        self.assertEqual((last["choices"], last["usage"]), ([], whole["usage"]))
        self.assertEqual(pieces[0]["choices"], [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}])
        self.assertEqual([piece["choices"][0]["finish_reason"] for piece in pieces], [None] * (len(pieces) - 1) + [whole["choices"][0]["finish_reason"]])
        self.assertEqual("".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces), whole["choices"][0]["message"]["content"])
        self.assertGreater(len(pieces), 5)

    def test_completions_in_pieces(self):
        more = {"prompt": ["To be", "or not"], "max_tokens": 12, "temperature": 0.8, "seed": 3, "echo": True}
        whole = self.ask(path="/v1/completions", **more)
        pieces = self.events(path="/v1/completions", **more)
        for choice in whole["choices"]:
            own = [piece["choices"][0] for piece in pieces if piece["choices"][0]["index"] == choice["index"]]
            self.assertEqual(("".join(piece["text"] for piece in own), own[-1]["finish_reason"]), (choice["text"], choice["finish_reason"]))
        self.assertIn("logprobs", self.ask(400, path="/v1/completions", prompt="x", logprobs=1, stream=True)["error"]["message"])

    def test_the_wire(self):
        """Chunks of HTTP/1.1; for HTTP/1.0 the body ends with the connection."""
        body = {"messages": HELLO, "max_tokens": 6, "temperature": 0, "stream": True}
        head, _, rest = self.rest_of(self.raw(body)).partition(b"\r\n\r\n")
        self.assertRegex(head, rb"^HTTP/1\.1 200 ")
        text = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            size = int(size, 16)
            text += rest[:size]
            self.assertEqual(rest[size:size + 2], b"\r\n")
            rest = rest[size + 2:]
        self.assertEqual(size, 0)
        self.assertTrue(text.endswith(b"data: [DONE]\n\n"))
        head, _, rest = self.rest_of(self.raw(body, version="1.0")).partition(b"\r\n\r\n")
        self.assertNotIn(b"chunked", head)
        same = re.compile(rb'"id":"[^"]*"|"created":\d*')
        self.assertEqual(same.sub(b"", rest), same.sub(b"", text))

    def test_pieces_come_while_they_are_computed_and_others_wait(self):
        long = self.raw({"messages": HELLO, "max_tokens": 200000, "stream": True, "temperature": 2.5})
        first = long.recv(65536)
        self.assertIn(b"200 OK", first)
        waiting = []
        threads = [threading.Thread(target=lambda: waiting.append(self.ask(messages=HELLO, max_tokens=2))) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        long.close()  # the client goes away in the middle
        for thread in threads:
            thread.join(timeout=60)
        self.assertEqual(len(waiting), 3)
        self.assertEqual(self.ask(messages=HELLO, max_tokens=2)["usage"]["completion_tokens"] > 0, True)

    def test_a_signal_ends_an_answer_in_pieces(self):
        long = self.raw({"messages": HELLO, "max_tokens": 1000000, "stream": True, "temperature": 2.5})
        long.recv(1000)
        waits = self.raw({"messages": HELLO, "max_tokens": 1000000})
        self.server.send_signal(signal.SIGTERM)
        self.assertEqual(self.server.wait(timeout=20), 0)
        self.assertNotIn(b"[DONE]", self.rest_of(long))
        waits.close()

    def test_requests_that_are_refused(self):
        good = {"messages": HELLO, "max_tokens": 1}
        for body, why in (({}, "messages"), ({"messages": []}, "messages"), ({"messages": "x"}, "messages"), ({"messages": [{"content": "x"}]}, "role"),
                          ({"messages": [3]}, "messages[0]"), ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content is 5"),
                          ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "type"),
                          ({"messages": [{"role": "assistant", "content": "x"}]}, "a user begins"), ({**good, "min_p": 2}, "min_p is 2"),
                          ({**good, "repetition_penalty": 0}, "repetition_penalty is 0"), ({**good, "n": 2}, "n is 2"), ({**good, "prompt": "x"}, "prompt"),
                          ({**good, "stream": 1}, "stream is 1"), ({"messages": [{"role": "user", "content": "word " * 200}]}, "takes at most 39"),
                          ({**good, "response_format": {"type": "json_object"}}, "response_format")):
            self.assertIn(why, self.ask(400, **body)["error"]["message"])
        self.assertEqual(self.post(b"{").status, 400)
        self.assertEqual(self.ask(**good)["usage"]["completion_tokens"], 1)
        self.assertIsNone(self.server.poll())

    def test_tensor_ranks_answer_the_same(self):
        one = self.ask(messages=HELLO, max_tokens=10, temperature=0)["choices"]
        self.server.kill()
        self.server.wait()
        self.start("--tp", "3")
        self.assertEqual(self.ask(messages=HELLO, max_tokens=10, temperature=0)["choices"], one)
        self.server.send_signal(signal.SIGTERM)
        self.assertEqual(self.server.wait(timeout=20), 0)

    def test_a_model_without_a_template(self):
        self.server.kill()
        self.server.wait()
        make_model(self.folder / "bare", GOLDEN / "hf_tokenizers" / "gpt2.json")
        self.start(load="bare")
        self.assertIn("chat template", self.ask(400, messages=HELLO)["error"]["message"])
        self.assertEqual(self.ask(path="/v1/completions", prompt="x", max_tokens=1)["usage"]["completion_tokens"], 1)


if __name__ == "__main__":
    unittest.main()
