#include "launch/block_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/bytes_text.h"
#include "core/printable.h"
#include "graph/lower/cut.h"
#include "launch/stage_lines.h"

namespace trifold::launch {

namespace {

// "model.transformer.wte, model.transformer.h.0", in the order of execution: layers of a list, or else innermost modules.
std::string modules_text(const graph::LoweredGraph& lowered, const graph::BlockPlan& block) {
  std::vector<std::string> groups;
  for (int i = block.begin; i < block.end; ++i) {
    const std::string& path = lowered.steps[static_cast<size_t>(i)].node.origin.module;
    const std::string numbered = graph::numbered_module(path);
    const std::string group = path.empty() ? "(outermost)" : printable(numbered.empty() ? path : numbered);
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  std::string text;
  for (const std::string& group : groups) text += (text.empty() ? "" : ", ") + group;
  return text;
}

}  // namespace

std::string block_lines(const graph::LoweredGraph& lowered, const ModelCosts& costs) {
  std::string text = fmt::format(
      "blocks: {}, which stages consist of; FLOP and bytes for one sample, in f32\n"
      "  {:>5}  {:>11}  {:>11}  {:>12}  {:>13}  {:>12}  {}\n",
      costs.blocks.size(), "block", "parameters", "passed on", "FLOP forward", "with backward", "bytes kept",
      "modules");
  for (size_t i = 0; i < costs.blocks.size(); ++i) {
    const BlockSample& block = costs.blocks[i];
    text +=
        fmt::format("  {:>5}  {:>11}  {:>11}  {:>12}  {:>13}  {:>12}  {}\n", i, block.parameters,
                    block.passed_on > 0 ? fmt::format("{}", block.passed_on) : "-", count_text(block.forward),
                    count_text(block.step), bytes_text(block.kept), modules_text(lowered, lowered.blocks[i]));
  }
  text += fmt::format("a step of one sample: {} FLOP, forward and backward\n", count_text(costs.step));
  text += fmt::format(
      "memory of one rank with AdamW in f32: weights {}, gradients {}, optimizer {}, activations {}, and {} more for "
      "each further sample of a micro-batch\n",
      bytes_text(costs.memory.parameters), bytes_text(costs.memory.gradients),
      bytes_text(costs.memory.optimizer), bytes_text(costs.memory.predicted_activations),
      bytes_text(costs.further_sample));
  return text;
}

}  // namespace trifold::launch
