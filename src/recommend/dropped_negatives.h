// Corrects predictions of models trained on data from which `preprocess --drop-negatives X` dropped a share X of the
// samples without a click (He et al., "Practical lessons from predicting clicks on ads at Facebook", ADKDD 2014).
//
// Dropping multiplies the odds of a click by 1 / (1 - X), so ln(1 - X) is added to the model's log odds. With several
// labels no such correction exists, because the dropped samples are the ones in which no label is 1.
#pragma once

#include <string>

#include "clicks/click_batch.h"
#include "config/fields/recommend_config.h"

namespace trifold {

// The correction to add to the log odds of a model trained on `samples`; 0 if nothing was dropped, if there are several
// labels, or if `model` has no_correct_negatives.
double odds_correction(const ClickSchema& samples, const DlrmConfig& model);

// A message for the user that says whether and how predictions are corrected; empty if nothing was dropped.
std::string odds_note(const ClickSchema& samples, const DlrmConfig& model);

}  // namespace trifold
