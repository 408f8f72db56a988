#include <fmt/core.h>

#include <string>
#include <vector>

#include "launch/commands.h"
#include "models/folders/open_model.h"
#include "run/ranks.h"
#include "train/checkpoint_model.h"
#include "train/sampling/continuation.h"

namespace trifold::launch {

namespace {

void show(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// Prints one continuation of the prompt as it is generated.
void print_sample(Sampler& sampler, const Tokenizer& tokenizer, const GenerateConfig& config,
                  int64_t sample) {
  const Drawing drawing{{config.temperature, config.top_k, config.top_p},
                        config.seed,
                        static_cast<uint64_t>(sample * config.max_new_tokens),
                        config.max_new_tokens};
  continue_text(sampler, tokenizer, config.prompt, drawing, [](std::string_view piece) {
    show(piece);
    return true;
  });
  fmt::print("\n");
}

}  // namespace

int run(const GenerateConfig& config, Ranks& ranks) {
  const CheckpointModel checkpoint = describe_checkpoint(open_model(config.load));
  expect_text_model(checkpoint);
  DataConfig data;
  data.tokenizer_type = config.tokenizer_type;
  data.tokenizer_model = config.tokenizer_model;
  data.tokenizer_merges = config.tokenizer_merges;
  data.eod_token = config.eod_token;
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(checkpoint, data);
  MeshConfig mesh;
  mesh.data_parallel_size = 1;
  mesh.threads_per_rank = config.threads_per_rank;
  ranks.run(mesh, [&](Communicator& world) {
    Replica replica(world, mesh, checkpoint.model, checkpoint.dtype, 0);
    load_weights(replica, checkpoint.directory);
    Sampler sampler(replica, checkpoint.model, tokenizer->vocab_size());
    for (int64_t sample = 0; sample < config.num_samples; ++sample) {
      if (config.num_samples > 1) fmt::print("{}--- sample {} ---\n", sample == 0 ? "" : "\n", sample + 1);
      print_sample(sampler, *tokenizer, config, sample);
    }
  });
  return kDone;
}

}  // namespace trifold::launch
