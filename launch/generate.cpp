#include <fmt/core.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "data/corpus.h"
#include "launch/commands.h"
#include "train/checkpoint_model.h"
#include "train/ranks.h"
#include "train/sampler.h"

namespace trifold::launch {

namespace {

std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointModel& checkpoint) {
  if (!checkpoint.data.tokenizer_type)
    bad_input("{} was trained on token files without a tokenizer, so its tokens cannot be shown as text",
              checkpoint.directory);
  return make_tokenizer(*checkpoint.data.tokenizer_type, checkpoint.data.tokenizer_model);
}

// Prints one continuation of the prompt as it comes.
void print_sample(Sampler& sampler, const Tokenizer& tokenizer, const GenerateConfig& config,
                  int64_t sample) {
  std::vector<int32_t> tokens;
  tokenizer.encode(config.prompt, tokens);
  size_t shown = tokens.size();
  if (tokens.empty())
    tokens = {tokenizer.eod().value_or('\n')};  // something the model has seen texts begin after
  fmt::print("{}", config.prompt);
  const SamplingRule rule{config.temperature, config.top_k, config.top_p};
  std::string text = tokenizer.decode(std::span(tokens).first(shown));
  for (int64_t i = 0; i < config.max_new_tokens; ++i) {
    const auto position = static_cast<uint64_t>(sample * config.max_new_tokens + i);
    const int32_t token = sampler.next(tokens, rule, config.seed, position);
    if (tokenizer.eod() && token == *tokenizer.eod()) break;
    tokens.push_back(token);
    // Decoding the whole text again keeps spaces right for tokenizers whose pieces depend on their
    // neighbours.
    const size_t hidden = shown == 0 && config.prompt.empty() ? 1 : 0;
    const std::string longer = tokenizer.decode(std::span(tokens).subspan(hidden));
    if (longer.size() > text.size()) fmt::print("{}", longer.substr(text.size()));
    std::fflush(stdout);
    text = longer;
  }
  fmt::print("\n");
}

}  // namespace

int run(const GenerateConfig& config, Ranks& ranks) {
  const CheckpointModel checkpoint = describe_checkpoint(config.load);
  if (is_bert(checkpoint.model))
    bad_input(
        "{} is a BERT, which guesses masked tokens and cannot go on with a text: give a checkpoint of a GPT",
        checkpoint.directory);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(checkpoint);
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
