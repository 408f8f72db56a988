// The golden files of tests/golden as structs: results of PyTorch, with which tests compare Trifold's.
//
//   gpt_torch.json     ten training steps of a small GPT   (tools/reference/gpt_torch.py writes it)
//   llama_torch.json, llama_scaled_torch.json  ten training steps of two Llamas  (tools/reference/llama_torch.py)
//   bert_torch.json    ten training steps of a BERT        (tools/reference/bert_torch.py)
//   dpo_torch.json, dpo_ipo_torch.json  ten steps with losses of pairs  (tools/reference/dpo_torch.py)
//   layers_torch.json  single operations                   (tools/reference/layers_torch.py writes it)
//   optimizers_torch.json  twenty steps of update rules    (tools/reference/optimizers_torch.py writes it)
//   muon_torch.json    three steps of matrices, and ten of two models  (tools/reference/muon_torch.py writes it)
//
// Everything is f64 and was computed in f64; the values read here are exactly PyTorch's doubles.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/model_config.h"

namespace trifold::test {

// One trainable tensor of the golden GPT, under Trifold's parameter name.
struct GoldenParameter {
  std::string name;
  std::vector<int64_t> shape;    // global
  bool decayed = false;          // takes part in weight decay
  std::vector<double> initial;   // row-major, exact in f32 too
  std::vector<double> gradient;  // gradient of the first step's loss, before clipping
  double final_sum = 0;          // sum of the elements after the last step
  double final_sum_squares = 0;
};

struct GoldenGptConfig {
  int64_t num_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;
  int64_t seq_length = 0;
  int64_t max_position_embeddings = 0;
  int64_t vocab_size = 0;         // ids that exist
  int64_t padded_vocab_size = 0;  // rows of embedding.tokens.weight
  double norm_epsilon = 0;
  bool bert = false;
  HeadKind bert_head = HeadKind::Pretraining;  // head of a BERT
  // Fields of a Llama; not set for a GPT.
  std::optional<int64_t> num_query_groups;
  int64_t kv_channels = 0;
  double rotary_base = 0;
  double rotary_percent = 0;
  bool qk_layernorm = false;
  double rope_scaling_factor = 1;  // above 1: stretched as in Llama 3.1
  int64_t micro_batch_size = 0;
  int64_t global_batch_size = 0;
  int64_t train_iters = 0;
  double lr = 0;
  double min_lr = 0;
  int64_t lr_decay_iters = 0;  // the decay style is cosine
  int64_t lr_warmup_iters = 0;
  double lr_warmup_init = 0;
  double weight_decay = 0;
  double clip_grad = 0;  // the gradient is scaled by min(1, clip_grad / (norm + 1e-6))
  double adam_beta1 = 0;
  double adam_beta2 = 0;
  double adam_eps = 0;
};

// What dpo_torch.py adds: the loss of pairs of samples, [step][sample] log-likelihoods of the reference model, and the
// mean rewards of the steps.
struct GoldenPairs {
  PairLossConfig loss;
  std::vector<std::vector<double>> reference;
  std::map<std::string, std::vector<double>> rewards;  // chosen, rejected, margin, accuracy
};

struct GoldenGpt {
  GoldenGptConfig config;
  std::optional<GoldenPairs> pairs;
  std::vector<GoldenParameter> parameters;
  // tokens[step][sample]: seq_length + 1 ids; token t + 1 is the label of token t. Samples are in global
  // batch order (for a BERT in the format of bert_torch.py, for pairs in that of dpo_torch.py), so micro-batch m of one
  // rank is samples [m * micro_batch_size, (m + 1) * micro_batch_size).
  std::vector<std::vector<std::vector<int32_t>>> tokens;
  std::vector<double> losses;      // per step, before its update: mean over all tokens of the global batch
  std::vector<double> grad_norms;  // per step, before clipping, over all parameters
  std::vector<double> learning_rates;  // per step, as used by its update

  // Throws std::out_of_range with the name if there is no such parameter.
  const GoldenParameter& parameter(const std::string& name) const;
};

struct GoldenTensor {
  std::vector<int64_t> shape;  // empty for a scalar
  std::vector<double> values;  // row-major

  double number() const { return values.at(0); }
};

// Named tensors of one operation; a missing name is std::out_of_range from `at`.
using GoldenCase = std::map<std::string, GoldenTensor>;

// One tensor under an update rule.
struct GoldenUpdates {
  std::string name;
  double weight_decay = 0;
  std::vector<double> start;     // [size]
  std::vector<double> gradient;  // [steps, size]
  std::vector<double> after;     // [steps, size]: the weights after each step
};

// Some steps of one update rule: "adam", "lamb", "sgd", "sgd_plain" (no momentum), "adagrad", "lars".
struct GoldenRule {
  std::string name;
  std::map<std::string, double> constants;  // "lr", "adam_beta1" ...
  std::vector<GoldenUpdates> tensors;
};

// Three steps of Muon for one matrix, with the rate 0.05 and the decay 0.1.
struct GoldenMatrix {
  std::vector<int64_t> shape;
  std::vector<double> weight;
  std::vector<std::vector<double>> gradients;  // gradients of each step
  std::map<std::string, std::vector<double>>
      results;  // the weights at the end, by "<scale>" or "<scale> nesterov"
};

// All throw std::runtime_error, or nlohmann's errors, if the file is missing or has an unexpected format.
GoldenGpt load_golden_gpt(const std::string& name = "gpt_torch.json");
std::map<std::string, GoldenCase> load_golden_layers();
std::vector<GoldenRule> load_golden_optimizers();
std::map<std::string, GoldenMatrix> load_golden_matrices();
// A golden GPT whose losses, norms and final sums come from a run with Muon: "gpt" or "llama". It has no gradients,
// because directions overwrite them.
GoldenGpt load_golden_muon(const std::string& model);

}  // namespace trifold::test
