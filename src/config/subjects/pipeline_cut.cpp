#include "config/subjects/pipeline_cut.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <string_view>

#include "config/options/problems.h"

namespace trifold {

namespace {

constexpr const char* kLayoutOption = "pipeline-model-parallel-layout";
constexpr const char* kFirstOption = "decoder-first-pipeline-num-layers";
constexpr const char* kLastOption = "decoder-last-pipeline-num-layers";
constexpr const char* kWriteLikeThis = "write it like Et|(tt|)*6t|L";
constexpr size_t kLongestLayout = 1 << 20;  // characters after repetition

// Reads a layout; `expand` gives its text without commas, parentheses and repetitions.
class LayoutReader {
 public:
  explicit LayoutReader(std::string_view text) : text_(text) {}

  // Empty `problem` on success.
  std::string expand(std::string& problem) {
    std::string all = sequence(0);
    if (problem_.empty() && at_ < text_.size()) fail("')' without '('");
    problem = problem_;
    return all;
  }

 private:
  static constexpr int kDeepest = 8;

  void fail(std::string why) {
    if (problem_.empty()) problem_ = fmt::format("at character {} ({})", at_ + 1, why);
    at_ = text_.size();
  }

  std::string sequence(int depth) {
    std::string all;
    while (problem_.empty() && at_ < text_.size() && text_[at_] != ')') {
      all += repeated(item(depth));
      if (all.size() > kLongestLayout) fail("it is longer than any pipeline");
    }
    return all;
  }

  std::string item(int depth) {
    const char letter = text_[at_];
    if (letter == '(') {
      if (depth == kDeepest) {
        fail("too many parentheses inside each other");
        return {};
      }
      ++at_;
      std::string inside = sequence(depth + 1);
      if (problem_.empty() && at_ == text_.size()) fail("a ')' is missing");
      ++at_;
      return inside;
    }
    if (std::string_view("EtL|,").find(letter) == std::string_view::npos) {
      fail(fmt::format("'{}' is none of E, t, L, |, (, ), * and commas", letter));
      return {};
    }
    ++at_;
    return letter == ',' ? std::string() : std::string(1, letter);
  }

