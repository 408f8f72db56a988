#include "launch/stage_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes_text.h"

namespace trifold::launch {

namespace {

// The blocks of the head.
struct HeadBlocks {
  int begin, end;
};

HeadBlocks head_of(const std::vector<StageReport>& stages) {
  const int end = stages.back().blocks.end;
  int count = 0;
  for (const StageReport& stage : stages) count += stage.heads;
  return {end - count, end};
}

// "head", or "head 1/4 to 3/4"
std::string head_text(const StageReport& stage, const HeadBlocks& head) {
  const int parts = head.end - head.begin;
  if (parts == 1) return "head";
  const int last = stage.blocks.end - head.begin;
  const int first = last - stage.heads + 1;
  return first == last ? fmt::format("head {}/{}", last, parts)
                       : fmt::format("head {}/{} to {}/{}", first, parts, last, parts);
}

// "embedding, layers 1 to 3", "layers 4 to 6, head"
std::string blocks_text(const StageReport& stage, const HeadBlocks& head, int lookups) {
  if (stage.lookups > 0)
    return fmt::format("tokens of {} part{} of {}", stage.lookups, stage.lookups == 1 ? "" : "s",
                       head.end - head.begin);
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (stage.blocks.begin == lookups) add("embedding");
  const int first_layer = std::max(stage.blocks.begin - lookups, 1);
  if (stage.layers == 1) add(fmt::format("layer {}", first_layer));
  if (stage.layers > 1) add(fmt::format("layers {} to {}", first_layer, first_layer + stage.layers - 1));
  if (stage.heads > 0) add(head_text(stage, head));
  return text;
}

}  // namespace

std::vector<std::string> stage_lines(const std::vector<StageReport>& stages, int pipeline_ranks) {
  const HeadBlocks head = head_of(stages);
  const auto lookups = static_cast<int>(std::count_if(
      stages.begin(), stages.end(), [](const StageReport& stage) { return stage.lookups > 0; }));
  const auto others = static_cast<int>(stages.size()) - lookups;
  const auto alike = [&](const StageReport& a, const StageReport& b) {
    return a.blocks.begin > lookups && b.blocks.end <= head.begin && a.layers == b.layers &&
           a.parameters == b.parameters;
  };
  std::vector<std::string> lines{fmt::format("stages      {}, {} a rank", others, others / pipeline_ranks)};
  if (lookups > 0) lines.back() += fmt::format(", and {} that look up tokens", lookups);
  for (size_t begin = 0; begin < stages.size();) {
    size_t end = begin + 1;
    while (end < stages.size() && alike(stages[begin], stages[end])) ++end;
    const bool run = end - begin > 2;
    if (!run) end = begin + 1;
    const StageReport& stage = stages[begin];
    const std::string number = run ? fmt::format("{} to {}", begin, end - 1) : fmt::format("{}", begin);
    const std::string what = run ? fmt::format("{} layer{} each", stage.layers, stage.layers == 1 ? "" : "s")
                                 : fmt::format("rank {}: {}", stage.rank, blocks_text(stage, head, lookups));
    lines.push_back(fmt::format("  {:>9}  {:<38} {:>9} parameters  {:5.2f} % of the cost", number, what,
                                count_text(static_cast<double>(stage.parameters)), 100 * stage.cost_share));
    begin = end;
  }
  return lines;
}

}  // namespace trifold::launch
