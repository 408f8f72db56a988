#include "recommend/dropped_negatives.h"

#include <fmt/format.h>

#include <cmath>

namespace trifold {

double odds_correction(const ClickSchema& samples, const DlrmConfig& model) {
  if (model.no_correct_negatives || !samples.labels.empty()) return 0;
  return std::log1p(-samples.dropped_negatives);
}

std::string odds_note(const ClickSchema& samples, const DlrmConfig& model) {
  if (samples.dropped_negatives == 0) return "";
  const std::string dropped = fmt::format("{} of the negatives were dropped", samples.dropped_negatives);
  if (!samples.labels.empty()) return dropped + ": predictions of several labels are not corrected for it";
  if (model.no_correct_negatives)
    return dropped + ": predictions are not corrected for it (--no-correct-negatives)";
  return fmt::format("{}: predictions are corrected by {:.4f} to the log odds of all samples", dropped,
                     odds_correction(samples, model));
}

}  // namespace trifold
