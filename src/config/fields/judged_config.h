// The configurations of the commands that judge a trained language model by log-likelihoods. As in config.h, field names
// are the option names with underscores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/fields/config.h"
#include "core/dtype.h"

namespace trifold {

// `trifold evaluate --task`: questions and texts by log-likelihood. The model and its tokenizer are the checkpoint's.
struct EvaluateTaskConfig {
  std::string load;                   // required
  bool load_ema = false;              // the exponential average of the weights, from a run with --ema
  std::string task;                   // required: file of JSON lines
  DataConfig data;                    // only the tokenizer's fields are used
  int64_t micro_batch_size = 4;       // sequences, each with as many requests as fit
  std::optional<int64_t> seq_length;  // the most tokens that the model is given; the checkpoint's
  std::optional<DType> dtype;         // computed in; by default that of the weights
  MeshConfig mesh;
  std::optional<std::string> log_json;
  std::optional<std::string> log_likelihoods;  // file for the result of each request
};

// `trifold serve`: completions and log-probabilities over HTTP, for programs on this host.
struct ServeConfig {
  std::string load;            // required
  bool load_ema = false;       // the exponential average of the weights, from a run with --ema
  DataConfig data;             // only the tokenizer's fields are used
  int port = 8000;             // 0: a free one
  std::optional<DType> dtype;  // computed in; by default that of the weights
  int tensor_model_parallel_size = 1;
  std::optional<int> threads_per_rank;  // all cores of the host
};

}  // namespace trifold
