#include <fmt/core.h>

#include <string>
#include <vector>

#include "launch/commands.h"
#include "launch/sampled_model.h"
#include "train/sampling/continuation.h"

namespace trifold::launch {

namespace {

void show(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// Prints one continuation of the prompt as it is generated.
void print_sample(const SampledModel& model, const GenerateConfig& config, int64_t sample) {
  const Drawing drawing{{config.temperature, config.top_k, config.top_p},
                        config.seed,
                        static_cast<uint64_t>(sample * config.max_new_tokens),
                        config.max_new_tokens};
  continue_text(model.sampler, model.tokenizer, config.prompt, drawing, [](std::string_view piece) {
    show(piece);
    return true;
  });
  fmt::print("\n");
}

}  // namespace

int run(const GenerateConfig& config, Ranks& ranks) {
  with_sampled_model(
      config.load, config.data, config.threads_per_rank, ranks,
      [&](const SampledModel& model) {
        for (int64_t sample = 0; sample < config.num_samples; ++sample) {
          if (config.num_samples > 1)
            fmt::print("{}--- sample {} ---\n", sample == 0 ? "" : "\n", sample + 1);
          print_sample(model, config, sample);
        }
      },
      config.load_ema);
  return kDone;
}

}  // namespace trifold::launch