  std::string repeated(const std::string& part) {
    if (!problem_.empty() || at_ >= text_.size() || text_[at_] != '*') return part;
    ++at_;
    size_t times = 0;
    const size_t begin = at_;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_)
      times = std::min(kLongestLayout + 1, 10 * times + static_cast<size_t>(text_[at_] - '0'));
    if (at_ == begin || times == 0) {
      fail("a number from 1 on is needed after '*'");
      return {};
    }
    if (part.size() * times > kLongestLayout) {
      fail("it is longer than any pipeline");
      return {};
    }
    std::string all;
    for (size_t i = 0; i < times; ++i) all += part;
    return all;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string problem_;
};

// Whether the text has one E, at its front, and one L for each part of the head, after all t.
bool is_in_order(const std::string& text, int head_parts) {
  const size_t last_layer = text.rfind('t');
  return !text.empty() && text.front() == 'E' && text.back() == 'L' &&
         std::count(text.begin(), text.end(), 'E') == 1 &&
         std::count(text.begin(), text.end(), 'L') == head_parts &&
         (last_layer == std::string::npos || last_layer < text.find('L'));
}

StageLayers from_layout(const std::string& layout, int head_parts) {
  StageLayers result;
  std::string unread;
  const std::string text = LayoutReader(layout).expand(unread);
  if (!unread.empty()) {
    result.problem = Problem{{kLayoutOption},
                             fmt::format("--{} {} cannot be read {}", kLayoutOption, layout, unread),
                             kWriteLikeThis};
    return result;
  }
  if (!is_in_order(text, head_parts)) {
    const std::string end = head_parts == 1
                                ? std::string("the one L (loss)")
                                : fmt::format("the {} L of --pipeline-vocab-parts (loss)", head_parts);
    result.problem = Problem{{kLayoutOption, "pipeline-vocab-parts"},
                             fmt::format("--{} {} does not begin with the one E (embedding) and end with {}",
                                         kLayoutOption, layout, end),
                             head_parts == 1 ? kWriteLikeThis : "write it like Ett|tt|tL|L"};
    return result;
  }
  result.layers.push_back(0);
  result.heads.push_back(0);
  for (const char letter : text) {
    if (letter == 't') ++result.layers.back();
    if (letter == 'L') ++result.heads.back();
    if (letter != '|') continue;
    result.layers.push_back(0);
    result.heads.push_back(0);
  }
  return result;
}

// Divides the remaining layers among the stages without a given number, marked by -1.
std::optional<Problem> divide_rest(std::vector<int>& stages, int64_t num_layers, const StageCutConfig& cut) {
  const int64_t extra = (cut.account_for_embedding_in_pipeline_split ? 1 : 0) +
                        (cut.account_for_loss_in_pipeline_split ? 1 : 0);
  const auto open = std::count(stages.begin(), stages.end(), -1);
  int64_t rest = num_layers + extra;
  for (const int layers : stages) rest -= std::max(layers, 0);
  if (rest < 0 || (open == 0 && rest != 0))
    return Problem{{kFirstOption, kLastOption, "num-layers"},
                   fmt::format("--{} and --{} make {} layers, and --num-layers is {}", kFirstOption,
                               kLastOption, num_layers - rest, num_layers),
                   fmt::format("give {} {} in all", open == 0 ? "exactly" : "at most", num_layers + extra)};
  int64_t more = open == 0 ? 0 : rest % open;
  for (int& layers : stages)
    if (layers < 0) layers = static_cast<int>(rest / open + (more-- > 0 ? 1 : 0));
  if (cut.account_for_embedding_in_pipeline_split) --stages.front();
  if (cut.account_for_loss_in_pipeline_split) --stages.back();
  return {};
}

StageLayers from_numbers(const StageCutConfig& cut, int64_t num_layers, int ranks, int chunks) {
  StageLayers result;
  const auto stages = static_cast<size_t>(ranks) * static_cast<size_t>(chunks);
  result.layers.assign(stages, -1);
  const auto give = [&](const std::optional<int64_t>& layers, const char* name, size_t rank) {
    if (!layers || result.problem) return;
    if (*layers % chunks != 0)
      result.problem =
          Problem{{name},
                  fmt::format("--{} {} is not divisible by the {} stages of a rank", name, *layers, chunks),
                  multiples_around(*layers, chunks)};
    for (size_t chunk = 0; chunk < static_cast<size_t>(chunks); ++chunk)
      result.layers[chunk * static_cast<size_t>(ranks) + rank] = static_cast<int>(*layers / chunks);
  };
  give(cut.decoder_first_pipeline_num_layers, kFirstOption, 0);
  give(cut.decoder_last_pipeline_num_layers, kLastOption, static_cast<size_t>(ranks) - 1);
  if (!result.problem) result.problem = divide_rest(result.layers, num_layers, cut);
  return result;
}

// A stage has at least one block: a layer, the embedding or the head.
std::optional<Problem> empty_stage(const StageLayers& stages) {
  const std::vector<int>& layers = stages.layers;
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    const bool end = stage == 0 || stages.heads[stage] > 0;
    if (layers[stage] < 0 || (layers[stage] == 0 && !end))
      return Problem{{"num-layers", "pipeline-model-parallel-size"},
                     fmt::format("stage {} of {} would have no layer", stage, layers.size()),
                     "give more layers or fewer stages"};
  }
  return {};
}

}  // namespace

StageLayers stage_layers(const StageCutConfig& cut, int64_t num_layers, int head_parts, int ranks,
                         int chunks) {
  const auto& layout = cut.pipeline_model_parallel_layout;
  StageLayers result =
      layout ? from_layout(*layout, head_parts) : from_numbers(cut, num_layers, ranks, chunks);
  if (result.problem) return result;
  if (!layout) {
    result.heads.assign(result.layers.size(), 0);
    result.heads.back() = head_parts;
  }
  const int64_t sum = std::accumulate(result.layers.begin(), result.layers.end(), int64_t{0});
  if (layout && static_cast<int64_t>(result.layers.size()) != int64_t{ranks} * chunks)
    result.problem = Problem{
        {kLayoutOption, "pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank"},
        fmt::format("--{} {} has {} stages, and --pipeline-model-parallel-size {} x {} a rank is {}",
                    kLayoutOption, *layout, result.layers.size(), ranks, chunks, int64_t{ranks} * chunks),
        "give --num-virtual-stages-per-pipeline-rank or another layout"};
  else if (layout && sum != num_layers)
    result.problem = Problem{{kLayoutOption, "num-layers"},
                             fmt::format("--{} {} has {} layers (t), and --num-layers is {}", kLayoutOption,
                                         *layout, sum, num_layers),
                             "give as many"};
  else
    result.problem = empty_stage(result);
  return result;
}

}  // namespace trifold
