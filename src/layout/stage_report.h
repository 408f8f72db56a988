// StageReport: a stage of a cut model, for reports.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/cut_model.h"

namespace trifold {

struct StageReport {
  int rank = 0;  // pipeline rank
  StageRange blocks;
  int layers = 0;          // transformer layers in `blocks`
  int heads = 0;           // blocks of the head in `blocks`
  int lookups = 0;         // parts of the token embedding, if the stage only looks up tokens
  int64_t parameters = 0;  // summed over the tensor ranks; a tied copy counts on the rank that holds it
  double cost_share = 0;   // fraction of the model's forward cost
};

// The report of every stage, in order.
std::vector<StageReport> report_stages(const CutModel& model);

}  // namespace trifold
