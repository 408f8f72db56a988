"""--metrics-port: a scraper reads the newest numbers, and no client disturbs the run."""

import http.client
import re
import signal
import socket
import subprocess
import time
import unittest

from program import CLICKS, SMALL, TEXT, TRIFOLD, ProgramTest

SAMPLE = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)(?:\{(\w+)="((?:[^"\\]|\\.)*)"\})? (\S+)')


def parsed(text):
    """{(name, label): number} of a page in Prometheus' text format; anything else is an error."""
    found, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            if name in types or kind not in ("gauge", "counter"):
                raise ValueError(line)
            types[name] = kind
            continue
        match = SAMPLE.fullmatch(line)
        if not match or match[1] not in types or (match[1], match[3]) in found:
            raise ValueError(line)
        found[match[1], match[3]] = float(match[4])
    return found, types


class Metrics(ProgramTest):
    def start(self, *line):
        """A long run with a page at a free port; stopped after the test."""
        self.run = subprocess.Popen([TRIFOLD, *map(str, line), "--train-iters", "1000000", "--metrics-port", "0"], cwd=self.folder,
                                    stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.run.stderr.close)
        self.addCleanup(self.run.wait)
        self.addCleanup(self.run.kill)
        for text in self.run.stderr:
            if text.startswith("metrics"):
                host, port = re.fullmatch(r"metrics +http://(127\.0\.0\.1):(\d+)/metrics\n", text).groups()
                self.port = int(port)
                return host
        self.fail("no address was printed")

    def small(self, *more):
        self.start("pretrain", *SMALL, "--data-path", TEXT, "--log-interval", 1000000, *more)

    def ask(self, method="GET", path="/metrics"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        self.addCleanup(connection.close)
        connection.request(method, path)
        answer = connection.getresponse()
        return answer, answer.read().decode()

    def scrape(self, until="trifold_loss"):
        for _ in range(200):
            answer, text = self.ask()
            self.assertEqual(answer.status, 200)
            found, types = parsed(text)
            if (until, None) in found:
                self.assertTrue(answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"))
                return found, types
            time.sleep(0.05)
        return self.fail(f"{until} never appeared: {text}")

    def send(self, data):
        """The answer to these bytes, and how long it took."""
        begin = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as client:
            try:
                client.sendall(data)
                answer = b""
                while piece := client.recv(65536):
                    answer += piece
            except ConnectionError:
                answer = b""
        return answer, time.monotonic() - begin

    def test_language_model(self):
        self.small("--num-experts", 4, "--disable-bias-linear", "--eval-interval", 5, "--eval-iters", 1)
        first, types = self.scrape("trifold_valid_loss")
        for name in ("loss", "grad_norm", "lr", "tokens_per_second", "step_seconds", "mfu", "resident_bytes", "step", "start_planned_bytes"):
            key = ("trifold_start", "planned_bytes") if name == "start_planned_bytes" else (f"trifold_{name}", None)
            self.assertIn(key, first)
        self.assertIn(("trifold_expert_loads", "1"), first)
        self.assertEqual(first["trifold_events_total", "start"], 1)
        self.assertEqual(types["trifold_events_total"], "counter")
        self.assertLess(abs(first["trifold_last_record_timestamp_seconds", None] - time.time()), 30)
        self.assertGreater(first["trifold_lr", None], 0)
        time.sleep(0.5)
        self.assertGreater(self.scrape()[0]["trifold_step", None], first["trifold_step", None])

    def test_recommender(self):
        self.start("recommend", *CLICKS, "--eval-interval", 5)
        found, _ = self.scrape("trifold_valid_auc")
        self.assertIn(("trifold_samples_per_second", None), found)

    def test_requests_that_are_none(self):
        self.small()
        self.scrape()
        for data, status in ((b"\x00\xff\x16\x03\x01 garbage\r\n\r\n", b"400"), (b"GET /metrics HTTP/9.9\r\n\r\n", b"400"),
                             (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", b"400"),
                             (b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 20000 + b"\r\n", b"400"),
                             (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde", b"400"),
                             (b"DELETE /metrics HTTP/1.1\r\n\r\n", b"405"), (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", b"404"),
                             (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200")):
            answer, seconds = self.send(data)
            if answer or len(data) < 1000:  # the answer to a long request may be lost when its rest is refused
                self.assertEqual(answer.split(b" ", 2)[1], status, data[:40])
            self.assertLess(seconds, 4, data[:40])
        answer, text = self.ask("HEAD")
        self.assertEqual((answer.status, text), (200, ""))
        self.assertGreater(int(answer.headers["Content-Length"]), 100)
        self.scrape()
        self.assertIsNone(self.run.poll())

    def test_slow_clients_delay_nothing(self):
        """Clients that send nothing, or never read, are cut off after five seconds; meanwhile the run trains and others are served."""
        self.small()
        self.scrape()
        begin = time.monotonic()
        slow = [socket.create_connection(("127.0.0.1", self.port), timeout=20) for _ in range(12)]
        for client in slow[:6]:
            client.sendall(b"GET /metr")
        before, _ = self.scrape()
        time.sleep(1)
        after, _ = self.scrape()
        self.assertGreater(after["trifold_step", None], before["trifold_step", None] + 10)
        for client in slow:
            try:
                self.assertEqual(client.recv(100), b"")
            except ConnectionError:
                pass
            client.close()
        self.assertGreater(time.monotonic() - begin, 4)
        self.assertLess(time.monotonic() - begin, 9)
        # More than the limit at once: some are closed at once, and afterwards there is room again.
        many = [socket.create_connection(("127.0.0.1", self.port), timeout=20) for _ in range(40)]
        for client in many:
            client.close()
        time.sleep(0.2)
        self.scrape()

    def test_idle_clients_do_not_lock_others_out(self):
        """As many idle clients as the limit: the oldest loses its connection to one that asks."""
        self.small()
        self.scrape()
        idle = [socket.create_connection(("127.0.0.1", self.port), timeout=20) for _ in range(16)]
        time.sleep(0.5)
        begin = time.monotonic()
        for _ in range(3):
            self.scrape()
        self.assertLess(time.monotonic() - begin, 3)
        try:
            self.assertEqual(idle[0].recv(100), b"")
        except ConnectionError:
            pass
        self.assertLess(time.monotonic() - begin, 3)
        for client in idle:
            client.close()

    def test_a_signal_ends_the_run_as_ever(self):
        self.small("--save", "d")
        self.scrape()
        idle = socket.create_connection(("127.0.0.1", self.port))
        self.run.send_signal(signal.SIGTERM)
        self.assertEqual(self.run.wait(timeout=30), 75)
        idle.close()
        with self.assertRaises(ConnectionError):
            socket.create_connection(("127.0.0.1", self.port))

    def test_addresses_that_cannot_be_used(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            _, message = self.pretrain("--train-iters", 1, "--metrics-port", port, "--save", "d", status=2)
        self.assertIn(f"--metrics-port {port}: binding on 127.0.0.1 failed: Address already in use: give another --metrics-port", message)
        for address, why in (("nowhere", "--metrics-address nowhere is no IP address"), ("192.0.2.1", "Cannot assign requested address")):
            _, message = self.pretrain("--train-iters", 1, "--metrics-port", 0, "--metrics-address", address, status=2)
            self.assertIn(why, message)
        self.assertEqual(self.files(), [])
        _, message = self.pretrain("--train-iters", 1, "--metrics-address", "::1")
        self.assertIn("note: --metrics-address ::1 has no effect without --metrics-port", message)
        _, message = self.pretrain("--train-iters", 1, "--metrics-port", 0, "--metrics-address", "0.0.0.0")
        self.assertIn("metrics     http://0.0.0.0:", message)


if __name__ == "__main__":
    unittest.main()
