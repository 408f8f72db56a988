"""The state of a checkpoint, written with right checksums, that no run writes: status 2 and the field's name."""

import json
import unittest
import zlib

from program import ProgramTest


class StoredState(ProgramTest):
    EXPERTS = ["--num-experts", 4, "--disable-bias-linear", "--moe-router-load-balancing-type", "global_aux_loss", "--moe-aux-loss-coeff", 0.01]

    def resume_after(self, change):
        """The manifest with `change` made to its state, and the options of a run that continues from it."""
        path = self.folder / "run" / "step_0000000002" / "manifest.json"
        manifest = json.loads(self.good)
        manifest.pop("crc32")
        change(manifest["state"])
        text = json.dumps(manifest)[:-1] + ',\n"crc32": "'
        path.write_text(text + f'{zlib.crc32(text.encode()):08x}"\n}}\n')
        return [*self.EXPERTS, "--train-iters", 3, "--load", "run"]

    def test_each_field_is_named(self):
        self.pretrain(*self.EXPERTS, "--train-iters", 2, "--save", "run")
        self.good = (self.folder / "run" / "step_0000000002" / "manifest.json").read_text()
        self.pretrain(*self.resume_after(lambda state: None))

        def more(state):
            state["expert_choices"][1][0] += 1

        for change, words in ((lambda state: state.pop("expert_choices"), "state: expert_choices is missing"),
                              (lambda state: state["expert_choices"].pop(), "a list for each of 2 layers is needed"),
                              (more, "expert_choices[1] is a list; a sum of "),
                              (lambda state: state["expert_choices"][0].__setitem__(0, -1), "expert_choices[0][0] is -1"),
                              (lambda state: state["best"].update(last_step=9), "best.last_step is 9; a whole number from 0 to 2 is needed"),
                              (lambda state: state.update(skipped_steps=7), "skipped_steps is 7"),
                              (lambda state: state.update(training_data=[{"name": 3}]), "record of the training data: [0].name is 3; a string")):
            with self.subTest(words=words):
                _, message = self.pretrain(*self.resume_after(change), status=2)
                self.assertIn(words, message)
                self.assertNotIn("json.exception", message)


if __name__ == "__main__":
    unittest.main()
