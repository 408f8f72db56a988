#include "recommend/score.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "clicks/click_source.h"
#include "config/command_line/commands.h"
#include "core/error.h"
#include "core/tensor.h"
#include "files/output_files.h"
#include "preprocess/parquet_library.h"
#include "preprocess/prediction_table.h"

namespace trifold {

namespace {

template <class T>
T sigmoid(T logit) {
  const double tail = std::exp(-std::abs(static_cast<double>(logit)));
  return static_cast<T>((logit >= 0 ? 1 : tail) / (1 + tail));
}

// Consecutive samples from number `first` on, `labels` labels each.
struct Predictions {
  int64_t first, count, labels;
  Tensor logits, clicked, weights;  // [count, labels], or longer

  // Probability i of logits of type T.
  template <class T>
  T probability(int64_t i) const {
    const T logit = static_cast<const T*>(logits.data)[i];
    check(std::isfinite(logit), "the logit of sample {} is {}", first + i / labels, logit);
    return sigmoid(logit);
  }
  // 0, 1, or kMissing.
  static constexpr int8_t kMissing = -1;
  int8_t label(int64_t i) const {
    if (labels > 1 && weights.as<float>()[i] == 0) return kMissing;
    return clicked.as<float>()[i] == 1 ? 1 : 0;
  }
};

// The columns of a kind: "label" alone, or "label_click", "label_like".
std::vector<std::string> column_names(std::string_view kind, const std::vector<std::string>& labels) {
  if (labels.empty()) return {std::string(kind)};
  std::vector<std::string> names;
  for (const std::string& label : labels) names.push_back(fmt::format("{}_{}", kind, label));
  return names;
}

// The bytes of a file of predictions; each piece until the next one is made.
class PredictionBytes {
 public:
  virtual ~PredictionBytes() = default;
  virtual std::string_view header() { return {}; }
  virtual std::string_view of(const Predictions& samples) = 0;
  virtual std::string_view end() { return {}; }
};

// A line for each sample.
class PredictionLines final : public PredictionBytes {
 public:
  PredictionLines(ScoreFormat format, bool labeled, const std::vector<std::string>& labels)
      : csv_(format == ScoreFormat::Csv),
        labeled_(labeled),
        label_names_(column_names("label", labels)),
        probability_names_(column_names("probability", labels)) {}

  std::string_view header() override {
    text_.clear();
    if (csv_)
      add("sample,{}{}{}\n", labeled_ ? fmt::format("{}", fmt::join(label_names_, ",")) : "",
          labeled_ ? "," : "", fmt::join(probability_names_, ","));
    return view();
  }
  std::string_view of(const Predictions& samples) override {
    text_.clear();
    dispatch_wide_float(samples.logits.dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < samples.count; ++i) add_line<T>(samples, i);
    });
    return view();
  }

 private:
  template <class T>
  void add_line(const Predictions& samples, int64_t i) {
    add(csv_ ? "{}" : "{{\"sample\":{}", samples.first + i);
    for (int64_t l = 0; labeled_ && l < samples.labels; ++l) {
      add_name(label_names_, l);
      if (const int8_t label = samples.label(i * samples.labels + l); label != Predictions::kMissing)
        add("{}", static_cast<int>(label));
      else if (!csv_)
        add("null");
    }
    for (int64_t l = 0; l < samples.labels; ++l) {
      add_name(probability_names_, l);
      add("{}", samples.probability<T>(i * samples.labels + l));
    }
    add(csv_ ? "\n" : "}}\n");
  }
  void add_name(const std::vector<std::string>& names, int64_t l) {
    if (csv_)
      add(",");
    else
      add(",\"{}\":", names[static_cast<size_t>(l)]);
  }
  template <class... Args>
  void add(std::string_view format, const Args&... args) {
    fmt::vformat_to(std::back_inserter(text_), format, fmt::make_format_args(args...));
  }
  std::string_view view() const { return {text_.data(), text_.size()}; }

