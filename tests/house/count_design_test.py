"""The figures of tools/count_design.py, on small trees that are made up."""

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

import count_design  # noqa: E402


def values(figures):
    return {figure.name: figure.value for figure in figures}


def places(figures, name):
    return list(next(figure.how for figure in figures if figure.name == name))


def tree(**files):
    """Of {path with __ for / and _dot_ for the suffix's dot: text}."""
    return count_design.Tree({name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()})


class Lines(unittest.TestCase):
    def moved(self, old, new):
        deleted, added = count_design.runs_of_diff(count_design.difference(old, new))
        return sum(map(len, added)), sum(map(len, deleted)), count_design.moved_lines(deleted, added)

    def test_lines_and_blank_lines(self):
        figures = count_design.lines(tree(src__a_dot_cpp="int a;\n\n// why\n", launch__b_dot_cu="int b;\n"), None, None)
        self.assertEqual(values(figures), {"files": 2, "lines": 4, "lines, not blank": 3})

    def test_a_block_that_moves_to_another_file(self):
        block = "int first_of_three();\nint second_of_three();\n\nint third_of_three();\n"
        old = {"src/a.cpp": "int stays;\n" + block, "src/b.cpp": "int other;\n"}
        new = {"src/a.cpp": "int stays;\n", "src/b.cpp": "int other;\nint anew;\n" + block}
        self.assertEqual(self.moved(old, new), (4, 3, 3))

    def test_a_renamed_file_moves(self):
        text = "".join(f"int number_{i} = {i};\n" for i in range(5))
        self.assertEqual(self.moved({"src/a.cpp": text}, {"src/b/c.cpp": text}), (5, 5, 5))

    def test_two_lines_or_three_brackets_do_not(self):
        self.assertEqual(self.moved({"src/a.cpp": "int one_of_two_long_lines;\nint two_of_two_long_lines;\n"},
                                    {"src/b.cpp": "int one_of_two_long_lines;\nint two_of_two_long_lines;\n"}), (2, 2, 0))
        self.assertEqual(self.moved({"src/a.cpp": "}\n}\n}\n"}, {"src/b.cpp": "}\n}\n}\n"}), (3, 3, 0))

    def test_a_deleted_block_is_found_once(self):
        block = "int first_of_three();\nint second_of_three();\nint third_of_three();\n"
        self.assertEqual(self.moved({"src/a.cpp": block}, {"src/b.cpp": block, "src/c.cpp": block}), (6, 3, 3))


class Costs(unittest.TestCase):
    def test_names_outside_the_walk(self):
        counted = tree(src__models__model_dot_h="struct TensorSums {\n};\nstruct Block {\n  TensorSums sums;\n};\n",
                       src__models__gpt_dot_cpp="double x = flops_of_layer(config) + block.cost;  // of BlockFlops\n",
                       src__walk__walk_dot_cpp="BlockFlops total;\n",
                       src__run__metrics_dot_h="double train_flops_per_sample = 0, peak_flops = 0;\n")
        figures = count_design.costs(counted)
        self.assertEqual(places(figures, "files, all kinds"), ["src/models/gpt.cpp", "src/models/model.h"])
        self.assertEqual({name: value for name, value in values(figures).items() if value},
                         {"files, all kinds": 2, "lines, all kinds": 3, "files with flops of blocks": 1, "files with traffic of blocks": 1,
                          "files with costs of blocks": 1, "structs that describe a block's costs": 1})


class Configs(unittest.TestCase):
    def test_names_of_commands_in_headers(self):
        counted = tree(src__config__command_line__commands_dot_h="RunSpec resolve(PretrainConfig config);\n",
                       src__plan__report_dot_h="// Of a PretrainConfig.\nvoid plan(const PretrainConfig& a, const PretrainConfig& b);\n",
                       src__plan__report_dot_cpp="void plan(const PretrainConfig& a);\n",
                       src__plan__resolve_dot_h="RunSpec resolve_run(const PretrainConfig& run);\n",
                       src__layout__cut_dot_h="struct Cut { Cut(const ModelConfig& model); };\n",
                       src__recommend__run_dot_h="void run(TrainedRecommenderConfig config);\n")
        figures = count_design.configs(counted)
        self.assertEqual(values(figures), {"headers": 2, "names in them": 3, "names in src/plan": 2, "names in src/layout": 0,
                                           "names in src/train": 0, "names in src/recommend": 1})
        self.assertEqual(places(figures, "headers"), ["2 in src/plan/report.h", "1 in src/recommend/run.h"])


class Makers(unittest.TestCase):
    def test_calls_and_constructions(self):
        counted = tree(
            src__plan__step_dot_h="StepOrder step_order(const Spec& spec);\nPlan complete_plan(const StepOrder& order);\n",
            src__plan__step_dot_cpp="StepOrder step_order(const Spec& spec) { return {}; }\n"
                                    "Plan make() { return complete_plan(step_order({})); }\n",
            src__train__replica_dot_h="class Replica {\n  CutModel cut_;\n  std::vector<RankLayout> layouts_;\n};\n",
            src__train__replica_dot_cpp="Replica::Replica()\n    : cut_(1, 2) {\n  layouts_.emplace_back(cut_);\n}\n",
            src__plan__search_dot_cpp="void f(const CutModel& model);\nconst CutModel model(1);\nreturn g(RankLayout(model));\n",
            src__layout__cut_model_dot_h="struct CutModel {\n  CutModel(int how);\n};\n")
        figures = count_design.makers(counted)
        self.assertEqual({name: value for name, value in values(figures).items() if value},
                         {"places, all kinds": 6, "orders": 1, "plans": 1, "cuts": 2, "layouts": 2})
        self.assertEqual(places(figures, "cuts"), ["src/plan/search.cpp:2: const CutModel model(1);", "src/train/replica.cpp:2: : cut_(1, 2) {"])


