#include "train/run_job.h"

#include "files/output_files.h"

namespace trifold {

void RunJob::add_terms(const OptionTable& options) {
  terms.add(options);
  if (start.from && !start.may_fall_back) terms.add_checkpoint(*start.from);
}

void Preparation::check_outputs(const RunStart& start, const CheckpointConfig& checkpoint,
                                const LogConfig& log, std::optional<int64_t> first_step) {
  if (checkpoint.save) attempt([&] { check_save(checkpoint, start, first_step); });
  if (log.log_json) attempt([&] { check_writable_file("--log-json", *log.log_json); });
}

}  // namespace trifold
