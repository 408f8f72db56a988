// The bias of models that are trained on data of which `preprocess --drop-negatives X` dropped samples without a click,
// and its correction (He et al., "Practical lessons from predicting clicks on ads at Facebook", ADKDD 2014).
//
// In these data the odds of a click are 1 / (1 - X) times those in all data, so ln(1 - X) is added to the model's log odds.
// With several labels there is no such number: samples are dropped that have none of the labels.
#pragma once

#include <string>

#include "clicks/click_batch.h"
#include "config/fields/recommend_config.h"

namespace trifold {

// What is to be added to the log odds of a model that was trained on such samples, so that they are those of all data; 0
// if nothing was dropped, there are several labels, or `model` leaves them.
double odds_correction(const ClickSchema& samples, const DlrmConfig& model);

// Says what becomes of the odds, for people; empty if nothing was dropped.
std::string odds_note(const ClickSchema& samples, const DlrmConfig& model);

}  // namespace trifold