  bool csv_, labeled_;
  std::vector<std::string> label_names_, probability_names_;
  fmt::memory_buffer text_;
};

// Rows of a Parquet file.
class PredictionRows final : public PredictionBytes {
 public:
  PredictionRows(bool labeled, bool doubles, const std::vector<std::string>& labels)
      : table_(labeled ? column_names("label", labels) : std::vector<std::string>{},
               column_names("probability", labels), doubles) {}

  std::string_view of(const Predictions& samples) override {
    const auto values = static_cast<size_t>(samples.count * samples.labels);
    labels_.resize(values);
    probabilities_.resize(values);
    dispatch_wide_float(samples.logits.dtype, [&]<class T>(T) {
      for (size_t i = 0; i < values; ++i) {
        labels_[i] = samples.label(static_cast<int64_t>(i));
        probabilities_[i] = samples.probability<T>(static_cast<int64_t>(i));
      }
    });
    return table_.add(samples.first, labels_, probabilities_);
  }
  std::string_view end() override { return table_.finish(); }

 private:
  PredictionTable table_;
  std::vector<int8_t> labels_;
  std::vector<double> probabilities_;
};

std::unique_ptr<PredictionBytes> prediction_bytes(const ScoreJob& job) {
  const ClickSchema& schema = job.recommender.schema;
  if (*job.config.output_format == ScoreFormat::Parquet)
    return std::make_unique<PredictionRows>(schema.labeled, job.recommender.config.precision.f64,
                                            schema.labels);
  return std::make_unique<PredictionLines>(*job.config.output_format, schema.labeled, schema.labels);
}

}  // namespace

ScoreJob prepare(const ScoreConfig& config) {
  ScoreJob job{config, {}, {}};
  if (config.output != "-") check_writable_file("--output", config.output);
  job.recommender = open_recommender(config.run);
  if (*config.output_format == ScoreFormat::Parquet)
    parquet_library(fmt::format("--output {}", config.output));
  job.terms.add(options_of(job.config));
  add_terms(job.terms, job.recommender);
  return job;
}

std::optional<std::vector<TableUnknowns>> score(Communicator& world, const ScoreJob& job,
                                                const std::atomic<int>& signal,
                                                FunctionRef<void(std::string_view text)> write) {
  const ClickSource& source = job.recommender.samples();
  const int64_t batch = job.config.run.global_batch_size;
  const bool is_writer = world.rank() == 0;
  const std::unique_ptr<PredictionBytes> bytes = is_writer ? prediction_bytes(job) : nullptr;
  if (is_writer) write(bytes->header());
  Buffer all_logits, all_labels, all_weights;
  const int64_t labels = job.recommender.schema.label_count();
  int64_t first = 0;
  const auto take = [&](const Recommender::Scored& scored, Stream& stream) {
    // Rank r has samples r * share, r * share + 1, ... of the batch; padding follows the last one.
    const int64_t all = scored.logits.elements() * world.size();
    const auto gather = [&](Buffer& memory, const Tensor& mine) {
      if (memory.bytes() == 0) memory = Buffer(static_cast<size_t>(all) * size_of(mine.dtype));
      const Tensor of_all = memory.tensor(mine.dtype, {all});
      world.all_gather(of_all, mine.flat(), stream);
      return of_all;
    };
    const Tensor logits = gather(all_logits, scored.logits);
    const Tensor clicked = gather(all_labels, scored.batch->labels);
    const Tensor weights = labels > 1 ? gather(all_weights, scored.batch->weights) : Tensor{};
    stream.synchronize();
    const int64_t count = std::min(batch, source.samples() - first);
    if (is_writer) write(bytes->of({first, count, labels, logits, clicked, weights}));
    first += count;
  };
  std::vector<TableUnknowns> unknown;
  const auto finish = [&](Stream&, const std::vector<TableUnknowns>& counts) { unknown = counts; };
  if (!predict_clicks(world, job.recommender, signal, take, finish)) return std::nullopt;
  if (is_writer) write(bytes->end());
  return unknown;
}

}  // namespace trifold
