"""`trifold plan`, and plans as files: its output, and what it rejects."""

import json
import os
import pathlib
import re
import unittest
import xml.etree.ElementTree as ElementTree

from program import TEXT, WHOLE, ProgramTest

CONFIGS = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "launch" / "configs"
MIXTURES = [path for path in sorted(CONFIGS.glob("*.cfg")) if "num-experts" in path.read_text()]

MODEL = ("--num-layers 4 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --vocab-size 300 "
         "--micro-batch-size 2 --global-batch-size 16").split()
PIPELINE = ["--ranks", "2", "--pp", "2"]


def cells(text):
    return [row.split(",") for row in text.splitlines()]


class Plan(ProgramTest):
    def plan(self, *arguments, **options):
        return self.trifold("plan", *MODEL, *PIPELINE, *arguments, **options)

    def read(self, name):
        return (self.folder / name).read_text()

    def refused(self, *arguments, words, command=None):
        before = self.files()
        run = command or self.plan
        _, message = run(*arguments, status=2)
        for word in words:
            self.assertIn(word, message)
        self.assertEqual(self.files(), before, "something was written")
        return message

    def test_configurations_of_thousands_of_ranks_take_seconds(self):
        for name, words in (("gpt-1t", ["3072 ranks", "1.01 T parameters", "2 layers each", "512 micro-batches"]),
                            ("gpt-175b", ["1536 ranks", "174.6 G parameters", "interleaved", "stages      32"])):
            out, _ = self.trifold("plan", "--config", CONFIGS / f"{name}.cfg", "--svg", "big.svg", timeout=60)
            for word in [*words, "bubble", "memory", "traffic", "0SEND_F0"]:
                self.assertIn(word, out)
            self.assertLess((self.folder / "big.svg").stat().st_size, 3_000_000)
            ElementTree.parse(self.folder / "big.svg")
        out, _ = self.trifold("plan", "--config", CONFIGS / "gpt2-124m.cfg")
        self.assertIn("124.5 M parameters", out)

    def test_mixtures_of_experts_have_their_published_sizes(self):
        for name, words in (("mixtral-8x7b", ["46.7 G parameters"]), ("mixtral-8x22b", ["140.6 G parameters"]),
                            ("qwen2-57b-a14b", ["57.4 G parameters"]), ("qwen3-30b-a3b", ["30.5 G parameters"]),
                            ("qwen3-235b-a22b", ["235.1 G parameters"]), ("deepseek-v3", ["671.0 G parameters"]),
                            ("gpt-oss-20b", ["20.9 G parameters"]), ("gpt-oss-120b", ["116.8 G parameters"])):
            with self.subTest(name):
                out, _ = self.trifold("plan", "--config", CONFIGS / f"{name}.cfg", timeout=60)
                for word in [*words, "bubble", "memory", "traffic"]:
                    self.assertIn(word, out)

    def test_hardware_by_name(self):
        big = ["--num-layers", 24, "--hidden-size", 2048, "--num-attention-heads", 16, "--seq-length", 2048,
               "--vocab-size", 51200, "--micro-batch-size", 2, "--global-batch-size", 64, "--ranks", 16, "--pp", 4,
               "--bf16"]
        seconds = {}
        for name in ("a100-80gb", "h100"):
            out, _ = self.trifold("plan", *big, "--hardware", name, "--json", "plan.json")
            plan = json.loads(self.read("plan.json"))
            seconds[name] = plan["step_seconds"]
            self.assertIn(f"hardware    {name}", out)
            self.assertIn("the plan fits", out)
            self.assertTrue(plan["closed_form"]["fits"])
            # The simulator and the closed form use the same costs.
            self.assertLess(abs(plan["closed_form"]["step_seconds"] / plan["step_seconds"] - 1), 0.1)
        self.assertGreater(seconds["a100-80gb"], 1.5 * seconds["h100"])
        out, _ = self.trifold("plan", *big, "--hardware", "h100", "--hardware-set", "memory-gib=8")
        self.assertIn("does not fit", out)
        self.trifold("plan", *big, "--hardware", "h100", "--assume", "attention=unfused", "overlap-gradients=0",
                     "activations=fused", "--json", "slow.json")
        slow = json.loads(self.read("slow.json"))
        self.assertGreater(slow["step_seconds"], 1.02 * seconds["h100"])
        self.assertTrue(slow["closed_form"]["activations_described"])

    def test_hardware_that_does_not_exist(self):
        self.refused("--hardware", "v100", words=["v100", "a100-80gb"])
        self.refused("--hardware", "no.json", words=["no.json"])
        self.refused("--hardware", "h100", "--hardware-set", "adapters=2", words=["adapters", "adapter-gbytes"])
        self.refused("--hardware", "h100", "--assume", "attention=slow", words=["slow", "unfused"])
        self.refused("--assume", "attention=fused", words=["--assume", "--hardware"])
        self.refused("--hardware", "h100", "--assume", "input-bytes=1", words=["input-bytes", "activations=fused"])
        self.refused("--svg", "step.png", words=["step.png", "written as svg", "ends in .svg"])
        self.refused("--hardware", "h100", "--peak-gflops", 10, words=["peak-gflops", "--hardware h100"])
        (self.folder / "part.json").write_text('{"tflops": 100}')
        self.refused("--hardware", "part.json", words=["memory-gbytes", "base"])

    def test_many_plans_in_one_process(self):
        line = " ".join([*MODEL, *PIPELINE])
        (self.folder / "lines.txt").write_text(f"# two\n{line} --hardware h100\n\n{line} --schedule no\n")
        out, _ = self.trifold("plan", "--lines", "lines.txt")
        first, second = map(json.loads, out.splitlines())
        self.assertGreater(first["bytes"], 0)
        self.assertIn("no", second["error"])
        out, _ = self.trifold("plan", "--lines", "lines.txt", "--closed-form")
        closed = json.loads(out.splitlines()[0])
        self.assertEqual(closed["step_seconds"], first["closed_form_seconds"])
        self.assertAlmostEqual(sum(closed["parts"].values()), closed["step_seconds"])

    def test_closed_form_knows_a_cut_head(self):
        line = " ".join([*MODEL, "--ranks 4 --pp 4 --pipeline-vocab-parts 2 --hardware h100",
                         "--pipeline-model-parallel-layout Et|tt|tL|L"])
        (self.folder / "lines.txt").write_text(line.replace("--vocab-size 300", "--vocab-size 100000"))
        planned, closed = (json.loads(self.trifold("plan", "--lines", "lines.txt", *form)[0])
                           for form in ([], ["--closed-form"]))
        self.assertAlmostEqual(closed["bytes"] / planned["bytes"], 1, delta=0.02)

    def test_models_with_experts_are_forecast_and_searched(self):
        for path in MIXTURES if WHOLE else [CONFIGS / "mixtral-8x7b.cfg", CONFIGS / "qwen3-30b-a3b.cfg"]:
            config = ["--config", path, "--hardware", "h100"]
            with self.subTest(path.name):
                out, _ = self.trifold("plan", *config, "--json", "plan.json")
                self.assertIn("the plan fits", out)
                plan = json.loads(self.read("plan.json"))
                self.assertTrue(plan["closed_form"]["fits"])
                (self.folder / "line.txt").write_text(" ".join(map(str, config)))
                closed = json.loads(self.trifold("plan", "--lines", "line.txt", "--closed-form")[0])
                self.assertAlmostEqual(closed["step_seconds"] / plan["step_seconds"], 1, delta=0.1)
                most = max(rank["bytes"] for rank in plan["pipeline_ranks"])
                self.assertAlmostEqual(closed["bytes"] / most, 1, delta=0.02)
                self.trifold("plan", *config, "--search", "--json", "found.json")
                found = json.loads(self.read("found.json"))
                self.assertLessEqual(max(layout["bytes"] for layout in found["layouts"]), found["limit_bytes"])

    def test_a_search_agrees_with_plans_of_its_layouts(self):
        model = ["--num-layers", 12, "--hidden-size", 1024, "--num-attention-heads", 16, "--seq-length", 1024,
                 "--vocab-size", 8192, "--global-batch-size", 64, "--ranks", 16, "--bf16", "--hardware", "a100-40gb"]
        out, _ = self.trifold("plan", *model, "--search", "--json", "search.json", "--svg", "search.svg")
        search = json.loads(self.read("search.json"))
        self.assertIn(f"search      {search['candidates']} layouts of 16 ranks on a100-40gb", out)
        self.assertEqual(len(search["layouts"]), 10)
        self.assertGreaterEqual(search["candidates"], search["fitting"])
        for found in search["layouts"]:
            self.assertLessEqual(found["bytes"], search["limit_bytes"])
            self.assertTrue(found["bound"])
        best = search["layouts"][0]
        self.assertEqual((best["context_parallel_size"], best["cp_comm_type"]), (1, None))
        self.assertEqual(out.splitlines()[-1], "best        " + " ".join(best["options"]))
        self.trifold("plan", *model, *best["options"], "--json", "plan.json")
        plan = json.loads(self.read("plan.json"))
        self.assertEqual(plan["step_seconds"], best["step_seconds"])
        self.assertEqual(max(rank["bytes"] for rank in plan["pipeline_ranks"]), best["bytes"])
        picture = self.read("search.svg")
        for place, found in enumerate(search["layouts"][:3], 1):
            self.assertRegex(picture, rf">{place}\. tp {found['tensor_model_parallel_size']} ")
        self.assertEqual(picture.count("<g class=\"timeline"), 3)
        # The other options are kept.
        out, _ = self.trifold("plan", *model, "--tp", 2, "--pp", 4, "--micro-batch-size", 1, "--search",
                              "--search-over", "schedule,stages")
        self.assertGreater(out.count("tp 2 pp 4 dp 2"), 2)
        self.assertEqual(out.count("tp 2 pp 4 dp 2"), out.count("micro-batch 1,"))
        self.assertNotIn("--micro-batch-size", out)

    FAILING = ["--ranks-per-node", "1", "--mtbf", "400", "--save-seconds", "20", "--goodput-trials", "20"]

    def test_goodput_on_failing_nodes(self):
        """Intervals of saves around the best one, with shares of the time that add up."""
        words = [*MODEL, "--pp", "2", "--ranks", "8", "--spare-nodes", "4", "--train-iters", "2000000000", *self.FAILING,
                 "--save", "run", "--save-interval", "12345"]
        out, _ = self.trifold("plan", *words, "--json", "plan.json")
        self.assertIn("8 nodes of 1 rank, each failing every 400 h: the run fails every 50 h", out)
        self.assertIn("(--save-interval)", out)
        goodput = json.loads(self.read("plan.json"))["goodput"]
        self.assertEqual(goodput["mtbf_seconds"], 50 * 3600)
        self.assertEqual(goodput["save_stall_seconds"], 20)
        self.assertEqual(goodput["steps"], 2000000000)
        self.assertEqual([mesh["data_parallel_size"] for mesh in goodput["smaller_meshes"]], [2, 1])
        best = max(max(row[how]["goodput"] for how in ("waits", "shrinks")) for row in goodput["intervals"])
        self.assertEqual(goodput["goodput"], best)
        self.assertIn(12345, [row["save_interval"] for row in goodput["intervals"]])
        for row in goodput["intervals"]:
            for how in ("waits", "shrinks"):
                shares = [row[how][part] for part in ("goodput", "saving", "lost", "down", "waiting", "slower")]
                self.assertAlmostEqual(sum(shares), 1)
                self.assertGreaterEqual(min(shares), 0)
        again, _ = self.trifold("plan", *words)
        self.assertEqual(again, out)

    def test_goodput_of_many_plans(self):
        (self.folder / "lines.txt").write_text(" ".join([*MODEL, *PIPELINE, *self.FAILING]) + "\n")
        out, _ = self.trifold("plan", "--lines", "lines.txt")
        self.assertGreater(json.loads(out)["goodput"]["goodput"], 0.5)

    def test_goodput_of_a_recommender(self):
        """Tables are placed anew on any number of ranks, so that the run can continue on one node less."""
        self.trifold("plan", "--train-data", "synthetic", "--ranks", "8", *self.FAILING, "--json", "plan.json")
        goodput = json.loads(self.read("plan.json"))["goodput"]
        self.assertEqual([mesh["nodes"] for mesh in goodput["smaller_meshes"]], [7, 6])
        self.assertGreater(goodput["smaller_meshes"][0]["step_seconds"], 0)
        self.assertGreater(goodput["goodput"], 0.5)
        self.refused("--train-data", "synthetic", "--ranks-per-node", "1", words=["--ranks-per-node", "--mtbf"],
                     command=lambda *words, **how: self.trifold("plan", *words, **how))

    def test_goodput_of_a_run_that_does_not_finish(self):
        failing = ["--ranks-per-node", "1", "--mtbf", "0.001", "--save-seconds", "100", "--goodput-trials", "2"]
        out, _ = self.trifold("plan", *MODEL, "--pp", "2", "--ranks", "8", *failing, "--json", "plan.json")
        self.assertIn("not finished in 20 times its work: given up", out)
        self.assertIn("no interval lets the run finish", out)
        self.assertNotIn("best of them", out)
        self.assertNotIn("-0.00 %", out)
        goodput = json.loads(self.read("plan.json"))["goodput"]
        self.assertFalse(goodput["ended"])
        self.assertIsNone(goodput["best_save_interval"])

    def test_goodput_on_one_node(self):
        failing = ["--ranks-per-node", "8", "--mtbf", "400", "--save-seconds", "0", "--goodput-trials", "2"]
        out, _ = self.trifold("plan", *MODEL, "--pp", "2", "--ranks", "8", *failing)
        self.assertIn("on fewer nodes no number of replicas divides its batch", out)
        self.assertIn("stops it for 0 s", out)

    def test_failures_that_cannot_be_forecast(self):
        failing = ["--ranks-per-node", "1", "--mtbf", "400"]
        self.refused(*failing, words=["--mtbf", "--save-seconds", "--storage-gbps"])
        self.refused("--mtbf", "400", "--save-seconds", "5", words=["--mtbf", "--hardware", "--ranks-per-node"])
        self.refused("--save-seconds", "5", words=["--save-seconds", "--mtbf"])
        self.refused(*failing, "--save-seconds", "5", "--save-stall-seconds", "1", words=["--async-save"])
        self.refused(*failing, "--save-seconds", "5", "--storage-gbps", "1", words=["give one of them"])
        self.refused("--ranks-per-node", "1", "--mtbf", "0", "--save-seconds", "5", words=["--mtbf 0", "from 0.001"])
        self.refused(*failing, "--storage-gbps", "1e-300", words=["--storage-gbps 1e-300", "more than a year", "give at least"])

    def test_goodput_with_many_nodes_under_repair(self):
        """A quarter of a million at once: each failure must not look at all of them."""
        self.trifold("plan", *MODEL, "--pp", "2", "--ranks", "8", "--ranks-per-node", "1", "--mtbf", "0.002", "--save-seconds", "0",
                     "--restart-seconds", "0", "--detect-seconds", "0", "--spare-nodes", "1000000", "--train-iters", "1000000000",
                     "--goodput-trials", "1", timeout=60)

    def test_records(self):
        model = ["--config", CONFIGS / "gpt2-124m.cfg", "--ranks", 2, "--tensor-model-parallel-size", 2, "--micro-batch-size", 1]
        out, _ = self.trifold("plan", *model, "--records", "--json", "plan.json")
        self.assertIn("layer (12 like it)", out)
        self.assertIn("all_reduce of 2 tp", out)
        plan = json.loads(self.read("plan.json"))
        flops = 0
        for block in plan["records"]:
            records = block["F"] + block["I"] + block["W"]
            flops += block["blocks"] * sum(each["times"] * each["flops"] for each in records)
        samples = plan["flops"] / (2 * flops)  # both ranks do as much of each
        self.assertAlmostEqual(samples, round(samples), places=9)
        sums = [each for each in plan["records"][1]["F"] if each["operation"] == "all_reduce"]
        self.assertEqual([(each["axes"], each["times"], each["sent"]) for each in sums], [("tp", 2, 1024 * 768 * 4)])
        on_device, _ = self.trifold("plan", *model, "--records", "--hardware", "h100")
        self.assertIn("affine_gelu", on_device)
        self.assertNotIn("affine_gelu", out)
        _, err = self.trifold("plan", *model, "--records", "--search", "--hardware", "h100", status=2)
        self.assertIn("--records", err)

    def test_a_search_cuts_long_samples(self):
        model = ["--config", CONFIGS / "llama-8b.cfg", "--bf16", "--seq-length", 65536, "--max-position-embeddings", 65536,
                 "--ranks", 16, "--global-batch-size", 2, "--hardware", "h100"]
        out, _ = self.trifold("plan", *model, "--search", "--search-over", "tensor,context,exchange,zero,recompute",
                              "--micro-batch-size", 1, "--json", "search.json")
        best = json.loads(self.read("search.json"))["layouts"][0]
        self.assertGreater(best["context_parallel_size"], 1)
        self.assertEqual(best["cp_comm_type"], "p2p")
        self.assertIn(f" cp {best['context_parallel_size']} (p2p) ", out)
        out, _ = self.trifold("plan", *model, "--micro-batch-size", 1, *best["options"], "--json", "plan.json")
        plan = json.loads(self.read("plan.json"))
        self.assertEqual(plan["step_seconds"], best["step_seconds"])
        seconds = plan["pipeline_ranks"][0]["context_seconds"]
        self.assertGreater(seconds["hidden"], 0)
        self.assertIn("behind attention", out)

    def test_costs_of_context_ranks_are_of_one_exchange(self):
        cut = ["--ranks", 2, "--cp", 2, "--cp-comm-type"]
        self.trifold("bench", *MODEL, *cut, "p2p", "--what", "blocks", "--iters", 2, "--json", "costs.json")
        self.trifold("plan", *MODEL, *cut, "p2p", "--costs", "costs.json")

        def plan(*arguments, **options):
            return self.trifold("plan", *MODEL, *cut, *arguments, "--costs", "costs.json", **options)

        self.refused("a2a", command=plan, words=["measured with p2p", "has cp_comm_type a2a"])
        costs = json.loads(self.read("costs.json"))
        del costs["blocks"]["cp_comm_type"]
        (self.folder / "costs.json").write_text(json.dumps(costs))
        self.refused("p2p", command=plan, words=["an unknown cp_comm_type"])

    def test_searches_that_cannot_be(self):
        def plan(*arguments, **options):
            return self.trifold("plan", *arguments, **options)

        search = [*MODEL, "--search", "--hardware", "h100"]
        self.refused(*search, "--memory-limit", 0.0001, command=plan, words=["none of", "the smallest"])
        self.refused(*search, "--schedule-csv", "a.csv", command=plan, words=["--schedule-csv", "--search"])
        self.refused(*MODEL, "--search", command=plan, words=["--search needs --hardware"])
        self.refused(*MODEL[:-2], "--search", "--hardware", "h100", command=plan, words=["--global-batch-size"])
        self.refused(*search, "--search-over", "color", command=plan, words=["color", "recompute"])
        self.refused(*search, "--hardware-set", "tflops=0", command=plan, words=["tflops"])
        self.refused(*search, "--overlap-moe-expert-parallel-comm", command=plan,
                     words=["no layout", "--overlap-moe-expert-parallel-comm"])
        self.refused(*search, "--ranks", 16, "--cp", 4, "--pp", 8, "--search-over", "micro-batch,zero",
                     command=plan, words=["--ranks 16", "x context ranks x pipeline ranks"])

    def test_cuts_of_few_layers_on_many_places(self):
        for layers, ranks, chunks in ((22, 8, 3), (30, 8, 4), (46, 16, 3), (62, 32, 2), (126, 16, 8)):
            out, _ = self.trifold("plan", "--num-layers", layers, *MODEL[2:-2], "--global-batch-size", 2 * ranks,
                                  "--ranks", ranks, "--pp", ranks, "--num-virtual-stages-per-pipeline-rank", chunks,
                                  "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
            self.assertIn(f"stages      {ranks * chunks}", out)
        self.refused("--pipeline-model-parallel-layout", "Ett|t|tL", words=["3 stages", "2"])
        self.refused("--pipeline-model-parallel-layout", "Ett|tL", words=["3 layers (t)", "--num-layers is 4"])
        self.refused("--decoder-first-pipeline-num-layers", 5, words=["layers"])

    def test_the_drawing_has_a_box_for_every_action(self):
        for schedule in ("1f1b", "zb-v"):
            self.plan("--schedule", schedule, "--svg", "step.svg", "--schedule-csv", "step.csv", "--overwrite")
            actions = sum(len(row) for row in cells(self.read("step.csv")))
            root = ElementTree.parse(self.folder / "step.svg").getroot()
            boxes = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if "box" in e.get("class", "")]
            self.assertEqual(len(boxes), actions)
            width = float(root.get("width"))
            for box in boxes:
                self.assertGreaterEqual(float(box.get("x")), 0)
                self.assertLessEqual(float(box.get("x")) + float(box.get("width")), width)

    def test_figures_as_json(self):
        self.plan("--json", "plan.json")
        plan = json.loads(self.read("plan.json"))
        self.assertEqual(plan["micro_batches"], 8)
        self.assertEqual(len(plan["pipeline_ranks"]), 2)
        self.assertEqual(sum(stage["layers"] for stage in plan["stages"]), 4)
        self.assertAlmostEqual(sum(stage["cost_share"] for stage in plan["stages"]), 1)
        for rank in plan["pipeline_ranks"]:
            self.assertAlmostEqual(rank["busy_seconds"] + rank["idle_seconds"], plan["step_seconds"])

    def test_a_written_schedule_reads_back(self):
        self.plan("--schedule", "zb-h1", "--schedule-csv", "a.csv")
        self.plan("--schedule", "a.csv", "--schedule-csv", "b.csv")
        self.assertEqual(self.read("a.csv"), self.read("b.csv"))

    def test_the_automatic_schedule(self):
        def planned(*options):
            out, _ = self.plan("--schedule", "auto", *options, "--json", "auto.json")
            return out, json.loads(self.read("auto.json"))

        out, plan = planned()
        self.assertIn("found by search", out)
        for name in ("gpipe", "1f1b", "zb-h1", "zb-h2"):
            self.plan("--schedule", name, "--json", "named.json")
            named = json.loads(self.read("named.json"))
            if max(rank["peak_in_flight"] for rank in named["pipeline_ranks"]) <= 4:  # twice the ranks
                self.assertLessEqual(plan["automatic"]["seconds"], named["step_seconds"])
        _, few = planned("--schedule-max-in-flight", 1)
        self.assertEqual({rank["peak_in_flight"] for rank in few["pipeline_ranks"]}, {1})
        self.assertIsNone(few["automatic"]["best_named"])
        self.assertGreater(few["step_seconds"], plan["step_seconds"])
        _, message = self.plan("--schedule-max-in-flight", 3)
        self.assertEqual(message, "note: --schedule-max-in-flight 3 has no effect without --schedule auto\n")
        # Made for measured times, it is the schedule of a run with the same file.
        self.trifold("bench", *MODEL, *PIPELINE, "--what", "blocks", "--iters", 2, "--json", "costs.json")
        costs = json.loads(self.read("costs.json"))
        costs["blocks"]["head"]["f"] = 50 * costs["blocks"]["layer"]["f"]
        (self.folder / "slow.json").write_text(json.dumps(costs))
        self.plan("--schedule", "auto", "--schedule-costs", "slow.json", "--schedule-csv", "slow.csv")
        self.plan("--schedule", "auto", "--schedule-csv", "counted.csv")
        self.assertNotEqual(self.read("slow.csv"), self.read("counted.csv"))
        run = ["--num-layers", 4, "--global-batch-size", 16, *PIPELINE, "--train-iters", 3]
        for name, options in (("one", ["--schedule", "1f1b"]), ("auto", ["--schedule", "auto"]),
                              ("slow", ["--schedule", "auto", "--schedule-costs", "slow.json"])):
            self.pretrain(*run, *options, "--log-json", f"{name}.jsonl")
            self.assertEqual(self.losses("one.jsonl"), self.losses(f"{name}.jsonl"))
        for command in (self.plan, lambda *a, **o: self.pretrain(*run, *a, **o)):
            self.refused("--schedule", "auto", "--schedule-costs", "nothing.json",
                         words=["--schedule-costs nothing.json"], command=command)

    def test_a_schedule_of_the_user_trains_as_its_generator_does(self):
        self.plan("--schedule", "1f1b", "--schedule-csv", "full.csv")
        computation = [[c for c in row if c[1:2] in "FB" and "@" not in c] for row in cells(self.read("full.csv"))]
        for stage, row in enumerate(computation):
            row.append(f"{stage}B7")  # the pass took the last one apart
        (self.folder / "mine.csv").write_text("\n".join(",".join(row) for row in computation) + "\n")
        run = ["--num-layers", 4, "--global-batch-size", 16, *PIPELINE, "--train-iters", 3]
        self.pretrain(*run, "--log-json", "own.jsonl")
        for name in ("mine", "full"):
            self.pretrain(*run, "--schedule", f"{name}.csv", "--log-json", f"{name}.jsonl")
            self.assertEqual(self.losses("own.jsonl"), self.losses(f"{name}.jsonl"))

    def test_bad_schedule_files(self):
        def file(text):
            (self.folder / "bad.csv").write_text(text)

        rows = ["0F{0},".format(m) + "0B{0}".format(m) for m in range(8)]
        good = ",".join(rows) + "\n" + ",".join(rows).replace("0F", "1F").replace("0B", "1B") + "\n"
        for run in (self.plan, lambda *a, **o: self.pretrain(
                "--num-layers", 4, "--global-batch-size", 16, *PIPELINE, "--train-iters", 3, "--save", "d", *a, **o)):
            def refused(*words):
                self.refused("--schedule", "bad.csv", words=["--schedule bad.csv", *words], command=run)
            file(good.replace("1F3", "1X3"))
            refused("row 2", "cell 7", "1X3")
            file(good.splitlines()[0] + "\n")
            refused("1 row", "--pipeline-model-parallel-size 1")
            file(good.replace(",0F7,0B7", "").replace(",1F7,1B7", ""))
            refused("7 micro-batches", "--global-batch-size 14")
            file(good.replace("1B3", "1B2"))
            refused("0B3", "waits for the gradient of stage 1", "rank 1")
            file("")
            refused("it holds no action")
            file(good.replace("1F", "7F").replace("1B", "7B"))
            refused("stage")
            (self.folder / "bad.csv").unlink()
            refused("cannot be opened", "No such file")

    def test_problems_are_reported_together(self):
        self.refused("--tp", "3", "--ranks", "6", "--sequence-parallel", "--num-layers", "1", "--schedule", "pipedream",
                     words=["5 problems", "--num-attention-heads 2 is not divisible", "--hidden-size 32 is not divisible",
                            "--seq-length", "--num-layers 1 is less than the stages", "--clip-grad 0"],
                     command=lambda *a, **o: self.trifold(
                         "plan", *[w for n, v in zip(MODEL[::2], MODEL[1::2]) if n not in a for w in (n, v)], "--pp", "2",
                         *a, **o))

    def test_costs_of_a_balance_over_the_last_batch(self):
        experts = ["--num-experts", 4, "--disable-bias-linear", "--moe-router-load-balancing-type", "global_aux_loss",
                   "--moe-aux-loss-coeff", 0.01]
        self.trifold("bench", *MODEL, *experts, "--what", "blocks", "--iters", 2, "--json", "costs.json")
        self.assertGreater(json.loads(self.read("costs.json"))["blocks"]["layer"]["b"], 0)

    def test_measured_costs(self):
        self.trifold("bench", *MODEL, *PIPELINE, "--what", "blocks", "--iters", 2, "--json", "costs.json")
        out, _ = self.plan("--costs", "costs.json", "--json", "plan.json")
        self.assertIn("costs.json", out)
        blocks = json.loads(self.read("costs.json"))["blocks"]
        self.assertTrue(all(blocks["layer"][part] > 0 for part in "fiwb"), blocks)
        layer = blocks["layer"]["f"] + blocks["layer"]["b"]  # the default, 1f1b, takes whole backwards
        plan = json.loads(self.read("plan.json"))
        # At least what the busiest rank computes: 8 micro-batches through 2 of the 4 layers.
        self.assertGreater(plan["step_seconds"], 8 * 2 * layer)
        self.refused("--costs", "costs.json", "--tp", "2", "--data-parallel-size", "1", words=["--ranks 2 is not tensor 2"])
        (self.folder / "costs.json").write_text(self.read("costs.json").replace("\"seq_length\": 32", "\"seq_length\": 64"))
        self.refused("--costs", "costs.json", words=["measured with seq_length 64"])

    def test_a_machine_that_was_measured(self):
        self.trifold("bench", *MODEL, *PIPELINE, "--what", "hardware", "--json", "here.json")
        here = json.loads(self.read("here.json"))
        for key in ("tflops", "memory-gbytes", "memory-gib", "nvlink-gbytes", "adapter-gbytes", "attention-share",
                    "attention-backward", "nvlink-latency", "network-latency"):
            self.assertGreater(here[key], 0, key)
        self.assertEqual(here["devices-per-node"], 2)
        out, _ = self.plan("--hardware", "here.json")
        self.assertIn("this machine: ", out)
        self.trifold("plan", *MODEL, "--ranks", 2, "--hardware", "here.json", "--search")
        self.refused(*MODEL, "--what", "hardware,gemm", "--json", "more.json", words=["--what hardware", "alone"],
                     command=lambda *a, **o: self.trifold("bench", *a, **o))

    # The rank that needs most, for what, and what would fit; nothing is written.
    def test_a_run_that_does_not_fit_is_refused(self):
        run = ["--num-layers", 4, "--global-batch-size", 16, *PIPELINE, "--train-iters", 2, "--micro-batch-size", 8,
               "--save", "d"]
        for limit in ("0.002", "0.0001"):
            message = self.refused(*run, "--memory-limit", limit, command=self.pretrain, words=[
                f"--memory-limit is {limit} GiB: ", "pipeline rank", "weights", "gradients", "optimizer", "activations"])
            if limit == "0.0001":
                self.assertIn("none makes it fit", message)
            else:
                fitting = re.search(r"it fits with (--micro-batch-size \d) \(", message)
                self.assertTrue(fitting, message)
                self.pretrain(*run[:-4], *fitting[1].split(), "--memory-limit", limit)
        self.pretrain(*run, "--memory-limit", 1)
        huge = ["--num-layers", 96, "--hidden-size", 65536, "--num-attention-heads", 64]
        message = self.refused(*huge, "--train-iters", 2, "--save", "e", command=self.pretrain,
                               words=["1 rank of this run needs", "of memory on this host, which has "])
        self.assertNotIn("--memory-limit", message)

    def test_memory_limit_and_outputs(self):
        self.refused("--memory-limit", "0.00001", words=["--memory-limit", "pipeline rank", "needs"])
        self.refused("--svg", "no/where.svg", words=["--svg", "no/where.svg"])
        self.refused("--costs", "nothing.json", words=["--costs nothing.json"])
        self.trifold("plan", *[w for w in MODEL if w not in ("--vocab-size", "300")], "--data-path", TEXT)
        self.refused(words=["--vocab-size is needed"], command=lambda **o: self.trifold(
            "plan", *[w for w in MODEL if w not in ("--vocab-size", "300")], **o))


if __name__ == "__main__":
    unittest.main()
