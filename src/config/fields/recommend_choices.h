// The enums in configurations of recommenders, with the names of their values as in choices.h, and values that have
// their own text form as in values.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/fields/named.h"

namespace trifold {

// ---- Clicks ----

// The transform of a dense value x from a file; NaN stands for a missing one (clicks/click_transform.h).
enum class DenseTransform {
  None,   // x; missing 0
  Log1p,  // ln(max(x, 0) + 1); missing 0. facebookresearch/dlrm, MLPerf
  Log3,   // ln(x + 3); missing, and x <= -3, which has no logarithm: 0. NVIDIA's DLRM
  LogMin,  // ln(x - m + 2), m the least value of all samples and dense features; missing: x = 0, also in m. TorchRec
};
template <>
struct Names<DenseTransform> {
  static constexpr Named<DenseTransform> kAll[] = {{DenseTransform::None, "none"},
                                                   {DenseTransform::Log1p, "log1p"},
                                                   {DenseTransform::Log3, "log3"},
                                                   {DenseTransform::LogMin, "logmin"}};
};

// The treatment of ids outside [0, rows).
enum class IdPolicy {
  Error,   // BadInput that names file, sample or line, column, id and limit
  Modulo,  // id mod rows; ids are unsigned
  Clip,    // rows - 1
};
template <>
struct Names<IdPolicy> {
  static constexpr Named<IdPolicy> kAll[] = {
      {IdPolicy::Error, "error"}, {IdPolicy::Modulo, "modulo"}, {IdPolicy::Clip, "clip"}};
};

// Quotes in a text whose columns are named by options: around fields, or plain characters. Auto: around fields if
// commas separate them; otherwise the first lines decide.
enum class Quoting { Auto, Quotes, None };
template <>
struct Names<Quoting> {
  static constexpr Named<Quoting> kAll[] = {
      {Quoting::Auto, "auto"}, {Quoting::Quotes, "quotes"}, {Quoting::None, "none"}};
};

// The treatment of a row without a label.
enum class Unlabelled {
  Malformed,  // a malformed row: listed, left out, and counted towards --max-malformed
  Skip,       // left out
  Negative,   // its label is 0
  Keep,       // a sample without a label, which can be scored; training and evaluation ignore it
};
template <>
struct Names<Unlabelled> {
  static constexpr Named<Unlabelled> kAll[] = {{Unlabelled::Malformed, "malformed"},
                                               {Unlabelled::Skip, "skip"},
                                               {Unlabelled::Negative, "negative"},
                                               {Unlabelled::Keep, "keep"}};
};

// A part of a date or time, used as a feature (clicks/cells/moment.h). Weekdays are 1, Monday, to 7; Days and Seconds
// count from 1970-01-01 UTC, with fractions.
enum class TimePart { Year, Month, Day, Weekday, Hour, Minute, Second, Days, Seconds };
template <>
struct Names<TimePart> {
  static constexpr Named<TimePart> kAll[] = {
      {TimePart::Year, "year"},       {TimePart::Month, "month"}, {TimePart::Day, "day"},
      {TimePart::Weekday, "weekday"}, {TimePart::Hour, "hour"},   {TimePart::Minute, "minute"},
      {TimePart::Second, "second"},   {TimePart::Days, "days"},   {TimePart::Seconds, "seconds"}};
};

// How preprocessing turns hashes into ids: numbered in order of first appearance; modulo a number; or not at all, so
// that training assigns rows to them (clicks/keys/key_table.h).
enum class IdSource { Dictionary, Hash, Keys };
template <>
struct Names<IdSource> {
  static constexpr Named<IdSource> kAll[] = {
      {IdSource::Dictionary, "dictionary"}, {IdSource::Hash, "hash"}, {IdSource::Keys, "keys"}};
};

// The key that loses its row to a new one if no row is free: none, the one seen longest ago, or the one seen least
// often (clicks/keys/key_table.h).
enum class KeyEviction { None, Oldest, Rarest };
template <>
struct Names<KeyEviction> {
  static constexpr Named<KeyEviction> kAll[] = {
      {KeyEviction::None, "none"}, {KeyEviction::Oldest, "oldest"}, {KeyEviction::Rarest, "rarest"}};
};

// The order of the training samples: each pass shuffled by the seed, or as they are stored.
enum class SampleOrder { Shuffled, Stored };
template <>
struct Names<SampleOrder> {
  static constexpr Named<SampleOrder> kAll[] = {{SampleOrder::Shuffled, "shuffled"},
                                                {SampleOrder::Stored, "stored"}};
};

// ---- The model ----

// Interaction of a sample's vectors: pairwise dot products, concatenation, a cross network, or a factorization machine
// in addition to the MLP (models/dlrm.h).
enum class InteractionKind { Dot, Cat, Cross, Fm };
template <>
struct Names<InteractionKind> {
  static constexpr Named<InteractionKind> kAll[] = {{InteractionKind::Dot, "dot"},
                                                    {InteractionKind::Cat, "cat"},
                                                    {InteractionKind::Cross, "cross"},
                                                    {InteractionKind::Fm, "fm"}};
};

// The layers that several labels share below their towers: one stack, or experts that each label mixes by a gate
// (nn/clicks/label_towers.h).
enum class MultiTask { SharedBottom, Mmoe };
template <>
struct Names<MultiTask> {
  static constexpr Named<MultiTask> kAll[] = {{MultiTask::SharedBottom, "shared-bottom"},
                                              {MultiTask::Mmoe, "mmoe"}};
};

// How the rows of a bag of ids are combined.
enum class Pooling { Sum, Mean };
template <>
struct Names<Pooling> {
  static constexpr Named<Pooling> kAll[] = {{Pooling::Sum, "sum"}, {Pooling::Mean, "mean"}};
};

// The loss: binary cross entropy of the logit, or the squared difference of probability and label.
enum class ClickLossKind { Bce, Mse };
template <>
struct Names<ClickLossKind> {
  static constexpr Named<ClickLossKind> kAll[] = {{ClickLossKind::Bce, "bce"}, {ClickLossKind::Mse, "mse"}};
};

// The update rule of the table rows that a step uses.
enum class TableOptimizer { Sgd, Adagrad, RowwiseAdagrad, Adam, Ftrl };
template <>
struct Names<TableOptimizer> {
  static constexpr Named<TableOptimizer> kAll[] = {{TableOptimizer::Sgd, "sgd"},
                                                   {TableOptimizer::Adagrad, "adagrad"},
                                                   {TableOptimizer::RowwiseAdagrad, "rowwise-adagrad"},
                                                   {TableOptimizer::Adam, "adam"},
                                                   {TableOptimizer::Ftrl, "ftrl"}};
};

// How a table is distributed over ranks (embedding/placement.h).
enum class PlacementKind : uint8_t { Table, Row, Column, Replicated };
template <>
struct Names<PlacementKind> {
  static constexpr Named<PlacementKind> kAll[] = {{PlacementKind::Table, "table"},
                                                  {PlacementKind::Row, "row"},
                                                  {PlacementKind::Column, "column"},
                                                  {PlacementKind::Replicated, "replicated"}};
};

// The names of a recommender's weights in a file of tensors (recommend/weights/weight_names.h).
enum class WeightNames { Trifold, Torchrec };
template <>
struct Names<WeightNames> {
  static constexpr Named<WeightNames> kAll[] = {{WeightNames::Trifold, "trifold"},
                                                {WeightNames::Torchrec, "torchrec"}};
};

// The file format of predictions.
enum class ScoreFormat { Csv, Jsonl, Parquet };
template <>
struct Names<ScoreFormat> {
  static constexpr Named<ScoreFormat> kAll[] = {
      {ScoreFormat::Csv, "csv"}, {ScoreFormat::Jsonl, "jsonl"}, {ScoreFormat::Parquet, "parquet"}};
};

// ---- Values ----

// A list of whole numbers of at least 1, like 512-256-64 or 512,256,64: widths of MLPs, rows and ids of tables.
class NumberList {
 public:
  static constexpr std::string_view kBounds = "each at least 1";

