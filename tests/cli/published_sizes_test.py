"""Configurations of published models have as many parameters as transformers counts in them."""

import json
import os
import pathlib
import unittest

from program import ProgramTest

CONFIGS = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "launch" / "configs"

# Parameters of the model's class in transformers 5, with the published sizes. The biases that only choose experts, which
# are not parameters there, are in a second number.
PARAMETERS = {
    "deepseek-v3": (671_026_404_352, 58 * 256),
    "distilbert-base": (66_985_530, 0),
    "gemma-2-27b": (27_227_128_320, 0),
    "gemma-3-27b": (27_009_346_304, 0),
    "glm-4.5": (352_797_814_784, 89 * 160),
    "gpt-neox-20b": (20_554_567_680, 0),
    "gpt-oss-120b": (116_829_156_672, 0),
    "gpt-oss-20b": (20_914_757_184, 0),
    "gpt2-124m": (124_439_808, 0),
    "granite-3.3-8b": (8_170_864_640, 0),
    "kimi-k2": (1_026_408_209_408, 60 * 384),
    "llama-1b": (1_235_814_400, 0),
    "llama-405b": (405_853_388_800, 0),
    "llama-70b": (70_553_706_496, 0),
    "llama-8b": (8_030_261_248, 0),
    "ministral-8b": (8_019_808_256, 0),
    "mistral-7b": (7_241_732_096, 0),
    "mixtral-8x22b": (140_620_634_112, 0),
    "mixtral-8x7b": (46_702_792_704, 0),
    "modernbert-base": (149_655_232, 0),
    "olmo-2-32b": (32_234_279_936, 0),
    "olmo-3-32b": (32_233_522_176, 0),
    "opt-6.7b": (6_658_473_984, 0),
    "phi-4": (14_659_507_200, 0),
    "pythia-12b": (11_846_072_320, 0),
    "qwen2-57b-a14b": (57_408_658_944, 0),
    "qwen2.5-72b": (72_706_203_648, 0),
    "qwen3-235b-a22b": (235_093_634_560, 0),
    "qwen3-30b-a3b": (30_532_122_624, 0),
    "qwen3-32b": (32_762_123_264, 0),
    "roberta-large": (355_412_057, 0),
    "smollm3-3b": (3_075_098_624, 0),
    "starcoder2-15b": (15_957_889_024, 0),
    "xlm-r-large": (560_142_482, 0),
}


class PublishedSizes(ProgramTest):
    def test_parameters_are_those_of_the_published_models(self):
        for name, (parameters, biases) in PARAMETERS.items():
            with self.subTest(name):
                self.trifold("plan", "--config", CONFIGS / f"{name}.cfg", "--make-vocab-size-divisible-by", 1, "--json", "plan.json")
                found = json.loads((self.folder / "plan.json").read_text())["parameters"]
                self.assertEqual(found, parameters + biases)

    def test_plans_fit_into_memory(self):
        for name in PARAMETERS:
            with self.subTest(name):
                path = CONFIGS / f"{name}.cfg"
                hardware = "a100-40gb" if "a100-40gb" in path.read_text() else "h100"
                out, _ = self.trifold("plan", "--config", path, "--hardware", hardware)
                self.assertIn("the plan fits", out)


if __name__ == "__main__":
    unittest.main()
