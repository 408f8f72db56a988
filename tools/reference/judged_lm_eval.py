"""Log-likelihoods of questions and texts by EleutherAI's lm-evaluation-harness, with which `trifold evaluate --task` and `trifold serve` are compared.

  pip install 'lm_eval[hf,api]'
  judged_lm_eval.py write                        writes tests/golden/judged_lm_eval.json: requests and answers of a small GPT-2
  judged_lm_eval.py compare PROGRAM FILE...      tasks made of these text files: each request by lm_eval with the Hugging Face model, by
                                                 `evaluate --task`, and by lm_eval's own tasks through `local-completions` and `serve`
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
TOKENIZER = GOLDEN / "hf_tokenizers" / "gpt2.json"
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from judged import POSITIONS, make_model, write_lines  # noqa: E402

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def questions_of(words, count, seed):
    """Questions with the words that follow a piece of text among other words of it."""
    draw = random.Random(seed)
    questions = []
    for _ in range(count):
        at = draw.randrange(40, len(words) - 40)
        context = " ".join(words[at - draw.choice((1, 4, 12, 30)):at])
        choices = [" ".join(words[at:at + draw.randint(1, 5)])]
        for _ in range(draw.randint(1, 4)):
            other = draw.randrange(len(words) - 6)
            choices.append(" ".join(words[other:other + draw.randint(1, 5)]))
        draw.shuffle(choices)
        question = {"context": context, "choices": choices, "answer": draw.randrange(len(choices))}
        kind = draw.randrange(8)
        if kind == 0:
            question["context"] = ""
        elif kind == 1:
            question["context"] += draw.choice(("  ", "\n", " \t "))
            question["delimiter"] = ""
        elif kind == 2:
            question["delimiter"] = draw.choice(("", "\n", ": "))
        questions.append(question)
    return questions


def tasks_of(text, questions, texts, seed, longest=100):
    """Questions of words with at most `longest` letters, because the model is given few tokens, and texts."""
    words = [word for word in text.split() if len(word.encode()) <= longest]
    pieces = [piece for piece in re.split(r"\n\n+", text) if len(piece) > 40]
    draw = random.Random(seed + 1)
    chosen = [{"text": draw.choice(pieces)[:1500]} for _ in range(texts)]
    return questions_of(words, questions, seed), chosen


def lm_of(folder, dtype):
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(folder), dtype=dtype, device="cpu", batch_size=8)


def lm_task(name, path, kind):
    """lm_eval's configuration of a task of the file."""
    config = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}}, "test_split": "test",
              "output_type": kind}
    if kind == "multiple_choice":
        # The delimiter is part of the text here, because each question may have its own.
        return {**config, "doc_to_text": "{{context}}", "doc_to_choice": "choices", "doc_to_target": "answer", "target_delimiter": " ",
                "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]}
    return {**config, "doc_to_text": "", "doc_to_target": "text",
            "metric_list": [{"metric": name} for name in ("word_perplexity", "byte_perplexity", "bits_per_byte")]}


def requests_by(lm, questions, texts):
    from lm_eval.api.instance import Instance

    def instances(kind, arguments):
        return [Instance(kind, {}, argument, index) for index, argument in enumerate(arguments)]

    pairs = [(question["context"], question.get("delimiter", " ") + choice) for question in questions for choice in question["choices"]]
    answers = lm.loglikelihood(instances("loglikelihood", pairs))
    whole = lm.loglikelihood_rolling(instances("loglikelihood_rolling", [(text["text"],) for text in texts]))
    return [(float(value), bool(greedy)) for value, greedy in answers], [float(value) for value in whole]


def greedy_questions(lm, words, count):
    """Questions with a choice that the model itself would write, in one or two tokens that are encoded again as they are."""
    import torch

    questions, at = [], 50
    while len(questions) < count and at + 10 < len(words):
        context = " ".join(words[at:at + 9])
        at += 9
        ids = lm.tok_encode(context)
        for _ in range(1 + len(questions) % 2):
            ids.append(int(lm.model(torch.tensor([ids])).logits[0, -1].argmax()))
        text = lm.tokenizer.decode(ids)
        if text.startswith(context) and len(text) > len(context) and "\ufffd" not in text and not text[len(context)].isspace() and \
                lm.tok_encode(text) == ids:
            questions.append({"context": context, "choices": [text[len(context):], text[len(context):] + "!"], "answer": 0, "delimiter": ""})
    return questions


def scores_by(lm, folder, questions, texts):
    """The scores of lm_eval's own tasks. All questions must have the delimiter of lm_eval's default."""
    import lm_eval

    write_lines(folder / "q.jsonl", questions)
    write_lines(folder / "t.jsonl", texts)
    tasks = [lm_task("questions", folder / "q.jsonl", "multiple_choice"), lm_task("texts", folder / "t.jsonl", "loglikelihood_rolling")]
    found = lm_eval.simple_evaluate(model=lm, tasks=tasks, bootstrap_iters=0, log_samples=True)
    scores = {}
    for results in found["results"].values():
        scores.update({key.split(",")[0]: value for key, value in results.items() if isinstance(value, float) and "," in key})
    return scores, found["samples"]


def write():
    text = (ROOT / "data" / "tinyshakespeare.txt").read_text()
    questions, texts = tasks_of(text[:60000], 40, 5, 3)
    questions.append({"context": "Ünïcödé – «né» 漢字\u00a0", "choices": ["é ü", "漢字漢字", "😀"], "answer": 1})
    texts.append({"text": "  Grüße\u2003und\n\n漢字 mit 😀 am Ende \n" * 4})
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_model(folder / "model", TOKENIZER)
        lm = lm_of(folder / "model", "float64")
        questions += greedy_questions(lm, text.split(), 6)
        plain = [question for question in questions if "delimiter" not in question]
        answers, whole = requests_by(lm, questions, texts)
        assert sum(greedy for _, greedy in answers) > 3
        scores, _ = scores_by(lm, folder, plain, texts)
        pairs = [lm._encode_pair(question["context"], question.get("delimiter", " ") + choice) if question["context"] else
                 ([0], lm.tok_encode(question.get("delimiter", " ") + choice)) for question in questions for choice in question["choices"]]
    result = {"questions": questions, "texts": texts, "answers": [value for value, _ in answers], "greedy": [greedy for _, greedy in answers],
              "contexts": [context for context, _ in pairs], "continuations": [continuation for _, continuation in pairs], "rolling": whole, "scores_without_delimiters_and_of_texts": scores}
    rows = ",\n".join(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in result.items())
    (GOLDEN / "judged_lm_eval.json").write_text("{\n" + rows + "\n}\n", encoding="utf-8")


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def compare(program, files):
    import lm_eval

    text = "\n\n".join(pathlib.Path(file).read_text(errors="replace") for file in files)
    questions, texts = tasks_of(text, 300, 60, 5, longest=7)
    plain = [question for question in questions if "delimiter" not in question]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def trifold(*line):
            return subprocess.run([program, *map(str, line)], check=True, cwd=folder, capture_output=True, text=True).stdout

        make_model(folder / "model", TOKENIZER)
        trifold("convert", "--load", "model", "--save", "out", "--dtype", "f64")
        write_lines(folder / "all.jsonl", questions)
        lm = lm_of(folder / "model", "float64")
        answers, whole = requests_by(lm, questions, texts)
        scores, samples = scores_by(lm, folder, plain, texts)
        print(trifold("evaluate", "--load", "out", "--task", "all.jsonl", "--log-likelihoods", "all.out"), end="")
        print(trifold("evaluate", "--load", "out", "--task", "q.jsonl", "--log-json", "scores.jsonl"), end="")
        print(trifold("evaluate", "--load", "out", "--task", "t.jsonl", "--log-likelihoods", "t.out", "--log-json", "scores.jsonl"), end="")
        mine = lines_of(folder / "all.out")
        far = max(abs(line["log_likelihood"] - value) for line, (value, _) in zip(mine, answers, strict=True))
        print(f"{len(mine)} choices: log-likelihoods differ by at most {far:.2e}, greedy in {sum(line['greedy'] != greedy for line, (_, greedy) in zip(mine, answers))}")
        mine = lines_of(folder / "t.out")
        print(f"{len(mine)} texts: by at most {max(abs(line['log_likelihood'] - value) for line, value in zip(mine, whole, strict=True)):.2e} "
              f"of {-min(whole):.0f}")
        for line in lines_of(folder / "scores.jsonl"):
            for key, value in line.items():
                if key in scores:
                    print(f"{key} {value} here, {scores[key.removeprefix('task_')]} by lm_eval")
        with subprocess.Popen([program, "serve", "--load", "out", "--port", "0"], cwd=folder, stderr=subprocess.PIPE, text=True) as server:
            url = next(line.split()[1] for line in server.stderr if line.startswith("serving"))
            from lm_eval.models.openai_completions import LocalCompletionsAPI

            client = LocalCompletionsAPI(base_url=url, model="out", tokenizer=str(folder / "model"), tokenizer_backend="huggingface",
                                         max_length=POSITIONS + 2, batch_size=16)
            over, answers_over = scores_by(client, folder, plain, texts)
            far = 0
            for task, kept in samples.items():
                for one, other in zip(kept, answers_over[task], strict=True):
                    for a, b in zip(one["resps"], other["resps"], strict=True):
                        a, b = (x[0] if isinstance(x[0], (list, tuple)) else (x[0],) for x in (a, b))
                        far = max(far, abs(float(a[0]) - float(b[0])))
                        assert len(a) == 1 or str(a[1]) == str(b[1]), (one, other)
            print(f"local-completions: each of lm_eval's requests differs by at most {far:.2e}; scores by at most "
                  f"{max(abs(over[key] - scores[key]) for key in scores if isinstance(over.get(key), float)):.2e}")
            server.terminate()
            print(f"the server ended with {server.wait(timeout=30)}; lm_eval {lm_eval.__version__}")


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        write()
    elif len(sys.argv) > 3 and sys.argv[1] == "compare":
        compare(*sys.argv[2:3], sys.argv[3:])
    else:
        sys.exit(__doc__)
