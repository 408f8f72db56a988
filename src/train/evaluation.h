// Mean loss of a model over a range of samples, divided among the data-parallel ranks.
#pragma once

#include <array>
#include <atomic>
#include <optional>
#include <span>
#include <string>

#include "data/read_ahead.h"
#include "pipeline/executor.h"
#include "run/metrics.h"
#include "run/stop_poll.h"
#include "train/class_counts.h"
#include "train/replica.h"

namespace trifold {

// The divisors of the losses of a range of samples. BERT's two losses have different divisors (PooledHead::kPairScale),
// and so have the losses of modules that predict further tokens (PredictionReports::scale); they must be known before the
// losses are computed.
struct LabelCount {
  double labels = 0;  // sum of the loss weights
  double pairs = 0;   // sum of the pairs' weights
  double tokens = 0;  // without padding
  // Sums of the weights of later labels.
  std::array<double, kMostLaterLabels> later = {};
};

// Batch::values for the micro-batches of the samples counted in `count`. `later_factor`: the weight of the mean loss of
// each module that predicts further tokens.
BatchValues batch_values(const ReportList& reports, const LabelCount& count, double later_factor = 0);

// Reads a batch from sample `first` on into `buffer` and adds it to `count`; samples from `end` on are padding and do
// not count.
void count_labels(const DataSource& source, BatchBuffer& buffer, int64_t first, int64_t end,
                  LabelCount& count);
// Counts samples [0, end), divided among ranks as by forward_samples. Collective. The result is invalid if `poll`
// stopped it.
LabelCount count_all_labels(Replica& replica, const DataSource& source, BatchBuffer& buffer, int64_t end,
                            StopPoll& poll);
// Sums the counts over the data axis. Collective.
void sum_over_data_ranks(Replica& replica, std::span<LabelCount> counts);

// This rank's share of the loss sums over samples [0, end). Blocks of micro-batch size go to the data-parallel ranks in
// turn; the last block is padded so that it can be sharded like the others, or smaller if it has arrays. `buffer` holds one micro-batch; `values`
// result from all samples; `watch`, if given, observes the computation. `poll` is called before each round of blocks
// and may end the loop. `classes`, if given, gets the counters of every micro-batch. `together`: the data ranks exchange
// something in every forward, so that a rank without samples in the last round computes padding.
LossSums forward_samples(Executor& executor, const Mesh& mesh, bool together, RowCut cut,
                         const DataSource& source, BatchBuffer& buffer, int64_t end, StopPoll& poll,
                         const BatchValues& values, StepWatch* watch = nullptr,
                         ClassCounts* classes = nullptr);

// Sums each rank's shares over the data and pipeline axes; every sample counts once on any mesh. Collective.
void sum_over_ranks(Replica& replica, std::span<LossSums> sums);

// The sums over samples [0, samples) of all ranks; nullopt if `poll` stopped it. Collective.
std::optional<LossSums> loss_sums(Replica& replica, Executor& executor, const DataSource& source,
                                  BatchBuffer& buffer, int64_t samples, bool has_pairs, StopPoll& poll,
                                  StepWatch* watch = nullptr, ClassCounts* classes = nullptr);

// Sets `means` to the shown terms of `sums`; it keeps its memory if it has the same terms already.
void find_means(const ReportList& reports, const LossSums& sums, MeanTerms& means);

// Throws the same BadInput on all ranks if no label counts in `sums`; `what` names the samples ("valid of 3 samples").
void expect_counted(const LossSums& sums, const Communicator& world, const std::string& what);

// Mean loss over the first `samples` samples. Builds the executor it needs. `has_pairs`: the model is a
// BERT. nullopt if `signal` (may be null) stopped it. Collective.
std::optional<LossSums> evaluate_model(Replica& replica, const DataSource& source, int64_t micro_batch_size,
                                       int64_t samples, bool has_pairs = false, StepWatch* watch = nullptr,
                                       const std::atomic<int>* signal = nullptr,
                                       ClassCounts* classes = nullptr);

}  // namespace trifold