class Messages(unittest.TestCase):
    def test_forms(self):
        text = ('problems.about("a", "b")\n    .wrong("--a {} has no "\n           "effect", name_of(a))\n    .right("it needs --b");\n'
                'problems.about("a").wrong("--a needs --b").right("give both");\n'
                'problems.about("a").wrong("--a {} is more than --b {}", a, b).right("give {}", b);\n'
                'return Problem{{"a"}, "--a is not possible with --b", "leave it out"};\n'
                'problems.about("a").wrong("--a is odd").right("give (an even one");\n'
                'bad_input("\'{}\' is not a number", word);  // bad_input("no")\n'
                'table.add("a", &config.a, "help").range(1, 2);\ntable.add("b", &config.b, "help").needs("a");\n')
        figures = count_design.messages(tree(src__config__model_dot_cpp=text, src__plan__a_dot_cpp=text))
        self.assertEqual({name: value for name, value in values(figures).items() if value},
                         {"written about rules": 5, "written about rules: has no effect": 1, "written about rules: needs": 1,
                          "written about rules: excludes": 1, "written about rules: compares": 1,
                          "written about rules: another form": 1, "written about one value": 1, "made from data": 2,
                          "made from data: a range of an option": 1, "made from data: needs": 1})
        self.assertEqual(places(figures, "written about rules: has no effect"), ["src/config/model.cpp:2: --a {} has no effect: it needs --b"])


class Arrows(unittest.TestCase):
    def test_back_and_unknown(self):
        figures = count_design.arrows(tree(
            src__config__rules__a_dot_cpp='#include "config/fields/b.h"\n#include "config/command_line/c.h"\n#include "config/experts/d.h"\n',
            src__config__fields__b_dot_h='#include "core/error.h"\n'))
        self.assertEqual([figure.value for figure in figures], [1, 1, 1])
        self.assertEqual(places(figures, "pairs of sub-folders with such"), ["rules -> command_line"])
        self.assertEqual(places(figures, "sub-folders without a place in the order"), ["experts"])


class Twins(unittest.TestCase):
    def test_both_of_a_pair(self):
        figures = count_design.twins(tree(src__a_dot_h="enum class TokenDrop { Probs };\nenum class NormKind { Layer };\n",
                                          src__b_dot_h="enum class KeptChoices : int { Largest };\n"))
        self.assertEqual(figures[0].value, 1)
        self.assertIn("TokenDrop and KeptChoices: src/a.h:1, src/b.h:1", figures[0].how)


class Repository(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.git("init", "--quiet")
        self.commit("feat(a): one", {"src/a.cpp": "int a;\n", "launch/b.cpp": "int b;\n"})
        self.commit("fix(a): two", {"src/config/a.cpp": "int c;\n"})
        self.commit("feat: three", {"src/config/a.cpp": "int d;\n", "src/plan/a.cpp": "int e;\n", "src/CMakeLists.txt": "", "docs/a.md": ""})
        self.commit("feature: four", {"src/a.cpp": "int f;\n"})

    def tearDown(self):
        self.folder.cleanup()

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", *arguments], cwd=self.root, check=True)

    def commit(self, message, files):
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text, encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def run_main(self, *arguments):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
            status = count_design.main([str(self.root), *arguments])
        return status, out.getvalue(), errors.getvalue()

    def test_features(self):
        self.assertEqual(values(count_design.features(self.root, "HEAD", 10)),
                         {"features": 2, "files of a feature, median": 3, "files of a feature, 90th percentile": 3,
                          "that touch src/config": 1, "that touch plans and costs": 1})
        self.assertEqual(values(count_design.features(self.root, "HEAD~2", 10))["files of a feature, median"], 2)

    def test_a_commit_and_what_has_changed_since(self):
        status, text, _ = self.run_main("--json", "--commit", "HEAD~1", "--since", "HEAD~3", "--features", "1")
        self.assertEqual(status, 0)
        found = {title[2:]: {name: figure["value"] for name, figure in figures.items()} for title, figures in json.loads(text).items()}
        self.assertEqual(found["lines of src and launch"], {"files": 4, "lines": 4, "lines, not blank": 4, "lines added": 2,
                                                            "lines deleted": 0, "of both, moved": 0, "written anew": 2, "gone": 0})
        self.assertEqual(found["features"]["features"], 1)

    def test_text_and_list(self):
        _, text, _ = self.run_main()
        self.assertIn("8 enums that say the same\n  pairs of which both exist                    0\n", text)
        _, text, _ = self.run_main("--list")
        self.assertIn("      TokenDrop and KeptChoices: neither exists\n", text)

    def test_an_unknown_commit(self):
        status, _, errors = self.run_main("--commit", "nothing")
        self.assertEqual(status, 1)
        self.assertIn("nothing", errors)


class Tables(unittest.TestCase):
    def test_folders_of_the_tables_exist(self):
        for folder in (*count_design.CONFIG_FOLDERS, *count_design.TOPS):
            self.assertTrue((ROOT / folder).is_dir(), folder)


if __name__ == "__main__":
    unittest.main()
