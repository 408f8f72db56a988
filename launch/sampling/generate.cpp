#include <fmt/core.h>

#include <string>

#include "core/printable.h"
#include "launch/commands.h"
#include "launch/sampling/chat.h"
#include "launch/sampling/sampled_model.h"
#include "launch/say.h"
#include "train/sampling/chat_prompts.h"
#include "train/sampling/continuation.h"

namespace trifold::launch {

namespace {

void show(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// Prints one continuation of the prompt as it is generated.
void print_sample(const SampledModel& model, const GenerateConfig& config, int64_t sample) {
  Drawing drawing = drawing_of(config);
  drawing.end_tokens = end_tokens_of(model.checkpoint);
  drawing.first = static_cast<uint64_t>(sample * config.max_new_tokens);
  model.sampler.forget();  // so that a text does not depend on those before it
  continue_text(model.sampler, model.tokenizer, config.prompt, drawing, [](std::string_view piece) {
    show(piece);
    return true;
  });
  fmt::print("\n");
}

}  // namespace

int run(const GenerateConfig& config, Ranks& ranks) {
  const SampledPlace place{config.tensor_model_parallel_size,
                           config.threads_per_rank,
                           config.no_key_value_cache ? Caching::None : Caching::KeysAndValues,
                           {},
                           config.load_ema};
  with_sampled_model(config.load, config.data, place, ranks, [&](const SampledModel& model) {
    if (config.chat) return talk(config, model);
    const CheckpointModel& from = model.checkpoint;
    say(stderr, fmt::format("model       {}, step {}, {} tokens at most; {}\n", printable(from.directory),
                            from.step, model.sampler.window(), cache_line(model.sampler)));
    for (int64_t sample = 0; sample < config.num_samples; ++sample) {
      if (config.num_samples > 1) fmt::print("{}--- sample {} ---\n", sample == 0 ? "" : "\n", sample + 1);
      print_sample(model, config, sample);
    }
  });
  return kDone;
}

}  // namespace trifold::launch
