// Rows of tokens whose experts are spread over the ranks of the expert axis: each rank holds as many experts as
// the others. All to all, a rank sends every row to the rank of its expert, and gets back what that expert has
// made of it (Lepikhin et al., "GShard", arXiv 2006.16668). Before, the ranks tell each other how many rows of
// each expert they are going to send; a rank that gets none, or an expert, takes part in everything.
//
// Rows are sent as they stand sorted by expert and token, so they arrive sorted by rank, expert and token. None
// is dropped: as many arrive as all ranks' tokens can choose of the experts here, at most.
#pragma once

#include "nn/layer.h"

namespace trifold {

class ExchangedRows {
 public:
  // Of `experts`, of which each token chooses `choices`. Throws where the experts cannot be cut evenly; the
  // message names `name`.
  ExchangedRows(const Mesh& mesh, const std::string& name, int64_t experts, int64_t choices);
  int64_t ranks() const { return ranks_; }
  int64_t experts_here() const { return here_; }

  // How many rows of each expert here each rank is going to send, into counts [ranks, experts here] i32; `first`
  // is that of the rows here (OpTable::sort_choices). Waits for the stream.
  void exchange_counts(Run& run, Tensor counts, Tensor first) const;
  // How many rows arrive. Where nothing is computed, the most that can: every rank has `tokens` then.
  int64_t rows_arriving(Run& run, Tensor counts, int64_t tokens) const;
  // The expert of each row that arrives, the first one here being 0, into expert [rows arriving] i32.
  void find_experts(Run& run, Tensor expert, Tensor counts) const;
  // Rows here to the ranks of their experts, and the way back: `arrived` has a row for each that arrives, `own`
  // one for each choice of the tokens here.
  void send(Run& run, Tensor arrived, Tensor own, Tensor counts, Tensor first) const;
  void send_back(Run& run, Tensor own, Tensor arrived, Tensor counts, Tensor first) const;

 private:
  int ranks_;
  int64_t here_;
  int64_t choices_;
};

}  // namespace trifold
