"""serve: completions and log-probabilities over HTTP, the same as those of evaluate and generate; nothing stops it but a signal."""

import http.client
import json
import signal
import socket
import subprocess
import threading
import time
import unittest

from judged import POSITIONS, make_model
from program import GOLDEN, TRIFOLD, ProgramTest

ANSWERS = json.loads((GOLDEN / "judged_lm_eval.json").read_text(encoding="utf-8"))


class Serve(ProgramTest):
    def setUp(self):
        super().setUp()
        make_model(self.folder / "model", GOLDEN / "hf_tokenizers" / "gpt2.json")
        self.trifold("convert", "--load", "model", "--save", "out")
        self.start()

    def start(self, *more):
        self.server = subprocess.Popen([TRIFOLD, "serve", "--load", "out", "--port", "0", "--threads-per-rank", "1", *more], cwd=self.folder,
                                       stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.server.stderr.close)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.kill)
        for line in self.server.stderr:
            if line.startswith("serving"):
                self.port = int(line.split()[1].split(":")[2].split("/")[0])
                self.assertIn(f"http://127.0.0.1:{self.port}/v1/completions", line)
                return
        self.fail("no address was printed")

    def ask(self, body, method="POST", path="/v1/completions"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.addCleanup(connection.close)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def complete(self, prompt, **more):
        status, answer = self.ask({"model": "any", "prompt": prompt, **more})
        self.assertEqual(status, 200, answer)
        return answer

    def test_log_probabilities_are_those_of_lm_eval(self):
        """The way of lm_eval's local-completions: context and continuation are repeated with log-probabilities, and one token more."""
        compared = greedy = 0
        for context, continuation, value, is_greedy in zip(*(ANSWERS[name] for name in ("contexts", "continuations", "answers", "greedy"))):
            if len(context) + len(continuation) > POSITIONS + 1:
                continue
            answer = self.complete(context + continuation, echo=True, logprobs=1, max_tokens=1, temperature=0, seed=1234)
            part = answer["choices"][0]["logprobs"]
            own, top = part["token_logprobs"], part["top_logprobs"]
            self.assertEqual((own[0], top[0], len(own), len(top)), (None, None, *[len(context) + len(continuation) + 1] * 2))
            self.assertAlmostEqual(sum(own[len(context):-1]), value, delta=1e-4)
            self.assertEqual(all(a == max(b.values()) for a, b in zip(own[len(context):-1], top[len(context):-1])), is_greedy)
            compared += 1
            greedy += is_greedy
        self.assertGreater(compared, 100)
        self.assertGreater(greedy, 3)

    def test_log_probabilities_in_double_precision(self):
        self.server.kill()
        self.start("--dtype", "f64")
        values = zip(*(ANSWERS[name] for name in ("contexts", "continuations", "answers")))
        chosen = [each for each in values if len(each[0]) + len(each[1]) <= POSITIONS][:40]
        self.assertEqual(len(chosen), 40)
        for context, continuation, value in chosen:
            answer = self.complete(context + continuation, echo=True, logprobs=1, max_tokens=0)
            own = answer["choices"][0]["logprobs"]["token_logprobs"]
            self.assertAlmostEqual(sum(own[len(context):]), value, delta=1e-8)

    def test_completions_are_those_of_generate(self):
        for more, options in (({"temperature": 0}, ["--temperature", 0]), ({"temperature": 0.8, "top_k": 20, "seed": 7},
                                                                            ["--temperature", 0.8, "--top-k", 20, "--seed", 7])):
            out, _ = self.trifold("generate", "--load", "out", "--prompt", "To be", "--max-new-tokens", 20, "--threads-per-rank", 1, *options)
            choice = self.complete("To be", max_tokens=20, echo=True, **more)["choices"][0]
            self.assertEqual(choice["text"].replace("\r", "\n") + "\n", out)  # as Python reads the output of a program
            self.assertIsNone(choice["logprobs"])

    def test_prompts_of_all_kinds(self):
        by_text = self.complete(["To be", "or not"], max_tokens=5, temperature=0)
        self.assertEqual([choice["index"] for choice in by_text["choices"]], [0, 1])
        self.assertEqual([choice["finish_reason"] for choice in by_text["choices"]], ["length", "length"])
        self.assertEqual(by_text["usage"]["completion_tokens"], 10)
        self.assertEqual(self.complete("or not", max_tokens=5, temperature=0)["choices"][0]["text"], by_text["choices"][1]["text"])
        ids = self.complete([[5, 6, 7], [8]], max_tokens=3, temperature=0, echo=True, logprobs=2)
        self.assertEqual(self.complete([5, 6, 7], max_tokens=3, temperature=0, echo=True, logprobs=2)["choices"][0], ids["choices"][0])
        part = ids["choices"][0]["logprobs"]
        self.assertEqual([len(part[name]) for name in ("tokens", "token_logprobs", "top_logprobs")], [6, 6, 6])
        for own, top in zip(part["token_logprobs"][1:], part["top_logprobs"][1:]):
            self.assertIn(own, top.values())
            self.assertIn(len(top), (2, 3))
        self.assertEqual(self.complete("", max_tokens=4)["usage"], {"prompt_tokens": 0, "completion_tokens": 4, "total_tokens": 4})

    def test_texts_that_end_a_completion(self):
        whole = self.complete("To be", max_tokens=30, seed=3)["choices"][0]["text"]
        stop = whole[9:12]
        choice = self.complete("To be", max_tokens=30, seed=3, stop=["never there", stop])["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"]), (whole[:whole.index(stop)], "stop"))
        self.assertEqual(self.complete("To be", max_tokens=30, seed=3, stop=None)["choices"][0]["text"], whole)

    def test_models(self):
        status, answer = self.ask(None, "GET", "/v1/models")
        self.assertEqual((status, answer["data"][0]["id"]), (200, "step_0000000000"))

    def test_requests_that_are_refused(self):
        good = {"prompt": "x", "max_tokens": 1}
        for body, why in (({}, "prompt"), ({"prompt": 3}, "prompt is 3"), ({"prompt": []}, "prompt"), ({"prompt": [600]}, "prompt[0] is 600"),
                          ({"prompt": [[1], [-1]]}, "prompt[1][0] is -1"), ({"prompt": ["a", 1]}, "prompt[1]"), ({**good, "max_tokens": -1}, "max_tokens is -1"),
                          ({**good, "temperature": -1}, "temperature is -1"), ({**good, "n": 2}, "n is 2; only 1"), ({**good, "stream": 1}, "stream is 1"),
                          ({**good, "what": 1}, "the field what is not known"), ({**good, "top_p": 0}, "top_p is 0"), ({**good, "logprobs": 1000}, "logprobs is 1000"),
                          ({**good, "echo": 1}, "echo is 1"), ({**good, "stop": 5}, "stop is 5"), ({"prompt": "word " * 200}, "takes at most 40"),
                          (b"{", "the request"), (b"\xff\xfe", "the request"), (b"[" * 100000, "the request"), (b"", "the request")):
            status, answer = self.ask(body)
            self.assertEqual(status, 400, body)
            self.assertIn(why, answer["error"]["message"])
        self.assertEqual(self.ask(None, "GET")[0], 405)
        self.assertEqual(self.ask(None, "POST", "/v1/models")[0], 405)
        status, answer = self.ask(None, "GET", "/v1/other")
        self.assertEqual(status, 404)
        self.assertIn("POST /v1/completions", answer["error"]["message"])
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")
            self.assertEqual(client.recv(1000).split()[1], b"413")
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as client:
            client.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
            self.assertEqual(client.recv(1000).split()[1], b"400")
        self.assertEqual(self.complete(**good)["usage"]["completion_tokens"], 1)
        self.assertIsNone(self.server.poll())

    def test_clients_at_the_same_time(self):
        idle = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        self.addCleanup(idle.close)
        alone = self.complete("To be", max_tokens=20, seed=5)["choices"][0]["text"]
        texts = []
        threads = [threading.Thread(target=lambda: texts.append(self.complete("To be", max_tokens=20, seed=5)["choices"][0]["text"])) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(texts, [alone] * 6)

    def test_a_signal_ends_it(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            if self.server.poll() is not None:
                self.start()
            found = []
            busy = threading.Thread(target=lambda: found.append(self.ask({"prompt": "To be", "max_tokens": 1000000, "temperature": 0})))
            busy.start()
            time.sleep(1)
            self.server.send_signal(number)
            self.assertEqual(self.server.wait(timeout=20), 0)
            busy.join(timeout=20)
            self.assertEqual(found[0][0], 503)
            self.assertIn("being stopped", found[0][1]["error"]["message"])

    def test_a_port_that_is_taken(self):
        _, message = self.trifold("serve", "--load", "out", "--port", self.port, status=2)
        self.assertIn(f"--port {self.port}: binding on 127.0.0.1 failed: Address already in use: give another --port, 0 for a free one", message)


if __name__ == "__main__":
    unittest.main()
