#include "recommend/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
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

// Probability i of logits of type T.
template <class T>
T probability_of(const Tensor& logits, int64_t i, int64_t first) {
  const T logit = static_cast<const T*>(logits.data)[i];
  check(std::isfinite(logit), "the logit of sample {} is {}", first + i, logit);
  return sigmoid(logit);
}

// The bytes of a file of predictions; each piece until the next one is made.
class PredictionBytes {
 public:
  virtual ~PredictionBytes() = default;
  virtual std::string_view header() { return {}; }
  // `count` samples from number `first` on.
  virtual std::string_view of(int64_t first, int64_t count, const Tensor& logits, const Tensor& labels) = 0;
  virtual std::string_view end() { return {}; }
};

// A line for each sample.
class PredictionLines final : public PredictionBytes {
 public:
  PredictionLines(ScoreFormat format, bool labeled) : csv_(format == ScoreFormat::Csv), labeled_(labeled) {}

  std::string_view header() override {
    text_.clear();
    if (csv_) add("sample,{}probability\n", labeled_ ? "label," : "");
    return view();
  }
  std::string_view of(int64_t first, int64_t count, const Tensor& logits, const Tensor& labels) override {
    text_.clear();
    const auto* label = labels.as<float>();
    dispatch_wide_float(logits.dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < count; ++i)
        add_line(first + i, label[i] == 1, probability_of<T>(logits, i, first));
    });
    return view();
  }

 private:
  template <class T>
  void add_line(int64_t sample, bool clicked, T probability) {
    const int label = clicked ? 1 : 0;
    if (csv_ && labeled_)
      add("{},{},{}\n", sample, label, probability);
    else if (csv_)
      add("{},{}\n", sample, probability);
    else if (labeled_)
      add("{{\"sample\":{},\"label\":{},\"probability\":{}}}\n", sample, label, probability);
    else
      add("{{\"sample\":{},\"probability\":{}}}\n", sample, probability);
  }
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  std::string_view view() const { return {text_.data(), text_.size()}; }

  bool csv_, labeled_;
  fmt::memory_buffer text_;
};

// Rows of a Parquet file.
class PredictionRows final : public PredictionBytes {
 public:
  PredictionRows(bool labeled, bool doubles) : table_(labeled, doubles) {}

  std::string_view of(int64_t first, int64_t count, const Tensor& logits, const Tensor& labels) override {
    labels_.resize(static_cast<size_t>(count));
    probabilities_.resize(static_cast<size_t>(count));
    const auto* label = labels.as<float>();
    dispatch_wide_float(logits.dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < count; ++i) {
        labels_[static_cast<size_t>(i)] = label[i] == 1 ? 1 : 0;
        probabilities_[static_cast<size_t>(i)] = probability_of<T>(logits, i, first);
      }
    });
    return table_.add(first, labels_, probabilities_);
  }
  std::string_view end() override { return table_.finish(); }

 private:
  PredictionTable table_;
  std::vector<int8_t> labels_;
  std::vector<double> probabilities_;
};

std::unique_ptr<PredictionBytes> prediction_bytes(const ScoreJob& job) {
  const bool labeled = job.recommender.samples().schema().labeled;
  if (*job.config.output_format == ScoreFormat::Parquet)
    return std::make_unique<PredictionRows>(labeled, job.recommender.config.precision.f64);
  return std::make_unique<PredictionLines>(*job.config.output_format, labeled);
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

bool score(Communicator& world, const ScoreJob& job, const std::atomic<int>& signal,
           FunctionRef<void(std::string_view text)> write) {
  const ClickSource& source = job.recommender.samples();
  const int64_t batch = job.config.run.global_batch_size;
  const bool is_writer = world.rank() == 0;
  const std::unique_ptr<PredictionBytes> bytes = is_writer ? prediction_bytes(job) : nullptr;
  if (is_writer) write(bytes->header());
  Buffer all_logits, all_labels;
  int64_t first = 0;
  const auto take = [&](const Recommender::Scored& scored, Stream& stream) {
    // Rank r has samples r * share, r * share + 1, ... of the batch; padding follows the last one.
    const int64_t all = scored.logits.elements() * world.size();
    if (all_logits.bytes() == 0) {
      all_logits = Buffer(static_cast<size_t>(all) * size_of(scored.logits.dtype));
      all_labels = Buffer(static_cast<size_t>(all) * sizeof(float));
    }
    const Tensor logits = all_logits.tensor(scored.logits.dtype, {all});
    const Tensor labels = all_labels.tensor(DType::F32, {all});
    world.all_gather(logits, scored.logits.flat(), stream);
    world.all_gather(labels, scored.batch->labels, stream);
    stream.synchronize();
    const int64_t count = std::min(batch, source.samples() - first);
    if (is_writer) write(bytes->of(first, count, logits, labels));
    first += count;
  };
  const bool whole = predict_clicks(world, job.recommender, signal, take, [](Stream&) {});
  if (whole && is_writer) write(bytes->end());
  return whole;
}

}  // namespace trifold
