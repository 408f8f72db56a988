// The rows of values that have no row of their own (ClickTable::kOtherRow), in predictions.
//
// If no training sample had such a value in a table, its row still has random initial values. Predictions then read it as
// the mean of the table's trained rows (embedding/trained_rows.h): of rows 2 to kMostRows + 1, because later ones hardly
// change it, and a table may have billions. If there are none, the row stays as it is. Training never sees the mean.
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

// In CheckpointMeta::state: the starts of the tables, oldest first.
void note_starts(const std::vector<TableStart>& starts, nlohmann::json& state);
// Those of a checkpoint; of an older one, which lacks them, that of its run.
std::vector<TableStart> starts_of(const CheckpointReader& reader);
// That of a run.
TableStart start_of(const RecommenderSetup& setup);

// The means that take the place of such rows, in the type of the table, by the names of the tables.
std::map<std::string, std::vector<std::byte>> other_rows(CheckpointReader& reader,
                                                         const RecommenderSetup& setup);

class MeanOfRows;

// Puts these means in the place of such rows of a model. Between steps, with no batch fetched.
class OtherRows {
 public:
  // Collective over `world`, the model's ranks.
  OtherRows(Communicator& world, Recommender& model, const std::vector<TableStart>& starts);
  // Gives the rows back what they had.
  void restore() { write(before_); }

 private:
  struct Row {
    NamedTensor box;  // that holds the row
    std::vector<std::byte> values;
  };
  void replace(const MeanOfRows& mean, const std::vector<NamedTensor>& boxes);
  void write(const std::vector<Row>& rows);

  Recommender& model_;
  std::vector<Row> before_, after_;
};

}  // namespace trifold
