"""`trifold report`: one page from the logs of runs, without references to anything else, with all text escaped."""

import html.parser
import json
import re
import unittest

from own_models import MODELS, OwnModelsTest
from program import CLICKS, SMALL, TEXT

VOID = {"meta", "br", "img"}


class Page(html.parser.HTMLParser):
    """The elements of a page: text by element, tables as lists of rows; elements that are not closed are an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.elements, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        if self.open:
            raise ValueError(f"not closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            raise ValueError(f"{tag} closes another element")

    def handle_data(self, data):
        self.texts.append(data)
        if "td" in self.open[-2:] or "th" in self.open[-2:]:
            self.rows[-1][-1] += data

    def row(self, name):
        """The cells of the first row of this name."""
        return next(row[1:] for row in self.rows if row and row[0] == name)

    def text(self):
        return " ".join(self.texts)


class Report(OwnModelsTest):
    def report(self, *runs, output="page.html"):
        self.trifold("report", *runs, "--output", output)
        text = (self.folder / output).read_text(encoding="utf-8")
        page = Page(text)
        # Complete in itself: nothing is loaded, nothing is run.
        for tag, attributes in page.elements:
            self.assertNotIn(tag, ("script", "link", "iframe", "object", "img"))
            for name, value in attributes.items():
                self.assertFalse(name in ("src", "href") or name.startswith("on"), (tag, name))
                self.assertNotIn("url(", value or "")
        return page

    def write_log(self, name, *lines):
        (self.folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def test_language_models_side_by_side(self):
        (self.folder / "one").mkdir()
        run = ["--train-iters", 8, "--eval-interval", 4, "--eval-iters", 1, "--log-interval", 8]
        self.pretrain(*run, "--log-json", "one/log.jsonl", "--save", "d", "--save-interval", 4)
        self.pretrain(*run, "--log-json", "two.jsonl", "--lr", "2e-3", "--ranks", 2, "--pp", 2, "--fp16", "--hysteresis", 1)
        page = self.report("one", "two.jsonl")
        self.assertEqual(page.row("command"), ["pretrain", "pretrain"])
        self.assertEqual(page.row("steps"), ["1 to 8 of 8", "1 to 8 of 8"])
        last = self.log("one/log.jsonl")[-2]
        self.assertEqual(last["step"], 8)
        self.assertEqual(page.row("last loss")[0], f"{last['loss']:.6g} (step 8)")
        best = min((line["valid_loss"], line["step"]) for line in self.log("one/log.jsonl") if "valid_loss" in line)
        self.assertEqual(page.row("best validation loss")[0], f"{best[0]:.6g} (step {best[1]})")
        skipped = [line["step"] for line in self.log("two.jsonl") if line.get("skipped")]
        self.assertTrue(skipped)
        self.assertEqual(page.row("skipped steps"), ["", str(len(skipped))])
        self.assertIn("the weights were not changed by steps", page.text())
        self.assertEqual(page.row("checkpoints"), ["2", "0"])
        self.assertEqual(page.row("lr"), ["0.001", "0.002"])
        self.assertIn("differs", [attributes.get("class") for tag, attributes in page.elements if tag == "tr"])
        charts = [attributes["aria-label"] for tag, attributes in page.elements if tag == "svg" and "aria-label" in attributes]
        for name in ("loss", "lr", "grad_norm", "tokens_per_second", "step_seconds", "resident_bytes", "consumed_samples"):
            self.assertIn(name, charts)
        # Both steps are planned, and the ratio is that of the numbers shown.
        self.assertEqual(len([text for text in page.row("planned") if text]), 2)
        self.assertIn("2 pipeline ranks", page.text())
        self.assertIn("planned: step", page.text())
        for text in page.row("median / planned"):
            self.assertGreater(float(text), 0)

    def test_data_without_a_data_path_are_planned(self):
        for name, data in (("mock", ["--mock-data", "--vocab-size", 64]), ("parts", ["--train-data-path", TEXT, "--valid-data-path", TEXT])):
            small = SMALL[:SMALL.index("--split")] + SMALL[SMALL.index("--split") + 2:]
            self.trifold("pretrain", *small, *data, "--train-iters", 2, "--log-json", name)
            page = self.report(name)
            self.assertFalse([row for row in page.rows if row and row[0] == "not planned, because"], page.rows)
            self.assertEqual(len(page.row("planned")), 1)
        self.trifold("pretrain", "--model", MODELS / "gpt2.pt2", "--arrays", *self.arrays("gpt2"), "--global-batch-size", 8,
                     "--micro-batch-size", 2, "--train-iters", 2, "--lr", "1e-3", "--split", "90,10,0", "--log-json", "arrays")
        self.assertEqual(len(self.report("arrays").row("planned")), 1)

    def test_recommender(self):
        self.trifold("recommend", *CLICKS, "--train-data", "synthetic", "--train-iters", 8, "--eval-interval", 4, "--log-json", "log")
        page = self.report("log")
        self.assertEqual(page.row("command"), ["recommend"])
        auc = max(line["valid_auc"] for line in self.log("log") if "valid_auc" in line)
        self.assertTrue(page.row("best AUC")[0].startswith(f"{auc:.6g} (step "))
        self.assertRegex(page.row("planned")[0], r"^[\d.]+ (us|ms|s)$")
        self.assertIn("A step of a recommender", page.text())

    def test_a_step_that_was_made_twice_counts_once(self):
        steps = [{"step": step, "loss": 5 - step / 10, "lr": 1, "step_seconds": 1} for step in range(1, 7)]
        self.write_log("log", {"step": 0, "event": "start", "first_step": 1, "last_step": 6}, *steps,
                       {"step": 3, "event": "start", "first_step": 4, "last_step": 6}, {"step": 4, "loss": 9, "lr": 1})
        page = self.report("log")
        self.assertEqual(page.row("steps"), ["1 to 4 of 6, started 2 times"])
        self.assertEqual(page.row("last loss"), ["9 (step 4)"])

    def test_steps_that_a_rollback_takes_back_count_no_more(self):
        """Also if they are skipped when they come again, and have no loss."""
        steps = [{"step": step, "loss": 99 if step == 6 else 5, "lr": 1, "skipped": False} for step in range(1, 7)]
        skipped = [{"step": step, "loss": None, "lr": 1, "skipped": True} for step in (4, 5, 6)]
        self.write_log("log", {"step": 0, "event": "start", "first_step": 1, "last_step": 8}, *steps,
                       {"step": 6, "event": "loss_spike", "loss": 99, "to_step": 3}, *skipped)
        page = self.report("log")
        self.assertEqual(page.row("steps"), ["1 to 6 of 8"])
        self.assertEqual(page.row("skipped steps"), ["3"])
        self.assertEqual(page.row("last loss"), ["5 (step 3)"])
        self.assertEqual([text for text in page.texts if ": loss, step " in text],
                         [f"log: loss, step {step}: 5" for step in (1, 2, 3)])
        self.write_log("bad", *steps, {"step": 6, "event": "loss_spike", "to_step": -1})
        _, err = self.trifold("report", "bad", "--output", "page.html", status=2)
        self.assertIn("bad:7: step -1 is negative", err)

    def test_evaluations_of_different_parts(self):
        self.write_log("log", {"step": 4, "valid_loss": 2, "tokens": 10}, {"step": 4, "test_loss": 3, "tokens": 70, "classes": []})
        charts = [attributes["aria-label"] for tag, attributes in self.report("log").elements if "aria-label" in attributes]
        self.assertEqual(sorted(charts), ["loss", "test_tokens", "valid_tokens"])

    def test_no_mark_hides_a_warning(self):
        steps = [{"step": step, "loss": 1, "lr": 1} for step in range(1, 1001)]
        saved = [{"step": step, "event": "saved", "path": f"at {step}"} for step in range(1, 1001)]
        self.write_log("log", *steps, *saved, {"step": 998, "event": "warning", "text": "late"})
        page = self.report("log")
        marks = [attributes["stroke"] for tag, attributes in page.elements if attributes.get("class") == "mark"]
        self.assertEqual(len(set(marks)), 2)
        self.assertEqual(marks.count(marks[-1]), 1)  # the warning is drawn last, over the others
        self.assertLess(len(marks), 600)
        self.assertIn("warning: late", page.texts)
        self.assertRegex(page.text(), r"saved: at 1 \(and \d more here\)")

    def test_text_is_escaped(self):
        """Whatever a log says, it adds no element, and no character that controls the terminal or the direction of text."""
        evil = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202e\x1b[31m"
        step = {"step": 1, "loss": 1, "lr": 1, evil: 3, "labels": {evil: {"auc": 0.5}}}
        self.write_log("log", {"step": 0, "event": "start", "command": evil, "mesh": evil, "options": {evil: [evil, 1], "lr": {"a": evil}}},
                       step, {**step, "step": 2}, {"step": 2, "event": evil, "text": evil}, {"step": 2, "event": "saved", "path": evil})
        name = "<b>&.jsonl"
        (self.folder / name).write_bytes((self.folder / "log").read_bytes())
        page = self.report("log", name)
        self.assertNotIn("b", [tag for tag, _ in page.elements])
        raw = (self.folder / "page.html").read_text(encoding="utf-8")
        self.assertNotIn("<script", raw)
        self.assertFalse(set(raw) & set("\x1b\u202e"))
        self.assertIn("</td><script>alert(1)", page.text())

    def test_logs_that_are_none(self):
        (self.folder / "empty").mkdir()
        self.write_log("good", {"step": 1, "loss": 2, "lr": 1})
        cases = {"missing": "missing", "empty": "the folder has no log of --log-json", "blank": "blank has no lines of a log",
                 "text": "text:1", "list": "list:1: [1] is no line of a log", "huge": "huge:1", "minus": "minus:1: step -1 is negative",
                 "twice": "the folder has 2 logs (a, b): give one of them", "good text": "text:1"}
        (self.folder / "blank").write_text("")
        (self.folder / "text").write_text("hello\n")
        (self.folder / "list").write_text("[1]\n")
        (self.folder / "huge").write_text('{"step":99999999999999999999}\n')
        (self.folder / "minus").write_text('{"step":-1,"loss":1}\n')
        (self.folder / "twice").mkdir()
        for part in "ab":
            self.write_log(f"twice/{part}", {"step": 1})
            text = (self.folder / "twice" / part).read_text().replace(" ", "")
            (self.folder / "twice" / part).write_text(text)
        for runs, message in cases.items():
            _, err = self.trifold("report", *runs.split(), "--output", "page.html", status=2)
            self.assertIn(message, err)
            self.assertFalse((self.folder / "page.html").exists())
        _, err = self.trifold("report", "--output", "page.html", status=2)
        self.assertIn("no run is named: trifold report RUN... --output FILE.html".split(":")[0], err)
        for output, message in (("good", "is RUN good, which this command reads"), ("text", "exists and has no mark of this command")):
            _, err = self.trifold("report", "good", "--output", output, status=2)
            self.assertIn(message, err)

    def test_a_line_that_a_kill_cut_off(self):
        self.write_log("log", {"step": 1, "loss": 2, "lr": 1}, {"step": 2, "loss": 1, "lr": 1})
        with open(self.folder / "log", "a", encoding="utf-8") as file:
            file.write('{"step":3,"lo')
        self.assertEqual(self.report("log").row("last loss"), ["1 (step 2)"])
        with open(self.folder / "log", "a", encoding="utf-8") as file:
            file.write('\n{"step":4,"loss":1,"lr":1}\n')
        _, err = self.trifold("report", "log", "--output", "page.html", status=2)
        self.assertRegex(err, r"log:3: .*")

    def test_a_log_that_ends_within_its_first_line(self):
        """A run that was killed at once, or has only begun; a later run may append to it."""
        (self.folder / "run").mkdir()
        for text in ('{"st', '{"step":0,"event":"start","comm'):
            (self.folder / "run" / "log").write_text(text)
            for run in ("run", "run/log"):
                _, err = self.trifold("report", run, "--output", "page.html", status=2)
                self.assertIn("run/log ends within its first line", err)
        self.pretrain("--train-iters", 2, "--log-json", "run/log")
        self.assertEqual(len(self.losses("run/log")), 2)
        self.report("run")
        (self.folder / "run" / "log").write_text('{"step":1,"loss":2}')  # complete, so it is not what a kill leaves
        _, err = self.pretrain("--train-iters", 2, "--log-json", "run/log", status=2)
        self.assertIn("is not a log of Trifold", err)

    def test_numbers_at_their_limits_are_drawn(self):
        values = [0, -1e308, 1e308, 5e-324, 1e-300, -0.0, 1]
        self.write_log("log", *[{"step": step, "loss": value, "lr": 1e300, "grad_norm": 10.0**(step * 40 - 100), "step_seconds": None}
                                for step, value in enumerate(values)])
        raw = self.report("log")
        for tag, attributes in raw.elements:
            for name, value in attributes.items():
                self.assertIsNone(re.search(r"\b(nan|inf)\b", value or ""), (tag, name, value))

    def test_options_that_cannot_be_planned(self):
        self.write_log("log", {"step": 0, "event": "start", "command": "pretrain", "options": {"num_layers": 10**30, "x": None}},
                       {"step": 1, "loss": 2, "lr": 1})
        self.write_log("old", {"step": 1, "loss": 2, "lr": 1})
        reasons = self.report("log", "old").row("not planned, because")
        self.assertIn("is not known", reasons[0])
        self.assertEqual(reasons[1], "the log has no options of the run")


if __name__ == "__main__":
    unittest.main()
