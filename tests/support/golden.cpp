#include "support/golden.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "support/test_data.h"

namespace trifold::test {

// Found by the JSON library through its argument, so not in the namespace without a name.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GoldenGptConfig, num_layers, num_attention_heads, hidden_size,
                                   ffn_hidden_size, seq_length, max_position_embeddings, vocab_size,
                                   padded_vocab_size, norm_epsilon, micro_batch_size, global_batch_size,
                                   train_iters, lr, min_lr, lr_decay_iters, lr_warmup_iters, lr_warmup_init,
                                   weight_decay, clip_grad, adam_beta1, adam_beta2, adam_eps)

namespace {

using Json = nlohmann::json;

Json load(const std::string& name) {
  const std::string path = test_data() + "/golden/" + name;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open the golden file " + path);
  return Json::parse(file);
}

// The hash that gpt_torch.json describes under "initial_value".
uint32_t mix(uint32_t h) {
  h += 0x9e3779b9U;
  h = (h ^ (h >> 16)) * 0x85ebca6bU;
  h = (h ^ (h >> 13)) * 0xc2b2ae35U;
  return h ^ (h >> 16);
}

// Computes the initial value of parameter `place` of the list; its checksums in the file guard the formula.
std::vector<double> initial_value(const Json& entry, uint32_t place, size_t count) {
  const double offset = entry.at("offset");
  const double scale = entry.at("scale");
  std::vector<double> values(count);
  double sum = 0;
  double sum_squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t word = mix(static_cast<uint32_t>(i) + 65536U * place);
    values[i] = offset + scale * ((word >> 16) / 65536.0 - 0.5);
    sum += values[i];
    sum_squares += values[i] * values[i];
  }
  if (std::abs(sum - entry.at("initial_sum").get<double>()) > 1e-9 ||
      std::abs(sum_squares - entry.at("initial_sum_squares").get<double>()) > 1e-9)
    throw std::runtime_error("the initial values of " + entry.at("name").get<std::string>() +
                             " do not have the checksums of the golden file");
  return values;
}

// Throws unless `values` fills `shape`.
void check_count(const std::string& name, const std::vector<int64_t>& shape,
                 const std::vector<double>& values) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  if (count != static_cast<int64_t>(values.size()))
    throw std::runtime_error("golden tensor " + name + " has " + std::to_string(values.size()) +
                             " values; its shape needs " + std::to_string(count));
}

GoldenParameter parameter_of(const Json& entry, uint32_t place) {
  GoldenParameter parameter{.name = entry.at("name"),
                            .shape = entry.at("shape"),
                            .decayed = entry.at("decayed"),
                            .initial = {},
                            .gradient = entry.at("gradient"),
                            .final_sum = entry.at("final_sum"),
                            .final_sum_squares = entry.at("final_sum_squares")};
  check_count(parameter.name, parameter.shape, parameter.gradient);
  parameter.initial = initial_value(entry, place, parameter.gradient.size());
  return parameter;
}

}  // namespace

const GoldenParameter& GoldenGpt::parameter(const std::string& name) const {
  for (const GoldenParameter& entry : parameters)
    if (entry.name == name) return entry;
  throw std::out_of_range("the golden GPT has no parameter " + name);
}

namespace {

GoldenPairs pairs_of(const Json& file) {
  GoldenPairs pairs;
  pairs.loss = {value_named<PairLossKind>(file.at("loss").get<std::string>()).value(), file.at("beta"),
                file.at("label_smoothing")};
  pairs.reference = file.at("reference");
  pairs.rewards = file.at("rewards");
  return pairs;
}

}  // namespace

GoldenGpt load_golden_gpt(const std::string& name) {
  const Json file = load(name);
  GoldenGpt gpt{.config = file.at("config"),
                .pairs = {},
                .parameters = {},
                .tokens = file.at("tokens"),
                .losses = file.at("losses"),
                .grad_norms = file.at("grad_norms"),
                .learning_rates = file.at("learning_rates")};
  if (const Json& config = file.at("config"); config.contains("num_query_groups")) {
    gpt.config.num_query_groups = config.at("num_query_groups").get<int64_t>();
    gpt.config.kv_channels = config.at("kv_channels");
    gpt.config.rotary_base = config.at("rotary_base");
    gpt.config.rotary_percent = config.at("rotary_percent");
    gpt.config.qk_layernorm = config.at("qk_layernorm");
    gpt.config.rope_scaling_factor = config.at("rope_scaling_factor");
  }
  if (file.contains("rewards")) gpt.pairs = pairs_of(file);
  gpt.config.bert = file.at("config").value("model_type", "gpt") == "bert";
  gpt.config.bert_head = value_named<HeadKind>(file.at("config").value("bert_head", "pretraining")).value();
  for (const Json& entry : file.at("parameters"))
    gpt.parameters.push_back(parameter_of(entry, static_cast<uint32_t>(gpt.parameters.size())));
  return gpt;
}

std::map<std::string, GoldenCase> load_golden_layers() {
  const Json file = load("layers_torch.json");
  std::map<std::string, GoldenCase> cases;
  for (const auto& [name, tensors] : file.at("cases").items())
    for (const Json& entry : tensors) {
      GoldenTensor tensor{.shape = entry.at("shape"), .values = entry.at("values")};
      check_count(name, tensor.shape, tensor.values);
      cases[name][entry.at("name")] = std::move(tensor);
    }
  return cases;
}

std::map<std::string, GoldenMatrix> load_golden_matrices() {
  const Json file = load("muon_torch.json");
  std::map<std::string, GoldenMatrix> matrices;
  for (const auto& [name, entry] : file.at("matrices").items())
    matrices[name] = {.shape = entry.at("shape"),
                      .weight = entry.at("weight"),
                      .gradients = entry.at("gradients"),
                      .results = entry.at("results")};
  return matrices;
}

GoldenGpt load_golden_muon(const std::string& model) {
  GoldenGpt golden = load_golden_gpt(model + "_torch.json");
  const Json file = load("muon_torch.json");
  const Json& run = file.at("runs").at(model);
  golden.losses = run.at("losses").get<std::vector<double>>();
  golden.grad_norms = run.at("grad_norms").get<std::vector<double>>();
  for (GoldenParameter& parameter : golden.parameters) {
    parameter.gradient.clear();
    parameter.final_sum_squares = run.at("final_sum_squares").at(parameter.name);
  }
  return golden;
}

std::vector<GoldenRule> load_golden_optimizers() {
  const Json file = load("optimizers_torch.json");
  const auto size = file.at("size").get<size_t>();
  const size_t all = file.at("steps").get<size_t>() * size;
  std::vector<GoldenRule> rules;
  for (const Json& entry : file.at("rules")) {
    GoldenRule rule{.name = entry.at("name"), .constants = {}, .tensors = {}};
    for (const auto& [name, value] : entry.items())
      if (value.is_number()) rule.constants[name] = value;
    for (const Json& tensor : entry.at("tensors")) {
      rule.tensors.push_back({.name = tensor.at("name"),
                              .weight_decay = tensor.at("weight_decay"),
                              .start = tensor.at("start"),
                              .gradient = tensor.at("gradient"),
                              .after = tensor.at("after")});
      const GoldenUpdates& updates = rule.tensors.back();
      if (updates.start.size() != size || updates.gradient.size() != all || updates.after.size() != all)
        throw std::runtime_error("a tensor of " + rule.name + " has not as many numbers as the file says");
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace trifold::test
