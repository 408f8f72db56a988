// The stages into which a model was cut, for reports.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/cut_model.h"

namespace trifold {

struct StageReport {
  int rank = 0;            // pipeline rank
  StageRange blocks;       // the embedding, after blocks that look up tokens for it, is first, the head last
  int layers = 0;          // transformer layers among them
  int heads = 0;           // blocks of the head among them
  int lookups = 0;         // parts of the token embedding, of a stage that only looks up tokens
  int64_t parameters = 0;  // of all tensor ranks together; a tied copy counts on the rank that holds it
  double cost_share = 0;   // of the model's forward cost
};

// The report of every stage, in order.
std::vector<StageReport> report_stages(const CutModel& model);

}  // namespace trifold