  NumberList(std::initializer_list<int64_t> numbers) : NumberList(std::vector<int64_t>(numbers)) {}
  explicit NumberList(std::vector<int64_t> numbers);
  static NumberList parse(std::string_view text);

  const std::vector<int64_t>& numbers() const { return numbers_; }
  const std::string& spelled() const { return spelled_; }
  std::string text() const { return spelled_; }

 private:
  std::vector<int64_t> numbers_;
  std::string spelled_;  // as the user gave it
};

// --table-rows: the rows of each table, given here or by the data.
struct TableRows {
  static constexpr std::string_view kBounds = NumberList::kBounds;
  std::optional<NumberList> list;  // absent: the data's

  static TableRows parse(std::string_view text);
  std::string text() const;
};

// --placement: one kind for all tables, one for each, or the planner's choice.
struct TablePlacements {
  std::vector<PlacementKind> kinds;  // empty: auto

  static TablePlacements parse(std::string_view text);
  std::string text() const;
  bool is_auto() const { return kinds.empty(); }
};

// Column names, separated by commas; a name with commas is quoted.
struct ColumnNames {
  std::vector<std::string> names;

  static ColumnNames parse(std::string_view text);
  std::string text() const;
};

// Pairs of columns, as in history:item,seen:item; a name with commas is quoted. A column is the first of at most one
// pair.
struct ColumnPairs {
  std::vector<std::pair<std::string, std::string>> pairs;

  static ColumnPairs parse(std::string_view text);
  std::string text() const;
};

// Columns with any number of texts per field, each with its separator, as in genres:|,tags:space. Columns of lists, as
// in Parquet files, need no separator.
struct BagColumns {
  struct Column {
    std::string name;
    char separator = '\0';  // none
  };
  std::vector<Column> columns;

  // A separator is a character, or one of the words space, tab and comma.
  static BagColumns parse(std::string_view text);
  std::string text() const;
};

// The character between the fields of a line: itself, or the word tab.
struct Separator {
  char character = ',';

  static Separator parse(std::string_view text);
  std::string text() const;
};

// The rule by which samples count as clicked: a column of 0 and 1 (or false and true), or a comparison of a column with
// a value, as in rating>=4 or income==>50K. Numbers are compared by value; == and != also compare texts, and ^= is true
// of texts that begin with the value.
struct LabelRule {
  enum class Is { True, Equal, Unequal, Begins, Less, LessEqual, Greater, GreaterEqual };

  std::string column;
  Is is = Is::True;
  std::string value;             // unused for True
  std::optional<double> number;  // `value` as a number, if it is one

  static LabelRule parse(std::string_view text);
  std::string text() const;
};

// One or several labels of a sample, separated by commas as in ColumnNames: click,like or click,"note==a, b".
struct LabelRules {
  std::vector<LabelRule> rules;

  static LabelRules parse(std::string_view text);
  std::string text() const;
};

// Numbers above 0, separated by commas: 1,0.5.
struct WeightList {
  static constexpr std::string_view kBounds = "each above 0";
  std::vector<double> weights;

  static WeightList parse(std::string_view text);
  std::string text() const;
};

}  // namespace trifold
