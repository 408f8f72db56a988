#include "config/subjects/tuning/adapters.h"

#include <algorithm>

#include "config/fields/adapter_targets.h"
#include "config/options/bounds.h"

namespace trifold {

void add_adapters(OptionTable& table, AdapterConfig& adapters) {
  table.group("Adapters");
  table
      .add("lora-rank", &adapters.lora_rank,
           "Train low-rank adapters of this rank (LoRA) in linear layers, and freeze all weights of --load. "
           "Checkpoints then hold the adapters, and the path of the frozen weights.")
      .range(1, 1 << 14)
      .absent("no adapters: all weights are trained")
      .excludes({"tiled-mlp", AtLeast{2}}, "whose layers have no adapters", "leave out --tiled-mlp")
      .excludes("moe-use-upcycling",
                "because copies of a network have nothing to learn while they are frozen",
                "leave one of them out");
  table
      .add("lora-alpha", &adapters.lora_alpha,
           "Scale of the adapters: their products are multiplied by alpha / rank (see --lora-scaling).")
      .positive()
      .absent("--lora-rank, so that the factor is 1")
      .only_with("lora-rank");
  table.add("lora-dropout", &adapters.lora_dropout, "Dropout of the adapters' inputs.")
      .fraction()
      .only_with("lora-rank");
  table
      .add(
          "lora-targets", &adapters.lora_targets,
          "Layers with adapters, by name (query, key, value, attention.out, gate, mlp.up, mlp.down; qkv and gate_up for "
          "one adapter of packed layers; query_down, query_up, key_value_down and key_value_up of latent attention), by "
          "Hugging Face's name (q_proj, c_attn), or by a pattern "
          "such as 'block.[0-3].mlp.*'.")
      .takes("NAME ...")
      .absent("all linear layers of attention and of feed-forward networks other than experts")
      .only_with("lora-rank");
  table
      .add(
          "lora-scaling", &adapters.lora_scaling,
          "Factor of the adapters: alpha / rank, or with rs alpha / sqrt(rank), which keeps the size of updates "
          "over ranks (rsLoRA).")
      .only_with("lora-rank");
  table
      .add(
          "lora-init", &adapters.lora_init,
          "Initial values of the adapters' first factor: uniform numbers in +-1/sqrt(inputs) (kaiming), or normal "
          "numbers of standard deviation 1/rank (gaussian). The second factor begins as zeros.")
      .only_with("lora-rank");
  table
      .add(
          "quantize-base", &adapters.quantize_base,
          "Hold the frozen weights of linear layers and experts in 8 bits, or in 4 bits (NF4 of QLoRA), with a bf16 "
          "scale for each block of 64, and compute their values before each product. Embeddings, the output layer "
          "and norms keep the run's type.")
      .only_with("lora-rank");
  table
      .add(
          "dora", &adapters.dora,
          "Also train a magnitude of each output, by which the normalized rows of the adapted weight are scaled "
          "(DoRA).")
      .only_with("lora-rank");
}

void check_adapters(const ModelConfig& model, Problems& problems) {
  const AdapterConfig& adapters = model.adapters;
  if (!adapters.lora_rank || model.model ||
      !problems.sound({"lora-rank", "lora-targets", "num-layers", "num-attention-heads", "num-experts",
                       "moe-layer-freq", "num-query-groups"}))
    return;
  std::vector<LinearModules> layers;
  try {
    layers = linear_modules(model);
  } catch (const Error&) {
    return;  // a wrong --moe-layer-freq, which its own check reports
  }
  for (const std::string& pattern : adapters.lora_targets) {
    const bool found = std::any_of(layers.begin(), layers.end(), [&](const LinearModules& layer) {
      return names_module(pattern, layer.whole) ||
             std::any_of(layer.parts.begin(), layer.parts.end(),
                         [&](const std::string& part) { return names_module(pattern, part); });
    });
    if (!found)
      problems.about("lora-targets", "lora-rank")
          .wrong("--lora-targets {} names no linear layer of the model that can have adapters", pattern)
          .right("give names such as {} and {}", layers.front().parts.front(), layers.back().parts.back());
  }
  for (const LinearModules& layer : layers) {
    if (layer.parts.size() == 1) continue;
    const auto of_part = [&](const std::string& pattern) {
      return std::any_of(layer.parts.begin(), layer.parts.end(),
                         [&](const std::string& part) { return names_module(pattern, part); });
    };
    const auto& patterns = adapters.lora_targets;
    const auto part = std::find_if(patterns.begin(), patterns.end(), of_part);
    const auto whole = std::find_if(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
      return names_module(pattern, layer.whole) && !of_part(pattern);
    });
    if (part == patterns.end() || whole == patterns.end()) continue;
    problems.about("lora-targets", "lora-rank")
        .wrong("--lora-targets {} and {} name the same weight, {}, whole and in part", *whole, *part,
               layer.whole)
        .right("give one of them");
    return;
  }
}

void check_adapters_start(const PretrainConfig& config, Problems& problems) {
  if (!config.model.adapters.lora_rank || config.checkpoint.load) return;
  problems.about("lora-rank", "load")
      .wrong("--lora-rank {} freezes the weights of a trained model, but there is none",
             *config.model.adapters.lora_rank)
      .right("give --load, the folder of a checkpoint or of a Hugging Face model");
}

}  // namespace trifold
