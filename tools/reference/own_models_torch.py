"""Nine small models as torch.export.save writes them, for the reader of such files (src/graph/pt2).

  pip install torch transformers
  own_models_torch.py FOLDER [NAME...]   writes FOLDER/NAME.pt2 of all models, or of those named
  own_models_torch.py test-data          writes tests/data/own_models: the two that the tests read

Weights are random. Each model is wrapped so that forward(*arrays) returns two scalars: the sum of the losses and the
number of elements that the sum is over, so that a mean over micro-batches of different counts can be exact. The graph
is saved before any decomposition, as a training graph (model.train()), with a dynamic batch: dimension 0 of all inputs.
"""

import io
import pathlib
import re
import sys
import zipfile

import torch
from torch import nn
from torch.nn import functional as F

TEST_DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "own_models"
TESTED = ("gpt2", "mlp")
FOLDER = re.compile(rb'File \\"[^"]*/(?:site-packages|reference)/')  # of a call, in JSON
VOCABULARY = 64
LENGTH = 8
BATCH = 3


def token_losses(logits, labels):
    """The sum of the cross entropies of all labels but -100, and the number of these labels."""
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=-100, reduction="sum")
    return loss, (labels != -100).sum()


class NextToken(nn.Module):
    """A decoder: the label of a position is the token at the next one."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        return token_losses(self.model(input_ids=input_ids, use_cache=False).logits, labels)


class MaskedToken(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, labels):
        return token_losses(self.model(input_ids=input_ids, attention_mask=attention_mask).logits, labels)


class Translation(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, decoder_input_ids, labels):
        output = self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False)
        return token_losses(output.logits, labels)


class DecoderOfStates(nn.Module):
    """Whisper's decoder alone: the encoder's output is an input."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, encoder_states, decoder_input_ids, labels):
        output = self.model(encoder_outputs=(encoder_states,), decoder_input_ids=decoder_input_ids, use_cache=False)
        return token_losses(output.logits, labels)


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm_tokens, self.norm_channels = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1),
                                      nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.norm_tokens(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm_channels(x))


class Mixer(nn.Module):
    """An MLP-Mixer of patches that are given as rows of numbers."""

    def __init__(self, patches=9, inputs=12, width=16, classes=10):
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.Sequential(MixerBlock(patches, width), MixerBlock(patches, width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, patches, labels):
        return token_losses(self.head(self.norm(self.blocks(self.embed(patches))).mean(1)), labels)


class Mlp(nn.Module):
    """Two hidden layers; the first also counts its calls, a buffer that forward changes in place."""

    def __init__(self, inputs=6, width=8, classes=4):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, classes)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, features, labels):
        self.calls.add_(1)
        hidden = torch.relu(self.first(features))
        total = hidden.clone()
        total += F.dropout(torch.tanh(self.second(hidden)), 0.1)
        return token_losses(self.last(total), labels)


def tokens(length=LENGTH):
    return torch.randint(3, VOCABULARY, (BATCH, length))


def mask():
    return torch.ones(BATCH, LENGTH, dtype=torch.int64)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2, bos_token_id=1,
                        eos_token_id=2)
    return NextToken(GPT2LMHeadModel(config)), (tokens(), tokens())


def bert():
    from transformers import BertConfig, BertForMaskedLM
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=LENGTH)
    return MaskedToken(BertForMaskedLM(config)), (tokens(), mask(), tokens())


def roberta():
    from transformers import RobertaConfig, RobertaForMaskedLM
    config = RobertaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                           intermediate_size=32, max_position_embeddings=LENGTH + 2)
    return MaskedToken(RobertaForMaskedLM(config)), (tokens(), mask(), tokens())


def distilbert():
    from transformers import DistilBertConfig, DistilBertForMaskedLM
    config = DistilBertConfig(vocab_size=VOCABULARY, dim=16, n_layers=2, n_heads=2, hidden_dim=32,
                              max_position_embeddings=LENGTH)
    return MaskedToken(DistilBertForMaskedLM(config)), (tokens(), mask(), tokens())


def t5():
    from transformers import T5Config, T5ForConditionalGeneration
    config = T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    return Translation(T5ForConditionalGeneration(config)), (tokens(), tokens(6), tokens(6))


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, intermediate_size=32, max_position_embeddings=LENGTH)
    return NextToken(LlamaForCausalLM(config)), (tokens(), tokens())


def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    config = WhisperConfig(vocab_size=VOCABULARY, d_model=16, encoder_layers=1, decoder_layers=2,
                           encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
                           max_source_positions=10, max_target_positions=LENGTH, num_mel_bins=8, pad_token_id=0,
                           bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
                           begin_suppress_tokens=None)
    model = WhisperForConditionalGeneration(config)
    model.model.encoder = None  # its parameters would be in the file without being used
    return DecoderOfStates(model), (torch.randn(BATCH, 10, 16), tokens(), tokens())


def mixer():
    return Mixer(), (torch.randn(BATCH, 9, 12), torch.randint(0, 10, (BATCH,)))


def mlp():
    return Mlp(), (torch.randn(BATCH, 6), torch.randint(0, 4, (BATCH,)))


MODELS = {make.__name__: make for make in (gpt2, bert, roberta, distilbert, t5, llama, whisper, mixer, mlp)}


def exported(model, arrays):
    batch = {0: torch.export.Dim.AUTO}
    return torch.export.export(model, arrays, dynamic_shapes=tuple(batch for _ in arrays), strict=False)


def export(name, path):
    torch.manual_seed(7)
    model, arrays = MODELS[name]()
    model.train()
    torch.export.save(exported(model, arrays), path)


def shorten(path):
    """Leaves out the pickled example inputs, which nothing here reads, and folders of this machine; deflates the JSON."""
    content = io.BytesIO()
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(content, "w") as smaller:
        for entry in whole.infolist():
            if "/data/sample_inputs/" in entry.filename:
                continue
            data, kind = whole.read(entry), zipfile.ZIP_STORED
            if entry.filename.endswith(".json"):
                data, kind = FOLDER.sub(b'File \\\\"/', data), zipfile.ZIP_DEFLATED
            smaller.writestr(zipfile.ZipInfo(entry.filename), data, kind)
    pathlib.Path(path).write_bytes(content.getvalue())


def main(arguments):
    if arguments == ["test-data"]:
        TEST_DATA.mkdir(parents=True, exist_ok=True)
        for name in TESTED:
            export(name, TEST_DATA / f"{name}.pt2")
            shorten(TEST_DATA / f"{name}.pt2")
    elif arguments and set(arguments[1:]) <= set(MODELS):
        folder = pathlib.Path(arguments[0])
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments[1:] or MODELS:
            export(name, folder / f"{name}.pt2")
            print(folder / f"{name}.pt2", flush=True)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
