#include "config/subjects/planning/rehearse.h"

#include "config/options/bounds.h"

namespace trifold {

void add_rehearsal(OptionTable& table, RehearseConfig& config) {
  table.group("Rehearsal");
  table
      .add("only-ranks", &config.only_ranks,
           "Comma-separated list of the ranks that are run, one after the other, each alone.")
      .takes("RANK,...")
      .absent("the first rank of the first, of the fullest and of the last pipeline stage");
  table.add("wait", &config.wait,
            "What a rank waits for where its peers are absent: none, or planned, "
            "for as long as the plan says that the transfer takes.");
  table.add("steps", &config.steps, "Steps that are measured, after a first one that is not.")
      .range(1, kMostRehearsedSteps);
}

void add_rehearsed_batch(OptionTable& table, RehearseConfig& config) {
  table
      .add(
          "micro-batches", &config.micro_batches,
          "Cut the step to this many micro-batches of the rank, for a host that holds fewer than the real device.")
      .range(1, kMaxSize)
      .absent("all of the run's");
}

void add_rehearsed_ids(OptionTable& table, RehearseConfig& config) {
  table
      .add("zipf", &config.zipf,
           "Exponent of the law by which the ids that absent ranks ask for are drawn; 0: all equally often.")
      .range(0, 9);
}

void check_rehearsed_ranks(const RehearseConfig& config, int64_t ranks, Problems& problems) {
  if (!config.only_ranks || !problems.sound({"ranks", "only-ranks"})) return;
  for (const int rank : config.only_ranks->ranks)
    if (rank >= ranks)
      problems.about("only-ranks", "ranks")
          .wrong("--only-ranks {} names rank {}, but the mesh has {} rank{}", config.only_ranks->text(), rank,
                 ranks, ranks == 1 ? "" : "s")
          .right("give ranks from 0 to {}, or the mesh by --ranks", ranks - 1);
}

}  // namespace trifold
