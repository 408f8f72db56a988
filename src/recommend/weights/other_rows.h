// Improves predictions for values without a row of their own, which use the table's *other row*
// (ClickTable::kOtherRow).
//
// If no training sample had such a value in a table, the other row still has random initial values. Predictions then
// replace it by the mean of the table's trained rows (embedding/trained_rows.h). The mean is over rows 2 to
// kMostMeanRows + 1, because later rows hardly change it and a table may have billions. If no row is trained, the other
// row stays as it is. Training never sees the mean.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "embedding/trained_rows.h"
#include "recommend/recommender.h"

namespace trifold {

inline constexpr int64_t kMostMeanRows = int64_t{1} << 20;

// Stores the starts of the tables, oldest first, in CheckpointMeta::state.
void note_starts(const std::vector<TableStart>& starts, nlohmann::json& state);
// The starts that a checkpoint stores; for an older checkpoint without them, the start of its run.
std::vector<TableStart> starts_of(const CheckpointReader& reader);
// The start of a run.
TableStart start_of(const RecommenderSetup& setup);

// The means that replace other rows, in the type of the table, by name of the table.
std::map<std::string, std::vector<std::byte>> other_rows(CheckpointReader& reader,
                                                         const RecommenderSetup& setup);

class MeanOfRows;

// Replaces the other rows of a model by these means. To be used between steps, with no batch fetched.
class OtherRows {
 public:
  // Collective over `world`, the model's ranks.
  OtherRows(Communicator& world, Recommender& model, const std::vector<TableStart>& starts);
  // Restores the original rows.
  void restore() { write(before_); }

 private:
  struct Row {
    NamedTensor box;  // the tensor that holds the row
    std::vector<std::byte> values;
  };
  void replace(const MeanOfRows& mean, const std::vector<NamedTensor>& boxes);
  void write(const std::vector<Row>& rows);

  Recommender& model_;
  std::vector<Row> before_, after_;
};

}  // namespace trifold
