#include "recommend/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "clicks/click_source.h"
#include "config/commands/commands.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/tensor.h"
#include "files/output_files.h"
#include "preprocess/parquet_library.h"
#include "recommend/prediction_bytes.h"

namespace trifold {

namespace {

template <class T>
T sigmoid(T logit) {
  const double tail = std::exp(-std::abs(static_cast<double>(logit)));
  return static_cast<T>((logit >= 0 ? 1 : tail) / (1 + tail));
}

// A batch of predictions, `labels` labels each.
struct Predictions {
  int64_t count, labels;
  Tensor logits, clicked, weights;  // [count, labels], or longer

  static constexpr int8_t kMissing = -1;
  // 0, 1, or kMissing.
  int8_t label(int64_t i) const {
    if (weights.as<float>()[i] == 0) return kMissing;
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

PredictionTable::Columns columns_of(const ScoreJob& job) {
  const ClickSchema& schema = job.recommender.schema;
  PredictionTable::Columns columns;
  if (job.config.keep) columns.texts = job.config.keep->names;
  if (schema.labeled) columns.labels = column_names("label", schema.labels);
  columns.probabilities = column_names("probability", schema.labels);
  columns.doubles = job.recommender.config.precision.f64;
  return columns;
}

void check_kept_names(const PredictionTable::Columns& columns) {
  std::vector<std::string> names{"sample"};
  for (const auto* own : {&columns.labels, &columns.probabilities})
    names.insert(names.end(), own->begin(), own->end());
  for (const std::string& name : columns.texts) {
    if (std::find(names.begin(), names.end(), name) != names.end())
      bad_input("--keep {}: the output has a column of this name already: rename that of the data",
                printable(name));
    names.push_back(name);
  }
}

// The rows of the input in their order: samples with their predictions, and rows that are no samples without.
class InputRows {
 public:
  InputRows(const ScoreJob& job, const PredictionTable::Columns& columns)
      : source_(job.recommender.samples()),
        left_out_(job.recommender.data.left_out),
        labels_(columns.labels.size()),
        probabilities_(columns.probabilities.size()) {
    const std::vector<std::string> kept = source_.kept_columns();
    for (const std::string& name : columns.texts)
      kept_.push_back(static_cast<int>(std::find(kept.begin(), kept.end(), name) - kept.begin()));
  }

  // The rows up to the last sample of the batch that follows the one before; valid until the next call.
  const PredictionTable::Rows& next(const Predictions& batch) {
    clear();
    dispatch_wide_float(batch.logits.dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < batch.count; ++i) {
        add_left_out();
        add_sample<T>(batch, i);
      }
    });
    return rows_;
  }
  // Those after the last sample.
  const PredictionTable::Rows& rest() {
    clear();
    add_left_out();
    return rows_;
  }

 private:
  void clear() {
    rows_ = {};
    rows_.texts.resize(kept_.size());
  }
  void add_left_out() {
    for (; left_ < left_out_.size() && left_out_[left_] == row_; ++left_, ++row_) {
      rows_.samples.push_back(row_);
      rows_.labels.insert(rows_.labels.end(), labels_, Predictions::kMissing);
      rows_.probabilities.insert(rows_.probabilities.end(), probabilities_,
                                 std::numeric_limits<double>::quiet_NaN());
      for (std::vector<std::string>& column : rows_.texts) column.emplace_back();
    }
  }
  template <class T>
  void add_sample(const Predictions& batch, int64_t i) {
    rows_.samples.push_back(row_);
    for (int64_t l = i * batch.labels; l < (i + 1) * batch.labels; ++l) {
      if (labels_ > 0) rows_.labels.push_back(batch.label(l));
      const T logit = static_cast<const T*>(batch.logits.data)[l];
      check(std::isfinite(logit), "the logit of sample {} is {}", row_, logit);
      rows_.probabilities.push_back(sigmoid(logit));
    }
    for (size_t k = 0; k < kept_.size(); ++k) rows_.texts[k].push_back(source_.kept(sample_, kept_[k]));
    ++sample_;
    ++row_;
  }

  const ClickSource& source_;
  std::span<const int64_t> left_out_;
  std::vector<int> kept_;  // columns of the source
  size_t labels_, probabilities_;
  int64_t sample_ = 0, row_ = 0;  // the next ones
  size_t left_ = 0;               // entries of left_out_ that were added
  PredictionTable::Rows rows_;
};

}  // namespace

ScoreJob prepare(const ScoreConfig& config) {
  ScoreJob job{config, {}, {}};
  if (config.output != "-") check_writable_file("--output", config.output);
  PredictionUse use;
  if (config.keep) use.keep = config.keep->names;
  job.recommender = open_recommender(config.run, use);
  check_kept_names(columns_of(job));
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
  const PredictionTable::Columns columns = columns_of(job);
  InputRows rows(job, columns);
  const std::unique_ptr<PredictionBytes> bytes =
      is_writer ? prediction_bytes(*job.config.output_format, columns) : nullptr;
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
    const Tensor weights = gather(all_weights, scored.batch->weights);
    stream.synchronize();
    const int64_t count = std::min(batch, source.samples() - first);
    if (is_writer) write(bytes->of(rows.next({count, labels, logits, clicked, weights})));
    first += count;
  };
  std::vector<TableUnknowns> unknown;
  const auto finish = [&](Stream&, const std::vector<TableUnknowns>& counts) { unknown = counts; };
  if (!predict_clicks(world, job.recommender, signal, take, finish)) return std::nullopt;
  if (!is_writer) return unknown;
  if (const PredictionTable::Rows& rest = rows.rest(); !rest.samples.empty()) write(bytes->of(rest));
  write(bytes->end());
  return unknown;
}

}  // namespace trifold
